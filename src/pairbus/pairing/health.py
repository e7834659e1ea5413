"""The health of one entity of the primary, as one client sees it: when its sends fail over, and when back.

Theory of operation
-------------------

1. The machine is the table `TABLE`: (state, input) -> (state, steps). A pair that is not in it changes
   nothing. The picture in the documentation is drawn from it.
2. Nothing here waits, sends or looks at a clock. Methods take `now` and return *effects*, data that say
   what the shell around the SDK has to do. `next_deadline` says when to `tick`. `now` must never step
   back, or a clock that is set would fail entities over; a shell that hands in a monotonic clock puts the
   time of day into the changes that it passes on.
3. An *attempt* begins when a caller's message takes its place in the sender's FIFO, so that waiting behind a
   silent peer counts. It ends with `succeed` or `record`; a failover abandons those that have no answer,
   and what an abandoned one reports later is ignored.
4. The failover clock runs from the beginning of the first attempt that failed, counted, or is still without
   an answer. Where a link has to be opened for it (before the first success ever, after a refusal, after an
   idle spell, after a failback without a ping of one's own), one that is only without an answer is given
   `_FIRST_ANSWER`: the SDK takes its time to open a link, and to tell a wrong key or name from silence. A
   success stops the clock: an attempt that
   began earlier is then taken to begin at that success, so a single stuck attempt does not fail over an
   entity that goes on answering others. A refusal stops it like a success: an entity that is disabled, gone,
   full or not ours to use is not down, whatever became of the link to it, and the backlog would only hide
   what the caller has to see. Throttling holds the clock for those that wait, until the wait is over that the
   service asked for, whatever it answers meanwhile: nobody sends before that, but after a failover.
5. With a `failover_interval` of 0 only a failure fails over, since every attempt is without an answer at
   first; what bounds a silent peer is then the shell's deadline for one attempt, which ends in a failure.
6. The first ping goes out with the failover, the next ones each `ping_primary_interval` after the start of
   the one before, earlier by a random part of `ping_jitter` and never later, whether that one has been
   answered or not: a ping that hangs delays no failback. A failure is heard only while no later ping has been
   answered; a success always is. A forced failover waits an interval before its first ping, or a healthy
   primary would undo it at once.
7. `PERMANENT_PINGS` pings in a row with the same permanent error fault the entity. Pings go on: a good one,
   or `mark_healthy`, mends it. What an abandoned attempt meets after all counts as a ping would, at most once
   an interval.
8. A ping may be put off, because another client of the fleet pings, and its word that the entity is back is
   taken like a ping of one's own by who can open a link. Not by one that cannot, nor by one that has taken it
   before and failed over again without a success in between, nor by one that is faulted: they ping at once
   and believe that. Not before a forced failover would have pinged. Whoever counts pings in a row, good or
   permanent ones, puts none off, and takes the word of one who has counted good ones to the end.
9. Callers that give their attempts up tell nothing by that, or a program that ends its sends for reasons of
   its own would fail over. But when such attempts have been on the wire for `_ENOUGH` in all, and nothing was
   answered from the first of them on, that is silence, however little patience each of them had.
10. A tick that comes late by `ABSENCE` shows that this process stood still, stopped or busy: nothing was
   heard because nobody listened. Once, until a success, it gets as long as it takes to open a link before
   that is an outage.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from pairbus.options import EntityState, SendAvailabilityOptions, StateChange

from .errors import PrimaryEntityFault
from .failures import SILENCE, Action, FailureKind, Ruling

#: How many pings in a row must meet the same permanent error to fault an entity. One may meet a deployment or
#: a rotated key half-way; the first and the third are about two ping intervals apart.
PERMANENT_PINGS = 3
# The SDK opens a link in half a second next door, and in more far away; it tells a wrong key or name after
# 1.05 s, and later on a busy machine.
_FIRST_ANSWER = 3.0
# Far longer than a healthy primary takes to answer.
_ENOUGH = 1.0
#: How late is too late for a machine that is only busy.
ABSENCE = 1.0


class Input(Enum):
    """What can happen to an entity; the value is how the documentation says it."""

    ATTEMPT_BEGUN = "a send begins"
    ATTEMPT_SUCCEEDED = "a send succeeds"
    ATTEMPT_FAILED = "a send fails, and it counts"
    ATTEMPT_REFUSED = "the primary refuses a send, and it does not count"
    INTERVAL_ELAPSED = "failover_interval with no success"
    PING_DUE = "a ping is due"
    PINGS_SUFFICED = "a ping succeeds (good_pings in a row)"
    PINGS_AGREED = "three pings meet the same permanent error"
    WORD_CAME = "another client says that it is back"
    WORD_DOUBTED = "another client's word is not enough"
    FAILOVER_FORCED = "fail_over(path)"
    MARKED_HEALTHY = "mark_path_healthy(path)"

    __hash__ = object.__hash__  # looked up with every send; members are singletons


class HealthStep(Enum):
    """What a transition does; the value is how the documentation says it."""

    STOP_CLOCK = "stop the failover clock"
    ABANDON = "give up the attempts without an answer: their messages go to the backlog"
    TURN_AWAY = "send this message to the backlog, or refuse it if the entity is faulted"
    PING = "ping"
    PING_LATER = "ping after one interval"
    STOP_PINGS = "stop the pings"


class Transition(NamedTuple):
    """One row of the table: where it leads and what it does."""

    to: EntityState
    steps: tuple[HealthStep, ...] = ()


# Names of a module: to find a member of an enumeration takes Python 3.11 ten times as long.
_HEALTHY, _SUSPECT = EntityState.HEALTHY, EntityState.SUSPECT
_FAILED_OVER, _FAULTED = EntityState.FAILED_OVER, EntityState.FAULTED

TABLE: dict[tuple[EntityState, Input], Transition] = {
    (_HEALTHY, Input.ATTEMPT_SUCCEEDED): Transition(_HEALTHY, (HealthStep.STOP_CLOCK,)),
    (_HEALTHY, Input.ATTEMPT_FAILED): Transition(_SUSPECT),
    (_HEALTHY, Input.ATTEMPT_REFUSED): Transition(_HEALTHY, (HealthStep.STOP_CLOCK,)),
    (_HEALTHY, Input.INTERVAL_ELAPSED): Transition(_FAILED_OVER, (HealthStep.ABANDON, HealthStep.PING)),
    (_HEALTHY, Input.FAILOVER_FORCED): Transition(_FAILED_OVER, (HealthStep.ABANDON, HealthStep.PING_LATER)),
    (_HEALTHY, Input.MARKED_HEALTHY): Transition(_HEALTHY, (HealthStep.STOP_CLOCK,)),
    (_SUSPECT, Input.ATTEMPT_SUCCEEDED): Transition(_HEALTHY, (HealthStep.STOP_CLOCK,)),
    (_SUSPECT, Input.ATTEMPT_REFUSED): Transition(_HEALTHY, (HealthStep.STOP_CLOCK,)),
    (_SUSPECT, Input.INTERVAL_ELAPSED): Transition(_FAILED_OVER, (HealthStep.ABANDON, HealthStep.PING)),
    (_SUSPECT, Input.FAILOVER_FORCED): Transition(_FAILED_OVER, (HealthStep.ABANDON, HealthStep.PING_LATER)),
    (_SUSPECT, Input.MARKED_HEALTHY): Transition(_HEALTHY, (HealthStep.STOP_CLOCK,)),
    (_FAILED_OVER, Input.ATTEMPT_BEGUN): Transition(_FAILED_OVER, (HealthStep.TURN_AWAY,)),
    (_FAILED_OVER, Input.PING_DUE): Transition(_FAILED_OVER, (HealthStep.PING,)),
    (_FAILED_OVER, Input.PINGS_SUFFICED): Transition(
        _HEALTHY, (HealthStep.STOP_PINGS, HealthStep.STOP_CLOCK)
    ),
    (_FAILED_OVER, Input.PINGS_AGREED): Transition(_FAULTED),
    (_FAILED_OVER, Input.WORD_CAME): Transition(_HEALTHY, (HealthStep.STOP_PINGS, HealthStep.STOP_CLOCK)),
    (_FAILED_OVER, Input.WORD_DOUBTED): Transition(_FAILED_OVER, (HealthStep.PING,)),
    (_FAILED_OVER, Input.MARKED_HEALTHY): Transition(
        _HEALTHY, (HealthStep.STOP_PINGS, HealthStep.STOP_CLOCK)
    ),
    (_FAULTED, Input.ATTEMPT_BEGUN): Transition(_FAULTED, (HealthStep.TURN_AWAY,)),
    (_FAULTED, Input.PING_DUE): Transition(_FAULTED, (HealthStep.PING,)),
    (_FAULTED, Input.PINGS_SUFFICED): Transition(_HEALTHY, (HealthStep.STOP_PINGS, HealthStep.STOP_CLOCK)),
    (_FAULTED, Input.WORD_DOUBTED): Transition(_FAULTED, (HealthStep.PING,)),
    (_FAULTED, Input.FAILOVER_FORCED): Transition(_FAILED_OVER, (HealthStep.PING_LATER,)),
    (_FAULTED, Input.MARKED_HEALTHY): Transition(_HEALTHY, (HealthStep.STOP_PINGS, HealthStep.STOP_CLOCK)),
}


class AbandonAttempts(NamedTuple):
    """Cancel these attempts, none of which has an answer: their messages take the route of this moment."""

    path: str
    attempts: tuple[Hashable, ...]


class StartPing(NamedTuple):
    """Ping the entity, and report with this number."""

    path: str
    number: int


class StopPing(NamedTuple):
    """Cancel the ping of this number; nobody waits for its result any more."""

    path: str
    number: int


class Notify(NamedTuple):
    """Tell of a change of state: callback, log line, metric. Held sends look at the state anew."""

    change: StateChange


Effect = AbandonAttempts | StartPing | StopPing | Notify


class Route(Enum):
    """Where a send to the entity goes now."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    REFUSED = "refused"


_PRIMARY: Final = Route.PRIMARY
_BACKLOG: Final = Route.BACKLOG


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthStatus:
    """A picture of one entity's health, for people."""

    path: str
    state: EntityState
    since: float | None
    reason: str
    last_failure: str | None
    attempts: int
    fails_over_at: float | None
    next_ping_at: float | None
    pings: int


class EntityHealth:
    """The state of one entity for one client. Methods that take `now` return the effects to carry out."""

    def __init__(self, path: str, options: SendAvailabilityOptions, *, random: Callable[[], float]) -> None:
        """`random` gives numbers from 0 to below 1, as `random.random` does."""
        self.path = path
        self.state = _HEALTHY
        self._options = options
        self._random = random
        self._since: float | None = None
        self._reason = "nothing has failed"
        self._last_failure: str | None = None
        # Attempts without an answer, in the order in which they began, so the first is the oldest.
        self._attempts: dict[Hashable, float] = {}
        self._failing_since: float | None = None
        # Nothing that began earlier counts as having begun earlier: rule 4.
        self._counts_from = float("-inf")
        self._throttled_since: float | None = None
        # Rule 9: when the first attempt began that was given up, and how long such ones waited, until when.
        self._unheard_since: float | None = None
        self._excused_at: float | None = None  # rule 10
        self._unheard_for = self._unheard_until = 0.0
        # Whether a link is open, as far as is known.
        self._is_connected = False
        self._pings = 0
        # Pings without an answer, and the newest that has one.
        self._awaited: set[int] = set()
        self._answered = 0
        self._ping_due: float | None = None
        self._late_counts_from = float("-inf")
        self._good_pings = 0
        self._permanent: FailureKind | None = None
        self._permanent_pings = 0
        # Rule 8: how many pings were put off; whether it is back by word alone; whether that was wrong once.
        self._put_off = 0
        self._is_back_by_word = False
        self._doubts_word = False
        self._is_asked_to_look = False
        self._deaf_until = float("-inf")

    # -- questions

    @property
    def route(self) -> Route:
        """Where a send goes now."""
        if self.state is _FAILED_OVER:
            return _BACKLOG
        if self.state is _FAULTED:
            return _BACKLOG if self._options.on_permanent == "backlog" else Route.REFUSED
        return _PRIMARY

    @property
    def next_deadline(self) -> float | None:
        """When to call `tick`, if nothing else happens before."""
        return self._ping_due if self._ping_due is not None else self._fails_over_at()

    @property
    def throttled_until(self) -> float:
        """When the wait is over, or was, that the service asked for: rule 4."""
        return self._counts_from

    @property
    def pings_itself(self) -> bool:
        """Whether no other client can do it: it has to know for itself, or counts pings in a row. Rule 8."""
        return self._doubts_word or self._is_asked_to_look or self._is_counting

    @property
    def _is_counting(self) -> bool:
        has_begun = self._good_pings > 0 or self._permanent is not None
        return has_begun and self.state is _FAILED_OVER

    @property
    def has_just_met_permanent(self) -> bool:
        """Whether the last ping, and none before it, has met a permanent error."""
        return self._permanent is not None and self._permanent_pings == 1

    def awaits(self, number: int) -> bool:
        """Whether the answer to a ping is still of interest."""
        return number in self._awaited

    def fault(self) -> PrimaryEntityFault:
        """What a send raises whose route is `REFUSED`."""
        return PrimaryEntityFault(self.path, self._last_failure or self._reason)

    def status(self, *, offset: float = 0.0) -> HealthStatus:
        """A picture of this moment; `offset` is added to its times, to make them times of day."""
        return HealthStatus(
            path=self.path,
            state=self.state,
            since=_later(self._since, offset),
            reason=self._reason,
            last_failure=self._last_failure,
            attempts=len(self._attempts),
            fails_over_at=_later(self._fails_over_at(), offset),
            next_ping_at=_later(self._ping_due, offset),
            pings=self._pings - self._put_off,
        )

    # -- attempts

    def begin(self, attempt: Hashable, now: float) -> tuple[Effect, ...]:
        """A message takes its place in the FIFO. If it must not, the effects say so at once."""
        if self.state is _HEALTHY or self.route is _PRIMARY:
            self._attempts[attempt] = now
            return ()
        return self._take(Input.ATTEMPT_BEGUN, now, "", attempt=attempt)

    def succeed(self, attempt: Hashable, now: float) -> tuple[Effect, ...]:
        """The primary has taken the message."""
        if self._attempts.pop(attempt, None) is None:
            return ()
        self._is_connected = True
        self._is_back_by_word = False
        if self.state is _HEALTHY:  # as the table says; to look it up costs a send as much as all else here
            self._failing_since = self._throttled_since = self._unheard_since = self._excused_at = None
            if now > self._counts_from:
                self._counts_from = now
            return ()
        return self._take(Input.ATTEMPT_SUCCEEDED, now, "a send succeeded")

    def record(self, attempt: Hashable, verdict: Ruling, *, now: float, reason: str) -> tuple[Effect, ...]:
        """The attempt failed. `reason` is the failure in a line.

        A verdict of `ASK_BACKLOG` is not recorded: the attempt goes on until the question is answered.
        """
        if verdict.action is Action.ASK_BACKLOG:
            raise ValueError("record the verdict that answers ASK_BACKLOG, not the question")
        begun = self._attempts.pop(attempt, None)
        if begun is None:
            return ()
        if verdict.action is Action.THROTTLED:
            if not self._is_throttled_too_long(begun, now):
                self._counts_from = max(self._counts_from, now + verdict.wait)
                return ()
        elif verdict.is_answer:
            self._is_connected = False
            self._last_failure = reason
            return self._take(Input.ATTEMPT_REFUSED, now, f"the primary answers: {reason}")
        elif not verdict.is_counted:
            return ()
        self._last_failure = reason
        since = min(max(begun, self._counts_from), now)
        if verdict.kind is FailureKind.TIMEOUT:  # its caller may have given it less time than rule 4 does
            since += max(0.0, self._shortest_wait() - self._options.failover_interval)
        self._failing_since = since if self._failing_since is None else min(self._failing_since, since)
        deadline = self._fails_over_at()
        if deadline is not None and now >= deadline:
            return self._take(Input.INTERVAL_ELAPSED, now, self._failover_reason())
        return self._take(Input.ATTEMPT_FAILED, now, reason)

    def reconnect(self) -> None:
        """The link was found closed, and is opened again for the attempt under way."""
        self._is_connected = False

    def withdraw(self, attempt: Hashable) -> None:
        """The caller has given the attempt up before it was on the wire: it tells nothing."""
        self._attempts.pop(attempt, None)

    def give_up(self, attempt: Hashable, *, called_at: float, now: float) -> tuple[Effect, ...]:
        """The caller has given the attempt up, which was on the wire from `called_at` on: rule 9."""
        begun = self._attempts.get(attempt)
        if begun is None:
            return ()
        first, until = self._unheard_since, self._unheard_until
        if first is None or called_at - until > self._options.failover_interval:
            self._unheard_since, self._unheard_for, until = begun, 0.0, called_at
        # Of attempts side by side each moment counts once.
        self._unheard_for += max(0.0, now - max(called_at, until))
        self._unheard_until = now
        if self._unheard_for < min(_ENOUGH, self._options.send_timeout):
            self.withdraw(attempt)
            return ()
        self._attempts[attempt] = begun if self._unheard_since is None else min(begun, self._unheard_since)
        return self.record(attempt, SILENCE, now=now, reason=f"no answer for {self._unheard_for:.3g} s")

    # -- time and pings

    def tick(self, now: float) -> tuple[Effect, ...]:
        """Do what is due; nothing, if nothing is."""
        deadline = self.next_deadline
        if deadline is None or now < deadline:
            return ()
        if self._ping_due is not None:
            return self._take(Input.PING_DUE, now, "")
        if now - deadline >= ABSENCE and self._excused_at is None:
            self._excused_at = now
            interval = self._options.failover_interval
            self._counts_from = now - interval + min(interval, _FIRST_ANSWER)
            if self._failing_since is not None:
                self._failing_since = self._counts_from
            return ()
        if self._failing_since is None:  # what failed before that is long over
            self._last_failure = "sends stay unanswered"
        return self._take(Input.INTERVAL_ELAPSED, now, self._failover_reason())

    def ping_succeeded(self, number: int, now: float) -> tuple[Effect, ...]:
        """The ping of that number was taken; a number that is not awaited is ignored."""
        if number not in self._awaited:
            return ()
        self._hear(number)
        self._is_connected = True
        self._doubts_word = False
        self._good_pings += 1
        self._permanent, self._permanent_pings = None, 0
        if self._good_pings < self._options.good_pings:
            return ()
        plural = f"{self._good_pings} pings in a row" if self._good_pings > 1 else "a ping"
        return self._take(Input.PINGS_SUFFICED, now, f"{plural} succeeded")

    def ping_failed(self, number: int, verdict: Ruling, *, now: float, reason: str) -> tuple[Effect, ...]:
        """The ping of that number failed; a number that is not awaited is ignored."""
        if number not in self._awaited:
            return ()
        is_news = number > self._answered
        self._hear(number)
        if not is_news:
            return ()
        self._good_pings = 0
        return self._count_permanent(verdict, now, reason)

    def answered_late(self, verdict: Ruling, *, now: float, reason: str) -> tuple[Effect, ...]:
        """An abandoned attempt has met something after all."""
        is_permanent = verdict.action is Action.PERMANENT
        if self.state is not _FAILED_OVER or not is_permanent or now < self._late_counts_from:
            return ()
        self._late_counts_from = now + self._options.ping_primary_interval
        return self._count_permanent(verdict, now, reason)

    # -- other clients: rule 8

    def put_off(self, number: int, due: float) -> None:
        """The ping of that number was not made; another is due then."""
        if number in self._awaited:
            self._awaited.discard(number)
            self._put_off += 1
            self._ping_due = due

    def believes_word(self, now: float) -> bool:
        """Whether another client's good ping would bring it back."""
        is_open = now >= self._deaf_until and not self._is_asked_to_look and not self._doubts_word
        return is_open and self.state is _FAILED_OVER and self._permanent is None

    def doubt_word(self) -> None:
        """What others say does not hold here."""
        self._doubts_word = True

    def word_came(self, now: float, *, is_good: bool) -> tuple[Effect, ...]:
        """Another client's ping was taken; or it met an answer that each has to see for itself."""
        if now < self._deaf_until or self._is_asked_to_look:
            return ()
        counts_good = self._good_pings > 0 and not self._doubts_word
        if self._is_counting and not (is_good and counts_good):
            return ()
        if self._doubts_word or not is_good or self.state is _FAULTED:
            effects = self._take(Input.WORD_DOUBTED, now, "")
            self._is_asked_to_look = bool(effects)
            return effects
        self._is_connected = False
        effects = self._take(Input.WORD_CAME, now, "a ping of another client succeeded")
        self._is_back_by_word = bool(effects)
        return effects

    def _hear(self, number: int) -> None:
        self._awaited.discard(number)
        self._answered = max(self._answered, number)
        self._is_asked_to_look = False

    def _count_permanent(self, verdict: Ruling, now: float, reason: str) -> tuple[Effect, ...]:
        self._last_failure = reason
        kind = verdict.kind if verdict.action is Action.PERMANENT else None
        self._permanent_pings = self._permanent_pings + 1 if kind is self._permanent else 1
        self._permanent = kind
        if kind is None or self._permanent_pings < PERMANENT_PINGS:
            return ()
        return self._take(Input.PINGS_AGREED, now, f"{PERMANENT_PINGS} pings in a row: {reason}")

    # -- by hand

    def force_over(self, now: float, reason: str) -> tuple[Effect, ...]:
        """Fail over now, whatever the primary does; pings bring it back after an interval."""
        return self._take(Input.FAILOVER_FORCED, now, reason)

    def mark_healthy(self, now: float) -> tuple[Effect, ...]:
        """Send to the primary again, now."""
        self._is_connected = self._is_connected and self.route is _PRIMARY
        return self._take(Input.MARKED_HEALTHY, now, "marked healthy by hand")

    # -- inside

    def _take(self, given: Input, now: float, reason: str, *, attempt: Hashable = None) -> tuple[Effect, ...]:
        """Look the input up, take the steps, change the state and tell of it."""
        transition = TABLE.get((self.state, given))
        if transition is None:
            return ()
        effects: list[Effect] = []
        for step in transition.steps:
            effects.extend(self._step(step, now, attempt))
        if transition.to is not self.state:
            effects.append(Notify(StateChange(self.path, self.state, transition.to, now, reason)))
            self.state, self._since, self._reason = transition.to, now, reason
        return tuple(effects)

    def _step(self, step: HealthStep, now: float, attempt: Hashable) -> tuple[Effect, ...]:
        match step:
            case HealthStep.STOP_CLOCK:
                self._failing_since = self._throttled_since = self._unheard_since = self._excused_at = None
                self._counts_from = max(self._counts_from, now)
            case HealthStep.ABANDON:
                abandoned, self._attempts = tuple(self._attempts), {}
                self._failing_since = self._unheard_since = None
                self._counts_from = now  # links that rested begin anew
                self._doubts_word |= self._is_back_by_word
                self._is_back_by_word = self._is_asked_to_look = False
                self._good_pings = 0
                self._permanent, self._permanent_pings = None, 0
                return (AbandonAttempts(self.path, abandoned),) if abandoned else ()
            case HealthStep.TURN_AWAY:
                return (AbandonAttempts(self.path, (attempt,)),)
            case HealthStep.PING:
                return (self._start_ping(now),)
            case HealthStep.PING_LATER:
                self._ping_due = self._deaf_until = now + self._ping_interval()
                self._permanent, self._permanent_pings = None, 0
            case HealthStep.STOP_PINGS:
                running, self._awaited, self._ping_due = self._awaited, set(), None
                return tuple(StopPing(self.path, number) for number in sorted(running))
        return ()

    def _start_ping(self, now: float) -> StartPing:
        self._pings += 1
        self._awaited.add(self._pings)
        self._ping_due = now + self._ping_interval()
        return StartPing(self.path, self._pings)

    def _ping_interval(self) -> float:
        """Early at most by the jitter, never late: a failback is promised within one interval."""
        return self._options.ping_primary_interval * (1.0 - self._options.ping_jitter * self._random())

    def _is_throttled_too_long(self, begun: float, now: float) -> bool:
        if self._throttled_since is None:
            self._throttled_since = begun
        limit = self._options.count_throttled_after
        return limit is not None and now - self._throttled_since >= limit

    def _fails_over_at(self) -> float | None:
        """When the interval elapses, as things stand."""
        if self.route is not _PRIMARY:
            return None
        interval, ends = self._options.failover_interval, float("inf")
        if self._failing_since is not None:
            ends = self._failing_since + interval
        if self._attempts and interval > 0:
            oldest = max(next(iter(self._attempts.values())), self._counts_from)
            ends = min(ends, oldest + max(interval, self._shortest_wait()))
        return ends if ends < float("inf") else None

    def _shortest_wait(self) -> float:
        """What an attempt without an answer is given, whatever the interval."""
        return 0.0 if self._is_connected else min(_FIRST_ANSWER, self._options.send_timeout)

    def _failover_reason(self) -> str:
        what, interval = self._last_failure or "", self._options.failover_interval
        return f"no success for {interval:g} s: {what}" if interval > 0 else what


def _later(moment: float | None, offset: float) -> float | None:
    return None if moment is None else moment + offset

"""One entity of the primary: every attempt of the client to send to its path is made here.

Theory of operation
-------------------

1. `EntityHealth` decides; this carries out what it decides and tells it what happened. It holds no rule of
   its own.
2. An attempt lines up and, with the turn, has the SDK send; by how that ended it is done, raises, tries again
   or gives the call back to the router, which chooses its way anew. In `hold` mode that ends only with the
   message taken, an error that is the caller's, or the caller's time over.
3. The attempt is also what the health knows of a call, from the moment it joins the line. A failover abandons
   all of them at once; each wakes up and gives its call back, which finds the way to the backlog, in the
   order of the line.
4. After a failure the link rests for a while, longer each time. The call that failed keeps its turn and is
   the first to try again, so that a connection that was lost costs no order. If that fails too it goes to the
   end of the line: a message that alone is refused must not hold up the others.
5. One timer an entity, set when there is something to wait for; if it comes too early, it is set again.
6. A caller that is cancelled, or whose program ends, takes its attempt back. What its wait on the wire tells,
   the health decides: a program that puts limits of its own around its sends has to fail over, too.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from operator import attrgetter, methodcaller
from typing import Any, Final, cast

from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError

from pairbus.client.direct.encoding import weigh, weigh_payloads
from pairbus.client.fleet.fleet import Fleet
from pairbus.client.observers.observer import AttemptOutcome, Sending, SendNote
from pairbus.client.status import PathStatus, new_counts
from pairbus.conditions import INTERNAL_ERROR
from pairbus.options import EntityState, StateChange
from pairbus.pairing.errors import tell_never_reached
from pairbus.pairing.failures import (
    SILENCE,
    Action,
    Failure,
    FailureKind,
    Fate,
    Ruling,
    find_idle_closure,
    judge,
)
from pairbus.pairing.headroom import CERTAIN_ROOM, MAX_OVERHEAD, HeadroomWatch
from pairbus.pairing.health import AbandonAttempts, Effect, EntityHealth, Notify, Route, StartPing, StopPing
from pairbus.sdk.failures import describe
from pairbus.sdk.privates import LinkLimits
from pairbus.sdk.side import LinkSettings, SdkSender, SdkSide
from pairbus.timers import TimerHandle

from .acquaintance import Acquaintance
from .backlog_route import BacklogRoute
from .calls import EntityCall, timed_out
from .headers import check_headers
from .link import SdkOperation, SendLink
from .message import body_bytes, measure
from .pinger import Pinger
from .surroundings import Surroundings
from .ticket import Ending, Ticket, ends_caller, fate_of

_DONE: Final = Ending.DONE  # see `link.py`


class PairedEntity:
    """The sender of one entity, shared by all who send to it."""

    def __init__(
        self,
        path: str,
        side: SdkSide,
        *,
        is_topic: bool,
        surroundings: Surroundings,
        acquaintance: Acquaintance,
        backlog: BacklogRoute,
        headroom: HeadroomWatch,
        notify: Callable[[StateChange], object],
    ) -> None:
        """`notify` hears of every change of state."""
        self.path = path
        self.settings = LinkSettings(is_topic=is_topic)
        self.counts = new_counts()
        #: What the links of the primary take, once one has been seen.
        self.limits: LinkLimits | None = None
        self._side = side
        self._around = surroundings
        self._observers = observers = surroundings.observers
        self._is_heard = observers.hear_sends or observers.hear_tallies
        self._acquaintance = acquaintance
        self._backlog = backlog
        self._headroom = headroom
        self._notify = notify
        self._options = options = surroundings.options
        self._timers = surroundings.timers
        self._limit = options.send_timeout
        self.health = EntityHealth(path, options, random=surroundings.random)
        new_link = partial(self._new_link, on_late=self._answered_late)
        self._links = [new_link() for _ in range(options.links_per_entity)]
        self._only_link = self._links[0] if len(self._links) == 1 else None
        self._pinger = Pinger(
            self._new_link,
            options=options,
            timers=self._timers,
            on_end=self._ping_ended,
            on_fate=self._ping_met,
        )
        self._fleet = surroundings.fleet
        self._asking: set[asyncio.Task[None]] = set()
        self._alarm: TimerHandle | None = None
        self._alarm_at = 0.0
        self._is_over = False
        self._batch_limit: int | None = None
        self._arrived_late = 0

    def _new_link(self, on_late: Callable[[BaseException | None], object] | None = None) -> SendLink:
        def open_sender() -> SdkSender:
            settings = self.settings
            return self._side.open_sender(self.path, is_topic=settings.is_topic, keywords=settings.keywords)

        def idle_closure(error: BaseException, idle_for: float) -> Fate | None:
            fate = find_idle_closure(describe(error), self._options, idle_for=idle_for)
            if fate is not None:
                self.health.reconnect()
            return fate

        return SendLink(
            open_sender,
            graveyard=self._around.graveyard,
            timers=self._timers,
            width=self._side.width,
            idle_closure=idle_closure,
            on_late=on_late,
        )

    # -- sending

    def set_out(self, call: EntityCall) -> bool:
        """Begin in place, if that can be done at once (`Router.set_out`). Its caller has the SDK send, by the
        call's sender, and says how that ended: `arrived`, or `attempt`.
        """
        link, now = self._only_link, self._timers.now()
        if link is None or not link.set_out(call, now, now + self._limit):
            return False
        effects = self.health.begin(call, now)
        if effects or self._alarm is None:
            self.carry_out(effects)
        return True

    def arrived(self, call: EntityCall) -> None:
        """The SDK has sent what had set out."""
        link = self._links[0]
        link.arrived(call, self._timers.now())
        try:
            self._succeeded(link, call)
        finally:
            link.pass_turn()

    async def attempt(self, call: EntityCall, *, has_set_out: bool = False) -> Action | None:
        """Line up and try: None if it is done, else why the call needs another way or another try.

        One that `has_set_out` has the turn, and its first try has met an error.
        """
        link = self._only_link or min(self._links, key=attrgetter("length"))
        if not has_set_out:
            self._begin(call)
            if not link.take_free_turn():
                ending = await link.wait_turn(call, call.deadline)
                if ending is not Ending.TURN:
                    return self._left(call, ending)
        try:
            while True:
                if not has_set_out and link.is_resting:
                    ending = await link.rest_out(call, call.deadline)
                    if ending is not Ending.RESTED:
                        return self._left(call, ending)
                    if not self._is_open_to(call):
                        return Action.COUNT
                make = link.resume if has_set_out else link.call
                ending = await make(call, call.transmit, limit=self._limit, deadline=call.deadline)
                has_set_out = False
                while call.unknown:
                    call.unknown -= 1
                    self._observe(call, "unknown", fate="unknown")
                if ending is _DONE:
                    self._succeeded(link, call)
                    return None
                action = await self._failed(link, call, ending)
                if action is Action.SPILL or not self._tries_first(call):
                    return action
                self._begin(call)
        finally:
            link.pass_turn()

    def cancelled(self, call: EntityCall) -> None:
        """The caller does not wait for it any more."""
        if call.called_at is not None:
            self._observe(call, "unknown" if call.is_sent else "failed", fate=fate_of(None, call))
        self._take_back(call)

    @property
    def is_up(self) -> bool:
        """Whether sends go to the primary."""
        return self.health.route is Route.PRIMARY

    def _is_open_to(self, ticket: Ticket) -> bool:
        return self.is_up and not self._is_over and not ticket.is_abandoned

    def _tries_first(self, ticket: Ticket) -> bool:
        """Rule 4: whether the call keeps its turn."""
        return ticket.failures == 1 and self._is_open_to(ticket)

    def _begin(self, ticket: Ticket) -> None:
        ticket.begin()
        effects = self.health.begin(ticket, self._timers.now())
        if effects or self._alarm is None:
            self.carry_out(effects)

    def _left(self, ticket: Ticket, ending: Ending) -> Action:
        """The call was never made: its time is over, or it was called away."""
        self.health.withdraw(ticket)
        if ending is Ending.OUT_OF_TIME:
            raise timed_out(self.path)
        return Action.COUNT

    def _take_back(self, ticket: Ticket) -> None:
        """Rule 6."""
        if ticket.called_at is None:
            self.health.withdraw(ticket)
        else:
            self.carry_out(self.health.give_up(ticket, called_at=ticket.called_at, now=self._timers.now()))

    # -- one attempt

    async def _failed(self, link: SendLink, call: EntityCall, ending: Ending) -> Action:
        if call.called_at is None:
            return self._left(call, ending)
        failure = None if call.error is None else self._describe(call, call.error)
        verdict = SILENCE if failure is None else await self._judge(failure, call.deadline)
        is_unknown = verdict.action is Action.COUNT_UNKNOWN and call.is_sent
        self._observe(call, "unknown" if is_unknown else "failed", fate=fate_of(ending, call))
        if ending is Ending.ABANDONED:
            return Action.COUNT
        self._record(call, verdict, failure)
        if verdict.is_counted:
            link.discard_after(call)
        return self._cope(link, call, verdict)

    @staticmethod
    def _describe(call: EntityCall, error: BaseException) -> Failure:
        failure = describe(error)
        if failure.condition == INTERNAL_ERROR:
            try:
                check_headers(call.messages)
            except MessageSizeExceededError as cause:
                cause.__cause__, call.error = error, cause
                return describe(cause)
        return failure

    def _record(self, ticket: Ticket, verdict: Ruling, failure: Failure | None) -> None:
        now = self._timers.now()
        waited = now - (ticket.called_at or now)
        reason = f"no answer for {waited:.3g} s" if failure is None else failure.summary
        self.carry_out(self.health.record(ticket, verdict, now=now, reason=reason))

    def _succeeded(self, link: SendLink, call: EntityCall) -> None:
        link.failures = 0
        if self.limits is None:
            self.limits = link.limits
        if not self._acquaintance.had_success:
            self._acquaintance.reached()
        effects = self.health.succeed(call, link.last_success or self._timers.now())
        if effects:
            self.carry_out(effects)
        written = call.written
        if self._is_heard or written is None or sum(map(len, written)) > self._backlog.limit - CERTAIN_ROOM:
            self._observe(call, "ok", fate="taken")
        else:  # all that is left of it where nobody listens
            self.counts["primary"]["ok"] += len(written)

    async def _judge(self, failure: Failure, deadline: float | None) -> Ruling:
        had_success = self._acquaintance.had_success
        verdict = judge(failure, self._options, had_success=had_success)
        if verdict.action is Action.ASK_BACKLOG:
            opened = await self._acquaintance.was_paired_before(deadline)
            verdict = judge(failure, self._options, had_success=had_success, backlog_opened=opened)
        return verdict

    def _cope(self, link: SendLink, call: EntityCall, verdict: Ruling) -> Action:
        """After a failure that has been recorded: raise if the caller is to see it, else say what to do."""
        action, error = verdict.action, call.error
        self._around.check()  # where the side has ended, this tells why
        if error is not None and action in (Action.RAISE, Action.PERMANENT):
            if verdict.kind is FailureKind.CONNECTION and isinstance(error, Exception):
                tell_never_reached(error)
            raise error
        if action is Action.SPILL or self.health.route is not Route.PRIMARY:
            return action
        if self._options.on_suspect == "raise":
            raise error if error is not None else timed_out(self.path)
        if call.deadline is not None and self._timers.now() >= call.deadline:
            raise timed_out(self.path) from error
        if action is Action.THROTTLED:
            for each in self._links:
                each.rest(verdict.wait)
            call.failures = 1  # its turn is kept, however often it is told to wait
            return action
        call.failures += 1
        link.count_failure(call)
        link.rest(self._options.retry_delay_after(link.failures))
        return action

    def _answered_late(self, error: BaseException | None) -> None:
        """An attempt that a failover abandoned has been answered. A success may be a second copy."""
        self._arrived_late += error is None
        self._observers.tell(lambda observer: observer.answered_late(self.path, succeeded=error is None))
        if error is not None and not self._is_over:
            failure = describe(error)
            verdict = judge(failure, self._options, had_success=True)
            self.carry_out(self.health.answered_late(verdict, now=self._timers.now(), reason=failure.summary))

    def _observe(self, call: EntityCall, outcome: AttemptOutcome, *, fate: Fate) -> None:
        messages = call.messages
        count = len(messages)
        self.counts["primary"][outcome] += count
        if outcome == "unknown":
            call.unanswered += 1
        observers = self._observers
        size = body_bytes(messages[0]) if count == 1 else sum(map(body_bytes, messages))
        if size > self._backlog.limit - CERTAIN_ROOM and outcome == "ok":
            self._watch_headroom(call)
        if observers.hear_tallies:
            written = call.written or (call.value if call.when is None else None)  # of our own batch
            wire, large = weigh_payloads(written) if written else weigh(messages, when=call.when)
            note = SendNote(self.path, "primary", None, fate, count, wire, large, call.when is not None)
            observers.tell_tally(note)
        if observers.hear_sends:
            observers.tell_sent(
                Sending(
                    path=self.path,
                    route="primary",
                    outcome=outcome,
                    messages=count,
                    size=size,
                    seconds=self._timers.now() - (call.called_at or 0.0),
                )
            )

    def _watch_headroom(self, call: EntityCall) -> None:
        watch, limit = self._headroom, self._backlog.limit
        before = watch.count(self.path)
        for size in map(len, call.written) if call.written else map(measure, call.messages):
            notice = watch.observe(self.path, size=size, overhead=MAX_OVERHEAD, backlog_limit=limit)
            if notice is not None:
                self._observers.tell(methodcaller("headroom_lacked", notice))
        found = watch.count(self.path) - before
        if found:
            self._observers.tell(lambda observer: observer.oversized(self.path, found))

    # -- effects

    def carry_out(self, effects: tuple[Effect, ...]) -> None:
        """Do what the health says is to be done."""
        is_change = any(isinstance(effect, Notify) for effect in effects)
        if is_change:
            # The call that rests has the turn, and so comes before those that wait in line.
            for link in self._links:
                link.wake(self.health.throttled_until)
            self._stop_alarm()  # it was set for what this state waits for no more
        for effect in effects:
            match effect:
                case AbandonAttempts(attempts=attempts):
                    self._abandon(cast(tuple[Ticket, ...], attempts), is_failover=is_change)
                case StartPing(number=number):
                    if not self._is_over:
                        self._ping(number)
                case StopPing():
                    self._pinger.stop()
                case Notify(change=change):
                    if change.new is EntityState.HEALTHY:
                        self._pinger.stop()
                    elif change.new is EntityState.FAILED_OVER:
                        self._drop_links()
                    if self._fleet is not None and not self._is_over:
                        self._meet(self._fleet, change)
                    self._notify(change)
        self._set_alarm()

    def _abandon(self, tickets: tuple[Ticket, ...], *, is_failover: bool) -> None:
        """Call away attempts: all there are, or one that has not lined up yet."""
        if is_failover:
            self.evacuate()
        for ticket in tickets:
            if not ticket.is_abandoned:
                ticket.abandon()

    def _drop_links(self) -> None:
        """What comes back is not what went away: begin anew when the primary is back."""
        for link in self._links:
            link.failures = 0
            link.discard()

    def _stop_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self) -> None:
        due = self.health.next_deadline
        if due is None or self._is_over:
            return
        interval = self._options.failover_interval
        if self.health.route is Route.PRIMARY and interval > 0:
            # Not later than for an attempt that begins now, so that those to come need not look at it.
            due = min(due, self._timers.now() + interval)
        if self._alarm is not None:
            if self._alarm_at <= due:
                return
            self._alarm.cancel()
        self._alarm_at = due
        self._alarm = self._timers.call_at(due, self._tick)

    def _tick(self) -> None:
        self._alarm = None
        self.carry_out(self.health.tick(self._timers.now()))

    # -- pings

    def _meet(self, fleet: Fleet, change: StateChange) -> None:
        match change.new:
            case EntityState.SUSPECT:
                fleet.warm()
            case EntityState.FAILED_OVER:
                fleet.join(self.path, self._word_came)
            case EntityState.HEALTHY:
                fleet.leave(self.path)

    def _ping(self, number: int) -> None:
        """Now, or when the fleet says so."""
        if self._fleet is None or self.health.pings_itself:
            self._pinger.start(number)
            return
        task = asyncio.get_running_loop().create_task(self._ping_in_turn(self._fleet, number))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ping_in_turn(self, fleet: Fleet, number: int) -> None:
        later: float | None = None
        try:
            later = await fleet.ask(self.path)
        finally:  # whatever became of the question
            if not self._is_over and self.health.awaits(number):
                if later is None:
                    self._pinger.start(number)
                else:
                    self.health.put_off(number, later)
                    self._stop_alarm()
                    self._set_alarm()

    def _word_came(self, good: int) -> None:
        """Another client has pinged: so many good ones in a row, or one that met a permanent error."""
        now = self._timers.now()
        if good >= self._options.good_pings and self.health.believes_word(now):
            self._pinger.look(self._looked)
        elif good == 0 or good >= self._options.good_pings:
            self.carry_out(self.health.word_came(now, is_good=good > 0))

    def _looked(self, link: SendLink | None) -> None:
        """Another client says that the entity is back: whether this one gets there as well."""
        if link is None:
            self.health.doubt_word()
        else:
            self._links[0].take_over(link)
        self.carry_out(self.health.word_came(self._timers.now(), is_good=True))

    def _ping_met(self, fate: Fate) -> None:
        self._observers.tell(lambda observer: observer.probed(self.path, fate))

    def _ping_ended(
        self, number: int, ending: Ending, error: BaseException | None, seconds: float, link: SendLink
    ) -> None:
        now, succeeded = self._timers.now(), ending is _DONE
        self._observers.tell(
            lambda observer: observer.pinged(self.path, succeeded=succeeded, seconds=seconds)
        )
        if succeeded:
            self._acquaintance.reached()
            effects = self.health.ping_succeeded(number, now)
            if effects:
                self._links[0].take_over(link)
            if effects and self._fleet is not None:
                self._fleet.tell(self.path, self._options.good_pings)
            self.carry_out(effects)
            return
        failure = None if error is None else describe(error)
        verdict = SILENCE if failure is None else judge(failure, self._options, had_success=True)
        reason = f"no answer within {self._pinger.limit:g} s" if failure is None else failure.summary
        self.carry_out(self.health.ping_failed(number, verdict, now=now, reason=reason))
        if self._fleet is not None and self.health.has_just_met_permanent:
            self._fleet.tell(self.path, 0)

    # -- the rest

    async def ask(self, operation: SdkOperation, timeout: float | None) -> Any:
        """Ask the primary for something that has no other way; it is tried once."""
        ticket = Ticket()
        deadline = None if timeout is None else self._timers.now() + timeout
        ending: Ending | None = None
        try:
            ending = await self._links[0].run(ticket, operation, limit=self._limit, deadline=deadline)
        finally:
            if ticket.called_at is not None:
                fate = fate_of(ending, ticket)
                self._observers.tell(lambda observer: observer.requested(self.path, fate))
        self._around.check()
        if ending is Ending.FAILED and ticket.error is not None:
            if judge(describe(ticket.error), self._options, had_success=True).is_counted:
                self._links[0].discard()
            raise ticket.error
        if ending is not _DONE:
            raise OperationTimeoutError(message=f"The primary did not answer for {self.path!r} in time.")
        return ticket.value

    async def batch_limit(self) -> int | None:
        """How large a batch the primary's link takes; None while it cannot be asked."""
        if self._batch_limit is None and self.health.route is Route.PRIMARY:
            self._batch_limit = await self._ask_batch_limit()
        return self._batch_limit

    async def _ask_batch_limit(self) -> int | None:
        """Asked once, and counted like a send: many programs ask this before anything else."""
        ticket, link = Ticket(), self._links[0]
        self._begin(ticket)
        try:
            ending = await link.run(ticket, _ask_batch_size, limit=self._limit)
            failure = None if ticket.error is None else describe(ticket.error)
            verdict = SILENCE if failure is None else await self._judge(failure, None)
        except BaseException as error:
            if ends_caller(error):
                self._take_back(ticket)
            raise
        now = self._timers.now()
        if ending is _DONE:
            self._acquaintance.reached()
            self.carry_out(self.health.succeed(ticket, now))
            return int(ticket.value)
        if ending is Ending.ABANDONED or ticket.called_at is None:
            self.health.withdraw(ticket)
            return None
        self._record(ticket, verdict, failure)
        if verdict.action in (Action.RAISE, Action.PERMANENT) and ticket.error is not None:
            raise ticket.error
        if verdict.is_counted:
            link.discard()
        return None

    def status(self, *, offset: float) -> PathStatus:
        """A picture of this moment; `offset` is what the time of day is ahead of the timers."""
        return PathStatus(
            health=self.health.status(offset=offset),
            without_headroom=self._headroom.count(self.path),
            arrived_late=self._arrived_late,
            sent={route: dict(counts) for route, counts in self.counts.items()},
            ping_role=None if self._fleet is None else self._fleet.role(self.path),
        )

    def evacuate(self) -> None:
        """Call everybody away, from calls under way as well."""
        for link in self._links:
            link.evacuate()

    def end(self) -> None:
        """Nothing is sent any more: stop the clock and the pings, and let all who wait look again."""
        self._is_over = True
        self._stop_alarm()
        if self._fleet is not None:
            self._fleet.leave(self.path)
        self._pinger.stop()
        for link in self._links:
            link.wake()
            link.send_away()

    async def close(self, grace: float) -> None:
        """End, and close the links."""
        self.end()
        for task in self._asking:
            task.cancel()
        await asyncio.gather(self._pinger.close(), *(link.close(grace) for link in self._links))


async def _ask_batch_size(sender: SdkSender) -> int:
    return int((await sender.create_message_batch()).max_size_in_bytes)

"""What comes to a namespace with time alone: deadlines of its entities, faults, tokens, waits, appointments.

1. One timer, set to the next of them. Deadlines mostly move away, and a timer that comes a little early is
   cheaper than one that is set in every turn.
2. What is due may be much: a hundred thousand messages of the same second. It is done as everything else that
   takes long is (`decisions`), and before anything else is decided.
3. After a failure what is due is not tried more often than every second, so that a full disk does not keep a
   core busy.
"""

import asyncio
import heapq
import logging
import math
from collections.abc import Callable, Collection
from typing import Protocol

from pairbus.clock import Clock, WatchedClock

from .access.grants import Access
from .decisions import Decisions
from .engine.namespace import Namespace
from .errors import StoreError
from .faults.desk import FaultDesk
from .links.consumers import Consumers

log = logging.getLogger(__name__)
# While something is due by the Unix time, this is how often one looks whether that was set.
_LONGEST_SLEEP = 60.0
# After a failed commit, seconds before what is due by time is tried again.
RETRY_PAUSE = 1.0


class Member(Protocol):
    """A connection whose tokens may end."""

    access: Access

    def detach_unauthorized(self, now: float) -> None: ...


class Timed(Protocol):
    """The namespace that time passes for."""

    name: str
    decisions: Decisions
    fault_desk: FaultDesk
    consumers: Consumers
    engine: Namespace
    loop: asyncio.AbstractEventLoop | None

    @property
    def peers(self) -> Collection[Member]: ...

    @property
    def trouble(self) -> StoreError | None: ...

    def end_strangers(self) -> None: ...

    def end_turn(self) -> None: ...

    def refuse_turn(self, error: Exception) -> None: ...


class Appointments:
    """What is to be done when; what is for one moment in the order in which it was made."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0

    def make(self, at: float, act: Callable[[], None]) -> None:
        """Have `act` called when the clock shows `at`."""
        self._made += 1
        heapq.heappush(self._heap, (at, self._made, act))

    @property
    def next(self) -> float:
        """When the next one is; infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def keep(self, now: float) -> None:
        """Do all that is due."""
        while self.next <= now:
            heapq.heappop(self._heap)[2]()


class Timekeeper:
    """The clock of one namespace, and its timer."""

    def __init__(self, host: Timed, clock: Clock) -> None:
        self._host = host
        watched = WatchedClock(clock, stepped=self._follow_step)
        self.now, self.monotonic = watched.now, watched.monotonic
        self._appointments = Appointments()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._pause_until = 0.0
        # The next end of a token.
        self._tokens_end = math.inf

    def arm(self) -> None:
        """Come back when the next thing is due; at once if that is past."""
        host, loop = self._host, self._host.loop
        if loop is None:
            return
        now = self.now()
        moments = (host.engine.next_deadline(), host.fault_desk.next_change, self._tokens_end)
        waits = [moment - now for moment in moments if moment is not None]
        waits.append(min(host.consumers.patience_ends, self._appointments.next) - self.monotonic())
        wait = 0.0 if host.trouble is not None else max(0.0, min(waits))
        at = max(loop.time() + min(wait, _LONGEST_SLEEP), self._pause_until)
        if self._timer is not None:
            if not self._timer.cancelled() and loop.time() < self._timer_at <= at:
                return
            self._timer.cancel()
        if math.isinf(wait):
            self._timer = None
            return
        self._timer_at = at
        self._timer = loop.call_at(at, self.pass_by)

    def stop(self) -> None:
        """Come back no more."""
        if self._timer is not None:
            self._timer.cancel()

    def pause(self) -> None:
        """Something has failed: let what is due wait for a moment."""
        if self._host.loop is not None:
            self._pause_until = self._host.loop.time() + RETRY_PAUSE

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something after a while, by the broker's clock."""
        self._appointments.make(self.monotonic() + seconds, act)
        self.arm()

    def note_token(self, ends_at: float) -> None:
        """There is a token that ends then."""
        self._tokens_end = min(self._tokens_end, ends_at)

    # -- time passes

    def catch_up(self) -> bool:
        """Begin to do what is due by now, if anything is; whether nothing is under way, and one can go on."""
        decisions, due = self._host.decisions, self._host.engine.next_deadline()
        if due is not None and not decisions.are_made and due <= self.now():
            self.pass_by()
        return not decisions.are_made

    def pass_by(self) -> None:
        """Let time pass: locks and messages expire, schedules come due, faults change, idle lines end."""
        now = self.now()
        self._host.decisions.make(
            lambda: self._host.engine.tick(now), lambda passed: self._pass_elsewhere(now, passed)
        )

    def _pass_elsewhere(self, now: float, passed: Callable[[], None]) -> None:
        host = self._host
        try:
            passed()
            self._appointments.keep(self.monotonic())
            host.fault_desk.keep_time(now)
            host.end_strangers()
            if now >= self._tokens_end:
                self._end_tokens(now)
            self._end_waits()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told and undone
            host.refuse_turn(error)
        else:
            host.end_turn()

    def _follow_step(self, seconds: float) -> None:
        """Somebody has set the clock: durations are those of monotonic time all the same."""
        fields = {"namespace": self._host.name, "seconds": round(seconds, 3)}
        log.warning("the clock was set", extra={"fields": fields})
        self._host.fault_desk.shift(seconds)
        # What is being decided has its own time, and may be in the midst of what is shifted.
        self._host.decisions.before_others(lambda: self._host.engine.shift_durations(seconds))

    def _end_tokens(self, now: float) -> None:
        peers = self._host.peers
        for peer in list(peers):
            if peer.access.next_expiry <= now:
                peer.access.expire(now)
                peer.detach_unauthorized(now)
        self._tokens_end = min((peer.access.next_expiry for peer in peers), default=math.inf)

    def _end_waits(self) -> None:
        consumers, monotonic = self._host.consumers, self.monotonic()
        if monotonic >= consumers.patience_ends:
            for wait in consumers.impatient(monotonic):
                wait.give_up()

"""Time in the hand of a test: timers of a paired client, and a clock that brokers follow at once."""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable

from pairbus.broker import Broker
from pairbus.clock import ManualClock

# Turns of the event loop after each timer. What a timer sets off goes through a few tasks before it is done
# or waits for the network.
_TURNS = 20


class ManualTimer:
    """Something that will be called, unless it is cancelled first."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act

    def cancel(self) -> None:
        """Do not call it."""
        self._act = None

    @property
    def is_cancelled(self) -> bool:
        """Whether nothing will be called."""
        return self._act is None

    def fire(self) -> None:
        """Call it, now and never again."""
        act, self._act = self._act, None
        if act is not None:
            act()


class ManualTimers:
    """Time that passes only when it is told to. Give it to a client as `timers=`."""

    def __init__(self, start: float = 1000.0) -> None:
        self._now = start
        self._order = itertools.count()
        self._timers: list[tuple[float, int, ManualTimer]] = []

    def now(self) -> float:
        """The time."""
        return self._now

    def call_at(self, when: float, act: Callable[[], None]) -> ManualTimer:
        """Call `act` when it is `when`."""
        timer = ManualTimer(act)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    @property
    def next_at(self) -> float | None:
        """When the next timer is due; None if there is none."""
        while self._timers and self._timers[0][2].is_cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    async def advance(self, seconds: float) -> None:
        """Let time pass: every timer that comes due is called at its time, in order.

        After each of them the event loop is let run for a few turns, so that timers are seen that others set.
        What needs the network takes its own time; wait for it by looking at what it does.
        """
        if seconds < 0:
            raise ValueError(f"cannot go back by {-seconds} seconds")
        end = self._now + seconds
        await settle()
        while (due := self.next_at) is not None and due <= end:
            self._now = max(self._now, due)
            heapq.heappop(self._timers)[2].fire()
            await settle()
        self._now = end


async def settle() -> None:
    """Let everything run that can without the network."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


class SteeredClock(ManualClock):
    """Begins at the present, because the SDKs compare locks with the machine's clock, and stands still."""

    def __init__(self, start: float | None = None) -> None:
        super().__init__(time.time() if start is None else start)
        self._brokers: list[Broker] = []

    def follow(self, broker: Broker) -> None:
        """Let a running broker, which was made with this clock, notice when time passes."""
        self._brokers.append(broker)

    def advance(self, seconds: float) -> None:
        """Let time pass: locks and messages expire, schedules come due, before this returns."""
        super().advance(seconds)
        for broker in self._brokers:
            broker.tick()

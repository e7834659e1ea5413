"""One timer for many deadlines, since nearly all of them are called off before they have passed."""

import asyncio
from math import inf
from typing import Protocol

from pairbus.timers import LoopTimers


class Lapsing(Protocol):
    """Something that waits, and is told when that was for too long."""

    def lapse(self) -> None: ...


class SharedTimer:
    """The deadlines of many, with one timer: it is set for the earliest, and not moved when that is over."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._time = LoopTimers(loop).now
        self._due: dict[Lapsing, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = inf

    def set(self, one: Lapsing, seconds: float) -> None:
        """Have it told after so long."""
        due = self._due[one] = self._time() + seconds
        if due < self._next:
            self._set_timer(due)

    def call_off(self, one: Lapsing) -> None:
        """It waits no longer."""
        self._due.pop(one, None)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next, self._timer = due, self._loop.call_at(due, self._look)

    def _look(self) -> None:
        # Not what has become due since: as with other timers, the sockets are looked at before that counts.
        now, self._next, self._timer = self._next, inf, None
        try:
            for one in [one for one, due in self._due.items() if due <= now]:
                if self._due.get(one, inf) <= now:  # not called off, or set anew, by one before it
                    del self._due[one]
                    one.lapse()
        finally:  # also if one of them fails
            if self._due and (due := min(self._due.values())) < self._next:
                self._set_timer(due)

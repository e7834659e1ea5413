"""Who may send now, and who may receive. Where the rate has a limit, queues that want more have to wait.

1. A queue asks for room whenever it plans. As long as others wait before it there is none.
2. When there is room again the first in line plans anew. If it still wants more it goes to the end of the
   line, so that no queue, however full, keeps the others from sending.
3. Where a namespace has credits, a queue takes from the rate what its receiver is granted beyond what it had
   and has not used. A receiver keeps its grant while nothing comes.
"""

import asyncio
from collections.abc import Callable
from math import inf

from pairbus.clock import Clock

from .rate import Limiter, Room

Advance = Callable[[], None]


class Entrance:
    """The way in, for all queues of a pump."""

    def __init__(self, limiter: Limiter, clock: Clock) -> None:
        self._limiter = limiter
        self._clock = clock
        self._granted: dict[str, int] = {}
        self._waiting: set[str] = set()

    def admit(self, queue: str, wanted: int) -> int:
        """How many messages this queue may be granted now, with those on their way; 0 to ask again later."""
        free = self._limiter.inlet.fill(self._clock.monotonic())
        if free == inf:
            return wanted
        unused = self._granted.get(queue, 0)
        granted = min(wanted, unused + max(0, int(free)))
        if granted > 0:
            self._waiting.discard(queue)
            self._limiter.inlet.take(max(0, granted - unused))
            self._granted[queue] = granted
        else:
            self._waiting.add(queue)
        return granted

    def wait(self) -> float:
        """How long to wait before asking again."""
        return self._limiter.inlet.wait(len(self._waiting))

    def note_arrivals(self, queue: str, count: int) -> None:
        """So many messages have come."""
        if self._granted:
            self._granted[queue] = max(0, self._granted.get(queue, 0) - count)


class Turnstile:
    """The way out, for all queues of a pump."""

    def __init__(self, limiter: Limiter, clock: Clock) -> None:
        self._limiter = limiter
        self._clock = clock
        self._line: dict[Advance, None] = {}
        self._served: Advance | None = None
        self._timer: asyncio.TimerHandle | None = None

    def room(self, who: Advance) -> Room | None:
        """What this one may send now; None if there is no limit."""
        room = self._limiter.room(self._clock.monotonic())
        if room is not None and self._line and who != self._served:
            return Room(0.0)
        return room

    def wait(self, who: Advance) -> None:
        """Call back when there is room again."""
        self._line[who] = None
        if self._timer is None and self._served is None:
            self._set_timer()

    def _set_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._limiter.wait(), self._serve)

    def _serve(self) -> None:
        self._timer = None
        for who in list(self._line):
            room = self._limiter.room(self._clock.monotonic())
            if room is not None and room.is_empty:
                break
            del self._line[who]
            self._served = who
            try:
                who()
            finally:
                self._served = None
        if self._line:
            self._set_timer()

    def close(self) -> None:
        """Call nobody any more."""
        if self._timer is not None:
            self._timer.cancel()

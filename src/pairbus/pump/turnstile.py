"""Who may send now. Where the rate has a limit, queues that wanted more than there was wait in line.

1. A queue asks for room whenever it plans. As long as others wait before it there is none.
2. When there is room again the first in line plans anew. If it still wants more it goes to the end of the
   line, so that no queue, however full, keeps the others from sending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pairbus.clock import Clock

from .rate import Limiter, Room

Advance = Callable[[], None]


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

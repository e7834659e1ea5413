"""Waiting for what another thread or process brings about, which has no event to set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["PATIENCE", "Lateness", "eventually", "wait_until"]

# In real seconds, also on a loop in a hurry: far longer than anything takes that tests wait for, and below
# the time-out of a test.
PATIENCE = 40.0
PAUSE = 0.005
# Who waits for a process waits for seconds, and a look may cost a millisecond.
LONGEST_PAUSE = 0.05


class Lateness:
    """How much later things happen than they were meant to, summed up while the block runs.

    A promise in seconds holds on a machine that has the time for it. Whoever checks one allows for this.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._ticking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Lateness:
        self._ticking = asyncio.get_running_loop().create_task(self._tick())
        return self

    async def __aexit__(self, *details: object) -> None:
        assert self._ticking is not None
        self._ticking.cancel()
        await asyncio.wait([self._ticking])

    async def _tick(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(PAUSE)
            self.seconds += max(0.0, time.monotonic() - began - 2 * PAUSE)


async def eventually(is_so: Callable[[], object], *, what: str = "it", within: float = PATIENCE) -> None:
    """Return as soon as something is so."""
    pace = getattr(asyncio.get_running_loop(), "pace", 1.0)
    begun = asked = time.monotonic()
    while not is_so():
        now = time.monotonic()
        assert now < begun + within, f"{what} did not come about within {within:.0f} s"
        # While it is asked the loop stands still: it then has as long for its own work.
        await asyncio.sleep(max(PAUSE, now - asked) * pace)
        asked = time.monotonic()


def wait_until(is_so: Callable[[], object], *, what: str = "it", within: float = PATIENCE) -> None:
    """The same for whoever has no event loop."""
    begun, pause = time.monotonic(), PAUSE
    while not is_so():
        assert time.monotonic() < begun + within, f"{what} did not come about within {within:.0f} s"
        time.sleep(pause)
        pause = min(1.5 * pause, LONGEST_PAUSE)

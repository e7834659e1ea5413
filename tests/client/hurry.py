"""An event loop in a hurry: whatever waits on it waits a thirtieth of the time.

The SDK opens a link in naps of 50 ms each and needs up to a second to close it. The client under test, where
it has the timers of the loop, is in the same hurry: thirty seconds of its intervals are one of ours.

On a busy machine a process stands still now and then, and in a hurry that looks like an outage. So the loop's
clock does not count it: a turn of the loop takes as long as it meant to wait, and a moment more.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Any

__all__ = ["PACE", "HurriedLoop"]

PACE = 30.0
# In real seconds: what a turn may take beyond its wait.
MOMENT = 0.02


class HurriedSelector(selectors.DefaultSelector):
    """Waits as long as the loop's clock needs, not as long as ours would."""

    def __init__(self, loop: HurriedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        self._loop.pass_time(MOMENT)
        wait = None if timeout is None else timeout / PACE
        found = super().select(wait)
        self._loop.pass_time(None if wait is None else max(wait, 0.0) + MOMENT)
        return found


class HurriedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock runs ahead, and stands still when the machine does."""

    def __init__(self) -> None:
        self._now = 0.0
        self._seen = time.monotonic()
        super().__init__(HurriedSelector(self))

    def time(self) -> float:
        return self._now + min(time.monotonic() - self._seen, MOMENT) * PACE

    def pass_time(self, limit: float | None) -> None:
        """Count what has passed since the last time, up to a limit."""
        seen = time.monotonic()
        elapsed = seen - self._seen
        self._now += (elapsed if limit is None else min(elapsed, limit)) * PACE
        self._seen = seen

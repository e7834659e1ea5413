"""An event loop in a hurry: whatever waits on it waits a thirtieth of the time.

The SDK opens a link in ten naps of 50 ms each and needs up to a second to close it, whoever it talks to. Its
code is used here as it is; only the clock of the loop that it naps on runs faster. Time that the SDK reads
from the system (how long a receive may take, when a token ends) is not touched. The client under test, where
it has the timers of the loop, is in the same hurry: thirty seconds of its intervals are one of ours.

On a busy machine a process stands still now and then, and in a hurry that looks like an outage. So the loop's
clock does not count it: a turn of the loop takes as long as it meant to wait, and a moment more.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import time
from collections.abc import Mapping
from typing import Any

import pytest

__all__ = ["PACE", "HurriedLoop", "hurried_loops"]

# Our own AMQP takes no naps, so that in its long form only the broker's answers would be hurried.
PACE = 30.0 if os.environ.get("PAIRBUS_CLIENT_TRANSPORT", "sdk") == "sdk" else 6.0
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

    pace = PACE

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


def hurried_loops(config: pytest.Config, item: pytest.Item) -> Mapping[str, type[HurriedLoop]]:
    """The hook by which the tests of a directory run on such a loop, under its name in a `conftest.py`."""
    return {"hurried": HurriedLoop}

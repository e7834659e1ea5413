"""An event loop in a hurry: whatever waits on it waits a thirtieth of the time.

The SDK opens a link in ten naps of 50 ms each and needs up to a second to close it, whoever it talks to. Its
code is used here as it is; only the clock of the loop that it naps on runs faster. Time that the SDK reads
from the system (how long a receive may take, when a token ends) is not touched. The client under test, where
it has the timers of the loop, is in the same hurry: thirty seconds of its intervals are one of ours.

On a busy machine a process stands still now and then, and in a hurry that looks like an outage. So the loop's
clock does not count it: a turn of the loop takes as long as it meant to wait, and a moment more. Nor does it
count that others stand still while the loop waits for their answer: it waits in slices, and whoever gets its
slices late counts no more than they were meant to take. What is late on purpose (`tests/jitter.py`) is not
counted either.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import pytest

__all__ = ["HELD_UP", "PACE", "HeldUp", "HurriedLoop", "hurried_loops"]

# Our own AMQP takes no naps, so that in its long form only the broker's answers would be hurried.
PACE = 30.0 if os.environ.get("PAIRBUS_CLIENT_TRANSPORT", "sdk") == "sdk" else 6.0
# In real seconds: a slice of a wait, and what a slice or a turn may take beyond it.
MOMENT = 0.01


@dataclass
class HeldUp:
    """How many real seconds threads of this process were late on purpose."""

    seconds: float = 0.0


HELD_UP = HeldUp()


def real_time() -> float:
    return time.monotonic() - HELD_UP.seconds


class HurriedSelector(selectors.DefaultSelector):
    """Waits as long as the loop's clock needs, not as long as ours would."""

    def __init__(self, loop: HurriedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        self._loop.pass_time(MOMENT)
        if timeout is None:
            found = super().select()
            self._loop.pass_time(inf)
            return found
        left = timeout / PACE
        while True:
            wait = min(max(left, 0.0), MOMENT)
            found = super().select(wait)
            self._loop.pass_time(wait + MOMENT)
            left -= wait
            if found or left <= 0.0:
                return found


class HurriedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock runs ahead, and stands still when the machine does."""

    pace = PACE

    def __init__(self) -> None:
        self._now = self._told = 0.0
        self._seen = real_time()
        super().__init__(HurriedSelector(self))

    def time(self) -> float:
        passed = min(real_time() - self._seen, MOMENT)
        self._told = max(self._told, self._now + passed * PACE)
        return self._told

    def pass_time(self, limit: float) -> None:
        """Count what has passed since the last time, up to a limit."""
        seen = real_time()
        self._now += max(0.0, min(seen - self._seen, limit)) * PACE
        self._seen = seen


def hurried_loops(config: pytest.Config, item: pytest.Item) -> Mapping[str, type[HurriedLoop]]:
    """The hook by which the tests of a directory run on such a loop, under its name in a `conftest.py`."""
    return {"hurried": HurriedLoop}

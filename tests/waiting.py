"""Waiting for what another thread or process brings about, which has no event to set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["PATIENCE", "eventually"]

# In real seconds, also on a loop in a hurry: far longer than anything takes that tests wait for, and below
# the time-out of a test.
PATIENCE = 40.0
PAUSE = 0.005


async def eventually(is_so: Callable[[], object], *, what: str = "it") -> None:
    """Return as soon as something is so."""
    pause = PAUSE * getattr(asyncio.get_running_loop(), "pace", 1.0)
    ends = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < ends, f"{what} did not come about"
        await asyncio.sleep(pause)

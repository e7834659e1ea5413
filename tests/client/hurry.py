"""An event loop in a hurry: whatever waits on it waits a twentieth of the time.

The SDK opens a link in naps of 50 ms each and needs up to a second to close it. The client under test, where
it has the timers of the loop, is in the same hurry: twenty seconds of its intervals are one of ours.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

__all__ = ["PACE", "HurriedLoop"]

# Much more, and the time that a busy machine needs to answer would look like an outage.
PACE = 20.0


class HurriedSelector(selectors.DefaultSelector):
    """Waits as long as the loop's clock needs, not as long as ours would."""

    def select(self, timeout: float | None = None) -> Any:
        return super().select(None if timeout is None else timeout / PACE)


class HurriedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock runs ahead."""

    def __init__(self) -> None:
        super().__init__(HurriedSelector())

    def time(self) -> float:
        return super().time() * PACE

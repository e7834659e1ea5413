"""An event loop in a hurry: whatever waits on it waits a fiftieth of the time.

The SDK opens a link in ten naps of 50 ms each and needs up to a second to close it, whoever it talks to. Its
code is used here as it is; only the clock of the loop that it naps on runs faster. Time that the SDK reads
from the system (how long a receive may take, when a token ends) is not touched.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

__all__ = ["HurriedLoop"]

# Fifty opens a link in 20 ms. With more the SDK's reads of 0.2 s would end before a busy machine answers, and
# the SDK would go round in circles.
PACE = 50.0


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

"""Time as an object, so that whoever needs it is given it and a test can move it by hand."""

from __future__ import annotations

import time
from typing import Protocol

# A fixed, recognisable instant (2023-11-14T22:13:20Z): tests that print times stay the same from run to run.
_MANUAL_START = 1_700_000_000.0


class Clock(Protocol):
    """Tells the time in float seconds."""

    def now(self) -> float:
        """Unix time: for what is shown, stored or compared with another machine."""
        ...

    def monotonic(self) -> float:
        """Time that never steps back: for deadlines inside this process."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, start: float = _MANUAL_START) -> None:
        self._start = start
        self._elapsed = 0.0

    def now(self) -> float:
        return self._start + self._elapsed

    def monotonic(self) -> float:
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move both readings forward; time does not run backwards."""
        if seconds < 0:
            raise ValueError(f"cannot advance a clock by {seconds} seconds: it only moves forward")
        self._elapsed += seconds

    def __repr__(self) -> str:
        return f"ManualClock(now={self.now()})"

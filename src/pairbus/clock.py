"""Time as an object, so that whoever needs it is given it and a test can move it by hand."""

import time
from collections.abc import Callable
from typing import Protocol

# A fixed, recognisable instant (2023-11-14T22:13:20Z): tests that print times stay the same from run to run.
_MANUAL_START = 1_700_000_000.0
# A clock that is only kept in step moves by half a millisecond a second, and a process may be put to sleep
# between two readings: below this nobody has set it.
_STEP = 1.0


class Clock(Protocol):
    """Tells the time in float seconds."""

    def now(self) -> float:
        """Unix time: for what is shown, stored or compared with another machine."""

    def monotonic(self) -> float:
        """Time that never steps back: for deadlines inside this process."""


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


class WatchedClock:
    """A clock that tells when somebody has set the Unix time, before it tells that time.

    A duration that is counted by Unix time, because that is what is shown, moves its end by the same step: it
    then is one of monotonic time.
    """

    def __init__(self, clock: Clock, *, stepped: Callable[[float], None]) -> None:
        """`stepped` is called with the seconds by which the time was set forward; back is less than none."""
        self.monotonic = clock.monotonic
        self._now = clock.now
        self._stepped = stepped
        self._ahead = clock.now() - clock.monotonic()

    def now(self) -> float:
        now = self._now()
        step = now - self.monotonic() - self._ahead
        if not -_STEP < step < _STEP:
            self._ahead += step
            self._stepped(step)
        return now


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

    def set_forward(self, seconds: float) -> None:
        """Set the Unix time alone, as whoever sets the clock of a machine does; less than 0 is back."""
        self._start += seconds

    def __repr__(self) -> str:
        return f"ManualClock(now={self.now()})"

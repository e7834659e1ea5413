"""Whether a pump makes headway. Pure; time comes in."""

from math import inf

# So long nothing may be moved, though there is something to move, before that is told.
_PATIENCE = 30.0
# And so long after that it is told again; each time twice as long, up to a limit.
_FIRST_PAUSE = 60.0
_LONGEST_PAUSE = 3600.0


class Headway:
    """Watches what was handled, and says for how long that has not grown."""

    def __init__(self) -> None:
        #: For how many seconds there has been no headway.
        self.passed = 0.0
        self._handled = -1
        self._since = 0.0
        self._next = -inf
        self._pause = _FIRST_PAUSE

    def note(self, handled: int, *, has_work: bool, now: float) -> float | None:
        """So much was handled so far; for how long there is no headway, if that is too long."""
        if handled != self._handled or not has_work:
            self._handled, self._since = handled, now
            self._next, self._pause = -inf, _FIRST_PAUSE
        self.passed = now - self._since
        return self.passed if self.passed >= _PATIENCE else None

    def is_news(self, now: float) -> bool:
        """Whether it is to be told to people, who would not read it every second."""
        if now < self._next:
            return False
        self._next = now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return True

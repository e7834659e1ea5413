"""What an endless run does now and then. A chore that fails is told and tried again, and ends nothing."""

import logging
import time
from collections.abc import Callable

log = logging.getLogger(__name__)
#: So often a chore is done, unless it is one for every moment. One that has failed is tried again after a
#: while, whichever it is, and then less and less soon.
EVERY = 900.0
FIRST_RETRY = 30.0


def tell_failed(name: str, error: Exception) -> str:
    """In a line: Spark's errors have pages of Java behind their first one."""
    return f"{name} failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


class Chore:
    """Something that is done at an interval, counted from the end of the last run."""

    def __init__(
        self,
        name: str,
        act: Callable[[], object],
        *,
        every: float = EVERY,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """The first time is after `every` seconds."""
        #: Why it failed, if it did so the last time.
        self.trouble: str | None = None
        self._name = name
        self._act = act
        self._every = every
        self._now = now
        self._retry = FIRST_RETRY
        self._due = now() + every

    def tick(self) -> None:
        """Do it, if it is time."""
        if self._now() < self._due:
            return
        try:
            self._act()
        except Exception as error:  # noqa: BLE001 - whatever it is, the messages go on
            pause, self._retry = self._retry, min(EVERY, 2 * self._retry)
            self.trouble = tell_failed(self._name, error)
            log.warning("%s; it is tried again in %.0f s", self.trouble, pause)
        else:
            pause, self._retry, self.trouble = self._every, FIRST_RETRY, None
        self._due = self._now() + pause

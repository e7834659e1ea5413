"""What an endless run does now and then. A chore that fails is told and tried again, and ends nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Chore", "describe_failure"]

log = logging.getLogger(__name__)
#: So often a chore is done. One that has failed is tried again sooner, then less and less soon.
EVERY = 900.0
FIRST_RETRY = 30.0


def describe_failure(name: str, error: Exception) -> str:
    """In a line: Spark's errors have pages of Java behind their first one."""
    return f"{name} failed: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


@dataclass(slots=True)
class Chore:
    """Something that is done `every` so many seconds. `now` is monotonic."""

    name: str
    act: Callable[[], object]
    begun: float
    every: float = EVERY
    #: Why it failed, if it did so the last time.
    trouble: str | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)
    _due: float = field(init=False)

    def __post_init__(self) -> None:
        self._due = self.begun + self.every

    def tick(self, now: float) -> None:
        """Do it, if it is time."""
        if now < self._due:
            return
        try:
            self.act()
        except Exception as error:  # noqa: BLE001 - whatever it is, the messages go on
            pause = min(self.every, FIRST_RETRY * 2**self._failures)
            self._failures += 1
            self.trouble = describe_failure(self.name, error)
            log.warning("%s; it is tried again in %.0f s", self.trouble, pause)
        else:
            pause, self._failures, self.trouble = self.every, 0, None
        self._due = now + pause

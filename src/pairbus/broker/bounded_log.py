"""Lines of the log that a client can cause: so many of a kind in a while, and one that tells how many more.

A loop of bad tokens would otherwise write megabytes. Nothing is lost but repetition: the count is told with
the first line after the while, or by itself at its end.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

# Lines of one kind in one window of so many seconds.
MOST_LINES = 50
WINDOW = 10.0


class _Window:
    __slots__ = ("ends", "held_back", "told")

    def __init__(self, ends: float) -> None:
        self.ends = ends
        self.told = 0
        self.held_back = 0


class BoundedLog:
    """Writes to a logger, each kind of line at a bounded rate."""

    def __init__(self, log: logging.Logger, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._windows: dict[str, _Window] = {}

    def tell(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        """Write a line, or count it."""
        if not self._log.isEnabledFor(level):
            return
        now = self._monotonic()
        window = self._windows.get(event)
        if window is None or now >= window.ends:
            if window is not None:
                self._tell_rest(level, event, window)
            window = self._windows[event] = _Window(now + WINDOW)
        if window.told < MOST_LINES:
            window.told += 1
            self._log.log(level, event, extra={"fields": dict(fields)})
            return
        window.held_back += 1
        if window.held_back == 1:
            asyncio.get_running_loop().call_later(WINDOW, self._tell_rest, level, event, window)

    def _tell_rest(self, level: int, event: str, window: _Window) -> None:
        count, window.held_back = window.held_back, 0
        if count:
            fields = {"times": count, "seconds": WINDOW}
            self._log.log(level, f"{event}, more of the same", extra={"fields": fields})

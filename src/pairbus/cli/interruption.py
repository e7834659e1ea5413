"""Ctrl-C and SIGTERM end a command in the same way: clients are closed, records written, sums told.

Commands that know better what to do, such as `syphon run` and `broker`, have handlers of their own while they
work. What a library logs of it by itself, as that which speaks to Java does, with a traceback, is no news.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# What shells report for a program that was stopped with Ctrl-C (128 + SIGINT), and by SIGTERM.
_INTERRUPTED, _TERMINATED = 130, 143


class Interruption:
    """Which signal has ended a command."""

    def __init__(self) -> None:
        self.code = _INTERRUPTED

    def take(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM: do what Ctrl-C does, also where a shell has told us to ignore that."""
        self.code = _TERMINATED
        by_keyboard = signal.getsignal(signal.SIGINT)
        if callable(by_keyboard):
            by_keyboard(signal.SIGINT, frame)
        else:
            raise KeyboardInterrupt

    def hush(self) -> None:
        """Let what was broken off half-made, a loop or a coroutine, not complain when it is thrown away."""
        sys.unraisablehook = lambda _: None
        warnings.simplefilter("ignore", RuntimeWarning)


def _is_news(record: logging.LogRecord) -> bool:
    return record.exc_info is None or not isinstance(record.exc_info[1], KeyboardInterrupt)


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """SIGTERM interrupts what is done here."""
    logging.root.addFilter(_is_news)
    try:
        with _interrupted_by_sigterm() as interruption:
            yield interruption
    finally:
        logging.root.removeFilter(_is_news)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[Interruption]:
    interruption = Interruption()
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield interruption
        return
    signal.signal(signal.SIGTERM, interruption.take)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

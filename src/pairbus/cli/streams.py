"""Standard streams and signals as commands can use them, whatever the caller has made of them.

1. A stream that is closed (`<&-`, `>&-`, a bare daemon) is /dev/null. Python has None for it, which nobody
   expects; and the next file that is opened, of a store perhaps, would get its number, to which a library or
   a child writes what it has to say.
2. What is no text in the encoding of standard output, such as a path that is no UTF-8, is written with the
   escapes of JSON, as it is on standard error; JSON stays JSON by that.
3. Where standard output takes nothing, on a full disk, the error has its name. What standard error does not
   take is lost: a drain goes on, and the exit code says what it means.
4. Ctrl-C and SIGTERM end a command in the same way: clients are closed, records written, sums told. Commands
   that know better what to do, such as `syphon run` and `broker`, have handlers of their own while they work.
   What a library logs of it by itself, as that which speaks to Java does, with a traceback, is no news.
"""

import codecs
import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class _Output(io.FileIO):
    """Standard output, or standard error, by rule 3."""

    def __init__(self, stream: io.TextIOWrapper, name: str | None) -> None:
        super().__init__(stream.fileno(), "wb", closefd=False)
        self._name, self._is_told = name, False

    def write(self, data: Any) -> int:
        try:
            return super().write(data) if len(data) else 0  # as click tries whether it may write
        except OSError as error:
            if self._is_told or (self._name is None and not isinstance(error, BrokenPipeError)):
                return len(data)
            error.filename, self._is_told = self._name, True  # once: at its end Python tries again
            raise


def prepare_streams() -> None:
    """Have all three, and one that takes every text."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            # The lowest free number: that of the stream itself, unless somebody has it by now.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, descriptor == number)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", closefd=False))
    sys.stdout = _prepared(sys.stdout, "standard output")
    sys.stderr = _prepared(sys.stderr, None)


def _prepared(stream: Any, name: str | None) -> Any:
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    raw = getattr(stream.buffer, "raw", stream.buffer)
    if type(raw) is io.FileIO:
        own = _Output(stream, name)
        stream = io.TextIOWrapper(
            own if raw is stream.buffer else io.BufferedWriter(own),  # as with -u
            stream.encoding,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
    stream.reconfigure(errors=_ESCAPED)
    return stream


_ESCAPED = "pairbus.escaped"


def _escape(error: UnicodeError) -> tuple[str, int]:
    """As `backslashreplace`, whose `\\xe9` and `\\U0001f600` are no JSON."""
    import json  # late: most commands need none

    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error(_ESCAPED, _escape)


# What shells report for a program that was stopped with Ctrl-C (128 + SIGINT), and by SIGTERM.
_INTERRUPTED, _TERMINATED = 130, 143


class Interruption:
    """Which signal has ended a command."""

    def __init__(self) -> None:
        self._code = _INTERRUPTED

    def take(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM: do what Ctrl-C does, also where a shell has told us to ignore that."""
        self._code = _TERMINATED
        by_keyboard = signal.getsignal(signal.SIGINT)
        if by_keyboard is signal.default_int_handler or not callable(by_keyboard):
            raise KeyboardInterrupt(number)  # so that also whoever finds it dropped knows what has come
        by_keyboard(signal.SIGINT, frame)

    def end(self) -> int:
        """The exit code. What was broken off half-made, a loop or a coroutine, is thrown away in silence."""
        sys.unraisablehook = lambda _: None
        warnings.simplefilter("ignore", RuntimeWarning)
        return self._code


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

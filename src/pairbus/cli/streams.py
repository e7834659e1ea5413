"""Standard streams as commands can use them, whatever the caller has made of them.

1. One that is closed (`<&-`, `>&-`, a bare daemon) is /dev/null. Python has None for it, which nobody
   expects; and the next file that is opened, of a store perhaps, would get its number, to which a library or
   a child writes what it has to say.
2. What is no text in the encoding of standard output, such as a path that is no UTF-8, is written with
   escapes, as it is on standard error; JSON stays JSON by that.
3. Where standard output takes nothing, on a full disk, the error has its name. What standard error does not
   take is lost: a drain goes on, and the exit code says what it means.
"""

from __future__ import annotations

import io
import os
import sys
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
    stream.reconfigure(errors="backslashreplace")
    return stream

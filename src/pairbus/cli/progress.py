"""One line about work that takes a while: on standard error, on a terminal, and taken away at the end."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Back to the beginning of the line, and what stood there away.
_CLEAR_LINE = "\r\x1b[K"


class DrawnLine:
    """A line that is drawn again and again in its place; nothing where there is no terminal."""

    def __init__(self) -> None:
        self.is_seen = sys.stderr.isatty()

    def draw(self, text: str, *, stays: str = "") -> None:
        """Draw it anew, below what stays."""
        if self.is_seen:
            kept = f"{_CLEAR_LINE}{stays}\n" if stays else ""
            sys.stderr.write(f"{kept}{_CLEAR_LINE}{text}")
            sys.stderr.flush()

    def take_away(self) -> None:
        self.draw("")


@contextmanager
def working(text: str) -> Iterator[None]:
    """Say what is going on while the block runs."""
    line = DrawnLine()
    line.draw(f"{text} …")
    try:
        yield
    finally:
        line.take_away()

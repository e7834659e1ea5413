"""One line about work that takes a while: on standard error, on a terminal, and taken away at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: Back to the beginning of the line, and what stood there away.
CLEAR_LINE = "\r\x1b[K"


@contextmanager
def working(text: str) -> Iterator[None]:
    """Say what is going on while the block runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    sys.stderr.write(f"{CLEAR_LINE}{text} …")
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write(CLEAR_LINE)
        sys.stderr.flush()

"""Processes that a test starts end with it, whatever becomes of the test."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import AnyStr

__all__ = ["killed_at_end"]


@contextmanager
def killed_at_end(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """Kill what still runs; its pipes are closed then too."""
    with process:
        try:
            yield process
        finally:
            process.kill()

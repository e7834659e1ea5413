"""Files that hold secrets: readable by their owner alone, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

__all__ = ["tighten", "write_secret"]


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read; after a crash it is the old or the new one, never half."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # made with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_directory(path.parent)


def tighten(path: Path) -> None:
    """Take away what others may do with a file that holds secrets."""
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

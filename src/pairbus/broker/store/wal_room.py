"""Room in a WAL, written before it is needed.

Theory
1. A commit that makes the WAL longer has its new length synced as well: one more write of the disk, or of a
   file system's journal, which takes as long again as the sync of the turn. A single send is little else.
2. So a turn that has made the WAL longer by a few pages has zeros written behind them, which are synced with
   the next turn; those after it write into what is there. A large turn needs none of it: it has one sync.
3. SQLite takes a WAL to its first frame that does not bear the salt of its head, and zeros do not: they are
   an end like any other, for a start after a kill too.
4. Zeros are written behind the end of the file alone, between two turns, when nobody else writes. Where
   there is no room for them, nothing is lost.
"""

import os
from contextlib import suppress
from pathlib import Path

from .checkpoints import LONG
from .file import PAGE_SIZE, wal_path

# Bytes by which a small turn makes a WAL longer, and the room for those that follow.
_LITTLE = 8 * (PAGE_SIZE + 24)
_ROOM = bytes(256 << 10)


class WalRoom:
    """Sees to it that small turns find room in the WAL of one store."""

    def __init__(self, store: Path) -> None:
        self._path = str(wal_path(store))
        self._descriptor: int | None = None
        self._length = 0

    def follow(self) -> None:
        """A turn is committed: see what it has made of the WAL."""
        with suppress(OSError):
            if self._descriptor is None:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            length = os.fstat(self._descriptor).st_size
            if length != self._length:
                if length - self._length <= _LITTLE and length < LONG:
                    length += os.pwrite(self._descriptor, _ROOM, length)
                self._length = length

    def close(self) -> None:
        """Let go of the WAL."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

"""How far a store had come, told beside it: so that a store that holds less is not taken for whole.

SQLite takes a WAL that breaks off for one whose writer was interrupted. That is right for the last
transaction and wrong for all that were confirmed before: one flipped bit, or a WAL that somebody deleted,
lost hundreds of messages without a word. What is missing cannot be told by what is there, so it stands in a
file of its own.

Theory
1. Turns are numbered, and a turn writes its number together with its rows. This file tells the identity of
   the store, which it got when it was made, and the number of the last turn: one line, with a checksum of its
   own.
2. It is written after the commit has returned, in place and without a sync, which costs a system call of a
   microsecond. So at every moment the number here is that of a turn which is on the disk, or of one before.
3. A kill leaves what was written last: the store is as far as this file tells, or one turn ahead. A power cut
   may leave this file older than it was, empty, or as garbage: the store is then ahead, or nobody knows. None
   of this is held against it. Only a store that is behind a line that can be read has lost something, and so
   has one that is gone, empty, or not the one that is named here.
4. Only the making of the file is synced. It happens once for each store, after the store itself is on the
   disk: a line with another identity beside a store is nothing that a power cut leaves.
5. A line that cannot be written, on a disk that is full, is older than the store, and so no reason to refuse.
6. A copy of a store that is older than this file is refused like any other that has lost something. Copies
   are made, and put back, of the whole directory.
"""

import logging
import os
import re
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from pairbus.plumbing.files import SECRET, publish

log = logging.getLogger(__name__)
_LINE = re.compile(rb"([0-9a-f]{32}) (\d{20}) ([0-9a-f]{8})\n")


class Mark(NamedTuple):
    """A store, and the last turn that it is known to hold."""

    identity: str
    turn: int


class CommitCounter:
    """The file `store.count` beside a `store.db`."""

    def __init__(self, store: Path) -> None:
        self._path = counter_path(store)
        self._descriptor: int | None = None
        self._has_failed = False

    def read(self) -> Mark | None:
        """What the file tells; None if it is not there or not whole."""
        try:
            found = _LINE.fullmatch(self._path.read_bytes())
        except OSError:
            return None
        if found is None or int(found[3], 16) != crc32(found[0][:53]):
            return None
        return Mark(found[1].decode(), int(found[2]))

    def write(self, mark: Mark) -> None:
        """This turn has been committed. The file is made if there is none, or one of another store."""
        try:
            if self._descriptor is None:
                self._descriptor = self._open(mark)
            os.pwrite(self._descriptor, _line(mark), 0)
        except OSError as error:
            if not self._has_failed:
                fields = {"file": str(self._path), "reason": str(error)}
                log.warning("the counter of a store cannot be written", extra={"fields": fields})
            self._has_failed = True
        else:
            self._has_failed = False

    def _open(self, mark: Mark) -> int:
        found = self.read()
        if found is None or found.identity != mark.identity:
            publish(self._path, _line(mark), mode=SECRET)
        return os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _line(mark: Mark) -> bytes:
    line = b"%s %020d" % (mark.identity.encode(), mark.turn)
    return b"%s %08x\n" % (line, crc32(line))


def counter_path(store: Path) -> Path:
    """Where the counter of a store lies."""
    return store.with_suffix(".count")

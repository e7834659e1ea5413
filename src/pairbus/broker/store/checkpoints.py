"""Moving the WAL into the database, beside the commits.

Theory
1. SQLite would do this in the commit that made the WAL long enough. It reads, writes and syncs 64 MB, which
   takes a tenth of a second and more, and nothing can be committed meanwhile. So a thread does it, on a
   connection of its own. A passive checkpoint stops nobody: it moves what was committed when it began, and
   who commits meanwhile writes behind that.
2. The WAL is used anew from its beginning only if all of it has been moved, and under load more is always
   written meanwhile. So the thread moves what has come since, too, which is less each time. The last bit, a
   few pages, is moved after the next commit, where nothing can come in between.
3. Nobody tells Python how long the WAL is: it is reckoned by what was written, rather too long than too
   short, and at the start by the length of the file that a kill has left. SQLite's own limit is there for
   where that is wrong, several times as high.
4. Nothing is less safe: every checkpoint syncs the WAL before its pages go to the database, and the database
   before the WAL may be used anew. One that fails, on a disk that is full, has moved nothing that is needed,
   and is tried again when as much has been written once more.
"""

import logging
import sqlite3
import threading

log = logging.getLogger(__name__)
#: Bytes of the WAL from which on it is moved: a busy second pays for it about once. The longer it is, the
#: more of its pages have been used again, by messages that came after others had gone, and are moved once.
LONG = 64 << 20
# Pages that are moved in a moment, and how often the thread tries to have no more than these left.
_FEW, _PASSES = 64, 4
# No disk takes longer, or nothing can be hoped from it.
_DEADLINE = 300.0
_MOVE = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpoints:
    """Sees to it that the WAL of one store does not grow for ever."""

    def __init__(self, connection: sqlite3.Connection, *, length: int) -> None:
        """`connection` is for the thread alone; `length` is that of the WAL that is there."""
        self._connection = connection
        self._thread: threading.Thread | None = None
        self._written = length
        self._is_last_bit_due = False

    def follow(self, database: sqlite3.Connection, written: int) -> None:
        """So many bytes were committed on `database`. What goes wrong here is not the turn's fault."""
        self._written += written
        if self._thread is not None and not self._thread.is_alive():
            self._thread = None
        if self._is_last_bit_due:
            self._is_last_bit_due = False
            self._move(database)
        elif self._written >= LONG and self._thread is None:
            self._written = 0
            self._begin()

    def close(self) -> None:
        """Let what is under way come to its end."""
        if self._thread is not None:
            self._thread.join(_DEADLINE)
        self._connection.close()

    def _begin(self) -> None:
        thread = threading.Thread(target=self._move_most, name="pairbus-checkpoint", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many threads, or the process ends
            log.warning("a checkpoint is put off", extra={"fields": {"reason": str(error)}})
        else:
            self._thread = thread

    def _move_most(self) -> None:
        for _ in range(_PASSES):
            left = self._move(self._connection)
            if left is None:
                return
            if left <= _FEW:
                break
        self._is_last_bit_due = True

    def _move(self, database: sqlite3.Connection) -> int | None:
        """Move what can be moved; how many pages are left, if that is known."""
        try:
            _, length, moved = database.execute(_MOVE).fetchone()
        except sqlite3.Error as error:
            log.warning("a checkpoint has failed", extra={"fields": {"reason": str(error)}})
            return None
        return int(length - moved)

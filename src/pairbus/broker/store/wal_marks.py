"""Whether a database and its WAL belong together.

SQLite moves the pages of a WAL into the database now and then, and begins the WAL anew. Whoever puts an older
database under a newer WAL gets the pages of both: what was removed between them has come back, and what came
is gone. If that is as much, no count tells.

Theory
1. WALs are numbered. The number stands in two rows, on two pages: an even WAL writes the one, an odd WAL the
   other, early in its life and once. So the number of the present WAL is in the WAL, and that of the one
   before is in the database, where it came with all that was in that WAL.
2. The two numbers are therefore neighbours, at every commit. If they are not, the database is another one
   than the WAL was written for.
3. A WAL is known by its salt, which SQLite writes into its head and changes when it begins anew. To look at
   it after each commit costs a microsecond. The number is written with the next turn: an older database under
   a WAL that has a single turn may be overlooked.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from struct import error as StructError

from .file import damage, wal_path
from .rows import sealed, unsealed

# Where the head of a WAL has its salt.
_SALT, _SALT_AT = Struct(">q"), 16
_STATEMENTS = ("mark_even_wal", "mark_odd_wal")


class WalMarks:
    """The numbers of the WALs of one store."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._descriptor: int | None = None
        self._salt = self._marked = 0
        self._number = 1
        self._written: tuple[int, int] | None = None

    def check(self, rows: sqlite3.Cursor) -> None:
        """Take the numbers of a store; raises StoreDamaged if they are no neighbours."""
        found = sorted(unsealed(row, "the number of a WAL") for row in rows)
        (before, _), (self._number, self._marked) = found
        self._salt = self._marked  # until the first look tells
        if self._number != before + 1:
            raise damage(
                self._store,
                f"an older {self._store.name} lies under a newer {wal_path(self._store).name}: it is of WAL "
                f"{before}, not {self._number - 1}",
            )

    def write(self, write: Callable[..., int]) -> None:
        """Write the number of a WAL that does not have it yet, with a turn."""
        self._written = None
        if self._salt != self._marked:
            number = self._number + 1
            write(_STATEMENTS[number % 2], *sealed(number, self._salt))
            self._written = number, self._salt

    def look(self) -> None:
        """A turn is committed: see which WAL it went to."""
        if self._written is not None:
            self._number, self._marked = self._written
            self._written = None
        # The turn is committed all the same, and a WAL without a number is no damage.
        with suppress(OSError, StructError):
            if self._descriptor is None:
                self._descriptor = os.open(wal_path(self._store), os.O_RDONLY | os.O_CLOEXEC)
            (self._salt,) = _SALT.unpack(os.pread(self._descriptor, _SALT.size, _SALT_AT))

    def close(self) -> None:
        """Let go of the WAL."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

"""Opening the file of a store: whose it is, whether it is whole, and which shape it has.

Rules
1. A file is looked at read-only before anything is done to it. One that another program made, that a newer
   Pairbus made or that is no database is refused and left as it is, byte for byte. (Looking so sees no WAL;
   therefore the shape is moved out of the WAL as soon as it is made, and is checked again after opening. Nor
   is more than the head of the file looked at, since the rest may make no sense without the WAL.)
2. One process has the file for as long as it is open, and one store in it; a second one is refused. The
   lock is the kernel's: it ends with the process, however that ends. It is that of the VFS `unix-excl`, by
   which connections of one process share the file; so stores of the same process are told apart here.
3. Older shapes are brought up to date by the numbered scripts, each in one transaction together with the
   number of the shape that it makes. A crash in between leaves a whole older file.
4. Every refusal says what to do.
"""

import contextlib
import logging
import os
import shlex
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from pairbus.broker.errors import StoreDamaged, StoreError
from pairbus.plumbing.files import SECRET, open_file, sync_directory, tighten

from .checksums import (
    changed_checksum,
    content_checksum,
    properties_checksum,
    record_checksum,
    row_checksum,
)
from .counter import counter_path
from .rows import pack_envelope
from .statements import load_migrations

log = logging.getLogger(__name__)
# "Pbus", as the first script says it.
APPLICATION_ID = 0x50627573
# Its device and its number there.
FileIdentity = tuple[int, int]
# Where the head of a SQLite file tells what it is, whose, and in which shape.
_HEAD_SIZE, _MAGIC = 100, b"SQLite format 3\0"
_SHAPE, _OWNER = slice(60, 64), slice(68, 72)
# A broker that is being restarted may meet the last moments of the one before it.
LOCK_PATIENCE = 2.0
# Twice SQLite's own choice: a page of 4 KB holds three messages of 1 KB and wastes a fifth, and every page
# costs two system calls.
PAGE_SIZE = 8192
# Pages of WAL, 256 MB, that a commit moves itself; a thread does so earlier (`checkpoints`).
_CHECKPOINT_PAGES = 32000
_CACHE_KILOBYTES = 16384
_SPILLED_PAGES = 16384
_READER_CACHE_KILOBYTES = 2048
# What the scripts and statements may call.
_FUNCTIONS: tuple[Callable[..., int | bytearray | None], ...] = (
    changed_checksum,
    content_checksum,
    pack_envelope,
    properties_checksum,
    record_checksum,
    row_checksum,
)
FUNCTIONS = {function.__name__: function for function in _FUNCTIONS}
_PRAGMAS = (
    f"page_size = {PAGE_SIZE}",
    "journal_mode = WAL",
    # The WAL is synced at every commit; less would lose turns that were confirmed.
    "synchronous = FULL",
    f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
    f"cache_size = -{_CACHE_KILOBYTES}",
    # Pages of a turn that is being written stay in memory up to this many: those of a large message would
    # otherwise go to the WAL twice, empty and full.
    f"cache_spill = {_SPILLED_PAGES}",
    # Some builds overwrite what is deleted with zeros; that writes every message twice.
    "secure_delete = OFF",
)
_ADVICE = {
    sqlite3.SQLITE_BUSY: "Another broker is using it: stop that one, or choose another data directory",
    sqlite3.SQLITE_FULL: "Make room on its disk",
    sqlite3.SQLITE_CANTOPEN: "The directory must exist and this user must be allowed to write there",
    sqlite3.SQLITE_READONLY: "This user must be allowed to write the file and its directory",
}
# The stores that this process has open.
_claimed: set[Path] = set()
_claiming = threading.Lock()
# Whatever else SQLite says of a file that it could open comes from what is in it, but for these.
_NO_DAMAGE = {
    *_ADVICE,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
}


def open_database(path: Path) -> sqlite3.Connection:
    """The database in `path`, locked for this process and in the newest shape; raises StoreError."""
    _claim(path)
    database: sqlite3.Connection | None = None
    try:
        _inspect(path)
        _make_private(path)
        database = _connect(path)
        for name, function in FUNCTIONS.items():
            database.create_function(name, -1, function, deterministic=True)
        _check(database, path)
        for pragma in _PRAGMAS:
            database.execute(f"PRAGMA {pragma}")
        _migrate(database, path)
        # SQLite syncs the directory of its file; the entry of that directory itself is left to us.
        sync_directory(path.parent.parent)
    except (sqlite3.Error, StoreError, UnicodeDecodeError, OSError) as error:
        close_database(path, database)
        raise error if isinstance(error, StoreError) else read_error(path, error) from error
    return database


def close_database(path: Path, *connections: sqlite3.Connection | None) -> None:
    """Let go of a database."""
    for connection in connections:
        if connection is not None:
            connection.close()
    with _claiming:
        _claimed.discard(path.resolve())


def _claim(path: Path) -> None:
    """Before anything is opened: what this process closes of a file takes the kernel's locks with it."""
    with _claiming:
        if path.resolve() in _claimed:
            raise StoreError(f"the store {path} is open. {_ADVICE[sqlite3.SQLITE_BUSY]}.")
        _claimed.add(path.resolve())


def open_all(path: Path) -> tuple[sqlite3.Connection, sqlite3.Connection, sqlite3.Connection]:
    """The database, and for the same file a reader and a mover; raises StoreError, and holds nothing then."""
    connections = [open_database(path)]
    try:
        connections += [open_reader(path)]
        connections += [open_mover(path)]
    except sqlite3.Error as error:
        close_database(path, *reversed(connections))
        raise read_error(path, error) from error
    database, reader, mover = connections
    return database, reader, mover


def open_mover(path: Path) -> sqlite3.Connection:
    """Another connection to a database that this process has open, for its checkpoints."""
    database = _connect(path)
    database.execute("PRAGMA synchronous = FULL")
    return database


def open_reader(path: Path) -> sqlite3.Connection:
    """Another connection, which sees what is committed and never waits for a commit."""
    database = _connect(path)
    for pragma in ("query_only = ON", f"cache_size = -{_READER_CACHE_KILOBYTES}"):
        database.execute(f"PRAGMA {pragma}")
    return database


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?vfs=unix-excl",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=LOCK_PATIENCE,
        cached_statements=64,
    )


def store_error(store: str, error: sqlite3.Error) -> StoreError:
    """What went wrong with a store, which is named by `store`, and what to do about it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # what is above says more precisely what happened
    advice = _ADVICE.get(code)
    return StoreError(f"{store}: {error}." + (f" {advice}." if advice else ""))


def read_error(path: Path, error: Exception) -> StoreError:
    """The same for what was found in reading: unless it comes from elsewhere, the store is damaged."""
    if isinstance(error, OSError):
        return StoreError(f"the store {path} cannot be opened: {error}.")
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_IOERR_SHORT_READ:  # which is no fault of its disk
        return damage(path, "it ends too early")
    code &= 0xFF
    # A programming error is that a store was closed before.
    if isinstance(error, sqlite3.ProgrammingError) or (
        isinstance(error, sqlite3.Error) and code in _NO_DAMAGE
    ):
        return store_error(f"the store {path}", error)
    if code == sqlite3.SQLITE_NOTADB and not counter_path(path).exists():
        return StoreError(f"{path} is not a database. Move it away, or choose another data directory.")
    # Python cannot even tell what SQLite says of a schema that is no text any more.
    return damage(path, f"{error}")


def damage(path: Path, what: str) -> StoreDamaged:
    """What is wrong with a store, and how to go on."""
    return StoreDamaged(
        f"the store {path} is damaged: {what}. `pairbus broker --data {shlex.quote(str(path.parent.parent))} "
        f"--salvage` saves what can be read and lists what is lost. Or put back a copy of the whole "
        f"directory {path.parent}, or move it away to start empty."
    )


def identity_of(path: str) -> FileIdentity | None:
    """Which file this is; None if there is none. Asked twice for each turn, and so not by a `Path`."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def size_of(path: Path) -> int:
    """How many bytes a file has; none if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def moved_away(path: Path) -> StoreError:
    """A file of a store that is in use is gone, or another one."""
    return StoreError(
        f"{path.name} was removed, moved or replaced while it was in use, and nothing more can be stored. "
        "Put it back as it was and restart the broker; without it, what it held is lost."
    )


def wal_path(path: Path) -> Path:
    """Where the WAL of a store lies."""
    return path.with_name(f"{path.name}-wal")


def aside_path(path: Path, turn: int) -> Path:
    """Where the WAL of a damaged store lies that ought to have come to this turn."""
    return path.with_name(f"{path.name}-wal.damaged-{turn}")


def set_wal_aside(path: Path, turn: int) -> None:
    """Keep the WAL of a damaged store from SQLite, which deletes it when it closes the file: behind the place
    where it breaks off there may be more to save. Only for whoever holds the store.
    """
    wal, aside = wal_path(path), aside_path(path, turn)
    if wal.exists() and wal.stat().st_size > 0 and not aside.exists():
        wal.rename(aside)


def _inspect(path: Path) -> None:
    """Refuse a file that is not for us without touching it, and without needing room beside it.

    A file that says so in its head is ours, whatever the rest looks like: a kill in the midst of a checkpoint
    leaves one that makes sense only together with its WAL.
    """
    head = b""
    with contextlib.suppress(OSError), path.open("rb") as file:  # SQLite finds the same, and tells it better
        head = file.read(_HEAD_SIZE)
    if head.startswith(_MAGIC) and head[_OWNER] == APPLICATION_ID.to_bytes(4, "big"):
        _check_shape(path, int.from_bytes(head[_SHAPE], "big"))
    elif head:
        uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
            _check(database, path)


def _make_private(path: Path) -> None:
    """Have the file for its owner alone, before there is anything in it; SQLite makes its WAL likewise."""
    with contextlib.suppress(OSError):  # SQLite finds the same, and tells it better
        os.close(open_file(path, os.O_RDWR | os.O_CREAT, SECRET))
        for found in (path, wal_path(path), path.with_name(f"{path.name}-shm")):
            if found.exists():
                tighten(found)


def _check(database: sqlite3.Connection, path: Path) -> None:
    version, owner = _pragma(database, "user_version"), _pragma(database, "application_id")
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if owner != APPLICATION_ID and (owner or version or tables):
        raise StoreError(
            f"{path} is a database of another program. Move it away, or choose another data directory."
        )
    _check_shape(path, version)


def _check_shape(path: Path, version: int) -> None:
    known = len(load_migrations())
    if version > known:
        raise StoreError(
            f"the store {path} was written by a newer Pairbus (its shape is number {version}, this one knows "
            f"{known}). Use that Pairbus, or choose another data directory."
        )


def _migrate(database: sqlite3.Connection, path: Path) -> None:
    version = _pragma(database, "user_version")
    for number, script in enumerate(load_migrations()[version:], start=version + 1):
        if version:
            fields = {"store": str(path), "shape": number}
            log.info("store is brought up to date", extra={"fields": fields})
        database.executescript(f"BEGIN EXCLUSIVE; {script} PRAGMA user_version = {number}; COMMIT;")
    if version < len(load_migrations()):
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _pragma(database: sqlite3.Connection, name: str) -> int:
    (value,) = database.execute(f"PRAGMA {name}").fetchone()
    return int(value)

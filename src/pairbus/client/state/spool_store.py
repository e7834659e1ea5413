"""The files of the spool: one directory a process, one file after another for each line.

    DIR/<when>-<pid>-<random>/.lock                 held for as long as the process lives
    DIR/<when>-<pid>-<random>/<n>-<m>.spool         records of line n, m-th file
    DIR/<when>-<pid>-<random>/late-<n>-<m>.spool    the same, of what waits for the primary alone
    DIR/<when>-<pid>-<random>/<…>.cursor            how far that file has been sent

Names in their order are processes in theirs: the next begins later than all that are there, also if the clock
was set back.

1. A record is on the disk (synced) before `keep` returns. What a failed write leaves is cut off again. The
   file that was written last stays open. That its name still leads to it is seen after each sync: somebody
   may have removed or replaced it. Then, and whatever else is wrong with it, it is written by its name.
   While it is open, it is longer than its records: what lies on the disk already is synced sooner than what
   makes a file longer. See `spool_records`, rule 4. That room is also written to without a thread, and synced
   by the kernel (`begin_to_keep`); such a record is on the disk when that says so.
2. A file is read from its cursor on and deleted when all of it has been dealt with. The cursor is saved after
   the send: a crash between the two sends some records twice, with the same message ids, and loses none. So
   does a cursor that is damaged: its file is sent from the start.
3. Damage is never dropped. It is put aside, see `spool_aside`, before the file that it was found in is
   deleted. That may be a record that a crash cut short, of which nobody was told that it is kept; but nobody
   can tell.
4. The directory of a process that is gone, known by its free lock, is taken over by the next one. One whose
   name ends with a format that this version does not know (`.v2`) is left alone, and told.
5. What version 0.1.0 put aside, `rejected.spool`, is read as what waits for the primary: most of it was only
   too large for the backlog, or a list too large for one send.

Nothing here is asynchronous: the spool calls it on a thread, but for `begin_to_keep`, and nothing else until
that has ended.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pairbus.pairing.names import path_key
from pairbus.plumbing.files import (
    SECRET,
    FileLock,
    entries_in,
    files_in,
    is_locked,
    make_directory,
    publish,
    read_file,
    remove_drafts,
    sync_directory,
)
from pairbus.plumbing.kernel_sync import Ended, KernelSync
from pairbus.plumbing.wording import counted

from .spool_aside import RefusedMessage, keep_damaged
from .spool_file import OpenFile
from .spool_records import Piece, SpoolCursor, SpoolRecord, framed, pieces_left, pieces_of

log = logging.getLogger(__name__)
# Read as a whole, and deleted as a whole: so much may lie on the disk beyond what is still to be sent.
_FILE_BYTES = 4 * 1024 * 1024
# Longer than it takes to look whether a lock is held.
_GLANCE = 0.02
_LOCK, _REJECTED, _LATE = ".lock", "rejected.spool", "late-"
_BEGIN = SpoolCursor()
# Lines and files are numbered; what has another name was put there by somebody else, and is sent as well.
_FILE = re.compile(rf"(?:{_LATE})?(?P<line>\d+)-(?P<file>\d+)\.spool")
_STORE = re.compile(r"\d+-\d+-[0-9a-f]+(?P<format>\.v\d+)?")


class LineKey(NamedTuple):
    """Records that are sent one after another: those of a path or, if late, what waits for its primary."""

    path: str
    is_late: bool = False

    @classmethod
    @lru_cache(maxsize=1024)  # whoever spools names the same few paths again and again
    def of(cls, path: str, *, is_late: bool = False) -> LineKey:
        """The line of a path, however that is written."""
        return cls(path_key(path), is_late)


class Held(NamedTuple):
    """So many messages and bytes."""

    messages: int = 0
    size: int = 0


class Unsent(NamedTuple):
    """A record with its place in its file; `sent` of its messages have been dealt with."""

    file: Path
    begin: int
    end: int
    record: SpoolRecord
    sent: int


class Reading(NamedTuple):
    """What a file has that has not been dealt with, and where the file ended when it was read."""

    file: Path
    unsent: list[Unsent]
    end: int


@dataclass(slots=True)
class _File:
    path: Path
    size: int = 0
    place: SpoolCursor = _BEGIN
    #: How many messages have not been dealt with.
    messages: int = 0
    #: Where damage was found that has been put aside.
    told: set[int] = field(default_factory=set)

    @property
    def held(self) -> Held:
        return Held(self.messages, max(self.size - self.place.offset, 0))

    @property
    def cursor(self) -> Path:
        return self.path.with_suffix(".cursor")

    @property
    def name(self) -> str:
        """How parts of it are called where they are put aside."""
        return f"{self.path.parent.name}-{self.path.stem}"

    def delete(self) -> None:
        """Rule 2: a power cut must not bring it back without its cursor."""
        self.path.unlink()
        sync_directory(self.path.parent)
        self.cursor.unlink(missing_ok=True)


@dataclass(slots=True)
class _Line:
    """The files of one line, the oldest first."""

    number: int
    files: list[_File] = field(default_factory=list)
    next_file: int = 0


class SpoolStore:
    """The records of one process, by line."""

    def __init__(self, directory: Path, lock: FileLock) -> None:
        self.directory = directory
        self._lock = lock
        self._opened: OpenFile | None = None
        self._lines: dict[LineKey, _Line] = {}
        self._next_line = 0
        #: How many damaged parts were put aside, rule 3.
        self.damages = 0
        #: What of its files is missing, for people.
        self.losses: list[str] = []

    @classmethod
    def create(cls, parent: Path) -> SpoolStore:
        """A new one, of this process."""
        while True:
            name = f"{_next_stamp(parent):014d}-{os.getpid()}-{secrets.token_hex(3)}"
            directory = parent / name
            make_directory(directory, durable=True)
            # Somebody who looks for what is left over may have it, or may have removed it.
            with suppress(FileNotFoundError):
                lock = FileLock.take(directory / _LOCK)
                if lock is not None:
                    return cls(directory, lock)

    @property
    def is_there(self) -> bool:
        """Whether its directory is: somebody may have removed it."""
        return self.directory.is_dir()

    def lines(self) -> dict[LineKey, Held]:
        """The lines that it has, and what each holds."""
        return {key: _sum(file.held for file in line.files) for key, line in self._lines.items()}

    def append(self, key: LineKey, records: list[SpoolRecord]) -> None:
        """Keep records of a line; they are on the disk when this returns."""
        self.keep(key, b"".join(map(framed, records)), sum(record.messages for record in records))

    def keep(self, key: LineKey, data: bytes, messages: int) -> None:
        """The same, for records that are framed already."""
        line = self._lines.get(key) or _Line(self._next_line)
        if line.files and line.files[-1].size < _FILE_BYTES:
            file = line.files[-1]
            self._extend(file, data)
        else:
            file = _File(self._new_file(line, key))
            self._write_first(file.path, data)
            line.files.append(file)
            line.next_file += 1
        file.size += len(data)
        file.messages += messages
        if key not in self._lines:
            self._lines[key] = line
            self._next_line += 1

    def begin_to_keep(self, key: LineKey, data: bytes, messages: int, sync: KernelSync, ended: Ended) -> bool:
        """The same on the event loop, where nothing is to be waited for: in the file that was written last,
        if it has room on the disk. `ended` is told whether they are kept. False if nothing has begun.
        """
        line, opened = self._lines.get(key), self._opened
        if line is None or opened is None or not line.files or line.files[-1].path is not opened.path:
            return False
        file = line.files[-1]
        is_kept = False

        def end(is_synced: bool) -> None:
            nonlocal is_kept
            if not is_kept:  # it may be told once more, if whoever told it was interrupted
                is_kept = self._opened is opened and opened.end(len(data), is_synced=is_synced)
                if is_kept:
                    file.size += len(data)
                    file.messages += messages
            ended(is_kept)

        return file.size < _FILE_BYTES and opened.begin(data, sync, end)

    def _write_first(self, path: Path, data: bytes) -> None:
        """Begin a file; one that cannot be begun is not there, or a full disk would be filled with them."""
        try:
            self._write(path, data, at=0)
            sync_directory(self.directory)
        except OSError:
            self._shut()
            with suppress(OSError):  # the first error is the one to tell
                path.unlink()
            raise

    def _extend(self, file: _File, data: bytes) -> None:
        opened, is_kept = self._opened, False
        try:
            with suppress(OSError):  # it is told below, if that fails as well
                is_kept = (
                    opened is not None and opened.path is file.path and opened.extend(data, limit=_FILE_BYTES)
                )
        finally:
            if not is_kept:
                self._shut()
        if not is_kept:
            self._write(file.path, data, at=file.size)

    def _write(self, path: Path, data: bytes, *, at: int) -> None:
        self._shut()
        self._opened = OpenFile(path, at=at)
        try:
            self._opened.write(data)
        except BaseException:
            self._shut()
            raise

    def _shut(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _delete(self, file: _File) -> None:
        if self._opened is not None and self._opened.path is file.path:
            self._shut()
        file.delete()

    def _new_file(self, line: _Line, key: LineKey) -> Path:
        prefix = _LATE if key.is_late else ""
        while True:
            path = self.directory / f"{prefix}{line.number:06d}-{line.next_file:06d}.spool"
            if not path.exists():  # nothing that somebody has put there is written over
                return path
            line.next_file += 1

    def claim(self, refused: RefusedMessage) -> bool:
        """Take a message that was refused over, to be sent again; False if somebody else has, or dropped it.
        Its file is one of the spool: it has moved, or has not.
        """
        path = self.directory / f"{self._next_line:06d}-000000.spool"
        try:
            refused.file.rename(path)
        except FileNotFoundError:
            return False
        self._next_line += 1
        sync_directory(self.directory)
        sync_directory(refused.file.parent)
        return True

    def drop(self, key: LineKey) -> list[Path]:
        """Delete all files of a line, for good: which ones."""
        line = self._lines.pop(key, None)
        files = [] if line is None else line.files
        for file in files:
            self._delete(file)
        return [file.path for file in files]

    def read(self, key: LineKey) -> Reading | None:
        """What the first file of a line has that has not been dealt with; None if the line is empty. What is
        damaged is put aside.
        """
        line = self._lines.get(key)
        if line is None:
            return None
        file = line.files[0]
        data = self._content(file)
        return Reading(file.path, self._unsent(file, data[: file.size]), file.size)

    def _content(self, file: _File) -> bytes:
        try:
            data = file.path.read_bytes()
        except FileNotFoundError:  # what is behind it must not wait for what will never come back
            held = counted(file.messages, "message", "messages")
            self._lose(f"{file.path} has been removed by somebody, with {held}")
            return b""
        if len(data) < file.size:
            self._lose(f"{file.path} has been cut off: {file.size - len(data)} bytes are missing")
        return data

    def _lose(self, what: str) -> None:
        if what not in self.losses:
            log.error("%s", what)
            self.losses.append(what)

    def settle(self, key: LineKey, path: Path, place: SpoolCursor, messages: int) -> Held:
        """A file of a line has been dealt with up to a place, which is so many messages more; what is not
        held any more. That is nothing if the file was done with before.
        """
        line = self._lines.get(key)
        if line is None or line.files[0].path != path:
            return Held()
        file = line.files[0]
        before = file.held
        file.place = place
        file.messages = max(file.messages - messages, 0)
        is_done = place.offset >= file.size
        if is_done:
            file.messages = 0  # also those that were damaged
            del line.files[0]
            if not line.files:
                del self._lines[key]
        try:
            if is_done:
                self._delete(file)
            else:
                publish(file.cursor, place.to_text(), mode=SECRET)
        except OSError as error:
            log.warning("%s: some messages may be sent twice after a crash: %s", file.path, error)
        return Held(before.messages - file.messages, before.size - file.held.size)

    def put_aside(self, key: LineKey, unsent: Unsent) -> None:
        """Put aside a record of the first file of a line that is whole and cannot be read."""
        self._keep_damage(self._lines[key].files[0], unsent.begin, framed(unsent.record))

    def name_of(self, key: LineKey, unsent: Unsent, number: int) -> str:
        """What a message of a record of the first file is called where it is put aside."""
        return f"{self._lines[key].files[0].name}-{unsent.begin}-{number}"

    def close(self) -> None:
        """Let go of the directory, and remove it if nothing is in it any more."""
        self._lines.clear()  # somebody else may have them from now on
        try:
            self._shut()
            if self.is_there and all(path.name == _LOCK for path in self.directory.iterdir()):
                (self.directory / _LOCK).unlink(missing_ok=True)
                self.directory.rmdir()
        finally:
            self._lock.release()

    def _unsent(self, file: _File, data: bytes) -> list[Unsent]:
        found: list[Unsent] = []
        for piece in pieces_of(data):
            if piece.end <= file.place.offset:
                continue
            if piece.record is None:
                begin = max(piece.begin, file.place.offset)
                self._keep_damage(file, begin, data[begin : piece.end])
            else:
                sent = file.place.messages if piece.begin == file.place.offset else 0
                found.append(Unsent(file.path, piece.begin, piece.end, piece.record, sent))
        return found

    def _keep_damage(self, file: _File, begin: int, data: bytes) -> None:
        if begin in file.told:
            return
        kept = keep_damaged(self.directory.parent, f"{file.name}-{begin}", data)
        log.error(
            "%s: %d bytes from %d on are damaged, or were cut short by a crash; they are kept in %s, and the "
            "rest is sent",
            file.path,
            len(data),
            begin,
            kept,
        )
        file.told.add(begin)
        self.damages += 1

    # -- after a crash

    def load(self) -> None:
        """Find the records of a process that is gone. A file that cannot be read is told of, and stays."""
        remove_drafts(self.directory)
        for path in sorted(spool_files(self.directory), key=lambda path: _FILE.fullmatch(path.name) is None):
            try:
                if path.name == _REJECTED:
                    self._load_rejected(path)
                else:
                    self._load_file(path)
            except Exception:
                log.exception("%s: what an earlier process spooled cannot be read", path)
        for cursor in files_in(self.directory, "*.cursor"):
            if not cursor.with_suffix(".spool").exists():
                cursor.unlink()

    def _load_file(self, path: Path) -> None:
        named = _FILE.fullmatch(path.name)
        number, place = (int(named["line"]), int(named["file"])) if named else (self._next_line, 0)
        data = path.read_bytes()
        pieces = pieces_left(data)
        size = pieces[-1].end if pieces else 0
        file = _File(path, size=size, place=read_place(path.with_suffix(".cursor"), pieces))
        if file.place.offset > file.size:
            log.error("%s has been cut off: it ends before the place up to which it was sent", path)
        unsent = self._unsent(file, data[:size])
        if not unsent:
            file.delete()
            return
        file.messages = sum(one.record.messages - one.sent for one in unsent)
        key = LineKey.of(unsent[0].record.path, is_late=path.name.startswith(_LATE))
        line = self._lines.setdefault(key, _Line(number))
        line.files.append(file)
        line.next_file = max(line.next_file, place + 1)
        self._next_line = max(self._next_line, number + 1)

    def _load_rejected(self, path: Path) -> None:
        """Rule 5."""
        data = path.read_bytes()
        for unsent in self._unsent(_File(path, size=len(data)), data):
            self.append(LineKey.of(unsent.record.path, is_late=True), [unsent.record])
        path.unlink()


def read_place(cursor: Path, pieces: list[Piece]) -> SpoolCursor:
    """How far a file has been dealt with. Rule 2."""
    try:
        text = read_file(cursor).decode("ascii", "replace")
    except FileNotFoundError:
        return SpoolCursor()
    except OSError as error:
        text = repr(error)  # which is no place
    place = SpoolCursor.from_text(text, {0, *(piece.end for piece in pieces)})
    if place is None:
        log.error("%s is damaged; its file is sent from the start, and so some messages twice", cursor)
    return place or SpoolCursor()


def adopt_stores(parent: Path) -> list[SpoolStore]:
    """Take over what processes left behind that are gone, the oldest first."""
    stores = []
    for directory in store_directories(parent):
        try:
            lock = FileLock.take(directory / _LOCK)
            if lock is None and spool_files(directory):
                time.sleep(_GLANCE)  # perhaps somebody only looked, see `is_held`
                lock = FileLock.take(directory / _LOCK)
            if lock is not None:
                stores.append(SpoolStore(directory, lock))
                stores[-1].load()
        except OSError as error:  # those of others are none the worse
            log.error("%s: what an earlier process spooled cannot be taken over: %s", directory, error)
    for directory in newer_directories(parent):
        log.error(
            "%s was written by a newer version of Pairbus: only that one can send what is there", directory
        )
    return stores


def put_back(spool: Path, refused: Iterable[RefusedMessage]) -> int:
    """Have refused messages sent again by the next client; how many nobody else is sending already."""
    store = SpoolStore.create(spool)
    try:
        return sum(map(store.claim, refused))
    finally:
        store.close()


def drop_line(spool: Path, path: str) -> set[Path]:
    """Delete what waits for an entity in directories of processes that are gone, for good: which files."""
    dropped: set[Path] = set()
    for store in adopt_stores(spool):
        try:
            for is_late in (False, True):
                dropped.update(store.drop(LineKey.of(path, is_late=is_late)))
        finally:
            store.close()
    return dropped


def spool_files(store: Path) -> list[Path]:
    """The files in the directory of a process."""
    return files_in(store, "*.spool")


def is_held(store: Path) -> bool:
    """Whether the process of a directory lives."""
    return is_locked(store / _LOCK)


def store_directories(parent: Path) -> list[Path]:
    """The directories of all processes, the oldest first."""
    return [path for path, written_as in _directories(parent) if written_as is None]


def newer_directories(parent: Path) -> list[Path]:
    """Those that a newer version has written."""
    return [path for path, written_as in _directories(parent) if written_as is not None]


def _next_stamp(parent: Path) -> int:
    """The time, in milliseconds; later than that of all who came before, wherever the clock was set."""
    stamps = [int(path.name.partition("-")[0]) for path, _ in _directories(parent)]
    return max(time.time_ns() // 1_000_000, max(stamps, default=0) + 1)


def _directories(parent: Path) -> list[tuple[Path, str | None]]:
    found = [(path, _STORE.fullmatch(path.name)) for path in entries_in(parent, "*-*")]
    return [(path, match["format"]) for path, match in found if match is not None and path.is_dir()]


def _sum(held: Iterable[Held]) -> Held:
    found = list(held)
    return Held(sum(one.messages for one in found), sum(one.size for one in found))

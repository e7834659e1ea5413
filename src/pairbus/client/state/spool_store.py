"""The files of the spool: one directory a process, one file after another for each entity.

    DIR/<when>-<pid>-<random>/.lock            held for as long as the process lives
    DIR/<when>-<pid>-<random>/<n>-<m>.spool    records of entity n, m-th file
    DIR/<when>-<pid>-<random>/<n>-<m>.cursor   how far that file has been sent
    DIR/<when>-<pid>-<random>/rejected.spool   what can never be sent

1. A record is its length, its checksum and its bytes. It is on the disk (fsync) before `append` returns.
2. A file is read from its cursor on and deleted when all of it has been sent. The cursor is saved after the
   send: a crash between the two sends some records twice, with the same message ids, and loses none. So does
   a cursor that is damaged: its file is sent from the start.
3. A record that does not fit its checksum was being written when the machine stopped; nobody was told that it
   is kept. It is cut off, with what follows it.
4. The directory of a process that is gone, known by its free lock, is taken over by the next one.

Nothing here is asynchronous: the spool calls it on a thread.
"""

from __future__ import annotations

import logging
import os
import secrets
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pairbus.plumbing.files import (
    SECRET,
    FileLock,
    make_directory,
    open_file,
    publish,
    remove_drafts,
    sync_directory,
    write_all,
)

log = logging.getLogger(__name__)
_FRAME = struct.Struct(">II")
# Read as a whole, and deleted as a whole: so much may lie on the disk beyond what is still to be sent.
_FILE_BYTES = 4 * 1024 * 1024
_LOCK, _REJECTED = ".lock", "rejected.spool"


@dataclass(slots=True)
class _File:
    path: Path
    size: int = 0
    sent: int = 0

    @property
    def cursor(self) -> Path:
        return self.path.with_suffix(".cursor")

    def delete(self) -> None:
        self.path.unlink()
        self.cursor.unlink(missing_ok=True)


@dataclass(slots=True)
class _Line:
    """The files of one entity, the oldest first."""

    number: int
    files: list[_File] = field(default_factory=list)
    next_file: int = 0


class SpoolStore:
    """The records of one process, by entity."""

    def __init__(self, directory: Path, lock: FileLock) -> None:
        self.directory = directory
        self._lock = lock
        self._lines: dict[str, _Line] = {}
        self._next_line = 0

    @classmethod
    def create(cls, parent: Path) -> SpoolStore:
        """A new one, of this process."""
        name = f"{time.time_ns() // 1_000_000:014d}-{os.getpid()}-{secrets.token_hex(3)}"
        directory = parent / name
        make_directory(directory)
        lock = FileLock.take(directory / _LOCK)
        assert lock is not None, "nobody else knows this name"
        sync_directory(parent)
        return cls(directory, lock)

    @property
    def size(self) -> int:
        """How many bytes its files have."""
        return sum(file.size for line in self._lines.values() for file in line.files)

    def paths(self) -> list[str]:
        """The entities that it has records for."""
        return list(self._lines)

    def append(self, path: str, records: list[bytes]) -> None:
        """Keep records of an entity; they are on the disk when this returns."""
        line = self._lines.get(path) or _Line(self._next_line)
        file = line.files[-1] if line.files and line.files[-1].size < _FILE_BYTES else None
        if file is None:
            file = _File(self.directory / f"{line.number:06d}-{line.next_file:06d}.spool")
        data = b"".join(map(_framed, records))
        _write(file.path, data, at=file.size)
        file.size += len(data)
        if not line.files or line.files[-1] is not file:
            sync_directory(self.directory)
            line.files.append(file)
            line.next_file += 1
        if path not in self._lines:
            self._lines[path] = line
            self._next_line += 1

    def read(self, path: str) -> list[bytes]:
        """The oldest records of an entity that have not been sent, as far as its first file goes."""
        line = self._lines.get(path)
        if line is None:
            return []
        file = line.files[0]
        data = file.path.read_bytes()[: file.size]
        return [record for record, _ in _records(data, file.sent)]

    def forget(self, path: str, records: list[bytes]) -> None:
        """The oldest records of an entity, these, have been sent."""
        line = self._lines[path]
        file = line.files[0]
        file.sent += sum(_FRAME.size + len(record) for record in records)
        if file.sent == file.size:
            del line.files[0]
            if not line.files:
                del self._lines[path]
        try:
            if file.sent < file.size:
                publish(file.cursor, str(file.sent), mode=SECRET)
            else:
                file.delete()
        except OSError as error:
            log.warning("%s: some messages may be sent twice after a crash: %s", file.path, error)

    def reject(self, record: bytes) -> Path:
        """Put aside what can never be sent; where it lies."""
        path = self.directory / _REJECTED
        _write(path, _framed(record), at=path.stat().st_size if path.exists() else 0)
        return path

    def close(self) -> None:
        """Let go of the directory, and remove it if nothing is in it any more."""
        try:
            if all(path.name == _LOCK for path in self.directory.iterdir()):
                (self.directory / _LOCK).unlink(missing_ok=True)
                self.directory.rmdir()
        finally:
            self._lock.release()

    # -- after a crash

    def load(self, visit: Callable[[list[bytes]], str]) -> None:
        """Find the records of a process that is gone; `visit` is shown those of a file, and tells whose they
        are. A file that cannot be read is told of, and stays for the next one who tries.
        """
        remove_drafts(self.directory)
        for path in sorted(self.directory.glob("[0-9]*.spool")):
            try:
                self._load_file(path, visit)
            except Exception:
                log.exception("%s: what an earlier process spooled cannot be read", path)
        for cursor in self.directory.glob("*.cursor"):
            if not cursor.with_suffix(".spool").exists():
                cursor.unlink()

    def _load_file(self, path: Path, visit: Callable[[list[bytes]], str]) -> None:
        data = path.read_bytes()
        ends = [0, *(end for _, end in _records(data, 0))]
        file = _File(path, size=ends[-1])
        if file.size < len(data):
            log.warning("%s: a record that a crash cut short is dropped", path)
            os.truncate(path, file.size)
        file.sent = _read_cursor(file.cursor, ends)
        records = [record for record, _ in _records(data[: file.size], file.sent)]
        if records:
            self._take_in(file, visit(records))
        else:
            file.delete()

    def _take_in(self, file: _File, path: str) -> None:
        number, _, place = file.path.stem.partition("-")
        line = self._lines.setdefault(path, _Line(int(number)))
        line.files.append(file)
        line.next_file = int(place) + 1
        self._next_line = max(self._next_line, line.number + 1)


def _read_cursor(cursor: Path, ends: list[int]) -> int:
    """How far a file has been sent, which is the end of one of its records. Rule 2."""
    try:
        text = cursor.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return 0
    if text.isdecimal() and int(text) in ends:
        return int(text)
    log.error("%s is damaged; its file is sent from the start, and so some messages twice", cursor)
    return 0


def adopt_stores(parent: Path, visit: Callable[[list[bytes]], str]) -> list[SpoolStore]:
    """Take over what processes left behind that are gone, the oldest first."""
    stores = []
    for found in sorted(parent.glob(f"*/{_LOCK}")):
        try:
            lock = FileLock.take(found, create=False)
            if lock is not None:
                stores.append(SpoolStore(found.parent, lock))
                stores[-1].load(visit)
        except OSError as error:  # those of others are none the worse
            log.error("%s: what an earlier process spooled cannot be taken over: %s", found.parent, error)
    return stores


def _framed(record: bytes) -> bytes:
    return _FRAME.pack(len(record), zlib.crc32(record)) + record


def _records(data: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    """The whole records from `at` on, each with the place of its end."""
    while at + _FRAME.size <= len(data):
        length, checksum = _FRAME.unpack_from(data, at)
        record = data[at + _FRAME.size : at + _FRAME.size + length]
        if len(record) < length or zlib.crc32(record) != checksum:
            return
        at += _FRAME.size + length
        yield record, at


def _write(path: Path, data: bytes, *, at: int) -> None:
    """Write at a place, and have it on the disk. What a failure leaves there is written over next time."""
    descriptor = open_file(path, os.O_WRONLY | os.O_CREAT, SECRET)
    try:
        os.ftruncate(descriptor, at)
        os.lseek(descriptor, at, os.SEEK_SET)
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

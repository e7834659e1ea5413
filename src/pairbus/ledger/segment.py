"""Segments: files of JSON lines that many processes write into one directory without knowing each other.

Theory of operation
1. A segment has one writer, which appends to it under a hidden name, `.KIND-….jsonl.open`. When it is full
   or old it is closed: renamed to `KIND-….jsonl`. A closed segment never changes again, so that whoever
   reads closed segments sees whole files only, and hidden ones are passed over by every reader there is.
2. A row is kept when `append` has returned: the bytes are in the file and the file has been fsynced. The
   directory is fsynced with each new name. A caller that can do without the fsync for a moment says so, and
   calls `sync` soon: what the kernel has outlives the process, not a power cut. Closed segments are synced.
3. A write that fails is taken back to the end of the last whole row. Where even that fails, or an fsync
   fails (after which nobody knows what is on the disk), the segment is left behind and the next row begins a
   new one. So it is where the file was removed, moved or replaced under its writer, which is looked at with
   each fsync and at the end: then none of its rows is kept, and all of them count as lost.
4. The writer holds a lock on its open segment, which the system lets go when the process ends, however it
   ends. An open segment whose lock can be had was left behind: it is *adopted*. A torn last line is cut off,
   or, in a chain, a torn last commit; the rest is closed as its writer would have done, and what has no whole
   row is removed. So is an older copy of one that was closed since: that is never written over.
5. A new file is locked after it was created. An adopter that comes in between removes it, being empty; the
   writer sees that when it asks for the lock, and creates another.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairbus.clock import Clock, SystemClock
from pairbus.plumbing.files import (
    FileLock,
    entries_in,
    files_in,
    hold_alone,
    make_directory,
    read_file,
    set_aside,
    sync_directory,
    write_all,
)
from pairbus.plumbing.json_text import parse_json

from .chain import ChainWriter, anchor_adopted, end_of_commits, is_link
from .chain import is_chained as has_links
from .seal import open_rows, seal_rows

log = logging.getLogger(__name__)
_SUFFIX = ".jsonl"
_OPEN = ".open"
# A few seconds of reading: large enough that files are few, small enough that one is soon looked through.
MAX_BYTES = 16 * 1024 * 1024
# Rows can be seen by others when their segment is closed, so it must not stay open for long.
MAX_AGE = 60.0
_CHUNK = 64 * 1024
_GONE = "it was removed, moved or replaced while rows were written to it, and these are lost"


class SegmentWriter:
    """Writes rows of one kind into segments of one directory. Not for several threads at once."""

    def __init__(
        self,
        directory: Path,
        kind: str,
        *,
        max_bytes: int = MAX_BYTES,
        max_age: float = MAX_AGE,
        clock: Clock | None = None,
        encode: Callable[[Any], bytes] | None = None,
        is_chained: bool = False,
        is_shipped: bool = False,
    ) -> None:
        """`encode` writes a row as a line. `is_shipped`: a lock tells who ships the rows that this lives."""
        if not kind.isalnum():  # a dash ends the kind in the file's name
            raise ValueError(f"the kind of a segment is made of letters and digits, not {kind!r}")
        self.directory = directory
        self.kind = kind
        self._max_bytes = max_bytes
        self.max_age = max_age
        self._clock = clock or SystemClock()
        self._monotonic = self._clock.monotonic
        self._encode = encode or encode_row
        self._open: _OpenSegment | None = None
        self._chain = ChainWriter.begin(self._clock.now()) if is_chained else None
        self._anchored: int | None = None
        self._is_shipped = is_shipped
        self._life: FileLock | None = None
        #: How many rows could not be written, and of how many the head of the chain tells.
        self.lost = self._told_lost = 0
        self._counting = threading.Lock()

    @property
    def writer(self) -> str | None:
        """The name of the chain, if there is one."""
        return None if self._chain is None else self._chain.writer

    def begin(self) -> None:
        """Leave a sign that there is a writer, for the case that nothing is ever written."""
        if self._chain is not None and self._anchored != self._chain.commits:
            make_directory(self.directory, follows=True)
            self._show_life(self._chain.writer)
            self._anchor(is_open=True)

    def _show_life(self, writer: str) -> None:
        """Before there is a head, or it would be taken for that of a dead one."""
        if not self._is_shipped or self._life is not None:
            return
        lock = lock_of_writer(self.directory, self.kind, writer)
        try:
            self._life = FileLock.take(lock)
        except OSError as error:
            log.warning("cannot lock the chain of %s: %s", self.kind, error)
            return
        _living.add(lock)

    def gather(self) -> None:
        """Nothing is waited for: all who come while one write is on its way share the next."""

    def urge(self) -> None:
        """The same."""

    def append(self, rows: Iterable[Any], *, is_synced: bool = True) -> None:
        """Keep these rows, in order, in one segment: on the disk, or, not synced, with the kernel."""
        lines = list(map(self._encode, rows))
        if not lines:
            return
        self.roll()
        if self._open is None:
            make_directory(self.directory, follows=True)
            self.begin()
            self._open = _create(self.directory, self.kind, self._clock, self._chain)
        self._add(self._open, lines, is_synced=is_synced)
        if is_synced:
            self._tell_lost()

    def append_if_ready(self, rows: Iterable[Any]) -> bool:
        """Give these rows to the kernel, if there is a segment that takes more of them; else False."""
        segment = self._open
        if segment is None or self._is_done(segment):
            return False
        self._add(segment, list(map(self._encode, rows)), is_synced=False)
        return True

    def _add(self, segment: _OpenSegment, lines: list[bytes], *, is_synced: bool) -> None:
        data = b"".join(lines)
        if self._chain is not None:
            data += self._chain.link(data, len(lines))
        else:
            data += seal_rows(data)
        try:
            segment.write(data, len(lines))
            if is_synced:
                segment.sync()
        except _Unusable as error:
            # These the caller hears of.
            self._leave(segment, max(0, error.rows - len(lines)))
            raise error.cause from None
        if self._chain is not None:
            self._chain.keep()

    def sync(self) -> None:
        """Fsync. If that fails, what is on the disk is unknown, and the rows count as lost. What could not be
        told of lost ones is told now.
        """
        if self._open is not None:
            try:
                self._open.sync()
            except _Unusable as error:
                self._leave(self._open, error.rows)
                raise error.cause from None
        self._tell_lost()

    def _leave(self, segment: _OpenSegment, lost: int) -> None:
        """Give up a segment that nothing can be written to, and with it so many rows of earlier calls."""
        self._open = None
        segment.abandon()
        if lost:
            self.lose(lost)

    def lose(self, rows: int) -> None:
        """Rows could not be written: the head of the chain tells it as soon as it can be written."""
        self.count_lost(rows)
        self._tell_lost()

    def count_lost(self, rows: int) -> None:
        """The same, from any thread: whoever calls it has `sync` called, which tells it."""
        with self._counting:
            self.lost += rows

    def _tell_lost(self) -> None:
        if self._told_lost == self.lost:
            return
        try:
            self._anchor(is_open=True)
        except OSError as error:
            log.debug("cannot anchor the chain of %s: %s", self.kind, error)

    def roll(self) -> None:
        """Close the open segment if it is full or old."""
        if self._open is not None and self._is_done(self._open):
            self.close()

    def _is_done(self, segment: _OpenSegment) -> bool:
        return segment.size >= self._max_bytes or self._monotonic() - segment.begun >= self.max_age

    def close(self, *, ends: bool = False) -> Path | None:
        """Close the open segment, and tell its name. Rows may follow, even if the writer says it `ends`."""
        try:
            return self._close(ends=ends)
        finally:
            if ends and self._life is not None:
                life, self._life = self._life, None
                life.release()
                _living.discard(lock_of_writer(self.directory, self.kind, self.writer or ""))

    def _close(self, *, ends: bool) -> Path | None:
        self.sync()
        segment, self._open = self._open, None
        if segment is not None or ends:
            try:
                self._anchor(is_open=not ends)
            except OSError as error:  # the rows are safe, and read; whoever adopts them anchors them
                log.warning("cannot anchor the chain of %s: %s", self.kind, error)
                if segment is not None:
                    segment.abandon()
                return None
        return segment.close() if segment is not None else None

    def _anchor(self, *, is_open: bool) -> None:
        if self._chain is not None:
            now, lost = self._clock.now(), self.lost
            self._chain.anchor(self.directory, self.kind, at=now, is_open=is_open, lost=lost)
            self._told_lost = lost
            self._anchored = self._chain.commits if is_open else None


class _Unusable(Exception):
    """Nothing more can be written to this segment, and so many of its rows are not known to be kept."""

    def __init__(self, cause: OSError, rows: int) -> None:
        super().__init__(cause, rows)
        self.cause = cause
        self.rows = rows


@dataclass(slots=True)
class _OpenSegment:
    path: Path
    lock: FileLock
    begun: float
    size: int = 0
    rows: int = 0
    #: How many rows are with the kernel and perhaps not on the disk.
    unsynced: int = 0

    def write(self, data: bytes, rows: int) -> None:
        descriptor = self.lock.descriptor
        try:
            write_all(descriptor, data)
        except OSError as error:
            self._name_in(error)
            try:
                os.ftruncate(descriptor, self.size)
                os.lseek(descriptor, self.size, os.SEEK_SET)
            except OSError:
                raise _Unusable(error, self.unsynced + rows) from None
            raise
        self.size += len(data)
        self.rows += rows
        self.unsynced += rows

    def sync(self) -> None:
        try:
            if self.unsynced:
                os.fsync(self.lock.descriptor)
            is_there = self.lock.is_at(self.path)
        except OSError as error:
            self._name_in(error)
            raise _Unusable(error, self.unsynced) from None
        if not is_there:
            raise _Unusable(FileNotFoundError(errno.ENOENT, _GONE, str(self.path)), self.rows)
        self.unsynced = 0

    def _name_in(self, error: OSError) -> None:
        """By a descriptor the system does not say which file it was."""
        if error.errno is not None:  # else its text is all that there is to tell
            error.filename = str(self.path)

    def close(self) -> Path | None:
        """Give the segment its final name. The lock goes last: nobody must adopt what is being renamed."""
        try:
            return _finish(self.path, self.size)
        finally:
            self.lock.release()

    def abandon(self) -> None:
        """Leave it to be adopted."""
        with suppress(OSError):
            self.lock.release()


# The locks of writers that live in this process.
_living: set[Path] = set()


def lock_of_writer(directory: Path, kind: str, writer: str) -> Path:
    """Locked while that writer lives, if its rows are shipped."""
    return directory / f".{kind}-{writer}.lock"


def lives_elsewhere(lock: Path) -> bool:
    """Whether the writer with this lock lives in another process."""
    if lock in _living:
        return False
    with hold_alone(lock, create=False) as held:
        return held is None and lock.exists()


def writer_name() -> str:
    """A unique name for a writer: host, process id and a random part."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


# Made once: `json.dumps` with separators of its own makes an encoder for each row.
_to_json = json.JSONEncoder(separators=(",", ":")).encode


def encode_row(row: Mapping[str, Any]) -> bytes:
    """A row as a line of JSON."""
    # In ASCII: whatever text an application puts into an id can be written, a lone surrogate too.
    return _to_json(row).encode("ascii") + b"\n"


def _create(directory: Path, kind: str, clock: Clock, chain: ChainWriter | None) -> _OpenSegment:
    while True:
        # Names sort by time; the rest makes them unique among the machines that may share the directory.
        rest = uuid.uuid4().hex if chain is None else chain.segment_name
        name = f"{kind}-{int(clock.now() * 1000):013d}-{rest}{_SUFFIX}"
        path = directory / f".{name}{_OPEN}"
        lock = FileLock.take(path)
        if lock is not None:
            sync_directory(directory)
            return _OpenSegment(path, lock, begun=clock.monotonic())


def _finish(path: Path, size: int) -> Path | None:
    if size == 0:
        path.unlink(missing_ok=True)
        return None
    final = _final(path)
    path.rename(final)
    sync_directory(path.parent)
    return final


def _final(path: Path) -> Path:
    """What an open segment is called when it is closed."""
    return path.with_name(path.name.removeprefix(".").removesuffix(_OPEN))


def adopt_segments(directory: Path, kind: str) -> list[Path]:
    """Close the open segments whose writers are gone, and tell the names of those that hold rows."""
    adopted = []
    for path in _segments_in(directory, f".{kind}-*{_SUFFIX}{_OPEN}"):
        try:
            final = _adopt(path, kind)
        except OSError as error:  # it stays as it is, and is read like this
            log.warning("cannot adopt %s: %s", path, error)
            continue
        if final is not None:
            adopted.append(final)
    return adopted


def _adopt(path: Path, kind: str) -> Path | None:
    with hold_alone(path, create=False) as lock:
        if lock is None:  # its writer lives, or somebody else was quicker
            return None
        if has_links(path.name):
            size = _cut_torn_commit(path, kind, lock.descriptor)
        else:
            size = _cut_torn_line(lock.descriptor)
        final = _final(path)
        if not os.path.lexists(final):
            return _finish(path, size)
        # Where it is no copy of that one, either of them is damaged.
        path.unlink() if read_file(final).startswith(path.read_bytes()) else set_aside(path)
        return None


def _cut_torn_line(descriptor: int) -> int:
    """Truncate the file after its last line feed, and tell its size."""
    end = size = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - _CHUNK)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if found >= 0:
            end = begin + found + 1
            break
        end = begin
    if end < size:
        os.ftruncate(descriptor, end)
    os.fsync(descriptor)
    return end


def _cut_torn_commit(path: Path, kind: str, descriptor: int) -> int:
    """Truncate the file after its last link, anchor what is left, and tell its size."""
    data = path.read_bytes()
    end = end_of_commits(data)
    if end < len(data):
        os.ftruncate(descriptor, end)
    os.fsync(descriptor)
    anchor_adopted(path.parent, kind, _final(path).name, data[:end])
    return end


@dataclass(frozen=True, slots=True)
class SegmentRead:
    """The rows of a segment, the lines that are none, and its bytes."""

    rows: list[dict[str, Any]]
    bad_lines: list[bytes]
    data: bytes

    @property
    def bad(self) -> int:
        return len(self.bad_lines)


def _segments_in(directory: Path, pattern: str) -> list[Path]:
    return [path for path in files_in(directory, pattern) if os.access(path, os.R_OK)]


def unreadable_segments(directory: Path, kind: str) -> list[Path]:
    """What has the name of a segment, and is no file, or one that may not be read."""
    names = [f"{kind}-*{_SUFFIX}", f".{kind}-*{_SUFFIX}{_OPEN}"]
    named = [path for pattern in names for path in entries_in(directory, pattern)]
    readable = {path for pattern in names for path in _segments_in(directory, pattern)}
    return sorted(path for path in named if path not in readable and os.path.lexists(path))


def closed_segments(directory: Path, kind: str) -> list[Path]:
    """The closed ones, the oldest first. Looked at twice: a directory may change while it is listed."""
    found: list[Path] | None = None
    while found != (again := _segments_in(directory, f"{kind}-*{_SUFFIX}")):
        found = again
    return again


def open_segments(directory: Path, kind: str) -> list[str]:
    """Those that are being written now, by the names that they will have."""
    return [_final(path).name for path in _segments_in(directory, f".{kind}-*{_SUFFIX}{_OPEN}")]


def read_segment(path: Path) -> SegmentRead:
    """Read a segment; a line that is no JSON object is counted, not raised."""
    return parse_lines(path.read_bytes())


def read_open_segments(directory: Path, kind: str) -> dict[str, SegmentRead]:
    """What the segments hold that are being written now, by the names that they will have. Ask only then for
    the closed ones: whichever has been closed meanwhile is among them, and counts instead.
    """
    found = {}
    for path in _segments_in(directory, f".{kind}-*{_SUFFIX}{_OPEN}"):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # it has just been closed
            continue
        # What follows the last line feed, or the last link, is being written this moment.
        end = end_of_commits(data) if has_links(path.name) else data.rfind(b"\n") + 1
        found[_final(path).name] = parse_lines(data[:end])
    return found


def parse_lines(data: bytes) -> SegmentRead:
    """The rows of a segment that has been read."""
    whole, edited = open_rows(data)
    rows, bad = [], [line for line in edited.splitlines() if line.strip()]
    for line in whole.splitlines():
        if not line.strip() or is_link(line):
            continue
        try:
            row = parse_json(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            bad.append(line)
    return SegmentRead(rows, bad, data)

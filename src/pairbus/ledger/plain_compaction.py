"""Compaction of receipts by Arrow, a few hundred thousand rows at a time in memory.

1. New rows become new files; those that are there stay as they are. Only when a day of a store, or the table
   of a directory, has many small ones they are joined.
2. The table of a directory has one row for each message. One that was handled again came to its queue at the
   same time, so that only files are looked at which have rows of that time, and only those are written anew
   where such a row is. In a store nobody looks: whoever reads receipts counts each operation once.
3. An engine without Spark does it when there is enough to be worth it. Until then segments and objects are
   read as they are.
4. Segments whose rows are all as they should be go through Arrow, all at once; others row by row.
5. Most of the work is to read segments, and can be done before the compaction, as soon as they are closed.
   What comes of it is kept in memory, and nobody sees it.
"""

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pairbus.plumbing.json_text import LAST_MOMENT
from pairbus.stores.parquet_files import (
    can_read,
    encode_lines,
    encode_table,
    find_repeated,
    has_parquet,
    join_tables,
    may_share_rows,
    part_rows,
)
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store

from .chain import without_links
from .columns import cells_of, columns_of
from .generation import Compaction, TableRead, compact
from .receipts import KIND, NEEDED, OUTCOMES, Receipt, merge_receipts
from .seal import seal_of
from .segment import closed_segments, parse_lines
from .store_compaction import WrittenDays, compact_store
from .store_files import StoreFiles, begin_anew, day_at, day_of, holds_rows, read_side_by_side

#: So many segments or objects are worth it.
WORTHWHILE = 50
# Rows that are in memory at once, and files of a day, or of a table, that are joined.
_MOST_ROWS = 200_000
_MANY_FILES = 16
_SMALL = 16 << 20
# Bytes of segments that are read at once, and of files that are ready: rows of some hundred segments.
_BYTES = 64 << 20
_MOST_READY = 64 << 20
_AT_A_TIME = 256
_COLUMNS = {name: None if one.is_moment else one.plain for name, one in columns_of(Receipt).items()}
_OP = "op"
_PLACES = {name: index for index, name in enumerate(_COLUMNS)}


def compact_plainly(place: RecordPlace) -> Compaction:
    """Put receipts into tables, if many are not in one yet."""
    if not has_parquet():
        return Compaction()
    if not isinstance(place, StoreUri):
        is_worth_it = len(closed_segments(place, KIND)) >= WORTHWHILE
        return compact_directory(place) if is_worth_it else Compaction()
    store = open_store(place)
    if sum(map(holds_rows, store.list(KIND))) < WORTHWHILE:
        return Compaction()
    return begin_anew(store, lambda: compact_store(store, KIND, _write_days))


class ReadyRows:
    """Rule 5: closed segments as files of a table that is to come."""

    def __init__(self) -> None:
        self._files: dict[_Stamp, bytes | None] = {}
        self._size = 0

    def add(self, directory: Path) -> None:
        """Have one more segment ready, if there is one, and room for it."""
        if self._size >= _MOST_READY:
            return
        for path in closed_segments(directory, KIND):
            with suppress(FileNotFoundError):  # a compaction of others has just taken it over
                stamp = _stamp(path)
                if stamp not in self._files:
                    file = self._files[stamp] = encode_rows([_read(path)])
                    self._size += len(file or b"")
                    return

    def take(self, segment: Path) -> bytes | None:
        """The file for a segment; None if it is not ready, or has to be read row by row."""
        return self._files.pop(_stamp(segment), None)


_Stamp = tuple[Path, int, int, int]


def _stamp(path: Path) -> _Stamp:
    """What is another if a file is."""
    told = path.stat()
    return path, told.st_ino, told.st_size, told.st_mtime_ns


def compact_directory(directory: Path, ready: ReadyRows | None = None) -> Compaction:
    """Put all receipts of a directory into its table."""
    write = partial(_write_table, ready=ready or ReadyRows())
    return compact(directory, KIND, write, probe=can_read)


class _Batch:
    """Rows that were read, and how many lines were bad."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.bad = 0

    def add(self, data: bytes) -> None:
        read = parse_lines(data)
        self.bad += read.bad
        for row in read.rows:
            cells = cells_of(Receipt, row)
            if cells[_PLACES["outcome"]] in OUTCOMES and all(
                cells[_PLACES[name]] is not None for name in NEEDED
            ):
                self.rows.append(cells)
            else:
                self.bad += 1

    def take(self, most: int | None = None) -> list[tuple[Any, ...]]:
        taken, self.rows = self.rows[:most], [] if most is None else self.rows[most:]
        return taken


def _write_days(files: StoreFiles, number: int) -> WrittenDays:
    batch, written, replaced = _Batch(), dict[str, str](), list[str]()
    store, known = files.store, files.table.files

    def put(day: str, data: bytes) -> None:
        name = f"{KIND}-{day}-{number:06d}-{secrets.token_hex(6)}.parquet"
        store.put(name, data)
        written[name] = seal_of(data)

    def put_all() -> None:
        by_day: dict[str, list[tuple[Any, ...]]] = {}
        for row in batch.take():
            by_day.setdefault(day_at(row[_PLACES["moved"]]), []).append(row)
        for day, rows in by_day.items():
            data = encode_table(_COLUMNS, rows)
            there = [name for name in known if day_of(name) == day]
            if len(there) >= _MANY_FILES and day not in replaced:
                replaced.append(day)
                data = join_tables([*read_side_by_side(store, there).values(), data])
            put(day, data)

    for begin in range(0, len(files.fresh), _AT_A_TIME):
        for data in read_side_by_side(store, files.fresh[begin : begin + _AT_A_TIME]).values():
            batch.add(data)
        if len(batch.rows) >= _MOST_ROWS:
            put_all()
    put_all()
    return WrittenDays(written, replaced, batch.bad)


def _write_table(segments: list[Path], table: TableRead, to: Path, *, ready: ReadyRows) -> int:
    to.mkdir()
    fresh, bad = _write_fresh(segments, to, ready)
    suspects = [path for path in table.files if may_share_rows(path, fresh, "enqueued")]
    parted = _merge_repeated(fresh, suspects, to)
    kept = [path for path in table.files if path not in parted]
    small = [path for path in kept if path.stat().st_size < _SMALL]
    joined = small if len(small) >= _MANY_FILES else []
    for path in kept:
        if path not in joined:
            _link(path, to / path.name)
    for some in _pieces(joined, _SMALL):
        (to / _part()).write_bytes(join_tables([path.read_bytes() for path in some]))
    return bad


def _write_fresh(segments: list[Path], to: Path, ready: ReadyRows) -> tuple[list[Path], int]:
    """The files of new rows, and how many lines are none."""
    batch, files = _Batch(), list[Path]()

    def write(data: bytes) -> None:
        files.append(to / _part())
        files[-1].write_bytes(data)

    rest = []
    for path in segments:
        if (file := ready.take(path)) is not None:
            write(file)
        else:
            rest.append(path)
    for some in _pieces(rest, _BYTES):
        if (whole := encode_rows(map(_read, some))) is not None:
            write(whole)
            continue
        for path in some:
            batch.add(_read(path))
        while rows := batch.take(_MOST_ROWS):
            write(encode_table(_COLUMNS, rows))
    return files, batch.bad


def _merge_repeated(fresh: list[Path], suspects: list[Path], to: Path) -> list[Path]:
    """Rule 2: rows of one message become one. The files of the table that are written anew by that."""
    repeated = find_repeated([*fresh, *suspects], _OP)
    if not repeated:
        return []
    taken = {path: part_rows(path, to / _part(), _OP, repeated) for path in (*fresh, *suspects)}
    rows = [row for some in taken.values() for row in some]
    for path in fresh:
        if taken[path]:
            path.unlink()
    cells = [tuple(row.get(name) for name in _COLUMNS) for row in merge_receipts(rows)]
    (to / _part()).write_bytes(encode_table(_COLUMNS, cells))
    return [path for path in suspects if taken[path]]


def encode_rows(blocks: Iterable[bytes]) -> bytes | None:
    """Rule 4: blocks of lines as a file, if each line is a receipt."""
    choices = {"outcome": OUTCOMES}
    return encode_lines(_COLUMNS, blocks, needed=NEEDED, choices=choices, last_moment=LAST_MOMENT)


def _read(path: Path) -> bytes:
    """The lines of a segment that are rows."""
    data = without_links(path.read_bytes())
    return data if data.endswith(b"\n") else data + b"\n"


def _pieces(files: Sequence[Path], most: int) -> Iterator[list[Path]]:
    """Neighbours, so many that their rows fit into memory."""
    some, size = list[Path](), 0
    for path in files:
        some.append(path)
        size += path.stat().st_size
        if size >= most:
            yield some
            some, size = [], 0
    if some:
        yield some


def _link(path: Path, to: Path) -> None:
    try:
        os.link(path, to)
    except OSError:  # not every file system has links
        shutil.copyfile(path, to)


def _part() -> str:
    return f"part-{secrets.token_hex(8)}.parquet"

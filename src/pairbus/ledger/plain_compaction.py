"""Compaction of receipts without Spark, a few hundred thousand rows at a time in memory.

1. New rows become new files; those that are there stay as they are. Only when a day of a store, or the table
   of a directory, has many small ones they are joined.
2. A row that stands in several files is not looked for: whoever reads receipts counts each operation once.
3. It is done when there is enough to be worth it. Until then segments and objects are read as they are.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pairbus.stores.parquet_files import encode_table, has_parquet, join_tables
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store

from .columns import cells_of, columns_of
from .generation import Compaction, TableRead, compact
from .receipts import KIND, NEEDED, OUTCOMES, Receipt
from .seal import seal_of
from .segment import closed_segments, parse_lines
from .store_compaction import WrittenDays, compact_store
from .store_files import StoreFiles, begin_anew, day_of, read_side_by_side

#: So many segments or objects are worth it.
WORTHWHILE = 50
# Rows that are in memory at once, and files of a day, or of a table, that are joined.
_MOST_ROWS = 200_000
_MANY_FILES = 16
_SMALL = 16 << 20
_AT_A_TIME = 256
_COLUMNS = {name: None if one.is_moment else one.plain for name, one in columns_of(Receipt).items()}
_PLACES = {name: index for index, name in enumerate(_COLUMNS)}


def compact_plainly(place: RecordPlace) -> Compaction:
    """Put receipts into tables, if there are many that are in none."""
    if not has_parquet():
        return Compaction()
    if not isinstance(place, StoreUri):
        is_worth_it = len(closed_segments(place, KIND)) >= WORTHWHILE
        return compact(place, KIND, _write_table) if is_worth_it else Compaction()
    store = open_store(place)
    if sum(name.endswith(".jsonl") for name in store.list(KIND)) < WORTHWHILE:
        return Compaction()
    return begin_anew(store, lambda: compact_store(store, KIND, _write_days))


class _Batch:
    """Rows that were read, and how many were none."""

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

    def take(self) -> list[tuple[Any, ...]]:
        taken, self.rows = self.rows, []
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
            by_day.setdefault(_day(row[_PLACES["moved"]]), []).append(row)
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


def _write_table(segments: list[Path], table: TableRead, to: Path) -> int:
    to.mkdir()
    small = [path for path in table.files if path.stat().st_size < _SMALL]
    joined = small if len(small) >= _MANY_FILES else []
    for path in table.files:
        if path not in joined:
            _link(path, to / path.name)
    if joined:
        (to / _part()).write_bytes(join_tables([path.read_bytes() for path in joined]))
    batch = _Batch()
    for rows in _batches(segments, batch):
        (to / _part()).write_bytes(encode_table(_COLUMNS, rows))
    return batch.bad


def _batches(segments: Sequence[Path], batch: _Batch) -> Iterator[list[tuple[Any, ...]]]:
    for path in segments:
        batch.add(path.read_bytes())
        if len(batch.rows) >= _MOST_ROWS:
            yield batch.take()
    if batch.rows:
        yield batch.take()


def _link(path: Path, to: Path) -> None:
    try:
        os.link(path, to)
    except OSError:  # not every file system has links
        shutil.copyfile(path, to)


def _part() -> str:
    return f"part-{secrets.token_hex(8)}.parquet"


def _day(moved: float) -> str:
    return datetime.fromtimestamp(moved, UTC).strftime("%Y-%m-%d")

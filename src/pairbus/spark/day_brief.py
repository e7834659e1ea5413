"""A day of the ledger in brief: sums by the hour, and the marks that a bill asks for. By Arrow, no Spark.

1. A bill asks for no single record. So rows are summed up while they are taken in, and a report reads the
   sums: a hundredth of the rows, or less.
2. Sums are by the hour, but for what a pump moves: only the minute tells of which outage that is.
3. Of each writer the last mark counts, and its end. A row that is dated before there was a ledger is bad.
4. A row that is dated later than a clock may be ahead is a wrong clock's for whoever reads it before that
   time. Its minute is kept (`AHEAD` tells how many rows there are of it), and its marks one by one, so that
   each reader can judge by its own time.
5. Of rows that their writer has numbered it is kept which numbers there are (`ROWS`), so that a report can
   tell what is missing, and whether a row is there twice.
6. Briefs of parts of a day add up to that of the day.
7. A brief is a table and behind it the seal of that: a bit that has changed anywhere makes it none. It tells
   the seals of the rows that it is of: those that were edited or removed since are refused.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from pairbus.cost.outages import MOVING, OutageBook, SlotUse
from pairbus.errors import PairbusError
from pairbus.ledger.columns import columns_of
from pairbus.ledger.operations import EARLIEST, KIND, OutageMark, WriterMark, is_dated, latest_at
from pairbus.ledger.row_runs import RowRun, join_runs
from pairbus.ledger.seal import seal_of, seal_of_file
from pairbus.plumbing.files import files_in, read_file
from pairbus.plumbing.json_text import parse_json
from pairbus.stages import Stage
from pairbus.stores.parquet_files import can_read, find_repeated

from .segment_rows import SCHEMA

#: Marks that tell how many rows of a minute are dated ahead, and which numbers a writer's rows have. Others
#: tell of an outage or a writer, and of how many rows are bad.
AHEAD, ROWS = "ahead", "rows"
_HOUR, _DAY = 3600, 86_400
_LARGEST = 2**63 - 1
_PLACE = ("pair", "role", "namespace", "entity", "stage", "kind", "outage")
#: What is summed up.
NUMBERS = ("count", "units", "unknown", "bytes")
#: What sums and marks are made of. `slot` is the beginning of an hour, or of a minute.
SUMS = pa.schema(
    [*((name, pa.string()) for name in _PLACE), *((name, pa.int64()) for name in ("slot", *NUMBERS))]
)
MARKS = pa.schema(
    [
        *(SCHEMA.field(name) for name in ("row", *{**columns_of(OutageMark), **columns_of(WriterMark)})),
        *((name, pa.int64()) for name in ("number", "first", "last")),
        ("ends", pa.float64()),
    ]
)
#: What a report is made of: sums by the hour, each with the name of its outage.
USAGE = pa.schema(
    [
        *((name, pa.string()) for name in _PLACE),
        *((name, pa.int64()) for name in ("hour", *NUMBERS)),
    ]
)
#: The columns of rows that a brief is made of.
NEEDED = [name for name in SCHEMA.names if name not in ("raw", "day")]
_ROWS_AT_ONCE = 100_000
# Briefs that are held before they are added up.
_MOST_BRIEFS = 32
_DIRECTORY = re.compile(rf"{KIND}-(\d{{4}}-\d\d-\d\d)-(\d{{6}})\.parquet")
# Spark, Arrow and others pass over such names, and so does whoever looks for *.parquet.
_SUMS_FILE, _MARKS_FILE = "_sums", "_told"
_SEAL = 64
_ROWS_OF = b"rows"
# How a writer writes the number of a row; and what is more than any of them.
_DIGITS = 9
_APART = 2 * 10**_DIGITS


class Brief(NamedTuple):
    """Sums of operations, and marks."""

    sums: pa.Table
    marks: pa.Table


class JudgedMarks(NamedTuple):
    """What marks tell, for whoever reads them at a time; `bad` is how many rows are."""

    outages: list[OutageMark]
    writers: list[WriterMark]
    runs: list[RowRun]
    bad: int


def brief_of(rows: pa.Table, *, now: float) -> Brief:
    """The brief of rows: those of a day, of a part of one, or of several."""
    moment = pc.coalesce(pc.cast(rows["minute"], pa.float64()), rows["at"], pa.scalar(0.0))
    is_sound = pc.and_(pc.not_equal(rows["row"], "bad"), pc.greater_equal(moment, float(EARLIEST)))
    is_operation = pc.and_(is_sound, pc.equal(rows["row"], "operation"))
    is_mark = pc.and_not(is_sound, is_operation)
    is_ahead = pc.and_(is_operation, pc.greater(moment, float(latest_at(now))))
    found = [
        _as_marks(rows.filter(is_mark)),
        _as_marks(pa.table({"at": moment.filter(is_ahead)}), row=AHEAD),
        # They are of the month that they are of; no more is asked of them.
        _as_marks(pa.table({"at": begin_of(moment.filter(pc.invert(is_sound)), _DAY)}), row="bad"),
        _number_rows(rows, moment),
    ]
    sums = _slots(rows.filter(is_operation), now=now)
    return Brief(sums, _reduce_marks(pa.concat_tables(found), now=now))


def join_briefs(briefs: Sequence[Brief], *, now: float) -> Brief:
    """Rule 6."""
    sums, marks = zip(*briefs, strict=True)
    return Brief(add_up(pa.concat_tables(sums), SUMS), _reduce_marks(pa.concat_tables(marks), now=now))


def attribute(sums: pa.Table, book: OutageBook) -> pa.Table:
    """Sums by the hour, each with the name of its outage instead of what a client called it: `USAGE`."""
    known = pa.array(book.names, pa.string())
    named = pc.take(pa.array(book.names.values(), pa.string()), pc.index_in(sums["outage"], known))
    is_moved = pc.and_(_is_moving(sums), pc.is_null(sums["outage"]))
    moved = sums.filter(is_moved)
    by_time = map(book.name_at, moved["pair"].to_pylist(), moved["slot"].to_pylist())
    # Arrow takes a mask in one piece only.
    named = pc.replace_with_mask(named, is_moved.combine_chunks(), pa.array(by_time, pa.string()))
    columns = {**{name: sums[name] for name in USAGE.names if name in sums.column_names}, "outage": named}
    columns["hour"] = begin_of(sums["slot"], _HOUR)
    return add_up(pa.table(columns), USAGE)


def uses_of(sums: pa.Table) -> list[SlotUse]:
    """Sums for the rules of the bill in memory."""
    columns = {name: sums[name].to_pylist() for name in SUMS.names}
    columns["stage"] = [Stage[stage.upper()] for stage in columns["stage"]]
    return list(map(SlotUse, *columns.values()))


def judge_marks(marks: pa.Table, *, now: float, since: float = 0.0, before: float = inf) -> JudgedMarks:
    """What marks tell; bad rows are those of a time."""
    judged = JudgedMarks([], [], [], 0)
    bad = 0
    for mark in marks.to_pylist():
        kind, at = mark["row"], mark["at"]
        if kind == ROWS:
            judged.runs.append(_as_run(mark))
        elif kind == "bad" or not is_dated(at, now=now):
            bad += mark["number"] if since <= at < before else 0
        elif kind == "outage":
            judged.outages.append(OutageMark(**{name: mark[name] for name in OutageMark.__slots__}))
        elif kind == "writer":
            judged.writers.append(WriterMark(**{name: mark[name] for name in WriterMark.__slots__}))
    return judged._replace(bad=bad)


def write_brief(brief: Brief, directory: Path, *, part: int, rows: Mapping[str, Path]) -> None:
    """Put a brief beside the rows that it is of; which files will have these names."""
    seals = {name: seal_of_file(file) for name, file in rows.items()}
    marks = brief.marks.replace_schema_metadata({_ROWS_OF: json.dumps(seals)})
    for name, table in ((_SUMS_FILE, brief.sums), (_MARKS_FILE, marks)):
        draft = directory / f".part-{part:05d}-{secrets.token_hex(4)}"
        parquet.write_table(table, draft)
        with draft.open("ab") as file:
            file.write(seal_of_file(draft).encode())
        draft.replace(directory / f"{name}-{part:05d}")


def newest_days(records: Path) -> dict[str, tuple[Path, int]]:
    """The newest generation of each day, and its number."""
    newest: dict[str, tuple[Path, int]] = {}
    for path in sorted(records.glob(f"{KIND}-*.parquet")):
        found = _DIRECTORY.fullmatch(path.name)
        if found is not None:
            newest[found[1]] = path, int(found[2])
    return newest


def has_brief(directory: Path) -> bool:
    """Whether the rows of a day have a whole one: those of version 0.1.0 have none."""
    sums, marks = (files_in(directory, f"{name}-*") for name in (_SUMS_FILE, _MARKS_FILE))
    parts, told = ([file.name.rpartition("-")[2] for file in some] for some in (sums, marks))
    rows = {file.stem.rpartition("-")[2] for file in files_in(directory, "part-?????.parquet")}
    if not parts or parts != told or not rows <= set(parts):
        return False
    return all(map(_is_whole, map(read_file, (*sums, *marks))))


def _is_whole(data: bytes) -> bool:
    return seal_of(data[:-_SEAL]).encode() == data[-_SEAL:]


def refuse_damaged(directory: Path) -> None:
    """PairbusError that names a file of a day's rows that cannot be read, if there is one."""
    for file in files_in(directory, "*.parquet") if directory.is_dir() else [directory]:
        if not can_read(file):
            raise _refuse(file, "cannot be read", remove="it")


def refuse_edited(directory: Path) -> None:
    """PairbusError that names a file of a day's rows that is gone, or not as it was written, if there is one:
    what its brief tells of them must not go with the next one unsaid.
    """
    for brief in filter(_is_whole, map(read_file, files_in(directory, f"{_MARKS_FILE}-*"))):
        told = parquet.read_schema(pa.BufferReader(brief[:-_SEAL])).metadata or {}
        for name, own in parse_json(told.get(_ROWS_OF, b"{}")).items():
            file = directory / name
            if not file.is_file():
                raise _refuse(file, "is gone", remove=str(directory))
            if seal_of_file(file) != own:
                raise _refuse(file, "was edited", remove=str(directory))


def _refuse(file: Path, reason: str, *, remove: str) -> PairbusError:
    told = f"put a copy of it in its place, or remove {remove}, and the report tells what is missing"
    return PairbusError(f"{file} {reason}: {told}")


def read_sums(directory: Path) -> pa.Table:
    """The sums of a day that has a brief."""
    return _read(directory.glob(f"{_SUMS_FILE}-*"), SUMS)


def read_marks(directory: Path) -> pa.Table:
    """The marks of a day that has a brief."""
    return _read(directory.glob(f"{_MARKS_FILE}-*"), MARKS)


def read_rows(directory: Path, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of a day, some at a time."""
    for file in sorted(directory.glob("*.parquet")):
        for batch in parquet.ParquetFile(file).iter_batches(_ROWS_AT_ONCE, columns=list(columns)):
            yield pa.Table.from_batches([batch])


def has_copies(directory: Path) -> bool:
    """Whether two rows of a day may have the same id. If all are numbered, their numbers tell."""
    files = sorted(directory.glob("*.parquet"))
    rows = sum(parquet.read_metadata(file).num_rows for file in files)
    runs = join_runs(judge_marks(read_marks(directory), now=inf).runs)
    if sum(run.rows for run in runs) == rows:
        return bool(sum(run.last - run.first + 1 for run in runs) < rows)
    return bool(find_repeated(files, "id"))


def brief_directory(directory: Path, *, now: float) -> Brief:
    """The brief of the rows that lie there."""
    return join_briefs([brief_of(rows, now=now) for rows in read_rows(directory, NEEDED)], now=now)


def _read(files: Iterable[Path], schema: pa.Schema) -> pa.Table:
    found = [schema.empty_table()]
    for file in sorted(files):
        rows = parquet.ParquetFile(pa.BufferReader(file.read_bytes()[:-_SEAL])).read()
        found.append(rows.cast(schema))
    return pa.concat_tables(found)


def begin_of(moments: pa.ChunkedArray, step: int) -> pa.ChunkedArray:
    """When the step begins that each moment is in, of those after 1970."""
    whole = pc.divide(pc.cast(moments, pa.int64(), safe=False), step)
    return pc.cast(pc.multiply(whole, step), moments.type)


def _is_moving(sums: pa.Table) -> pa.ChunkedArray:
    return pc.and_(pc.equal(sums["role"], "pump"), pc.is_in(sums["stage"], pa.array(sorted(MOVING))))


def _slots(operations: pa.Table, *, now: float) -> pa.Table:
    """Rule 2, and of rule 4 the minute."""
    minute = operations["minute"]
    by_minute = pc.or_(_is_moving(operations), pc.greater(minute, int(latest_at(now))))
    columns = {name: operations[name] for name in (*_PLACE, "count", "unknown", "bytes")}
    columns["slot"] = pc.if_else(by_minute, minute, begin_of(minute, _HOUR))
    columns["units"] = pc.multiply(operations["count"], operations["size_class"])
    return add_up(pa.table(columns), SUMS)


def add_up(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """One row for each key: what is not a number of the schema."""
    keys = [name for name in schema.names if name not in NUMBERS]
    _refuse_overflow(rows)
    summed = rows.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in NUMBERS])
    return summed.rename_columns({f"{name}_sum": name for name in NUMBERS}).select(schema.names)


def _refuse_overflow(rows: pa.Table) -> None:
    """Arrow's sums wrap around without a word. Whole sums are only reckoned where they may be too large."""
    for name in NUMBERS:
        largest = pc.max(rows[name]).as_py() or 0
        if largest * rows.num_rows <= _LARGEST:
            continue
        if pc.sum(pc.cast(rows[name], pa.decimal128(38, 0))).as_py() > _LARGEST:
            raise PairbusError(
                f"the ledger says that {name} comes to more than {_LARGEST:,}, which cannot be: look in its "
                f"segments and in {KIND}-*.parquet for rows that nobody has written, and remove them"
            )


def _as_marks(rows: pa.Table, row: str | None = None) -> pa.Table:
    """Each row as a mark of its own, or as one of this sort."""
    there = {name: rows[name] for name in rows.column_names}
    if row is not None:
        there["row"] = pa.chunked_array([pa.repeat(row, rows.num_rows)])
    there.setdefault("number", pa.chunked_array([pa.repeat(1, rows.num_rows)]))
    empty = {field.name: pa.nulls(rows.num_rows, field.type) for field in MARKS}
    return pa.table({name: there.get(name, empty[name]) for name in MARKS.names}).cast(MARKS)


def _reduce_marks(marks: pa.Table, *, now: float) -> pa.Table:
    """Rule 3, and of rule 4 the marks."""
    is_run = pc.equal(marks["row"], ROWS)
    runs, marks = map(_as_run, marks.filter(is_run).to_pylist()), marks.filter(pc.invert(is_run))
    is_late = pc.greater(marks["at"], float(latest_at(now)))
    is_writer = pc.and_not(pc.equal(marks["row"], "writer"), is_late)
    is_counted = pc.is_in(marks["row"], pa.array([AHEAD, "bad"]))
    counted = (
        marks.filter(is_counted).group_by(["row", "at"], use_threads=False).aggregate([("number", "sum")])
    )
    counted = _as_marks(counted.rename_columns({"number_sum": "number"}))
    return pa.concat_tables(
        [
            marks.filter(pc.invert(pc.or_(is_writer, is_counted))),
            _last_marks(marks.filter(is_writer)),
            counted,
            pa.Table.from_pylist(list(map(_as_mark, join_runs(runs))), MARKS),
        ]
    )


def _as_run(mark: dict[str, Any]) -> RowRun:
    return RowRun(*(mark[name] for name in ("writer", "pair", "first", "last", "at", "ends", "number")))


def _as_mark(run: RowRun) -> dict[str, Any]:
    told = {"row": ROWS, "writer": run.writer, "pair": run.pair, "first": run.first, "last": run.last}
    return {**told, "at": run.begins, "ends": run.ends, "number": run.rows}


def _number_rows(rows: pa.Table, moment: pa.ChunkedArray) -> pa.Table:
    """Rule 5: a mark for each run of numbers, of rows whose ids are `WRITER:000000042`."""
    digits = pc.utf8_slice_codeunits(rows["id"], -_DIGITS)
    is_own = pc.equal(rows["id"], pc.binary_join_element_wise(rows["writer"], digits, ":"))
    is_numbered = pc.fill_null(pc.and_(is_own, pc.ascii_is_decimal(digits)), False)
    if not pc.any(is_numbered).as_py():
        return MARKS.empty_table()
    writers = pc.dictionary_encode(rows["writer"].filter(is_numbered).combine_chunks())
    number = pc.cast(digits.filter(is_numbered), pa.int64())
    # So far apart that no number of a writer follows one of another.
    place = pc.add(number, pc.multiply(pc.cast(writers.indices, pa.int64()), _APART))
    columns = {"place": place, "pair": rows["pair"].filter(is_numbered), "at": moment.filter(is_numbered)}
    ordered = pa.table(columns).sort_by("place")
    # One that is there twice begins another run.
    follows = pc.equal(pc.pairwise_diff(ordered["place"].combine_chunks()), 1)
    run = pc.cumulative_sum(pc.cast(pc.invert(pc.fill_null(follows, False)), pa.int64()))
    found = (
        ordered.append_column("run", run)
        .group_by("run", use_threads=False)
        .aggregate([("place", "min_max"), ("place", "count"), ("at", "min_max"), ("pair", "first")])
    )
    first, last = pc.struct_field(found["place_min_max"], [0]), pc.struct_field(found["place_min_max"], [1])
    of_writer = pc.divide(first, _APART)
    base = pc.multiply(of_writer, _APART)
    told = {
        "writer": pc.take(writers.dictionary, of_writer),
        "pair": found["pair_first"],
        "first": pc.subtract(first, base),
        "last": pc.subtract(last, base),
        "at": pc.struct_field(found["at_min_max"], [0]),
        "ends": pc.struct_field(found["at_min_max"], [1]),
        "number": found["place_count"],
    }
    return _as_marks(pa.table(told), row=ROWS)


def _last_marks(writers: pa.Table) -> pa.Table:
    ends = pc.equal(writers["phase"], "end")
    ordered = writers.append_column("is_end", ends).sort_by("at")
    names = [name for name in MARKS.names if name != "writer"]
    last = ordered.group_by(["writer", "is_end"], use_threads=False).aggregate(
        [(name, "last", pc.ScalarAggregateOptions(skip_nulls=False)) for name in names]
    )
    return last.rename_columns({f"{name}_last": name for name in names}).select(MARKS.names).cast(MARKS)


class DayDraft:
    """What one task writes of a day: rows, taken as they come, and their brief; whole or not at all."""

    def __init__(self, writer: parquet.ParquetWriter, *, now: float) -> None:
        self._writer = writer
        self._now = now
        self._briefs: list[Brief] = []

    @classmethod
    @contextmanager
    def open(cls, directory: Path, schema: pa.Schema, *, part: int, now: float) -> Iterator[DayDraft]:
        """One that is published when the block ends."""
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / f".part-{part:05d}-{secrets.token_hex(4)}"
        with parquet.ParquetWriter(file, schema) as writer:
            draft = cls(writer, now=now)
            yield draft
        final = directory / f"part-{part:05d}.parquet"
        write_brief(join_briefs(draft._briefs, now=now), directory, part=part, rows={final.name: file})
        file.replace(final)

    def add(self, rows: pa.Table) -> None:
        """Take rows, at least one."""
        self._writer.write_table(rows)
        self._briefs.append(brief_of(rows, now=self._now))
        if len(self._briefs) >= _MOST_BRIEFS:
            self._briefs = [join_briefs(self._briefs, now=self._now)]

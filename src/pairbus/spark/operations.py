"""The ledger as a table: segments of JSON lines are taken into Parquet, a directory for each day.

1. Closed segments never change. All that are there are read, each row is checked (`segment_rows`), and the
   days that they have rows of are written anew: what the day had, and what is new. A row that a day has
   already, by its id, is kept once. So a segment that comes late, comes again, or was half taken when a run
   died, does no harm. To see that no id is there twice takes a number for each row; only days where that is
   not certain are sorted by their ids.
2. A day is written under a hidden name. The rename to `operations-DAY-GENERATION.parquet` makes it valid;
   of a day the newest generation counts. Only then are segments and older generations removed.
3. A line that cannot be read stays in the table as a bad row, with its text, so that it is shown in every
   report and not only in the first one.
4. One run takes segments at a time; another one that comes meanwhile reports on what there is.
5. In an object store nothing is taken in: its objects are read each time, and each row counts once.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import Window
from pyspark.sql import functions as F

from pairbus.ledger.operations import KIND, is_dated
from pairbus.ledger.segment import adopt_segments, closed_segments
from pairbus.ledger.store_files import begin_anew
from pairbus.plumbing.files import hold_alone, publish_directory
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store

from .objects import ArrowBatches, object_names, tell_gone
from .schema import ddl_of, literal
from .segment_rows import COLUMNS, parse_segment, split_days

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TABLE_DDL = f"{ddl_of(COLUMNS.values())}, raw string"
_DIRECTORY = re.compile(rf"{KIND}-(\d{{4}}-\d\d-\d\d)-(\d{{6}})\.parquet")
# Some 300,000 rows.
_SMALL = 100 << 20
# What one task reads, and how much of it is held at a time: some fifty megabytes.
_BYTES_A_PART = 256 << 20
_ROWS_AT_ONCE = 100_000
_FRESH = f".{KIND}-fresh"
_LOCK = f".{KIND}.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIntake:
    """What was taken in: segments, so many of them left behind by dead writers, and the days written."""

    segments: int = 0
    adopted: int = 0
    days: tuple[str, ...] = ()


def is_small(records: RecordPlace) -> bool:
    """Whether what waits to be taken in is so little that Java's start takes longer."""
    if isinstance(records, StoreUri):
        return sum(open_store(records).list(KIND).values()) < _SMALL
    return sum(path.stat().st_size for path in closed_segments(records, KIND)) < _SMALL


def load_operations(spark: SparkSession, records: RecordPlace, *, now: float) -> DataFrame | None:
    """All rows of the table, each once; None if there is no table. What a clock has dated that was wrong by
    years is a bad row.
    """
    if isinstance(records, StoreUri):
        rows = _load_objects(spark, records)
    else:
        days = [path for path, _ in _generations(records).values()]
        rows = spark.read.schema(_TABLE_DDL).parquet(*map(literal, days)) if days else None
    if rows is None:
        return None
    return rows.withColumn("row", F.when(is_dated(_moment(), now=now), F.col("row")).otherwise("bad"))


def _load_objects(spark: SparkSession, place: StoreUri) -> DataFrame | None:
    """Rule 5."""
    store = open_store(place)

    def load() -> DataFrame | None:
        names = [name for name in store.list(KIND) if name.endswith(".jsonl")]
        if not names:
            return None

        def read(batches: ArrowBatches) -> ArrowBatches:
            there = open_store(place)
            for name in _strings(batches):
                yield from parse_segment(there.read(name), name).drop_columns(["day"]).to_batches()

        rows = object_names(spark, names).mapInArrow(read, _TABLE_DDL).dropDuplicates(["id"])
        return tell_gone(lambda: rows.localCheckpoint(eager=True))

    return begin_anew(store, load)


def _strings(batches: ArrowBatches) -> Iterator[Any]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def read_operations(spark: SparkSession, records: RecordPlace, *, now: float) -> DataFrame:
    """All rows of the table and of closed segments that no report has taken in yet, each once."""
    rows = spark.createDataFrame([], _TABLE_DDL)
    table = load_operations(spark, records, now=now)
    if table is not None:
        rows = rows.unionByName(table)
    segments = [] if isinstance(records, StoreUri) else closed_segments(records, KIND)
    if segments:
        rows = rows.unionByName(_read_segments(spark, segments))
    return rows.dropDuplicates(["id"])


def take_segments(spark: SparkSession, records: RecordPlace) -> SegmentIntake:
    """Take all closed segments into the table."""
    if isinstance(records, StoreUri) or not records.is_dir():
        return SegmentIntake()
    with hold_alone(records / _LOCK) as lock:
        if lock is None:
            return SegmentIntake()
        adopted = len(adopt_segments(records, KIND))
        segments = closed_segments(records, KIND)
        if not segments:
            return SegmentIntake(adopted=adopted)
        days = _write_days(spark, records, segments)
        for path in segments:
            path.unlink()
        return SegmentIntake(segments=len(segments), adopted=adopted, days=days)


def _write_days(spark: SparkSession, records: Path, segments: list[Path]) -> tuple[str, ...]:
    fresh = records / _FRESH
    if fresh.exists():  # of a run that did not come to its end
        shutil.rmtree(fresh)
    taken, merged = fresh / "taken", fresh / "merged"
    _write_segments(spark, segments, taken)
    days = sorted(path.name.removeprefix("day=") for path in taken.glob("day=*"))
    present = _generations(records)
    again = (set(days) & set(present)) | _days_with_copies(spark, taken)
    if again:
        parts = [present[day][0] for day in again if day in present]
        parts += [taken / f"day={day}" for day in again]
        _write_once(_with_day(spark.read.schema(_TABLE_DDL).parquet(*map(literal, parts))), merged)
    for day in days:
        before = present.get(day)
        number = before[1] + 1 if before is not None else 1
        whole = (merged if day in again else taken) / f"day={day}"
        publish_directory(whole, records / f"{KIND}-{day}-{number:06d}.parquet")
        if before is not None:
            shutil.rmtree(before[0])
    shutil.rmtree(fresh)
    return tuple(days)


def _write_segments(spark: SparkSession, segments: list[Path], to: Path) -> None:
    """Put the rows of segments into directories of their days. A task that is tried again writes the same
    files, each of which gets its name when it is whole.
    """
    parts = _cut(spark, segments)

    def write(batches: ArrowBatches) -> ArrowBatches:
        for part in _strings(batches):
            with ExitStack() as open_files:
                drafts: dict[str, tuple[Path, parquet.ParquetWriter]] = {}
                for rows in _gathered(parts[part]):
                    for day, of_day in split_days(rows):
                        if day not in drafts:
                            (to / f"day={day}").mkdir(parents=True, exist_ok=True)
                            draft = to / f"day={day}" / f".part-{part:05d}-{secrets.token_hex(4)}"
                            writer = parquet.ParquetWriter(draft, of_day.schema)
                            drafts[day] = draft, open_files.enter_context(writer)
                        drafts[day][1].write_table(of_day)
            for draft, _ in drafts.values():
                draft.replace(draft.with_name(f"part-{part:05d}.parquet"))
            yield pa.RecordBatch.from_pydict({"part": [part]})

    spark.range(0, len(parts), 1, len(parts)).mapInArrow(write, "part long").collect()
    for left in to.glob("day=*/.part-*"):  # of tasks that were tried again
        left.unlink()


def _gathered(segments: Sequence[Path]) -> Iterator[pa.Table]:
    """Rows of segments, many at a time: those of one may be few."""
    held: list[pa.Table] = []
    for path in segments:
        held.append(parse_segment(path.read_bytes(), path.name))
        if sum(rows.num_rows for rows in held) >= _ROWS_AT_ONCE:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def _cut(spark: SparkSession, segments: list[Path]) -> list[list[Path]]:
    """Parts of about a size, each of neighbours in time, whose days are few. On this machine there are as
    many as processors: each is read by a Python of its own, which takes memory.
    """
    total = sum(path.stat().st_size for path in segments)
    count = max(1, total // _BYTES_A_PART)
    if (spark.conf.get("spark.master", None) or "local").startswith("local"):
        count = min(count, os.cpu_count() or 1)
    share, parts, taken = total / count, [list[Path]()], 0
    for path in sorted(segments, key=lambda one: one.name):
        if taken >= share * len(parts):
            parts.append([])
        parts[-1].append(path)
        taken += path.stat().st_size
    return parts


def _days_with_copies(spark: SparkSession, taken: Path) -> set[str]:
    """The days, among all, where two rows may have the same id: ids have the same number then."""
    ids = spark.read.schema("id string, day string").parquet(literal(taken))
    copies = ids.groupBy("day", F.xxhash64("id")).count().where("count > 1")
    return {row["day"] for row in copies.select("day").distinct().collect()}


def _write_once(rows: DataFrame, to: Path) -> None:
    """Write rows by their days, each once. Rows of one id are of one day, so that one shuffle is enough."""
    place = F.row_number().over(Window.partitionBy("day", "id").orderBy("id"))
    once = rows.repartition("day").withColumn("place", place).where("place = 1").drop("place")
    once.write.partitionBy("day").parquet(str(to))


def _read_segments(spark: SparkSession, segments: list[Path]) -> DataFrame:
    """The rows of segments; what cannot be billed as a bad row, with its text."""
    parts = _cut(spark, segments)

    def read(batches: ArrowBatches) -> ArrowBatches:
        for part in _strings(batches):
            for rows in _gathered(parts[part]):
                yield from rows.drop_columns(["day"]).to_batches()

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, _TABLE_DDL)


def _with_day(rows: DataFrame) -> DataFrame:
    return rows.withColumn("day", F.date_format(F.timestamp_seconds(_moment()), "yyyy-MM-dd"))


def _moment() -> Column:
    return F.coalesce(F.col("minute").cast("double"), F.col("at"), F.lit(0.0))


def _generations(records: Path) -> dict[str, tuple[Path, int]]:
    """The newest generation of each day."""
    newest: dict[str, tuple[Path, int]] = {}
    for path in sorted(records.glob(f"{KIND}-*.parquet")):
        found = _DIRECTORY.fullmatch(path.name)
        if found is not None:
            newest[found[1]] = path, int(found[2])
    return newest

"""The ledger as a table: segments of JSON lines are taken into Parquet, a directory for each day.

1. Closed segments never change. All that are there are read, each row is checked (`segment_rows`), and the
   days that they have rows of are written anew: what the day had, and what is new. A row that a day has
   already, by its id, is kept once; see rule 5 of `ledger.operations`. So a segment that comes late, comes
   again, or was half taken when a run died, does no harm. Only days where an id may be there twice are sorted
   by their ids. A day has its brief beside its rows, which also tells that; see `day_brief`.
2. A day is written under a hidden name. The rename to `operations-DAY-GENERATION.parquet` makes it valid;
   of a day the newest generation counts. Only then are segments and older generations removed.
3. A line that cannot be read stays in the table as a bad row, with its text, so that it is shown in every
   report and not only in the first one.
4. One run takes segments at a time; another one that comes meanwhile reports on what there is, and anew if
   the former has replaced days of it.
5. In an object store nothing is taken in: its objects are read each time, and each row counts once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from pairbus.ledger.operations import KIND, is_dated, lock_of
from pairbus.ledger.row_runs import kept_since
from pairbus.ledger.segment import adopt_segments, closed_segments
from pairbus.ledger.store_files import begin_anew
from pairbus.plumbing.files import hold_alone, publish_directory
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store

from .day_brief import DayDraft, brief_directory, has_copies, newest_days, refuse_edited, write_brief
from .objects import ArrowBatches, first_cells, object_names, tell_gone
from .schema import ddl_of, literal
from .segment_rows import COLUMNS, parse_segment, split_days

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OpenSpark = Callable[[], "SparkSession"]
_TABLE_DDL = f"{ddl_of(COLUMNS.values())}, raw string"
# Some 300,000 rows.
_SMALL = 100 << 20
# What one task reads, and how much of it is held at a time: some twenty megabytes.
_BYTES_A_PART = 64 << 20
_ROWS_AT_ONCE = 40_000
_FRESH = f".{KIND}-fresh"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIntake:
    """What was taken in: segments, how many of them were left by dead writers, and the days written."""

    segments: int = 0
    adopted: int = 0
    days: tuple[str, ...] = ()


def is_small(records: RecordPlace) -> bool:
    """Whether Java takes longer to start than to work. Of a directory it only adds up sums."""
    return not isinstance(records, StoreUri) or sum(open_store(records).list(KIND).values()) < _SMALL


def bill_settings(records: RecordPlace) -> dict[str, str]:
    """What a session needs for a bill. Java takes all the heap that it is given; for sums less will do."""
    return {} if isinstance(records, StoreUri) else {"spark.driver.memory": "512m"}


def ledger_since(records: RecordPlace) -> float:
    """Since when there is a ledger; 0.0 if none of it was removed."""
    if isinstance(records, StoreUri):
        return kept_since(open_store(records).list(KIND))
    return kept_since(path.name for path in records.glob(f"{KIND}-*"))


def day_directories(records: RecordPlace) -> list[Path]:
    """The newest generation of each day; in an object store there is none."""
    return [] if isinstance(records, StoreUri) else [path for path, _ in newest_days(records).values()]


def load_days(open_spark: OpenSpark, days: Sequence[Path]) -> DataFrame | None:
    """The rows of days; None if there are none."""
    return _load(open_spark(), days) if days else None


def _load(spark: SparkSession, days: Sequence[Path]) -> DataFrame:
    for day in days:
        refuse_edited(day)
    return spark.read.schema(_TABLE_DDL).parquet(*map(literal, days))


def load_objects(spark: SparkSession, place: StoreUri) -> DataFrame | None:
    """Rule 5."""
    store = open_store(place)

    def load() -> DataFrame | None:
        names = [name for name in store.list(KIND) if name.endswith(".jsonl")]
        if not names:
            return None

        def read(batches: ArrowBatches) -> ArrowBatches:
            there = open_store(place)
            for name in first_cells(batches):
                yield from parse_segment(there.read(name), name).drop_columns(["day"]).to_batches()

        rows = _once(_with_day(object_names(spark, names).mapInArrow(read, _TABLE_DDL))).drop("day")
        return tell_gone(lambda: rows.localCheckpoint(eager=True))

    return begin_anew(store, load)


def read_operations(spark: SparkSession, records: RecordPlace, *, now: float) -> DataFrame:
    """All rows, each once, taken in or not. What a clock dated that was wrong by years is a bad row."""
    if isinstance(records, StoreUri):
        segments, table = [], load_objects(spark, records)
    else:  # in this order: what is no segment any more is in its day then
        segments, table = closed_segments(records, KIND), load_days(lambda: spark, day_directories(records))
    rows = spark.createDataFrame([], _TABLE_DDL)
    if table is not None:
        rows = rows.unionByName(table)
    if segments:
        rows = rows.unionByName(_read_segments(spark, segments))
    judged = F.when(is_dated(_moment(), now=now), F.col("row")).otherwise("bad")
    return _once(_with_day(rows)).drop("day").withColumn("row", judged)


def take_segments(open_spark: OpenSpark, records: RecordPlace, *, now: float) -> SegmentIntake:
    """Take all closed segments into the table."""
    if isinstance(records, StoreUri) or not records.is_dir():
        return SegmentIntake()
    with hold_alone(lock_of(records)) as lock:
        if lock is None:
            return SegmentIntake()
        adopted = len(adopt_segments(records, KIND))
        segments = closed_segments(records, KIND)
        if not segments:
            return SegmentIntake(adopted=adopted)
        days = _write_days(open_spark(), records, segments, now=now)
        for path in segments:
            path.unlink()
        return SegmentIntake(segments=len(segments), adopted=adopted, days=days)


def _write_days(spark: SparkSession, records: Path, segments: list[Path], *, now: float) -> tuple[str, ...]:
    fresh = records / _FRESH
    if fresh.exists():  # of a run that did not come to its end
        shutil.rmtree(fresh)
    taken, merged = fresh / "taken", fresh / "merged"
    days = _write_segments(spark, segments, taken, now=now)
    present = newest_days(records)
    again = (set(days) & set(present)) | {day for day in days if has_copies(_day_in(taken, day))}
    if again:
        parts = [present[day][0] for day in again if day in present]
        parts += [_day_in(taken, day) for day in again]
        rows = _once(_with_day(_load(spark, parts)))
        rows.repartition("day").write.partitionBy("day").parquet(str(merged))
        _write_briefs(spark, [_day_in(merged, day) for day in sorted(again)], now=now)
    for day in days:
        before = present.get(day)
        number = before[1] + 1 if before is not None else 1
        whole = _day_in(merged if day in again else taken, day)
        publish_directory(whole, records / f"{KIND}-{day}-{number:06d}.parquet")
        if before is not None:
            shutil.rmtree(before[0])
    shutil.rmtree(fresh)
    return tuple(days)


def _day_in(directory: Path, day: str) -> Path:
    """Where Spark would put the rows of a day, too."""
    return directory / f"day={day}"


def _write_segments(spark: SparkSession, segments: list[Path], to: Path, *, now: float) -> list[str]:
    """Put rows into their days, and tell which these are. A task may be tried again."""
    parts = _cut(spark, segments)

    def write(batches: ArrowBatches) -> ArrowBatches:
        for part in first_cells(batches):
            drafts: dict[str, DayDraft] = {}
            with ExitStack() as opened:
                for rows in _gathered(parts[part]):
                    for day, of_day in split_days(rows):
                        if day not in drafts:
                            draft = DayDraft.open(_day_in(to, day), of_day.schema, part=part, now=now)
                            drafts[day] = opened.enter_context(draft)
                        drafts[day].add(of_day)
            yield pa.RecordBatch.from_pydict({"day": list(drafts)})

    told = spark.range(0, len(parts), 1, len(parts)).mapInArrow(write, "day string")
    days = sorted({row["day"] for row in told.collect()})
    for left in to.glob("day=*/.part-*"):  # of tasks that were tried again
        left.unlink()
    return days


def _write_briefs(spark: SparkSession, days: list[Path], *, now: float) -> None:
    def write(batches: ArrowBatches) -> ArrowBatches:
        for number in first_cells(batches):
            day = days[number]
            files = {file.name: file for file in day.glob("*.parquet")}
            write_brief(brief_directory(day, now=now), day, part=0, rows=files)
            yield pa.RecordBatch.from_pydict({"number": [number]})

    tasks = most_tasks(spark, len(days))
    spark.range(0, len(days), 1, tasks).mapInArrow(write, "number long").collect()


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
    """Parts of about a size, each of neighbours in time, whose days are few."""
    total = sum(path.stat().st_size for path in segments)
    count = most_tasks(spark, max(1, total // _BYTES_A_PART))
    share, parts, taken = total / count, [list[Path]()], 0
    for path in sorted(segments, key=lambda one: one.name):
        if taken >= share * len(parts):
            parts.append([])
        parts[-1].append(path)
        taken += path.stat().st_size
    return parts


def most_tasks(spark: SparkSession, wanted: int) -> int:
    """How many tasks to have. Here as many as processors: each has a Python, which takes memory."""
    is_local = (spark.conf.get("spark.master", None) or "local").startswith("local")
    return min(wanted, os.cpu_count() or 1) if is_local else wanted


def _once(rows: DataFrame) -> DataFrame:
    """Rows, each once: of those with one id the greatest stays, the others are bad. One shuffle is enough."""
    alike = rows.repartition("day", "id").dropDuplicates()
    order = [F.col(name).desc() for name in COLUMNS]
    place = F.row_number().over(Window.partitionBy("day", "id").orderBy(*order))
    is_other = (F.col("place") > 1) & (F.col("row") != "bad")
    told = {"row": F.lit("bad"), "id": F.col("id"), "at": _moment(), "raw": F.to_json(F.struct(*COLUMNS))}
    columns = [
        F.when(is_other, told.get(name, F.lit(None))).otherwise(F.col(name)).alias(name)
        for name in (*COLUMNS, "raw")
    ]
    return alike.withColumn("place", place).select(*columns, "day").dropDuplicates()


def _read_segments(spark: SparkSession, segments: list[Path]) -> DataFrame:
    """The rows of segments; what cannot be billed as a bad row, with its text."""
    parts = _cut(spark, segments)

    def read(batches: ArrowBatches) -> ArrowBatches:
        for part in first_cells(batches):
            for rows in _gathered(parts[part]):
                yield from rows.drop_columns(["day"]).to_batches()

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, _TABLE_DDL)


def _with_day(rows: DataFrame) -> DataFrame:
    """In UTC, whatever the zone of the session."""
    days = F.floor(_moment() / 86_400).cast("int")
    return rows.withColumn("day", F.date_add(F.lit("1970-01-01").cast("date"), days).cast("string"))


def _moment() -> Column:
    return F.coalesce(F.col("minute").cast("double"), F.col("at"), F.lit(0.0))

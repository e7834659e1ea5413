"""The ledger as a table: segments of JSON lines are taken into Parquet, a directory for each day.

1. Closed segments never change. All that are there are read, each row is checked, and the days that they have
   rows of are written anew: what the day had, and what is new. A row that a day has already, by its id, is
   kept once. So a segment that comes late, comes again, or was half taken when a run died, does no harm.
2. A day is written under a hidden name. The rename to `operations-DAY-GENERATION.parquet` makes it valid;
   of a day the newest generation counts. Only then are segments and older generations removed.
3. A line that cannot be read stays in the table as a bad row, with its text, so that it is shown in every
   report and not only in the first one.
4. One run takes segments at a time; another one that comes meanwhile reports on what there is.
5. In an object store nothing is taken in: its objects are read each time, and each row counts once.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from pairbus.ledger.columns import RowColumn, columns_of
from pairbus.ledger.operations import BOUNDS, KIND, ROWS, is_dated
from pairbus.ledger.segment import adopt_segments, closed_segments
from pairbus.ledger.store_files import begin_anew
from pairbus.plumbing.files import hold_alone, publish_directory
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store

from .objects import object_lines, tell_gone
from .schema import ddl_of, literal, sql_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_KINDS = {kind: columns_of(made) for kind, made in ROWS.items()}
# A row has the columns of all kinds, and those of its own kind filled in.
_COLUMNS = {
    "row": RowColumn(name="row", plain=str),
    **{name: column for columns in _KINDS.values() for name, column in columns.items()},
}
_SEGMENT_DDL = ddl_of(_COLUMNS.values())
_TABLE_DDL = f"{_SEGMENT_DDL}, raw string"
_DIRECTORY = re.compile(rf"{KIND}-(\d{{4}}-\d\d-\d\d)-(\d{{6}})\.parquet")
# Some 300,000 rows.
_SMALL = 100 << 20
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
        lines = object_lines(spark, place, names).withColumnRenamed("value", "raw").where(F.trim("raw") != "")
        rows = _parse_lines(lines).drop("day").dropDuplicates(["id"])
        return tell_gone(lambda: rows.localCheckpoint(eager=True))

    return begin_anew(store, load)


def read_operations(spark: SparkSession, records: RecordPlace, *, now: float) -> DataFrame:
    """All rows of the table and of closed segments that no report has taken in yet, each once."""
    rows = spark.createDataFrame([], _TABLE_DDL)
    table = load_operations(spark, records, now=now)
    if table is not None:
        rows = rows.unionByName(table)
    segments = [] if isinstance(records, StoreUri) else closed_segments(records, KIND)
    if segments:
        rows = rows.unionByName(_read_segments(spark, segments).drop("day"))
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
    _write_once(_read_segments(spark, segments), taken)
    days = sorted(path.name.removeprefix("day=") for path in taken.glob("day=*"))
    present = _generations(records)
    late = [day for day in days if day in present]
    if late:
        parts = [path for day in late for path in (present[day][0], taken / f"day={day}")]
        _write_once(_with_day(spark.read.schema(_TABLE_DDL).parquet(*map(literal, parts))), merged)
    for day in days:
        before = present.get(day)
        number = before[1] + 1 if before is not None else 1
        whole = (taken if before is None else merged) / f"day={day}"
        publish_directory(whole, records / f"{KIND}-{day}-{number:06d}.parquet")
        if before is not None:
            shutil.rmtree(before[0])
    shutil.rmtree(fresh)
    return tuple(days)


def _write_once(rows: DataFrame, to: Path) -> None:
    """Write rows by their days, each once. Rows of one id are of one day, so that one shuffle is enough."""
    place = F.row_number().over(Window.partitionBy("day", "id").orderBy("id"))
    once = rows.repartition("day").withColumn("place", place).where("place = 1").drop("place")
    once.write.partitionBy("day").parquet(str(to))


def _read_segments(spark: SparkSession, segments: list[Path]) -> DataFrame:
    """The rows of segments; what cannot be billed as a bad row, with its text."""
    lines = (
        spark.read.text([literal(path) for path in segments])
        .select(F.col("value").alias("raw"), F.col("_metadata.file_name").alias("file"))
        .where(F.trim("value") != "")
    )
    return _parse_lines(lines)


def _parse_lines(lines: DataFrame) -> DataFrame:
    # Unfolded by generators: as plain columns, each line would be parsed anew for each of its fields, and
    # judged anew for each column that depends on the judgement.
    parsed = lines.select("raw", "file", F.inline(F.array(F.from_json("raw", _SEGMENT_DDL))))
    judged = F.when(_is_sound(), _good_row()).otherwise(_bad_row())
    return _with_day(parsed.select(F.inline(F.array(judged))))


def _good_row() -> Column:
    return F.struct(*_COLUMNS, F.lit(None).cast("string").alias("raw"))


def _bad_row() -> Column:
    # It has the time of its segment, which is part of the file's name, and an id of its own making.
    made = {
        "row": F.lit("bad"),
        "id": F.concat(F.lit("bad:"), F.sha2(F.concat("file", "raw"), 256)),
        "at": F.regexp_extract("file", rf"^{KIND}-(\d+)-", 1).cast("long") / 1000,
    }
    empty = {name: F.lit(None).cast(sql_type(column)) for name, column in _COLUMNS.items()}
    return F.struct(*(value.alias(name) for name, value in {**empty, **made}.items()), "raw")


def _with_day(rows: DataFrame) -> DataFrame:
    return rows.withColumn("day", F.date_format(F.timestamp_seconds(_moment()), "yyyy-MM-dd"))


def _moment() -> Column:
    return F.coalesce(F.col("minute").cast("double"), F.col("at"), F.lit(0.0))


def _is_sound() -> Column:
    """The same as `pairbus.ledger.operations.parse_row` asks for."""
    sound = F.lit(False)
    for kind, columns in _KINDS.items():
        whole = F.col("row") == kind
        for name, column in columns.items():
            if not column.is_optional:
                whole &= F.col(name).isNotNull()
            if column.choices:
                whole &= F.col(name).isin(*column.choices)
            if name in BOUNDS:
                whole &= F.col(name).between(*BOUNDS[name])
        sound |= F.coalesce(whole, F.lit(False))
    return sound


def _generations(records: Path) -> dict[str, tuple[Path, int]]:
    """The newest generation of each day."""
    newest: dict[str, tuple[Path, int]] = {}
    for path in sorted(records.glob(f"{KIND}-*.parquet")):
        found = _DIRECTORY.fullmatch(path.name)
        if found is not None:
            newest[found[1]] = path, int(found[2])
    return newest

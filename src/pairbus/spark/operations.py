"""The ledger as a table: segments of JSON lines are taken into Parquet, a directory for each day.

1. Closed segments never change. All that are there are read, each row is checked, and the days that they have
   rows of are written anew: what the day had, and what is new. A row that a day has already, by its id, is
   kept once. So a segment that comes late, comes again, or was half taken when a run died, does no harm.
2. A day is written under a hidden name. The rename to ``operations-DAY-GENERATION.parquet`` makes it valid;
   of a day the newest generation counts. Only then are segments and older generations removed.
3. A line that cannot be read stays in the table as a bad row, with its text, so that it is shown in every
   report and not only in the first one.
4. One run takes segments at a time; another one that comes meanwhile reports on what there is.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ..ledger.operations import KIND, STAGES
from ..ledger.segment import adopt_segments, closed_segments
from .locks import hold_alone

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["OPERATIONS_DDL", "Intake", "load_operations", "take_segments"]

OPERATIONS_DDL = (
    "row string, id string, writer string, role string, pair string, namespace string, entity string, "
    "stage string, kind string, size_class int, minute long, outage string, count long, unknown long, "
    "bytes long, begins boolean, phase string, at double, every double"
)
_COLUMNS = tuple(entry.split()[0] for entry in OPERATIONS_DDL.split(", "))
_TABLE_DDL = f"{OPERATIONS_DDL}, raw string"
_NEEDED = {
    "operation": "id writer role pair namespace entity stage kind size_class minute count unknown bytes",
    "outage": "id writer pair entity outage begins at",
    "writer": "id writer role pair phase at every",
}
_DIRECTORY = re.compile(rf"{KIND}-(\d{{4}}-\d\d-\d\d)-(\d{{6}})\.parquet")
_FRESH = f".{KIND}-fresh"
_LOCK = f".{KIND}.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What was taken in: segments, so many of them left behind by dead writers, and the days written."""

    segments: int = 0
    adopted: int = 0
    days: tuple[str, ...] = ()


def load_operations(spark: SparkSession, records: Path) -> DataFrame | None:
    """All rows of the table, each once; None if there is no table."""
    days = [path for path, _ in _generations(records).values()]
    if not days:
        return None
    return spark.read.schema(_TABLE_DDL).parquet(*map(str, days))


def take_segments(spark: SparkSession, records: Path) -> Intake:
    """Take all closed segments into the table."""
    if not records.is_dir():
        return Intake()
    with hold_alone(records / _LOCK) as is_alone:
        if not is_alone:
            return Intake()
        adopted = len(adopt_segments(records, KIND))
        segments = closed_segments(records, KIND)
        if not segments:
            return Intake(adopted=adopted)
        days = _write_days(spark, records, segments)
        for path in segments:
            path.unlink()
        return Intake(segments=len(segments), adopted=adopted, days=days)


def _write_days(spark: SparkSession, records: Path, segments: list[Path]) -> tuple[str, ...]:
    fresh = records / _FRESH
    if fresh.exists():  # of a run that did not come to its end
        shutil.rmtree(fresh)
    new = _read_segments(spark, segments).cache()
    try:
        days = sorted(row["day"] for row in new.select("day").distinct().collect())
        present = _generations(records)
        rows = new.select(*_COLUMNS, "raw", "day")
        old = [str(present[day][0]) for day in days if day in present]
        if old:
            rows = rows.unionByName(_with_day(spark.read.schema(_TABLE_DDL).parquet(*old)))
        rows.dropDuplicates(["id"]).repartition("day").write.partitionBy("day").parquet(str(fresh))
    finally:
        new.unpersist()
    for day in days:
        before = present.get(day)
        number = before[1] + 1 if before is not None else 1
        (fresh / f"day={day}").rename(records / f"{KIND}-{day}-{number:06d}.parquet")
        if before is not None:
            shutil.rmtree(before[0])
    shutil.rmtree(fresh)
    return tuple(days)


def _read_segments(spark: SparkSession, segments: list[Path]) -> DataFrame:
    lines = spark.read.text([str(path) for path in segments]).select(
        F.col("value").alias("raw"), F.col("_metadata.file_name").alias("file")
    )
    parsed = lines.withColumn("it", F.from_json("raw", OPERATIONS_DDL))
    rows = parsed.select("raw", "file", F.coalesce(_is_sound(), F.lit(False)).alias("sound"), "it.*")
    is_bad = ~F.col("sound")
    # A bad row has the time of its segment, which is part of the file's name, and an id of its own making.
    begun = F.regexp_extract("file", rf"^{KIND}-(\d+)-", 1).cast("long") / 1000
    return _with_day(
        rows.select(
            F.when(is_bad, F.lit("bad")).otherwise(F.col("row")).alias("row"),
            F.when(is_bad, F.concat(F.lit("bad:"), F.sha2(F.concat("file", "raw"), 256)))
            .otherwise(F.col("id"))
            .alias("id"),
            *(F.when(is_bad, None).otherwise(F.col(name)).alias(name) for name in _COLUMNS[2:-2]),
            F.when(is_bad, begun).otherwise(F.col("at")).alias("at"),
            F.when(is_bad, None).otherwise(F.col("every")).alias("every"),
            F.when(is_bad, F.col("raw")).alias("raw"),
        )
    )


def _with_day(rows: DataFrame) -> DataFrame:
    moment = F.coalesce(F.col("minute").cast("double"), F.col("at"), F.lit(0.0))
    return rows.withColumn("day", F.date_format(F.timestamp_seconds(moment), "yyyy-MM-dd"))


def _is_sound() -> Column:
    """The same as `pairbus.ledger.operations.parse_row` asks for."""
    sound = F.lit(False)
    for kind, names in _NEEDED.items():
        whole = F.col("it.row") == kind
        for name in names.split():
            whole &= F.col(f"it.{name}").isNotNull()
        if kind == "operation":
            for name, least in (("count", 0), ("unknown", 0), ("bytes", 0), ("minute", 0), ("size_class", 1)):
                whole &= F.col(f"it.{name}") >= least
            whole &= F.col("it.stage").isin(*STAGES) & F.col("it.role").isin("client", "pump")
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

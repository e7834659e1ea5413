"""Receipts as a table: segments of JSON lines and Parquet together, one row a message.

Compaction
1. Closed segments never change, so what was read is what is there. The newest Parquet and all closed segments
   are read, one row is kept for each operation id, and the whole is written under a hidden name.
2. The rename to `receipts-GENERATION.parquet` makes it valid. Only then are the segments and the older
   generation removed. A crash in between leaves rows in two places, and readers keep one of them.
3. One compaction runs at a time; another one that is asked for meanwhile has nothing to do.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from pairbus.ledger import adopt_segments, closed_segments
from pairbus.ledger.columns import columns_of
from pairbus.ledger.receipts import KIND, Receipt
from pairbus.plumbing.files import hold_alone, publish_directory

from .schema import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = columns_of(Receipt)
_SEGMENT_DDL = ddl_of(_COLUMNS.values())
_TABLE_DDL = ddl_of(_COLUMNS.values(), moments="timestamp")
# A few million rows a file; Spark has put small ones together already.
_MOST_FILES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """What a compaction did; `bad` lines could not be read."""

    segments: int
    adopted: int
    bad: int
    table: Path | None


class ReceiptCounts(NamedTuple):
    """Of messages, and the bytes of those that were moved."""

    moved: int
    dead_lettered: int
    bytes: int


def load_receipts(spark: SparkSession, records: Path) -> DataFrame:
    """All receipts below a directory, one row for each message that was handled."""
    return _distinct(_load(spark, _generations(records), closed_segments(records, KIND)))


def count_receipts(spark: SparkSession, records: Sequence[Path], *, run: str) -> ReceiptCounts:
    """What the pumps of one run have done: the names of such writers begin with that of the run.

    Names and not times tell whose a receipt is: machines differ in their clocks, and others write meanwhile.
    """
    for directory in records:
        adopt_segments(directory, KIND)
    rows = [_load(spark, _generations(one), closed_segments(one, KIND)) for one in records]
    mine = _distinct(reduce(DataFrame.unionByName, rows).where(F.col("writer").startswith(run)))
    moved = F.col("outcome") == "moved"
    (told,) = mine.select(
        F.count_if(moved), F.count_if(~moved), F.coalesce(F.sum(F.when(moved, F.col("bytes"))), F.lit(0))
    ).collect()
    return ReceiptCounts(*told)


def _load(
    spark: SparkSession, generations: list[Path], segments: list[Path], seen: Observation | None = None
) -> DataFrame:
    frames = []
    if generations:
        frames.append(spark.read.schema(_TABLE_DDL).parquet(str(generations[-1])))
    if segments:
        rows = _read_segments(spark, segments)
        if seen is not None:
            rows = rows.observe(seen, F.count_if(F.col("op").isNull()).alias("bad"))
        frames.append(rows.where("op IS NOT NULL"))
    if not frames:
        return spark.createDataFrame([], _TABLE_DDL)
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _read_segments(spark: SparkSession, segments: list[Path]) -> DataFrame:
    """A line that is no JSON gives a row of nulls."""
    rows = spark.read.schema(_SEGMENT_DDL).json([str(path) for path in segments])
    moments = [column.name for column in _COLUMNS.values() if column.is_moment]
    return rows.withColumns({name: F.timestamp_seconds(F.col(name)) for name in moments})


def _distinct(rows: DataFrame) -> DataFrame:
    """Of rows for one message the last one counts."""
    whole = F.max_by(F.struct(*_COLUMNS), F.col("moved")).alias("row")
    return rows.groupBy("op").agg(whole).select("row.*")


def compact_receipts(spark: SparkSession, records: Path) -> Compaction:
    """Adopt what dead writers left behind, and put all receipts into one table of few files."""
    if not records.is_dir():
        return Compaction(segments=0, adopted=0, bad=0, table=None)
    with hold_alone(records / ".compaction.lock") as lock:
        if lock is None:
            return Compaction(segments=0, adopted=0, bad=0, table=None)
        adopted = len(adopt_segments(records, KIND))
        segments = closed_segments(records, KIND)
        generations = _generations(records)
        if not segments:
            return Compaction(
                segments=0, adopted=adopted, bad=0, table=generations[-1] if generations else None
            )
        seen = Observation()
        rows = _distinct(_load(spark, generations, segments, seen))
        table = _write_generation(rows, records, generations)
        for path in segments:
            path.unlink()
        for old in generations:
            shutil.rmtree(old)
        return Compaction(segments=len(segments), adopted=adopted, bad=seen.get["bad"], table=table)


def _write_generation(rows: DataFrame, records: Path, generations: list[Path]) -> Path:
    number = int(generations[-1].stem.partition("-")[2]) + 1 if generations else 1
    name = f"{KIND}-{number:06d}.parquet"
    fresh = records / f".{name}"
    if fresh.exists():  # of a compaction that did not come to its end
        shutil.rmtree(fresh)
    rows.coalesce(_MOST_FILES).write.parquet(str(fresh))
    table = records / name
    publish_directory(fresh, table)
    return table


def _generations(records: Path) -> list[Path]:
    return sorted(records.glob(f"{KIND}-[0-9]*.parquet"))

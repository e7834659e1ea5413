"""Receipts as a table: segments of JSON lines and Parquet together, one row a message.

Compaction
1. Closed segments never change, so what was read is what is there. The newest Parquet and all closed segments
   are read, one row is kept for each operation id, and the whole is written under a hidden name.
2. The rename to `receipts-GENERATION.parquet` makes it valid. Only then are the segments and the older
   generation removed. A crash in between leaves rows in two places, and readers keep one of them.
3. One compaction runs at a time; another one that is asked for meanwhile has nothing to do.
4. Lines that could not be read go with their segments. How many there were is carried on from generation to
   generation, so that nobody takes a table for whole that is not.

Reading beside a compaction
5. Segments are listed first, the newest generation after that: what has been removed from the former is then
   in the latter. The rows are taken at once. If a file that was to be read is gone, or a newer generation is
   there, when that has been done, all of it begins anew.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from pairbus.errors import PairbusError
from pairbus.ledger import adopt_segments, closed_segments, read_open_segments
from pairbus.ledger.columns import columns_of
from pairbus.ledger.receipts import KIND, Receipt
from pairbus.plumbing.files import hold_alone, publish_directory

from .schema import ddl_of, literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = columns_of(Receipt)
_SEGMENT_DDL = ddl_of(_COLUMNS.values())
_TABLE_DDL = ddl_of(_COLUMNS.values(), moments="timestamp")
# What is added up where there are several rows for a message.
_SUMS = ("unsure", "repeats")
# A few million rows a file; Spark has put small ones together already.
_MOST_FILES = 8
# Compactions are minutes apart: who meets so many in a row meets something else.
_READINGS = 5
# Within a generation, and hidden from Spark: what the table does not say.
_MANIFEST = "_manifest.json"


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


class ReceiptsRead(NamedTuple):
    """All receipts of a directory, as they were at one moment, and how many lines were none."""

    rows: DataFrame
    bad: int


class _Files(NamedTuple):
    """What there is to read: rows of segments that are open, closed segments, and the newest generation."""

    fresh: list[dict[str, Any]]
    bad: int
    segments: list[Path]
    generation: Path | None

    def are_there(self, records: Path) -> bool:
        """Whether nothing of it has been removed, or replaced."""
        return _newest(records) == self.generation and all(path.exists() for path in self.segments)


def load_receipts(spark: SparkSession, records: Path) -> DataFrame:
    """All receipts below a directory, as they are now; one row for each message that was handled."""
    return read_receipts(spark, records).rows


def read_receipts(spark: SparkSession, records: Path) -> ReceiptsRead:
    """The same, and how many lines could not be read. Takes the rows at once, see rule 5."""
    for _ in range(_READINGS):
        files = _list(records)
        try:
            rows = _load(spark, files).localCheckpoint(eager=True)
        except Exception:
            if files.are_there(records):
                raise
            continue
        if files.are_there(records):
            # Counted and not observed: over Spark Connect a checkpoint tells nothing of that.
            bad = rows.where(_is_bad()).count()
            return ReceiptsRead(_distinct(rows.where(~_is_bad())), bad + files.bad)
    raise PairbusError(f"the receipts in {records} change faster than they can be read; try again")


def count_receipts(spark: SparkSession, records: Sequence[Path], *, run: str) -> ReceiptCounts:
    """What the pumps of one run have done: the names of such writers begin with that of the run.

    Names and not times tell whose a receipt is: machines differ in their clocks, and others write meanwhile.
    """
    for directory in records:
        adopt_segments(directory, KIND)
    rows = [read_receipts(spark, one).rows for one in records]
    mine = _distinct(reduce(DataFrame.unionByName, rows).where(F.col("writer").startswith(run)))
    moved = F.col("outcome") == "moved"
    (told,) = mine.select(
        F.count_if(moved),
        F.count_if(F.col("outcome") == "dead-lettered"),
        F.coalesce(F.sum(F.when(moved, F.col("bytes"))), F.lit(0)),
    ).collect()
    return ReceiptCounts(*told)


def _list(records: Path) -> _Files:
    """Rule 5: in this order."""
    fresh = read_open_segments(records, KIND)
    segments = closed_segments(records, KIND)
    generation = _newest(records)
    for path in segments:
        fresh.pop(path.name, None)
    bad = sum(one.bad for one in fresh.values()) + int(_read_manifest(generation).get("bad", 0))
    return _Files([row for one in fresh.values() for row in one.rows], bad, segments, generation)


def _load(spark: SparkSession, files: _Files) -> DataFrame:
    """All rows; a line that is no JSON is one of nulls."""
    cells = [tuple(row.get(name) for name in _COLUMNS) for row in files.fresh]
    rows = _with_moments(spark.createDataFrame(cells, _SEGMENT_DDL))
    if files.segments:
        closed = spark.read.schema(_SEGMENT_DDL).json([literal(path) for path in files.segments])
        rows = rows.unionByName(_with_moments(closed))
    if files.generation is not None:
        rows = rows.unionByName(spark.read.schema(_TABLE_DDL).parquet(literal(files.generation)))
    return rows


def _is_bad() -> Column:
    return F.col("op").isNull()


def _with_moments(rows: DataFrame) -> DataFrame:
    moments = [column.name for column in _COLUMNS.values() if column.is_moment]
    return rows.withColumns({name: F.timestamp_seconds(F.col(name)) for name in moments})


def _distinct(rows: DataFrame) -> DataFrame:
    """Of rows for one message the last one counts that says what became of it, and sums up the others.

    The same row may be in two places, after a crash in a compaction or by copied directories.
    """
    rows = rows.groupBy("op", "writer", "moved", "outcome").agg(
        F.max(F.struct(*(F.coalesce(name, F.lit(0)).alias(name) for name in _SUMS))).alias("sums"),
        F.first(F.struct(*_COLUMNS)).alias("row"),
    )
    is_known = F.col("outcome") != "unknown"
    moves = F.count_if(F.col("outcome") == "moved")
    whole = rows.groupBy("op").agg(
        F.max_by("row", F.struct(is_known, "moved")).alias("row"),
        F.sum("sums.unsure").alias("unsure"),
        (F.sum("sums.repeats") + F.greatest(moves - 1, F.lit(0))).alias("repeats"),
    )
    return whole.select(*(name if name in _SUMS else F.col(f"row.{name}") for name in _COLUMNS))


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
        table, bad = _write_generation(spark, records, segments, generations)
        for path in segments:
            path.unlink()
        for old in generations:
            shutil.rmtree(old)
        return Compaction(segments=len(segments), adopted=adopted, bad=bad, table=table)


def _write_generation(
    spark: SparkSession, records: Path, segments: list[Path], generations: list[Path]
) -> tuple[Path, int]:
    """The next generation, and how many lines of these segments could not be read."""
    newest = generations[-1] if generations else None
    number = int(newest.stem.partition("-")[2]) + 1 if newest else 1
    name = f"{KIND}-{number:06d}.parquet"
    fresh = records / f".{name}"
    if fresh.exists():  # of a compaction that did not come to its end
        shutil.rmtree(fresh)
    seen = Observation()
    rows = _load(spark, _Files([], 0, segments, newest)).observe(seen, F.count_if(_is_bad()).alias("bad"))
    rows = _distinct(rows.where(~_is_bad()))
    rows.coalesce(_MOST_FILES).write.parquet(str(fresh))
    bad = int(seen.get["bad"])
    before = int(_read_manifest(newest).get("bad", 0))
    (fresh / _MANIFEST).write_text(json.dumps({"bad": before + bad}))
    table = records / name
    publish_directory(fresh, table)
    return table, bad


def _generations(records: Path) -> list[Path]:
    return sorted(records.glob(f"{KIND}-[0-9]*.parquet"))


def _newest(records: Path) -> Path | None:
    return max(_generations(records), default=None)


def _read_manifest(generation: Path | None) -> Mapping[str, Any]:
    """What was noted with a generation; those of version 0.1.0 have no such file."""
    if generation is None:
        return {}
    try:
        found = json.loads((generation / _MANIFEST).read_text())
    except FileNotFoundError:
        return {}
    return found if isinstance(found, dict) else {}

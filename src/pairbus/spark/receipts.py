"""Receipts as a table: segments of JSON lines and Parquet together, one row a message.

1. A compaction reads the newest table and all closed segments, keeps one row for each operation id, and
   writes the whole as the next table; `ledger.generation` says how it takes their place. Lines that cannot be
   read go with their segments; how many there were is carried on.

Reading beside a compaction
2. Segments are listed first, the newest table after that: what has been removed from the former is then in
   the latter. The rows are taken at once. If a file that was to be read is gone, or a newer table is there,
   when that has been done, all of it begins anew; and after some times of that, compactions are kept out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from pairbus.errors import PairbusError
from pairbus.ledger import adopt_segments
from pairbus.ledger.columns import columns_of
from pairbus.ledger.generation import Compaction, TableRead, compact, lock_of
from pairbus.ledger.receipts import KIND, Receipt
from pairbus.ledger.record_files import RecordFiles
from pairbus.plumbing.files import hold_alone

from .schema import ddl_of, literal
from .summary import ReceiptCounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = columns_of(Receipt)
_SEGMENT_DDL = ddl_of(_COLUMNS.values())
_TABLE_DDL = ddl_of(_COLUMNS.values(), moments="timestamp")
# What is added up where there are several rows for a message.
_SUMS = ("unsure", "repeats")
# A few million rows a file; Spark has put small ones together already.
_MOST_FILES = 8
# Compactions are minutes apart: who meets so many in a row keeps them out.
_READINGS = 5
_PATIENCE = 60.0
_TICK = 0.2


class ReceiptsRead(NamedTuple):
    """All receipts of a directory, as they were at one moment, what is wrong with them, and what else is
    worth knowing.
    """

    rows: DataFrame
    gaps: tuple[str, ...]
    notes: tuple[str, ...]


def load_receipts(spark: SparkSession, records: Path) -> DataFrame:
    """All receipts below a directory, as they are now; one row for each message that was handled."""
    return read_receipts(spark, records, is_audited=False).rows


def read_receipts(spark: SparkSession, records: Path, *, is_audited: bool = True) -> ReceiptsRead:
    """The same, and what is wrong with them. Takes the rows at once, see rule 2."""
    with ExitStack() as kept_out:
        for reading in range(_READINGS + 1):
            if reading == _READINGS:
                kept_out.enter_context(_keep_out_compactions(records))
            files = None
            try:
                files = RecordFiles.list(records, KIND, is_audited=is_audited)
                found = _read(spark, files, is_audited=is_audited)
            except Exception as error:
                # What was to be read may have been removed, by the time that it was listed or later.
                is_there = files.are_there() if files else not isinstance(error, FileNotFoundError)
                if is_there or reading == _READINGS:
                    raise
                continue
            if files.are_there():
                return found
    raise PairbusError(f"the receipts in {records} change while nobody should change them")


@contextmanager
def _keep_out_compactions(records: Path) -> Iterator[None]:
    ends = time.monotonic() + _PATIENCE
    while time.monotonic() < ends:
        with hold_alone(lock_of(records)) as lock:
            if lock is not None:
                yield
                return
        time.sleep(_TICK)
    raise PairbusError(f"a compaction of the receipts in {records} does not end; try again")


def _read(spark: SparkSession, files: RecordFiles, *, is_audited: bool) -> ReceiptsRead:
    rows = _load(spark, files).localCheckpoint(eager=True)
    # Counted and not observed: over Spark Connect a checkpoint tells nothing of that.
    bad = rows.where(_is_bad()).count() + files.table.manifest.bad
    bad += sum(one.bad for one in files.opened.values())
    gaps = [f"{bad:,} receipts cannot be read in {files.directory}"] if bad else []
    notes: list[str] = []
    if is_audited:
        # A receipt that could not be written was written again, or its message is where it was.
        audit = files.audit(must_succeed=False)
        gaps += audit.gaps
        notes += audit.notes
        if audit.unchained:
            notes.append(f"{audit.unchained:,} receipts are of version 0.1.0, and not chained")
    return ReceiptsRead(_distinct(rows.where(~_is_bad())), tuple(gaps), tuple(notes))


def count_receipts(spark: SparkSession, records: Sequence[Path], *, run: str) -> ReceiptCounts:
    """What the pumps of one run have done: the names of such writers begin with that of the run.

    Names and not times tell whose a receipt is: machines differ in their clocks, and others write meanwhile.
    """
    for directory in records:
        adopt_segments(directory, KIND)
    rows = [load_receipts(spark, one) for one in records]
    mine = _distinct(reduce(DataFrame.unionByName, rows).where(F.col("writer").startswith(run)))
    moved = F.col("outcome") == "moved"
    (told,) = mine.select(
        F.count_if(moved),
        F.count_if(F.col("outcome") == "dead-lettered"),
        F.coalesce(F.sum(F.when(moved, F.col("bytes"))), F.lit(0)),
    ).collect()
    return ReceiptCounts(*told)


def _load(spark: SparkSession, files: RecordFiles) -> DataFrame:
    """All rows; a line that is no JSON is one of nulls."""
    cells = [tuple(row.get(name) for name in _COLUMNS) for one in files.opened.values() for row in one.rows]
    fresh = _with_moments(spark.createDataFrame(cells, _SEGMENT_DDL))
    return fresh.unionByName(_load_closed(spark, files.closed, files.table))


def _load_closed(spark: SparkSession, segments: Sequence[Path], table: TableRead) -> DataFrame:
    rows = spark.createDataFrame([], _TABLE_DDL)
    if segments:
        # Links have that field, and rows have not.
        lines = spark.read.schema(f"{_SEGMENT_DDL}, chain string").json(list(map(literal, segments)))
        rows = rows.unionByName(_with_moments(lines.where("chain IS NULL").drop("chain")))
    if table.files:
        rows = rows.unionByName(spark.read.schema(_TABLE_DDL).parquet(*map(literal, table.files)))
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
    whole = rows.groupBy("op").agg(
        F.max_by("row", F.struct(is_known, "moved")).alias("row"),
        F.sum("sums.unsure").alias("unsure"),
        (F.sum("sums.repeats") + F.count_if(F.col("outcome") == "moved")).alias("moves"),
    )
    was_last = (F.col("row.outcome") == "moved").cast("long")
    whole = whole.withColumn("repeats", F.col("moves") - was_last)
    return whole.select(*(name if name in _SUMS else F.col(f"row.{name}") for name in _COLUMNS))


def compact_receipts(spark: SparkSession, records: Path) -> Compaction:
    """Adopt what dead writers left behind, and put all receipts into one table of few files."""

    def write(segments: list[Path], table: TableRead, to: Path) -> int:
        seen = Observation()
        rows = _load_closed(spark, segments, table).observe(seen, F.count_if(_is_bad()).alias("bad"))
        _distinct(rows.where(~_is_bad())).coalesce(_MOST_FILES).write.parquet(str(to))
        return int(seen.get["bad"])

    return compact(records, KIND, write)

"""Receipts as a table: segments of JSON lines and Parquet together, one row a message.

1. A compaction puts all closed segments into the next table, with one row for each operation id
   (`ledger.plain_compaction`); `ledger.generation` says how it takes their place. Lines that cannot be read
   go with their segments; how many there were is carried on.

Reading beside a compaction
2. Segments are listed first, the newest table after that: what has been removed from the former is then in
   the latter. The rows are taken at once. If a file that was to be read is gone, or a newer table is there,
   when that has been done, all of it begins anew; and after some times of that, compactions are kept out.

In an object store
3. Tasks read and write by `objects`. `ledger.store_compaction` says how tables take the place of objects, and
   `ledger.store_files` how one reads beside that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pairbus.ledger.chain import LINK_MARK, ChainAudit, HeadFile
from pairbus.ledger.columns import cells_of, columns_of
from pairbus.ledger.generation import Compaction, Manifest, TableRead, lock_of
from pairbus.ledger.plain_compaction import compact_directory
from pairbus.ledger.receipts import KIND, NEEDED, OUTCOMES, Receipt
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.rereading import read_steadily
from pairbus.ledger.segment import adopt_segments
from pairbus.ledger.silence import tell_behind, tell_silent
from pairbus.ledger.store_compaction import WrittenDays, compact_store
from pairbus.ledger.store_files import StoreFiles, begin_anew, day_of
from pairbus.plumbing.json_text import LAST_MOMENT
from pairbus.stores.parquet_files import can_read
from pairbus.stores.places import RecordPlace, StoreUri, parse_place
from pairbus.stores.store import open_store

from .objects import object_lines, object_rows, tell_gone, write_days
from .schema import ddl_of, literal
from .summary import ReceiptCounts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMNS = columns_of(Receipt)
_SEGMENT_DDL = ddl_of(_COLUMNS.values())
_TABLE_DDL = ddl_of(_COLUMNS.values(), moments="timestamp")
# What is added up where there are several rows for a message.
_SUMS = ("unsure", "repeats")


class ReceiptsRead(NamedTuple):
    """All receipts at one moment; `since` when there are all, and who is `behind` in shipping."""

    rows: DataFrame
    gaps: tuple[str, ...]
    notes: tuple[str, ...]
    since: float
    behind: tuple[str, ...]


def load_receipts(spark: SparkSession, records: RecordPlace | str) -> DataFrame:
    """All receipts of a directory or of a store's URI, as they are now; one row for each handled message."""
    return read_receipts(spark, parse_place(records), is_audited=False).rows


def read_receipts(spark: SparkSession, records: RecordPlace, *, is_audited: bool = True) -> ReceiptsRead:
    """The same, and what is wrong with them. Takes the rows at once, see rule 2."""
    if isinstance(records, StoreUri):
        store = open_store(records)
        return begin_anew(store, lambda: _read_store(spark, records, is_audited=is_audited))
    return read_steadily(
        lambda: RecordFiles.list(records, KIND, is_audited=is_audited, probe=can_read),
        lambda files: _read(spark, files, is_audited=is_audited),
        lock=lock_of(records),
        directory=records,
        rival="a compaction of receipts",
    )


def _read(spark: SparkSession, files: RecordFiles, *, is_audited: bool) -> ReceiptsRead:
    rows = _load(spark, files).localCheckpoint(eager=True)
    bad = files.table.manifest.bad + sum(one.bad for one in files.opened.values())
    # A receipt that could not be written was written again, or its message is where it was.
    audit = files.audit(must_succeed=False) if is_audited else None
    return _judge(rows, bad, str(files.directory), audit, files.table.manifest, files.later)


def _read_store(spark: SparkSession, place: StoreUri, *, is_audited: bool) -> ReceiptsRead:
    files = StoreFiles.list(open_store(place), KIND, is_audited=is_audited)
    rows = tell_gone(lambda: _load_objects(spark, place, files).localCheckpoint(eager=True))
    audit = files.audit(must_succeed=False) if is_audited else None
    manifest = files.table.manifest
    return _judge(rows, manifest.bad, str(place), audit, manifest, files.later)


def _judge(
    rows: DataFrame,
    bad: int,
    place: str,
    audit: ChainAudit | None,
    manifest: Manifest,
    heads: Sequence[HeadFile],
) -> ReceiptsRead:
    # Counted and not observed: over Spark Connect a checkpoint tells nothing of that.
    bad += rows.where(_is_bad()).count()
    gaps = [f"{bad:,} receipts cannot be read in {place}"] if bad else []
    notes: list[str] = []
    if audit is not None:
        gaps += [*audit.gaps, *tell_silent(heads, now=time.time())]
        notes += audit.notes
        if audit.unchained:
            notes.append(f"{audit.unchained:,} receipts are of version 0.1.0, and not chained")
    whole = _distinct(rows.where(~_is_bad()))
    return ReceiptsRead(whole, tuple(gaps), tuple(notes), manifest.since, tuple(tell_behind(heads)))


def count_receipts(spark: SparkSession, records: Sequence[RecordPlace], *, run: str) -> ReceiptCounts:
    """What the pumps of a run have done, by their names, not by times: clocks of machines differ."""
    adopt_all(records, KIND)
    rows = [load_receipts(spark, one) for one in records]
    mine = _distinct(reduce(DataFrame.unionByName, rows).where(F.col("writer").startswith(run)))
    moved = F.col("outcome") == "moved"
    (told,) = mine.select(
        F.count_if(moved),
        F.count_if(F.col("outcome") == "dead-lettered"),
        F.coalesce(F.sum(F.when(moved, F.col("bytes"))), F.lit(0)),
    ).collect()
    return ReceiptCounts(*told)


def adopt_all(records: Sequence[RecordPlace], kind: str) -> None:
    """Close what dead writers left open; in a store nothing is."""
    for place in records:
        if not isinstance(place, StoreUri):
            adopt_segments(place, kind)


def _load(spark: SparkSession, files: RecordFiles) -> DataFrame:
    """All rows; a line that is no JSON is one of nulls."""
    cells = [cells_of(Receipt, row) for one in files.opened.values() for row in one.rows]
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


def _load_objects(spark: SparkSession, place: StoreUri, files: StoreFiles) -> DataFrame:
    """Those of fresh objects and of the table."""
    return _with_tables(spark, place, _load_fresh(spark, place, files), files.table.files)


def _with_tables(spark: SparkSession, place: StoreUri, rows: DataFrame, tables: Sequence[str]) -> DataFrame:
    return rows.unionByName(object_rows(spark, place, tables, _TABLE_DDL)) if tables else rows


def _load_fresh(spark: SparkSession, place: StoreUri, files: StoreFiles) -> DataFrame:
    if not files.fresh:
        return spark.createDataFrame([], _TABLE_DDL)
    lines = object_lines(spark, place, files.fresh).where(~F.col("value").startswith(LINK_MARK))
    # Unfolded by a generator, or each line would be parsed anew for each of its fields.
    parsed = lines.select(F.inline(F.array(F.from_json("value", _SEGMENT_DDL))))
    return _with_moments(parsed)


def _is_bad() -> Column:
    """Whether a row lacks what a verdict needs of it, or has something else in its place."""
    return reduce(or_, (F.col(name).isNull() for name in NEEDED), ~F.col("outcome").isin(*OUTCOMES))


def _with_moments(rows: DataFrame) -> DataFrame:
    moments = [column.name for column in _COLUMNS.values() if column.is_moment]
    known = {name: F.when(F.col(name).between(0, LAST_MOMENT), F.col(name)) for name in moments}
    return rows.withColumns({name: F.timestamp_seconds(column) for name, column in known.items()})


def _distinct(rows: DataFrame) -> DataFrame:
    """The last row of a message that says what became of it, with the sums of the others, each once."""
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


def compact_receipts(spark: SparkSession, records: RecordPlace | str) -> Compaction:
    """Adopt what dead writers left behind, and put all receipts into one table of few files. In a store only
    the syphon that runs does it, and Spark, whose tasks wait for its objects side by side.
    """
    place = parse_place(records)
    if isinstance(place, StoreUri):
        store = open_store(place)
        return begin_anew(
            store, lambda: compact_store(store, KIND, lambda *given: _write_days(spark, place, *given))
        )
    return compact_directory(place)


def _write_days(spark: SparkSession, place: StoreUri, files: StoreFiles, number: int) -> WrittenDays:
    """The days that fresh rows are of, anew."""
    day = F.date_format("moved", "yyyy-MM-dd")
    fresh = tell_gone(lambda: _load_fresh(spark, place, files).localCheckpoint(eager=True))
    bad = fresh.where(_is_bad()).count()
    days = [row[0] for row in fresh.where(~_is_bad()).select(day).distinct().collect()]
    tables = [name for name in files.table.files if day_of(name) in days]
    rows = _with_tables(spark, place, fresh, tables)
    whole = _distinct(rows.where(~_is_bad())).withColumn("day", day)
    written = tell_gone(lambda: write_days(whole, place, KIND, number=number))
    return WrittenDays({one.file: one.seal for one in written}, days, bad)

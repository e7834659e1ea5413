"""The ledger as a bill reads it: the briefs of its days, and the rows of what has none.

Days of version 0.1.0 and objects of a store have no brief: their rows are summed up each time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pairbus.cost.outages import OutageBook
from pairbus.ledger.operations import EARLIEST, is_dated, latest_at
from pairbus.stores.places import RecordPlace

from .day_brief import MARKS, NEEDED, USAGE, attribute, brief_of, has_brief, read_marks, read_sums
from .objects import ArrowBatches, first_cells
from .operations import day_directories, load_days, load_objects, most_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class BillSpan(NamedTuple):
    """From when until before when, in Unix seconds."""

    since: int
    before: int

    @classmethod
    def of_month(cls, month: str | None) -> BillSpan:
        """A month (`2026-11`), or all time."""
        if month is None:
            return cls(0, 1 << 62)
        begin = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC)
        # The 28th of a month and four days are always in the next one.
        end = (begin.replace(day=28) + timedelta(days=4)).replace(day=1)
        return cls(int(begin.timestamp()), int(end.timestamp()))

    def touches(self, begins: float, ends: float | None) -> bool:
        """Whether something that lasts so long, or goes on, is in it for a while."""
        return begins < self.before and (ends is None or ends >= self.since)


class LedgerTable(NamedTuple):
    """Days that have a brief, and all other rows."""

    spark: SparkSession
    records: RecordPlace
    days: list[Path]
    #: Days that have no brief.
    rest: list[Path]
    #: By what time what is dated later is a wrong clock's.
    now: float
    #: Those of `rest`, or of a store, once they are loaded.
    rows: DataFrame | None = None

    @classmethod
    def open(cls, spark: SparkSession, records: RecordPlace, *, now: float) -> LedgerTable:
        """List all that was taken in."""
        days = day_directories(records)
        brief = [day for day in days if has_brief(day)]
        rest = [day for day in days if day not in brief]
        return cls(spark, records, brief, rest, now)

    def load(self) -> LedgerTable:
        """The same with its rows. Not while it is listed: Spark's error for a day that is gone is its own."""
        spark, place = self.spark, self.records
        rows = load_days(spark, self.rest) if isinstance(place, Path) else load_objects(spark, place)
        return self._replace(rows=rows)

    def are_there(self) -> bool:
        """Whether no day of it has been removed, or replaced."""
        return sorted(day_directories(self.records)) == sorted([*self.days, *self.rest])

    @property
    def is_empty(self) -> bool:
        return not self.days and self.rows is None

    def marks(self) -> pa.Table:
        """What there is besides operations; it is little."""
        now, found = self.now, [read_marks(day) for day in self.days]
        if self.rows is not None:
            briefs = _map(self.rows.select(NEEDED), lambda rows: brief_of(rows, now=now).marks, MARKS)
            found.append(briefs.toArrow().cast(MARKS))
        return pa.concat_tables([MARKS.empty_table(), *found])

    def usage(self, book: OutageBook, span: BillSpan) -> DataFrame:
        """Operations of a time, as `USAGE` has them. Those of one key are to be added up."""
        days, now = self.days, self.now
        since, until = max(EARLIEST, span.since), min(int(latest_at(now)), span.before - 1)

        def attributed(sums: pa.Table) -> pa.Table:
            is_in = pc.and_(pc.greater_equal(sums["slot"], since), pc.less_equal(sums["slot"], until))
            return attribute(sums.filter(is_in), book)

        def read(batches: ArrowBatches) -> ArrowBatches:
            for number in first_cells(batches):
                yield from attributed(read_sums(days[number])).to_batches()

        tasks = max(1, most_tasks(self.spark, len(days)))
        usage = self.spark.range(0, len(days), 1, tasks).mapInArrow(read, from_arrow_schema(USAGE))
        if self.rows is None:
            return usage
        rest = _map(self.rows.select(NEEDED), lambda rows: attributed(brief_of(rows, now=now).sums), USAGE)
        return usage.unionByName(rest)

    def minutes(self, span: BillSpan) -> DataFrame:
        """Operations of a time, row by row: `minute`, `stage` and `units`."""
        parts = [rows for rows in (load_days(self.spark, self.days), self.rows) if rows is not None]
        rows = reduce(DataFrame.unionByName, parts)
        minute = F.col("minute")
        is_in = is_dated(minute, now=self.now) & (minute >= span.since) & (minute < span.before)
        units = (F.col("count") * F.col("size_class")).alias("units")
        return rows.where("row = 'operation'").where(is_in).select("minute", "stage", units)


def _map(rows: DataFrame, act: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> DataFrame:
    """What is made of rows, some at a time."""

    def each(batches: ArrowBatches) -> ArrowBatches:
        for batch in batches:
            yield from act(pa.Table.from_batches([batch])).to_batches()

    return rows.mapInArrow(each, from_arrow_schema(schema))

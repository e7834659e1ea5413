"""The ledger as a bill reads it: the briefs of its days, and the rows of what has none.

Days of version 0.1.0 and objects of a store have no brief: their rows are summed up each time. So are
those of a day whose brief was damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pairbus.cost.outages import OutageBook
from pairbus.ledger.operations import EARLIEST, latest_at
from pairbus.stores.places import RecordPlace

from .day_brief import (
    MARKS,
    NEEDED,
    NUMBERS,
    USAGE,
    attribute,
    begin_of,
    brief_of,
    has_brief,
    read_marks,
    read_rows,
    read_sums,
    refuse_edited,
)
from .objects import ArrowBatches
from .operations import OpenSpark, day_directories, load_days, load_objects

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TICKED = ("row", "minute", "stage", "count", "size_class")
_TICKS = pa.schema([("at", pa.int64()), ("stage", pa.string()), ("units", pa.int64())])


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

    open_spark: OpenSpark
    records: RecordPlace
    days: list[Path]
    #: Days that have no brief.
    rest: list[Path]
    #: By what time what is dated later is a wrong clock's.
    now: float
    #: Those of `rest`, or of a store, once they are loaded.
    rows: DataFrame | None = None

    @classmethod
    def open(cls, open_spark: OpenSpark, records: RecordPlace, *, now: float) -> LedgerTable:
        """List all that was taken in."""
        days = day_directories(records)
        brief = [day for day in days if has_brief(day)]
        rest = [day for day in days if day not in brief]
        return cls(open_spark, records, brief, rest, now)

    def load(self) -> LedgerTable:
        """The same with its rows. Not while it is listed: Spark's error for a day that is gone is its own."""
        place = self.records
        if isinstance(place, Path):
            return self._replace(rows=load_days(self.open_spark, self.rest))
        return self._replace(rows=load_objects(self.open_spark(), place))

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

    def usage(self, book: OutageBook, span: BillSpan) -> Iterator[pa.Table]:
        """Operations of a time, as `USAGE` has them, day by day; what has no brief comes in one piece."""
        now, dated = self.now, self._dated(span)

        def attributed(sums: pa.Table) -> pa.Table:
            return attribute(dated(sums, "slot"), book)

        for day in self.days:
            yield attributed(read_sums(day))
        if self.rows is not None:
            rest = _map(
                self.rows.select(NEEDED), lambda rows: attributed(brief_of(rows, now=now).sums), USAGE
            )
            keys = [name for name in USAGE.names if name not in NUMBERS]
            summed = rest.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in NUMBERS))
            yield summed.toArrow().cast(USAGE)

    def ticks(self, span: BillSpan, step: int) -> pa.Table:
        """Units of a time, by steps and stages: `at`, `stage`, `units`."""
        dated = self._dated(span)

        def tick(rows: pa.Table) -> pa.Table:
            done = dated(rows.filter(pc.equal(rows["row"], "operation")), "minute")
            units = pc.multiply(done["count"], done["size_class"])
            return _add_ticks(pa.table([begin_of(done["minute"], step), done["stage"], units], schema=_TICKS))

        for day in self.days:
            refuse_edited(day)
        found = [tick(rows) for day in self.days for rows in read_rows(day, _TICKED)]
        if self.rows is not None:
            found.append(_map(self.rows.select(*_TICKED), tick, _TICKS).toArrow().cast(_TICKS))
        return _add_ticks(pa.concat_tables(found))

    def _dated(self, span: BillSpan) -> Callable[[pa.Table, str], pa.Table]:
        """What leaves of a table the rows of a time, by this column, that can be of it."""
        since, until = max(EARLIEST, span.since), min(int(latest_at(self.now)), span.before - 1)

        def dated(rows: pa.Table, column: str) -> pa.Table:
            moment = rows[column]
            return rows.filter(pc.and_(pc.greater_equal(moment, since), pc.less_equal(moment, until)))

        return dated


def _add_ticks(ticks: pa.Table) -> pa.Table:
    summed = ticks.group_by(["at", "stage"], use_threads=False).aggregate([("units", "sum")])
    return summed.rename_columns({"units_sum": "units"}).select(_TICKS.names)


def _map(rows: DataFrame, act: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> DataFrame:
    """What is made of rows, some at a time."""

    def each(batches: ArrowBatches) -> ArrowBatches:
        for batch in batches:
            yield from act(pa.Table.from_batches([batch])).to_batches()

    return rows.mapInArrow(each, from_arrow_schema(schema))

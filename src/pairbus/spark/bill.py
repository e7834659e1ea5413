"""The bill on Spark: the rules of `pairbus.cost.bill` carried out on ledgers that no one process can hold.

1. What is small is done by the rules themselves, in the driver: outages are put together there, and months
   are priced there. What is large stays on Spark: to attribute, derive, sum up and price.
2. Money is decimal all the way: a number of units by a price of eighteen decimals, which fits 38 digits.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import functions as F

from pairbus.cost.bill import (
    DERIVED,
    BillTerms,
    Extent,
    MonthBill,
    derive,
    hour_of,
    is_delivered,
    price_months,
)
from pairbus.cost.outages import Outage, find_tenures, merge_outages
from pairbus.cost.report import SUMS, WAYS, Report, Share, Tick, make_report, make_shares, step_for
from pairbus.cost.sheet import PriceSheet
from pairbus.cost.system import System
from pairbus.ledger.operations import Gap, OutageMark, WriterMark, find_gaps, sight_outages
from pairbus.plumbing.files import drafted, publish_directory
from pairbus.stages import Stage
from pairbus.stores.places import RecordPlace

from .operations import SegmentIntake, load_operations, take_segments

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_KEY = ("pair", "namespace", "entity", "stage", "hour", "outage", "derived")
_SUMS = SUMS[:-1]  # what is there before it is priced
_HOUR = 3600
# A writer that has not been heard of for so long is gone: some times the age of a segment.
_PATIENCE = 1800.0
_TENURES = pa.schema(
    [("of_pair", pa.string()), ("since", pa.int64()), ("before", pa.int64()), ("by_time", pa.string())]
)
_SIGHTINGS = pa.schema([("sighting", pa.string()), ("by_id", pa.string())])
_PRICES = pa.schema(
    [("month", pa.string()), ("unit_price", pa.decimal128(19, 18)), ("byte_price", pa.decimal128(19, 18))]
)


@dataclass(frozen=True, slots=True)
class BillRun:
    """A report, and what was taken in for it."""

    report: Report
    intake: SegmentIntake


def bill_ledger(
    spark: SparkSession,
    records: RecordPlace,
    sheet: PriceSheet,
    *,
    now: float,
    terms: BillTerms | None = None,
    system: System | None = None,
    month: str | None = None,
    out: Path | None = None,
) -> BillRun:
    """Take in what is new, and bill all that there is, or one month of it (`2026-11`).

    With `out` the lines are written there, as Parquet and as CSV.
    """
    terms = terms or BillTerms()
    intake = take_segments(spark, records)
    rows = load_operations(spark, records, now=now)
    if rows is None:
        nothing: dict[str, list[Share]] = {way: [] for way in WAYS}
        return BillRun(
            make_report(sheet, months=[], shares=nothing, outages=[], timeline=[], hours=[]), intake
        )
    marks = _read_marks(rows, month, now=now)
    usage = _usage(rows, month)
    recorded = _sum_up(_attribute(spark, usage, marks.outages)).cache()
    sums = _with_derived(recorded, terms).cache()
    try:
        extents, hours = _measure(sums)
        months = price_months(extents, sheet, same_region=terms.same_region)
        lines = _price(spark, sums, months)
        if out is not None:
            _write(lines, out)
        report = make_report(
            sheet,
            months=[months[name] for name in sorted(months)],
            shares=_shares(lines),
            outages=marks.outages,
            timeline=_timeline(usage, recorded, step_for(hours)),
            hours=hours,
            gaps=marks.gaps,
            bad_rows=marks.bad,
            system=system,
        )
    finally:
        sums.unpersist()
        recorded.unpersist()
    return BillRun(report, intake)


@dataclass(frozen=True, slots=True)
class _Marks:
    outages: list[Outage]
    gaps: list[Gap]
    bad: int


def _read_marks(rows: DataFrame, month: str | None, *, now: float) -> _Marks:
    marks = [
        OutageMark(**{name: row[name] for name in OutageMark.__slots__})
        for row in rows.where("row = 'outage'").collect()
    ]
    # Of each writer the last mark, and the end if there is one: a year of heartbeats stays on Spark.
    is_end = F.coalesce(F.col("phase") == "end", F.lit(False)).alias("is_end")
    # A line that cannot be read is of the month of its segment.
    counts = F.lit(True) if month is None else (F.col("row") == "writer") | (_month("at") == month)
    of_writers = rows.where("row IN ('writer', 'bad')").where(counts).groupBy("row", "writer", is_end)
    fields = F.struct(*WriterMark.__slots__)
    last = of_writers.agg(F.max_by(fields, "at").alias("mark"), F.count("*").alias("number")).collect()
    writers = [WriterMark(**row["mark"].asDict()) for row in last if row["row"] == "writer"]
    return _Marks(
        merge_outages(sight_outages(marks, writers, now=now, patience=_PATIENCE)),
        find_gaps(writers, now=now, patience=_PATIENCE),
        sum(row["number"] for row in last if row["row"] == "bad"),
    )


def _small_table(spark: SparkSession, schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """A table that the driver sends along with the query, and that takes no job to make."""
    named = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return F.broadcast(spark.createDataFrame(pa.Table.from_pylist(named, schema=schema)))


def _usage(rows: DataFrame, month: str | None) -> DataFrame:
    operations = rows.where("row = 'operation'")
    if month is not None:
        operations = operations.where(_month("minute") == month)
    return operations.select(
        "pair", "role", "namespace", "entity", "stage", "kind", "minute", "outage", "count",
        (F.col("count") * F.col("size_class")).alias("units"), "unknown", "bytes",
    )  # fmt: skip


def _attribute(spark: SparkSession, usage: DataFrame, outages: Sequence[Outage]) -> DataFrame:
    """Give each usage the name of its outage."""
    if not outages:
        return usage.withColumn("outage", F.lit(None).cast("string"))
    names = [(identity, one.name) for one in outages for identity in one.ids]
    by_id = _small_table(spark, _SIGHTINGS, names)
    by_time = _small_table(spark, _TENURES, find_tenures(outages))
    moving = (F.col("role") == "pump") & F.col("stage").isin(
        *(stage.value for stage in Stage if stage.traits.moves)
    )
    is_of = (
        (F.col("pair") == F.col("of_pair"))
        & (F.col("minute") >= F.col("since"))
        & (F.col("minute") < F.col("before"))
    )
    named = usage.join(by_time, is_of, "left").join(by_id, F.col("outage") == F.col("sighting"), "left")
    of_pump = F.when(moving & F.col("outage").isNull(), F.col("by_time"))
    return named.withColumn("outage", F.coalesce(F.col("by_id"), of_pump)).select(usage.columns)


def _sum_up(usage: DataFrame) -> DataFrame:
    """What was recorded, by hours: the only look at every record."""
    delivered = is_delivered(F.col("stage"), F.col("kind")).alias("delivered")
    hour = hour_of(F.col("minute")).alias("hour")
    return usage.groupBy("pair", "namespace", "entity", "stage", hour, "outage", delivered).agg(*_sums())


def _sums() -> list[Column]:
    return [F.sum(name).alias(name) for name in _SUMS]


def _with_derived(recorded: DataFrame, terms: BillTerms) -> DataFrame:
    """And what follows from it. A derived number is a multiple, so that one of sums is the sum of theirs."""
    columns = (*_KEY, *_SUMS)
    every = recorded.withColumn("derived", F.lit(False)).select(*columns)
    delivered = recorded.where("delivered").withColumns(
        {
            **{name: F.col(name) * _copies(terms) for name in ("count", "units", "bytes")},
            "unknown": F.lit(0).cast("long"),
            "derived": F.lit(True),
        }
    )
    for stage in DERIVED:
        count, units, size = derive(stage, count=F.col("count"), units=F.col("units"), size=F.col("bytes"))
        numbers = {"stage": F.lit(stage.value), "count": count, "units": units, "bytes": size}
        every = every.unionByName(delivered.withColumns(numbers).select(*columns))
    return every.groupBy(*_KEY).agg(*_sums())


def _copies(terms: BillTerms) -> Column:
    copies: Column = F.lit(1)
    for entity, number in terms.copies.items():
        copies = F.when(F.lower("entity") == entity, number).otherwise(copies)
    return copies


def _month(of: str = "hour") -> Column:
    return F.date_format(F.timestamp_seconds(of), "yyyy-MM")


def _measure(sums: DataFrame) -> tuple[dict[str, Extent], list[int]]:
    """What each month holds, and all hours that have records."""
    found = sums.groupBy(_month().alias("month")).agg(
        F.sum("units").alias("units"), F.collect_set("hour").alias("hours")
    )
    extents, hours = {}, []
    for row in found.collect():
        extents[row["month"]] = Extent(row["units"], min(row["hours"]), max(row["hours"]))
        hours += row["hours"]
    return extents, hours


def _price(spark: SparkSession, sums: DataFrame, months: dict[str, MonthBill]) -> DataFrame:
    prices = _small_table(
        spark, _PRICES, [(one.month, one.unit_price, one.byte_price) for one in months.values()]
    )
    crossing = F.col("stage").isin(*(stage.value for stage in Stage if stage.traits.crosses))
    carried = F.when(crossing, F.col("bytes")).otherwise(0)
    # Each product is exact. A sum of two that were 38 digits wide would lose the last one.
    cost = _product(F.col("units"), F.col("unit_price")) + _product(carried, F.col("byte_price"))
    return (
        sums.withColumn("month", _month()).join(prices, "month").withColumn("cost", cost).select(*_KEY, *SUMS)
    )


def _product(number: Column, price: Column) -> Column:
    return (number.cast("decimal(18,0)") * price).cast("decimal(37,18)")


def _shares(lines: DataFrame) -> dict[str, list[Share]]:
    """Sum up in all ways at once."""
    columns = sorted({name for names in WAYS.values() for name in names})
    sets = [[F.col(name) for name in names] for names in WAYS.values()]
    which = F.grouping_id(*columns).alias("which")
    sums = [F.sum(name).alias(name) for name in SUMS]
    rows = lines.groupingSets(sets, *columns).agg(which, *sums).collect()
    return {
        way: make_shares(way, (row.asDict() for row in rows if row["which"] == _mask(columns, names)))
        for way, names in WAYS.items()
    }


def _mask(columns: Sequence[str], names: Sequence[str]) -> int:
    """What Spark calls a set of columns: a bit for each that is not in it, the first one the highest."""
    return sum((name not in names) << place for place, name in enumerate(reversed(columns)))


def _timeline(usage: DataFrame, recorded: DataFrame, step: int) -> list[Tick]:
    """What each stage used, step by step. Steps of whole hours are sums of what was summed up already."""
    moments, of = (usage, "minute") if step % _HOUR else (recorded, "hour")
    at = (F.col(of) - F.col(of) % step).alias("at")
    rows = moments.groupBy(at, "stage").agg(F.sum("units").alias("units")).collect()
    return sorted(Tick(row["at"], Stage[row["stage"].upper()], row["units"]) for row in rows)


def _write(lines: DataFrame, out: Path) -> None:
    """Put the lines there, whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    fresh, final = out / ".lines.parquet", out / "lines.parquet"
    shutil.rmtree(fresh, ignore_errors=True)
    lines.coalesce(1).sortWithinPartitions(*_KEY).write.parquet(str(fresh))
    shutil.rmtree(final, ignore_errors=True)
    publish_directory(fresh, final)
    with (
        drafted(out / "lines.csv") as descriptor,
        open(descriptor, "w", encoding="utf-8", newline="", closefd=False) as file,
    ):
        writer = csv.writer(file)
        writer.writerow((*_KEY, *SUMS))
        for batch in parquet.ParquetDataset(final).fragments[0].to_batches():
            writer.writerows(map(_cells, batch.to_pylist()))


def _cells(row: dict[str, Any]) -> list[str]:
    hour = datetime.fromtimestamp(row["hour"], UTC).isoformat()
    # A decimal zero would call itself 0E-18.
    cost = f"{row['cost']:f}"
    values = {**row, "hour": hour, "derived": "yes" if row["derived"] else "", "cost": cost}
    return ["" if values[name] is None else f"{values[name]}" for name in (*_KEY, *SUMS)]

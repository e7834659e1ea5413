"""The bill on Spark: the same rules as `pairbus.cost.bill`, for ledgers that no one process can hold.

1. What is small is done by the rules themselves, in the driver: outages are put together there, and months
   are priced there. What is large stays on Spark: to attribute, derive, sum up and price.
2. Money is decimal all the way: a number of units by a price of eighteen decimals, which fits 38 digits.
"""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import functions as F

from pairbus.cost.bill import CROSSING, HOUR, BillTerms, Extent, MonthBill, price_months
from pairbus.cost.report import Report, Share, Span, Tick, bucket_for, forecast_stages, order_shares
from pairbus.cost.sheet import PriceSheet
from pairbus.cost.system import System
from pairbus.cost.usage import MOVING, Outage, OutageSighting, first_minute, merge_outages
from pairbus.ledger.operations import OutageMark, WriterMark, find_gaps, sight_outages
from pairbus.plumbing.files import drafted, publish_directory
from pairbus.stages import Stage

from .operations import SegmentIntake, load_operations, take_segments

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["BillRun", "bill_ledger"]

_KEY = ("pair", "namespace", "entity", "stage", "hour", "outage", "derived")
_SUMS = ("count", "units", "unknown", "bytes")
# A writer that has not been heard of for so long is gone: some times the age of a segment.
_PATIENCE = 1800.0
_TENURES = pa.schema(
    [("of_pair", pa.string()), ("since", pa.int64()), ("before", pa.int64()), ("by_time", pa.string())]
)
_SIGHTINGS = pa.schema([("sighting", pa.string()), ("by_id", pa.string())])
_PRICES = pa.schema(
    [("month", pa.string()), ("unit_price", pa.decimal128(19, 18)), ("byte_price", pa.decimal128(19, 18))]
)
# What a line belongs to, by the ways in which lines are summed up.
_WAYS = {
    "pair": ["pair"],
    "entity": ["entity", "pair"],
    "stage": ["stage", "derived"],
    "outage": ["outage", "pair"],
}
_NO_SHARES: Mapping[str, Sequence[Share]] = dict.fromkeys(_WAYS, ())


@dataclass(frozen=True, slots=True)
class BillRun:
    """A report, and what was taken in for it."""

    report: Report
    intake: SegmentIntake


def bill_ledger(
    spark: SparkSession,
    records: Path,
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
    rows = load_operations(spark, records)
    if rows is None:
        return BillRun(_report(sheet, months=[], shares=_NO_SHARES, outages=[], timeline=[]), intake)
    marks = _read_marks(rows, now=now)
    usage = _attribute(spark, _usage(rows, month), marks.outages)
    sums = _sum_up(usage, terms).cache()
    try:
        extents, hours = _measure(sums)
        months = price_months(extents, sheet, same_region=terms.same_region)
        lines = _price(spark, sums, months)
        if out is not None:
            _write(lines, out)
        shares = _shares(lines)
        step, timeline = _timeline(usage, hours)
    finally:
        sums.unpersist()
    report = _report(
        sheet,
        months=[months[name] for name in sorted(months)],
        shares=shares,
        outages=marks.outages,
        timeline=timeline,
    )
    expected = () if system is None else forecast_stages(system, sheet, by_stage=shares["stage"], hours=hours)
    return BillRun(replace(report, step=step, gaps=marks.gaps, bad_rows=marks.bad, forecast=expected), intake)


def _report(
    sheet: PriceSheet,
    *,
    months: Sequence[MonthBill],
    shares: Mapping[str, Sequence[Share]],
    outages: Sequence[Outage],
    timeline: Sequence[Tick],
) -> Report:
    return Report(
        currency=sheet.currency,
        prices_as_of=sheet.as_of.isoformat(),
        months=months,
        by_pair=shares["pair"],
        by_entity=shares["entity"],
        by_stage=shares["stage"],
        by_outage=shares["outage"],
        outages=outages,
        timeline=timeline,
        step=60,
    )


@dataclass(frozen=True, slots=True)
class _Marks:
    outages: list[Outage]
    gaps: list[Span]
    bad: int


def _read_marks(rows: DataFrame, *, now: float) -> _Marks:
    marks = [
        OutageMark(**{name: row[name] for name in OutageMark.__slots__})
        for row in rows.where("row = 'outage'").collect()
    ]
    # Of each writer the last mark, and the end if there is one: a year of heartbeats stays on Spark.
    is_end = F.coalesce(F.col("phase") == "end", F.lit(False)).alias("is_end")
    of_writers = rows.where("row IN ('writer', 'bad')").groupBy("row", "writer", is_end)
    fields = F.struct(*WriterMark.__slots__)
    last = of_writers.agg(F.max_by(fields, "at").alias("mark"), F.count("*").alias("number")).collect()
    writers = [WriterMark(**row["mark"].asDict()) for row in last if row["row"] == "writer"]
    sightings = [
        OutageSighting(id=one.outage, pair=one.pair, begins=one.begins, ends=one.ends)
        for one in sight_outages(marks, writers, now=now, patience=_PATIENCE)
    ]
    gaps = find_gaps(writers, now=now, patience=_PATIENCE)
    return _Marks(
        merge_outages(sightings),
        [Span(gap.writer, gap.pair, gap.begins, gap.ends) for gap in gaps],
        sum(row["number"] for row in last if row["row"] == "bad"),
    )


def _small_table(spark: SparkSession, schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> DataFrame:
    """A table that the driver sends along with the query, and that takes no job to make."""
    named = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return F.broadcast(spark.createDataFrame(pa.Table.from_pylist(named, schema=schema)))


def _usage(rows: DataFrame, month: str | None) -> DataFrame:
    operations = rows.where("row = 'operation'")
    if month is not None:
        operations = operations.where(F.date_format(F.timestamp_seconds("minute"), "yyyy-MM") == month)
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
    by_time = _small_table(spark, _TENURES, _tenures(outages))
    moving = (F.col("role") == "pump") & F.col("stage").isin(*(stage.value for stage in MOVING))
    is_of = (
        (F.col("pair") == F.col("of_pair"))
        & (F.col("minute") >= F.col("since"))
        & (F.col("minute") < F.col("before"))
    )
    named = usage.join(by_time, is_of, "left").join(by_id, F.col("outage") == F.col("sighting"), "left")
    of_pump = F.when(moving & F.col("outage").isNull(), F.col("by_time"))
    return named.withColumn("outage", F.coalesce(F.col("by_id"), of_pump)).select(usage.columns)


def _tenures(outages: Sequence[Outage]) -> Iterable[tuple[str, int, int, str]]:
    """From when until when an outage is the last one of its pair to have begun."""
    ordered = sorted(outages, key=lambda one: (one.pair, one.begins))
    for one, after in zip(ordered, [*ordered[1:], None], strict=True):
        is_last = after is None or after.pair != one.pair
        until = 1 << 62 if is_last or after is None else first_minute(after)
        yield one.pair, first_minute(one), until, one.name


def _sum_up(usage: DataFrame, terms: BillTerms) -> DataFrame:
    hourly = usage.withColumns(
        {"hour": F.floor(F.col("minute") / HOUR).cast("long") * HOUR, "derived": F.lit(False)}
    )
    sent = hourly.where("stage = 'send' AND kind = 'send'").withColumns(
        {"copies": _copies(terms), "derived": F.lit(True), "unknown": F.lit(0).cast("long")}
    )
    received = sent.withColumns(
        {
            "stage": F.lit("receive"),
            **{name: F.col(name) * F.col("copies") for name in ("count", "units", "bytes")},
        }
    )
    completed = sent.withColumns(
        {
            "stage": F.lit("complete"),
            "units": F.col("count") * F.col("copies"),
            "count": F.col("count") * F.col("copies"),
            "bytes": F.lit(0).cast("long"),
        }
    )
    columns = (*_KEY, *_SUMS)
    every = (
        hourly.select(*columns).unionByName(received.select(*columns)).unionByName(completed.select(*columns))
    )
    return every.groupBy(*_KEY).agg(*(F.sum(name).alias(name) for name in _SUMS))


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
    crossing = F.col("stage").isin(*(stage.value for stage in CROSSING))
    carried = F.when(crossing, F.col("bytes")).otherwise(0)
    # Each product is exact. A sum of two that were 38 digits wide would lose the last one.
    cost = _product(F.col("units"), F.col("unit_price")) + _product(carried, F.col("byte_price"))
    return (
        sums.withColumn("month", _month())
        .join(prices, "month")
        .withColumn("cost", cost)
        .select(*_KEY, *_SUMS, "cost")
    )


def _product(number: Column, price: Column) -> Column:
    return (number.cast("decimal(18,0)") * price).cast("decimal(37,18)")


def _shares(lines: DataFrame) -> dict[str, list[Share]]:
    """Sum up in all ways at once."""
    columns = sorted({name for names in _WAYS.values() for name in names})
    sets = [[F.col(name) for name in names] for names in _WAYS.values()]
    which = F.grouping_id(*columns).alias("which")
    sums = [F.sum(name).alias(name) for name in (*_SUMS, "cost")]
    rows = lines.groupingSets(sets, *columns).agg(which, *sums).collect()
    shares: dict[str, list[Share]] = {way: [] for way in _WAYS}
    for row in rows:
        way = next(way for way, names in _WAYS.items() if _mask(columns, names) == row["which"])
        if row[way] is not None:
            shares[way].append(_share(row, way))
    return {way: order_shares(some, way) for way, some in shares.items()}


def _mask(columns: Sequence[str], names: Sequence[str]) -> int:
    """What Spark calls a set of columns: a bit for each that is not in it, the first one the highest."""
    return sum((name not in names) << place for place, name in enumerate(reversed(columns)))


def _share(row: Any, way: str) -> Share:
    names = _WAYS[way]
    return Share(
        name=Stage[row["stage"].upper()].words if way == "stage" else row[way],
        pair=row["pair"] if "pair" in names else "",
        derived=row["derived"] if "derived" in names else False,
        cost=row["cost"],
        **{name: row[name] for name in _SUMS},
    )


def _timeline(usage: DataFrame, hours: Sequence[int]) -> tuple[int, list[Tick]]:
    step = bucket_for(max(hours) + HOUR - min(hours)) if hours else 60
    at = (F.floor(F.col("minute") / step).cast("long") * step).alias("at")
    rows = usage.groupBy(at, "stage").agg(F.sum("units").alias("units")).orderBy("at").collect()
    ticks = [Tick(row["at"], Stage[row["stage"].upper()], row["units"]) for row in rows]
    return step, sorted(ticks, key=lambda tick: (tick.at, tick.stage.value))


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
        writer.writerow((*_KEY, *_SUMS, "cost"))
        for batch in parquet.ParquetDataset(final).fragments[0].to_batches():
            writer.writerows(map(_cells, batch.to_pylist()))


def _cells(row: dict[str, Any]) -> list[str]:
    hour = datetime.fromtimestamp(row["hour"], UTC).isoformat()
    values = {**row, "hour": hour, "derived": "yes" if row["derived"] else ""}
    return ["" if values[name] is None else f"{values[name]}" for name in (*_KEY, *_SUMS, "cost")]

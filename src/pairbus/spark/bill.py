"""The bill on Spark: the rules of `pairbus.cost.bill` carried out on ledgers that no one process can hold.

1. What is large stays on Spark: tasks read the ledger's briefs and name the outages of what was used
   (`ledger_table`); it is derived and summed up in one shuffle, and written as lines.
2. What is small is done by the rules themselves, in the driver: outages are put together there, and months
   are priced there, when the lines are read once for what they come to (`bill_lines`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pairbus.cost.bill import DERIVED, BillTerms, derive, is_delivered
from pairbus.cost.outages import Outage, OutageBook, merge_outages
from pairbus.cost.report import WAYS, Report, Share, Tick, make_report, step_for
from pairbus.cost.sheet import PriceSheet
from pairbus.cost.system import System
from pairbus.ledger.operations import find_gaps, lock_of, sight_outages
from pairbus.ledger.rereading import read_steadily
from pairbus.stages import Stage
from pairbus.stores.places import RecordPlace, StoreUri

from .bill_lines import KEY, NUMBERS, BillLines
from .day_brief import judge_marks
from .ledger_table import BillSpan, LedgerTable
from .operations import SegmentIntake, take_segments

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HOUR = 3600
# A writer that has not been heard of for so long is gone: some times the age of a segment.
_PATIENCE = 1800.0


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
    """Take in what is new, and bill all, or one month (`2026-11`); with `out` lines go there, too."""
    intake = take_segments(spark, records, now=now)
    reckon = partial(
        _reckon,
        sheet=sheet,
        terms=terms or BillTerms(),
        system=system,
        span=BillSpan.of_month(month),
        out=out,
    )
    if isinstance(records, StoreUri):
        return BillRun(reckon(LedgerTable.open(spark, records, now=now)), intake)
    report = read_steadily(
        lambda: LedgerTable.open(spark, records, now=now),
        reckon,
        lock=lock_of(records),
        directory=records,
        rival="another report on the ledger",
    )
    return BillRun(report, intake)


def _reckon(
    ledger: LedgerTable,
    *,
    sheet: PriceSheet,
    terms: BillTerms,
    system: System | None,
    span: BillSpan,
    out: Path | None,
) -> Report:
    ledger = ledger.load()
    if ledger.is_empty:
        nothing: dict[str, list[Share]] = {way: [] for way in WAYS}
        return make_report(sheet, months=[], shares=nothing, outages=[], timeline=[], hours=[])
    now = ledger.now
    marks = judge_marks(ledger.marks(), now=now, since=span.since, before=span.before)
    outages = merge_outages(sight_outages(marks.outages, marks.writers, now=now, patience=_PATIENCE))
    gaps = find_gaps(marks.writers, now=now, patience=_PATIENCE)
    with _scratch(out) as draft:
        usage = ledger.usage(OutageBook(outages), span)
        # In one file: so whoever opens the lines wants them, and the driver reads them once.
        _sum_up(usage, terms).coalesce(1).sortWithinPartitions(*KEY).write.parquet(str(draft))
        lines = BillLines.price(draft, sheet, same_region=terms.same_region, out=out)
    return make_report(
        sheet,
        months=lines.months,
        shares=lines.shares,
        outages=_seen_in(span, outages, lines),
        timeline=_timeline(ledger, lines),
        hours=lines.hours,
        gaps=[gap for gap in gaps if span.touches(gap.begins, gap.ends)],
        bad_rows=marks.bad,
        system=system,
    )


@contextmanager
def _scratch(out: Path | None) -> Iterator[Path]:
    """Where lines lie that have no price yet; on the same disk, since there may be many."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".lines-") as directory:
        yield Path(directory) / "lines"


def _seen_in(span: BillSpan, outages: Sequence[Outage], lines: BillLines) -> list[Outage]:
    """Those that were in a time, or that something of it is paid for."""
    paid = {share.name for share in lines.shares["outage"]}
    return [one for one in outages if one.name in paid or span.touches(one.begins, one.ends)]


def _sum_up(usage: DataFrame, terms: BillTerms) -> DataFrame:
    """What was used and what follows from it, by hours. A derived number is a multiple, so of sums, too."""
    own = _line("stage", [F.col(name) for name in NUMBERS], derived=False)
    count, units, size = (F.col(name) * _copies(terms) for name in ("count", "units", "bytes"))
    follow = []
    for stage in DERIVED:
        its_count, its_units, its_size = derive(stage, count=count, units=units, size=size)
        follow.append(_line(F.lit(stage.value), [its_count, its_units, F.lit(0), its_size], derived=True))
    is_followed = is_delivered(F.col("stage"), F.col("kind"))
    lines = F.when(is_followed, F.array(own, *follow)).otherwise(F.array(own))
    single = usage.select("pair", "namespace", "entity", "role", "hour", "outage", F.inline(lines))
    return single.groupBy(*KEY).agg(*(F.sum(name).alias(name) for name in NUMBERS))


def _line(stage: Column | str, numbers: Sequence[Column], *, derived: bool) -> Column:
    named = [number.cast("long").alias(name) for name, number in zip(NUMBERS, numbers, strict=True)]
    of_stage = F.col(stage) if isinstance(stage, str) else stage
    return F.struct(of_stage.alias("stage"), F.lit(derived).alias("derived"), *named)


def _copies(terms: BillTerms) -> Column:
    if not terms.copies:
        return F.lit(1)
    # One table, not a condition for each: there may be many.
    named = F.create_map(*(F.lit(cell) for item in terms.copies.items() for cell in item))
    return F.coalesce(F.try_element_at(named, F.lower("entity")), F.lit(1))


def _timeline(ledger: LedgerTable, lines: BillLines) -> list[Tick]:
    """What each stage used, step by step. Only steps below an hour take another look at the records."""
    step = step_for(lines.hours)
    if step % _HOUR == 0 or not lines.hours:
        return lines.timeline(step)
    span = BillSpan(min(lines.hours), max(lines.hours) + _HOUR)
    at = (F.col("minute") - F.col("minute") % step).alias("at")
    rows = ledger.minutes(span).groupBy(at, "stage").agg(F.sum("units").alias("units")).collect()
    return sorted(Tick(row["at"], Stage[row["stage"].upper()], row["units"]) for row in rows)

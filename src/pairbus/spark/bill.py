"""The bill of a large ledger: the rules of `pairbus.cost.bill` carried out on columns.

1. What is large is done by Spark: segments are taken in (`operations`), and rows that have no sums yet are
   summed up by the hour (`ledger_table`).
2. Sums are small, and billed by Arrow in the driver: their outages are named, what follows from them is
   derived, and the lines are priced (`bill_lines`). So a report on what was taken in before needs no Spark,
   and starts none.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from pairbus.cost.bill import DERIVED, BillTerms, derive, is_delivered
from pairbus.cost.outages import Outage, OutageBook, merge_outages
from pairbus.cost.report import WAYS, Report, Share, Tick, make_report, step_for
from pairbus.cost.sheet import PriceSheet
from pairbus.cost.system import System
from pairbus.errors import PairbusError
from pairbus.ledger.operations import find_gaps, lock_of, sight_outages
from pairbus.ledger.rereading import read_steadily
from pairbus.ledger.row_runs import find_missing
from pairbus.stages import Stage
from pairbus.stores.places import RecordPlace, StoreUri

from .bill_lines import DRAFT, KEY, BillLines
from .day_brief import add_up, judge_marks, refuse_damaged
from .ledger_table import BillSpan, LedgerTable
from .operations import OpenSpark, SegmentIntake, day_directories, ledger_since, take_segments

_HOUR = 3600
# A writer that has not been heard of for so long is gone: some times the age of a segment.
_PATIENCE = 1800.0


@dataclass(frozen=True, slots=True)
class BillRun:
    """A report, and what was taken in for it."""

    report: Report
    intake: SegmentIntake


def bill_ledger(
    open_spark: OpenSpark,
    records: RecordPlace,
    sheet: PriceSheet,
    *,
    now: float,
    terms: BillTerms | None = None,
    system: System | None = None,
    month: str | None = None,
    out: Path | None = None,
) -> BillRun:
    """Take in what is new, and bill all, or one month (`2026-11`); with `out` lines go there, too.

    `open_spark` is called where there is work for Spark, perhaps several times.
    """
    with _damage_told(records):
        intake = take_segments(open_spark, records, now=now)
        reckon = partial(
            _reckon,
            sheet=sheet,
            terms=terms or BillTerms(),
            system=system,
            span=BillSpan.of_month(month),
            out=out,
        )
        if isinstance(records, StoreUri):
            return BillRun(reckon(LedgerTable.open(open_spark, records, now=now)), intake)
        report = read_steadily(
            lambda: LedgerTable.open(open_spark, records, now=now),
            reckon,
            lock=lock_of(records),
            directory=records,
            rival="another report on the ledger",
        )
        return BillRun(report, intake)


@contextmanager
def _damage_told(records: RecordPlace) -> Iterator[None]:
    """Name the file, where the reason why something fails is one that is damaged."""
    try:
        yield
    except PairbusError:
        raise
    except Exception:
        for day in day_directories(records):
            refuse_damaged(day)
        raise


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
    kept = ledger_since(ledger.records)
    drafts = [_draft(used, terms) for used in ledger.usage(OutageBook(outages), span)]
    draft = add_up(pa.concat_tables([DRAFT.empty_table(), *drafts]), DRAFT)
    ordered = draft.sort_by([(name, "ascending") for name in KEY])
    lines = BillLines.price(ordered, sheet, same_region=terms.same_region, out=out)
    return make_report(
        sheet,
        months=lines.months,
        shares=lines.shares,
        outages=_seen_in(span, outages, lines),
        timeline=_timeline(ledger, lines),
        hours=lines.hours,
        gaps=[gap for gap in gaps if span.touches(gap.begins, gap.ends)],
        missing=find_missing(marks.runs, kept=kept, since=span.since, before=span.before),
        bad_rows=marks.bad,
        system=system,
    )


def _seen_in(span: BillSpan, outages: Sequence[Outage], lines: BillLines) -> list[Outage]:
    """Those that were in a time, or that something of it is paid for."""
    paid = {share.name for share in lines.shares["outage"]}
    return [one for one in outages if one.name in paid or span.touches(one.begins, one.ends)]


def _draft(usage: pa.Table, terms: BillTerms) -> pa.Table:
    """What was used and what follows from it, by hours. A derived number is a multiple, so of sums, too."""
    is_followed = is_delivered(usage["stage"].to_numpy(), usage["kind"].to_numpy())
    sent = usage.filter(pa.array(is_followed, pa.bool_()))
    copies = pa.array(map(terms.copies_of, sent["entity"].to_pylist()), pa.int64())
    count, units, size = (
        pc.multiply_checked(sent[name], copies).to_numpy() for name in ("count", "units", "bytes")
    )
    parts = [_as_draft(usage, derived=False)]
    for stage in DERIVED:
        its_count, its_units, its_size = derive(stage, count=count, units=units, size=size)
        told = {"count": its_count, "units": its_units, "unknown": 0 * its_count, "bytes": its_size}
        parts.append(_as_draft(sent, derived=True, stage=pa.repeat(stage.value, len(sent)), **told))
    return add_up(pa.concat_tables(parts), DRAFT)


def _as_draft(usage: pa.Table, *, derived: bool, **instead: object) -> pa.Table:
    columns = {name: usage[name] for name in DRAFT.names if name != "derived"}
    return pa.table({**columns, "derived": pa.repeat(derived, len(usage)), **instead}).select(DRAFT.names)


def _timeline(ledger: LedgerTable, lines: BillLines) -> list[Tick]:
    """What each stage used, step by step. Only steps below an hour take another look at the records."""
    step = step_for(lines.hours)
    if step % _HOUR == 0 or not lines.hours:
        return lines.timeline(step)
    ticks = ledger.ticks(BillSpan(min(lines.hours), max(lines.hours) + _HOUR), step)
    return sorted(Tick(row["at"], Stage[row["stage"].upper()], row["units"]) for row in ticks.to_pylist())

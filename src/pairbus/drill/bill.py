"""The bill of a drill: the ledger of clients and syphon, priced, in the form of the result."""

from decimal import Decimal
from pathlib import Path

from pairbus.cost.bill import BillTerms, make_bill
from pairbus.cost.outages import merge_outages
from pairbus.cost.report import INCLUDED, Report, money, report_of
from pairbus.cost.sheet import PriceSheet
from pairbus.ledger.operations import KIND, read_operations, sight_outages
from pairbus.ledger.segment import adopt_segments, closed_segments
from pairbus.plumbing.wording import counted

from .result import Cost, CostLine

# All writers of a drill have ended when it is billed.
_PATIENCE = 60.0


def bill_in_memory(records: Path, sheet: PriceSheet, *, terms: BillTerms, now: float) -> Report:
    """The bill without Spark: by the same rules, for a ledger that fits into memory."""
    adopt_segments(records, KIND)
    ledger = read_operations(closed_segments(records, KIND), now=now)
    outages = merge_outages(sight_outages(ledger.outages, ledger.writers, now=now, patience=_PATIENCE))
    bill = make_bill(ledger.operations, outages, sheet, terms)
    return report_of(bill, ledger.operations, outages, sheet, bad_rows=ledger.bad)


def sum_up_cost(report: Report) -> Cost:
    """What the drill's own traffic cost, without the base charge of the namespaces."""
    in_outages = sum((share.cost for share in report.by_outage), Decimal(0))
    return Cost(
        currency=report.currency,
        prices_as_of=report.prices_as_of,
        total=money(report.used),
        in_outages=money(in_outages),
        operations=sum(share.count for share in report.by_stage),
        stages=tuple(
            CostLine(name=share.name, operations=share.count, cost=money(share.cost), derived=share.derived)
            for share in report.by_stage
        ),
        note=_note(report),
    )


def _note(report: Report) -> str:
    told = []
    if report.is_included:
        told.append(INCLUDED)
    if report.unknown:
        told.append(
            counted(report.unknown, "operation has", "operations have") + " an unknown outcome and no price"
        )
    if report.bad_rows:
        told.append(
            counted(report.bad_rows, "line of the ledger", "lines of the ledger") + " could not be read"
        )
    return "; ".join(told)

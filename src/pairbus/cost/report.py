"""A report: the lines of a bill summed up in the ways that people ask for, whoever has done the summing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from pairbus.stages import Stage

from .bill import HOUR, Bill, BillLine, MonthBill
from .estimate import estimate
from .sheet import PriceSheet
from .system import System
from .usage import Outage, Usage, month_of

__all__ = [
    "Forecast",
    "Report",
    "Share",
    "Span",
    "Tick",
    "bucket_for",
    "forecast_stages",
    "make_timeline",
    "money",
    "order_shares",
    "report_of",
    "summarize",
]

# A picture has room for about two hundred ticks.
_BUCKETS = ((3 * 3600, 60), (7 * 86400, 3600))
_DAY = 86400
_EXACT = Decimal("0.000001")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one name (of a pair, an entity, a stage, an outage) has of the bill."""

    name: str
    pair: str = ""
    derived: bool = False
    count: int = 0
    units: int = 0
    unknown: int = 0
    bytes: int = 0
    cost: Decimal = Decimal(0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "pair": self.pair,
            "derived": self.derived,
            "operations": self.count,
            "units": self.units,
            "unknown": self.unknown,
            "bytes": self.bytes,
            "cost": money(self.cost),
        }


@dataclass(frozen=True, slots=True)
class Tick:
    """What a stage used in one step of the time line."""

    at: int
    stage: Stage
    units: int


@dataclass(frozen=True, slots=True)
class Span:
    """A time that has a name: an outage, or a gap in the records of a writer."""

    name: str
    pair: str
    begins: float
    ends: float | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What was expected of a stage, and what came."""

    stage: Stage
    expected: int
    billed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that a page or a table shows."""

    currency: str
    prices_as_of: str
    months: Sequence[MonthBill]
    by_pair: Sequence[Share]
    by_entity: Sequence[Share]
    by_stage: Sequence[Share]
    by_outage: Sequence[Share]
    outages: Sequence[Outage]
    timeline: Sequence[Tick]
    step: int
    gaps: Sequence[Span] = ()
    bad_rows: int = 0
    forecast: Sequence[Forecast] = field(default_factory=tuple)

    @property
    def base(self) -> Decimal:
        return sum((month.base for month in self.months), Decimal(0))

    @property
    def used(self) -> Decimal:
        """What operations and transfer cost."""
        return sum((share.cost for share in self.by_stage), Decimal(0))

    @property
    def total(self) -> Decimal:
        return self.base + self.used

    @property
    def units(self) -> int:
        return sum(month.units for month in self.months)

    @property
    def unknown(self) -> int:
        return sum(share.unknown for share in self.by_stage)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; money as text."""
        return {
            "currency": self.currency,
            "prices_as_of": self.prices_as_of,
            "total": money(self.total),
            "base": money(self.base),
            "used": money(self.used),
            "units": self.units,
            "unknown": self.unknown,
            "bad_rows": self.bad_rows,
            "months": [
                {
                    "month": month.month,
                    "units": month.units,
                    "operations_cost": money(month.operations_cost),
                    "hours": month.hours,
                    "base": money(month.base),
                }
                for month in self.months
            ],
            "by_pair": [share.to_dict() for share in self.by_pair],
            "by_entity": [share.to_dict() for share in self.by_entity],
            "by_stage": [share.to_dict() for share in self.by_stage],
            "by_outage": [share.to_dict() for share in self.by_outage],
            "outages": [
                {"name": one.name, "pair": one.pair, "begins": one.begins, "ends": one.ends}
                for one in self.outages
            ],
            "gaps": [
                {"writer": gap.name, "pair": gap.pair, "begins": gap.begins, "ends": gap.ends}
                for gap in self.gaps
            ],
            "forecast": [
                {"stage": row.stage.words, "expected": row.expected, "billed": row.billed}
                for row in self.forecast
            ],
        }


def money(amount: Decimal) -> str:
    """Money as text, to a millionth: single operations cost less than a cent."""
    return str(amount.quantize(_EXACT, rounding=ROUND_HALF_EVEN))


def summarize(lines: Iterable[BillLine]) -> dict[str, list[Share]]:
    """Lines by pair, entity, stage and outage; the dearest first, and stages in their own order."""
    ways: dict[str, Callable[[BillLine], tuple[str, str, bool] | None]] = {
        "pair": lambda line: (line.pair, line.pair, False),
        "entity": lambda line: (line.entity, line.pair, False),
        "stage": lambda line: (line.stage.words, "", line.derived),
        "outage": lambda line: (line.outage, line.pair, False) if line.outage is not None else None,
    }
    sums: dict[str, dict[tuple[str, str, bool], Share]] = {way: {} for way in ways}
    for line in lines:
        for way, key_of in ways.items():
            key = key_of(line)
            if key is not None:
                before = sums[way].get(key) or Share(name=key[0], pair=key[1], derived=key[2])
                sums[way][key] = _plus(before, line)
    return {way: order_shares(shares.values(), way) for way, shares in sums.items()}


def _plus(share: Share, line: BillLine) -> Share:
    return replace(
        share,
        count=share.count + line.count,
        units=share.units + line.units,
        unknown=share.unknown + line.unknown,
        bytes=share.bytes + line.bytes,
        cost=share.cost + line.cost,
    )


def order_shares(shares: Iterable[Share], way: str) -> list[Share]:
    """As people want to read them."""
    if way == "stage":
        order = [stage.words for stage in Stage]
        return sorted(shares, key=lambda share: (order.index(share.name), share.derived))
    if way == "outage":
        return sorted(shares, key=lambda share: share.name)
    return sorted(shares, key=lambda share: (-share.cost, -share.units, share.pair, share.name))


def bucket_for(seconds: float) -> int:
    """The step of a time line that is so long."""
    return next((step for span, step in _BUCKETS if seconds <= span), _DAY)


def make_timeline(usages: Iterable[Usage], step: int) -> list[Tick]:
    """What each stage used, step by step."""
    sums: dict[tuple[int, Stage], int] = {}
    for usage in usages:
        key = (usage.minute // step * step, usage.stage)
        sums[key] = sums.get(key, 0) + usage.units
    return [
        Tick(at, stage, sums[at, stage]) for at, stage in sorted(sums, key=lambda key: (key[0], key[1].value))
    ]


def forecast_stages(
    system: System, sheet: PriceSheet, *, by_stage: Sequence[Share], hours: Sequence[int]
) -> list[Forecast]:
    """What the model expected of the days that have records, stage by stage, against what came."""
    days: dict[str, set[int]] = {}
    for hour in hours:
        days.setdefault(month_of(hour), set()).add(hour // _DAY)
    expected: dict[Stage, int] = {}
    for some in days.values():
        for row in estimate(replace(system, days=len(some)), sheet).stages:
            expected[row.stage] = expected.get(row.stage, 0) + row.operations
    billed: dict[str, int] = {}
    for share in by_stage:
        billed[share.name] = billed.get(share.name, 0) + share.units
    return [
        Forecast(stage, expected.get(stage, 0), billed.get(stage.words, 0))
        for stage in Stage
        if expected.get(stage) or billed.get(stage.words)
    ]


def report_of(
    bill: Bill,
    usages: Sequence[Usage],
    outages: Sequence[Outage],
    sheet: PriceSheet,
    *,
    gaps: Sequence[Span] = (),
    bad_rows: int = 0,
    system: System | None = None,
) -> Report:
    """A report on a bill that is in memory."""
    shares: Mapping[str, list[Share]] = summarize(bill.lines)
    hours = sorted({line.hour for line in bill.lines})
    step = bucket_for(hours[-1] + HOUR - hours[0]) if hours else 60
    return Report(
        currency=sheet.currency,
        prices_as_of=sheet.as_of.isoformat(),
        months=bill.months,
        by_pair=shares["pair"],
        by_entity=shares["entity"],
        by_stage=shares["stage"],
        by_outage=shares["outage"],
        outages=outages,
        timeline=make_timeline(usages, step),
        step=step,
        gaps=gaps,
        bad_rows=bad_rows,
        forecast=()
        if system is None
        else forecast_stages(system, sheet, by_stage=shares["stage"], hours=hours),
    )

"""A report: the lines of a bill summed up in the ways that people ask for, whoever has done the summing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any

from pairbus.ledger.operations import Gap
from pairbus.ledger.row_runs import MissingRows
from pairbus.stages import Stage

from .bill import Bill, BillLine, MonthBill, month_of
from .estimate import Alternative, estimate, tell_alternatives
from .outages import Outage, Usage
from .sheet import PriceSheet
from .system import System
from .transfer import RegionBytes, sum_transfer

#: The ways in which lines are summed up, and what a line belongs to in each of them.
WAYS: Mapping[str, tuple[str, ...]] = {
    "pair": ("pair",),
    "entity": ("entity", "pair"),
    "stage": ("stage", "derived"),
    "outage": ("outage", "pair"),
}
#: What of a line is summed up.
SUMS = ("count", "units", "unknown", "bytes", "cost")
# A picture has room for about two hundred ticks.
_BUCKETS = ((3 * 3600, 60), (7 * 86400, 3600))
_HOUR, _DAY = 3600, 86400


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

    @property
    def label(self) -> str:
        """The name, marked if it was derived and not recorded."""
        return f"{self.name} (derived)" if self.derived else self.name

    def to_dict(self) -> dict[str, Any]:
        told = {**asdict(self), "cost": money(self.cost)}
        return {"operations" if name == "count" else name: value for name, value in told.items()}


@dataclass(frozen=True, slots=True, order=True)
class Tick:
    """What a stage used in one step of the time line."""

    at: int
    stage: Stage
    units: int


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
    gaps: Sequence[Gap] = ()
    missing: Sequence[MissingRows] = ()
    bad_rows: int = 0
    forecast: Sequence[Forecast] = field(default_factory=tuple)
    alternatives: Sequence[Alternative] = ()

    @property
    def base(self) -> Decimal:
        return sum((month.base for month in self.months), Decimal(0))

    @property
    def used(self) -> Decimal:
        """What operations, transfer and writes cost."""
        return sum((share.cost for share in self.by_stage), Decimal(0))

    @property
    def total(self) -> Decimal:
        return self.base + self.used

    @property
    def units(self) -> int:
        return sum(month.units for month in self.months)

    @property
    def is_included(self) -> bool:
        """Whether there were so few operations that the base charge has them all."""
        return self.units > 0 and not any(month.operations_cost for month in self.months)

    @property
    def unknown(self) -> int:
        return sum(share.unknown for share in self.by_stage)

    @property
    def transfer(self) -> tuple[RegionBytes, ...]:
        return sum_transfer((_stage_of(share), share.bytes) for share in self.by_stage)

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
                    "transfer_cost": money(month.transfer_cost),
                    "store_writes": month.writes,
                    "store_cost": money(month.store_cost),
                    "hours": month.hours,
                    "base": money(month.base),
                    "total": money(month.total),
                }
                for month in self.months
            ],
            **{f"by_{way}": [share.to_dict() for share in getattr(self, f"by_{way}")] for way in WAYS},
            "outages": [
                {"name": one.name, "pair": one.pair, "begins": one.begins, "ends": one.ends}
                for one in self.outages
            ],
            "gaps": [asdict(gap) for gap in self.gaps],
            "missing": [asdict(one) for one in self.missing],
            "transfer": [asdict(one) for one in self.transfer],
            "alternatives": [{**asdict(other), "cost": money(other.cost)} for other in self.alternatives],
            "forecast": [{**asdict(row), "stage": row.stage.words} for row in self.forecast],
        }


#: Why operations that are billed cost nothing.
INCLUDED = "so few operations are included in the base charge of a namespace"


def money(amount: Decimal) -> str:
    """Money as text, to a millionth: single operations cost less than a cent."""
    return f"{amount:.6f}"


def summarize(lines: Sequence[BillLine]) -> dict[str, list[Share]]:
    """Lines by pair, entity, stage and outage."""
    shares = {}
    for way, names in WAYS.items():
        sums: dict[tuple[Any, ...], list[Any]] = {}
        for line in lines:
            found = sums.setdefault(tuple(getattr(line, name) for name in names), [0] * len(SUMS))
            for place, name in enumerate(SUMS):
                found[place] += getattr(line, name)
        rows = (dict(zip((*names, *SUMS), (*key, *sums[key]), strict=True)) for key in sums)
        shares[way] = make_shares(way, rows)
    return shares


def make_shares(way: str, rows: Iterable[Mapping[str, Any]]) -> list[Share]:
    """The shares of one way from its sums: the dearest first, stages in their own order."""
    _, *about = WAYS[way]
    shares = [
        Share(
            name=Stage[row[way].upper()].words if way == "stage" else row[way],
            **{name: row[name] for name in (*about, *SUMS)},
        )
        for row in rows
        if row[way] is not None
    ]
    if way == "stage":
        order = [stage.words for stage in Stage]
        return sorted(shares, key=lambda share: (order.index(share.name), share.derived))
    if way == "outage":
        return sorted(shares, key=lambda share: share.name)
    return sorted(shares, key=lambda share: (-share.cost, -share.units, share.pair, share.name))


def step_for(hours: Sequence[int]) -> int:
    """The step of a time line over these hours."""
    seconds = max(hours) + _HOUR - min(hours) if hours else 0
    return next((step for span, step in _BUCKETS if seconds <= span), _DAY)


def _make_timeline(usages: Iterable[Usage], step: int) -> list[Tick]:
    """What each stage used, step by step."""
    sums = Counter[tuple[int, Stage]]()
    for usage in usages:
        sums[usage.minute // step * step, usage.stage] += usage.units
    return [Tick(*key, sums[key]) for key in sorted(sums)]


def forecast_stages(
    system: System, sheet: PriceSheet, *, by_stage: Sequence[Share], hours: Sequence[int]
) -> list[Forecast]:
    """What the model expected of the days with records, and their part of the outages, against what came."""
    days: dict[str, set[int]] = {}
    for hour in hours:
        days.setdefault(month_of(hour), set()).add(hour // _DAY)
    expected, billed = Counter[Stage](), Counter[str]()
    for some in days.values():
        part = replace(system, days=len(some), outages=system.outages * len(some) / system.days)
        expected.update({row.stage: row.operations for row in estimate(part, sheet).stages})
    for share in by_stage:
        billed[share.name] += share.units
    return [
        Forecast(stage, expected[stage], billed[stage.words])
        for stage in Stage
        if expected[stage] or billed[stage.words]
    ]


def _stage_of(share: Share) -> Stage:
    return next(stage for stage in Stage if stage.words == share.name)


def _find_alternatives(
    sheet: PriceSheet, *, months: Sequence[MonthBill], by_stage: Sequence[Share], pairs: int
) -> tuple[Alternative, ...]:
    """Without a pair, what went through the backlog would not have been sent, received or billed."""
    without = sum((one.without_pair for one in months), Decimal(0))
    unit_hours = 2 * pairs * sum(one.hours for one in months)
    sent = sum(share.bytes for share in by_stage if _stage_of(share) is Stage.SEND)
    return tell_alternatives(without, unit_hours, sent, sheet)


def make_report(
    sheet: PriceSheet,
    *,
    months: Sequence[MonthBill],
    shares: Mapping[str, Sequence[Share]],
    outages: Sequence[Outage],
    timeline: Sequence[Tick],
    hours: Sequence[int],
    gaps: Sequence[Gap] = (),
    missing: Sequence[MissingRows] = (),
    bad_rows: int = 0,
    system: System | None = None,
) -> Report:
    """A report from its parts; `hours` are those that have records, and `system` is what was expected."""
    by_stage = shares["stage"]
    return Report(
        currency=sheet.currency,
        prices_as_of=sheet.as_of.isoformat(),
        months=months,
        by_pair=shares["pair"],
        by_entity=shares["entity"],
        by_stage=by_stage,
        by_outage=shares["outage"],
        outages=outages,
        timeline=timeline,
        step=step_for(hours),
        gaps=gaps,
        missing=missing,
        bad_rows=bad_rows,
        alternatives=_find_alternatives(sheet, months=months, by_stage=by_stage, pairs=len(shares["pair"])),
        forecast=() if system is None else forecast_stages(system, sheet, by_stage=by_stage, hours=hours),
    )


def report_of(
    bill: Bill,
    usages: Sequence[Usage],
    outages: Sequence[Outage],
    sheet: PriceSheet,
    *,
    gaps: Sequence[Gap] = (),
    bad_rows: int = 0,
    system: System | None = None,
) -> Report:
    """A report on a bill that is in memory."""
    hours = sorted({line.hour for line in bill.lines})
    return make_report(
        sheet,
        months=bill.months,
        shares=summarize(bill.lines),
        outages=outages,
        timeline=_make_timeline(usages, step_for(hours)),
        hours=hours,
        gaps=gaps,
        bad_rows=bad_rows,
        system=system,
    )

"""The bill: from what was used to what it cost, by pair, entity, stage, hour and outage.

Rules
1. Operations are priced by the month over the whole subscription, graduated. What the month's operations cost
   is shared by all of them alike: the *unit price* of a month is its cost by its units. So no line has the
   free operations for itself, and lines of a month add up to what the month costs.
2. A unit price has eighteen decimals, and a line costs a whole number of units by it: what one program sums
   up in Python and another on a cluster is the same to the last digit.
3. What the application's own receivers do is not recorded. It is derived: each message that a primary took
   is delivered and completed once for each copy. Such lines are marked.
4. What crosses between the regions, to the backlog and back, costs by the byte.
5. The base charge is for the hours from the first record of a month to its last.
6. Operations whose outcome is unknown are counted beside, and not priced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from typing import NamedTuple

from pairbus.stages import Stage

from .sheet import PriceSheet
from .usage import Outage, OutageBook, Usage, month_of

__all__ = [
    "CROSSING",
    "HOUR",
    "Bill",
    "BillLine",
    "BillTerms",
    "Extent",
    "MonthBill",
    "make_bill",
    "make_lines",
    "measure_months",
    "price_months",
]

#: What goes from one region to the other.
CROSSING = frozenset(stage for stage in Stage if stage.traits.crosses)
_DIGITS = Decimal(1).scaleb(-18)
_MILLION = Decimal(10**6)
_GB = Decimal(10**9)
HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class BillTerms:
    """What the records do not tell. `copies`: how often messages to an entity are received, by its name in
    lower case; 1 where it is not named.
    """

    copies: Mapping[str, int] = field(default_factory=dict)
    same_region: bool = False

    def copies_of(self, entity: str) -> int:
        return self.copies.get(entity.lower(), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One line of the bill. `hour` is Unix seconds of its beginning."""

    pair: str
    namespace: str
    entity: str
    stage: Stage
    hour: int
    outage: str | None
    derived: bool
    count: int
    units: int
    unknown: int
    bytes: int
    cost: Decimal


class Extent(NamedTuple):
    """What a month holds: billed units, and its first and last hour."""

    units: int
    first_hour: int
    last_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthBill:
    """A month: its units, what they cost together, the price of one, and the base charge."""

    month: str
    units: int
    operations_cost: Decimal
    unit_price: Decimal
    byte_price: Decimal
    hours: int
    base: Decimal


@dataclass(frozen=True, slots=True)
class Bill:
    """All of it."""

    months: tuple[MonthBill, ...]
    lines: tuple[BillLine, ...]


_Key = tuple[str, str, str, Stage, int, "str | None", bool]


def make_bill(
    usages: Iterable[Usage], outages: Sequence[Outage], sheet: PriceSheet, terms: BillTerms | None = None
) -> Bill:
    """Price what was used. The reference: everything in memory, one usage after the other."""
    terms = terms or BillTerms()
    sums = _sum_up(usages, OutageBook(outages), terms)
    months = price_months(measure_months(sums), sheet, same_region=terms.same_region)
    return Bill(tuple(months[month] for month in sorted(months)), tuple(make_lines(sums, months)))


def _sum_up(usages: Iterable[Usage], book: OutageBook, terms: BillTerms) -> dict[_Key, list[int]]:
    sums: dict[_Key, list[int]] = {}
    for usage in usages:
        hour, outage = usage.minute // HOUR * HOUR, book.name(usage)
        place = (usage.pair, usage.namespace, usage.entity)
        numbers = (usage.count, usage.units, usage.unknown, usage.bytes)
        _add(sums, (*place, usage.stage, hour, outage, False), numbers)
        if usage.stage is Stage.SEND and usage.kind == "send":
            copies = terms.copies_of(usage.entity)
            delivered = (usage.count * copies, usage.units * copies, 0, usage.bytes * copies)
            completed = (usage.count * copies, usage.count * copies, 0, 0)
            _add(sums, (*place, Stage.RECEIVE, hour, outage, True), delivered)
            _add(sums, (*place, Stage.COMPLETE, hour, outage, True), completed)
    return sums


def _add(sums: dict[_Key, list[int]], key: _Key, numbers: tuple[int, int, int, int]) -> None:
    found = sums.get(key)
    if found is None:
        sums[key] = list(numbers)
    else:
        for index, number in enumerate(numbers):
            found[index] += number


def measure_months(sums: Mapping[_Key, Sequence[int]]) -> dict[str, Extent]:
    """What each month holds."""
    months: dict[str, Extent] = {}
    for key, (_, units, _, _) in sums.items():
        hour = key[4]
        before = months.get(month_of(hour), Extent(0, hour, hour))
        months[month_of(hour)] = Extent(
            before.units + units, min(before.first_hour, hour), max(before.last_hour, hour)
        )
    return months


def price_months(
    months: Mapping[str, Extent], sheet: PriceSheet, *, same_region: bool = False
) -> dict[str, MonthBill]:
    """What the operations of each month cost together, and so each of them."""
    byte_price = Decimal(0) if same_region else sheet.between_regions_per_gb / _GB
    priced = {}
    for month, extent in months.items():
        cost = sheet.standard_operations.cost(Decimal(extent.units) / _MILLION)
        unit_price = cost / extent.units if extent.units else Decimal(0)
        hours = (extent.last_hour - extent.first_hour) // HOUR + 1
        priced[month] = MonthBill(
            month=month,
            units=extent.units,
            operations_cost=cost,
            unit_price=unit_price.quantize(_DIGITS, rounding=ROUND_HALF_EVEN),
            byte_price=byte_price.quantize(_DIGITS, rounding=ROUND_HALF_EVEN),
            hours=hours,
            base=sheet.standard_base_per_hour * hours,
        )
    return priced


def make_lines(sums: Mapping[_Key, Sequence[int]], months: Mapping[str, MonthBill]) -> list[BillLine]:
    """The lines with their costs, in order."""
    lines = []
    for key in sorted(sums, key=lambda each: (*each[:3], each[3].value, each[4], each[5] or "", each[6])):
        pair, namespace, entity, stage, hour, outage, derived = key
        count, units, unknown, size = sums[key]
        month = months[month_of(hour)]
        cost = units * month.unit_price + (size * month.byte_price if stage in CROSSING else 0)
        lines.append(
            BillLine(
                pair=pair,
                namespace=namespace,
                entity=entity,
                stage=stage,
                hour=hour,
                outage=outage,
                derived=derived,
                count=count,
                units=units,
                unknown=unknown,
                bytes=size,
                cost=cost,
            )
        )
    return lines

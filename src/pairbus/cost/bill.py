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

`make_bill` carries them out in memory, `pairbus.spark.bill` on a cluster. What they say of one row is asked
of the same functions by both, since a number and a column of numbers multiply alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, NamedTuple

from pairbus.ledger.operations import Operation
from pairbus.stages import Stage

from .outages import Outage, OutageBook
from .sheet import PriceSheet

#: Rule 3: what follows from a delivery.
DERIVED = tuple(stage for stage in Stage if stage.is_derived)
_DIGITS = Decimal(1).scaleb(-18)
_MILLION = Decimal(10**6)
_GB = Decimal(10**9)
_HOUR = 3600


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


def month_of(moment: float) -> str:
    """The month of a moment, in UTC: the month of the bill."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m}"


def hour_of(minute: Any) -> Any:
    """The hour of a minute, of one or of a column of them."""
    return minute - minute % _HOUR


def is_delivered(stage: Any, kind: Any) -> Any:
    """Rule 3: whether the application's receivers get what was done."""
    return (stage == Stage.SEND.value) & (kind == "send")


def derive(stage: Stage, *, count: Any, units: Any, size: Any) -> tuple[Any, Any, Any]:
    """Rule 3: operations, units and bytes of a derived stage, from those of all delivered copies."""
    return (count, units, size) if stage.traits.carries else (count, count, size * 0)


_Key = tuple[str, str, str, Stage, int, "str | None", bool]


def make_bill(
    usages: Iterable[Operation], outages: Sequence[Outage], sheet: PriceSheet, terms: BillTerms | None = None
) -> Bill:
    """Price what was used; in memory, one usage after the other."""
    terms = terms or BillTerms()
    sums = _sum_up(usages, OutageBook(outages), terms)
    months = price_months(_measure_months(sums), sheet, same_region=terms.same_region)
    return Bill(tuple(months[month] for month in sorted(months)), tuple(_make_lines(sums, months)))


def _sum_up(usages: Iterable[Operation], book: OutageBook, terms: BillTerms) -> dict[_Key, list[int]]:
    sums: dict[_Key, list[int]] = {}
    for usage in usages:
        hour, outage = hour_of(usage.minute), book.name(usage)
        place = (usage.pair, usage.namespace, usage.entity)
        numbers = (usage.count, usage.units, usage.unknown, usage.bytes)
        _add(sums, (*place, usage.stage, hour, outage, False), numbers)
        if is_delivered(usage.stage, usage.kind):
            copies = terms.copies_of(usage.entity)
            for stage in DERIVED:
                count, units, size = derive(
                    stage, count=usage.count * copies, units=usage.units * copies, size=usage.bytes * copies
                )
                _add(sums, (*place, stage, hour, outage, True), (count, units, 0, size))
    return sums


def _add(sums: dict[_Key, list[int]], key: _Key, numbers: tuple[int, int, int, int]) -> None:
    found = sums.get(key)
    if found is None:
        sums[key] = list(numbers)
    else:
        for index, number in enumerate(numbers):
            found[index] += number


def _measure_months(sums: Mapping[_Key, Sequence[int]]) -> dict[str, Extent]:
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
        hours = (extent.last_hour - extent.first_hour) // _HOUR + 1
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


def _make_lines(sums: Mapping[_Key, Sequence[int]], months: Mapping[str, MonthBill]) -> list[BillLine]:
    """The lines with their costs, in order."""
    lines = []
    for key in sorted(sums, key=lambda each: (*each[:3], each[3].value, each[4], each[5] or "", each[6])):
        pair, namespace, entity, stage, hour, outage, derived = key
        count, units, unknown, size = sums[key]
        month = months[month_of(hour)]
        cost = units * month.unit_price + (size * month.byte_price if stage.traits.crosses else 0)
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

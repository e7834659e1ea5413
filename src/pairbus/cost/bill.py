"""The bill: from what was used to what it cost, by pair, entity, stage, hour and outage.

Rules
1. Operations are priced by the month over the whole subscription, graduated. What the month's operations cost
   is shared by all of them alike: the *unit price* of a month is its cost by its units. So no line has the
   free operations for itself, and lines of a month add up to what the month costs. Writes to an object store
   are none of them, and have a price that is the same for each.
2. A unit price has eighteen decimals, and a line costs a whole number of units by it: what one program sums
   up in Python and another on a cluster is the same to the last digit.
3. What the application's own receivers do is not recorded. It is derived: each message that a primary took
   is delivered and completed once for each copy. Such lines are marked.
4. What crosses between the regions, to the backlog and back, costs by the byte.
5. The base charge is for the hours from the first record of a month to its last.
6. Operations whose outcome is unknown are counted beside, and not priced; bytes are of the others.
7. Without a pair there would be what clients do at the primary, and what follows from that.

`make_bill` carries them out in memory, `pairbus.spark.bill` on columns. What they say of one row is asked
of the same functions by both, since a number and a column of numbers multiply alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from operator import add
from typing import Any, NamedTuple

from pairbus.stages import Role, Stage, StageLook

from .outages import Outage, OutageBook, Usage
from .sheet import PriceSheet

#: Rule 3: what follows from a delivery.
DERIVED = tuple(stage for stage in Stage if stage.is_derived)
#: Rules 1, 4 and 7: stages that are writes, those that cross, and those of a namespace that has no pair.
STORED = frozenset(stage for stage in Stage if stage.traits.is_stored)
CROSSING = frozenset(stage for stage in Stage if stage.traits.crosses)
PLAIN = frozenset(stage for stage in Stage if stage.traits.look in (StageLook.NORMAL, StageLook.DERIVED))
#: Who does them there.
PLAIN_ROLE: Role = "client"
_DIGITS = Decimal(1).scaleb(-18)
_HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class BillTerms:
    """What the records do not tell. `copies`: how often a message is received, by entity in lower case."""

    copies: Mapping[str, int] = field(default_factory=dict)
    same_region: bool = False

    def copies_of(self, entity: str) -> int:
        return self.copies.get(entity.lower(), 1)


@dataclass(frozen=True, slots=True)
class BillLine:
    """`role` is who did it, or sent what it is derived from; `hour` is Unix seconds of its beginning."""

    pair: str
    namespace: str
    entity: str
    stage: Stage
    role: Role
    hour: int
    outage: str | None
    derived: bool
    count: int
    units: int
    unknown: int
    bytes: int
    cost: Decimal


class Amounts(NamedTuple):
    """What a time holds: units, writes to a store, bytes that cross, and units if there were no pair."""

    units: int = 0
    writes: int = 0
    crossing: int = 0
    plain: int = 0

    def plus(self, more: Amounts) -> Amounts:
        return Amounts(*map(add, self, more))


class Extent(NamedTuple):
    """A month: what it holds, and its first and last hour."""

    amounts: Amounts
    first_hour: int
    last_hour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthBill:
    """A month, and the prices that follow from it. `without_pair`: what one namespace would have cost."""

    month: str
    units: int
    operations_cost: Decimal
    unit_price: Decimal
    byte_price: Decimal
    transfer_cost: Decimal
    writes: int
    write_price: Decimal
    store_cost: Decimal
    hours: int
    base: Decimal
    without_pair: Decimal

    @property
    def total(self) -> Decimal:
        """All that the month costs."""
        return self.operations_cost + self.transfer_cost + self.store_cost + self.base


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


_Key = tuple[str, str, str, Stage, Role, int, "str | None", bool]


def make_bill(
    usages: Iterable[Usage], outages: Sequence[Outage], sheet: PriceSheet, terms: BillTerms | None = None
) -> Bill:
    """Price what was used; in memory, one usage after the other."""
    terms = terms or BillTerms()
    sums = _sum_up(usages, OutageBook(outages), terms)
    months = price_months(measure_months(_by_hour(sums)), sheet, same_region=terms.same_region)
    return Bill(tuple(months[month] for month in sorted(months)), tuple(_make_lines(sums, months)))


def _sum_up(usages: Iterable[Usage], book: OutageBook, terms: BillTerms) -> dict[_Key, list[int]]:
    sums: dict[_Key, list[int]] = {}
    for usage in usages:
        hour, outage = hour_of(usage.minute), book.name(usage)
        place = (usage.pair, usage.namespace, usage.entity)
        numbers = (usage.count, usage.units, usage.unknown, usage.bytes)
        _add(sums, (*place, usage.stage, usage.role, hour, outage, False), numbers)
        if is_delivered(usage.stage, usage.kind):
            copies = terms.copies_of(usage.entity)
            for stage in DERIVED:
                count, units, size = derive(
                    stage, count=usage.count * copies, units=usage.units * copies, size=usage.bytes * copies
                )
                _add(sums, (*place, stage, usage.role, hour, outage, True), (count, units, 0, size))
    return sums


def _add(sums: dict[_Key, list[int]], key: _Key, numbers: tuple[int, int, int, int]) -> None:
    found = sums.setdefault(key, [0] * len(numbers))
    for index, number in enumerate(numbers):
        found[index] += number


def _by_hour(sums: Mapping[_Key, Sequence[int]]) -> dict[int, Amounts]:
    found: dict[int, Amounts] = {}
    for (_, _, _, stage, role, hour, _, _), (_, units, _, size) in sums.items():
        is_write = stage in STORED
        found[hour] = found.get(hour, Amounts()).plus(
            Amounts(
                units=0 if is_write else units,
                writes=units if is_write else 0,
                crossing=size if stage in CROSSING else 0,
                plain=units if stage in PLAIN and role == PLAIN_ROLE else 0,
            )
        )
    return found


def measure_months(by_hour: Mapping[int, Amounts]) -> dict[str, Extent]:
    """What each month holds, from what its hours do."""
    months: dict[str, Extent] = {}
    for hour in sorted(by_hour):
        before = months.get(month_of(hour), Extent(Amounts(), hour, hour))
        months[month_of(hour)] = Extent(before.amounts.plus(by_hour[hour]), before.first_hour, hour)
    return months


def price_months(
    months: Mapping[str, Extent], sheet: PriceSheet, *, same_region: bool = False
) -> dict[str, MonthBill]:
    """What the operations of each month cost together, and so each of them."""
    byte_price = _rounded(Decimal(0) if same_region else sheet.crossing_byte)
    write_price = _rounded(sheet.storage_write)
    priced = {}
    for month, (amounts, first_hour, last_hour) in months.items():
        cost = sheet.cost_of_operations(amounts.units)
        hours = (last_hour - first_hour) // _HOUR + 1
        base = sheet.standard_base_per_hour * hours
        priced[month] = MonthBill(
            month=month,
            units=amounts.units,
            operations_cost=cost,
            unit_price=_rounded(cost / amounts.units if amounts.units else Decimal(0)),
            byte_price=byte_price,
            transfer_cost=amounts.crossing * byte_price,
            writes=amounts.writes,
            write_price=write_price,
            store_cost=amounts.writes * write_price,
            hours=hours,
            base=base,
            without_pair=base + sheet.cost_of_operations(amounts.plain),
        )
    return priced


def _rounded(price: Decimal) -> Decimal:
    """Rule 2."""
    return price.quantize(_DIGITS, rounding=ROUND_HALF_EVEN)


def _make_lines(sums: Mapping[_Key, Sequence[int]], months: Mapping[str, MonthBill]) -> list[BillLine]:
    """The lines with their costs, in order."""
    lines = []
    for key in sorted(sums, key=lambda each: (*each[:6], each[6] or "", each[7])):
        _, _, _, stage, _, hour, _, _ = key
        count, units, unknown, size = sums[key]
        month = months[month_of(hour)]
        price = month.write_price if stage in STORED else month.unit_price
        cost = units * price + (size * month.byte_price if stage in CROSSING else 0)
        lines.append(BillLine(*key, count, units, unknown, size, cost))
    return lines

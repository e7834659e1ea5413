"""The lines of a bill, priced and summed up while they pass: by Arrow in the driver, some at a time.

1. A month has its price when all its units are known. So lines are passed through twice: for units and hours
   alone, and then whole.
2. Money is decimal all the way: a number of units by a price of eighteen decimals, which fits 38 digits.
3. What is kept in memory is sums, by the ways that people ask for, and hours.
"""

from __future__ import annotations

import csv
import shutil
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import add
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from pairbus.cost.bill import (
    CROSSING,
    PLAIN,
    PLAIN_ROLE,
    STORED,
    Amounts,
    MonthBill,
    measure_months,
    month_of,
    price_months,
)
from pairbus.cost.report import SUMS, WAYS, Share, Tick, make_shares
from pairbus.cost.sheet import PriceSheet
from pairbus.plumbing.files import drafted, publish_directory
from pairbus.stages import Stage

#: What a line is of.
KEY = ("pair", "namespace", "entity", "stage", "role", "hour", "outage", "derived")
# Products are reckoned with room to spare, so that each is exact; what would not fit a cost is an error.
_NUMBER, _PRICE, _COST = pa.decimal256(19, 0), pa.decimal256(38, 18), pa.decimal128(38, 18)
_CROSSING, _STORED, _PLAIN = (
    pa.array(sorted(stage.value for stage in some)) for some in (CROSSING, STORED, PLAIN)
)
_AT_ONCE = 100_000
#: Lines before they are priced.
DRAFT = pa.schema(
    [
        *((name, pa.string()) for name in ("pair", "namespace", "entity", "stage", "role")),
        ("hour", pa.int64()),
        ("outage", pa.string()),
        ("derived", pa.bool_()),
        *((name, pa.int64()) for name in SUMS[:-1]),
    ]
)
_SCHEMA = DRAFT.append(pa.field("cost", _COST))


@dataclass(frozen=True, slots=True)
class BillLines:
    """What the lines come to."""

    months: Sequence[MonthBill]
    #: Those that have records.
    hours: Sequence[int]
    shares: Mapping[str, Sequence[Share]]
    #: Units that were recorded, by hour and stage.
    _units: Mapping[tuple[int, str], int]

    @classmethod
    def price(cls, draft: pa.Table, sheet: PriceSheet, *, same_region: bool, out: Path | None) -> BillLines:
        """Price lines. With `out` they are written there, too."""
        by_hour = _by_hour(draft)
        months = price_months(measure_months(by_hour), sheet, same_region=same_region)
        sums = _Sums()
        lines = map(sums.add, (_price(some, months) for some in _cut(draft)))
        if out is not None:
            _write(lines, out)
        deque(lines, maxlen=0)
        return cls([months[name] for name in sorted(months)], sorted(by_hour), sums.shares(), sums.units)

    def timeline(self, step: int) -> list[Tick]:
        """What each stage used, in steps of whole hours."""
        ticks = Counter[tuple[int, Stage]]()
        for (hour, stage), units in self._units.items():
            ticks[hour - hour % step, Stage[stage.upper()]] += units
        return [Tick(*key, ticks[key]) for key in sorted(ticks)]


def _cut(draft: pa.Table) -> Iterator[pa.Table]:
    return (draft.slice(place, _AT_ONCE) for place in range(0, draft.num_rows, _AT_ONCE))


def _by_hour(draft: pa.Table) -> dict[int, Amounts]:
    found: dict[int, Amounts] = {}
    for lines in _cut(draft):
        for (hour,), numbers in _add_up(_measure(lines), ["hour"], Amounts._fields):
            found[hour] = found.get(hour, Amounts()).plus(Amounts(*numbers))
    return found


def _measure(lines: pa.Table) -> pa.Table:
    """What each line adds to its hour."""
    stage, units = lines["stage"], lines["units"]
    is_write = pc.is_in(stage, _STORED)
    is_plain = pc.and_(pc.is_in(stage, _PLAIN), pc.equal(lines["role"], PLAIN_ROLE))
    amounts = Amounts(
        units=pc.if_else(is_write, 0, units),
        writes=pc.if_else(is_write, units, 0),
        crossing=pc.if_else(pc.is_in(stage, _CROSSING), lines["bytes"], 0),
        plain=pc.if_else(is_plain, units, 0),
    )
    return pa.table({"hour": lines["hour"], **amounts._asdict()})


def _price(lines: pa.Table, months: Mapping[str, MonthBill]) -> pa.Table:
    hours = pc.unique(lines["hour"])
    places = pc.index_in(lines["hour"], hours)
    of_hours = [months[month_of(hour)] for hour in hours.to_pylist()]
    unit_price, byte_price, write_price = (
        pc.take(pa.array((getattr(one, name) for one in of_hours), _PRICE), places)
        for name in ("unit_price", "byte_price", "write_price")
    )
    price = pc.if_else(pc.is_in(lines["stage"], _STORED), write_price, unit_price)
    carried = pc.if_else(pc.is_in(lines["stage"], _CROSSING), lines["bytes"], 0)
    of_units = pc.multiply(pc.cast(lines["units"], _NUMBER), price)
    cost = pc.add(of_units, pc.multiply(pc.cast(carried, _NUMBER), byte_price))
    return lines.append_column("cost", pc.cast(cost, _COST)).select([*KEY, *SUMS])


def _add_up(
    lines: pa.Table, keys: Sequence[str], numbers: Sequence[str]
) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Keys, and the sums of the numbers of each."""
    found = lines.group_by(keys).aggregate([(name, "sum") for name in numbers])
    of_keys = zip(*(found[name].to_pylist() for name in keys), strict=True)
    return zip(
        of_keys, zip(*(found[f"{name}_sum"].to_pylist() for name in numbers), strict=True), strict=True
    )


class _Sums:
    """Rule 3."""

    def __init__(self) -> None:
        self.units = Counter[tuple[int, str]]()
        self._ways: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {way: {} for way in WAYS}

    def add(self, lines: pa.Table) -> pa.Table:
        """Take lines, and hand them on."""
        for way, sums in self._ways.items():
            for key, numbers in _add_up(lines, WAYS[way], SUMS):
                before = sums.get(key)
                sums[key] = numbers if before is None else tuple(map(add, before, numbers))
        recorded = lines.filter(pc.invert(lines["derived"]))
        for (hour, stage), (units,) in _add_up(recorded, ["hour", "stage"], ["units"]):
            self.units[hour, stage] += units
        return lines

    def shares(self) -> dict[str, list[Share]]:
        """By each of the ways."""
        return {
            way: make_shares(
                way,
                (
                    dict(zip((*WAYS[way], *SUMS), (*key, *numbers), strict=True))
                    for key, numbers in sums.items()
                ),
            )
            for way, sums in self._ways.items()
        }


def _write(lines: Iterable[pa.Table], out: Path) -> None:
    """Put the lines there, whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    fresh, final = out / ".lines.parquet", out / "lines.parquet"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    with drafted(out / "lines.csv") as descriptor:
        with (
            parquet.ParquetWriter(fresh / "part-00000.parquet", _SCHEMA) as table,
            open(descriptor, "w", encoding="utf-8", newline="", closefd=False) as file,
        ):
            text = csv.writer(file)
            text.writerow((*KEY, *SUMS))
            for some in lines:
                table.write_table(some.cast(_SCHEMA))
                text.writerows(_cells(some))
        shutil.rmtree(final, ignore_errors=True)
        publish_directory(fresh, final)


def _cells(lines: pa.Table) -> Iterator[tuple[Any, ...]]:
    """What stands in a row of text; nothing where there is nothing."""
    columns = {name: lines[name].to_pylist() for name in (*KEY, *SUMS)}
    hours = {hour: datetime.fromtimestamp(hour, UTC).isoformat() for hour in set(columns["hour"])}
    columns["hour"] = [hours[hour] for hour in columns["hour"]]
    columns["derived"] = ["yes" if derived else "" for derived in columns["derived"]]
    # A decimal zero would call itself 0E-18.
    columns["cost"] = [f"{cost:f}" for cost in columns["cost"]]
    return zip(*columns.values(), strict=True)

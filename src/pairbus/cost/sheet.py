"""The price sheet: read from TOML, checked, and never part of the code."""

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from importlib import resources
from typing import Any

from pairbus.errors import ConfigurationError
from pairbus.plumbing.toml_tables import TomlTable, parse_toml

# No price is as high in any currency, and no step of prices; it keeps sums short enough to be exact.
_MOST_PRICE, _MOST_STEP = 10**9, 10**15


@dataclass(frozen=True, slots=True)
class PriceStep:
    """The price of what lies below `up_to`, and above the step before; None: without end."""

    up_to: Decimal | None
    price: Decimal


@dataclass(frozen=True, slots=True)
class Tiers:
    """Graduated prices: steps in rising order, the last one without end."""

    steps: tuple[PriceStep, ...]

    def __post_init__(self) -> None:
        bounds = [step.up_to for step in self.steps]
        finite = [bound for bound in bounds if bound is not None]
        if (
            not bounds
            or bounds[-1] is not None
            or len(finite) != len(bounds) - 1
            or finite != sorted(set(finite))
        ):
            raise ConfigurationError(
                "graduated prices need rising 'up_to' bounds and a last step without one"
            )
        if any(step.price < 0 for step in self.steps):
            raise ConfigurationError("a price is not below 0")

    def cost(self, amount: Decimal) -> Decimal:
        """What `amount` costs in all."""
        total, below = Decimal(0), Decimal(0)
        for step in self.steps:
            top = amount if step.up_to is None else min(amount, step.up_to)
            if top > below:
                total += (top - below) * step.price
                below = top
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSheet:
    """Prices of one date and place. Operations are priced by the million."""

    currency: str
    as_of: date
    sources: tuple[str, ...]
    standard_base_per_hour: Decimal
    standard_operations: Tiers
    standard_connections: Tiers
    premium_unit_per_hour: Decimal
    geo_replication_per_gb: Decimal
    between_regions_per_gb: Decimal
    #: 0 in a sheet that says nothing of it.
    storage_writes_per_ten_thousand: Decimal = Decimal(0)

    def cost_of_operations(self, number: int) -> Decimal:
        """What so many of a month cost together: prices are graduated."""
        return self.standard_operations.cost(Decimal(number) / 10**6)

    @property
    def crossing_byte(self) -> Decimal:
        """What a byte costs between the regions."""
        return self.between_regions_per_gb / 10**9

    @property
    def storage_write(self) -> Decimal:
        return self.storage_writes_per_ten_thousand / 10**4


def default_sheet() -> PriceSheet:
    """The sheet that comes with Pairbus."""
    return parse_sheet(resources.files(__package__).joinpath("prices.toml").read_text(encoding="utf-8"))


def parse_sheet(text: str, *, where: str = "the price sheet") -> PriceSheet:
    """Read a sheet; `ConfigurationError` says what is missing or wrong."""
    top = parse_toml(text, where=where)
    top.need("currency", "as_of")
    standard, premium, bandwidth = (top.table(name) for name in ("standard", "premium", "bandwidth"))
    sheet = PriceSheet(
        currency=top.text("currency", ""),
        as_of=top.take("as_of", date.min, _is_date, "a date, such as 2026-10-05"),
        sources=top.texts("sources"),
        standard_base_per_hour=_money(standard, "base_per_hour"),
        standard_operations=_tiers(standard, "operations_per_million"),
        standard_connections=_tiers(standard, "connections"),
        premium_unit_per_hour=_money(premium, "messaging_unit_per_hour"),
        geo_replication_per_gb=_money(premium, "geo_replication_per_gb"),
        between_regions_per_gb=_money(bandwidth, "between_regions_per_gb"),
        storage_writes_per_ten_thousand=_amount(top.table("storage"), "writes_per_ten_thousand")
        or Decimal(0),
    )
    top.refuse()
    return sheet


def _money(table: TomlTable, key: str) -> Decimal:
    table.need(key)
    return _amount(table, key) or Decimal(0)


def _tiers(table: TomlTable, key: str) -> Tiers:
    table.need(key)
    rows = table.rows(key)
    steps = tuple(PriceStep(_amount(row, "up_to", _MOST_STEP), _money(row, "price")) for row in rows)
    try:
        return Tiers(steps)
    except ConfigurationError as error:
        table.note(f"{key}: {error}", key)
        return Tiers((PriceStep(None, Decimal(0)),))


def _amount(table: TomlTable, key: str, most: int = _MOST_PRICE) -> Decimal | None:
    # Text or whole numbers: a binary fraction such as 0.1 would not be the price that was meant.
    allowed = f'an amount of 0 to {most:,}, written as text, such as "0.80"'
    found = table.take(key, None, lambda value: _is_amount(value, most), allowed)
    return None if found is None else Decimal(found)


def _is_amount(value: Any, most: int) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return False
    try:
        amount = Decimal(value)
    except InvalidOperation:
        return False
    return amount.is_finite() and 0 <= amount <= most


def _is_date(value: Any) -> bool:
    return isinstance(value, date) and not isinstance(value, datetime)

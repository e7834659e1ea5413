"""The price sheet: read from TOML, checked, and never part of the code."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from importlib import resources
from typing import Any

from pairbus.errors import ConfigurationError

from .tiers import PriceStep, Tiers

__all__ = ["PriceSheet", "default_sheet", "parse_sheet"]


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


def default_sheet() -> PriceSheet:
    """The sheet that comes with Pairbus."""
    return parse_sheet(resources.files(__package__).joinpath("prices.toml").read_text(encoding="utf-8"))


def parse_sheet(text: str) -> PriceSheet:
    """Read a sheet; ConfigurationError says what is missing or wrong."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"the price sheet is not valid TOML: {error}") from None
    as_of = _get(document, "as_of")
    if not isinstance(as_of, date):
        raise ConfigurationError("'as_of' of the price sheet is a date, such as 2026-10-05")
    return PriceSheet(
        currency=str(_get(document, "currency")),
        as_of=as_of,
        sources=tuple(str(source) for source in document.get("sources", [])),
        standard_base_per_hour=_money(document, "standard.base_per_hour"),
        standard_operations=_tiers(document, "standard.operations_per_million"),
        standard_connections=_tiers(document, "standard.connections"),
        premium_unit_per_hour=_money(document, "premium.messaging_unit_per_hour"),
        geo_replication_per_gb=_money(document, "premium.geo_replication_per_gb"),
        between_regions_per_gb=_money(document, "bandwidth.between_regions_per_gb"),
    )


def _get(document: dict[str, Any], name: str) -> Any:
    value: Any = document
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        raise ConfigurationError(f"the price sheet lacks {name!r}")
    return value


def _money(document: dict[str, Any], name: str) -> Decimal:
    amount = _decimal(_get(document, name), name)
    if amount < 0:
        raise ConfigurationError(f"{name} of the price sheet is below 0")
    return amount


def _tiers(document: dict[str, Any], name: str) -> Tiers:
    rows = _get(document, name)
    if not isinstance(rows, list):
        raise ConfigurationError(f"{name} of the price sheet is a list of steps with 'up_to' and 'price'")
    return Tiers(
        tuple(
            PriceStep(
                None if row.get("up_to") is None else _decimal(row["up_to"], name),
                _decimal(row.get("price"), name),
            )
            for row in rows
        )
    )


def _decimal(value: Any, name: str) -> Decimal:
    # Text or whole numbers: a binary fraction such as 0.1 would not be the price that was meant.
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConfigurationError(f'prices are written as text, such as "0.80": look at {name!r}')
    try:
        return Decimal(value)
    except InvalidOperation:
        raise ConfigurationError(f"{value!r} of {name!r} is not a number") from None

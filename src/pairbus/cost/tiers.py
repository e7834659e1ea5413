"""Graduated prices: the first so many at one price, the next at another."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from pairbus.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PriceStep:
    """The price of what lies below `up_to`, and above the step before; None: without end."""

    up_to: Decimal | None
    price: Decimal


@dataclass(frozen=True, slots=True)
class Tiers:
    """Steps in rising order, the last one without end."""

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

"""Figures of repeated rounds: medians with their spread, and ratios of values of the same round."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Figure", "Target", "ratio"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity over all rounds."""

    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def to_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "unit": self.unit,
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "values": list(self.values),
        }


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure should come to: at least, or at most."""

    figure: Figure
    bound: float
    at_least: bool

    @property
    def is_met(self) -> bool:
        median = self.figure.median
        return median >= self.bound if self.at_least else median <= self.bound

    def to_dict(self) -> dict[str, object]:
        kind = "at least" if self.at_least else "at most"
        return {**self.figure.to_dict(), kind: self.bound, "met": self.is_met}


def ratio(name: str, one: Sequence[float], other: Sequence[float]) -> Figure:
    """Round by round, so that a machine that is slow for a while is so for both sides."""
    return Figure(name, "", tuple(a / b for a, b in zip(one, other, strict=True)))

"""What a drill looks like at one moment, for whoever draws it while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import DrillResult


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityPicture:
    """One queue or topic. Counts are sums so far; `state` is the worst that any client sees."""

    path: str
    kind: str
    state: str
    sent: int
    to_primary: int
    to_backlog: int
    to_spool: int
    received: int
    rate: float
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPicture:
    """The whole. `at` is seconds since the drill began; `drain_total` is None before the drain begins."""

    at: float
    phase: str
    faults: tuple[str, ...]
    entities: tuple[EntityPicture, ...]
    backlog: int
    spooled: int
    drain_moved: int
    drain_total: int | None
    drain_rate: float
    message: str

    def total(self, name: str) -> int:
        """The sum of a count over all entities."""
        return sum(getattr(entity, name) for entity in self.entities)


class Display:
    """Shows a drill while it runs; this one shows nothing. Its methods are called one after the other."""

    def begin(self, scenario_title: str, story: str) -> None:
        """The drill begins."""

    def phase(self, name: str, at: float) -> None:
        """A new stretch of it begins."""

    def event(self, text: str, at: float) -> None:
        """A fault, a change of state, a milestone."""

    def update(self, picture: DrillPicture) -> None:
        """How it looks now; about four times a second."""

    def end(self, result: DrillResult) -> None:
        """The drill is over, and judged."""

    def close(self) -> None:
        """Give the terminal back; also after a drill that was broken off."""

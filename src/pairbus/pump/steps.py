"""What lanes ask of their shell: messages in hand, and the steps that are to be taken with them."""

from __future__ import annotations

from dataclasses import dataclass

from .verdicts import Judgement

__all__ = ["Bury", "Defer", "Fetch", "HeldMessage", "LaneStep", "Recheck", "Renew", "Send", "StepList"]


@dataclass(slots=True, eq=False)
class HeldMessage:
    """A message in our hands, as far as lanes know it."""

    number: int
    path: str
    session_id: str | None
    size: int
    locked_until: float
    attempts: int = 0
    was_deferred: bool = False


@dataclass(slots=True)
class Send:
    """Send units, each in one transfer."""

    path: str
    units: list[list[HeldMessage]]


@dataclass(slots=True)
class Defer:
    """Put messages aside on the queue."""

    messages: list[HeldMessage]


@dataclass(slots=True)
class Bury:
    """Move messages to the dead letters of the queue."""

    messages: list[HeldMessage]
    why: Judgement


@dataclass(slots=True)
class Renew:
    """Renew the locks of messages."""

    messages: list[HeldMessage]


@dataclass(slots=True)
class Fetch:
    """Get deferred messages by their numbers; each is reported by `arrive` or by `unfetched`."""

    numbers: list[int]


@dataclass(slots=True)
class Recheck:
    """Look whether missing messages are still there; each is reported by `arrive` or by `rechecked`."""

    numbers: list[int]


LaneStep = Send | Defer | Bury | Renew | Fetch | Recheck


class StepList:
    """Steps under way; those of a kind become one."""

    def __init__(self) -> None:
        self._sends: dict[str, list[list[HeldMessage]]] = {}
        self.defer: list[HeldMessage] = []
        self.renew: list[HeldMessage] = []
        self.fetch: list[int] = []
        self.recheck: list[int] = []
        self.bury: list[Bury] = []

    def send(self, path: str, unit: list[HeldMessage]) -> None:
        """Send a unit, with those of the same path."""
        self._sends.setdefault(path, []).append(unit)

    def merged(self) -> list[LaneStep]:
        """One step of each kind, and of sends one a path."""
        steps: list[LaneStep] = [Send(path, units) for path, units in self._sends.items()]
        if self.defer:
            steps.append(Defer(self.defer))
        if self.renew:
            steps.append(Renew(self.renew))
        if self.fetch:
            steps.append(Fetch(sorted(self.fetch)))
        if self.recheck:
            steps.append(Recheck(sorted(self.recheck)))
        return [*steps, *self.bury]

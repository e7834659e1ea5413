"""What goes wrong, as data: a list that can be drawn, printed and shortened."""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pairbus import conditions

__all__ = ["MOMENTS", "OF_A_LINE", "REFUSALS", "SPELLS", "Fault", "FaultKind", "Weather"]

FaultKind = Literal[
    "refuse",  # no connection is to be had, and open ones break
    "silence",  # nothing is read and nothing is answered
    "slow",  # words are late by up to two thirds of a deadline
    "lose-request",  # what is asked never arrives
    "lose-answer",  # what is asked is done, and the answer never arrives
    "break-request",  # the connection breaks instead of doing what is asked
    "break-answer",  # what is asked is done, and the connection breaks instead of the answer
    "busy",
    "error",
    "full",
    "disabled",
    "token",  # tokens are refused: for new links, and for old ones
    "cut",  # every connection breaks
    "detach",  # links are detached
    "restart",  # the namespace ends and begins anew: connections and locks are gone
    "hold",  # somebody else locks some messages and dies
    "disk-full",  # nothing can be written
    "disk-sync",  # what is written cannot be synced
]
#: Those that act at one moment.
MOMENTS: tuple[FaultKind, ...] = ("cut", "detach", "restart", "hold")
#: Those of a line, which last.
OF_A_LINE: tuple[FaultKind, ...] = (
    "refuse",
    "silence",
    "slow",
    "lose-request",
    "lose-answer",
    "break-request",
    "break-answer",
)
#: Those that last.
SPELLS: tuple[FaultKind, ...] = (*OF_A_LINE, "busy", "error", "full", "disabled", "token")
#: The condition with which a namespace refuses what it is asked.
REFUSALS: dict[FaultKind, tuple[str, str]] = {
    "busy": (
        conditions.SERVER_BUSY,
        "The request was terminated because the namespace is being throttled. Error code: 50009. "
        "Please wait 2 seconds and try again.",
    ),
    "error": (conditions.INTERNAL_ERROR, "The service was unable to process the request."),
    "full": (conditions.RESOURCE_LIMIT, "The maximum entity size has been reached or exceeded."),
    "disabled": (conditions.ENTITY_DISABLED, "Messaging entity is currently disabled."),
    "token": (conditions.UNAUTHORIZED, "The token is not accepted: the token service is not available."),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong somewhere from `begin` to `end`; each time with this chance."""

    kind: FaultKind
    where: str
    begin: float
    end: float
    entity: str | None = None
    chance: float = 1.0

    def __str__(self) -> str:
        entity = f" {self.entity}" if self.entity else ""
        share = f" ({self.chance:.0%})" if self.chance < 1 else ""
        return f"{self.begin:8.3f} to {self.end:.3f}: {self.kind}{share} at {self.where}{entity}"


class Weather:
    """The faults of a history, by place and time."""

    def __init__(self, faults: Iterable[Fault], seed: object) -> None:
        self._chance = random.Random(f"weather {seed}")
        self._spells: dict[str, list[Fault]] = {}
        for fault in faults:
            self.add(fault)

    def add(self, fault: Fault) -> None:
        """One thing more that goes wrong."""
        if fault.kind not in MOMENTS:
            self._spells.setdefault(fault.where, []).append(fault)

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._spells.clear()

    def strikes(self, where: str, now: float, *kinds: FaultKind, entity: str | None = None) -> Fault | None:
        """The first fault of these kinds that strikes here and now."""
        for fault in self._spells.get(where, ()):
            if (
                fault.kind in kinds
                and fault.begin <= now < fault.end
                and (fault.entity is None or fault.entity == entity)
                and (fault.chance >= 1 or self._chance.random() < fault.chance)
            ):
                return fault
        return None

"""What lanes ask of their shell: messages in hand, and the steps that are to be taken with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from .judgement import Judgement
from .rate import Room


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


#: What lanes carry: their shell gets back the very objects that it gave them.
H = TypeVar("H", bound=HeldMessage)


@dataclass(slots=True)
class Send(Generic[H]):
    """Send units, each in one transfer."""

    path: str
    units: list[list[H]]


@dataclass(slots=True)
class Defer(Generic[H]):
    """Put messages aside on the queue."""

    messages: list[H]


@dataclass(slots=True)
class Bury(Generic[H]):
    """Move messages to the dead letters of the queue."""

    messages: list[H]
    why: Judgement


@dataclass(slots=True)
class Renew(Generic[H]):
    """Renew the locks of messages."""

    messages: list[H]


@dataclass(slots=True)
class Fetch:
    """Get deferred messages by their numbers; each is reported by `arrive` or by `unfetched`."""

    numbers: list[int]


@dataclass(slots=True)
class Recheck:
    """Look whether missing messages are still there; each is reported by `arrive` or by `rechecked`."""

    numbers: list[int]


LaneStep = Send[H] | Defer[H] | Bury[H] | Renew[H] | Fetch | Recheck


class StepList(Generic[H]):
    """Steps under way; those of a kind become one. `room` is what there is for sends; None for no limit."""

    def __init__(self, room: Room | None = None) -> None:
        self._room = room
        self._sends: dict[str, list[list[H]]] = {}
        self.defer: list[H] = []
        self.renew: list[H] = []
        self.fetch: list[int] = []
        self.recheck: list[int] = []
        self.bury: list[Bury[H]] = []

    def admit(self, waiting: Sequence[H], count: int) -> int:
        """How many of the first `count` that wait may be sent now."""
        room = self._room
        if room is None:
            return count
        for place in range(count):
            if not room.take(waiting[place].size):
                return place
        return count

    def send(self, path: str, unit: list[H]) -> None:
        """Send a unit, with those of the same path."""
        self._sends.setdefault(path, []).append(unit)

    def merged(self) -> list[LaneStep[H]]:
        """One step of each kind, and of sends one a path."""
        steps: list[LaneStep[H]] = [Send(path, units) for path, units in self._sends.items()]
        if self.defer:
            steps.append(Defer(self.defer))
        if self.renew:
            steps.append(Renew(self.renew))
        if self.fetch:
            steps.append(Fetch(sorted(self.fetch)))
        if self.recheck:
            steps.append(Recheck(sorted(self.recheck)))
        return [*steps, *self.bury]

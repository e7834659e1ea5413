"""Outages, and which of them what clients and pumps did belongs to.

1. An outage of a pair is the time in which any client had any of its entities failed over. What several
   clients saw of one outage overlaps, and is put together.
2. A client says of each operation in which outage it was made. What a pump moves is told by the time: it
   belongs to the last outage of the pair that had begun by then, since nothing else puts messages into a
   backlog.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from pairbus.ledger.operations import Operation, OutageSpan
from pairbus.plumbing.wording import write_moment
from pairbus.stages import Role, Stage

#: What pumps do to each message that they move.
MOVING = frozenset(stage for stage in Stage if stage.traits.moves)


@dataclass(frozen=True, slots=True)
class SlotUse:
    """A sum of operations over a slot of time, which begins at `minute`."""

    pair: str
    role: Role
    namespace: str
    entity: str
    stage: Stage
    kind: str
    outage: str | None
    minute: int
    count: int
    units: int
    unknown: int
    bytes: int


#: What was used.
Usage = Operation | SlotUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage of a pair. `ids` are the sightings that it was put together from."""

    name: str
    pair: str
    begins: float
    ends: float | None
    ids: frozenset[str]


def merge_outages(sightings: Iterable[OutageSpan]) -> list[Outage]:
    """Put together what overlaps; by pair and time. No two have the same name."""
    found: list[Outage] = []
    for seen in sorted(sightings, key=lambda one: (one.pair, one.begins, one.outage)):
        last = found[-1] if found and found[-1].pair == seen.pair else None
        if last is None or (last.ends is not None and last.ends < seen.begins):
            name, ids = _name(seen.pair, seen.begins, found), frozenset({seen.outage})
            found.append(Outage(name=name, pair=seen.pair, begins=seen.begins, ends=seen.ends, ids=ids))
            continue
        ends = None if last.ends is None or seen.ends is None else max(last.ends, seen.ends)
        found[-1] = replace(last, ends=ends, ids=last.ids | {seen.outage})
    return found


def _name(pair: str, begins: float, taken: Sequence[Outage]) -> str:
    name = f"{pair} {write_moment(begins)}"
    others = sum(1 for _ in takewhile(lambda one: one.name.startswith(name), reversed(taken)))
    return f"{name} ({others + 1})" if others else name


class OutageBook:
    """Which outage operations belong to."""

    def __init__(self, outages: Sequence[Outage]) -> None:
        #: The name of the outage that a sighting is of.
        self.names = {identity: one.name for one in outages for identity in one.ids}
        self._begun: dict[str, tuple[list[int], list[str]]] = {}
        for one in sorted(outages, key=lambda one: one.begins):
            minutes, names = self._begun.setdefault(one.pair, ([], []))
            minutes.append(int(one.begins // 60) * 60)  # records know nothing finer
            names.append(one.name)

    def name(self, usage: Usage) -> str | None:
        """The name of their outage, if they belong to one."""
        if usage.outage is not None:
            return self.names.get(usage.outage)
        if usage.role != "pump" or usage.stage not in MOVING:
            return None
        return self.name_at(usage.pair, usage.minute)

    def name_at(self, pair: str, minute: int) -> str | None:
        """Rule 2: the name of the outage of what a pump moves in this minute."""
        minutes, names = self._begun.get(pair, ([], []))
        place = bisect_right(minutes, minute)
        return names[place - 1] if place else None

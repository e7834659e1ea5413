"""What was used: operations as clients and pumps recorded them, and the outages that they belong to.

1. An outage of a pair is the time in which any client had any of its entities failed over. What several
   clients saw of one outage overlaps, and is put together.
2. A client says of each operation in which outage it was made. What a pump moves is told by the time: it
   belongs to the last outage of the pair that had begun by then, since nothing else puts messages into a
   backlog.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pairbus.stages import Stage

__all__ = [
    "MOVING",
    "Outage",
    "OutageBook",
    "OutageSighting",
    "Usage",
    "first_minute",
    "merge_outages",
    "month_of",
]

#: What a pump does to a message that it moves.
MOVING = frozenset(stage for stage in Stage if stage.traits.moves)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Operations of one kind in one minute (Unix seconds of its beginning)."""

    pair: str
    role: str
    namespace: str
    entity: str
    stage: Stage
    kind: str
    minute: int
    outage: str | None
    count: int
    units: int
    unknown: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutageSighting:
    """An outage as one client saw it, by its id; `ends` is None while it goes on."""

    id: str
    pair: str
    begins: float
    ends: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage of a pair. `ids` are the sightings that it was put together from."""

    name: str
    pair: str
    begins: float
    ends: float | None
    ids: frozenset[str]


def merge_outages(sightings: Iterable[OutageSighting]) -> list[Outage]:
    """Put together what overlaps; by pair and time."""
    found: list[Outage] = []
    for seen in sorted(sightings, key=lambda one: (one.pair, one.begins, one.id)):
        last = found[-1] if found and found[-1].pair == seen.pair else None
        if last is None or (last.ends is not None and last.ends < seen.begins):
            name = f"{seen.pair} {datetime.fromtimestamp(seen.begins, UTC):%Y-%m-%d %H:%M:%S}"
            found.append(
                Outage(
                    name=name, pair=seen.pair, begins=seen.begins, ends=seen.ends, ids=frozenset({seen.id})
                )
            )
            continue
        ends = None if last.ends is None or seen.ends is None else max(last.ends, seen.ends)
        found[-1] = Outage(
            name=last.name, pair=last.pair, begins=last.begins, ends=ends, ids=last.ids | {seen.id}
        )
    return found


class OutageBook:
    """Which outage a usage belongs to."""

    def __init__(self, outages: Sequence[Outage]) -> None:
        self._by_id = {identity: one.name for one in outages for identity in one.ids}
        self._of_pair: dict[str, tuple[list[int], list[str]]] = {}
        for one in sorted(outages, key=lambda each: each.begins):
            begins, names = self._of_pair.setdefault(one.pair, ([], []))
            begins.append(first_minute(one))
            names.append(one.name)

    def name(self, usage: Usage) -> str | None:
        """The name of its outage, if it belongs to one."""
        if usage.outage is not None:
            return self._by_id.get(usage.outage)
        if usage.role != "pump" or usage.stage not in MOVING or usage.pair not in self._of_pair:
            return None
        begins, names = self._of_pair[usage.pair]
        index = bisect_right(begins, usage.minute) - 1
        return names[index] if index >= 0 else None


def first_minute(outage: Outage) -> int:
    """The minute in which an outage began: records know nothing finer."""
    return int(outage.begins // 60) * 60


def month_of(moment: float) -> str:
    """The month of a moment, in UTC: the month of the bill."""
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m}"

"""Outages, and which of them what clients and pumps did belongs to.

1. An outage of a pair is the time in which any client had any of its entities failed over. What several
   clients saw of one outage overlaps, and is put together.
2. A client says of each operation in which outage it was made. What a pump moves is told by the time: it
   belongs to the last outage of the pair that had begun by then, since nothing else puts messages into a
   backlog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from pairbus.ledger.operations import Operation, OutageSpan

_FOR_EVER = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """An outage of a pair. `ids` are the sightings that it was put together from."""

    name: str
    pair: str
    begins: float
    ends: float | None
    ids: frozenset[str]


def merge_outages(sightings: Iterable[OutageSpan]) -> list[Outage]:
    """Put together what overlaps; by pair and time."""
    found: list[Outage] = []
    for seen in sorted(sightings, key=lambda one: (one.pair, one.begins, one.outage)):
        last = found[-1] if found and found[-1].pair == seen.pair else None
        if last is None or (last.ends is not None and last.ends < seen.begins):
            name = f"{seen.pair} {datetime.fromtimestamp(seen.begins, UTC):%Y-%m-%d %H:%M:%S}"
            ids = frozenset({seen.outage})
            found.append(Outage(name=name, pair=seen.pair, begins=seen.begins, ends=seen.ends, ids=ids))
            continue
        ends = None if last.ends is None or seen.ends is None else max(last.ends, seen.ends)
        found[-1] = Outage(
            name=last.name, pair=last.pair, begins=last.begins, ends=ends, ids=last.ids | {seen.outage}
        )
    return found


class Tenure(NamedTuple):
    """From when until when an outage is the last one of its pair to have begun, in whole minutes: records
    know nothing finer.
    """

    pair: str
    since: int
    before: int
    name: str


def find_tenures(outages: Iterable[Outage]) -> Iterator[Tenure]:
    """Rule 2: what a pump moves belongs to the outage in whose tenure it does so."""
    before: dict[str, int] = {}
    for one in sorted(outages, key=lambda one: one.begins, reverse=True):
        since = int(one.begins // 60) * 60
        yield Tenure(one.pair, since, before.get(one.pair, _FOR_EVER), one.name)
        before[one.pair] = since


class OutageBook:
    """Which outage operations belong to."""

    def __init__(self, outages: Sequence[Outage]) -> None:
        self._by_id = {identity: one.name for one in outages for identity in one.ids}
        self._tenures = list(find_tenures(outages))

    def name(self, usage: Operation) -> str | None:
        """The name of their outage, if they belong to one."""
        if usage.outage is not None:
            return self._by_id.get(usage.outage)
        if usage.role != "pump" or not usage.stage.traits.moves:
            return None
        found = (
            one for one in self._tenures if one.pair == usage.pair and one.since <= usage.minute < one.before
        )
        return next((one.name for one in found), None)

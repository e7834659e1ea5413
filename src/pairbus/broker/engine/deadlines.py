"""Deadlines, and who is to be woken for them.

1. Deadlines are gathered by the second in which they lie. To add or to remove one is a dictionary access,
   and what is removed is gone: a million settled locks leave nothing behind, and nothing has to be swept.
2. Only when its second has come is a bucket put into order, in a heap. An entry of the heap that was
   removed meanwhile is passed over. There are never more of these than fell into the last second or two.
3. So the next deadline is known exactly within the second that has come, and otherwise by its second: the
   owner may be woken up to a second too early, never too late, and once for each second at most.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

NEVER = float("inf")
# Below this, stale entries are not worth a sweep.
FEW = 64

DeadlineKey = TypeVar("DeadlineKey", int, str)


class Deadlines(Generic[DeadlineKey]):
    """Points in time, each with the key of what is due then. A key has one deadline at a time."""

    __slots__ = ("_buckets", "_heap", "_opened", "_seconds")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[DeadlineKey, float]] = {}
        # The seconds of the buckets; a second whose bucket has become empty may still be among them.
        self._seconds: list[int] = []
        self._opened: dict[DeadlineKey, float] = {}
        self._heap: list[tuple[float, DeadlineKey]] = []

    def __len__(self) -> int:
        return len(self._opened) + sum(len(bucket) for bucket in self._buckets.values())

    def add(self, when: float, key: DeadlineKey) -> None:
        second = int(when)
        bucket = self._buckets.get(second)
        if bucket is not None:
            bucket[key] = when
            return
        self._buckets[second] = {key: when}
        heappush(self._seconds, second)
        if len(self._seconds) > 2 * len(self._buckets) + FEW:
            self._seconds = list(self._buckets)
            heapify(self._seconds)

    def remove(self, when: float, key: DeadlineKey) -> None:
        """Take a deadline back; if it was due already, nothing happens."""
        second = int(when)
        bucket = self._buckets.get(second)
        if bucket is not None and bucket.pop(key, None) is not None:
            if not bucket:
                del self._buckets[second]
        else:
            self._opened.pop(key, None)

    def pop_due(self, now: float) -> Iterator[DeadlineKey]:
        """Take off what is due, in order of time. More may be added and removed meanwhile."""
        opened = self._opened
        while self._open(now):
            heap = self._heap
            while heap and heap[0][0] <= now:
                when, key = heappop(heap)
                if opened.get(key) == when:
                    del opened[key]
                    yield key
            if not self._seconds or self._seconds[0] > now:
                return

    def next(self) -> float:
        """When there may be something due; NEVER if there is nothing."""
        heap, opened, seconds, buckets = self._heap, self._opened, self._seconds, self._buckets
        while heap and opened.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        while seconds and seconds[0] not in buckets:
            heappop(seconds)
        ordered = heap[0][0] if heap else NEVER
        return min(ordered, float(seconds[0])) if seconds else ordered

    def _open(self, now: float) -> bool:
        """Put the buckets into order whose second has come; whether there is anything to look at."""
        seconds = self._seconds
        while seconds and seconds[0] <= now:
            bucket = self._buckets.pop(heappop(seconds), None)
            if bucket:
                self._opened.update(bucket)
                self._heap += [(when, key) for key, when in bucket.items()]
                heapify(self._heap)
        return bool(self._heap)


class Sleeper(ABC):
    """Something that wants to be woken. `alarm_at` is when; only Alarms sets it."""

    __slots__ = ("alarm_at",)

    def __init__(self) -> None:
        self.alarm_at = NEVER

    @abstractmethod
    def tick(self, now: float) -> None:
        """Do what is due and set the alarm anew."""


class Alarms:
    """Who is to be woken when: one entry a sleeper holds, its earliest."""

    __slots__ = ("_heap", "_order", "_set")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Sleeper]] = []
        self._order = 0
        self._set = 0

    def set(self, sleeper: Sleeper, when: float) -> None:
        """Wake it at this time and no earlier; NEVER for not at all."""
        if when == sleeper.alarm_at:
            return
        if sleeper.alarm_at != NEVER:
            self._set -= 1
        sleeper.alarm_at = when
        if when != NEVER:
            self._set += 1
            self._order += 1
            heappush(self._heap, (when, self._order, sleeper))
            if len(self._heap) > 2 * self._set + FEW:
                self._sweep()

    def next(self) -> float | None:
        """When somebody is to be woken, if at all."""
        heap = self._heap
        while heap and heap[0][0] != heap[0][2].alarm_at:
            heappop(heap)
        return heap[0][0] if heap else None

    def ring(self, now: float) -> None:
        """Wake everybody whose time has come."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            when, _, sleeper = heappop(heap)
            if when == sleeper.alarm_at:
                self._set -= 1
                sleeper.alarm_at = NEVER
                sleeper.tick(now)

    def _sweep(self) -> None:
        latest: dict[int, Any] = {
            id(entry[2]): entry for entry in self._heap if entry[0] == entry[2].alarm_at
        }
        self._heap[:] = latest.values()
        heapify(self._heap)

"""Deadlines: heaps with lazy deletion.

1. A deadline that no longer holds is not searched for. It stays as a dead entry until it comes to the top,
   where the owner's ``is_live`` sorts it out.
2. A heap that has more than twice as many entries as there are live things is swept when something is
   added, so dead entries never outnumber the live ones by much, and the cost is constant on average.
3. Entries hold keys, never messages: a dead entry keeps no body in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

__all__ = ["NEVER", "Alarms", "Deadlines", "Sleeper"]

NEVER = float("inf")
# Below this a sweep is not worth its while.
FEW = 64

Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """Points in time, each with the key of what is due then. Keys of one heap must be comparable."""

    __slots__ = ("_heap", "_is_live")

    def __init__(self, is_live: Callable[[float, Key], bool]) -> None:
        self._heap: list[tuple[float, Key]] = []
        self._is_live = is_live

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, key: Key, live: int) -> None:
        """Add a deadline; ``live`` is how many live ones there can be."""
        heap = self._heap
        heappush(heap, (when, key))
        if len(heap) > 2 * live + FEW:
            self._sweep()

    def pop_due(self, now: float) -> Iterator[Key]:
        """Take off what is due, in order of time. More may be added meanwhile."""
        heap, is_live = self._heap, self._is_live
        while heap and heap[0][0] <= now:
            when, key = heappop(heap)
            if is_live(when, key):
                yield key

    def next(self) -> float:
        """When the next live one is due; NEVER if there is none."""
        heap, is_live = self._heap, self._is_live
        while heap:
            when, key = heap[0]
            if is_live(when, key):
                return when
            heappop(heap)
        return NEVER

    def _sweep(self) -> None:
        is_live = self._is_live
        # In place: an iteration of pop_due may be under way.
        self._heap[:] = {entry for entry in self._heap if is_live(*entry)}
        heapify(self._heap)


class Sleeper(ABC):
    """Something that wants to be woken. ``alarm_at`` is when; only Alarms sets it."""

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

"""Deadlines, and who is to be woken for them.

1. Deadlines are gathered by the second in which they lie. To add or to remove one is a dictionary access,
   and what is removed is gone: a million settled locks leave nothing behind, and nothing has to be swept.
2. Only when its second has come is a bucket put into order, in a heap. An entry of the heap that was
   removed meanwhile is passed over. There are never more of these than fell into the last second or two.
3. So the next deadline is known exactly within the second that has come, and otherwise by its second: the
   owner may be woken up to a second too early, never too late, and once for each second at most.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from heapq import heapify, heappop, heappush
from inspect import signature
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

from .breath import breathe

NEVER = float("inf")
# Deadlines of one second that are put into order one by one: all at once is quicker, but takes a while.
_MANY = 4096
# Below this, stale entries are not worth a sweep.
FEW = 64

P = ParamSpec("P")
R = TypeVar("R")
Subject = TypeVar("Subject")
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

    def add_all(self, when: float, keys: Sequence[DeadlineKey]) -> None:
        """The same for some that are due together."""
        self.add(when, keys[0])
        self._buckets[int(when)].update(dict.fromkeys(keys, when))

    def remove(self, when: float, key: DeadlineKey) -> None:
        """Take a deadline back; if it was due already, nothing happens."""
        second = int(when)
        bucket = self._buckets.get(second)
        if bucket is not None and bucket.pop(key, None) is not None:
            if not bucket:
                del self._buckets[second]
        else:
            self._opened.pop(key, None)

    def remove_all(self, when: float, keys: Sequence[DeadlineKey]) -> None:
        """The same for some that would have been due together."""
        second = int(when)
        bucket = self._buckets.get(second)
        for key in keys:
            if bucket is None or bucket.pop(key, None) is None:
                self._opened.pop(key, None)
        if bucket is not None and not bucket:
            del self._buckets[second]

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

    def due(self, now: float, most: int) -> list[DeadlineKey]:
        """Some of those that `pop_due` is about to give out."""
        opened = self._opened
        return [key for when, key in self._heap[:most] if when <= now and opened.get(key) == when]

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
            if not bucket:
                continue
            if len(bucket) > _MANY:
                for key, when in bucket.items():
                    self._opened[key] = when
                    heappush(self._heap, (when, key))
                    breathe()
            else:
                self._opened.update(bucket)
                self._heap += [(when, key) for key, when in bucket.items()]
                heapify(self._heap)
        return bool(self._heap)


class Alarm:
    """When something is woken, and how: `wake` does what is due and sets it anew. Alarms alone sets `at`."""

    __slots__ = ("at", "wake")

    def __init__(self, wake: Callable[[float], None]) -> None:
        self.at = NEVER
        self.wake = wake


class Punctual(Protocol):
    """Something that has an alarm."""

    alarm: Alarm


Owner = TypeVar("Owner", bound=Punctual)


def timely(
    operation: Callable[Concatenate[Owner, Subject, float, P], R],
) -> Callable[Concatenate[Owner, Subject, float, P], R]:
    """Let an operation first do what is due by its `now`, whether anybody has rung the alarms or not."""

    @wraps(operation)
    def perform(owner: Owner, subject: Subject, now: float, /, *rest: P.args, **options: P.kwargs) -> R:
        if now >= owner.alarm.at:
            owner.alarm.wake(now)
        return operation(owner, subject, now, *rest, **options)

    @wraps(operation)
    def perform_plain(owner: Owner, subject: Subject, now: float, /) -> R:
        if now >= owner.alarm.at:
            owner.alarm.wake(now)
        return operation(owner, subject, now)  # type: ignore[call-arg]

    # Most have no more arguments, and are called for each message: to pass on none takes a while, too.
    is_plain = len(signature(operation).parameters) == 3
    return cast("Callable[Concatenate[Owner, Subject, float, P], R]", perform_plain if is_plain else perform)


class Alarms:
    """Who is to be woken when: one entry an alarm, its earliest."""

    __slots__ = ("_heap", "_order", "_set")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Alarm]] = []
        self._order = 0
        self._set = 0

    def set(self, alarm: Alarm, when: float) -> None:
        """Let it ring at this time and no earlier; NEVER for not at all."""
        if when == alarm.at:
            return
        if alarm.at != NEVER:
            self._set -= 1
        alarm.at = when
        if when != NEVER:
            self._set += 1
            self._order += 1
            heappush(self._heap, (when, self._order, alarm))
            if len(self._heap) > 2 * self._set + FEW:
                self._sweep()

    def next(self) -> float | None:
        """When somebody is to be woken, if at all."""
        heap = self._heap
        while heap and heap[0][0] != heap[0][2].at:
            heappop(heap)
        return heap[0][0] if heap else None

    def ring(self, now: float) -> None:
        """Wake everybody whose time has come."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            when, _, alarm = heappop(heap)
            if when == alarm.at:
                self._set -= 1
                alarm.at = NEVER
                alarm.wake(now)

    def _sweep(self) -> None:
        latest = {id(entry[2]): entry for entry in self._heap if entry[0] == entry[2].at}
        self._heap[:] = latest.values()
        heapify(self._heap)

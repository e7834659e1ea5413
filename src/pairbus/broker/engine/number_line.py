"""The line of messages that wait for a receiver, smallest sequence number first.

New messages join at the end; messages that come back are put into a heap; the next one is the smaller of
the two heads. A message that leaves without being received (it expired) stays in the line as a stale
number, which the caller passes over; when more than half of a line is stale, the caller asks for it to be
swept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush


class NumberLine:
    """Sequence numbers in order, some of them stale."""

    __slots__ = ("_fresh", "_returned")

    def __init__(self) -> None:
        self._fresh: deque[int] = deque()
        self._returned: list[int] = []

    def __len__(self) -> int:
        return len(self._fresh) + len(self._returned)

    def put(self, number: int) -> None:
        """Let a message stand in the line where its number belongs."""
        fresh = self._fresh
        if not fresh or number > fresh[-1]:
            fresh.append(number)
        else:
            heappush(self._returned, number)

    def pop(self) -> int | None:
        """Take the smallest number off, stale or not."""
        fresh, returned = self._fresh, self._returned
        if returned and (not fresh or returned[0] < fresh[0]):
            return heappop(returned)
        return fresh.popleft() if fresh else None

    def sweep(self, is_waiting: Callable[[int], bool]) -> None:
        """Drop the stale numbers."""
        self._fresh = deque(number for number in self._fresh if is_waiting(number))
        self._returned = [number for number in self._returned if is_waiting(number)]
        heapify(self._returned)

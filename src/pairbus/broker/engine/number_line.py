"""The line of messages that wait for a receiver, smallest sequence number first.

New messages join at the end; messages that come back are put into a heap; the next one is the smaller of
the two heads. A message that leaves without being received (it expired) stays in the line as a stale
number, which the caller passes over; when more than half of a line is stale, the caller asks for it to be
swept.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import repeat


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

    def extend(self, numbers: Sequence[int]) -> None:
        """The same for many, in their order."""
        if numbers and (not self._fresh or numbers[0] > self._fresh[-1]):
            self._fresh.extend(numbers)
        else:
            for number in numbers:
                self.put(number)

    def pop(self, most: int) -> list[int]:
        """Take up to so many of the smallest numbers off, stale or not, in order."""
        fresh, returned, taken = self._fresh, self._returned, list[int]()
        while returned and len(taken) < most:
            taken.append(fresh.popleft() if fresh and fresh[0] < returned[0] else heappop(returned))
        taken += [fresh.popleft() for _ in repeat(None, min(most - len(taken), len(fresh)))]
        return taken

    def put_back(self, numbers: Sequence[int]) -> None:
        """Let the last of those that `pop` has given stand in front again, in their order."""
        self._fresh.extendleft(reversed(numbers))

    def ahead(self) -> Iterator[int]:
        """The numbers in their order, stale ones too. The line must not change meanwhile."""
        return merge(_ascending(self._returned), self._fresh)

    def sweep(self, is_waiting: Callable[[int], bool]) -> None:
        """Drop the stale numbers."""
        self._fresh = deque(number for number in self._fresh if is_waiting(number))
        self._returned = [number for number in self._returned if is_waiting(number)]
        heapify(self._returned)


def _ascending(heap: list[int]) -> Iterator[int]:
    """What is in a heap, smallest first, without taking it out: each costs the logarithm of those before."""
    candidates = [(heap[0], 0)] if heap else []
    while candidates:
        number, at = heappop(candidates)
        yield number
        for child in (2 * at + 1, 2 * at + 2):
            if child < len(heap):
                heappush(candidates, (heap[child], child))

"""Numbers of 32 bits that wrap (RFC 1982), and numbers that are given out and taken back."""

from __future__ import annotations

import heapq

MASK = 0xFFFFFFFF


def serial_gap(later: int, earlier: int) -> int:
    """How far `later` is ahead of `earlier`; negative if it is behind."""
    gap = (later - earlier) & MASK
    return gap if gap < 0x80000000 else gap - 0x100000000


class NumberPool:
    """Gives out the lowest free number: channels and handles stay small, and peers have tables of them."""

    __slots__ = ("_freed", "_next")

    def __init__(self) -> None:
        self._freed: list[int] = []
        self._next = 0

    @classmethod
    def without(cls, taken: set[int]) -> NumberPool:
        """A pool that has given out these."""
        pool = cls()
        pool._next = max(taken, default=-1) + 1
        pool._freed = [number for number in range(pool._next) if number not in taken]
        return pool

    def peek(self) -> int:
        """The number that `take` would give."""
        return self._freed[0] if self._freed else self._next

    def take(self) -> int:
        if self._freed:
            return heapq.heappop(self._freed)
        self._next += 1
        return self._next - 1

    def give_back(self, number: int) -> None:
        heapq.heappush(self._freed, number)

"""Whole numbers as ranges."""

from __future__ import annotations

from collections.abc import Iterable


def ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as runs of neighbours: the first and the last of each, in order."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and number <= ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges

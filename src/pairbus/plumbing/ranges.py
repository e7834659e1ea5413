"""Whole numbers as ranges."""

from collections.abc import Iterable


def ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as runs of neighbours: the first and the last of each, in order."""
    ranges: list[tuple[int, int]] = []
    found = sorted(set(numbers))
    if found and found[-1] - found[0] == len(found) - 1:  # as it is nearly always, and told much sooner
        return [(found[0], found[-1])]
    for number in found:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges

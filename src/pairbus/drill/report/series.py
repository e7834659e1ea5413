"""The samples of a drill as series for charts: in slots of one length, few enough to draw.

Samples are sums so far, taken now and then. Between two of them a sum is taken to rise evenly, so a slot gets
exactly what its time is worth, and all slots together get all there was, however long they are. A level (what
lies in the backlog) is not spread: a slot shows the highest that was seen in it, so a peak never disappears.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from pairbus.charts.areas import Slots
from pairbus.drill.result import Sample

# As many columns as a chart shows: finer ones are not seen, and each has words of its own for the pointer.
MOST_SLOTS = 150
_LENGTHS = (0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600)


def make_slots(seconds: float) -> Slots:
    """The shortest round slots of which there are not too many."""
    length = next((length for length in _LENGTHS if seconds / length <= MOST_SLOTS), 0.0)
    length = length or _LENGTHS[-1] * math.ceil(seconds / _LENGTHS[-1] / MOST_SLOTS)
    return Slots(length, max(1, math.ceil(seconds / length - 1e-9)))


def sums_of(samples: Sequence[Sample], name: str, slots: Slots) -> list[float]:
    """How far a sum, by its name in a sample, had come at each edge of a slot: one more than slots."""
    moments = [sample.at for sample in samples]
    sums = [getattr(sample, name) for sample in samples]
    return [_sum_at(slots.begins(number), moments, sums) for number in range(slots.count + 1)]


def _sum_at(at: float, moments: Sequence[float], sums: Sequence[int]) -> float:
    after = bisect_right(moments, at)
    if after == len(sums):
        return float(sums[-1]) if sums else 0.0
    begins, low = (0.0, 0) if after == 0 else (moments[after - 1], sums[after - 1])
    if moments[after] <= begins:
        return float(low)
    return low + (sums[after] - low) * max(at - begins, 0.0) / (moments[after] - begins)


def rates_of(samples: Sequence[Sample], name: str, slots: Slots) -> list[float]:
    """How much a second came in each slot."""
    sums = sums_of(samples, name, slots)
    return [max(later - sooner, 0.0) / slots.length for sooner, later in pairwise(sums)]


def levels_of(samples: Sequence[Sample], name: str, slots: Slots) -> list[float]:
    """The highest of each slot; a slot without a sample shows the one before."""
    levels: list[float | None] = [None] * slots.count
    for sample in samples:
        number = min(max(int(sample.at / slots.length), 0), slots.count - 1)
        levels[number] = max(levels[number] or 0.0, float(getattr(sample, name)))
    shown, last = [], 0.0
    for level in levels:
        last = last if level is None else level
        shown.append(last)
    return shown

"""The trail of a drill: rates since its beginning, in as few places as a terminal has."""

from __future__ import annotations

from collections.abc import Mapping

_FIRST_SLOT = 0.5
_MARKS = " ▁▂▃▄▅▆▇█"


class Trail:
    """Sums by slots of time. When those no longer fit each two become one: the whole drill is in view."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._slot = _FIRST_SLOT
        # The sums at the end of each slot.
        self._ends: list[dict[str, int]] = []

    def add(self, at: float, sums: Mapping[str, int]) -> None:
        """Tell how far the sums have come."""
        while int(at / self._slot) >= self._places:
            self._slot *= 2
            # The second of two holds what its pair has come to; the last may stand alone.
            self._ends = [self._ends[min(n + 1, len(self._ends) - 1)] for n in range(0, len(self._ends), 2)]
        number = max(int(at / self._slot), len(self._ends) - 1)
        while len(self._ends) <= number:
            self._ends.append(dict(self._ends[-1]) if self._ends else {})
        self._ends[number] = dict(sums)

    def rates(self, name: str) -> list[float]:
        """How much a second, slot by slot, without the last one, which is not over, if there are others."""
        ends = [sums.get(name, 0) for sums in self._ends]
        rates = [(later - sooner) / self._slot for sooner, later in zip([0, *ends], ends, strict=False)]
        return rates[:-1] if len(rates) > 1 else rates


def draw_spark(rates: list[float], *, most: float) -> str:
    """A letter for each rate, as high as its share of the most; what is more than nothing is seen."""
    if most <= 0:
        return " " * len(rates)
    steps = len(_MARKS) - 1
    return "".join(
        _MARKS[min(steps, max(1, round(steps * rate / most))) if rate > 0 else 0] for rate in rates
    )

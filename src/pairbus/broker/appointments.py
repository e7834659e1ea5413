"""What is to be done when, by the broker's own clock, which a test may turn by hand."""

import heapq
import math
from collections.abc import Callable


class Appointments:
    """Those of one moment are kept in the order in which they were made."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._made = 0

    def make(self, at: float, act: Callable[[], None]) -> None:
        """Have `act` called when the clock shows `at`."""
        self._made += 1
        heapq.heappush(self._heap, (at, self._made, act))

    @property
    def next(self) -> float:
        """When the next one is; infinity if there is none."""
        return self._heap[0][0] if self._heap else math.inf

    def keep(self, now: float) -> None:
        """Do all that is due."""
        while self.next <= now:
            heapq.heappop(self._heap)[2]()

"""Message ids that were seen, for as long as they count as duplicates.

An id is looked up with its time, so forgetting late does no harm. Ids are forgotten a second's worth at a
time, and a store hears of it with one event, however many they were. All of them are in memory, and a window
may last a week: there is as much room for them as for messages, and who finds none is refused.
"""

from collections.abc import Iterator

from .breath import breathe
from .context import Space
from .deadlines import Deadlines

# Seconds by which forgetting may be late.
SLACK = 1.0
# Bytes of memory that an id takes beside its characters.
ID_OVERHEAD = 128


class DuplicateHistory:
    """The duplicate-detection history of one queue or topic."""

    __slots__ = ("_ends", "_space", "_until", "window")

    def __init__(self, window: float, space: Space) -> None:
        self.window = window
        self._space = space
        self._until: dict[str, float] = {}
        self._ends: Deadlines[str] = Deadlines()

    def __len__(self) -> int:
        return len(self._until)

    def knows(self, key: str, now: float) -> bool:
        """Whether a message of this id would be a duplicate."""
        return self._until.get(key, now) > now

    def keep(self, key: str, until: float) -> None:
        """Remember an id."""
        before = self._until.get(key)
        if before is not None:
            self._ends.remove(before, key)
        else:
            self._space.remembered += len(key) + ID_OVERHEAD
        self._until[key] = until
        self._ends.add(until, key)

    def change_window(self, window: float) -> None:
        """Let ids, also those that are known, count as long as if the window had been so when they came."""
        longer, self.window = window - self.window, window
        for key, until in list(self._until.items()):
            self.keep(key, until + longer)
            breathe()

    def forget(self, now: float) -> bool:
        """Drop the ids whose time is over; whether there were any."""
        has_forgotten = False
        for key in self._ends.pop_due(now):
            del self._until[key]
            self._space.remembered -= len(key) + ID_OVERHEAD
            has_forgotten = True
            breathe()
        return has_forgotten

    def next(self) -> float:
        """When there will be something to forget."""
        return self._ends.next() + SLACK

    def entries(self) -> Iterator[tuple[str, float]]:
        yield from self._until.items()

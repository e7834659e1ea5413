"""Numbers for messages that are scheduled while their entity has failed over.

The primary has not seen such a message, so it has no sequence number. It gets a negative one, which no entity
ever gives out; cancelling it is refused here, before the primary is asked, where the same digits would mean
another message.
"""

from collections.abc import Iterable

from .errors import ScheduledInBacklogError


class BacklogNumbers:
    """Gives out negative numbers, each once: -1, -2, …"""

    def __init__(self) -> None:
        self._last = 0

    def take(self, count: int) -> list[int]:
        """The next `count` numbers."""
        first = self._last
        self._last -= count
        return [first - offset for offset in range(1, count + 1)]


def check_cancellable(numbers: Iterable[int]) -> None:
    """Raise `ScheduledInBacklogError` if any of the numbers stands for a message of the backlog."""
    in_backlog = [number for number in numbers if number < 0]
    if in_backlog:
        raise ScheduledInBacklogError(in_backlog)

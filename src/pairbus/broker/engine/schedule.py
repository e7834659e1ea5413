"""Messages that wait for their time. A number names each of them until then."""

from collections.abc import Iterator

from .deadlines import Deadlines
from .message import MessageState, StoredMessage
from .shelf import AT_ONCE, Shelf


class Schedule:
    """The scheduled messages of one entity; they stand on its shelf with the others."""

    __slots__ = ("_deadlines", "_shelf", "count")

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._deadlines: Deadlines[int] = Deadlines()
        self.count = 0

    def find(self, number: int) -> StoredMessage | None:
        """The scheduled message of this number."""
        message = self._shelf.table.get(number)
        return message if message is not None and message.state is MessageState.SCHEDULED else None

    def place(self, message: StoredMessage) -> float:
        """Let a message wait; its time."""
        when = message.scheduled_for
        assert when is not None
        self._shelf.add(message)
        self.count += 1
        self._deadlines.add(when, message.sequence_number)
        return when

    def take(self, message: StoredMessage) -> None:
        """Let a message wait no longer."""
        assert message.scheduled_for is not None
        self._deadlines.remove(message.scheduled_for, message.sequence_number)
        self._shelf.remove(message)
        self.count -= 1

    def pop_due(self, now: float) -> Iterator[StoredMessage]:
        """Those whose time has come; each is still to be taken."""
        for number in self._deadlines.pop_due(now):
            message = self._shelf.table.get(number)
            assert message is not None
            if not message.is_at_hand:
                self._shelf.bring(message, self._deadlines.due(now, AT_ONCE))
            yield message

    def next(self) -> float:
        return self._deadlines.next()

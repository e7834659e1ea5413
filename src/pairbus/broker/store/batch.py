"""What a turn writes, sorted by how it is written."""

from collections.abc import Callable, Sequence

from pairbus.broker.engine.breath import slices
from pairbus.broker.engine.events import (
    DuplicateForgotten,
    DuplicateSeen,
    EngineEvent,
    MessageChanged,
    MessageRemoved,
    MessageStored,
    SequenceAdvanced,
)
from pairbus.broker.engine.message import StoredMessage
from pairbus.plumbing.ranges import ranges_of

# Events that are sorted, and rows that are removed, in a moment.
_FEW = 64


class Batch:
    """Events of a turn between two removals of entities. Messages go by their keys."""

    __slots__ = ("changed", "duplicates", "others", "removed", "sequences", "stored")

    def __init__(self) -> None:
        self.stored: dict[int, StoredMessage] = {}
        self.changed: dict[int, MessageChanged] = {}
        self.removed: dict[int, None] = {}
        self.sequences: dict[int, int] = {}
        self.duplicates: list[tuple[int, str, float]] = []
        self.others: list[EngineEvent] = []

    def sort(self, events: Sequence[EngineEvent], first_key: Callable[[str], int]) -> None:
        """Take in events, no removals of entities. The order of the cases is that of their number."""
        stored, removed, path, place = self.stored, self.removed, "", 0
        for few in slices(events, _FEW):
            for event in few:
                if type(event) is MessageStored:
                    queue, message = event
                    if queue is not path:
                        path, place = queue, first_key(queue)
                    stored[place + message.sequence_number] = message
                elif type(event) is MessageRemoved:
                    queue, number = event
                    if queue is not path:
                        path, place = queue, first_key(queue)
                    removed[place + number] = None
                else:
                    self._sort_other(event, first_key)

    def _sort_other(self, event: EngineEvent, first_key: Callable[[str], int]) -> None:
        if isinstance(event, DuplicateSeen):
            self.duplicates.append((first_key(event.queue), event.message_id, event.until))
        elif isinstance(event, MessageChanged):
            self._change(first_key(event.queue) + event.sequence_number, event)
        elif isinstance(event, SequenceAdvanced):
            self.sequences[first_key(event.queue)] = event.sequence_number
        else:
            if isinstance(event, DuplicateForgotten) and self.duplicates:
                # Ids are written last: those that came and are forgotten in one turn would stay.
                place = first_key(event.queue)
                self.duplicates = [row for row in self.duplicates if row[0] != place or row[2] > event.until]
            self.others.append(event)

    def _change(self, key: int, event: MessageChanged) -> None:
        """Note the newest state of a message, with the newest properties that were told of."""
        before = self.changed.get(key)
        if before is not None and event.application_properties_bytes is None:
            event = event._replace(application_properties_bytes=before.application_properties_bytes)
        self.changed[key] = event

    def removed_ranges(self) -> list[tuple[int, int]]:
        """Keys to remove as short ranges: neighbours go by one statement."""
        ranges = ranges_of(self.removed.keys() - self.stored.keys() if self.stored else self.removed)
        return [
            (at, min(at + _FEW - 1, last)) for first, last in ranges for at in range(first, last + 1, _FEW)
        ]

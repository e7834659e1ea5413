"""Messages by sequence number, in order.

Numbers grow and leave holes. They are kept in blocks of 256 by their upper bits, so that adding, finding
and removing one are dictionary accesses, and a walk from any number starts at its block. An empty block is
dropped: there is no garbage, and the sorted list of blocks is 256 times shorter than the queue.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import groupby

from .breath import breathe
from .message import StoredMessage

BITS = 8


class MessageTable:
    """An ordered mapping from sequence number to message."""

    __slots__ = ("_blocks", "_keys", "count")

    def __init__(self) -> None:
        self._blocks: dict[int, dict[int, StoredMessage]] = {}
        self._keys: list[int] = []
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def add(self, message: StoredMessage) -> None:
        number = message.sequence_number
        key = number >> BITS
        block = self._blocks.get(key)
        if block is None:
            self._blocks[key] = {number: message}
            if not self._keys or key > self._keys[-1]:
                self._keys.append(key)
            else:
                insort(self._keys, key)
        else:
            block[number] = message
        self.count += 1

    def add_all(self, messages: Sequence[StoredMessage]) -> None:
        """Add many, in the order of their numbers."""
        for _, group in groupby(messages, key=lambda message: message.sequence_number >> BITS):
            first, *others = group
            self.add(first)
            self._blocks[first.sequence_number >> BITS].update(
                {message.sequence_number: message for message in others}
            )
            self.count += len(others)

    def get(self, number: int) -> StoredMessage | None:
        block = self._blocks.get(number >> BITS)
        return None if block is None else block.get(number)

    def __getitem__(self, number: int) -> StoredMessage:
        return self._blocks[number >> BITS][number]

    def remove(self, number: int) -> None:
        key = number >> BITS
        block = self._blocks[key]
        del block[number]
        self.count -= 1
        if not block:
            del self._blocks[key]
            del self._keys[bisect_left(self._keys, key)]

    def remove_all(self, numbers: Sequence[int]) -> None:
        """Remove many: those that are in one block, one behind the other, share the way to it."""
        for key, group in groupby(numbers, key=lambda number: number >> BITS):
            block = self._blocks[key]
            for number in group:
                del block[number]
                self.count -= 1
            if not block:
                del self._blocks[key]
                del self._keys[bisect_left(self._keys, key)]

    def clear(self) -> None:
        """Let go of all messages, bit by bit: a million at once take a second to go."""
        self._keys.clear()
        self.count = 0
        while self._blocks:
            self._blocks.popitem()
            breathe()

    def since(self, number: int) -> Iterator[StoredMessage]:
        """The messages from this number on, in order. The table must not change meanwhile."""
        first = number >> BITS
        for index in range(bisect_left(self._keys, first), len(self._keys)):
            block = self._blocks[self._keys[index]]
            # Mostly sorted already; only dead-letter queues and replays get numbers out of order.
            for each in sorted(block):
                if each >= number:
                    yield block[each]

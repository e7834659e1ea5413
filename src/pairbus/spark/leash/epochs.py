"""Which shard serves which queue, and how long an epoch lasts. Pure; time comes in as an argument.

1. Queues are dealt out like cards, so that shards differ by one queue at most. One shard serves many queues
   at once, so that there may be far more queues than slots.
2. An epoch in which something was moved is followed by a short one. Where nothing was, a long one follows,
   because the end of each epoch cuts the polls of all queues, and polls cost money. It lasts for a whole
   number of polls, so that there are no more of them than there would be without epochs.
3. All shards of an epoch end together. A shard that came back early would leave its queues unserved until the
   last one has come back. The first that begins starts the clock; the others get what is left.
4. A shard that begins when the epoch is over has had no slot: there are fewer of them than shards, perhaps
   because an executor was lost. It gets a short turn of its own, or its queues would never be served.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from pairbus.backlog.served_queue import ServedQueue

BUSY_EPOCH = 5.0
LONGEST_EPOCH = 900.0


class Shard(NamedTuple):
    """What one task does in one epoch."""

    epoch: int
    number: int
    queues: tuple[ServedQueue, ...]


def deal(queues: Sequence[ServedQueue], shards: int, *, epoch: int = 0) -> list[Shard]:
    """The queues over at most so many shards; none of them is empty."""
    count = max(1, min(shards, len(queues)))
    return [Shard(epoch, number, tuple(queues[number::count])) for number in range(count)]


@dataclass(slots=True)
class Epochs:
    """The lengths of epochs, one after the other. Idle ones last `longest`, or to the end of that `poll`."""

    busy: float = BUSY_EPOCH
    longest: float = LONGEST_EPOCH
    poll: float | None = None
    _epoch: int | None = field(default=None, init=False)
    _length: float = field(default=0.0, init=False)
    _handled: int = field(default=0, init=False)
    _ends: float = field(default=0.0, init=False)

    def left(self, epoch: int, *, now: float, handled: int) -> float:
        """What is left of an epoch, which the first that asks begins; `handled` counts all messages."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._ends = now + self._next_length(handled)
        return self._ends - now if now < self._ends else self.busy

    def _next_length(self, handled: int) -> float:
        was_busy = handled > self._handled or self._length == 0.0
        self._handled = handled
        idle = self.longest if self.poll is None else ceil(self.longest / self.poll) * self.poll
        self._length = self.busy if was_busy else idle
        return self._length

"""The backlog queues that a client believes usable, shared by all of its senders.

1. A sender that fails over chooses a queue at random and keeps it, so that the load of many senders spreads
   and the messages of one stay together, in order.
2. A queue that fails leaves the rotation for everybody: whoever had chosen it chooses another one with the
   next message.
3. After a cool-down it may be chosen again. Senders that have moved on stay where they are.
   Where none is left, one that answers may return sooner.
4. One call tries each queue at most once: that is a *round*. When none is left, choosing raises
   `BacklogUnavailableError`. The error says when the next one returns.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass

from .errors import BacklogUnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """A picture of one backlog queue, for people."""

    name: str
    usable: bool
    returns_at: float | None
    failures: int
    last_failure: str | None


@dataclass(slots=True)
class _Queue:
    name: str
    out_until: float | None = None
    failures: int = 0
    last_failure: str | None = None

    def is_usable(self, now: float) -> bool:
        return self.out_until is None or now >= self.out_until


class Rotation:
    """The backlog queues of one client."""

    def __init__(self, queues: Sequence[str], *, cool_down: float, random: Callable[[], float]) -> None:
        """`random` gives numbers from 0 to below 1, as `random.random` does."""
        if not queues:
            raise ValueError("a rotation needs at least one backlog queue")
        self._queues = {name: _Queue(name) for name in queues}
        self._cool_down = cool_down
        self._random = random
        self._choices: dict[Hashable, _Queue] = {}
        self._last_failure: str | None = None

    def choose(self, sender: Hashable, now: float, *, tried: Collection[str] = ()) -> str:
        """The queue of this sender: the one that it had, as long as that is usable, or a new one.

        None of those that were `tried` in this round, also if one of them may be used again meanwhile.
        """
        chosen = self._choices.get(sender)
        if chosen is None or not chosen.is_usable(now) or chosen.name in tried:
            chosen = self._pick(now, tried)
            self._choices[sender] = chosen
        return chosen.name

    def move(self, sender: Hashable, queue: str) -> None:
        """Let a sender go on with this queue."""
        self._choices[sender] = self._queues[queue]

    def is_usable(self, queue: str, now: float) -> bool:
        """Whether it is in the rotation."""
        return self._queues[queue].is_usable(now)

    def fail(self, queue: str, now: float, *, reason: str) -> bool:
        """A send to the queue failed. True if it leaves the rotation now, False if it was out before."""
        entry = self._queues[queue]
        left = entry.is_usable(now)
        entry.failures += 1
        entry.last_failure = self._last_failure = reason
        if left:
            # Sends that fail later, begun while it was still in, must not prolong its absence for ever.
            entry.out_until = now + self._cool_down
        return left

    def succeed(self, queue: str, now: float) -> None:
        """A send to the queue succeeded: its failures are forgotten, unless it has just left the rotation."""
        entry = self._queues[queue]
        if entry.is_usable(now):
            entry.out_until = None
            entry.failures = 0

    def restore(self, queue: str) -> None:
        """The queue answers again: it is back before the end of its cool-down."""
        self._queues[queue].out_until = None

    def usable(self, now: float) -> list[str]:
        """The queues in the rotation, in their order."""
        return [entry.name for entry in self._queues.values() if entry.is_usable(now)]

    def status(self, now: float) -> list[QueueStatus]:
        """A picture of all queues."""
        return [
            QueueStatus(
                name=entry.name,
                usable=entry.is_usable(now),
                returns_at=None if entry.is_usable(now) else entry.out_until,
                failures=entry.failures,
                last_failure=entry.last_failure,
            )
            for entry in self._queues.values()
        ]

    def exhausted(self, now: float) -> BacklogUnavailableError:
        """What a round ends with that has found no queue."""
        returns = [entry.out_until for entry in self._queues.values() if entry.out_until is not None]
        return BacklogUnavailableError(
            len(self._queues),
            retry_after=max(min(returns, default=now) - now, 0.0),
            last_failure=self._last_failure,
        )

    def _pick(self, now: float, tried: Collection[str]) -> _Queue:
        usable = [self._queues[name] for name in self.usable(now) if name not in tried]
        if not usable:
            raise self.exhausted(now)
        return usable[int(self._random() * len(usable))]

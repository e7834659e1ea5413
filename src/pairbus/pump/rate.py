"""How fast: a limiter by messages and bytes that adapts to what the primary says. Pure; time comes in.

1. Two buckets, of messages and of bytes, fill at their rates and hold what comes in a tenth of a second. What
   is in them is the *room*: so much may be sent now. What does not fit waits where it is, and nobody owes
   anything, so that a rate that changes counts at once for all who wait.
2. The message rate adapts. It starts gently, for a primary that has just come back, and doubles as long as
   nothing is wrong. With trouble it is halved, at most once a reaction time, since what was on its way is
   refused together. Where trouble came is the *wall*.
3. Below the wall the rate doubles again, around it it grows by little, and when it is well past it the wall
   is forgotten. So a primary that takes so much and no more is asked for that much most of the time, and one
   that was throttled for a while, however long and however often, has its old rate again within seconds.
4. A rate that nobody uses tells nothing: trouble counts from what was sent.
5. A maximum given by the user is never passed. Without trouble and without a maximum the limiter soon allows
   more than anybody can send, and is then no more than a comparison.
6. The credit for a queue is what its measured rate moves in a third of a lock's duration, so that the locks
   of all that is in hand outlast its sending. Until a delivery has told how long that is, it is the shortest
   that the service gives: what came to a first, large credit for a slow rate would be sent and not completed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

#: Messages a second to begin with.
START_RATE = 2000.0
_BURST = 0.1
_REACTION = 1.0
_DOUBLING = 0.25
# Rule 3: what is around the wall, and the part of it that the rate grows by in a second there.
_NEAR, _PAST = 0.9, 1.1
_GROWTH = 0.04
_LOWEST = 1.0
# Beyond this no single process sends, so that there is nothing left to limit.
_UNBOUNDED = 1e6
# What is missing may be so little that a clock does not show the time it takes.
_SHORTEST = 0.001
# Whoever waits for room waits for a part of what the bucket holds, not for every single message.
_PART = 0.5
#: The shortest lock of the service.
SHORTEST_LOCK = 5.0


@dataclass(slots=True)
class Room:
    """What may be sent now; whoever sends takes from it. `is_short` if somebody had to wait."""

    messages: float
    bytes: float = inf
    is_short: bool = False

    @property
    def is_empty(self) -> bool:
        return self.messages < 1 or self.bytes <= 0

    def take(self, size: int) -> bool:
        """Whether one message more may go, of this size."""
        if self.is_empty:
            self.is_short = True
            return False
        self.messages -= 1
        self.bytes -= size
        return True


class Limiter:
    """Rates for a whole pump."""

    def __init__(
        self,
        *,
        max_messages: float | None = None,
        max_bytes: float | None = None,
        adaptive: bool = True,
        start: float | None = None,
    ) -> None:
        """Maxima are a second; `start` is the rate to begin with if adaptive."""
        start = START_RATE if start is None else start
        self._adaptive = adaptive
        self._start = self._rate = start
        self.limit(max_messages, max_bytes)
        self._wall = inf
        self._reacted_at = -inf
        self._grown_at: float | None = None
        self._taken = 0  # since then
        self._flow = 0.0  # messages a second that were sent of late
        self._messages = 0.0  # what is in the buckets; a try may take more than there is
        self._bytes = 0.0
        self._filled_at: float | None = None

    @property
    def rate(self) -> float:
        """Messages a second that are allowed now."""
        return self._rate

    def limit(self, max_messages: float | None, max_bytes: float | None) -> None:
        """Have other maxima from now on."""
        self._ceiling = min(_UNBOUNDED, max_messages if max_messages is not None else _UNBOUNDED)
        self._byte_rate = max_bytes if max_bytes is not None else inf
        self._rate = min(self._rate, self._ceiling) if self._adaptive else self._ceiling

    def room(self, now: float) -> Room | None:
        """What may be sent now; None if there is no limit."""
        self._grow(now)
        if self._rate >= _UNBOUNDED and self._byte_rate == inf:
            return None
        self._fill(now)
        return Room(self._messages, self._bytes if self._byte_rate != inf else inf)

    def take(self, messages: int, size: int) -> None:
        """So much is sent."""
        self._taken += messages
        if self._rate < _UNBOUNDED:
            self._messages -= messages
        if self._byte_rate != inf:
            self._bytes -= size

    def wait(self) -> float:
        """How long until there is room again for some messages."""
        wanted = max(1.0, self._rate * _BURST * _PART) - self._messages
        wait = max(_SHORTEST, wanted / self._rate)
        if self._byte_rate == inf:
            return wait
        return max(wait, _BURST * _PART - self._bytes / self._byte_rate)

    def trouble(self, now: float) -> None:
        """The primary is busy or fails: go slower."""
        self._grow(now)
        if not self._adaptive or now - self._reacted_at < _REACTION:
            return
        self._reacted_at = now
        self._wall = min(self._rate, max(self._start, 2 * self._flow))
        if self._rate >= _UNBOUNDED:  # there was nothing to fill
            self._messages, self._filled_at = 0.0, now
        self._rate = max(min(_LOWEST, self._ceiling), self._wall / 2)

    def _grow(self, now: float) -> None:
        if self._grown_at is None:
            self._grown_at = now
        passed = now - self._grown_at
        if passed < _DOUBLING:
            return
        self._grown_at = now
        self._flow = max(self._taken / passed, self._flow / 2)
        self._taken = 0
        if not self._adaptive or self._rate >= self._ceiling or now - self._reacted_at < _REACTION:
            return
        if self._rate >= _PAST * self._wall:
            self._wall = inf
        if self._rate < _NEAR * self._wall:
            self._rate = min(2 * self._rate, max(_LOWEST, _NEAR * self._wall))
        else:
            self._rate += max(_LOWEST, self._wall * _GROWTH) * _DOUBLING
        self._rate = min(self._rate, self._ceiling)

    def _fill(self, now: float) -> None:
        passed = _BURST if self._filled_at is None else max(0.0, now - self._filled_at)
        self._filled_at = now
        self._messages = min(self._messages + passed * self._rate, max(1.0, self._rate * _BURST))
        if self._byte_rate != inf:
            self._bytes = min(self._bytes + passed * self._byte_rate, max(1.0, self._byte_rate * _BURST))


@dataclass(slots=True)
class Pace:
    """How fast one queue moves, and the credit that follows from it."""

    lock_duration: float = 60.0
    least: int = 10
    most: int = 1000
    rate: float | None = None
    _since: float | None = None
    _count: int = 0

    def count(self, messages: int, now: float) -> None:
        """So many messages were moved."""
        if self._since is None:
            self._since = now
        self._count += messages
        passed = now - self._since
        if passed >= 0.5:
            measured = self._count / passed
            self.rate = measured if self.rate is None else (self.rate + measured) / 2
            self._since, self._count = now, 0

    def rest(self) -> None:
        """Nothing is there to be moved: time does not count against the rate."""
        self._since, self._count = None, 0

    def credit(self, allowed: float) -> int:
        """How many messages may be in hand, where `allowed` is this queue's share of the limiter's rate."""
        third = self.lock_duration / 3
        rate = allowed if self.rate is None else min(allowed, self.rate)
        if self.rate is None:
            rate = min(rate, self.most / third)
        wanted = self.most if rate == inf else int(rate * third)
        # The least keeps a slow queue alive, but a limit that was set is a limit.
        floor = min(self.least, max(1, int(allowed * third))) if allowed != inf else self.least
        return max(floor, min(self.most, wanted))

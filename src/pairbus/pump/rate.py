"""How fast: a limiter by messages and bytes that adapts to what the primary says. Pure; time comes in.

1. Two buckets, of messages and of bytes, fill at their rates and hold what comes in a tenth of a second. A
   taker is told how long to wait; the debt is booked at once, so that takers queue up without a list.
2. The message rate adapts. It starts gently, for a primary that has just come back, and doubles as long as
   nothing is wrong (slow start). With the first trouble it is halved, at most once a reaction time, since
   what was on its way is refused together. From then on it grows by a fixed part of the best rate a second.
3. A maximum given by the user is never passed. Without trouble and without a maximum the limiter soon allows
   more than anybody can send, and is then no more than two subtractions.
4. The credit for a queue is what its measured rate moves in a third of a lock's duration, so that the locks
   of all that is in hand outlast its sending.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

_BURST = 0.1
_REACTION = 1.0
_DOUBLING = 0.25
_GROWTH = 0.05
_LOWEST = 1.0
# Beyond this no single process sends, so that there is nothing left to limit.
_UNBOUNDED = 1e6


class Limiter:
    """Rates for a whole pump."""

    def __init__(
        self,
        *,
        max_messages: float | None = None,
        max_bytes: float | None = None,
        adaptive: bool = True,
        start: float = 2000.0,
    ) -> None:
        """Maxima are a second; `start` is the rate to begin with if adaptive."""
        self._ceiling = max_messages if max_messages is not None else inf
        self._byte_rate = max_bytes if max_bytes is not None else inf
        self._adaptive = adaptive
        self._rate = min(start, self._ceiling) if adaptive else self._ceiling
        self._best = self._rate
        self._was_troubled = False
        self._reacted_at = -inf
        self._grown_at: float | None = None
        self._messages = 0.0  # what is left in the buckets; below nought is a debt
        self._bytes = 0.0
        self._filled_at: float | None = None

    @property
    def rate(self) -> float:
        """Messages a second that are allowed now."""
        return self._rate

    def take(self, messages: int, size: int, now: float) -> float:
        """Take for messages that are to be sent; how long to wait before that."""
        self._grow(now)
        if self._rate >= _UNBOUNDED and self._byte_rate == inf:
            return 0.0
        self._fill(now)
        self._messages -= messages
        self._bytes -= size
        wait = max(0.0, -self._messages / self._rate)
        return wait if self._byte_rate == inf else max(wait, -self._bytes / self._byte_rate)

    def trouble(self, now: float) -> None:
        """The primary is busy or fails: go slower."""
        self._grow(now)
        if not self._adaptive or now - self._reacted_at < _REACTION:
            return
        self._reacted_at = now
        self._best = min(self._rate, _UNBOUNDED)
        self._was_troubled = True
        self._rate = max(_LOWEST, min(self._rate, _UNBOUNDED) / 2)

    def _grow(self, now: float) -> None:
        if self._grown_at is None:
            self._grown_at = now
        passed = now - self._grown_at
        if not self._adaptive or passed < _DOUBLING or self._rate >= min(self._ceiling, _UNBOUNDED):
            return
        self._grown_at = now
        if now - self._reacted_at < _REACTION:
            return
        if self._was_troubled:
            self._rate += max(_LOWEST, self._best * _GROWTH) * passed
        else:
            self._rate *= 2
        self._rate = min(self._rate, self._ceiling)

    def _fill(self, now: float) -> None:
        passed = 0.0 if self._filled_at is None else max(0.0, now - self._filled_at)
        if self._filled_at is None:
            passed = _BURST
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

"""How fast: a limiter by messages and bytes. Pure; time comes in. How its rate adapts is told in `gait`.

1. Two buckets, of messages and of bytes, fill at their rates and hold what comes in a tenth of a second. What
   is in them is the *room*: so much may be sent now. What does not fit waits where it is, and nobody owes
   anything, so that a rate that changes counts at once for all who wait.
2. Where a namespace has credits the rate is a careful one. Then the bucket holds less, since what comes in
   one second is all that counts. Another one is for what is received, at a rate of its own: a message costs a
   credit on either side. It is taken from when receivers are granted messages, not when those come.
3. A rate that nobody uses tells nothing: trouble counts from what was sent.
4. A maximum given by the user is never passed. Without trouble, credits and maximum the limiter soon allows
   more than anybody can send, and is then no more than a comparison.
5. The credit for a queue is what its measured rate moves in a third of a lock's duration, so that the locks
   of all that is in hand outlast its sending. Until a delivery has told how long that is, it is the shortest
   that the service gives: what came to a first, large credit for a slow rate would be sent and not completed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from .gait import KEPT_ALONE, LOWEST, START_RATE, STEP, UNBOUNDED, Bold, Careful, Gait

if TYPE_CHECKING:
    from pairbus.sdk.side import SideName

_BURST = 0.1
# Of a careful rate, and the fewest messages then: with single ones the time of every timer would be lost.
_CAREFUL_BURST = 0.02
_CAREFUL_FEW = 4.0
# What is missing may be so little that a clock does not show the time it takes.
_SHORTEST = 0.001
# A queue waits until the bucket holds some part of its size, not for every single message.
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


class Tap:
    """A bucket of messages that fills at a rate which adapts, or does not if there is no gait."""

    def __init__(self, gait: Gait | None) -> None:
        self.gait = gait
        self.ceiling = UNBOUNDED
        self.is_certain = False  # how many credits there are
        self.level = 0.0  # a try may take more than there is
        self._filled_at: float | None = None
        self._grown_at: float | None = None
        self._taken = 0  # since then
        self._flow = 0.0  # messages a second of late

    @property
    def rate(self) -> float:
        """Messages a second that are allowed now."""
        return self.ceiling if self.gait is None else min(self.gait.rate, self.ceiling)

    @property
    def most(self) -> float:
        """What the bucket holds."""
        if isinstance(self.gait, Careful):
            return max(_CAREFUL_FEW, self.rate * _CAREFUL_BURST)
        return max(1.0, self.rate * _BURST)

    def fill(self, now: float) -> float:
        """What is in it now; infinity if there is no limit."""
        self.grow(now)
        rate = self.rate
        if rate >= UNBOUNDED:
            return inf
        passed = _BURST if self._filled_at is None else max(0.0, now - self._filled_at)
        self._filled_at = now
        self.level = min(self.level + passed * rate, self.most)
        return self.level

    def take(self, messages: int) -> None:
        """So many are on their way."""
        self._taken += messages
        if self.rate < UNBOUNDED:
            self.level -= messages

    def wait(self, least: float = 1.0) -> float:
        """How long until there is room again for some messages, but for so many at least."""
        return max(_SHORTEST, (max(least, self.most * _PART) - self.level) / self.rate)

    def trouble(self, now: float, *, is_busy: bool) -> None:
        """Go slower."""
        self.grow(now)
        gait = self.gait
        if gait is None:
            return
        if self.rate >= UNBOUNDED:  # there was nothing to fill
            self.level, self._filled_at = 0.0, now
        gait.rate = min(gait.rate, self.ceiling)
        gait.trouble(now, self._flow, is_busy=is_busy)
        gait.rate = max(min(LOWEST, self.ceiling), gait.rate)

    def grow(self, now: float) -> None:
        """Time has passed."""
        if self._grown_at is None:
            self._grown_at = now
        passed = now - self._grown_at
        if passed < STEP:
            return
        self._grown_at = now
        sample, gait = self._taken / passed, self.gait
        self._flow = (
            max(sample, self._flow / 2)
            if not isinstance(gait, Careful)
            else (self._flow + (sample - self._flow) * min(1.0, passed))
        )
        self._taken = 0
        if gait is not None and gait.rate < self.ceiling:
            gait.grow(now, self._flow, passed)
        if isinstance(gait, Careful):
            if self.is_certain:
                gait.rate = min(gait.rate, KEPT_ALONE * gait.credits)
            elif gait.is_refuted:
                self.gait = Bold(gait.rate)


class Limiter:
    """Rates for a whole pump: of what is sent, and where the secondary has credits of what is received."""

    def __init__(
        self,
        *,
        max_messages: float | None = None,
        max_bytes: float | None = None,
        adaptive: bool = True,
        start: float | None = None,
    ) -> None:
        """Maxima are a second; `start` is the rate to begin with if adaptive."""
        self._start = START_RATE if start is None else start
        self._outlet = Tap(Bold(self._start) if adaptive else None)
        self.inlet = Tap(None)  # of messages that are asked for
        self._adaptive = adaptive
        self._share = 1.0
        self.limit(max_messages, max_bytes)
        self._bytes = 0.0
        self._filled_at: float | None = None

    @property
    def rate(self) -> float:
        """Messages a second that are allowed now."""
        return min(self._outlet.rate, self.inlet.rate)

    def limit(self, max_messages: float | None, max_bytes: float | None) -> None:
        """Have other maxima from now on."""
        self._outlet.ceiling = min(UNBOUNDED, max_messages if max_messages is not None else UNBOUNDED)
        self._byte_rate = max_bytes if max_bytes is not None else inf

    def take_share(self, share: float) -> None:
        """Other pumps use the rest of the credits."""
        self._share = share
        for tap in (self._outlet, self.inlet):
            if isinstance(tap.gait, Careful):
                tap.gait.share = share

    def expect(self, side: SideName, credits: float, *, is_certain: bool) -> None:
        """A namespace has so many credits a second, as far as is known; infinity for none."""
        if not self._adaptive:
            return
        tap = self._outlet if side == "primary" else self.inlet
        tap.is_certain = is_certain
        if credits < inf:
            tap.gait = Careful(credits, self._share)
        elif isinstance(tap.gait, Careful):
            tap.gait = Bold(self._start) if side == "primary" else None

    def room(self, now: float) -> Room | None:
        """What may be sent now; None if there is no limit."""
        level = self._outlet.fill(now)
        if self._byte_rate == inf:
            return Room(level) if level < inf else None
        passed = _BURST if self._filled_at is None else max(0.0, now - self._filled_at)
        self._filled_at = now
        self._bytes = min(self._bytes + passed * self._byte_rate, max(1.0, self._byte_rate * _BURST))
        return Room(level, self._bytes)

    def take(self, messages: int, size: int) -> None:
        """So much is sent."""
        self._outlet.take(messages)
        if self._byte_rate != inf:
            self._bytes -= size

    def wait(self) -> float:
        """How long until there is room again for some messages."""
        wait = self._outlet.wait()
        if self._byte_rate == inf:
            return wait
        return max(wait, _BURST * _PART - self._bytes / self._byte_rate)

    def sounding_pause(self) -> float | None:
        """While more and more is received beside others, how often it is asked whether there are credits."""
        gait = self.inlet.gait
        return 1 / gait.soundings if isinstance(gait, Careful) and gait.soundings else None

    def trouble(self, now: float, side: SideName = "primary", *, is_busy: bool = False) -> None:
        """A namespace is busy or fails: go slower."""
        (self._outlet if side == "primary" else self.inlet).trouble(now, is_busy=is_busy)


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

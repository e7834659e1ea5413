"""The credits of the Standard tier: so many a second for a whole namespace, and beyond them throttling.

1. A message that is sent, one that is delivered, a receive without one and a request to `$management` cost
   one credit; an administrative request costs ten; each filter that a message sent to a topic meets costs
   one more. Settlements cost nothing, and neither does what is refused.
2. Credits come second by second, and none are saved. What one turn has spent beyond them is owed: the
   namespace is throttled (50009) until the second in which that is paid back.
"""

import asyncio
import math
from collections.abc import Callable

from .counters import OperationKind
from .engine.topic import Topic
from .host import NamespaceHost

_WEIGHTS = {
    OperationKind.SEND: 1,
    OperationKind.PING: 1,
    OperationKind.DELIVERY: 1,
    OperationKind.EMPTY_RECEIVE: 1,
    OperationKind.MANAGEMENT: 1,
    OperationKind.ADMIN: 10,
}


class Credits:
    """The balance of one namespace."""

    def __init__(
        self,
        rate: int,
        *,
        monotonic: Callable[[], float],
        count_filters: Callable[[str], int],
        throttle: Callable[[float], None],
    ) -> None:
        """`throttle` is told for how many seconds nothing more may be done."""
        self._rate = rate
        self._monotonic = monotonic
        self._count_filters = count_filters
        self._throttle = throttle
        self._second = math.floor(monotonic())
        self._left = rate
        self._throttled_until = -math.inf

    def spend(self, entity: str, kind: OperationKind) -> None:
        """An operation was done."""
        cost = _WEIGHTS.get(kind, 0)
        if not cost:
            return
        if kind is OperationKind.SEND:
            cost += self._count_filters(entity)
        now = self._monotonic()
        second = math.floor(now)
        if second > self._second:
            self._left = min(self._rate, self._left + self._rate * (second - self._second))
            self._second = second
        self._left -= cost
        if self._left <= 0:
            paid = self._second + 1 + -self._left // self._rate  # the first second that begins with some left
            if paid > self._throttled_until:
                self._throttled_until = paid
                self._throttle(paid - now)


def limit_credits(host: NamespaceHost, rate: int) -> None:
    """Let a namespace have so many credits a second."""

    def count_filters(path: str) -> int:
        topic = host.engine.node(path)
        return sum(len(one.rules) for one in topic.subscriptions) if isinstance(topic, Topic) else 0

    loop = asyncio.get_running_loop()

    def throttle(seconds: float) -> None:
        # From the next turn on, since this one has been decided, perhaps on a strand.
        loop.call_soon_threadsafe(host.fault_desk.throttle, seconds)

    host.credits = rate
    host.counters.spend = Credits(
        rate, monotonic=host.monotonic, count_filters=count_filters, throttle=throttle
    ).spend

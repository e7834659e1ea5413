"""How the pumps of a job share a limit of the job. Pure.

1. A pump tells how many of its queues have something to move. Its part of the limit is in proportion to that;
   queues that are idle weigh next to nothing, but not nothing, so that they can begin.
2. A part grows only by what others do not have: they are told of a smaller one first, each when it next says
   something. So all parts together are never more than the whole, save the least that each is given.
3. What a pump had is free when it has ended.
"""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

# What an idle queue weighs against one that has something to move.
_IDLE = 0.01
# The part of whoever comes when all is given away: it is given more within a second or two.
LEAST = 0.01

K = TypeVar("K", bound=Hashable)


def weigh(active: int, queues: int) -> float:
    """What so many queues weigh, of which some have something to move."""
    return active + _IDLE * max(1, queues)


def divide(weights: Mapping[K, float], whole: float = 1.0) -> dict[K, float]:
    """The whole, in proportion to the weights."""
    total = sum(weights.values())
    return {key: whole * weight / total for key, weight in weights.items()}


class Shares(Generic[K]):
    """The parts of all pumps."""

    def __init__(self) -> None:
        self._weights: dict[K, float] = {}
        self._parts: dict[K, float] = {}

    def deal(self, key: K, *, active: int, queues: int) -> float:
        """The part of one that tells how it is."""
        self._weights[key] = weigh(active, queues)
        free = 1.0 - sum(part for other, part in self._parts.items() if other != key)
        self._parts[key] = max(LEAST, min(free, divide(self._weights)[key]))
        return self._parts[key]

    def part(self, key: K) -> float:
        """What it was given last."""
        return self._parts[key]

    def forget(self, key: K) -> None:
        """It has ended."""
        self._weights.pop(key, None)
        self._parts.pop(key, None)

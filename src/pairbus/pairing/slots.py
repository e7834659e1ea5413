"""Slots, by which the clients of a fleet take turns at pinging an entity that is down.

1. A slot is one ping interval of the secondary's clock, which all clients can read: their own need not agree.
   Each entity has slots of its own, so that not all of them begin at the same moment.
2. The right to ping in a slot is the lock of a session that is named after it. A client that is refused knows
   that another has pinged, or is about to. A holder that dies or stands still costs its slot and no more: the
   next one has another session.
3. The ping of a slot is made when it begins, so that there is never more than an interval between two. The
   right to it is asked for before: at a random time of the end of the slot before, its `WINDOW`, by who did
   not have that one, and by who had it at the very beginning. So the right goes round wherever there is
   another: one client that alone cannot reach the primary holds up nobody for longer than a slot. Whether
   there is another shows by the lock of one more session, which those that wait hold; one that is alone pings
   whenever it would. The first to fail over pings at once, in the slot that has begun.
4. A slot that has begun and is free has no prober, or one that has pinged with success and told the others
   `GONE_ROUND` ago. So whoever missed it asks for it once more, soon after.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from .names import path_key

#: The part of a slot in which the next one is asked for, and its longest: the lock of a session lasts for a
#: minute.
WINDOW = 0.25
_LONGEST_WINDOW = 20.0
#: Seconds from a good ping until its word should have gone round.
GONE_ROUND = 0.75
_LOOKED_FROM = 0.85
_LOOKED_UNTIL = 1.0
# A session's id may have 128 characters, and a path twice as many.
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of an entity; its times are those of the secondary."""

    entity: str
    interval: float
    number: int
    begin: float

    @property
    def session(self) -> str:
        """The session whose lock is the right to ping in it. Clients of another ping interval have others."""
        return f"ping:{self.entity}:{self.interval:g}:{self.number}"

    @property
    def company(self) -> str:
        """The session that is locked while others wait."""
        return f"company:{self.entity}"

    @property
    def end(self) -> float:
        """When the next one begins."""
        return self.begin + self.interval

    def look_at(self, now: float, random: float) -> float:
        """When to ask for it once more, for one who missed it now and draws this number of 0 to 1."""
        return max(self.begin, now) + _LOOKED_FROM + (_LOOKED_UNTIL - _LOOKED_FROM) * random

    def ask_at(self, random: float) -> float:
        """When to ask for the next one, for one who draws this number of 0 to 1."""
        return self.end - window_of(self.interval) * (0.1 + 0.8 * random)

    def follows(self, other: Slot) -> bool:
        """Whether it is the next one after the other."""
        return (self.entity, self.interval, self.number - 1) == (other.entity, other.interval, other.number)


def entity_digest(path: str) -> str:
    """An entity in a name that is never too long, whatever its path."""
    return hashlib.sha256(path_key(path).encode()).hexdigest()[:_DIGITS]


def window_of(interval: float) -> float:
    """How long before a slot it may be asked for."""
    return min(_LONGEST_WINDOW, WINDOW * interval)


def slot_at(path: str, interval: float, now: float) -> Slot:
    """The slot of an entity in which a moment lies."""
    entity = entity_digest(path)
    offset = int(entity[:8], 16) / 0xFFFFFFFF * interval
    number = math.floor((now + offset) / interval)
    return Slot(entity, interval, number, number * interval - offset)

"""Slots, by which the clients of a fleet take turns at pinging an entity that is down.

1. A slot is one ping interval of the secondary's clock, which all clients can read: their own need not agree.
   Each entity has slots of its own, so that not all of them begin at the same moment.
2. The right to ping in a slot is the lock of a session that is named after it. Who is refused it knows that
   another has pinged, or is about to. A holder that dies or stands still costs its slot and no more: the next
   one has another session.
3. Who did not have the slot before asks for this one at a random time of its beginning, the `WINDOW`; who had
   it asks at the end of that. So the right goes round wherever there is another: one client that alone cannot
   reach the primary holds up nobody for longer than a slot. Whether there is another shows by the lock of one
   more session, which those that wait hold; one that is alone pings whenever it would.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from .names import path_key

#: The part of a slot in which it is asked for, and its longest: a session's lock lasts for a minute, and must
#: not end before all have asked.
WINDOW = 0.25
_LONGEST_WINDOW = 20.0
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
        """The session whose lock is the right to ping in it. Who pings at another pace has others."""
        return f"ping:{self.entity}:{self.interval:g}:{self.number}"

    @property
    def company(self) -> str:
        """The session that is locked while others wait."""
        return f"company:{self.entity}"

    @property
    def end(self) -> float:
        """When the next one begins."""
        return self.begin + self.interval

    @property
    def window(self) -> float:
        """How long its beginning is."""
        return min(_LONGEST_WINDOW, WINDOW * self.interval)

    def follows(self, other: Slot) -> bool:
        """Whether it is the next one after the other."""
        return (self.entity, self.interval, self.number - 1) == (other.entity, other.interval, other.number)


def entity_digest(path: str) -> str:
    """An entity in a name that is never too long, whatever its path."""
    return hashlib.sha256(path_key(path).encode()).hexdigest()[:_DIGITS]


def slot_at(path: str, interval: float, now: float) -> Slot:
    """The slot of an entity in which a moment lies."""
    entity = entity_digest(path)
    offset = int(entity[:8], 16) / 0xFFFFFFFF * interval
    number = math.floor((now + offset) / interval)
    return Slot(entity, interval, number, number * interval - offset)

"""What a drill knows of single messages: those that were sent, that arrived, and that lie somewhere."""

import zlib
from dataclasses import dataclass
from typing import Literal

#: How the call ended that was to send a message. `open`: it has not ended. `unknown`: it was broken off, or
#: ran out of time, and the message may have been taken.
SendOutcome = Literal["open", "returned", "raised", "unknown"]


@dataclass(slots=True, kw_only=True)
class SentMessage:
    """A message that an application has tried to send. `position` tells which of a session was sent first."""

    message_id: str
    path: str
    client: str
    position: int
    session: str | None = None
    checksum: int | None = None
    began: float = 0.0
    ended: float | None = None
    outcome: SendOutcome = "open"
    route: str | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A message that a receiver has got from a node: a queue, or a subscription of a topic. One that the
    primary took twice has two sequence numbers; one that is only delivered again has one.
    """

    node: str
    path: str
    message_id: str
    sequence_number: int
    session: str | None = None
    checksum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resting:
    """A message that lies somewhere when all is over. `path` is the entity that it is for."""

    message_id: str
    path: str
    place: str
    is_dead: bool = False
    reason: str = ""


def checksum(body: bytes) -> int:
    """By which a body is known again."""
    return zlib.crc32(body)

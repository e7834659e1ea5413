"""What the pump needs of a namespace, and nothing more.

A transport has two kinds of ends. A *source* is a backlog queue: messages are received from it under a lock
and settled. A *destination* is a queue or topic: messages are sent to it. Both deal in lists, so that the
price of a call is shared by many messages. A message is the bytes of an encoded AMQP message.

The contract, which one suite of tests holds against every transport:

1. Calls that fail as a whole raise `TransportError`; where messages of one call can fare differently, the
   outcome of each is in the answer.
2. `receive` returns as soon as there is anything, and an empty list when the wait is over. A wait without a
   message is one empty receive on the service's bill.
3. A lock outlives the link that it was got on: what was received can be settled after the link was lost
   (save by the SDK, where it comes again).
4. `stop_receiving` takes back credit that is granted; what came in the meantime is returned, also where the
   link is lost or nobody answers: by rule 3 it can still be given back.
5. `release` gives messages back as far as the service can, without counting the delivery.
6. What a pump gives back, or puts aside, and has accounted for (`Delivery.accounted`) is marked as such where
   that counts as a delivery, so that the next pump does not take it for one that a dead pump may have sent.
   (The SDK has no public way to do that; and a service that refuses the mark gets the message without it.)
7. Ends may be used again after an error: they connect again with the next call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from pairbus.amqp.message import MessageSections
from pairbus.wire.errors import TransportError
from pairbus.wire.meter import Meter

#: None for success.
Refusal = TransportError | None


@dataclass(slots=True, eq=False)
class Delivery:
    """A message under lock. `handle` is the transport's own. `accounted` are its deliveries with this one, if
    it is on record of all of them what may have been sent; else 0.
    """

    payload: bytes = field(repr=False)
    lock_token: bytes
    handle: object = field(default=None, repr=False)
    accounted: int = 0


class Peeked(NamedTuple):
    """A message that was only looked at."""

    sequence_number: int
    is_deferred: bool
    sections: MessageSections
    is_scheduled: bool = False


class Unit(NamedTuple):
    """What is sent in one transfer: one message, or several of one session that are taken whole or not."""

    payloads: Sequence[bytes]
    session_id: str | None = None


class BacklogSource(Protocol):
    """A backlog queue."""

    @property
    def is_told(self) -> bool:
        """Whether a receive at once ends as soon as there is no more, as far as is known."""

    async def receive(self, limit: int, wait: float, *, at_once: bool = False) -> list[Delivery]:
        """Up to `limit` messages; an empty list if none has come within `wait` seconds, or with `at_once` as
        soon as the queue has said that it has none, if the transport can ask for that.
        """

    async def stop_receiving(self) -> list[Delivery]:
        """Take back what credit is left, and hand out what came."""

    async def complete(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        """The messages are done with."""

    async def defer(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        """Put messages aside; only their numbers bring them back."""

    async def release(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        """Give messages back."""

    async def dead_letter(self, delivery: Delivery, *, reason: str, description: str) -> Refusal:
        """Move a message to the dead letters of the queue."""

    async def fetch(self, sequence_numbers: Sequence[int]) -> list[Delivery | TransportError]:
        """Deferred messages by their numbers, in this order; an error in the place of one that is missing."""

    async def peek(self, from_sequence_number: int, limit: int) -> list[Peeked]:
        """Look at messages from a number on: waiting, locked and deferred ones alike; empty at the end."""

    async def renew(self, deliveries: Sequence[Delivery]) -> list[float | TransportError]:
        """Lock messages for another while; until when (Unix seconds)."""

    async def close(self) -> None:
        """Let go of the links."""

    async def leave(self) -> None:
        """The same, if the transport is closed soon: links by which nothing comes may end with that."""


class Destination(Protocol):
    """A queue or topic that messages are sent to."""

    async def send(self, units: Sequence[Unit]) -> list[Refusal]:
        """Send units, all on the way at once and in order; what became of each."""

    async def close(self) -> None:
        """Let go of the links."""


class Transport(Protocol):
    """A namespace. `longest_wait` is how long a receive may wait, if there is a limit to it; `meter`
    counts what is billed, and is set before anything is done; `on_credits` is called when the namespace tells
    how many credits it has a second.
    """

    longest_wait: float
    meter: Meter
    on_credits: Callable[[float], None]

    def source(self, queue: str) -> BacklogSource:
        """A backlog queue; does no I/O."""

    def destination(self, path: str) -> Destination:
        """A queue or topic; does no I/O."""

    async def close(self) -> None:
        """Close every connection."""

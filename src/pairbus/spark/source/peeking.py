"""Entities of a namespace to look at: one that is busy or away is waited for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.browsing import find_last
from pairbus.pump.pair import Side

from .annotations import read_annotations
from .patience import patiently
from .sections import cut


class MessageHead(NamedTuple):
    """What a look at a message tells without its body."""

    sequence_number: int
    enqueued_ms: int
    state: str


def read_head(payload: bytes) -> MessageHead:
    """The head of a message; its number is there in all that a service gives out."""
    found = read_annotations([cut(payload)[1]])
    return MessageHead(found.sequence_number[0] or 0, found.enqueued[0] or 0, found.marks[0].state)


class PatientSource:
    """An entity of a namespace that is waited for."""

    def __init__(self, transport: AmqpTransport, entity: str, *, timeout: float) -> None:
        self.source = transport.source(entity)
        self.entity = entity
        self._timeout = timeout

    async def peek(self, from_number: int, limit: int, *, with_bodies: bool) -> list[bytes]:
        return await patiently(
            lambda: self.source.peek_payloads(from_number, limit, with_bodies=with_bodies),
            timeout=self._timeout,
            what=self.entity,
        )

    async def peek_heads(self, from_number: int, limit: int) -> list[MessageHead]:
        """The same without bodies."""
        return list(map(read_head, await self.peek(from_number, limit, with_bodies=False)))

    async def find_bounds(self, first: int) -> tuple[MessageHead, MessageHead] | None:
        """The first message from a number on, and the last one; None if there is none."""

        async def first_from(number: int) -> MessageHead | None:
            found = await self.peek_heads(number, 1)
            return found[0] if found else None

        found = await first_from(first)
        return None if found is None else (found, await find_last(first_from, found))


def open_line(side: Side) -> AmqpTransport:
    """The namespace. Does no I/O."""
    resolved = side.resolve()
    return AmqpTransport(resolved.place(), resolved.tokens(), container_id="pairbus-spark")


@asynccontextmanager
async def open_namespace(side: Side) -> AsyncIterator[AmqpTransport]:
    """The namespace, for the time of a call."""
    transport = open_line(side)
    try:
        yield transport
    finally:
        await transport.close()

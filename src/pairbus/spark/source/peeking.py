"""Entities of a namespace to look at: one that is busy or away is waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pairbus.amqp.message import MessageSections, scan
from pairbus.pump import Side
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.browsing import find_last
from pairbus.pump.transport import Peeked

from .patience import patiently


class PatientSource:
    """An entity of a namespace that is waited for."""

    def __init__(self, transport: AmqpTransport, entity: str, *, timeout: float) -> None:
        self.source = transport.source(entity)
        self.entity = entity
        self._timeout = timeout

    async def peek(self, from_sequence_number: int, limit: int) -> list[Peeked]:
        return await patiently(
            lambda: self.source.peek(from_sequence_number, limit), timeout=self._timeout, what=self.entity
        )

    async def peek_sections(self, from_sequence_number: int, limit: int) -> list[MessageSections]:
        payloads = await patiently(
            lambda: self.source.peek_payloads(from_sequence_number, limit),
            timeout=self._timeout,
            what=self.entity,
        )
        return [scan(payload) for payload in payloads]

    async def find_bounds(self, first: int) -> tuple[Peeked, Peeked] | None:
        """The first message from a number on, and the last one; None if there is none."""
        found = await self.peek(first, 1)
        return (found[0], await find_last(self, found[0])) if found else None


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

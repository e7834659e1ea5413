"""How a client reaches the others of its fleet: the queue of the lease, over our own AMQP."""

import asyncio
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from pairbus import conditions
from pairbus.amqp.message import Header, Properties, encode_data, encode_header, encode_properties, scan
from pairbus.client.hosted.transport import open_transport
from pairbus.clock import Clock
from pairbus.lease.session_link import SessionLink
from pairbus.ledger.operation_log import OperationLog
from pairbus.pairing.names import lease_queue_name, primary_name
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.transport import Unit
from pairbus.sdk.side import SdkSide
from pairbus.threads import THREADS
from pairbus.wire.errors import TransportError
from pairbus.wire.meter import Meter

from .line import FleetLine, FleetLock

# A session that was waited for has its message already, unless that has just expired.
_AT_ONCE = 5.0
_ANSWER_LIMIT = 10.0


@dataclass(slots=True)
class _Lock:
    link: SessionLink
    ends: float

    def release(self) -> None:
        if self.link.lost is None:
            self.link.abandon()


class AmqpFleetLine:
    """A `FleetLine` over our own AMQP. It owns its transport."""

    def __init__(self, transport: AmqpTransport, queue: str) -> None:
        """Does no I/O."""
        self._transport = transport
        self._queue = queue
        self._destination = transport.destination(queue)

    async def lock(self, session: str) -> FleetLock | None:
        line = await self._transport.line(self._queue)
        try:
            link = await SessionLink.open_session(
                line, self._queue, session, timeout=self._transport.timeout, meter=self._transport.meter
            )
        except TransportError as error:
            if error.condition == conditions.SESSION_CANNOT_BE_LOCKED:
                return None
            raise
        return _Lock(link, time.time() if link.locked_until is None else link.locked_until)

    async def post(self, text: bytes, *, copies: int, life: float) -> None:
        # Each in a session of its own: whoever takes one locks its session.
        units = [Unit([encode_word(text, life)]) for _ in range(copies)]
        for refusal in await self._destination.send(units):
            if refusal is not None:
                raise refusal

    async def hear(self, wait: float) -> bytes | None:
        transport = self._transport
        line = await transport.line(self._queue)
        try:
            link = await SessionLink.open_next(
                line, self._queue, wait=wait, timeout=transport.timeout, meter=transport.meter
            )
        except TransportError as error:
            if error.condition == conditions.TIMEOUT:
                return None
            raise
        try:
            link.grant(1)
            if not await link.arrival(_AT_ONCE):
                await link.drain(transport.timeout)
            return scan(link.buffer[0].payload).data() if link.buffer else None
        finally:
            if link.lost is None:
                link.abandon()

    async def close(self) -> None:
        await self._destination.close()
        await self._transport.close()


def encode_word(text: bytes, life: float) -> bytes:
    """A word as a message that lives for so long, in a session of its own."""
    name = uuid.uuid4().hex
    return (
        encode_header(Header(ttl=int(life * 1000)))
        + encode_properties(Properties(message_id=name, group_id=f"word:{name}"))
        + encode_data(text)
    )


class FleetWay:
    """Opens lines to the fleet, one after the other."""

    def __init__(self, secondary: SdkSide, *, name: str, records: Path | None, clock: Clock) -> None:
        """What is billed is recorded under `records`, if that is given."""
        self._secondary = secondary
        self._queue = lease_queue_name(name)
        self._meter = Meter()
        self._ledger: OperationLog | None = None
        if records is not None:
            self._ledger = OperationLog(records, role="fleet", pair=name, clock=clock)
            self._meter = Meter(primary_name(secondary.parsed or secondary.endpoint), self._ledger)

    def open(self) -> FleetLine:
        """A new line; TransportError if there can be none. Does no I/O."""
        if self._ledger is not None:
            self._ledger.start()  # not before: a way that nobody takes is not closed either
        transport = open_transport(self._secondary, timeout=_ANSWER_LIMIT)
        if not isinstance(transport, AmqpTransport):
            raise TransportError(
                conditions.NOT_IMPLEMENTED,
                "the secondary is reached by a way that only the SDK knows (WebSocket, proxy, an address or "
                "TLS context of its own)",
            )
        transport.meter = self._meter
        return AmqpFleetLine(transport, self._queue)

    async def close(self) -> None:
        """Write what was recorded."""
        if self._ledger is not None:
            await asyncio.get_running_loop().run_in_executor(THREADS, self._ledger.close)

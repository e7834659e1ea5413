"""The lock that the lease is: a session of a queue of the secondary, held by a receiver link."""

from __future__ import annotations

import time
from typing import Any

from pairbus import conditions, words
from pairbus.amqp.message import Properties, encode_data, encode_properties, scan
from pairbus.amqp.performatives import ACCEPTED
from pairbus.amqp.types import Int
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.transport import Unit
from pairbus.wire.errors import TransportError
from pairbus.wire.requests import RequestLink

from .session_link import SessionLink

SESSION = "lease"
#: What provisioning gives to the queue; no lock is believed to last longer, and none that is much shorter.
LOCK_DURATION = 60.0
_SHORTEST_LOCK = 5.0
# Announcements of holders that came to no clean end.
_ANNOUNCEMENTS = 100


class SessionHold:
    """The session, held. All of it goes over one connection: the lock belongs to that."""

    def __init__(
        self, transport: AmqpTransport, queue: str, link: SessionLink, requests: RequestLink
    ) -> None:
        self._transport = transport
        self._queue = queue
        self._link = link
        self._requests = requests
        #: Seconds that the lock lasts, from the request that brought it on.
        self.duration = _believed(link.locked_until)

    @classmethod
    async def take(cls, transport: AmqpTransport, queue: str) -> SessionHold:
        """Lock the session; TransportError if another has it, or whatever else prevents that."""
        line = await transport.line(queue)
        link = await SessionLink.open_session(
            line, queue, SESSION, timeout=transport.timeout, meter=transport.meter
        )
        try:
            requests = await RequestLink.open(line, f"{queue}/{words.MANAGEMENT}", timeout=transport.timeout)
        except BaseException:
            link.abandon()
            raise
        return cls(transport, queue, link, requests)

    @property
    def lost(self) -> TransportError | None:
        """Why the lock is ours no more, if its link has gone."""
        return self._link.lost or self._requests.lost

    async def renew(self) -> None:
        """Hold it for another while."""
        found = await ask(self._transport, self._queue, self._requests, "renew-session-lock")
        said = found.get("expiration")
        self.duration = _believed(float(said) / 1000 if isinstance(said, int) else None)
        # The service detaches links on which nothing happens for ten minutes, and the lock goes with them.
        self._link.link.flow(0)
        self._link.line.flush_soon()

    async def announce(self, text: str, *, message_id: str) -> None:
        """Leave word of who holds it, in the place of those before."""
        await self.clear()
        payload = encode_properties(Properties(message_id=message_id, group_id=SESSION)) + encode_data(
            text.encode()
        )
        destination = self._transport.destination(self._queue)
        try:
            (refusal,) = await destination.send([Unit([payload])])
        finally:
            await destination.close()
        if refusal is not None:
            raise refusal

    async def clear(self) -> None:
        """Take away what was announced."""
        link = self._link
        link.grant(_ANNOUNCEMENTS)
        await link.drain(self._transport.timeout)
        ids = [event.delivery_id for event in link.buffer]
        link.buffer.clear()
        if ids:
            await link.settle(ids, ACCEPTED, timeout=self._transport.timeout)

    def release(self) -> None:
        """Let another have it."""
        self._requests.abandon()
        self._link.abandon()


def _believed(until: float | None) -> float:
    """How long a lock lasts that ends then by the service's clock, which may be far from ours."""
    said = LOCK_DURATION if until is None else until - time.time()
    return said if _SHORTEST_LOCK <= said <= LOCK_DURATION else LOCK_DURATION


async def ask(
    transport: AmqpTransport, queue: str, requests: RequestLink, operation: str, **more: Any
) -> dict[str, Any]:
    """Ask something about the session; TransportError if that is refused."""

    def note(fate: str, size: int) -> None:
        transport.meter.note(
            queue, "management", count=int(fate == "taken"), unknown=int(fate == "unknown"), size=size
        )

    body = {"session-id": SESSION, **{name.replace("_", "-"): value for name, value in more.items()}}
    answer, found = await requests.ask(
        {"operation": f"{words.OPERATION_PREFIX}{operation}"}, body, timeout=transport.timeout, on_fate=note
    )
    status = answer.get(words.STATUS)
    if not isinstance(status, int) or not 200 <= status < 300:
        condition = str(answer.get(words.STATUS_CONDITION) or conditions.INTERNAL_ERROR)
        raise TransportError(condition, f"{status}: {answer.get(words.STATUS_TEXT) or ''}")
    return {str(key): value for key, value in found.items()} if isinstance(found, dict) else {}


async def peek_announcement(transport: AmqpTransport, queue: str) -> bytes | None:
    """What the last holder has left word of; no lock is needed for that."""
    line = await transport.line(queue)
    requests = await RequestLink.open(line, f"{queue}/{words.MANAGEMENT}", timeout=transport.timeout)
    try:
        found = await ask(
            transport,
            queue,
            requests,
            "peek-message",
            from_sequence_number=0,
            message_count=Int(_ANNOUNCEMENTS),
        )
    finally:
        requests.abandon()
    messages = found.get("messages") or ()
    return b"".join(scan(messages[-1]["message"]).data_sections()) if messages else None

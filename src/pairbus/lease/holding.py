"""The session lock that the lease consists of, held by a receiver link."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from pairbus import words
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import Properties, encode_data, encode_properties, scan
from pairbus.amqp.performatives import ACCEPTED
from pairbus.amqp.types import Int
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.transport import Unit
from pairbus.wire.errors import TransportError
from pairbus.wire.requests import RequestLink

from .session_link import SessionLink

SESSION = "lease"
#: The lock duration that provisioning sets; values above it, or far below, are not believed.
LOCK_DURATION = 60.0
# The shortest that the service sets, less the time that its answer takes.
_SHORTEST_LOCK = 5.0 - 1.0
# Holders that did not end cleanly leave theirs behind.
_ANNOUNCEMENTS = 100


class SessionHold:
    """The locked session. Everything goes over one connection, to which the lock belongs."""

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
        """Lock the session; TransportError if another holds it, or it cannot be locked."""
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
        """Why the lock is lost, if it is."""
        return self._link.lost or self._requests.lost

    async def renew(self) -> None:
        """Renew the lock."""
        found = await ask(self._transport, self._queue, self._requests, "renew-session-lock")
        said = found.get("expiration")
        self.duration = _believed(float(said) / 1000 if isinstance(said, int) else None)
        # The service detaches links on which nothing happens for ten minutes, and the lock goes with them.
        self._link.link.flow(0)
        self._link.line.flush_soon()

    async def recall(self) -> bytes | None:
        """What the last holder has left to the next one, if it has not taken it back."""
        found = await ask(self._transport, self._queue, self._requests, "get-session-state")
        state = found.get("session-state")
        return state if isinstance(state, bytes) else None

    async def remember(self, text: bytes | None) -> None:
        """Leave something to the next holder, or nothing."""
        await ask(self._transport, self._queue, self._requests, "set-session-state", session_state=text)

    async def announce(self, text: str, *, message_id: str) -> None:
        """Replace the announcement of the holder."""
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
        """Remove the announcement."""
        link = self._link
        link.grant(_ANNOUNCEMENTS)
        await link.drain(self._transport.timeout)
        ids = [event.delivery_id for event in link.buffer]
        link.buffer.clear()
        if ids:
            await link.settle(ids, ACCEPTED, timeout=self._transport.timeout)

    def release(self) -> None:
        """Give the lock back."""
        self._requests.abandon()
        self._link.abandon()


def _believed(until: float | None) -> float:
    """The duration of a lock that ends then by the service's clock, which may differ from ours."""
    said = LOCK_DURATION if until is None else until - time.time()
    return said if _SHORTEST_LOCK <= said <= LOCK_DURATION else LOCK_DURATION


async def ask(
    transport: AmqpTransport, queue: str, requests: RequestLink, operation: str, **more: Any
) -> dict[str, Any]:
    """Make a management request about the session; TransportError if it is refused."""
    body = {"session-id": SESSION, **{name.replace("_", "-"): value for name, value in more.items()}}
    note = partial(transport.meter.note_request, queue)
    answer: dict[str, Any] = await requests.request(operation, body, timeout=transport.timeout, on_fate=note)
    return answer


async def peek_announcement(transport: AmqpTransport, queue: str) -> bytes | None:
    """The announcement of the last holder; this needs no lock."""
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
    try:
        return scan(messages[-1]["message"]).data() if messages else None
    except DecodeError:  # whatever it is, it is none
        return b""

"""The transport on the official SDK: the second implementation of the contract, slower and well-trodden.

1. The SDK's links are used by one coroutine at a time; each end has a lock.
2. A receive that is called off goes on until its wait is over, since the SDK would lose what arrives in the
   meantime; `stop_receiving` collects it. Waits are short for this reason, and an idle queue costs more
   receives.
3. Messages without a session that are sent together go as one batch. If that is refused they are sent one by
   one, so that each gets its own outcome.
4. The SDK cannot release a message: giving back is abandoning, which counts a delivery.
5. What is billed is counted as far as the SDK lets one see it: credit that it leaves behind may turn an empty
   receive into none.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage, TransportType
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError

from pairbus import conditions
from pairbus.amqp.message import scan
from pairbus.pairing.failures import Fate
from pairbus.sdk.failures import describe
from pairbus.sdk.privates import is_settled_by_request, take_written, takes_written
from pairbus.wire.errors import CONNECTION_LOST, UNANSWERED, TransportError
from pairbus.wire.meter import Meter
from pairbus.wire.tokens import close_credential

from .pair import ResolvedSide
from .sdk_messages import to_annotated, to_batch, to_payload
from .transport import Delivery, Peeked, Refusal, Unit
from .unwrapping import DEFERRED, SCHEDULED

# Rule 2.
LONGEST_WAIT = 5.0
_AT_ONCE = 100
_TLS_PORT = 5671
_BATCH_BYTES = 180_000
_BY_CLASS = {
    "OperationTimeoutError": UNANSWERED,
    "TimeoutError": UNANSWERED,
    "ServiceBusServerBusyError": conditions.SERVER_BUSY,
    "ServiceBusQuotaExceededError": conditions.RESOURCE_LIMIT,
    "MessagingEntityNotFoundError": conditions.NOT_FOUND,
    "MessagingEntityDisabledError": conditions.ENTITY_DISABLED,
    "ServiceBusAuthorizationError": conditions.UNAUTHORIZED,
    "ServiceBusAuthenticationError": conditions.AUTH_FAILED,
    "MessageSizeExceededError": conditions.MESSAGE_SIZE_EXCEEDED,
    "MessageLockLostError": conditions.MESSAGE_LOCK_LOST,
    "MessageAlreadySettled": conditions.MESSAGE_LOCK_LOST,
    "MessageNotFoundError": conditions.MESSAGE_NOT_FOUND,
    "ValueError": conditions.ARGUMENT_ERROR,
    "TypeError": conditions.ARGUMENT_ERROR,
}
# Conditions of the SDK's own making, which say no more than that something failed.
_VAGUE = {conditions.CLIENT_ERROR, conditions.UNKNOWN_ERROR, conditions.SOCKET_ERROR}


def as_error(error: BaseException) -> TransportError:
    """What the SDK has raised, in the words of transports."""
    if isinstance(error, TransportError):
        return error
    failure = describe(error)
    condition = failure.condition if failure.condition not in _VAGUE else None
    if condition is None and failure.status == 404:
        condition = conditions.NOT_FOUND
    if condition is None:
        condition = next((_BY_CLASS[name] for name in failure.classes if name in _BY_CLASS), None)
    return TransportError(condition or CONNECTION_LOST, failure.summary)


class SdkTransport:
    """One namespace, by the SDK."""

    def __init__(
        self,
        side: ResolvedSide,
        *,
        timeout: float = 10.0,
        make_client: Callable[[], ServiceBusClient] | None = None,
    ) -> None:
        """`make_client` makes a client that does not retry, if the side does not tell how. Does no I/O."""
        self.timeout = timeout
        self.longest_wait = LONGEST_WAIT
        self.meter = Meter()
        self.on_credits: Callable[[float], None] = lambda credits: None  # the SDK hears nothing of them
        self._side = side
        self._make_client = make_client or self._default_client
        self._client: ServiceBusClient | None = None
        self._credential: Any = None  # one that we made of its name
        self._is_closed = False

    @property
    def client(self) -> ServiceBusClient:
        """The SDK's client, made when first needed."""
        if self._is_closed:  # whoever still has this must not make one that nobody closes
            raise ServiceBusError("the connection was closed by us")
        if self._client is None:
            self._client = self._make_client()
        return self._client

    def _default_client(self) -> ServiceBusClient:
        side = self._side
        keywords: dict[str, Any] = {"retry_total": 0}
        if side.side.ca_file is not None:
            keywords["connection_verify"] = side.side.ca_file
        is_emulator = side.parsed is not None and side.parsed.emulator
        if not is_emulator and side.endpoint.port != _TLS_PORT:  # the SDK reads it for emulators only
            keywords["custom_endpoint_address"] = f"sb://{side.endpoint}"
            keywords["transport_type"] = TransportType.Amqp
        if side.parsed is not None:
            return ServiceBusClient.from_connection_string(side.parsed.text, **keywords)
        self._credential = side.credential()
        return ServiceBusClient(side.endpoint.host, self._credential, **keywords)

    def source(self, queue: str) -> SdkSource:
        return SdkSource(self, queue)

    def destination(self, path: str) -> SdkDestination:
        return SdkDestination(self, path)

    async def close(self) -> None:
        self._is_closed = True
        if self._client is not None:
            await self._client.close()
            self._client = None
        if self._credential is not None:
            await close_credential(self._credential)
            self._credential = None


class SdkSource:
    """A backlog queue."""

    is_told = False

    def __init__(self, transport: SdkTransport, queue: str) -> None:
        self._transport = transport
        self._queue = queue
        self._receiver: ServiceBusReceiver | None = None
        self._receiving: asyncio.Task[list[ServiceBusReceivedMessage]] | None = None
        self._managing = asyncio.Lock()

    def _link(self) -> ServiceBusReceiver:
        if self._receiver is None:
            self._receiver = self._transport.client.get_queue_receiver(self._queue)
        return self._receiver

    async def receive(self, limit: int, wait: float, *, at_once: bool = False) -> list[Delivery]:
        if self._receiving is None:
            self._receiving = asyncio.create_task(self._receive(limit, wait))
        try:
            found = await asyncio.shield(self._receiving)
        except ServiceBusError as error:
            await self._drop()
            raise as_error(error) from error
        self._receiving = None
        return self._note_received(found)

    def _note_received(self, found: Sequence[ServiceBusReceivedMessage]) -> list[Delivery]:
        deliveries = [_delivery(message) for message in found]
        meter = self._transport.meter
        meter.note_sizes(self._queue, "delivery", [len(one.payload) for one in deliveries])
        if not deliveries:
            meter.note(self._queue, "empty_receive", count=1)
        return deliveries

    async def _receive(self, limit: int, wait: float) -> list[ServiceBusReceivedMessage]:
        is_new = self._receiver is None
        link = self._link()
        if is_new:
            await link.__aenter__()  # or the opening of the link would be part of the wait
        return await link.receive_messages(max_message_count=limit, max_wait_time=wait)

    async def stop_receiving(self) -> list[Delivery]:
        if self._receiving is None:
            return []
        try:
            return self._note_received(await self._receiving)
        except ServiceBusError:
            return []
        finally:
            self._receiving = None

    async def complete(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        return await self._each(
            "complete", deliveries, lambda message: self._link().complete_message(message)
        )

    async def defer(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        return await self._each("defer", deliveries, lambda message: self._link().defer_message(message))

    async def release(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        return await self._each("abandon", deliveries, lambda message: self._link().abandon_message(message))

    async def dead_letter(self, delivery: Delivery, *, reason: str, description: str) -> Refusal:
        (outcome,) = await self._each(
            "dead_letter",
            [delivery],
            lambda message: self._link().dead_letter_message(
                message, reason=reason, error_description=description
            ),
        )
        return outcome

    async def _each(
        self,
        kind: str,
        deliveries: Sequence[Delivery],
        act: Callable[[ServiceBusReceivedMessage], Awaitable[None]],
    ) -> list[Refusal]:
        async def settle(delivery: Delivery) -> Refusal:
            assert isinstance(delivery.handle, ServiceBusReceivedMessage)
            try:
                await act(delivery.handle)
            except (ServiceBusError, ValueError, TimeoutError) as error:
                return as_error(error)
            return None

        outcomes = list(await asyncio.gather(*map(settle, deliveries)))
        self._note_settled(kind, deliveries, outcomes)
        return outcomes

    def _note_settled(
        self, kind: str, deliveries: Sequence[Delivery], outcomes: Sequence[TransportError | None]
    ) -> None:
        meter, lost = self._transport.meter, (CONNECTION_LOST, UNANSWERED)
        unknown = [one is not None and one.condition in lost for one in outcomes]
        meter.note(self._queue, kind, count=unknown.count(False), unknown=unknown.count(True))
        # What was fetched by its number the SDK also settles by a request, one for each.
        of_requests = [
            is_unknown
            for delivery, is_unknown in zip(deliveries, unknown, strict=True)
            if is_settled_by_request(delivery.handle)
        ]
        meter.note(self._queue, "management", count=of_requests.count(False), unknown=of_requests.count(True))

    def _note_request(self) -> None:
        self._transport.meter.note(self._queue, "management", count=1)

    async def fetch(self, sequence_numbers: Sequence[int]) -> list[Delivery | TransportError]:
        found: list[Delivery | TransportError] = []
        for begin in range(0, len(sequence_numbers), _AT_ONCE):
            found += await self._fetch(sequence_numbers[begin : begin + _AT_ONCE])
        return found

    async def _fetch(self, numbers: Sequence[int]) -> list[Delivery | TransportError]:
        try:
            async with self._managing:
                self._note_request()
                messages = await self._link().receive_deferred_messages(list(numbers))
        except ServiceBusError as error:
            mapped = as_error(error)
            if mapped.condition != conditions.MESSAGE_NOT_FOUND:
                raise mapped from error
            if len(numbers) == 1:
                return [mapped]
            singly = [await self._fetch([number]) for number in numbers]
            return [one for some in singly for one in some]
        by_number = {message.sequence_number: _delivery(message) for message in messages}
        sizes = [len(one.payload) for one in by_number.values()]
        self._transport.meter.note_sizes(self._queue, "delivery", sizes)
        missing = TransportError(conditions.MESSAGE_NOT_FOUND, "the answer does not have it")
        return [by_number.get(number, missing) for number in numbers]

    async def peek(self, from_sequence_number: int, limit: int) -> list[Peeked]:
        try:
            async with self._managing:
                self._note_request()
                found = await self._link().peek_messages(
                    max_message_count=limit, sequence_number=max(1, from_sequence_number)
                )
        except ServiceBusError as error:
            raise as_error(error) from error
        return [
            Peeked(
                message.sequence_number or 0,
                message.state.value == DEFERRED,
                scan(to_payload(message.raw_amqp_message)),
                message.state.value == SCHEDULED,
            )
            for message in found
        ]

    async def renew(self, deliveries: Sequence[Delivery]) -> list[float | TransportError]:
        async def renew_one(delivery: Delivery) -> float | TransportError:
            assert isinstance(delivery.handle, ServiceBusReceivedMessage)
            try:
                async with self._managing:
                    self._note_request()
                    until = await self._link().renew_message_lock(delivery.handle)
            except (ServiceBusError, ValueError) as error:
                return as_error(error)
            return until.timestamp()

        return [await renew_one(delivery) for delivery in deliveries]

    async def _drop(self) -> None:
        self._receiving = None
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await receiver.close()

    async def close(self) -> None:
        await self._drop()

    leave = close


class SdkDestination:
    """A queue or topic."""

    def __init__(self, transport: SdkTransport, path: str) -> None:
        self._transport = transport
        self._path = path
        self._sender: ServiceBusSender | None = None
        self._lock = asyncio.Lock()

    async def send(self, units: Sequence[Unit]) -> list[Refusal]:
        outcomes: list[Refusal] = []
        async with self._lock:
            for group in _groups(units):
                outcomes += await self._send_group(group)
        return outcomes

    async def _send_group(self, group: Sequence[Unit]) -> list[Refusal]:
        outcome = await self._send([payload for unit in group for payload in unit.payloads])
        if outcome is None or len(group) == 1 or outcome.condition in (CONNECTION_LOST, UNANSWERED):
            return [outcome] * len(group)
        return [await self._send(unit.payloads) for unit in group]

    async def _send(self, payloads: Sequence[bytes]) -> Refusal:
        try:
            if self._sender is None:
                self._sender = self._transport.client.get_queue_sender(self._path)
                if takes_written(self._transport.client):
                    take_written(self._sender)
            await _send_by(self._sender, payloads, self._transport.timeout)
        except (ServiceBusError, ValueError, TypeError, TimeoutError) as error:
            fate = describe(error).fate
            self._note_sent(payloads, fate)
            await self._drop()
            return as_error(error).unsent() if fate == "unsent" else as_error(error)
        self._note_sent(payloads, "taken")
        return None

    def _note_sent(self, payloads: Sequence[bytes], fate: Fate) -> None:
        if fate != "unsent":
            kind = "send_refused" if fate == "refused" else "send"
            sizes = [len(payload) for payload in payloads]
            self._transport.meter.note_sizes(self._path, kind, sizes, known=fate != "unknown")

    async def _drop(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()

    async def close(self) -> None:
        async with self._lock:
            await self._drop()


async def _send_by(sender: Any, payloads: Sequence[bytes], timeout: float) -> None:
    """Have them sent together: to the byte, if the sender takes bytes."""
    is_batch = len(payloads) > 1
    if hasattr(sender, "send_written"):
        written = to_batch(payloads) if is_batch else payloads[0]
        await sender.send_written(written, is_batch=is_batch, timeout=timeout)
        return
    messages = [to_annotated(payload) for payload in payloads]
    await sender.send_messages(messages if is_batch else messages[0], timeout=timeout)


def _groups(units: Sequence[Unit]) -> list[list[Unit]]:
    """Units that are sent together: neighbours of one message and no session, within a batch's limits."""
    groups: list[list[Unit]] = []
    size = 0
    for unit in units:
        own = sum(map(len, unit.payloads))
        joins = (
            bool(groups)
            and len(unit.payloads) == 1
            and unit.session_id is None
            and len(groups[-1][-1].payloads) == 1
            and groups[-1][-1].session_id is None
            and size + own < _BATCH_BYTES
            and len(groups[-1]) < _AT_ONCE
        )
        if joins:
            groups[-1].append(unit)
            size += own
        else:
            groups.append([unit])
            size = own
    return groups


def _delivery(message: ServiceBusReceivedMessage) -> Delivery:
    token = message.lock_token
    raw = token.bytes_le if isinstance(token, uuid.UUID) else str(token or "").encode()
    return Delivery(to_payload(message.raw_amqp_message), raw, message)

"""The SDK as the client calls it, over a simulated namespace: the second seam.

1. It raises the SDK's own exceptions, made by the SDK's own function from what AMQP says. A suite holds it to
   the real SDK on embedded namespaces (`test_side.py`).
2. Whoever asks for something gets no answer sooner than the SDK would give one: a link that is refused is
   told of after a second, and silence lasts.
3. Senders of one side share nothing. Each has a connection of its own, so that what breaks one is seen by
   all others only if it is a fault of the namespace.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._pyamqp import error as amqp_error
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from pairbus import conditions
from pairbus.amqp.message import scan
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.namespace import Namespace
from pairbus.client.direct.encoding import scheduled_copy
from pairbus.pairing.names import parse_connection_string

from .loop import current_process
from .namespace import Attempt, Connection, Link, LostWord, SimulatedNamespace

__all__ = ["SimulatedSender", "SimulatedSide", "connection_string", "encode_message"]

B = TypeVar("B", bound=ServiceBusMessageBatch)
log = logging.getLogger(__name__)
# The SDK looks once a second whether a link that it opens is there.
_OPENING = 1.05
# As long as the SDK waits for an answer, if nobody calls it away.
_PATIENCE = 60.0
_SIZE = 262_144


def connection_string(name: str) -> str:
    """How a simulated namespace is called where names are all that is looked at."""
    return f"Endpoint=sb://{name}.simulated/;SharedAccessKeyName=k;SharedAccessKey=a2V5;Namespace={name}"


def encode_message(message: Any) -> bytes:
    """A message as the SDK puts it on the wire."""
    raw = message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message
    return bytes(encode_payload(bytearray(), PyamqpTransport.to_outgoing_amqp_message(raw)))


def encoded_batch(batch: ServiceBusMessageBatch) -> list[bytes]:
    """The messages of a batch, which holds them as the data of one AMQP message."""
    return [bytes(one) for one in batch._message[5]]


class SimulatedSender:
    """A sender that does not retry by itself."""

    def __init__(
        self, namespace: SimulatedNamespace, path: str, size: int = _SIZE, opening: float = 0.0
    ) -> None:
        self._namespace = namespace
        self._path = path
        self._size = size
        self._pause = opening
        self._connection: Connection | None = None
        self._link: Link | None = None
        # How long it took to open a link on which nothing was sent yet: that is part of the first send.
        self._opening = 0.0
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection that is whole."""
        return self._connection is not None and self._connection.lost is None

    @property
    def is_lost(self) -> bool:
        """Whether the next call has to connect again; senders of our own AMQP know it."""
        return self._link is None or self._link.is_lost

    async def __aenter__(self) -> SimulatedSender:
        await self._open()
        return self

    async def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            self._connection.cut("closed")

    async def _open(self) -> Link:
        if self._is_closed:
            raise ValueError(
                "The handler has already been shutdown. Please use ServiceBusClient to create a new instance."
            )
        if self._link is not None and not self._link.is_lost:
            return self._link
        namespace, path = self._namespace, self._path
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(self._pause)
        try:
            connection = await namespace.connect(_PATIENCE)
        except LostWord as error:
            _raise(error, is_opening=True)
        if self._connection is not None:
            self._connection.cut("it has been replaced")
        self._connection = connection
        link = Link(connection, path)

        def attach(engine: Namespace, now: float) -> None:
            namespace.authorize(connection, path)
            engine.node(path)
            namespace.check("attach", path)

        try:
            await connection.answer(link, "attach", attach, _PATIENCE)
        except Refused as error:
            connection.cut("refused")
            namespace.refusals.setdefault(path, []).append(asyncio.get_running_loop().time())
            await asyncio.sleep(_OPENING)
            _raise(error, is_opening=True)
        except LostWord as error:
            _raise(error, is_opening=True)
        connection.attach(link)
        self._link, self._opening = link, asyncio.get_running_loop().time() - begun
        return link

    async def send_messages(self, message: Any, *, timeout: float | None = None) -> None:
        """Send a message, a list or a batch."""
        link = await self._open()
        begun, self._opening = asyncio.get_running_loop().time() - self._opening, 0.0
        if isinstance(message, Sequence):
            batch = ServiceBusMessageBatch(self._size)
            for one in message:
                batch.add_message(one)
            message = batch
        if isinstance(message, ServiceBusMessageBatch):
            payloads = encoded_batch(message)
        else:
            payloads = [encode_message(message)]
        if payloads:
            await self._send(link, payloads, begun)

    async def send_written(self, payload: bytes, *, is_batch: bool = False) -> None:
        """Send a message, or a batch, that is encoded."""
        link = await self._open()
        begun, self._opening = asyncio.get_running_loop().time() - self._opening, 0.0
        await self._send(link, scan(payload).data_sections() if is_batch else [payload], begun)

    async def _send(self, link: Link, payloads: list[bytes], begun: float) -> None:
        if len(payloads) == 1 and len(payloads[0]) > self._size:
            _raise(Refused(conditions.MESSAGE_SIZE_EXCEEDED, "The message is too large."))
        attempt = self._attempt(payloads)

        def take(engine: Namespace, now: float) -> None:
            attempt.at = now
            self._namespace.take(self._path, payloads, attempt)

        await self._ask(link.connection, link, f"send {','.join(attempt.ids)}", take)
        attempt.note_answer(begun)

    async def schedule_messages(self, messages: Any, schedule_time_utc: datetime.datetime) -> list[int]:
        """Have a message, or several, enqueued at a time."""
        link = await self._open()
        begun, self._opening = asyncio.get_running_loop().time() - self._opening, 0.0
        listed = list(messages) if isinstance(messages, Sequence) else [messages]
        payloads = [encode_message(scheduled_copy(one, schedule_time_utc)) for one in listed]
        attempt = self._attempt(payloads)

        def schedule(engine: Namespace, now: float) -> list[int]:
            attempt.at = now
            return self._namespace.schedule(self._path, payloads, attempt)

        numbers: list[int] = await self._ask(link.connection, link, "schedule", schedule)
        attempt.note_answer(begun)
        return numbers

    async def cancel_scheduled_messages(self, sequence_numbers: Any) -> None:
        """Cancel what was scheduled."""
        link = await self._open()
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        await self._ask(
            link.connection,
            link,
            "cancel",
            lambda engine, now: engine.cancel_scheduled(self._path, numbers, now),
        )

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """An empty batch, as large as the link takes."""
        await self._open()
        return ServiceBusMessageBatch(max_size_in_bytes or self._size)

    def _attempt(self, payloads: list[bytes]) -> Attempt:
        ids = [str(scan(payload).properties.message_id) for payload in payloads]
        return Attempt(self._path, ids, 0.0, current_process())

    async def _ask(
        self, connection: Connection, link: Link, kind: str, act: Callable[[Namespace, float], Any]
    ) -> Any:
        try:
            return await connection.answer(link, kind, act, _PATIENCE)
        except (LostWord, Refused) as error:
            _raise(error)


def _raise(error: LostWord | Refused, *, is_opening: bool = False) -> NoReturn:
    """Raise what the SDK raises."""
    if isinstance(error, Refused):
        kind: type[amqp_error.AMQPException]
        kind = amqp_error.AMQPLinkError if is_opening else amqp_error.MessageException
        if error.condition in (conditions.AUTH_FAILED, conditions.UNAUTHORIZED) and is_opening:
            kind = amqp_error.AuthenticationException
        told = kind(condition=error.condition.encode(), description=error.description)
        raise PyamqpTransport.create_servicebus_exception(log, told) from error
    if error.is_broken:
        raise ServiceBusConnectionError(message=str(error), error=ConnectionResetError(str(error)))
    raise OperationTimeoutError(message=str(error))


class SimulatedSide:
    """One namespace of a pair, as the client reaches it."""

    def __init__(
        self, namespace: SimulatedNamespace, *, size: int = _SIZE, width: int = 1, opening: float = 0.0
    ) -> None:
        """`size` is that of the largest message and of the largest batch; `width` as many calls as a sender
        takes at once; `opening` the seconds that it takes to open a link.
        """
        self.width = width
        self._opening = opening
        self.namespace = namespace
        self._size = size
        self.address = connection_string(namespace.name)
        self.parsed = parse_connection_string(self.address)
        self.endpoint = self.parsed.endpoint
        self.credential = None
        self.keywords: dict[str, Any] = {}
        self.on_closed_under_us: Callable[[], object] | None = None
        self._senders: list[SimulatedSender] = []

    def batch_kind(self, kind: type[B]) -> type[B]:
        return kind

    def make_batch(self, kind: type[B], size: int) -> B:
        return kind(size)

    @property
    def takes_written(self) -> bool:
        return True

    def is_tracing(self) -> bool:
        return False

    def check_entity(self, path: str) -> None:
        """Every entity can be sent to."""

    def open_sender(
        self, path: str, *, is_topic: bool = False, keywords: Mapping[str, Any] | None = None
    ) -> SimulatedSender:
        sender = SimulatedSender(self.namespace, path, self._size, self._opening)
        self._senders.append(sender)
        return sender

    def open_administration(self) -> NoReturn:
        raise ServiceBusConnectionError(message="queues are made beforehand", error=ConnectionRefusedError())

    @property
    def open_senders(self) -> list[SimulatedSender]:
        """Those that are connected."""
        return [sender for sender in self._senders if sender.is_connected]

    async def close(self, limit: float) -> None:
        for sender in self._senders:
            await sender.close()

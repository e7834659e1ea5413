"""Sends to one entity: the SDK's sender for asyncio, with a backlog behind it."""

from __future__ import annotations

import datetime
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.plumbing.this_process import ThisProcess

from .direct.encoding import encode_plainly
from .errors import ClientClosedError
from .pair import Pair
from .sending.calls import EntityCall
from .sending.entity import PairedEntity
from .sending.message import PairedMessageBatch, prepare

if TYPE_CHECKING:
    from .aio import PairedServiceBusClient

MessageTypes = (
    Mapping[str, Any]
    | ServiceBusMessage
    | AmqpAnnotatedMessage
    | Iterable[Mapping[str, Any]]
    | Iterable[ServiceBusMessage]
    | Iterable[AmqpAnnotatedMessage]
)


class PairedSender:
    """Sends to one entity: the SDK's sender, with a backlog behind it. Safe for any number of tasks.

    The methods are those of the SDK's sender. Where the SDK takes any keyword and warns of those that it does
    not know, a TypeError tells of them here.
    """

    def __init__(
        self,
        client: PairedServiceBusClient,
        path: str,
        *,
        is_topic: bool,
        client_identifier: str | None,
        socket_timeout: float | None = None,
    ) -> None:
        client._check_process()
        client._primary.check_entity(path)
        self._client = client
        self._path = path
        self._is_topic = is_topic
        self._given_identifier = client_identifier
        self._socket_timeout = socket_timeout
        self._identifier = client_identifier or f"pairbus-{path}-{id(self):x}"
        # The pair and its entity, from the first use on.
        self._open: tuple[Pair, PairedEntity] | None = None
        # That on which sends need no further look at all this.
        self._loop: AbstractEventLoop | None = None
        self._closed = False

    @property
    def fully_qualified_namespace(self) -> str:
        """The host name of the primary."""
        return self._client.fully_qualified_namespace

    @property
    def entity_name(self) -> str:
        """The path of the entity."""
        return self._path

    @property
    def client_identifier(self) -> str:
        """What this sender calls itself."""
        return self._identifier

    def __str__(self) -> str:
        return f"Sender client id: {self._identifier}, entity: {self._path}"

    async def send_messages(
        self, message: MessageTypes | ServiceBusMessageBatch, *, timeout: float | None = None
    ) -> None:
        """Send a message, a list or a batch, and return when the primary or a backlog queue has all of it.

        A message without an id is given one, which it keeps however often it is tried; the object itself is
        not changed. OperationTimeoutError if `timeout` runs out; what was sent may then still arrive.
        """
        if (
            timeout is not None
            or get_running_loop() is not self._loop
            or ThisProcess.pid != self._client.made_in
        ):
            self._begin(timeout)
        pair, entity = self._open or self._begin(timeout)
        given: Any = message
        traces = pair.is_tracing()
        plain = None if traces else encode_plainly(given)
        if plain:
            native, messages = (given.copy(),) * 2 if type(given) is list else (given, [given])
        else:
            native, messages = prepare(given, pair.batches)
            if not messages:
                pair.check()
                return
        call = EntityCall(native, messages, traces=traces, plain=plain)
        departure = pair.router.set_out(entity, call) if timeout is None else None
        if departure is None:
            call.keep_as_it_is()
            await pair.router.perform(entity, call, timeout)
            return
        try:
            departure.value = await departure.transmit(departure.sender)
        except BaseException as error:  # noqa: BLE001 - it is raised again, or judged as the SDK's
            departure.error = error
            call.restore()
        if departure.error is not None:
            await pair.router.resume(entity, departure)
        elif isinstance(departure, EntityCall):
            entity.arrived(departure)
        elif (rest := departure.arrived()) is not None:
            await rest

    async def schedule_messages(
        self, messages: MessageTypes, schedule_time_utc: datetime.datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Schedule a message or several; the sequence numbers, negative for what went to the backlog."""
        pair, entity = self._begin(timeout)
        if isinstance(messages, PairedMessageBatch):
            raise TypeError("A batch cannot be scheduled. Schedule a list of messages instead.")
        native, prepared = prepare(messages)
        if not prepared:
            return []
        call = EntityCall(native, prepared, when=schedule_time_utc, traces=pair.is_tracing())
        call.keep_as_it_is()
        numbers: list[int] = await pair.router.perform(entity, call, timeout)
        return numbers

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None
    ) -> None:
        """Cancel scheduled messages; ScheduledInBacklogError for numbers of the backlog."""
        pair, entity = self._begin(timeout)
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        if numbers:
            await pair.cancel_scheduled(entity, numbers, timeout)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """An empty batch, as large as the primary takes and a backlog queue can hold with its envelope."""
        pair, entity = self._begin(None)
        return await pair.new_batch(entity, max_size_in_bytes)

    async def close(self) -> None:
        """Close this sender. The link stays with the client, for the entity's other senders."""
        self._closed = True
        self._loop = None

    async def __aenter__(self) -> PairedSender:
        self._begin(None)
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def _begin(self, timeout: float | None) -> tuple[Pair, PairedEntity]:
        """What every call begins with: the pair and the entity, if they may be used here and now."""
        pair = self._client.pair
        pair.check_loop()
        if self._closed:
            raise ClientClosedError(
                "The sender has been closed. Get a new one from the client to send again."
            )
        if timeout is not None and not timeout > 0:  # nor is it no number
            raise ValueError("The timeout must be greater than 0.")
        pair.check()
        if self._open is None:
            self._client._begin()
            entity = pair.entity(self._path, is_topic=self._is_topic)
            entity.settings.take(
                client_identifier=self._given_identifier, socket_timeout=self._socket_timeout
            )
            self._open = pair, entity
            self._loop = pair.loop
        return self._open

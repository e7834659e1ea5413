"""The paired client for asyncio: the SDK's client and sender, with a backlog behind them."""

from __future__ import annotations

import datetime
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Iterable, Mapping
from os import getpid
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from azure.core.async_paging import AsyncItemPaged
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.amqp import AmqpAnnotatedMessage

from ..clock import Clock, SystemClock
from ..errors import ConfigurationError
from ..options import SendAvailabilityOptions, StateChange
from ..pairing.errors import ForkedClientError
from ..pairing.names import check_distinct
from ..pairing.names import primary_name as name_primary
from .calls import ScheduleCall, SendCall
from .entity import Entity
from .errors import ClientClosedError
from .ledger import ClientLedger
from .message import PairedMessageBatch, prepare
from .observer import Observer
from .pair import Pair
from .receiving import AioReceiverOptions
from .records import NoRecords, Records, SegmentRecords
from .side import Side
from .spool import Spool
from .state_dir import records_dir, status_dir
from .status import PairStatus
from .status_file import StatusFile
from .timers import Timers

__all__ = ["MessageTypes", "PairedSender", "PairedServiceBusClient"]

MessageTypes = (
    Mapping[str, Any]
    | ServiceBusMessage
    | AmqpAnnotatedMessage
    | Iterable[Mapping[str, Any]]
    | Iterable[ServiceBusMessage]
    | Iterable[AmqpAnnotatedMessage]
)


class PairedServiceBusClient:
    """A client that goes on sending while its primary namespace is down.

    It sends as the SDK's client does. When an entity of the primary has failed for `failover_interval`, what
    is sent to it goes to backlog queues of the secondary namespace, until a ping tells that it is back.
    Receivers are the SDK's own, on the primary. Making a client does no I/O.
    """

    def __init__(
        self,
        primary_fully_qualified_namespace: str,
        primary_credential: Any,
        secondary_fully_qualified_namespace: str,
        secondary_credential: Any,
        *,
        options: SendAvailabilityOptions | None = None,
        on_state_change: Callable[[StateChange], object] | None = None,
        primary_name: str | None = None,
        state_dir: Path | str | None = None,
        observers: Iterable[Observer] = (),
        clock: Clock | None = None,
        timers: Timers | None = None,
        sdk_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Pair two namespaces that are signed in to with credentials, such as those of azure-identity.

        `sdk_options` are keywords of the SDK's client, for both sides: `logging_enable`, `transport_type`,
        `http_proxy`, `user_agent`, `connection_verify`, ...
        """
        keywords = dict(sdk_options or {})
        self._set_up(
            Side(primary_fully_qualified_namespace, primary_credential, keywords=keywords),
            Side(secondary_fully_qualified_namespace, secondary_credential, keywords=keywords),
            options=options,
            on_state_change=on_state_change,
            primary_name=primary_name,
            state_dir=state_dir,
            observers=observers,
            clock=clock,
            timers=timers,
        )

    @classmethod
    def from_connection_strings(
        cls,
        primary: str,
        secondary: str,
        *,
        options: SendAvailabilityOptions | None = None,
        on_state_change: Callable[[StateChange], object] | None = None,
        primary_name: str | None = None,
        state_dir: Path | str | None = None,
        observers: Iterable[Observer] = (),
        clock: Clock | None = None,
        timers: Timers | None = None,
        sdk_options: Mapping[str, Any] | None = None,
    ) -> PairedServiceBusClient:
        """Pair two namespaces by their connection strings."""
        keywords = dict(sdk_options or {})
        client = cls.__new__(cls)
        client._set_up(
            Side(primary, keywords=keywords),
            Side(secondary, keywords=keywords),
            options=options,
            on_state_change=on_state_change,
            primary_name=primary_name,
            state_dir=state_dir,
            observers=observers,
            clock=clock,
            timers=timers,
        )
        return client

    def _set_up(
        self,
        primary: Side,
        secondary: Side,
        *,
        options: SendAvailabilityOptions | None,
        on_state_change: Callable[[StateChange], object] | None,
        primary_name: str | None,
        state_dir: Path | str | None,
        observers: Iterable[Observer],
        clock: Clock | None,
        timers: Timers | None,
    ) -> None:
        chosen = options or SendAvailabilityOptions()
        directory = None if state_dir is None else Path(state_dir)
        check_distinct(primary.endpoint, secondary.endpoint)
        _check_options(chosen, directory)
        _check_secondary(secondary)
        name = name_primary(primary.parsed or primary.endpoint, alias=primary_name)
        wall = clock or SystemClock()
        #: The process that this client belongs to.
        self.made_in = getpid()
        self._primary = primary
        self._receiving: ServiceBusClient | None = None
        self._pair: Pair | None = None
        self._status_file: StatusFile | None = None
        self._ledger: ClientLedger | None = None
        self._closed = False

        def make_pair() -> Pair:
            heard = list(observers)
            if directory is not None:
                self._status_file = StatusFile(status_dir(directory), self.status, clock=wall)
                heard.append(self._status_file)
                self._ledger = ClientLedger.open(
                    records_dir(directory),
                    primary=name,
                    secondary=name_primary(secondary.parsed or secondary.endpoint),
                    clock=wall,
                )
                heard.append(self._ledger)
            return Pair(
                primary,
                secondary,
                name=name,
                options=chosen,
                clock=wall,
                records=_open_records(directory, wall),
                spool=_open_spool(directory, chosen),
                on_state_change=on_state_change,
                observers=heard,
                timers=timers,
            )

        self._make_pair = make_pair

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin: the backlog queues are seen to in the background, and no send waits for it."""
        pair = self.pair
        pair.check_loop()
        pair.start()
        if self._status_file is not None:
            self._status_file.start()

    async def close(self) -> None:
        """Close both sides, stop the pings, end what runs in the background.

        A send that is under way is given a moment to end; one that only waits raises ClientClosedError.
        """
        self._check_process()
        self._closed = True
        pair, self._pair = self._pair, None
        if self._status_file is not None:
            await self._status_file.close()
        if pair is not None:
            await pair.close()
        if self._ledger is not None:
            await self._ledger.close()
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            await receiving.close()

    async def __aenter__(self) -> PairedServiceBusClient:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def pair(self) -> Pair:
        """The pair behind this client, begun with its first use, on the event loop that runs then."""
        self._check_process()
        if self._closed:
            raise ClientClosedError("The client has been closed. Make a new one to send again.")
        if self._pair is None:
            self._pair = self._make_pair()
        return self._pair

    def _check_process(self) -> None:
        if getpid() != self.made_in:
            raise ForkedClientError(self.made_in, getpid())

    # -- senders and receivers -------------------------------------------------------------------------------

    def get_queue_sender(
        self, queue_name: str, *, client_identifier: str | None = None, socket_timeout: float | None = None
    ) -> PairedSender:
        """A sender for a queue of the primary.

        All senders of a client for one entity share its links. The links take the identifier and the socket's
        time-out from the first sender that names one.
        """
        return PairedSender(
            self,
            queue_name,
            is_topic=False,
            client_identifier=client_identifier,
            socket_timeout=socket_timeout,
        )

    def get_topic_sender(
        self, topic_name: str, *, client_identifier: str | None = None, socket_timeout: float | None = None
    ) -> PairedSender:
        """A sender for a topic of the primary; what is said of `get_queue_sender` holds for it too."""
        return PairedSender(
            self,
            topic_name,
            is_topic=True,
            client_identifier=client_identifier,
            socket_timeout=socket_timeout,
        )

    def get_queue_receiver(
        self, queue_name: str, **options: Unpack[AioReceiverOptions]
    ) -> ServiceBusReceiver:
        """The SDK's receiver for a queue of the primary, with the SDK's keywords."""
        return self._receivers().get_queue_receiver(queue_name, **options)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Unpack[AioReceiverOptions]
    ) -> ServiceBusReceiver:
        """The SDK's receiver for a subscription of the primary, with the SDK's keywords."""
        return self._receivers().get_subscription_receiver(topic_name, subscription_name, **options)

    def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime.datetime | None = None,
        timeout: float | None = None,
    ) -> AsyncItemPaged[str]:
        """The sessions of a queue of the primary, as the SDK lists them."""
        return self._receivers().list_queue_sessions(
            queue_name, state_updated_after=state_updated_after, timeout=timeout
        )

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime.datetime | None = None,
        timeout: float | None = None,
    ) -> AsyncItemPaged[str]:
        """The sessions of a subscription of the primary, as the SDK lists them."""
        return self._receivers().list_subscription_sessions(
            topic_name, subscription_name, state_updated_after=state_updated_after, timeout=timeout
        )

    def _receivers(self) -> ServiceBusClient:
        self._check_process()
        if self._closed:
            raise ClientClosedError("The client has been closed. Make a new one to receive again.")
        if self._receiving is None:
            # Receivers retry as the SDK does by itself; only senders leave that to us.
            self._receiving = self._primary.make_client()
        return self._receiving

    # -- state -----------------------------------------------------------------------------------------------

    def status(self) -> PairStatus:
        """A picture of this moment: states, rotation, provisioning."""
        return self.pair.status()

    def mark_path_healthy(self, path: str) -> None:
        """Send to an entity of the primary again, at once, whatever the pings say."""
        self.pair.mark_path_healthy(path)

    def fail_over(self, path: str, *, reason: str = "forced by fail_over") -> None:
        """Send what is for an entity to the backlog from now on, to test or to drill; a good ping ends it."""
        self.pair.fail_over(path, reason)

    def fault(self, cause: str, *, side: str = "primary") -> None:
        """Refuse every send from now on, with this cause."""
        self.pair.fault(cause, side)


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
        client._primary.check_entity(path)
        self._client = client
        self._path = path
        self._is_topic = is_topic
        self._given_identifier = client_identifier
        self._socket_timeout = socket_timeout
        self._identifier = client_identifier or f"pairbus-{path}-{id(self):x}"
        self._entity: Entity | None = None
        self._loop: AbstractEventLoop | None = None
        self._closed = False

    @property
    def fully_qualified_namespace(self) -> str:
        """The host name of the primary."""
        return self._client._primary.endpoint.host

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
            or self._closed
            or get_running_loop() is not self._loop
            or getpid() != self._client.made_in
        ):
            self._begin(timeout)
        native, messages = prepare(message)
        entity = self._entity or self._begin(timeout)
        if messages:
            await entity.perform(SendCall(entity, native, messages), timeout)
        else:
            entity.pair.check()

    async def schedule_messages(
        self, messages: MessageTypes, schedule_time_utc: datetime.datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Schedule a message or several; the sequence numbers, negative for what went to the backlog."""
        entity = self._begin(timeout)
        if isinstance(messages, PairedMessageBatch):
            raise TypeError("A batch cannot be scheduled. Schedule a list of messages instead.")
        native, prepared = prepare(messages)
        if not prepared:
            return []
        call = ScheduleCall(entity, native, prepared, when=schedule_time_utc)
        numbers: list[int] = await entity.perform(call, timeout)
        return numbers

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None
    ) -> None:
        """Cancel scheduled messages; ScheduledInBacklogError for numbers of the backlog."""
        entity = self._begin(timeout)
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        if numbers:
            await entity.pair.cancel_scheduled(entity, numbers, timeout)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """An empty batch, as large as the primary takes and a backlog queue can hold with its envelope."""
        entity = self._begin(None)
        return await entity.pair.new_batch(entity, max_size_in_bytes)

    async def close(self) -> None:
        """Close this sender. The link stays with the client, for the entity's other senders."""
        self._closed = True

    async def __aenter__(self) -> PairedSender:
        await self._client.start()
        self._begin(None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _begin(self, timeout: float | None) -> Entity:
        """What every call begins with: the entity, if it may be used here and now."""
        pair = self._client.pair
        pair.check_loop()
        if self._closed:
            raise ClientClosedError(
                "The sender has been closed. Get a new one from the client to send again."
            )
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
        pair.check()
        if self._entity is None:
            self._entity = pair.entity(self._path, is_topic=self._is_topic)
            self._entity.settings.take(
                client_identifier=self._given_identifier, socket_timeout=self._socket_timeout
            )
            self._loop = pair.loop
        return self._entity


def _check_options(options: SendAvailabilityOptions, state_dir: Path | None) -> None:
    if options.enable_syphon:
        raise ConfigurationError(
            "enable_syphon=True is not available yet. Leave it off; what is in the backlog stays there until "
            "a syphon moves it"
        )
    if options.ordering != "none":
        raise ConfigurationError(
            f'ordering="{options.ordering}" is not available yet. Use ordering="none", which sends to the '
            "primary again as soon as it is back"
        )
    if options.enable_spool and state_dir is None:
        raise ConfigurationError("enable_spool=True needs state_dir=, the directory that the spool lies in")


def _check_secondary(secondary: Side) -> None:
    if secondary.parsed is not None and secondary.parsed.entity_path is not None:
        raise ConfigurationError(
            "The connection string of the secondary has an EntityPath= field, and so is good for one entity. "
            "Use one of the whole namespace: there are several backlog queues"
        )


def _open_records(state_dir: Path | None, clock: Clock) -> Records:
    return NoRecords() if state_dir is None else SegmentRecords(records_dir(state_dir), clock=clock)


def _open_spool(state_dir: Path | None, options: SendAvailabilityOptions) -> Spool | None:
    if not options.enable_spool or state_dir is None:
        return None
    return Spool(state_dir / "spool", limit=options.spool_max_bytes)

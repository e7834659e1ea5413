"""The paired client for asyncio: the SDK's client, with a backlog behind its senders."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from azure.core.async_paging import AsyncItemPaged
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from pairbus.clock import Clock, SystemClock
from pairbus.errors import ConfigurationError
from pairbus.ledger.operation_log import MAX_AGE as OPERATIONS_AGE
from pairbus.ledger.segment import MAX_AGE
from pairbus.options import RecordsSync, SendAvailabilityOptions, StateChange
from pairbus.pairing.errors import ForkedClientError
from pairbus.pairing.names import backlog_queue_names, check_distinct
from pairbus.pairing.names import primary_name as name_primary
from pairbus.plumbing.tasks import look_away, take_each, wait_in_real_time
from pairbus.plumbing.this_process import ThisProcess
from pairbus.sdk.side import SdkSide, SideName, side_keywords
from pairbus.stores.places import RecordPlace, parse_place
from pairbus.threads import THREADS
from pairbus.timers import Timers

from .errors import ClientClosedError
from .fleet.line import FleetLine
from .observers.ledger import ClientLedger
from .observers.notifier import check_callback
from .observers.observer import Observer
from .pair import Pair
from .receiving import AioReceiverOptions
from .sender import MessageTypes, PairedSender
from .sending.spool import Spool
from .state.directory import check_state_dir, records_dir, spool_dir, status_dir, try_directory
from .state.landmark import Landmark
from .state.records import NoRecords, Records, SegmentRecords
from .state.shipping import LEDGER_AGE, SHIP_EVERY, RecordShipper
from .state.status_file import StatusFile
from .status import PairStatus, ShippingStatus

if TYPE_CHECKING:
    from .fleet.amqp_fleet_line import FleetWay
    from .hosted.backlog_view import BacklogView
    from .hosted.syphon import HostedSyphon

__all__ = ["MessageTypes", "PairedSender", "PairedServiceBusClient"]
log = logging.getLogger(__name__)
# Some hundred records.
_TRIED_BYTES = 64 * 1024
# What closing may take in all: each of its steps has a limit of its own, and they add up where everything is
# ill at once. The synchronous client, whose loop ends with it, gives it a moment more.
_CLOSE_LIMIT = 18.0


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
        records: Path | str | None = None,
        observers: Iterable[Observer] = (),
        clock: Clock | None = None,
        timers: Timers | None = None,
        sdk_options: Mapping[str, Any] | None = None,
        primary_options: Mapping[str, Any] | None = None,
        secondary_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Pair two namespaces that are signed in to with credentials, such as those of azure-identity.

        `sdk_options` are keywords of the SDK's client, for both sides: `logging_enable`, `transport_type`,
        `http_proxy`, `user_agent`, `connection_verify`, ... `primary_options` and `secondary_options` are the
        same for one side, above them: each may have its own proxy, endpoint, certificate and transport.
        """
        chosen = options or SendAvailabilityOptions()
        first, second = (side_keywords(sdk_options, own) for own in (primary_options, secondary_options))
        side = _kind_of_sides(chosen)
        primary = side(primary_fully_qualified_namespace, primary_credential, keywords=first)
        secondary = side(secondary_fully_qualified_namespace, secondary_credential, keywords=second)
        directory = None if state_dir is None else Path(state_dir)
        shared = _parse_records(records, directory)
        check_distinct(primary.endpoint, secondary.endpoint)
        _check_options(chosen, directory)
        check_callback(on_state_change)
        _check_hosting(chosen, primary)
        _check_secondary(secondary)
        name = name_primary(primary.parsed or primary.endpoint, alias=primary_name)
        wall = clock or SystemClock()
        #: The process that this client belongs to.
        self.made_in = ThisProcess.pid
        # Whether it has a pump of its own.
        self._hosts_syphon = chosen.enable_syphon
        self._primary = primary
        self._receiving: ServiceBusClient | None = None
        self._pair: Pair | None = None
        self._status_file: StatusFile | None = None
        self._ledger: ClientLedger | None = None
        self._shipper: RecordShipper | None = None
        self._fleet_way: FleetWay | None = None
        self._closed = False
        self._closing: asyncio.Task[None] | None = None
        # What is told of a client that is being closed, or was.
        self._ending: Pair | None = None
        self._last_status: PairStatus | None = None

        self._state_dir = directory
        self._trial: asyncio.Future[None] | None = None
        self._disk_trouble: tuple[str, ...] = ()

        def make_pair() -> Pair:
            heard = list(observers)
            if directory is not None:
                check_state_dir(directory, has_spool=chosen.enable_spool)
                self._status_file = StatusFile(status_dir(directory), self.status, clock=wall)
                heard.append(self._status_file)
                self._ledger = ClientLedger.open(
                    records_dir(directory),
                    primary=name,
                    secondary=name_primary(secondary.parsed or secondary.endpoint),
                    clock=wall,
                    max_age=OPERATIONS_AGE if shared is None else LEDGER_AGE,
                    ships_to=shared,
                )
                heard.append(self._ledger)
            pair = Pair(
                primary,
                secondary,
                name=name,
                options=chosen,
                clock=wall,
                records=_open_records(directory, wall, chosen.records_sync, is_shipped=shared is not None),
                spool=_open_spool(directory, chosen, wall),
                syphon=_make_syphon(
                    primary,
                    secondary,
                    name=name,
                    options=chosen,
                    state_dir=directory,
                    clock=wall,
                    introduce=None if shared is None else self._introduce_pump,
                ),
                view=_make_view(secondary, name=name, options=chosen, state_dir=directory, clock=wall),
                landmark=None if directory is None else Landmark(directory, str(primary.endpoint)),
                open_fleet_line=self._lead_to_fleet(secondary, name, directory, wall)
                if chosen.share_pings
                else None,
                on_state_change=on_state_change,
                observers=heard,
                timers=timers,
            )
            if directory is not None and shared is not None:
                tell = partial(_tell_shipped, pair)
                self._shipper = RecordShipper(records_dir(directory), shared, clock=wall, on_round=tell)
            return pair

        self._make_pair = make_pair

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
        records: Path | str | None = None,
        observers: Iterable[Observer] = (),
        clock: Clock | None = None,
        timers: Timers | None = None,
        sdk_options: Mapping[str, Any] | None = None,
        primary_options: Mapping[str, Any] | None = None,
        secondary_options: Mapping[str, Any] | None = None,
    ) -> PairedServiceBusClient:
        """Pair two namespaces by their connection strings."""
        client = cls.__new__(cls)
        # Without credentials; and not by the `__init__` of a subclass, which may take other arguments.
        PairedServiceBusClient.__init__(
            client,
            primary,
            None,
            secondary,
            None,
            options=options,
            on_state_change=on_state_change,
            primary_name=primary_name,
            state_dir=state_dir,
            records=records,
            observers=observers,
            clock=clock,
            timers=timers,
            sdk_options=sdk_options,
            primary_options=primary_options,
            secondary_options=secondary_options,
        )
        return client

    def _lead_to_fleet(
        self, secondary: SdkSide, name: str, state_dir: Path | None, clock: Clock
    ) -> Callable[[], Awaitable[FleetLine]]:
        def make_way() -> FleetWay:
            from .fleet.amqp_fleet_line import FleetWay  # brings the pump with it, which few need

            records = None if state_dir is None else records_dir(state_dir)
            return FleetWay(secondary, name=name, records=records, clock=clock)

        async def open_line() -> FleetLine:
            if self._fleet_way is None:
                # To import it takes a tenth of a second, in which sends go on.
                self._fleet_way = await asyncio.get_running_loop().run_in_executor(THREADS, make_way)
            return self._fleet_way.open()

        return open_line

    # -- life

    async def start(self) -> None:
        """Begin: the backlog queues are seen to in the background, and no send waits for it.

        Opening a sender does the same, and so does the first send. What earlier processes have left in the
        spool has been counted when this returns, unless that takes longer than a second.
        """
        spool = self._begin().spool
        if spool is not None:
            await spool.hold_up()

    def _begin(self) -> Pair:
        """The pair at work, on the event loop that runs now. Nothing here waits."""
        pair = self.pair
        pair.check_loop()
        pair.start()
        if self._state_dir is not None and self._trial is None:
            self._trial = pair.loop.run_in_executor(THREADS, self._try_state_dir, self._state_dir)
        if self._status_file is not None:
            self._status_file.start()
        if self._shipper is not None:
            self._shipper.start()
        return pair

    def _try_state_dir(self, directory: Path) -> None:
        """On a thread: tell at the start what would else be told with the first record, in an outage."""
        try:
            try_directory(records_dir(directory), _TRIED_BYTES)
        except OSError as error:
            trouble = f"the state directory could not be written to when this client began: {error}"
            log.warning("%s", trouble)
            self._disk_trouble = (trouble,)

    def _introduce_pump(self) -> bool:
        """On a thread."""
        return self._shipper is None or self._shipper.introduce()

    async def close(self) -> None:
        """Close both sides, stop the pings, end what runs in the background.

        A send that is under way is given a moment to end; one that only waits raises ClientClosedError. What
        has not ended within 18 seconds, on a disk that hangs say, is not waited for any longer.
        """
        self._check_process()
        if self._pair is not None:
            self._pair.check_loop()
        self._closed = True
        closing: asyncio.Task[None] | None = None
        while closing is None or closing.cancelled():
            if self._closing is None or self._closing.cancelled():
                # A task of its own: whoever does not wait for it to the end leaves nothing half open.
                self._closing = asyncio.get_running_loop().create_task(self._end())
            closing = self._closing
            await wait_in_real_time(closing, _CLOSE_LIMIT)
        if closing.done():
            closing.result()
        else:
            closing.add_done_callback(look_away)
            log.warning("the client has not closed within %g s: it goes on without its caller", _CLOSE_LIMIT)

    async def _end(self) -> None:
        pair, self._pair = self._pair, None
        self._ending = pair
        receiving, self._receiving = self._receiving, None
        parts = (self._status_file, pair, receiving)
        await take_each(
            *(part.close for part in parts if part is not None),
            self._close_ledgers,
            self._end_shipping,
            self._keep_status,
        )

    async def _close_ledgers(self) -> None:
        """After the pair, which may find its fleet as late as while it is closed. Each may have to wait."""
        ledgers = (self._ledger, self._fleet_way)
        await asyncio.gather(*(one.close() for one in ledgers if one is not None))

    async def _end_shipping(self) -> None:
        """Last, when all that there is to ship has been written."""
        if self._shipper is not None:
            await asyncio.get_running_loop().run_in_executor(THREADS, self._shipper.close)

    async def _keep_status(self) -> None:
        if self._ending is not None:
            self._last_status, self._ending = self._picture(self._ending), None

    async def close_side(self, side: SideName) -> None:
        """Close one side alone: all links to the primary, receivers included, or all to the secondary.

        Without its secondary a client goes on sending to the primary, and has no backlog. A client that hosts
        a syphon faults the other side, unless it is closed within 5 seconds.
        """
        pair = self.pair
        pair.check_loop()
        await pair.close_side(side)
        if side == "primary" and self._receiving is not None:
            await self._receiving.close()

    async def __aenter__(self) -> PairedServiceBusClient:
        await self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
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
        if ThisProcess.pid != self.made_in:
            raise ForkedClientError(self.made_in, ThisProcess.pid)

    @property
    def fully_qualified_namespace(self) -> str:
        """The host name of the primary."""
        return self._primary.endpoint.host

    # -- senders and receivers

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
        if self._pair is not None and self._pair.sides.states()["primary"] == "closed":
            self._pair.check()
        if self._receiving is None:
            # Receivers retry as the SDK does by itself; only senders leave that to us.
            self._receiving = self._primary.make_client()
        return self._receiving

    # -- state

    def status(self) -> PairStatus:
        """A picture of this moment: states, rotation, provisioning. Of a client that is closed: its last."""
        self._check_process()
        return self._last_status or self._picture(self._ending or self.pair)

    def _picture(self, pair: Pair) -> PairStatus:
        shipping = None if self._shipper is None else self._shipper.status()
        told = pair.status()
        return replace(told, shipping=shipping, warnings=(*told.warnings, *self._disk_trouble))

    def mark_path_healthy(self, path: str) -> None:
        """Send to an entity of the primary again, at once, whatever the pings say."""
        self.pair.mark_path_healthy(path)

    def fail_over(self, path: str, *, reason: str = "forced by fail_over") -> None:
        """Send what is for an entity to the backlog from now on, to test or to drill; a good ping ends it."""
        self.pair.fail_over(path, reason)

    def fault(self, cause: str, *, side: SideName = "primary") -> None:
        """Have one side fault: what needs it raises PairFaultedError with this cause from now on.

        Every send needs the primary, and what goes to the backlog the secondary too. A client that hosts a
        syphon faults the other side as well, unless it is closed within 5 seconds.
        """
        self.pair.fault(cause, side)


def _kind_of_sides(options: SendAvailabilityOptions) -> type[SdkSide]:
    if options.transport == "sdk":
        return SdkSide
    from .direct.side import AmqpSide  # not needed by those who send by the SDK

    return AmqpSide


def _check_options(options: SendAvailabilityOptions, state_dir: Path | None) -> None:
    if options.enable_spool and state_dir is None:
        raise ConfigurationError("enable_spool=True needs state_dir=, the directory that the spool lies in")


def _check_hosting(options: SendAvailabilityOptions, primary: SdkSide) -> None:
    if options.enable_syphon and primary.parsed is not None and primary.parsed.entity_path is not None:
        raise ConfigurationError(
            "enable_syphon=True needs a connection string of the whole primary, and this one has an "
            "EntityPath= field: the backlog holds messages for other entities too, which would be refused"
        )


def _check_secondary(secondary: SdkSide) -> None:
    if secondary.parsed is not None and secondary.parsed.entity_path is not None:
        raise ConfigurationError(
            "The connection string of the secondary has an EntityPath= field, and so is good for one entity. "
            "Use one of the whole namespace: there are several backlog queues"
        )


def _open_records(state_dir: Path | None, clock: Clock, sync: RecordsSync, *, is_shipped: bool) -> Records:
    if state_dir is None:
        return NoRecords()
    age = SHIP_EVERY if is_shipped else MAX_AGE
    return SegmentRecords(records_dir(state_dir), sync=sync, clock=clock, max_age=age, is_shipped=is_shipped)


def _parse_records(given: Path | str | None, state_dir: Path | None) -> RecordPlace | None:
    """Where records are shipped to; None if they stay where they are."""
    if given is None:
        return None
    if state_dir is None:
        raise ConfigurationError(
            "records= needs a state_dir: records are written there first, and then shipped"
        )
    place = parse_place(given)
    return None if place == records_dir(state_dir).absolute() else place


def _tell_shipped(pair: Pair, status: ShippingStatus) -> None:
    """On the thread of the shipper."""
    with suppress(RuntimeError):  # the loop has been closed
        pair.loop.call_soon_threadsafe(
            pair.observers.tell, lambda observer: observer.shipped(status.lag, status.waiting)
        )


def _make_syphon(
    primary: SdkSide,
    secondary: SdkSide,
    *,
    name: str,
    options: SendAvailabilityOptions,
    state_dir: Path | None,
    clock: Clock,
    introduce: Callable[[], bool] | None,
) -> HostedSyphon | None:
    if not options.enable_syphon:
        return None
    from .hosted.syphon import HostedSyphon  # brings the pump with it, which most clients do not need

    return HostedSyphon(
        primary,
        secondary,
        name=name,
        queues=backlog_queue_names(name, options.backlog_queue_count),
        options=options,
        records=None if state_dir is None else records_dir(state_dir),
        clock=clock,
        introduce=introduce,
    )


def _make_view(
    secondary: SdkSide, *, name: str, options: SendAvailabilityOptions, state_dir: Path | None, clock: Clock
) -> BacklogView | None:
    if options.ordering != "session":
        return None
    from .hosted.backlog_view import BacklogView  # brings the pump with it, too

    return BacklogView(
        secondary,
        backlog_queue_names(name, options.backlog_queue_count),
        name=name,
        records=None if state_dir is None else records_dir(state_dir),
        clock=clock,
    )


def _open_spool(state_dir: Path | None, options: SendAvailabilityOptions, clock: Clock) -> Spool | None:
    if not options.enable_spool or state_dir is None:
        return None
    return Spool(
        spool_dir(state_dir),
        limit=options.spool_max_bytes,
        keeps_sessions=options.ordering == "session",
        clock=clock,
    )

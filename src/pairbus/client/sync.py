"""The paired client for threads: the asynchronous one behind a portal, a line a method.

There is no second implementation here that could drift from the first. Each call runs on an event loop that
the client keeps on a thread of its own, so that deadlines, pings and failover work whatever the caller's
threads do. Any number of threads may use one client and one sender. Ctrl-C cancels the call that it meets and
leaves the client usable.
"""

from __future__ import annotations

import datetime
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from azure.core.paging import ItemPaged
from azure.servicebus import ServiceBusClient, ServiceBusMessageBatch, ServiceBusReceiver

from pairbus.clock import Clock
from pairbus.options import SendAvailabilityOptions, StateChange
from pairbus.sdk.credentials import for_threads
from pairbus.sdk.side import SideName
from pairbus.timers import Timers

from . import aio
from .lifetime import Lifetime
from .observers.observer import Observer
from .receiving import ReceiverOptions, Receiving
from .sender import MessageTypes
from .sending.message import PairedMessageBatch
from .status import PairStatus


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
        inner = aio.PairedServiceBusClient(
            primary_fully_qualified_namespace,
            primary_credential,
            secondary_fully_qualified_namespace,
            secondary_credential,
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

        self._inner = inner
        lifetime = self._lifetime = Lifetime(inner.close, lends_loop=not inner._hosts_syphon)

        def make_receiving() -> ServiceBusClient:
            address, keywords = inner._primary.address, inner._primary.keywords
            if primary_credential is None:
                return ServiceBusClient.from_connection_string(address, **keywords)
            credential = for_threads(primary_credential, lambda: lifetime.portal)
            return ServiceBusClient(address, credential, **keywords)

        self._receiving = Receiving(make_receiving)
        # Nothing of the above refers to this client: when nobody does any more, its loop ends with it.
        weakref.finalize(self, lifetime.leave).atexit = False

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

    # -- life

    def start(self) -> None:
        """Begin: the backlog queues are seen to in the background, and no send waits for it.

        Opening a sender does the same, and so does the first send. What earlier processes have left in the
        spool has been counted when this returns, unless that takes longer than a second.
        """
        self._lifetime.run(self._inner.start)

    def close(self) -> None:
        """Close both sides, stop the pings, end what runs in the background.

        A send that is under way is given a moment to end; one that only waits raises ClientClosedError. What
        has not ended within 18 seconds, on a disk that hangs say, is not waited for any longer.
        """
        if self._lifetime.close():
            self._receiving.close()

    def close_side(self, side: SideName) -> None:
        """Close one side alone: all links to the primary, receivers included, or all to the secondary.

        Without its secondary a client goes on sending to the primary, and has no backlog. A client that hosts
        a syphon faults the other side, unless it is closed within 5 seconds.
        """
        self._lifetime.run(self._inner.close_side, side)
        if side == "primary":
            self._receiving.close()

    def __enter__(self) -> PairedServiceBusClient:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def fully_qualified_namespace(self) -> str:
        """The host name of the primary."""
        return self._inner.fully_qualified_namespace

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
            self._inner.get_queue_sender(
                queue_name, client_identifier=client_identifier, socket_timeout=socket_timeout
            ),
        )

    def get_topic_sender(
        self, topic_name: str, *, client_identifier: str | None = None, socket_timeout: float | None = None
    ) -> PairedSender:
        """A sender for a topic of the primary; what is said of `get_queue_sender` holds for it too."""
        return PairedSender(
            self,
            self._inner.get_topic_sender(
                topic_name, client_identifier=client_identifier, socket_timeout=socket_timeout
            ),
        )

    def get_queue_receiver(self, queue_name: str, **options: Unpack[ReceiverOptions]) -> ServiceBusReceiver:
        """The SDK's receiver for a queue of the primary, with the SDK's keywords."""
        return self._receivers().get_queue_receiver(queue_name, **options)

    def get_subscription_receiver(
        self, topic_name: str, subscription_name: str, **options: Unpack[ReceiverOptions]
    ) -> ServiceBusReceiver:
        """The SDK's receiver for a subscription of the primary, with the SDK's keywords."""
        return self._receivers().get_subscription_receiver(topic_name, subscription_name, **options)

    def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime.datetime | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[str]:
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
    ) -> ItemPaged[str]:
        """The sessions of a subscription of the primary, as the SDK lists them."""
        return self._receivers().list_subscription_sessions(
            topic_name, subscription_name, state_updated_after=state_updated_after, timeout=timeout
        )

    def _receivers(self) -> ServiceBusClient:
        self._lifetime.check()
        return self._receiving.client()

    # -- state

    def status(self) -> PairStatus:
        """A picture of this moment: states, rotation, provisioning. Of a client that is closed: its last."""
        return self._lifetime.ask(self._inner.status)

    def mark_path_healthy(self, path: str) -> None:
        """Send to an entity of the primary again, at once, whatever the pings say."""
        self._lifetime.call(self._inner.mark_path_healthy, path)

    def fail_over(self, path: str, *, reason: str = "forced by fail_over") -> None:
        """Send what is for an entity to the backlog from now on, to test or to drill; a good ping ends it."""
        self._lifetime.call(self._inner.fail_over, path, reason=reason)

    def fault(self, cause: str, *, side: SideName = "primary") -> None:
        """Have one side fault: what needs it raises PairFaultedError with this cause from now on.

        Every send needs the primary, and what goes to the backlog the secondary too. A client that hosts a
        syphon faults the other side as well, unless it is closed within 5 seconds.
        """
        self._lifetime.call(self._inner.fault, cause, side=side)


class PairedSender:
    """Sends to one entity: the SDK's sender, with a backlog behind it. Safe for any number of threads.

    The methods are those of the SDK's sender. Where the SDK takes any keyword and warns of those that it does
    not know, a TypeError tells of them here.
    """

    def __init__(self, client: PairedServiceBusClient, inner: aio.PairedSender) -> None:
        # The client is held, so that it lives as long as its senders.
        self._client = client
        self._lifetime = client._lifetime
        self._inner = inner

    @property
    def fully_qualified_namespace(self) -> str:
        """The host name of the primary."""
        return self._inner.fully_qualified_namespace

    @property
    def entity_name(self) -> str:
        """The path of the entity."""
        return self._inner.entity_name

    @property
    def client_identifier(self) -> str:
        """What this sender calls itself."""
        return self._inner.client_identifier

    def __str__(self) -> str:
        return str(self._inner)

    def send_messages(
        self, message: MessageTypes | ServiceBusMessageBatch, *, timeout: float | None = None
    ) -> None:
        """Send a message, a list or a batch, and return when the primary or a backlog queue has all of it.

        A message without an id is given one, which it keeps however often it is tried; the object itself is
        not changed. OperationTimeoutError if `timeout` runs out; what was sent may then still arrive.
        """
        self._lifetime.run(self._inner.send_messages, self._walked(message, timeout), timeout=timeout)

    def schedule_messages(
        self, messages: MessageTypes, schedule_time_utc: datetime.datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Schedule a message or several; the sequence numbers, negative for what went to the backlog."""
        given = self._walked(messages, timeout)
        return self._lifetime.run(self._inner.schedule_messages, given, schedule_time_utc, timeout=timeout)

    def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None
    ) -> None:
        """Cancel scheduled messages; ScheduledInBacklogError for numbers of the backlog."""
        numbers = self._walked(sequence_numbers, timeout)
        self._lifetime.run(self._inner.cancel_scheduled_messages, numbers, timeout=timeout)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> PairedMessageBatch:
        """An empty batch, as large as the primary takes and a backlog queue can hold with its envelope."""
        return self._lifetime.run(self._inner.create_message_batch, max_size_in_bytes)

    def close(self) -> None:
        """Close this sender. The link stays with the client, for the entity's other senders."""
        self._lifetime.run_if_open(self._inner.close)

    def __enter__(self) -> PairedSender:
        self._lifetime.run(self._inner.__aenter__)
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _walked(self, given: Any, timeout: float | None) -> Any:
        """What a generator, or another iterable of the caller's, gives: its code runs here and not on the
        loop, where it would hold up every deadline, and on whose thread it may not be allowed to run.
        """
        if not isinstance(given, Iterable) or isinstance(given, list | tuple | Mapping):
            return given
        # A call that is refused takes nothing of it: who makes it again, by another client, has all of it.
        self._lifetime.call(self._inner._begin, timeout)
        return list(given)

"""Two namespaces with a queue and a topic, and paired clients for threads on them."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from pairbus import PairedServiceBusClient, SendAvailabilityOptions
from pairbus.broker import Broker
from pairbus.client import lifetime
from pairbus.portal import Portal
from tests.hurry import PACE, HurriedLoop
from tests.waiting import PATIENCE

__all__ = ["BACKLOG", "FAST", "PATIENT", "QUEUES", "SOON", "Namespaces"]

QUEUES = 2
BACKLOG = [f"contoso/x-servicebus-transfer/{index}" for index in range(QUEUES)]
#: Fails over within a second of the machine's time, and pings several times a second.
FAST = SendAvailabilityOptions(
    failover_interval=1.0 * PACE,
    send_timeout=1.0 * PACE,
    ping_primary_interval=0.3 * PACE,
    retry_delay=0.01 * PACE,
    retry_delay_max=0.05 * PACE,
    backlog_queue_count=QUEUES,
)
#: Never fails over by itself, and back only when told to.
PATIENT = SendAvailabilityOptions(
    failover_interval=3600.0, send_timeout=600.0, ping_primary_interval=1800.0, backlog_queue_count=QUEUES
)
SOON = PATIENCE


class Namespaces:
    """A primary with `orders` and `news`, a secondary, and clients that are closed with the test."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.primary = broker["contoso"]
        self.secondary = broker["contoso-dr"]
        self.primary.create_queue("orders")
        self.primary.create_topic("news")
        self.primary.create_subscription("news", "all")
        for queue in BACKLOG:
            self.secondary.create_queue(queue)
        self._portal = Portal("receiving", make_loop=HurriedLoop)
        self.clients: list[PairedServiceBusClient] = []

    @property
    def strings(self) -> tuple[str, str]:
        return self.primary.connection_string, self.secondary.connection_string

    def client(self, **keywords: Any) -> PairedServiceBusClient:
        keywords.setdefault("options", PATIENT)
        client = PairedServiceBusClient.from_connection_strings(*self.strings, **keywords)
        self.clients.append(client)
        return client

    def receive(self, count: int, queue: str = "orders") -> list[str]:
        """The bodies of so many messages of the primary, taken out."""
        messages = self._portal.run(self._receive, self.primary.connection_string, queue, count)
        return [str(message) for message in messages]

    def backlog(self) -> int:
        """How many messages wait in the backlog queues."""
        return sum(self.secondary.message_count(queue) for queue in BACKLOG)

    def take_ids(self) -> set[str]:
        """The ids of all that is in `orders` and in the backlog, taken out."""
        found: set[str] = set()
        for side, queue in ((self.primary, "orders"), *((self.secondary, queue) for queue in BACKLOG)):
            count = side.message_count(queue)
            messages = self._portal.run(self._receive, side.connection_string, queue, count)
            found |= {str(message.message_id) for message in messages}
        return found

    async def _receive(
        self, connection_string: str, queue: str, count: int
    ) -> list[ServiceBusReceivedMessage]:
        found: list[ServiceBusReceivedMessage] = []
        async with (
            ServiceBusClient.from_connection_string(connection_string) as client,
            client.get_queue_receiver(queue, receive_mode="receiveanddelete") as receiver,
        ):
            while len(found) < count:
                messages = await receiver.receive_messages(count - len(found), max_wait_time=SOON)
                assert messages, f"only {len(found)} of {count} arrived"
                found += messages
        return found

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self._portal.close(timeout=SOON)


@pytest.fixture
def namespaces(pairbus_broker: Broker) -> Iterator[Namespaces]:
    namespaces = Namespaces(pairbus_broker)
    yield namespaces
    namespaces.close()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the loops of clients run ahead, so that the SDK's naps are short; our own time-outs are, too."""
    monkeypatch.setattr(lifetime, "Portal", partial(Portal, make_loop=HurriedLoop))

"""A namespace for one test, with a client of the SDK for it."""

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from typing import Any

from azure.servicebus import ServiceBusMessage

from pairbus.broker import Broker
from pairbus.broker.handle import NamespaceHandle
from pairbus.clock import ManualClock
from tests.waiting import PATIENCE, eventually

from .shells import Farewells, connect, opened

__all__ = [
    "Bus",
    "bodies",
    "eventually",
    "held",
    "is_awaited",
    "opened",
    "receive",
    "receive_nothing",
    "session_waits",
]

# How long a message that is there may take to arrive; tests end as soon as it does.
SOON = PATIENCE
# How long a test waits for a message that must not come. The wait is the SDK's, in real time.
NEVER = 0.05


class Bus:
    """One namespace, its clock, and one kind of client."""

    def __init__(self, kind: str, broker: Broker, *, clock: ManualClock, farewells: Farewells) -> None:
        self.kind = kind
        self.broker = broker
        self.clock = clock
        self.namespace: NamespaceHandle = broker["contoso"]
        self.farewells = farewells
        self._settings: dict[str, Any] = {"connection_verify": str(broker.certificate)}
        self.client = self.connect()

    def connect(self, connection_string: str | None = None, **settings: Any) -> Any:
        """Another client of the same kind."""
        text = connection_string or self.namespace.connection_string
        return connect(self.kind, text, self.farewells, **(self._settings | settings))

    def pass_time(self, seconds: float) -> None:
        """Let the broker's clock run on, and have it do what has come due."""
        self.clock.advance(seconds)
        self.broker.tick()

    # Two things that the broker tells nobody, but that a test may have to wait for.

    def is_awaited(self) -> bool:
        """Whether some receiver has credit for a message and waits for it."""
        return is_awaited(self.broker)

    def session_waits(self) -> int:
        """How many receivers wait for a session to become free."""
        return session_waits(self.broker)

    @asynccontextmanager
    async def queue(self, name: str, **settings: Any) -> AsyncIterator[tuple[Any, Any]]:
        """A sender and a receiver of a queue."""
        links = self.client.get_queue_sender(name), self.client.get_queue_receiver(name, **settings)
        async with opened(*links) as (sender, receiver):
            yield sender, receiver

    async def send(self, name: str, *texts: str, **settings: Any) -> None:
        """Have messages in a queue: with the asynchronous client, which is the quicker one."""
        text = self.namespace.connection_string
        client = connect("aio", text, self.farewells, **self._settings)
        async with client, client.get_queue_sender(name) as sender:
            await sender.send_messages([ServiceBusMessage(text, **settings) for text in texts])


def is_awaited(broker: Broker) -> bool:
    """Whether some receiver of `contoso` has credit for a message and waits for it."""
    consumers = broker._hosts["contoso"].consumers

    def somebody_is() -> bool:
        waiting = chain(consumers._readers.values(), *consumers._outboxes.values())
        return any(receiver.is_hungry for receiver in waiting)

    return broker.call(somebody_is)


def session_waits(broker: Broker) -> int:
    """How many receivers of `contoso` wait for a session to become free."""
    consumers = broker._hosts["contoso"].consumers
    return broker.call(lambda: len(consumers.waits()))


async def receive(receiver: Any, count: int = 1, *, within: float = SOON) -> list[Any]:
    """Receive until there are so many messages."""
    received: list[Any] = []
    while len(received) < count:
        more = await receiver.receive_messages(max_message_count=count - len(received), max_wait_time=within)
        assert more, f"{len(received)} of {count} messages came"
        received += more
    return received


async def receive_nothing(receiver: Any) -> None:
    """Make sure that there is nothing to receive."""
    assert bodies(await receiver.receive_messages(max_message_count=10, max_wait_time=NEVER)) == []


def bodies(messages: list[Any]) -> list[str]:
    """The bodies of messages as text."""
    return [str(message) for message in messages]


@contextmanager
def held(broker: Broker) -> Iterator[None]:
    """Let the broker's loop stand still, so that all that is said meanwhile is ready when it goes on."""
    stands, goes_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        assert goes_on.wait(PATIENCE)

    holder = threading.Thread(target=broker.call, args=(stand,))
    holder.start()
    try:
        assert stands.wait(PATIENCE)
        yield
    finally:
        goes_on.set()
        holder.join(PATIENCE)

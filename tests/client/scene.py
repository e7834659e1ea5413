"""A pair on two embedded namespaces, and what one wants to know of them in a test."""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, TypeVar

from azure.servicebus import ServiceBusMessage

from pairbus.aio import PairedSender, PairedServiceBusClient
from pairbus.broker import Broker
from pairbus.broker.engine.message import StoredMessage
from pairbus.broker.engine.settings import QueueSettings
from pairbus.client.observers.observer import Observer, Sending
from pairbus.clock import SystemClock
from pairbus.options import EntityState, SendAvailabilityOptions, StateChange
from pairbus.pairing.headroom import HeadroomNotice
from pairbus.testing import ManualTimers
from tests.waiting import Lateness, eventually

__all__ = [
    "BACKLOG",
    "HELD_BACK",
    "TRANSPORT",
    "Diary",
    "LeapingClock",
    "Scene",
    "eventually",
    "lateness_beside",
    "sending_method",
    "text",
]

BACKLOG = tuple(f"contoso/x-servicebus-transfer/{index}" for index in range(3))

T = TypeVar("T")
#: What sends in the tests of this directory, in the long form each of them once more by our own AMQP.
TRANSPORT = os.environ.get("PAIRBUS_CLIENT_TRANSPORT", "sdk")
#: For a `delay` that ends when the test says so, however late it looks: see `Scene.give_answers`.
HELD_BACK = 600.0


class LeapingClock(SystemClock):
    """The clock of the machine, for namespaces, until a test has it leap ahead."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Diary(Observer):
    """Writes down all that a client tells."""

    def __init__(self) -> None:
        self.changes: list[StateChange] = []
        self.sendings: list[Sending] = []
        self.pings: list[bool] = []
        self.rotations: list[tuple[int, int]] = []
        self.notices: list[HeadroomNotice] = []
        self.oversized_messages = 0

    def state_changed(self, change: StateChange) -> None:
        self.changes.append(change)

    def sent(self, sending: Sending) -> None:
        self.sendings.append(sending)

    def pinged(self, path: str, *, succeeded: bool, seconds: float) -> None:
        self.pings.append(succeeded)

    def rotation_changed(self, usable: int, total: int) -> None:
        self.rotations.append((usable, total))

    def headroom_lacked(self, notice: HeadroomNotice) -> None:
        self.notices.append(notice)

    def oversized(self, path: str, messages: int) -> None:
        self.oversized_messages += messages

    @property
    def states(self) -> list[str]:
        """The states that were entered, in order."""
        return [change.new.value for change in self.changes]

    def outcomes(self, route: str) -> list[str]:
        """How the attempts of a route ended."""
        return [sending.outcome for sending in self.sendings if sending.route == route]


class Scene:
    """A pair, and what is in its two namespaces."""

    def __init__(self, broker: Broker, *, timers: ManualTimers | None = None) -> None:
        self.broker = broker
        self.primary = broker["contoso"]
        self.secondary = broker["contoso-dr"]
        self.timers = timers
        self.diary = Diary()
        self.primary.create_queue("orders")
        for name in BACKLOG:
            self.secondary.create_queue(name, QueueSettings(max_delivery_count=2000))
        self._clients: list[PairedServiceBusClient] = []

    def client(
        self, *, primary: str | None = None, secondary: str | None = None, **settings: Any
    ) -> PairedServiceBusClient:
        """A paired client. Options of the pair and keywords of the client are told apart by name."""
        known = {"state_dir", "records", "on_state_change", "primary_name", "observers", "clock"}
        known |= {"sdk_options", "primary_options", "secondary_options"}
        keywords = {name: settings.pop(name) for name in known & settings.keys()}
        # Pings of a fleet begin by the clock of the secondary, which timers of a test do not turn.
        shares = {} if self.timers is None else {"share_pings": False}
        given = {"backlog_queue_count": 3, "transport": TRANSPORT, **shares, **settings}
        options = SendAvailabilityOptions(**given)
        client = PairedServiceBusClient.from_connection_strings(
            primary or self.primary.connection_string,
            secondary or self.secondary.connection_string,
            options=options,
            timers=self.timers,
            observers=[self.diary, *keywords.pop("observers", ())],
            **keywords,
        )
        self._clients.append(client)
        return client

    def sender(self, path: str = "orders", **settings: Any) -> PairedSender:
        """A sender of a new client, for a queue."""
        return self.client(**settings).get_queue_sender(path)

    async def close(self) -> None:
        await asyncio.gather(*(client.close() for client in self._clients))

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Something that goes on while the test does."""
        return asyncio.get_running_loop().create_task(work)

    async def on_the_wire(self, path: str = "orders") -> None:
        """Wait until a call of the SDK is under way."""
        entity = self._clients[0].pair.entity(path)
        await eventually(lambda: any(link.is_calling for link in entity._links))

    async def on_the_way_to_the_backlog(self) -> None:
        """Wait until a backlog queue is being sent to."""
        links = self._clients[0].pair.backlog._links
        await eventually(lambda: any(link.is_calling for link in links.values()))

    async def quiet(self, path: str = "orders") -> None:
        """Wait until no call of the SDK is under way."""
        entity = self._clients[0].pair.entity(path)
        await eventually(lambda: all(not link.is_calling for link in entity._links))

    async def rest(self, *, at_most: float) -> None:
        """Wait until no call of any client is under way, for so many real seconds: a peer may be silent."""
        pause = 0.005
        for _ in range(int(at_most / pause)):
            if not any(map(_is_calling, self._clients)):
                return
            await asyncio.sleep(pause * getattr(asyncio.get_running_loop(), "pace", 1.0))

    def give_answers(self) -> None:
        """Let all answers go that are held back, on either side, and hold back no more."""
        clock = self.broker._clock
        assert isinstance(clock, LeapingClock)
        for side in (self.primary, self.secondary):
            side.faults.clear()
        clock.ahead += HELD_BACK
        self.broker.tick()

    @staticmethod
    def milliseconds(when: datetime) -> int:
        """A moment as the wire has it."""
        return int(when.timestamp()) * 1000 + when.microsecond // 1000

    # -- what is where

    def messages(self, path: str, *, secondary: bool = False) -> list[StoredMessage]:
        """What a queue or subscription holds, in order."""
        side = self.secondary if secondary else self.primary
        return side._run(lambda engine, now: _queue(engine, path).peek(0, 100_000, now))

    def backlog(self) -> list[StoredMessage]:
        """What the backlog queues hold."""
        return [message for queue in BACKLOG for message in self.messages(queue, secondary=True)]

    def ids(self, path: str = "orders") -> list[str]:
        """The ids of what an entity of the primary holds."""
        return [message.message_id for message in self.messages(path)]

    def backlog_ids(self) -> list[str]:
        return [message.message_id for message in self.backlog()]

    def all_ids(self, path: str = "orders") -> set[str]:
        """Everything that has arrived anywhere."""
        return {*self.ids(path), *self.backlog_ids()}

    def state(self, path: str = "orders", client: PairedServiceBusClient | None = None) -> EntityState:
        """How a client, the first unless told otherwise, sees an entity."""
        status = (client or self._clients[0]).status()
        return next(entity.health.state for entity in status.entities if entity.health.path == path)


@asynccontextmanager
async def lateness_beside(broker: Broker) -> AsyncIterator[tuple[Lateness, Lateness]]:
    """That of our loop, and that of the namespaces'."""
    theirs = Lateness()
    broker._wait_for(theirs.__aenter__())
    try:
        async with Lateness() as ours:
            await asyncio.sleep(0)
            yield ours, theirs
    finally:
        broker._wait_for(theirs.__aexit__())


def _is_calling(client: PairedServiceBusClient) -> bool:
    pair = client._pair
    if pair is None:
        return False
    links = [link for entity in pair._entities.values() for link in entity._links]
    is_spooling = pair.spool is not None and pair.spool.thread._pending > 0
    return is_spooling or any(link.is_calling for link in (*links, *pair.backlog._links.values()))


def _queue(engine: Any, path: str) -> Any:
    return engine.node(path)


def sending_method(sender: Any) -> str:
    """What messages are given to this sender by."""
    return "send_written" if hasattr(sender, "send_written") else "send_messages"


def text(name: str, **settings: Any) -> ServiceBusMessage:
    """A message whose body is its id."""
    return ServiceBusMessage(name, message_id=name, **settings)

"""What a store does, however long it takes, stops nobody but its own namespace, which says nothing early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from pairbus.broker import Broker
from pairbus.broker.engine.breath import breathe
from pairbus.broker.engine.events import EngineEvent
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.stock import Stock
from pairbus.broker.errors import StoreError
from pairbus.broker.store.sqlite import SqliteStore
from tests.waiting import PATIENCE, eventually


class SlowStore(SqliteStore):
    """A real store that stands still at the end of a commit, or of a load, for as long as a test wants."""

    made: ClassVar[dict[str, SlowStore]] = {}

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.stands = threading.Event()
        self.fails = False
        self.made[path.parent.name] = self

    def finish(self) -> None:
        self._stand()
        if self.fails:
            self._roll_back()
            raise StoreError("the store was told to fail.")
        super().finish()

    def load(self) -> Iterator[EngineEvent]:
        self._stand()
        return super().load()

    def _stand(self) -> None:
        if not self.goes_on.is_set():
            self.stands.set()
            assert self.goes_on.wait(60)

    @contextmanager
    def standing(self) -> Iterator[None]:
        self.stands.clear()
        self.goes_on.clear()
        try:
            yield
        finally:
            self.goes_on.set()


@pytest.fixture
def broker(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Broker]:
    monkeypatch.setattr("pairbus.broker.broker.SqliteStore", SlowStore)
    SlowStore.made.clear()
    with Broker({"slow": 0, "other": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        for name in broker:
            broker[name].create_queue("orders")
        yield broker


def client_of(broker: Broker, name: str) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(broker[name].connection_string, retry_total=0)


async def send(client: ServiceBusClient, *bodies: str) -> None:
    async with client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage(body) for body in bodies])


async def receive(client: ServiceBusClient, count: int) -> list[str]:
    async with client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver:
        bodies: list[str] = []
        while len(bodies) < count:
            found = await receiver.receive_messages(max_message_count=count, max_wait_time=PATIENCE)
            assert found
            bodies += [str(message) for message in found]
        return bodies


def active(broker: Broker) -> int:
    """How many messages there are in the slow namespace, committed or not."""
    host = broker._hosts["slow"]
    return broker.call(lambda: host.engine.get_queue("orders").counts().active)


async def until_it_stands(store: SlowStore) -> None:
    await eventually(store.stands.is_set)


async def test_a_commit_stops_nobody_else(broker: Broker) -> None:
    store = SlowStore.made["slow"]
    async with client_of(broker, "slow") as slow, client_of(broker, "other") as other:
        with store.standing():
            waiting = asyncio.create_task(send(slow, "one"))
            await until_it_stands(store)
            await send(other, "meanwhile")
            assert await receive(other, 1) == ["meanwhile"]
            assert await asyncio.to_thread(broker["other"].message_count, "orders") == 0
            assert not waiting.done(), "nothing is acknowledged before it is committed"
        await waiting


async def test_nothing_is_said_before_it_is_committed(broker: Broker) -> None:
    """Not by the receiver next to it, nor by a peek, nor to a program that holds the broker."""
    store = SlowStore.made["slow"]
    async with (
        client_of(broker, "slow") as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        await sender.send_messages(ServiceBusMessage("before"))
        assert [str(each) for each in await receiver.peek_messages()] == ["before"]
        with store.standing():
            sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("secret")))
            await until_it_stands(store)
            peeking = asyncio.create_task(receiver.peek_messages(10, sequence_number=1))
            counting = asyncio.create_task(asyncio.to_thread(broker["slow"].message_count, "orders"))
            done, _ = await asyncio.wait([sending, peeking, counting], timeout=0.3)
            assert not done
        await sending
        assert [str(each) for each in await peeking] == ["before", "secret"]
        assert await counting == 2


async def test_what_comes_during_a_commit_shares_the_next_one(broker: Broker) -> None:
    store = SlowStore.made["slow"]
    async with client_of(broker, "slow") as client:
        senders = [client.get_queue_sender("orders") for _ in range(6)]
        for sender in senders:
            await sender.send_messages(ServiceBusMessage("warm"))
        with store.standing():
            first = asyncio.create_task(senders[0].send_messages(ServiceBusMessage("first")))
            await until_it_stands(store)
            before = store.commits
            others = [asyncio.create_task(each.send_messages(ServiceBusMessage("x"))) for each in senders[1:]]
            await eventually(lambda: active(broker) == 12)
        await asyncio.gather(first, *others)
        assert store.commits == before + 2, "one for the first, one for all others"
        for sender in senders:
            await sender.close()


async def test_a_large_turn_is_answered_though_something_is_being_decided_when_it_is_committed(
    broker: Broker,
) -> None:
    """And the turn after it, which waits for that decision, is answered when it is committed itself."""
    store, host = SlowStore.made["slow"], broker._hosts["slow"]
    is_decided = threading.Event()

    def decide() -> None:
        while not is_decided.is_set():
            breathe()

    def begin() -> asyncio.Task[None]:
        host.decisions.make(decide, lambda outcome: outcome())
        creating = asyncio.ensure_future(host.perform(_create))
        asyncio.get_running_loop().call_soon(host.time.pass_by)  # which ends a turn
        return creating

    async with client_of(broker, "slow") as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("warm"))
        with store.standing():
            many = [ServiceBusMessage(str(number)) for number in range(300)]
            sending = asyncio.create_task(sender.send_messages(many))
            await until_it_stands(store)
            creating = broker.call(begin)
            broker.call(lambda: None)  # now both wait for the decision
        await eventually(lambda: broker.call(lambda: host._flight is None))
        with store.standing():
            is_decided.set()
            await until_it_stands(store)
            await eventually(sending.done)
            assert not creating.done(), "nothing is said before it is committed"
        await sending
        await eventually(creating.done)


def _create(engine: Namespace, now: float) -> None:
    engine.create_queue("late", None, now)


async def test_a_failed_commit_takes_the_turn_after_it_along(broker: Broker) -> None:
    store = SlowStore.made["slow"]
    async with (
        client_of(broker, "slow") as client,
        client.get_queue_sender("orders") as one,
        client.get_queue_sender("orders") as two,
    ):
        await one.send_messages(ServiceBusMessage("before"))
        await two.send_messages(ServiceBusMessage("before"))
        with store.standing():
            store.fails = True
            first = asyncio.create_task(one.send_messages(ServiceBusMessage("never")))
            await until_it_stands(store)
            second = asyncio.create_task(two.send_messages(ServiceBusMessage("never either")))
            await eventually(lambda: active(broker) == 4)
        for outcome in await asyncio.gather(first, second, return_exceptions=True):
            assert isinstance(outcome, ServiceBusError)
        store.fails = False
        assert await asyncio.to_thread(broker["slow"].message_count, "orders") == 2
    async with client_of(broker, "slow") as again:
        assert await receive(again, 2) == ["before", "before"]


async def test_a_turn_that_fails_leaves_the_one_that_is_being_committed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SlowStore.made["slow"]
    async with (
        client_of(broker, "slow") as client,
        client.get_queue_sender("orders") as good,
        client.get_queue_sender("orders") as bad,
    ):
        await good.send_messages(ServiceBusMessage("warm"))
        await bad.send_messages(ServiceBusMessage("warm"))
        with store.standing():
            first = asyncio.create_task(good.send_messages(ServiceBusMessage("kept")))
            await until_it_stands(store)
            failed = threading.Event()

            def fail(*_: Any) -> None:
                failed.set()
                raise ZeroDivisionError("of all things")

            monkeypatch.setattr(Stock, "place", fail)
            second = asyncio.create_task(bad.send_messages(ServiceBusMessage("lost")))
            await eventually(failed.is_set)
            monkeypatch.undo()
        await first
        with pytest.raises(ServiceBusError):
            await second
    assert await asyncio.to_thread(broker["slow"].message_count, "orders") == 3


async def test_a_load_stops_nobody_else_and_whoever_comes_meanwhile_waits(broker: Broker) -> None:
    store, host = SlowStore.made["slow"], broker._hosts["slow"]
    async with client_of(broker, "slow") as slow:
        await send(slow, "before")
    with store.standing():
        broker.call(lambda: host.refuse_turn(StoreError("for the test")))
        await until_it_stands(store)  # in the load
        assert broker.call(lambda: host.is_loading)
        async with client_of(broker, "slow") as newcomer, client_of(broker, "other") as other:
            waiting = asyncio.create_task(receive(newcomer, 1))
            await send(other, "meanwhile")
            assert await receive(other, 1) == ["meanwhile"]
            assert not waiting.done()
            store.goes_on.set()
            assert await waiting == ["before"]

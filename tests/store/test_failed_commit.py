"""A turn that cannot be committed has not happened: nobody is told otherwise, and all goes on from before."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.broker import Broker
from pairbus.broker.engine.breath import breathe
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.errors import StoreError
from pairbus.broker.host import NamespaceHost
from tests.store.failing import FailingStore
from tests.waiting import PATIENCE, eventually

Failing = tuple[Broker, FailingStore]


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[ServiceBusClient]:
    """The official client, which gives up at the first failure."""
    connection_string = broker["contoso"].connection_string
    async with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
        yield client


async def send(broker: Broker, queue: str, *bodies: str) -> None:
    async with connected(broker) as client, client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(body) for body in bodies])


async def receive(broker: Broker, queue: str, count: int) -> list[str]:
    """Receive and complete."""
    async with connected(broker) as client, client.get_queue_receiver(queue) as receiver:
        messages = await receiver.receive_messages(max_message_count=count, max_wait_time=10)
        for message in messages:
            await receiver.complete_message(message)
        return [str(message) for message in messages]


def host_of(broker: Broker) -> NamespaceHost:
    return broker._hosts["contoso"]


async def test_a_send_that_cannot_be_stored_is_refused(failing_broker: Failing) -> None:
    broker, store = failing_broker
    broker["contoso"].create_queue("orders")
    await send(broker, "orders", "before")
    store.refuses_commits = True
    with pytest.raises(ServiceBusError):
        await send(broker, "orders", "never")
    assert broker["contoso"].message_count("orders") == 1
    store.refuses_commits = False
    await send(broker, "orders", "after")
    assert await receive(broker, "orders", 1) == ["before"]
    assert await receive(broker, "orders", 1) == ["after"]


async def test_everybody_of_the_turn_is_refused_and_every_connection_closed(failing_broker: Failing) -> None:
    broker, store = failing_broker
    broker["contoso"].create_queue("orders")

    async def try_to_send(client: ServiceBusClient) -> Exception | None:
        try:
            async with client.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage("x"))
        except ServiceBusError as error:
            return error
        return None

    async with connected(broker) as one, connected(broker) as two:
        assert list(await asyncio.gather(try_to_send(one), try_to_send(two))) == [None, None]
        store.refuses_commits = True
        outcomes = await asyncio.gather(try_to_send(one), try_to_send(two))
    assert all(isinstance(outcome, ServiceBusError) for outcome in outcomes)
    assert not broker.call(lambda: [peer for peer in host_of(broker).peers if peer.is_open])
    assert broker["contoso"].message_count("orders") == 2


async def test_a_settlement_that_cannot_be_stored_is_refused_and_the_message_is_there(
    failing_broker: Failing,
) -> None:
    broker, store = failing_broker
    broker["contoso"].create_queue("orders")
    await send(broker, "orders", "once")
    async with connected(broker) as client, client.get_queue_receiver("orders") as receiver:
        (message,) = await receiver.receive_messages(max_wait_time=10)
        store.refuses_commits = True
        with pytest.raises(ServiceBusError):
            await receiver.complete_message(message)
        store.refuses_commits = False
    assert await receive(broker, "orders", 1) == ["once"], "its lock ended with the turn"
    assert broker["contoso"].message_count("orders") == 0


async def test_receive_and_delete_gives_out_nothing_that_is_not_removed(failing_broker: Failing) -> None:
    broker, store = failing_broker
    broker["contoso"].create_queue("orders")
    await send(broker, "orders", "once")
    store.refuses_commits = True
    async with connected(broker) as client:
        receiver: Any = client.get_queue_receiver("orders", receive_mode="receiveanddelete")
        async with receiver:
            received = None
            with contextlib.suppress(ServiceBusError):
                received = await receiver.receive_messages(max_wait_time=2)
            assert not received
    store.refuses_commits = False
    assert broker["contoso"].message_count("orders") == 1


def administered(broker: Broker, **named: Any) -> Any:
    return ServiceBusAdministrationClient.from_connection_string(
        broker["contoso"].connection_string, connection_verify=str(broker.certificate), **named
    )


def test_administration_that_cannot_be_stored_is_refused(failing_broker: Failing) -> None:
    broker, store = failing_broker
    with administered(broker, retry_total=0) as client:
        store.refuses_commits = True
        with pytest.raises(HttpResponseError, match="could not store") as caught:
            client.create_queue("orders")
        assert caught.value.status_code == 500
    store.refuses_commits = False
    # It asks again while the namespace is still read anew.
    with administered(broker) as client:
        assert [queue.name for queue in client.list_queues()] == []
        client.create_queue("orders")
        assert [queue.name for queue in client.list_queues()] == ["orders"]


def test_administration_that_waits_for_what_then_fails_is_refused(
    failing_broker: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be asked of a namespace without anything, which the store's takes the place of."""
    broker, _ = failing_broker
    host, answers = broker._hosts["contoso"], list[Any]()
    has_asked, is_decided = threading.Event(), threading.Event()
    handle = host.administration.handle

    def wait(*asked: Any) -> Any:
        answer = handle(*asked)
        has_asked.set()
        return answer

    def decide() -> None:
        while not is_decided.is_set():
            breathe()

    def fail(_: Callable[[], None]) -> None:
        host.refuse_turn(StoreError("the store was told to fail."))

    def create() -> None:
        with administered(broker, retry_total=0) as client:
            try:
                answers.append(client.create_queue("orders"))
            except HttpResponseError as error:
                answers.append(error.status_code)

    monkeypatch.setattr(host.administration, "handle", wait)
    broker.call(lambda: host.decisions.make(decide, fail))
    asking = threading.Thread(target=create)
    asking.start()
    assert has_asked.wait(PATIENCE)
    is_decided.set()
    asking.join()
    assert answers == [503]


def test_a_program_that_holds_the_broker_is_told_too(failing_broker: Failing) -> None:
    broker, store = failing_broker
    namespace = broker["contoso"]
    store.refuses_commits = True
    with pytest.raises(StoreError, match="told to fail"):
        namespace.create_queue("orders")
    store.refuses_commits = False
    namespace.create_queue("orders")
    assert namespace.message_count("orders") == 0


async def test_a_store_that_cannot_be_read_either_leaves_nothing_to_say(failing_broker: Failing) -> None:
    broker, store = failing_broker
    namespace = broker["contoso"]
    namespace.create_queue("orders")
    await send(broker, "orders", "before")
    store.refuses_commits = store.is_unreadable = True
    with pytest.raises(ServiceBusError):
        await send(broker, "orders", "never")
    store.refuses_commits = False
    with pytest.raises(StoreError, match="unreadable"):
        namespace.message_count("orders")
    with pytest.raises(ServiceBusError):
        await send(broker, "orders", "never, by an empty namespace that would say not found")
    store.is_unreadable = False
    assert namespace.message_count("orders") == 1
    assert await receive(broker, "orders", 1) == ["before"]


async def test_an_unreadable_store_is_tried_again_though_nobody_asks(failing_broker: Failing) -> None:
    broker, store = failing_broker
    store.refuses_commits = store.is_unreadable = True
    with pytest.raises(StoreError):
        broker["contoso"].create_queue("orders")
    loads = store.loads
    store.is_unreadable = False
    await eventually(lambda: store.loads != loads)
    await eventually(lambda: broker.call(lambda: host_of(broker)._unread) is None)


def test_what_is_due_does_not_keep_a_failing_namespace_busy(failing_broker: Failing) -> None:
    """A message that has expired cannot be removed: that is not tried again at once, over and over."""
    broker, store = failing_broker
    host = host_of(broker)
    broker["contoso"].create_queue("orders", QueueSettings(auto_delete_on_idle=300.0))

    def let_it_fail() -> float:
        assert host.loop is not None
        real = host.now
        host.now = host.time.now = lambda: real() + 1000.0
        store.refuses_commits = True
        host.tick()
        assert host.time._timer is not None
        return host.time._timer.when() - host.loop.time()

    assert broker.call(let_it_fail) > 0.9
    store.refuses_commits = False

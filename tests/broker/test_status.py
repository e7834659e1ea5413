"""Entities that are disabled, wholly or in part, before and while links are open, or deleted."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
)

from pairbus.amqp.events import LinkDetached
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.types import Symbol, UInt
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.errors import StoreError
from pairbus.words import LINK_TIMEOUT, SESSION_FILTER
from tests.engine.samples import message

from .bus import Bus, bodies, eventually, opened, receive
from .raw import RawClient

# A sender that finds its link gone does not look why; what it is told when it attaches again is the reason.
ONE_RETRY: dict[str, Any] = {"retry_total": 1, "retry_backoff_factor": 0.01}


def with_status(status: EntityStatus) -> QueueSettings:
    return QueueSettings(status=status)


@pytest.mark.parametrize(
    ("status", "sends", "receives"),
    [
        (EntityStatus.DISABLED, False, False),
        (EntityStatus.SEND_DISABLED, False, True),
        (EntityStatus.RECEIVE_DISABLED, True, False),
    ],
)
async def test_what_a_status_forbids(aio_bus: Bus, status: EntityStatus, sends: bool, receives: bool) -> None:
    aio_bus.namespace.create_queue("orders", with_status(status))
    for link, allowed in (
        (aio_bus.client.get_queue_sender("orders"), sends),
        (aio_bus.client.get_queue_receiver("orders"), receives),
    ):
        if allowed:
            async with link:
                pass
        else:
            with pytest.raises(MessagingEntityDisabledError):
                async with link:
                    raise AssertionError("it was let in")


async def test_an_open_sender_is_cut_off_and_comes_back(aio_bus: Bus) -> None:
    bus = aio_bus
    bus.namespace.create_queue("orders")
    client = bus.connect(**ONE_RETRY)
    links = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
    async with client, opened(*links) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("before"))
        bus.namespace.update_queue("orders", with_status(EntityStatus.SEND_DISABLED))
        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(ServiceBusMessage("during"))
        assert bodies(await receive(receiver)) == ["before"]
        bus.namespace.update_queue("orders", with_status(EntityStatus.ACTIVE))
        await sender.send_messages(ServiceBusMessage("after"))
        assert bodies(await receive(receiver)) == ["after"]


async def test_an_open_receiver_is_cut_off_and_comes_back(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=30))
        await eventually(bus.is_awaited)
        bus.namespace.update_queue("orders", with_status(EntityStatus.RECEIVE_DISABLED))
        with pytest.raises(MessagingEntityDisabledError):
            await waiting
        await sender.send_messages(ServiceBusMessage("kept"))
        bus.namespace.update_queue("orders", with_status(EntityStatus.ACTIVE))
        assert bodies(await receive(receiver)) == ["kept"]


async def test_the_dead_letters_of_a_disabled_queue_cannot_be_received(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", with_status(EntityStatus.DISABLED))
    with pytest.raises(MessagingEntityDisabledError):
        async with aio_bus.client.get_queue_receiver("orders", sub_queue="deadletter"):
            raise AssertionError("it was let in")


async def test_topics_and_subscriptions_have_a_status_of_their_own(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    namespace.create_topic("news")
    namespace.create_subscription(
        "news", "mine", settings=SubscriptionSettings(status=EntityStatus.RECEIVE_DISABLED)
    )
    receiver = aio_bus.client.get_subscription_receiver("news", "mine")
    client = aio_bus.connect(**ONE_RETRY)
    async with client, client.get_topic_sender("news") as sender:
        await sender.send_messages(ServiceBusMessage("kept"))
        with pytest.raises(MessagingEntityDisabledError):
            await receiver.__aenter__()
        namespace.update_subscription("news", "mine", settings=SubscriptionSettings())
        async with receiver:
            assert bodies(await receive(receiver)) == ["kept"]
        namespace.update_topic("news", TopicSettings(status=EntityStatus.DISABLED))
        with pytest.raises(MessagingEntityDisabledError):
            await sender.send_messages(ServiceBusMessage("lost"))


async def test_what_is_deleted_takes_its_links_along(aio_bus: Bus) -> None:
    bus = aio_bus
    bus.namespace.create_queue("orders")
    client = bus.connect(**ONE_RETRY)
    links = client.get_queue_sender("orders"), bus.client.get_queue_receiver("orders")
    async with client, opened(*links) as (sender, receiver):
        waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=30))
        await eventually(bus.is_awaited)
        bus.namespace.delete_queue("orders")
        with pytest.raises(MessagingEntityNotFoundError):
            await waiting
        with pytest.raises(ServiceBusAuthenticationError):
            await sender.send_messages(ServiceBusMessage("where to?"))
        # A queue of the same name is another one, and its links work.
        bus.namespace.create_queue("orders")
        await sender.send_messages(ServiceBusMessage("new"))
        assert bodies(await receive(receiver)) == ["new"]


async def test_an_entity_that_never_was_is_already_refused_its_token(aio_bus: Bus) -> None:
    """As on Azure, which answers 404 to the token; the Python client calls that an authentication error."""
    aio_bus.namespace.create_topic("news")
    for link in (
        aio_bus.client.get_queue_sender("nowhere"),
        aio_bus.client.get_queue_receiver("nowhere"),
        aio_bus.client.get_subscription_receiver("news", "nobody"),
        aio_bus.client.get_queue_receiver("news/Subscriptions"),
    ):
        with pytest.raises(ServiceBusAuthenticationError):
            async with link:
                raise AssertionError("it was let in")


async def test_an_idle_queue_goes_but_not_while_somebody_waits_at_it(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    for name in ("lonely", "watched"):
        namespace.create_queue(name, QueueSettings(auto_delete_on_idle=300.0))
    async with opened(aio_bus.client.get_queue_receiver("watched")) as (receiver,):
        aio_bus.pass_time(301)
        aio_bus.pass_time(200)
        async with aio_bus.client.get_queue_sender("watched") as sender:
            await sender.send_messages(ServiceBusMessage("still here"))
        assert bodies(await receive(receiver)) == ["still here"]
        with pytest.raises(ServiceBusAuthenticationError):
            await aio_bus.client.get_queue_sender("lonely").__aenter__()


@pytest.fixture
def watcher(bus_without_client: Bus) -> Iterator[RawClient]:
    """A client of a namespace that has a queue which may be idle for five minutes."""
    namespace = bus_without_client.namespace
    namespace.create_queue("watched", QueueSettings(auto_delete_on_idle=300.0))
    with RawClient.of_owner(namespace) as client:
        yield client


def queues(bus: Bus) -> list[str]:
    engine = bus.broker._hosts["contoso"].engine
    return bus.broker.call(lambda: [queue.path for queue in engine.list_queues()])


def test_no_request_finds_a_queue_idle_that_somebody_waits_at(
    bus_without_client: Bus, watcher: RawClient
) -> None:
    """Though it comes at the moment at which the queue would go, and before time has been seen to pass."""
    watcher.attach("watched", sends=False)
    bus_without_client.clock.advance(301)
    host = bus_without_client.broker._hosts["contoso"]
    bus_without_client.broker._run(host, lambda engine, now: engine.send("watched", [message()], now))
    assert queues(bus_without_client) == ["watched"]


@pytest.mark.parametrize("part", ["", "/$DeadLetterQueue"])
def test_a_queue_idles_from_when_its_last_receiver_has_gone(
    bus_without_client: Bus, watcher: RawClient, part: str
) -> None:
    link = watcher.attach(f"watched{part}", sends=False)
    bus_without_client.clock.advance(299)
    link.detach()
    watcher.flush()
    watcher.await_event(LinkDetached)
    bus_without_client.pass_time(299)
    assert queues(bus_without_client) == ["watched"]
    bus_without_client.pass_time(2)
    assert queues(bus_without_client) == []


async def test_who_waits_for_a_session_waits_at_its_queue(bus_without_client: Bus) -> None:
    bus = bus_without_client
    bus.namespace.create_queue("watched", QueueSettings(auto_delete_on_idle=300.0, requires_session=True))
    with RawClient.of_owner(bus.namespace) as client:
        link = client.machine.begin().attach(
            name="next",
            role_sender=False,
            source=Source("watched", filter={Symbol(SESSION_FILTER): None}),
            target=Target("here"),
            properties={Symbol(LINK_TIMEOUT): UInt(3_600_000)},
        )
        client.flush()
        await eventually(lambda: bus.session_waits() == 1)
        bus.pass_time(301)
        assert queues(bus) == ["watched"]
        link.detach()
        client.flush()
        await eventually(lambda: bus.session_waits() == 0)
        bus.pass_time(299)
        assert queues(bus) == ["watched"]
        bus.pass_time(2)
    assert queues(bus) == []


@pytest.mark.usefixtures("noisy")
async def test_a_refused_turn_lets_go_of_every_link_though_one_of_them_fails(
    bus_without_client: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a queue would be attended for ever, and never be deleted when it is idle."""
    bus = bus_without_client
    host, leave = bus.broker._hosts[bus.namespace.name], MessageQueue.leave
    for name in ("first", "watched"):
        bus.namespace.create_queue(name)

    def fail_at_first(queue: MessageQueue, now: float) -> None:
        if queue.path == "first":
            raise RuntimeError("for the test")
        leave(queue, now)

    monkeypatch.setattr(MessageQueue, "leave", fail_at_first)
    with RawClient.of_owner(bus.namespace) as client:
        for name in ("first", "watched"):
            client.attach(name, sends=False)
        bus.broker.call(lambda: host.refuse_turn(StoreError("for the test")))
        assert not host.engine.node("watched").is_attended

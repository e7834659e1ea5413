"""Pings: accepted like messages, delivered to nobody, shown to nobody."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityDisabledError, ServiceBusError

from pairbus.broker import OperationKind
from pairbus.broker.engine.settings import EntityStatus, QueueSettings
from pairbus.words import PING_CONTENT_TYPE

from .bus import Bus, bodies, receive, receive_nothing


def ping(session_id: str | None = None) -> ServiceBusMessage:
    return ServiceBusMessage(b"", content_type=PING_CONTENT_TYPE, session_id=session_id)


async def test_a_ping_is_accepted_and_never_seen(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        for _ in range(3):
            await sender.send_messages(ping())
        await sender.send_messages([ping(), ServiceBusMessage("real"), ping()])
        assert bodies(await receiver.peek_messages(max_message_count=10)) == ["real"]
        assert bodies(await receive(receiver)) == ["real"]
        await receive_nothing(receiver)
        assert bus.namespace.message_count("orders") == 1
        assert (bus.namespace.count(OperationKind.PING), bus.namespace.count(OperationKind.SEND)) == (5, 1)


async def test_pings_to_topics_sessions_and_schedules(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    namespace.create_topic("news")
    namespace.create_subscription("news", "mine")
    namespace.create_queue("orders", QueueSettings(requires_session=True))
    async with aio_bus.client.get_topic_sender("news") as sender:
        await sender.send_messages(ping())
        soon = datetime.datetime.fromtimestamp(aio_bus.clock.now() + 5, datetime.UTC)
        await sender.schedule_messages(ping(), soon)
    async with aio_bus.client.get_queue_sender("orders") as sender:
        await sender.send_messages(ping(session_id="any"))
    aio_bus.pass_time(6)
    assert namespace.message_count("news/Subscriptions/mine") == 0
    assert namespace.message_count("orders") == 0
    assert [session async for session in aio_bus.client.list_queue_sessions("orders")] == []
    assert namespace.count(OperationKind.PING) == 3


async def test_a_ping_is_refused_where_a_message_would_be(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("disabled", QueueSettings(status=EntityStatus.DISABLED))
    aio_bus.namespace.create_queue("sessions", QueueSettings(requires_session=True))
    with pytest.raises(MessagingEntityDisabledError):
        async with aio_bus.client.get_queue_sender("disabled") as sender:
            await sender.send_messages(ping())
    async with aio_bus.client.get_queue_sender("sessions") as sender:
        with pytest.raises(ServiceBusError, match="session id"):
            await sender.send_messages(ping())
    assert aio_bus.namespace.count(OperationKind.PING) == 0

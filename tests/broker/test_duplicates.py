"""Duplicate detection: an id that was seen within the window is taken and dropped."""

import datetime

from azure.servicebus import ServiceBusMessage

from pairbus.broker.engine.settings import QueueSettings, TopicSettings

from .bus import Bus, bodies, opened, receive, receive_nothing

WINDOW = QueueSettings(requires_duplicate_detection=True, duplicate_detection_history_time_window=60.0)


async def test_an_id_is_taken_once_within_the_window(bus: Bus) -> None:
    bus.namespace.create_queue("orders", WINDOW)
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("first", message_id="same"))
        await sender.send_messages(ServiceBusMessage("again", message_id="same"))
        await sender.send_messages([ServiceBusMessage(text, message_id=text) for text in ("x", "y", "x")])
        received = await receive(receiver, 3)
        assert bodies(received) == ["first", "x", "y"]
        for message in received:
            await receiver.complete_message(message)
        await sender.send_messages(ServiceBusMessage("still known", message_id="same"))
        await receive_nothing(receiver)
        bus.pass_time(61)
        await sender.send_messages(ServiceBusMessage("forgotten", message_id="same"))
        assert bodies(await receive(receiver)) == ["forgotten"]


async def test_messages_without_an_id_are_no_duplicates(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", WINDOW)
    await aio_bus.send("orders", "1", "1", "1")
    assert aio_bus.namespace.message_count("orders") == 3


async def test_scheduled_messages_count_from_their_sending(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", WINDOW)
    async with aio_bus.client.get_queue_sender("orders") as sender:
        at = datetime.datetime.fromtimestamp(aio_bus.clock.now() + 30, datetime.UTC)
        await sender.schedule_messages(ServiceBusMessage("scheduled", message_id="same"), at)
        await sender.send_messages(ServiceBusMessage("sent", message_id="same"))
        assert aio_bus.namespace.message_count("orders") == 1


async def test_a_topic_detects_before_it_copies(aio_bus: Bus) -> None:
    aio_bus.namespace.create_topic("news", TopicSettings(requires_duplicate_detection=True))
    aio_bus.namespace.create_subscription("news", "mine")
    receiver = aio_bus.client.get_subscription_receiver("news", "mine")
    async with opened(aio_bus.client.get_topic_sender("news"), receiver) as (sender, _):
        for _ in range(2):
            await sender.send_messages(ServiceBusMessage("once", message_id="same"))
        assert bodies(await receive(receiver)) == ["once"]
        await receive_nothing(receiver)

"""Forwarding: what is sent to one entity arrives in another."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings

from .bus import Bus, bodies, opened, receive


async def test_a_queue_and_a_subscription_forward_to_a_queue(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    namespace.create_queue("target")
    namespace.create_queue("orders", QueueSettings(forward_to="target"))
    namespace.create_topic("news")
    namespace.create_subscription("news", "mine", settings=SubscriptionSettings(forward_to="target"))
    links = (
        aio_bus.client.get_queue_sender("orders"),
        aio_bus.client.get_topic_sender("news"),
        aio_bus.client.get_queue_receiver("target"),
    )
    async with opened(*links) as (orders, news, receiver):
        await orders.send_messages(ServiceBusMessage("from a queue", subject="kept"))
        await news.send_messages(ServiceBusMessage("from a topic"))
        first, second = await receive(receiver, 2)
        assert bodies([first, second]) == ["from a queue", "from a topic"]
        assert first.subject == "kept"
        assert first.enqueued_sequence_number == 1
        with pytest.raises(ServiceBusError, match="auto-forwarding"):
            await aio_bus.client.get_queue_receiver("orders").__aenter__()


async def test_dead_letters_are_forwarded(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    namespace.create_queue("morgue")
    namespace.create_queue("orders", QueueSettings(forward_dead_lettered_messages_to="morgue"))
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("bad"))
        await receiver.dead_letter_message((await receive(receiver))[0], reason="rotten")
    async with aio_bus.client.get_queue_receiver("morgue") as receiver:
        [letter] = await receive(receiver)
        assert (letter.dead_letter_reason, letter.dead_letter_source) == ("rotten", "orders")

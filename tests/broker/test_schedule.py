"""Scheduled messages: held until their time, cancelled before it."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError

from pairbus.broker.engine.settings import QueueSettings, TopicSettings

from .bus import Bus, bodies, opened, receive, receive_nothing


def from_now(bus: Bus, seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(bus.clock.now() + seconds, datetime.UTC)


async def test_scheduled_messages_come_at_their_time_unless_cancelled(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        messages = [ServiceBusMessage(text) for text in ("kept", "cancelled", "kept too")]
        numbers = await sender.schedule_messages(messages, from_now(bus, 60))
        assert numbers == [1, 2, 3]
        await sender.cancel_scheduled_messages(numbers[1])
        await receive_nothing(receiver)
        bus.pass_time(60.5)
        received = await receive(receiver, 2)
        assert bodies(received) == ["kept", "kept too"]
        # Enqueueing gives a new number, and the time of its own.
        assert [message.sequence_number for message in received] == [4, 5]
        assert received[0].enqueued_time_utc >= from_now(bus, -0.002)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(numbers)


async def test_a_message_can_carry_its_time_itself(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        message = ServiceBusMessage("timed", scheduled_enqueue_time_utc=from_now(bus, 30))
        await sender.send_messages([message, ServiceBusMessage("at once")])
        [first] = await receive(receiver)
        assert str(first) == "at once"
        [peeked] = await receiver.peek_messages(sequence_number=1)
        assert (str(peeked), peeked.state) == ("timed", ServiceBusMessageState.SCHEDULED)
        bus.pass_time(31)
        assert bodies(await receive(receiver)) == ["timed"]


async def test_a_time_that_has_passed_means_now(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.schedule_messages(ServiceBusMessage("late"), from_now(aio_bus, -60))
        assert bodies(await receive(receiver)) == ["late"]


async def test_of_several_numbers_all_are_cancelled_or_none(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.client.get_queue_sender("orders") as sender:
        messages = [ServiceBusMessage("1"), ServiceBusMessage("2")]
        numbers = await sender.schedule_messages(messages, from_now(aio_bus, 60))
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages([*numbers, 99])
        assert aio_bus.namespace.message_count("orders") == 2
        await sender.cancel_scheduled_messages(numbers)
        assert aio_bus.namespace.message_count("orders") == 0


async def test_a_topic_holds_messages_and_lets_them_be_cancelled(aio_bus: Bus) -> None:
    aio_bus.namespace.create_topic("news", TopicSettings())
    aio_bus.namespace.create_subscription("news", "all")
    sender = aio_bus.client.get_topic_sender("news")
    receiver = aio_bus.client.get_subscription_receiver("news", "all")
    async with opened(sender, receiver):
        messages = [ServiceBusMessage("kept"), ServiceBusMessage("cancelled")]
        numbers = await sender.schedule_messages(messages, from_now(aio_bus, 60))
        await sender.cancel_scheduled_messages([numbers[1]])
        assert await receiver.peek_messages() == []
        aio_bus.pass_time(61)
        assert bodies(await receive(receiver)) == ["kept"]
        await receive_nothing(receiver)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages([numbers[1]])


async def test_scheduled_messages_of_a_session(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", QueueSettings(requires_session=True))
    async with aio_bus.client.get_queue_sender("orders") as sender:
        message = ServiceBusMessage("later", session_id="one")
        await sender.schedule_messages(message, from_now(aio_bus, 60))
        aio_bus.pass_time(61)
        async with aio_bus.client.get_queue_receiver("orders", session_id="one") as receiver:
            assert bodies(await receive(receiver)) == ["later"]

"""Dead letters: why they are there, and how they leave."""

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from pairbus.broker.engine.settings import QueueSettings

from .bus import Bus, opened, receive, receive_nothing


async def test_a_dead_letter_says_why_and_leaves_when_completed(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    letters = bus.client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER)
    async with bus.queue("orders") as (sender, receiver), letters:
        await sender.send_messages(ServiceBusMessage("bad", application_properties={"colour": "red"}))
        [message] = await receive(receiver)
        await receiver.dead_letter_message(message, reason="unreadable", error_description="no such colour")
        [letter] = await receive(letters)
        assert str(letter) == "bad"
        assert letter.sequence_number == message.sequence_number
        assert letter.enqueued_time_utc == message.enqueued_time_utc
        assert letter.dead_letter_reason == "unreadable"
        assert letter.dead_letter_error_description == "no such colour"
        assert letter.dead_letter_source == "orders"
        assert letter.application_properties[b"colour"] == b"red"
        assert bus.namespace.message_count("orders/$DeadLetterQueue") == 1
        await letters.complete_message(letter)
        assert bus.namespace.message_count("orders") == 0


async def test_a_dead_letter_without_a_reason(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("bad"))
        [message] = await receive(receiver)
        await receiver.dead_letter_message(message)
    async with aio_bus.client.get_queue_receiver("orders", sub_queue="deadletter") as letters:
        [letter] = await receive(letters)
    assert letter.dead_letter_reason is None
    assert letter.dead_letter_error_description is None


async def test_dead_letters_are_abandoned_without_end_and_deferred(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", QueueSettings(max_delivery_count=1, lock_duration=30.0))
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("bad"))
        await receiver.abandon_message((await receive(receiver))[0])
    async with aio_bus.client.get_queue_receiver("orders", sub_queue="deadletter") as letters:
        for _ in range(3):
            [letter] = await receive(letters)
            assert letter.delivery_count == 1
            await letters.abandon_message(letter)
        await receive(letters)
        aio_bus.pass_time(30)  # the lock ends, which is not counted either
        [letter] = await receive(letters)
        assert letter.delivery_count == 1
        await letters.abandon_message(letter)
        [letter] = await receive(letters)
        await letters.defer_message(letter)
        await receive_nothing(letters)
        [letter] = await letters.receive_deferred_messages([letter.sequence_number])
        await letters.complete_message(letter)
        assert aio_bus.namespace.message_count("orders") == 0


async def test_what_is_a_dead_letter_cannot_die_again(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("bad"))
        await receiver.dead_letter_message((await receive(receiver))[0])
    async with aio_bus.client.get_queue_receiver("orders", sub_queue="deadletter") as letters:
        [letter] = await receive(letters)
        with pytest.raises(ServiceBusError, match="dead letters already"):
            await letters.dead_letter_message(letter)
    # The settlement has not happened: the message is there, and locked until its lock ends.
    aio_bus.pass_time(61)
    async with aio_bus.client.get_queue_receiver("orders", sub_queue="deadletter") as letters:
        assert (await receive(letters))[0].delivery_count == 0


async def test_nobody_sends_to_the_dead_letters(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    with pytest.raises(ServiceBusError, match="sub-queue"):
        async with aio_bus.client.get_queue_sender("orders/$DeadLetterQueue"):
            raise AssertionError("the sender was let in")


async def test_the_transfer_dead_letters_can_be_received(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    namespace.create_queue("narrow", QueueSettings(requires_session=True))
    namespace.create_queue("orders", QueueSettings(forward_to="narrow"))
    transferred = aio_bus.client.get_queue_receiver(
        "orders", sub_queue=ServiceBusSubQueue.TRANSFER_DEAD_LETTER
    )
    async with opened(aio_bus.client.get_queue_sender("orders"), transferred) as (sender, _):
        # Without a session id it cannot be forwarded.
        await sender.send_messages(ServiceBusMessage("stuck"))
        [letter] = await receive(transferred)
        assert str(letter) == "stuck"
        await transferred.complete_message(letter)

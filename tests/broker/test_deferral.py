"""Deferred messages: only their numbers bring them back."""

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceiveMode
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError

from pairbus.broker.engine.settings import QueueSettings

from .bus import Bus, receive, receive_nothing


async def test_a_deferred_message_is_received_by_its_number(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("later"))
        [message] = await receive(receiver)
        await receiver.defer_message(message)
        [peeked] = await receiver.peek_messages(sequence_number=1)
        assert peeked.state is ServiceBusMessageState.DEFERRED
        await receive_nothing(receiver)
        [deferred] = await receiver.receive_deferred_messages([message.sequence_number])
        assert str(deferred) == "later"
        assert deferred.delivery_count == 1
        assert deferred.lock_token is not None
        await receiver.complete_message(deferred)
        assert bus.namespace.message_count("orders") == 0


@pytest.mark.parametrize("settlement", ["abandon_message", "defer_message"])
async def test_a_deferred_message_that_is_not_completed_stays_deferred(aio_bus: Bus, settlement: str) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("later"))
        [message] = await receive(receiver)
        await receiver.defer_message(message)
        numbers = [message.sequence_number]
        [deferred] = await receiver.receive_deferred_messages(numbers)
        await getattr(receiver, settlement)(deferred)
        await receive_nothing(receiver)
        [deferred] = await receiver.receive_deferred_messages(numbers)
        assert deferred.delivery_count == 2
        await receiver.dead_letter_message(deferred, reason="enough", error_description="of this")
    async with aio_bus.client.get_queue_receiver("orders", sub_queue="deadletter") as letters:
        [letter] = await receive(letters)
        assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("enough", "of this")


async def test_the_lock_of_a_deferred_message_is_renewed_and_ends(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", QueueSettings(lock_duration=30.0))
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("later"))
        [message] = await receive(receiver)
        await receiver.defer_message(message)
        [deferred] = await receiver.receive_deferred_messages([message.sequence_number])
        aio_bus.pass_time(20.0)
        await receiver.renew_message_lock(deferred)
        aio_bus.pass_time(20.0)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages([message.sequence_number])
        aio_bus.pass_time(20.0)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(deferred)
        assert await receiver.receive_deferred_messages([message.sequence_number])


async def test_deferred_messages_are_received_and_deleted(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
        numbers = []
        for message in await receive(receiver, 2):
            await receiver.defer_message(message)
            numbers.append(message.sequence_number)
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with aio_bus.client.get_queue_receiver("orders", receive_mode=mode) as receiver:
        deferred = await receiver.receive_deferred_messages(numbers)
        assert [str(message) for message in deferred] == ["1", "2"]
        assert aio_bus.namespace.message_count("orders") == 0


async def test_a_number_that_is_not_deferred_is_not_found(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("active"))
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages([1])
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages([4711])
        # Nothing has happened to the message.
        await receiver.complete_message((await receive(receiver))[0])

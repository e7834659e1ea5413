"""Locks: they end, they are renewed, and what was not settled in time comes again."""

import datetime
import time

import pytest
from azure.servicebus import AutoLockRenewer, ServiceBusMessage
from azure.servicebus.aio import AutoLockRenewer as AioAutoLockRenewer
from azure.servicebus.exceptions import MessageLockLostError

from pairbus.broker import OperationKind
from pairbus.broker.engine.settings import QueueSettings

from .bus import Bus, eventually, receive, receive_nothing


def moment(seconds: float) -> datetime.datetime:
    """Unix seconds as the SDK tells them, whole milliseconds."""
    return datetime.datetime.fromtimestamp(int(seconds * 1000) / 1000, datetime.UTC)


async def test_a_lock_that_ends_is_lost_and_its_message_comes_again(bus: Bus) -> None:
    bus.namespace.create_queue("orders", QueueSettings(lock_duration=30.0))
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("slow"))
        [held] = await receive(receiver)
        assert held.locked_until_utc == moment(bus.clock.now() + 30)
        await receive_nothing(receiver)
        bus.pass_time(30.0)
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(held)
        [again] = await receive(receiver)
        assert again.sequence_number == held.sequence_number
        assert again.delivery_count == 1
        assert again.lock_token != held.lock_token
        await receiver.complete_message(again)
        assert bus.namespace.message_count("orders") == 0


async def test_a_renewed_lock_holds(bus: Bus) -> None:
    bus.namespace.create_queue("orders", QueueSettings(lock_duration=30.0))
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("slow"))
        [held] = await receive(receiver)
        bus.pass_time(20.0)
        until = await receiver.renew_message_lock(held)
        assert until == held.locked_until_utc == moment(bus.clock.now() + 30)
        bus.pass_time(20.0)
        await receiver.complete_message(held)
        assert bus.namespace.message_count("orders") == 0


async def test_a_lost_lock_is_not_renewed(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", QueueSettings(lock_duration=30.0))
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("slow"))
        [held] = await receive(receiver)
        aio_bus.pass_time(31.0)
        with pytest.raises(MessageLockLostError):
            await receiver.renew_message_lock(held)


@pytest.mark.parametrize("settlement", ["abandon_message", "defer_message", "dead_letter_message"])
async def test_no_settlement_works_with_a_lost_lock(aio_bus: Bus, settlement: str) -> None:
    aio_bus.namespace.create_queue("orders", QueueSettings(lock_duration=30.0))
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("slow"))
        [held] = await receive(receiver)
        aio_bus.pass_time(31.0)
        with pytest.raises(MessageLockLostError):
            await getattr(receiver, settlement)(held)
        [again] = await receive(receiver)
        assert again.delivery_count == 1


async def test_a_lock_outlives_the_link_that_it_was_given_to(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", QueueSettings(lock_duration=30.0))
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("held"))
        await receive(receiver)
    async with aio_bus.client.get_queue_receiver("orders") as receiver:
        await receive_nothing(receiver)
        aio_bus.pass_time(31.0)
        [again] = await receive(receiver)
        assert again.delivery_count == 1


async def test_a_receiver_that_closes_gives_back_what_it_fetched_and_did_not_show(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders", prefetch_count=10) as (sender, receiver):
        await sender.send_messages([ServiceBusMessage(f"{number}") for number in range(5)])
        await receiver.complete_message((await receive(receiver))[0])
        await receiver.close()
    await eventually(lambda: aio_bus.namespace.count(OperationKind.RELEASE) == 4)
    async with aio_bus.client.get_queue_receiver("orders") as receiver:
        again = await receive(receiver, 4)
    assert [(str(message), message.delivery_count) for message in again] == [
        ("1", 0),
        ("2", 0),
        ("3", 0),
        ("4", 0),
    ]


async def test_the_last_delivery_that_fails_sends_a_message_to_the_dead_letters(bus: Bus) -> None:
    bus.namespace.create_queue("orders", QueueSettings(lock_duration=30.0, max_delivery_count=2))
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("poison"))
        [message] = await receive(receiver)
        await receiver.abandon_message(message)
        await receive(receiver)
        bus.pass_time(31.0)
        await receive_nothing(receiver)
    async with bus.client.get_queue_receiver("orders", sub_queue="deadletter") as dead_letters:
        [letter] = await receive(dead_letters)
    assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"
    assert "2 delivery attempts" in letter.dead_letter_error_description
    assert letter.delivery_count == 2


async def test_the_auto_lock_renewer_keeps_a_message(bus: Bus) -> None:
    # The renewer acts when the machine's clock is 10 s short of the lock's end, so this is soon.
    bus.namespace.create_queue("orders", QueueSettings(lock_duration=10.7))
    renewer = AutoLockRenewer() if bus.kind == "sync" else AioAutoLockRenewer()
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("slow"))
        bus.pass_time(time.time() - bus.clock.now())
        [held] = await receive(receiver)
        renewer.register(getattr(receiver, "_subject", receiver), held, max_lock_renewal_duration=60)
        bus.pass_time(8.0)
        await eventually(lambda: bus.namespace.count(OperationKind.MANAGEMENT) > 0)
        bus.pass_time(8.0)
        await receiver.complete_message(held)
        assert bus.namespace.message_count("orders") == 0
        assert held.auto_renew_error is None
    if isinstance(renewer, AioAutoLockRenewer):
        await renewer.close()
    else:
        renewer.close(wait=False)

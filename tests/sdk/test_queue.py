"""Queues: what is sent is received, in order, and leaves as it is settled."""

from __future__ import annotations

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode

from .bus import Bus, bodies, receive, receive_nothing


async def test_messages_come_in_order_and_go_when_completed(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("1"))
        await sender.send_messages([ServiceBusMessage("2"), ServiceBusMessage("3")])
        received = await receive(receiver, 3)
        assert bodies(received) == ["1", "2", "3"]
        assert [message.sequence_number for message in received] == [1, 2, 3]
        assert [message.delivery_count for message in received] == [0, 0, 0]
        for message in received:
            await receiver.complete_message(message)
        assert bus.namespace.message_count("orders") == 0
        await receive_nothing(receiver)


async def test_an_abandoned_message_comes_again_with_its_count(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("again"))
        for count in range(3):
            [message] = await receive(receiver)
            assert (str(message), message.delivery_count) == ("again", count)
            await receiver.abandon_message(message)


async def test_receive_and_delete(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    async with bus.queue("orders", receive_mode=mode) as (sender, receiver):
        await sender.send_messages([ServiceBusMessage("1"), ServiceBusMessage("2")])
        [first] = await receive(receiver)
        assert str(first) == "1"
        assert first.lock_token is None
        await receive(receiver)
        assert bus.namespace.message_count("orders") == 0

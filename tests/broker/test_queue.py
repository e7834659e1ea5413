"""Queues: what is sent is received, in order, and leaves as it is settled."""

import asyncio

from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode

from .bus import Bus, bodies, eventually, opened, receive, receive_nothing


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


async def test_a_message_that_was_received_can_be_sent_on(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("onwards", subject="kept"))
        [first] = await receive(receiver)
        await sender.send_messages(first)
        await receiver.complete_message(first)
        [second] = await receive(receiver)
        assert (str(second), second.subject, second.sequence_number) == ("onwards", "kept", 2)
        await receiver.complete_message(second)


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


async def test_receivers_are_iterated_until_nothing_comes(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders", max_wait_time=0.3) as (sender, receiver):
        await sender.send_messages([ServiceBusMessage(f"{number}") for number in range(3)])
        received = []
        async for message in receiver:
            received.append(str(message))
            await receiver.complete_message(message)
        assert received == ["0", "1", "2"]


async def test_prefetched_messages_are_all_there(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders", prefetch_count=50) as (sender, receiver):
        await sender.send_messages([ServiceBusMessage(f"{number}") for number in range(120)])
        received: list[int] = []
        while len(received) < 120:
            for message in await receive(receiver, 10):
                received.append(int(str(message)))
                await receiver.complete_message(message)
        assert received == list(range(120))
        assert bus.namespace.message_count("orders") == 0


async def test_receivers_share_a_queue(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    receivers = [aio_bus.client.get_queue_receiver("orders") for _ in range(3)]
    async with opened(aio_bus.client.get_queue_sender("orders"), *receivers) as (sender, *_):
        waiting = asyncio.gather(*(receive(receiver, 30) for receiver in receivers))
        await eventually(aio_bus.is_awaited)
        await sender.send_messages([ServiceBusMessage(f"{number}") for number in range(90)])
        shares = [[int(str(message)) for message in share] for share in await waiting]
    # Nobody gets anything twice, nobody goes without, and to each it comes in order.
    assert sorted(number for share in shares for number in share) == list(range(90))
    assert all(share == sorted(share) for share in shares)


async def test_what_arrives_while_a_receiver_waits(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=30))
        await eventually(bus.is_awaited)
        await sender.send_messages(ServiceBusMessage("at last"))
        assert bodies(await waiting) == ["at last"]


async def test_a_path_of_several_segments(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("Shop/Orders.New~1")
    async with aio_bus.queue("shop/orders.new~1") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("found"))
        [message] = await receive(receiver)
        await receiver.renew_message_lock(message)
        await receiver.complete_message(message)


async def test_many_are_settled_at_once_on_the_same_link(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders", prefetch_count=40) as (sender, receiver):
        for each in range(40):  # by Python 3.13 the SDK's sender repeats what several coroutines send at once
            await sender.send_messages(ServiceBusMessage(f"{each}"))
        received = await receive(receiver, 40)
        assert sorted(int(text) for text in bodies(received)) == list(range(40))
        await asyncio.gather(*(receiver.complete_message(message) for message in received))
        assert aio_bus.namespace.message_count("orders") == 0

"""The counters of one small story, to the last operation."""

import datetime

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.broker import OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.words import PING_CONTENT_TYPE

from .bus import Bus, eventually, opened, receive, receive_nothing


def counted(bus: Bus) -> dict[OperationKind, int]:
    return {kind: count for kind in OperationKind if (count := bus.namespace.count(kind))}


async def test_every_operation_is_counted_once(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with opened(bus.client.get_queue_sender("orders")) as (sender,):
        await sender.send_messages(ServiceBusMessage("1"))
        await sender.send_messages([ServiceBusMessage("2"), ServiceBusMessage("3")])
        await sender.send_messages(ServiceBusMessage("4"))
        await sender.send_messages(ServiceBusMessage("", content_type=PING_CONTENT_TYPE))
        soon = datetime.datetime.fromtimestamp(bus.clock.now() + 60, datetime.UTC)
        [number] = await sender.schedule_messages(ServiceBusMessage("5"), soon)
        await sender.cancel_scheduled_messages(number)
        with pytest.raises(ServiceBusError):
            await sender.send_messages(ServiceBusMessage(b"6" * 262_200))
    sent = {
        OperationKind.SEND: 5,
        OperationKind.PING: 1,
        OperationKind.SEND_REFUSED: 1,
        OperationKind.MANAGEMENT: 2,
    }
    assert counted(bus) == sent
    receiver = bus.client.get_queue_receiver("orders")
    async with receiver:
        # Opening grants one credit, and the first message takes it.
        first = (await receive(receiver))[0]
        second, third = await receive(receiver, 2)
        [fourth] = await receive(receiver)
        await receiver.complete_message(first)
        await receiver.abandon_message(second)
        await receiver.defer_message(third)
        await receiver.dead_letter_message(fourth)
        [again] = await receive(receiver)
        await receiver.complete_message(again)
        received = {
            OperationKind.DELIVERY: 5,
            OperationKind.COMPLETE: 2,
            OperationKind.ABANDON: 1,
            OperationKind.DEFER: 1,
            OperationKind.DEAD_LETTER: 1,
        }
        assert counted(bus) == sent | received
        # Each receive renews the grant of the one before it, and closing ends the last one.
        await receive_nothing(receiver)
        await receive_nothing(receiver)
        await receiver.close()
        await eventually(lambda: bus.namespace.count(OperationKind.EMPTY_RECEIVE) == 2)
    assert counted(bus) == sent | received | {OperationKind.EMPTY_RECEIVE: 2}


async def test_counters_tell_entities_and_connections_apart(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    aio_bus.namespace.create_queue("others", QueueSettings())
    await aio_bus.send("orders", "1", "2")
    await aio_bus.send("OTHERS", "3")
    namespace = aio_bus.namespace
    assert namespace.count(OperationKind.SEND, entity="orders") == 2
    assert namespace.count(OperationKind.SEND, entity="others") == 1
    tallies = [tally for tally in namespace.counters() if tally.kind is OperationKind.SEND]
    assert [(tally.entity, tally.count, tally.units) for tally in tallies] == [
        ("orders", 2, 2),
        ("others", 1, 1),
    ]
    assert len({tally.connection for tally in tallies}) == 2
    assert tallies[0].bytes > tallies[1].bytes > 0


async def test_peeks_deferred_receives_and_renewals_are_requests(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("1"))
        await receiver.peek_messages()
        [message] = await receive(receiver)
        await receiver.renew_message_lock(message)
        await receiver.defer_message(message)
        [deferred] = await receiver.receive_deferred_messages([message.sequence_number])
        await receiver.complete_message(deferred)
        wanted = {
            OperationKind.MANAGEMENT: 4,
            OperationKind.DELIVERY: 2,
            OperationKind.DEFER: 1,
            OperationKind.COMPLETE: 1,
        }
        assert {kind: aio_bus.namespace.count(kind) for kind in wanted} == wanted

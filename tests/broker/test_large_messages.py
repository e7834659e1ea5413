"""Large messages: over many frames, up to the limit and not beyond it; and entities that are full."""

import datetime
import os
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusQuotaExceededError

from pairbus.broker import Broker, OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.engine.tiers import PREMIUM
from pairbus.clock import ManualClock

from .bus import Bus, opened, receive, receive_nothing
from .shells import Farewells, connect

SMALL = QueueSettings(max_size_in_megabytes=1)


async def test_a_message_over_many_frames(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    body = os.urandom(200_000)
    async with bus.queue("orders") as (sender, receiver):
        for _ in range(3):
            await sender.send_messages(ServiceBusMessage(body))
        received = await receive(receiver, 3)
        assert [b"".join(message.body) for message in received] == [body] * 3
        for message in received:
            await receiver.complete_message(message)
        units = [tally.units for tally in bus.namespace.counters() if tally.kind is OperationKind.SEND]
        assert units == [12]  # each is billed as four of 64 KB


async def test_large_messages_are_peeked_and_received_by_number(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    body = os.urandom(200_000)
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage(body))
        [peeked] = await receiver.peek_messages()
        assert b"".join(peeked.body) == body
        [message] = await receive(receiver)
        await receiver.defer_message(message)
        [deferred] = await receiver.receive_deferred_messages([message.sequence_number])
        assert b"".join(deferred.body) == body


async def test_a_message_of_the_largest_size_passes_and_one_above_does_not(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage(b"x" * 262_000))
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * 262_200))
        # The link, or one in its place, goes on.
        await sender.send_messages(ServiceBusMessage("small"))
        first, second = await receive(receiver, 2)
        assert (len(b"".join(first.body)), str(second)) == (262_000, "small")


@pytest.mark.parametrize("size", [400_000, 1_500_000, 20_000_000])
async def test_a_message_that_is_much_too_large(aio_bus: Bus, size: int) -> None:
    """It is refused by itself; the link stays."""
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.client.get_queue_sender("orders") as sender:
        with pytest.raises(
            MessageSizeExceededError, match="bytes or more"
        ):  # it is refused before its end is seen
            await sender.send_messages(ServiceBusMessage(bytes(size)))
        await sender.send_messages(ServiceBusMessage("small"))
    assert len({tally.connection for tally in aio_bus.namespace.counters()}) == 1
    assert (
        aio_bus.namespace.count(OperationKind.SEND_REFUSED)
        == aio_bus.namespace.count(OperationKind.SEND)
        == 1
    )


async def test_an_entity_may_take_larger_messages_than_its_tier_does_by_itself(
    clock: ManualClock, certificate: tuple[Path, Path], farewells: Farewells
) -> None:
    with Broker({"contoso": 0}, clock=clock, certificate=certificate, limits=PREMIUM) as broker:
        namespace = broker["contoso"]
        namespace.create_queue("usual")
        namespace.create_queue("large", QueueSettings(max_message_size_in_kilobytes=3 * 1024))
        async with connect("aio", namespace.connection_string, farewells) as client:
            links = (client.get_queue_sender("usual"), client.get_queue_sender("large"))
            async with opened(*links) as (usual, large):
                with pytest.raises(MessageSizeExceededError):
                    await usual.send_messages(ServiceBusMessage(bytes(2_000_000)))
                await large.send_messages(ServiceBusMessage(bytes(2_000_000)))
                assert (await large.create_message_batch()).max_size_in_bytes == 1024 * 1024
            async with client.get_queue_receiver("large") as receiver:
                assert len(b"".join((await receive(receiver))[0].body)) == 2_000_000


async def test_a_scheduled_message_is_measured_too(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    soon = datetime.datetime.fromtimestamp(aio_bus.clock.now() + 60, datetime.UTC)
    async with aio_bus.client.get_queue_sender("orders") as sender:
        with pytest.raises(MessageSizeExceededError):
            await sender.schedule_messages(ServiceBusMessage(b"x" * 262_200), soon)
        assert aio_bus.namespace.message_count("orders") == 0


@pytest.mark.usefixtures("relaxed")
async def test_a_full_queue_takes_nothing_until_there_is_room(bus: Bus) -> None:
    bus.namespace.create_queue("orders", SMALL)
    async with bus.queue("orders") as (sender, receiver):
        for _ in range(5):
            await sender.send_messages(ServiceBusMessage(b"x" * 200_000))
        with pytest.raises(ServiceBusQuotaExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * 200_000))
        await receiver.complete_message((await receive(receiver))[0])
        await sender.send_messages(ServiceBusMessage(b"x" * 200_000))
        assert bus.namespace.message_count("orders") == 5


@pytest.mark.usefixtures("relaxed")
async def test_dead_letters_take_room_as_well(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SMALL)
    async with aio_bus.queue("orders") as (sender, receiver):
        for _ in range(5):
            await sender.send_messages(ServiceBusMessage(b"x" * 200_000))
            await receiver.dead_letter_message((await receive(receiver))[0])
        with pytest.raises(ServiceBusQuotaExceededError):
            await sender.send_messages(ServiceBusMessage(b"x" * 200_000))
        await receive_nothing(receiver)

"""Batches: as large as the link allows, whole or not at all."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from pairbus.broker import Broker, OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.engine.tiers import PREMIUM
from pairbus.clock import ManualClock

from .bus import Bus, bodies, receive
from .shells import Farewells, connect


async def test_a_full_batch_arrives_whole_and_in_order(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        batch = await sender.create_message_batch()
        assert batch.max_size_in_bytes == 262_144
        while True:
            try:
                batch.add_message(ServiceBusMessage(f"{len(batch):08}" * 1000))
            except MessageSizeExceededError:
                break
        assert batch.size_in_bytes > 250_000
        await sender.send_messages(batch)
        received = await receive(receiver, len(batch))
        assert [int(text[:8]) for text in bodies(received)] == list(range(len(batch)))
        assert bus.namespace.count(OperationKind.SEND) == len(batch) == 32


async def test_a_list_that_is_too_long_is_not_sent(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.client.get_queue_sender("orders") as sender:
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages([ServiceBusMessage(b"x" * 100_000) for _ in range(3)])
        assert aio_bus.namespace.message_count("orders") == 0


async def test_a_batch_is_taken_whole_or_not_at_all(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", QueueSettings(requires_session=True))
    async with aio_bus.client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusError, match="session id"):
            await sender.send_messages([ServiceBusMessage("1", session_id="a"), ServiceBusMessage("2")])
        assert aio_bus.namespace.message_count("orders") == 0
        assert aio_bus.namespace.count(OperationKind.SEND_REFUSED) == 2


async def test_messages_of_a_batch_keep_what_is_their_own(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(
            [
                ServiceBusMessage("1", message_id="one", partition_key="p", application_properties={"n": 1}),
                ServiceBusMessage("2", message_id="two", subject="second"),
            ]
        )
        first, second = await receive(receiver, 2)
        assert (first.message_id, first.partition_key, first.subject) == ("one", "p", None)
        assert first.application_properties == {b"n": 1}
        assert (second.message_id, second.partition_key, second.subject) == ("two", None, "second")
        assert not second.application_properties


async def test_a_larger_tier_has_larger_batches(clock: ManualClock, farewells: Farewells) -> None:
    with Broker({"contoso": 0}, clock=clock, limits=PREMIUM) as broker:
        broker["contoso"].create_queue("orders")
        client = connect("aio", broker["contoso"].connection_string, farewells)
        async with client, client.get_queue_sender("orders") as sender:
            assert (await sender.create_message_batch()).max_size_in_bytes == 1024 * 1024
            await sender.send_messages([ServiceBusMessage(b"x" * 300_000) for _ in range(3)])
        assert broker["contoso"].message_count("orders") == 3

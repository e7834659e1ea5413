"""Peeking: everything that is there, in whatever state, and nothing is locked by it."""

import datetime
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from pairbus.amqp.events import ProtocolEvent
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.links.peer import Peer

from .bus import Bus, bodies, receive


async def test_peek_shows_every_state_and_locks_nothing(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages([ServiceBusMessage(text) for text in ("deferred", "locked", "waiting")])
        tomorrow = datetime.datetime.fromtimestamp(bus.clock.now(), datetime.UTC) + datetime.timedelta(days=1)
        await sender.schedule_messages(ServiceBusMessage("scheduled"), tomorrow)
        first, _ = await receive(receiver, 2)
        await receiver.defer_message(first)
        peeked = await receiver.peek_messages(max_message_count=10, sequence_number=1)
        assert [(str(message), message.state) for message in peeked] == [
            ("deferred", ServiceBusMessageState.DEFERRED),
            ("locked", ServiceBusMessageState.ACTIVE),
            ("waiting", ServiceBusMessageState.ACTIVE),
            ("scheduled", ServiceBusMessageState.SCHEDULED),
        ]
        assert peeked[0].delivery_count == 1
        assert peeked[2].lock_token is None
        assert peeked[2].locked_until_utc is None
        assert peeked[3].scheduled_enqueue_time_utc == tomorrow.replace(
            microsecond=tomorrow.microsecond // 1000 * 1000
        )
        assert bodies(await receive(receiver)) == ["waiting"]


async def test_peek_goes_on_where_it_stopped(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    await aio_bus.send("orders", "1", "2", "3", "4", "5")
    async with aio_bus.client.get_queue_receiver("orders") as receiver:
        assert bodies(await receiver.peek_messages(max_message_count=2)) == ["1", "2"]
        assert bodies(await receiver.peek_messages(max_message_count=2)) == ["3", "4"]
        assert bodies(await receiver.peek_messages(max_message_count=2)) == ["5"]
        assert bodies(await receiver.peek_messages(max_message_count=2)) == []
        assert bodies(await receiver.peek_messages(max_message_count=2, sequence_number=4)) == ["4", "5"]


async def test_only_a_look_at_more_than_one_message_may_take_long(
    aio_bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    aio_bus.namespace.create_queue("orders")
    await aio_bus.send("orders", "1", "2", "3")
    done_at_length: list[object] = []
    at_length = Peer.at_length

    def note(peer: Peer, event: ProtocolEvent, *how: Any) -> None:
        done_at_length.append(event)
        at_length(peer, event, *how)

    monkeypatch.setattr(Peer, "at_length", note)
    async with aio_bus.client.get_queue_receiver("orders") as receiver:
        assert bodies(await receiver.peek_messages(max_message_count=1, sequence_number=2)) == ["2"]
        assert not done_at_length
        assert bodies(await receiver.peek_messages(max_message_count=2, sequence_number=2)) == ["2", "3"]
        assert len(done_at_length) == 1


async def test_an_empty_queue_has_nothing_to_peek(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.client.get_queue_receiver("orders") as receiver:
        assert await receiver.peek_messages() == []


async def test_a_peek_ends_before_its_answer_grows_too_large(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        for _ in range(8):
            await sender.send_messages(ServiceBusMessage(b"x" * 200_000))
        seen = 0
        while page := await receiver.peek_messages(max_message_count=100):
            assert len(page) < 8
            seen += len(page)
        assert seen == 8


async def test_peek_into_the_dead_letters(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", QueueSettings(max_delivery_count=1))
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("bad"))
        await receiver.abandon_message((await receive(receiver))[0])
    async with aio_bus.client.get_queue_receiver("orders", sub_queue="deadletter") as letters:
        [letter] = await letters.peek_messages()
        assert letter.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert letter.dead_letter_source == "orders"

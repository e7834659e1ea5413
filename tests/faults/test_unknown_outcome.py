"""Sends of which the client never learns what became of them: the message is there all the same."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError

from pairbus.broker import Broker, NamespaceHandle, OperationKind, QueueSettings
from pairbus.clock import ManualClock
from tests.broker.bus import eventually

from .links import Client, outcomes_of


async def bodies(client: Client, queue: str = "orders") -> list[str]:
    peeked = await client.sdk.get_queue_receiver(queue).peek_messages(max_message_count=100)
    return [str(message) for message in peeked]


async def send_all(client: Client, count: int, **settings: Any) -> list[Any]:
    """Send numbered messages one by one on one link; what came of each."""
    sender = client.sdk.get_queue_sender("orders")
    outcomes = []
    for number in range(1, count + 1):
        message = ServiceBusMessage(str(number), **settings)
        outcomes += await outcomes_of(lambda message=message: sender.send_messages(message))  # type: ignore[misc]
    return outcomes


async def test_every_third_answer_is_lost_and_every_message_is_there(
    contoso: NamespaceHandle, certificate: tuple[Path, Path]
) -> None:
    contoso.faults.set("drop", every=3)
    async with Client(contoso, certificate[0]) as client:
        lost = ServiceBusConnectionError
        assert await send_all(client, 7) == [None, None, lost, None, None, lost, None]
        assert await bodies(client) == ["1", "2", "3", "4", "5", "6", "7"]
    assert contoso.count(OperationKind.SEND, entity="orders") == 7
    assert contoso.count(OperationKind.SEND_REFUSED) == 0


async def test_only_the_connection_of_the_lost_answer_is_cut(
    contoso: NamespaceHandle, certificate: tuple[Path, Path]
) -> None:
    async with Client(contoso, certificate[0]) as client:
        send, bystander = client.sender(), client.sender()
        await outcomes_of(send, bystander)
        contoso.faults.set("drop", entity="orders", every=1)
        assert await outcomes_of(send) == [ServiceBusConnectionError]
        contoso.faults.clear()
        open_before = {info.name for info in contoso.connections() if info.closed_at is None}
        await bystander()
        open_after = {info.name for info in contoso.connections() if info.closed_at is None}
        assert open_before == open_after


async def test_a_batch_is_lost_or_not_as_a_whole(
    contoso: NamespaceHandle, certificate: tuple[Path, Path]
) -> None:
    contoso.faults.set("drop", every=2)
    async with Client(contoso, certificate[0]) as client:
        sender = client.sdk.get_queue_sender("orders")
        batch = [ServiceBusMessage(text) for text in "abc"]
        assert await outcomes_of(lambda: sender.send_messages(batch)) == [None]
        assert await outcomes_of(lambda: sender.send_messages(batch)) == [ServiceBusConnectionError]
        assert await bodies(client) == ["a", "b", "c"] * 2


async def test_the_sdk_sends_it_again_and_duplicate_detection_makes_one_of_two(
    contoso: NamespaceHandle, certificate: tuple[Path, Path]
) -> None:
    contoso.create_queue("exact", QueueSettings(requires_duplicate_detection=True))
    async with Client(contoso, certificate[0], retries=3) as client:
        for queue in ("exact", "other"):
            contoso.faults.set("drop", entity=queue, every=2)
            sender = client.sdk.get_queue_sender(queue)
            await sender.send_messages(ServiceBusMessage("first", message_id="1"))
            await sender.send_messages(ServiceBusMessage("second", message_id="2"))
        assert await bodies(client, "exact") == ["first", "second"]
        assert await bodies(client, "other") == ["first", "second", "second"]


@pytest.mark.parametrize("kind", ["refuse", "reset", "silence"])
async def test_a_late_answer_finds_nobody_and_nothing_happens(
    kind: str,
    broker: Broker,
    contoso: NamespaceHandle,
    clock: ManualClock,
    certificate: tuple[Path, Path],
) -> None:
    async with Client(contoso, certificate[0]) as client:
        contoso.faults.set("delay", seconds=5)
        sending = outcomes_of(client.sender())
        outcome = asyncio.ensure_future(sending)
        await eventually(lambda: contoso.message_count("orders") == 1)
        contoso.faults.set(kind)
        clock.advance(5)
        broker.tick()
        contoso.faults.clear()
        assert await outcome == [ServiceBusConnectionError]
        assert await bodies(client) == ["a message"]

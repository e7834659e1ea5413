"""A disk without room: senders are told, nothing that was confirmed is lost, and it heals when there is room.

The broker's process may not let its files grow beyond a size. To SQLite that is a write that fails, as on a
full disk, and it needs neither privileges nor a file system of its own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError

from tests.crash.journal import Fate, Journal
from tests.crash.process import BrokerProcess
from tests.crash.survey import survey

QUEUE, SESSION_QUEUE = "orders", "visits"
BODY = "x" * 20_000
ROOM = 600_000
MOST = 200


@asynccontextmanager
async def sending(broker: BrokerProcess) -> AsyncIterator[ServiceBusSender]:
    """The official sender, which gives up at the first failure."""
    connection_string = broker.connection_string
    async with (
        ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        yield sender


async def send(broker: BrokerProcess, journal: Journal, message_id: str) -> None:
    number = journal.begin(message_id, Fate.ACTIVE)
    async with sending(broker) as sender:
        await sender.send_messages(ServiceBusMessage(BODY, message_id=message_id))
    journal.confirm(message_id, number)


async def send_until_refused(broker: BrokerProcess, journal: Journal) -> None:
    async with sending(broker) as sender:
        for count in range(MOST):
            number = journal.begin(f"m{count}", Fate.ACTIVE)
            try:
                await sender.send_messages(ServiceBusMessage(BODY, message_id=f"m{count}"))
            except ServiceBusError:
                return
            journal.confirm(f"m{count}", number)
    raise AssertionError(f"{MOST} messages of {len(BODY)} bytes went into {ROOM} bytes")


async def look(broker: BrokerProcess, journal: Journal) -> list[str]:
    """What is wrong with what the broker has."""
    return journal.judge(
        *await survey(broker.connection_string, queue=QUEUE, session_queue=SESSION_QUEUE, sessions=[])
    )


async def test_a_full_disk_is_told_and_heals(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal()
    with BrokerProcess(tmp_path) as broker:
        with broker.administer() as administration:
            administration.create_queue(QUEUE)
        broker.limit_files(ROOM)
        await send_until_refused(broker, journal)
        assert "could not store the request: store.db:" in caplog.text, "the SDK logs why it was cut off"
        assert journal.confirmed >= 5
        with pytest.raises(ServiceBusError):
            await send(broker, journal, "still full")
        assert await look(broker, journal) == [], "reading goes on"
        broker.limit_files(None)
        await send(broker, journal, "room again")
        assert await look(broker, journal) == []
        broker.kill()
        broker.start()
        assert await look(broker, journal) == []
        await send(broker, journal, "after the restart")
        assert await look(broker, journal) == []


async def test_a_disk_that_is_full_at_the_kill_is_no_harm(tmp_path: Path) -> None:
    journal = Journal()
    with BrokerProcess(tmp_path) as broker:
        with broker.administer() as administration:
            administration.create_queue(QUEUE)
        broker.limit_files(ROOM)
        await send_until_refused(broker, journal)
        broker.kill()
        broker.start()
        assert await look(broker, journal) == []
        await send(broker, journal, "after the restart")
        assert await look(broker, journal) == []

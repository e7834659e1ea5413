"""What crossed the wire is counted to the last operation, under one spelling, by connection."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.amqp.events import LinkFlowed, TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import Accepted
from pairbus.amqp.sasl import SaslClient
from pairbus.broker import Broker, NamespaceHandle, OperationKind, QueueSettings
from pairbus.clock import ManualClock
from tests.broker.bus import eventually, is_awaited
from tests.broker.raw import RawClient
from tests.faults.links import Client

NEVER = 0.05  # how long a receive waits that finds nothing, in real time


def counted(namespace: NamespaceHandle, entity: str = "orders") -> dict[OperationKind, int]:
    return {kind: count for kind in OperationKind if (count := namespace.count(kind, entity=entity))}


@pytest.fixture
def trusted(certificate: tuple[Path, Path]) -> Path:
    return certificate[0]


# -- empty receives


@pytest.mark.parametrize("receives", [0, 1, 3])
async def test_each_receive_that_finds_nothing_is_one(
    receives: int, contoso: NamespaceHandle, trusted: Path
) -> None:
    async with Client(contoso, trusted) as client:
        receiver = client.sdk.get_queue_receiver("orders")
        async with receiver:
            for _ in range(receives):
                assert await receiver.receive_messages(max_wait_time=NEVER) == []
    await eventually(lambda: contoso.count(OperationKind.EMPTY_RECEIVE) == receives)
    assert counted(contoso) == ({OperationKind.EMPTY_RECEIVE: receives} if receives else {})


async def test_prefetch_is_one_grant_however_often_is_asked(contoso: NamespaceHandle, trusted: Path) -> None:
    async with Client(contoso, trusted) as client:
        receiver = client.sdk.get_queue_receiver("orders", prefetch_count=10)
        async with receiver:
            for _ in range(3):
                assert await receiver.receive_messages(max_wait_time=NEVER) == []
            assert counted(contoso) == {}
    await eventually(lambda: contoso.count(OperationKind.EMPTY_RECEIVE) == 1)
    assert counted(contoso) == {OperationKind.EMPTY_RECEIVE: 1}


async def test_a_grant_that_brought_a_message_was_not_empty(contoso: NamespaceHandle, trusted: Path) -> None:
    async with Client(contoso, trusted) as client:
        await client.sender()()
        receiver = client.sdk.get_queue_receiver("orders")
        async with receiver:
            (message,) = await receiver.receive_messages(max_message_count=10, max_wait_time=5)
            await receiver.complete_message(message)
    # A grant is counted at the latest when its connection ends.
    await eventually(lambda: all(one.closed_at is not None for one in contoso.connections()))
    assert counted(contoso) == {OperationKind.SEND: 1, OperationKind.DELIVERY: 1, OperationKind.COMPLETE: 1}


async def test_a_receiver_that_is_cut_off_has_received_nothing(
    broker: Broker, contoso: NamespaceHandle, trusted: Path
) -> None:
    async with Client(contoso, trusted) as client:
        receiver = client.sdk.get_queue_receiver("orders")
        async with receiver:
            waiting = asyncio.ensure_future(receiver.receive_messages(max_wait_time=30))
            await eventually(lambda: is_awaited(broker))
            contoso.faults.set("refuse")
            with pytest.raises(ServiceBusError):
                await waiting
    assert counted(contoso) == {OperationKind.EMPTY_RECEIVE: 1}


@contextmanager
def raw_receiver(namespace: NamespaceHandle) -> Iterator[tuple[RawClient, Link]]:
    parts = dict(part.split("=", 1) for part in namespace.connection_string.split(";") if part)
    sasl = SaslClient.plain(parts["SharedAccessKeyName"], parts["SharedAccessKey"])
    with RawClient.connected(namespace.port, sasl) as client:
        yield client, client.attach("orders", sends=False)


def flow(client: RawClient, link: Link, credit: int, *, drain: bool = False) -> None:
    link.flow(credit, drain=drain)
    client.flush()
    if drain:
        assert client.await_event(LinkFlowed).credit == 0


def test_a_drain_is_the_end_of_its_grant_and_no_other(contoso: NamespaceHandle) -> None:
    """The JavaScript client drains with the credit that it gave before."""
    with raw_receiver(contoso) as (client, link):
        flow(client, link, 5)
        flow(client, link, 5, drain=True)
        assert counted(contoso) == {OperationKind.EMPTY_RECEIVE: 1}
        flow(client, link, 5, drain=True)  # asked and drained in one
        assert counted(contoso) == {OperationKind.EMPTY_RECEIVE: 2}
        flow(client, link, 0, drain=True)  # nothing was asked for
        assert counted(contoso) == {OperationKind.EMPTY_RECEIVE: 2}


def test_a_grant_that_is_taken_back_or_renewed_has_ended(contoso: NamespaceHandle) -> None:
    with raw_receiver(contoso) as (client, link):
        flow(client, link, 5)
        flow(client, link, 5)
        flow(client, link, 0)
        flow(client, link, 0, drain=True)
        assert counted(contoso) == {OperationKind.EMPTY_RECEIVE: 2}


async def test_a_renewal_after_a_message_is_a_new_grant(contoso: NamespaceHandle, trusted: Path) -> None:
    async with Client(contoso, trusted) as client:
        await client.sender()()
    with raw_receiver(contoso) as (raw, link):
        flow(raw, link, 5)
        delivery = raw.await_event(TransferReceived)
        link.settle(delivery.delivery_id, Accepted())
        flow(raw, link, 5)  # ends the grant that brought the message
        flow(raw, link, 5, drain=True)  # ends the one that did not
    assert counted(contoso) == {
        OperationKind.SEND: 1,
        OperationKind.DELIVERY: 1,
        OperationKind.COMPLETE: 1,
        OperationKind.EMPTY_RECEIVE: 1,
    }


# -- everything else


async def test_what_is_refused_is_counted_as_refused(contoso: NamespaceHandle, trusted: Path) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    async with Client(contoso, trusted) as client:
        sender = client.sdk.get_queue_sender("orders")
        contoso.faults.set("full")
        ping = ServiceBusMessage("", content_type="application/vnd.ms-servicebus-ping")
        for messages in (ServiceBusMessage("1"), [ServiceBusMessage("2"), ServiceBusMessage("3")], ping):
            with pytest.raises(ServiceBusError):
                await sender.send_messages(messages)
        with pytest.raises(ServiceBusError):
            await sender.schedule_messages(ServiceBusMessage("4"), later)
    assert counted(contoso) == {OperationKind.SEND_REFUSED: 5, OperationKind.MANAGEMENT: 1}


async def test_a_settlement_that_comes_too_late_was_asked_for(
    broker: Broker, contoso: NamespaceHandle, clock: ManualClock, trusted: Path
) -> None:
    async with Client(contoso, trusted) as client:
        await client.sender()()
        receiver = client.sdk.get_queue_receiver("orders")
        (message,) = await receiver.receive_messages(max_wait_time=5)
        clock.advance(60)
        broker.tick()
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        assert contoso.count(OperationKind.COMPLETE) == 1


async def test_units_follow_the_bytes(contoso: NamespaceHandle, trusted: Path) -> None:
    async with Client(contoso, trusted) as client:
        sender, receiver = client.sdk.get_queue_sender("orders"), client.sdk.get_queue_receiver("orders")
        units = {OperationKind.SEND: 0, OperationKind.DELIVERY: 0}
        for size, more in ((10, 1), (65_000, 1), (66_000, 2), (200_000, 4)):
            await sender.send_messages(ServiceBusMessage(bytes(size)))
            (message,) = await receiver.receive_messages(max_wait_time=5)
            await receiver.complete_message(message)
            for kind in units:
                units[kind] += more
                (tally,) = [tally for tally in contoso.counters() if tally.kind is kind]
                assert tally.units == units[kind]
                assert tally.bytes > size
    (completed,) = [tally for tally in contoso.counters() if tally.kind is OperationKind.COMPLETE]
    assert (completed.count, completed.units, completed.bytes) == (4, 4, 0)


async def test_what_is_scheduled_is_a_request_and_sends(contoso: NamespaceHandle, trusted: Path) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    async with Client(contoso, trusted) as client:
        sender = client.sdk.get_queue_sender("orders")
        await sender.schedule_messages([ServiceBusMessage(bytes(70_000)) for _ in range(2)], later)
    tallies = {tally.kind: tally for tally in contoso.counters()}
    assert tallies.keys() == {OperationKind.MANAGEMENT, OperationKind.SEND}
    assert (tallies[OperationKind.SEND].count, tallies[OperationKind.SEND].units) == (2, 4)
    assert (tallies[OperationKind.MANAGEMENT].count, tallies[OperationKind.MANAGEMENT].units) == (1, 1)


async def test_a_topic_is_one_send_and_a_delivery_for_each_subscription(
    contoso: NamespaceHandle, trusted: Path
) -> None:
    contoso.create_topic("News")
    for name in ("a", "b", "c"):
        contoso.create_subscription("news", name)
    async with Client(contoso, trusted) as client:
        await client.sdk.get_topic_sender("news").send_messages(ServiceBusMessage("1"))
        for name in ("a", "b", "c"):
            receiver = client.sdk.get_subscription_receiver("NEWS", name)
            (message,) = await receiver.receive_messages(max_wait_time=5)
            await receiver.complete_message(message)
    tallies = [(tally.entity, tally.kind, tally.count) for tally in contoso.counters()]
    assert tallies == [
        ("News", OperationKind.SEND, 1),
        *((f"News/Subscriptions/{name}", kind, 1) for name in "abc" for kind in ("complete", "delivery")),
    ]


async def test_sessions_are_requests(contoso: NamespaceHandle, trusted: Path) -> None:
    contoso.create_queue("chats", QueueSettings(requires_session=True))
    async with Client(contoso, trusted) as client:
        await client.sdk.get_queue_sender("chats").send_messages(ServiceBusMessage("1", session_id="s"))
        receiver = client.sdk.get_queue_receiver("chats", session_id="s")
        async with receiver:
            await receiver.session.set_state(b"state")
            await receiver.session.get_state()
            await receiver.session.renew_lock()
            (message,) = await receiver.receive_messages(max_wait_time=5)
            await receiver.complete_message(message)
    wanted = {
        OperationKind.SEND: 1,
        OperationKind.MANAGEMENT: 3,
        OperationKind.DELIVERY: 1,
        OperationKind.COMPLETE: 1,
    }
    assert counted(contoso, "chats") == wanted


async def test_one_entity_has_one_spelling_whoever_names_it(contoso: NamespaceHandle, trusted: Path) -> None:
    contoso.create_queue("Invoices")
    text = contoso.connection_string
    with ServiceBusAdministrationClient.from_connection_string(text, connection_verify=str(trusted)) as admin:
        admin.get_queue("inVoices")
    async with Client(contoso, trusted) as client:
        await client.sdk.get_queue_sender("invoices").send_messages(ServiceBusMessage("1"))
        receiver = client.sdk.get_queue_receiver("INVOICES")
        await receiver.peek_messages()
        (message,) = await receiver.receive_messages(max_wait_time=5)
        await receiver.dead_letter_message(message)
        dead = client.sdk.get_queue_receiver("INVOICES", sub_queue="deadletter")
        assert await dead.peek_messages()
    entities = {(tally.entity, tally.kind.value) for tally in contoso.counters()}
    operations = ("admin", "send", "management", "delivery", "dead_letter")
    assert entities == {
        *(("Invoices", kind) for kind in operations),
        ("Invoices/$DeadLetterQueue", "management"),
    }


def test_administration_is_counted_by_entity(contoso: NamespaceHandle, trusted: Path) -> None:
    text = contoso.connection_string
    with ServiceBusAdministrationClient.from_connection_string(text, connection_verify=str(trusted)) as admin:
        admin.create_queue("more")
        admin.get_queue_runtime_properties("More")
        admin.delete_queue("more")
        admin.create_topic("news")
        admin.create_subscription("news", "s")
        assert len(list(admin.list_rules("NEWS", "s"))) == 1
        assert len(list(admin.list_queues())) == 2
        with pytest.raises(ResourceNotFoundError):
            admin.get_queue("no such")
    counted_by_entity = {tally.entity: tally.count for tally in contoso.counters()}
    assert counted_by_entity == {"more": 3, "news": 1, "news/Subscriptions/s": 2, "$namespace": 2}
    (connection,) = {tally.connection for tally in contoso.counters()}
    (info,) = [info for info in contoso.connections() if info.name == connection]
    assert info.protocol == "http"
    assert "azsdk-python" in info.client["user-agent"]


@pytest.mark.parametrize("kind", ["silence", "blackhole"])
async def test_what_a_mute_entity_swallows_is_not_counted(
    kind: str, contoso: NamespaceHandle, trusted: Path
) -> None:
    async with Client(contoso, trusted) as client:
        send = client.sender()
        await send()
        contoso.faults.set(kind, entity="orders")
        with pytest.raises(ServiceBusError):
            await send(0.3)
    assert counted(contoso) == {OperationKind.SEND: 1}
    assert contoso.message_count("orders") == 1


@pytest.mark.parametrize(("kind", "entity"), [("busy", "orders"), ("blackhole", None)])
async def test_messages_stay_where_they_are_while_nobody_can_get_them(
    kind: str,
    entity: str | None,
    broker: Broker,
    contoso: NamespaceHandle,
    clock: ManualClock,
    trusted: Path,
) -> None:
    """A fault that keeps receivers from getting anything must not lock messages for them either."""
    soon = datetime.fromtimestamp(clock.now() + 60, UTC)
    async with Client(contoso, trusted) as client:
        await client.sdk.get_queue_sender("orders").schedule_messages(ServiceBusMessage("1"), soon)
        receiver = client.sdk.get_queue_receiver("orders")
        await receiver.__aenter__()  # on a busy machine a link takes its time to open
        assert await receiver.receive_messages(max_wait_time=NEVER * 10) == []  # its credit stays
        contoso.faults.set(kind, entity=entity)
        clock.advance(60)
        broker.tick()
        assert contoso.count(OperationKind.DELIVERY) == 0
        contoso.faults.clear()
        await eventually(lambda: contoso.count(OperationKind.DELIVERY) == 1)
        (message,) = await receiver.receive_messages(max_wait_time=5)
        assert message.delivery_count == 0
        await receiver.complete_message(message)


# -- whose they are


async def test_a_clients_own_connections_can_be_picked_out(contoso: NamespaceHandle, trusted: Path) -> None:
    def client(name: str) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            contoso.connection_string, user_agent=name, connection_verify=str(trusted)
        )

    async with client("pump") as pump, client("application") as application:
        for sdk, count in ((pump, 2), (application, 3)):
            async with sdk.get_queue_sender("orders") as sender:
                for _ in range(count):
                    await sender.send_messages(ServiceBusMessage("1"))
        still_open = pump.get_queue_sender("other")
        async with still_open:
            infos = contoso.connections()
            mine = [info for info in infos if info.client["user-agent"].startswith("pump ")]
            assert [info.closed_at is None for info in mine] == [False, True]
            assert {info.protocol for info in infos} == {"amqp"}
            assert all(info.container_id and info.container_id.startswith("SBSender") for info in infos)
            assert all(info.address.startswith("127.0.0.1:") for info in infos)
    sends = sum(contoso.count(OperationKind.SEND, connection=info.name) for info in mine)
    assert sends == 2
    assert contoso.count(OperationKind.SEND) == 5


def test_a_counter_names_a_connection_that_is_listed(contoso: NamespaceHandle) -> None:
    with raw_receiver(contoso) as (client, link):
        flow(client, link, 5, drain=True)
        (tally,) = contoso.counters()
        (info,) = [info for info in contoso.connections() if info.name == tally.connection]
        assert info.container_id == "raw"
        assert info.address == ":".join(str(part) for part in client.socket.getsockname())

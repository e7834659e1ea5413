"""What client and pump write down is what the broker counts on their connections."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.aio import PairedServiceBusClient
from pairbus.broker.counters import OperationKind
from pairbus.broker.handle import NamespaceHandle
from pairbus.client.fleet.amqp_fleet_line import FleetWay
from pairbus.clock import SystemClock
from pairbus.cost.transfer import sum_transfer
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.operations import KIND, Ledger, Operation, read_operations
from pairbus.ledger.segment import adopt_segments, closed_segments
from pairbus.options import EntityState
from pairbus.pump import sdk_transport
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import Pump
from tests.client.scene import BACKLOG, TRANSPORT, Scene, eventually, text

# In the time of the hurried loop; an attempt has three of our seconds, which a busy machine must not take.
QUICK: dict[str, Any] = {
    "failover_interval": 100.0,
    "send_timeout": 100.0,
    "ping_timeout": 100.0,
    "ping_primary_interval": 25.0,
    "on_suspect": "raise",
    "share_pings": False,  # a fleet has a writer of its own
}
# Namespace, entity, kind, and whether it is operations or what is billed for them.
Cells = Counter[tuple[str, str, str, str]]
# Kinds that carry a message: of the others the bytes are those of a request, which nobody pays for.
CARRYING = {"send", "send_refused", "ping", "delivery"}


def read(state: Path) -> Ledger:
    records = state / "records"
    adopt_segments(records, KIND)
    return read_operations(closed_segments(records, KIND))


def recorded(operations: Iterable[Operation], *, unknown: bool = False) -> Cells:
    """How often each namespace did each kind to each entity, and what is billed for it."""
    cells: Cells = Counter()
    for one in operations:
        amount = one.unknown if unknown else one.count
        cells[one.namespace, one.entity.lower(), one.kind, "count"] += amount
        cells[one.namespace, one.entity.lower(), one.kind, "units"] += amount * one.size_class
    return +cells


def counted(*namespaces: NamespaceHandle) -> Cells:
    """The same as the broker has it."""
    cells: Cells = Counter()
    for namespace in namespaces:
        for tally in namespace.counters():
            cells[namespace.name, tally.entity.lower(), tally.kind.value, "count"] += tally.count
            cells[namespace.name, tally.entity.lower(), tally.kind.value, "units"] += tally.units
    return +cells


def bytes_recorded(operations: Iterable[Operation]) -> Counter[tuple[str, str, str]]:
    found = Counter[tuple[str, str, str]]()
    for one in operations:
        found[one.namespace, one.entity.lower(), one.kind] += one.bytes if one.kind in CARRYING else 0
    return +found


def bytes_counted(*namespaces: NamespaceHandle) -> Counter[tuple[str, str, str]]:
    found = Counter[tuple[str, str, str]]()
    for namespace in namespaces:
        for tally in namespace.counters():
            kind = tally.kind.value
            found[namespace.name, tally.entity.lower(), kind] += tally.bytes if kind in CARRYING else 0
    return +found


def ways_recorded(operations: Iterable[Operation]) -> dict[tuple[str, str], int]:
    """Bytes of messages by side and direction, as a report sums them up."""
    carried = sum_transfer((one.stage, one.bytes) for one in operations if one.kind in CARRYING)
    return {(one.region, one.direction): one.bytes for one in carried}


def ways_counted(scene: Scene) -> dict[tuple[str, str], int]:
    """The same as the broker has it: what was delivered came out, all else went in."""
    found = Counter[tuple[str, str]]()
    for region, namespace in (("primary", scene.primary), ("secondary", scene.secondary)):
        for (_, _, kind), size in bytes_counted(namespace).items():
            found[region, "out" if kind == "delivery" else "in"] += size
    return found


async def until_provisioned(client: PairedServiceBusClient) -> None:
    await eventually(lambda: client.status().provisioning == "ready", what="the end of provisioning")


async def fail_over_and_back(scene: Scene, client: PairedServiceBusClient) -> None:
    """An outage in which the primary answers, and refuses; nothing is on its way when the failover comes."""
    sender = client.get_queue_sender("orders")
    scene.primary.faults.set("error", entity="orders")
    with pytest.raises(ServiceBusError):
        await sender.send_messages([text("refused"), text("with it")])
    client.fail_over("orders")
    for number in range(10):
        await sender.send_messages([text(f"{number}-{each}") for each in range(3)])
    await eventually(lambda: len(scene.diary.pings) >= 2)
    scene.primary.faults.clear()
    await eventually(lambda: scene.state() is EntityState.HEALTHY)


async def use(scene: Scene, client: PairedServiceBusClient) -> None:
    """All that a client does: sends of all sizes, a schedule, an outage."""
    sender = client.get_queue_sender("orders")
    for number in range(20):
        await sender.send_messages(text(f"before-{number}"))
    await sender.send_messages([text("one"), text("two")])
    numbers = await sender.schedule_messages([text("later")], datetime.now(UTC) + timedelta(hours=1))
    await sender.cancel_scheduled_messages(numbers)
    await client.get_queue_sender("large").send_messages(ServiceBusMessage(b"x" * 150_000))
    await fail_over_and_back(scene, client)
    await sender.send_messages(text("after"))


def pump(
    scene: Scene, state: Path, *, transport: Literal["amqp", "sdk"] = "amqp", wait: float = 50.0
) -> Pump:
    primary, secondary = scene.primary.connection_string, scene.secondary.connection_string
    # By default a second of ours for what is there to come, so that no delivery crosses with a new grant.
    options = PumpOptions(drain=True, drain_wait=wait, send_timeout=500.0, transport=transport)
    return Pump(
        PumpPair.from_connection_strings(primary, secondary),
        BACKLOG,
        options=options,
        ledger=OperationLog(state / "records", role="pump", pair="contoso"),
    )


async def test_client_and_pump_record_what_the_broker_counts(scene: Scene, tmp_path: Path) -> None:
    """Invariant I8: entity by entity, kind by kind, to the last one."""
    scene.primary.create_queue("large")
    scene.primary.create_queue("bulky")
    client = scene.client(state_dir=tmp_path, **QUICK)
    async with client:
        await until_provisioned(client)
        await use(scene, client)
        client.fail_over("bulky")
        await client.get_queue_sender("bulky").send_messages(ServiceBusMessage(b"y" * 100_000))
    done = await pump(scene, tmp_path).run()
    assert done.moved == 31
    ledger = read(tmp_path)
    found = recorded(ledger.operations)
    assert found == counted(scene.primary, scene.secondary)
    assert bytes_recorded(ledger.operations) == bytes_counted(scene.primary, scene.secondary)
    assert ways_recorded(ledger.operations) == ways_counted(scene)
    assert recorded(ledger.operations, unknown=True) == Counter()
    assert found["contoso", "large", "send", "units"] == 3
    assert found["contoso", "bulky", "send", "units"] == 2
    assert found["contoso", "orders", "management", "count"] == 2
    of_kind = Counter[str]()
    for (_, _, kind, what), amount in found.items():
        of_kind[kind] += amount if what == "count" else 0
    assert of_kind["delivery"] == of_kind["complete"] == 31
    assert of_kind["empty_receive"] >= 1  # how many a drain needs is the pump's own business
    assert of_kind["ping"] >= 1
    # Each queue was looked for, and then others; that of the lease was looked for, and made.
    assert of_kind["admin"] == len(BACKLOG) + 1 + 2
    assert {mark.role for mark in ledger.writers} == {"client", "pump"}
    assert ledger.bad == 0


async def test_what_goes_to_the_backlog_together_is_recorded_one_by_one(scene: Scene, tmp_path: Path) -> None:
    """Invariant I8, also where a whole batch is refused."""
    client = scene.client(state_dir=tmp_path, **QUICK)
    async with client:
        await until_provisioned(client)
        client.fail_over("orders")
        sender = client.get_queue_sender("orders")
        await sender.send_messages(text("first"))
        for condition in (None, "com.microsoft:argument-error"):
            if condition is not None:
                scene.secondary.faults.set("error", condition=condition)
            messages = [*map(text, "abcdefghij"), ServiceBusMessage(b"y" * 100_000)]
            await asyncio.gather(*map(sender.send_messages, messages), return_exceptions=True)
    sent = [one for one in read(tmp_path).operations if one.stage == "backlog_send"]
    found = counted(scene.secondary)
    assert recorded(sent) == {key: count for key, count in found.items() if key[2].startswith("send")}
    assert bytes_recorded(sent) == bytes_counted(scene.secondary)
    assert recorded(sent, unknown=True) == Counter()
    assert scene.secondary.count(OperationKind.SEND) == 12
    refused = scene.secondary.count(OperationKind.SEND_REFUSED)
    assert refused > 11 if TRANSPORT == "sdk" else refused == 11


async def test_an_outage_is_marked_and_its_operations_belong_to_it(scene: Scene, tmp_path: Path) -> None:
    client = scene.client(state_dir=tmp_path, **QUICK)
    async with client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(text("before"))
        await fail_over_and_back(scene, client)
    ledger = read(tmp_path)
    begun, ended = ledger.outages
    assert (begun.begins, ended.begins) == (True, False)
    assert begun.outage == ended.outage
    assert begun.at <= ended.at
    of_it = {one.stage for one in ledger.operations if one.outage == begun.outage}
    assert of_it == {"backlog_send", "ping"}
    phases = [mark.phase for mark in ledger.writers]
    assert (phases[0], phases[-1]) == ("begin", "end")  # a busy machine takes an interval or two between


async def test_answers_that_are_lost_are_counted_as_unknown(scene: Scene, tmp_path: Path) -> None:
    """Invariant I8: the broker has counted at least what is known, and at most that and what is unknown."""
    client = scene.client(state_dir=tmp_path, **{**QUICK, "send_timeout": 25.0})
    lost = 0
    async with client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(text("first"))
        scene.primary.faults.set("drop", every=3)
        for number in range(8):
            try:
                await sender.send_messages(text(f"{number}"))
            except ServiceBusError:
                lost += 1
            except asyncio.CancelledError:
                pytest.fail("nobody cancelled it")
        scene.primary.faults.clear()
    assert lost > 0
    ledger = read(tmp_path)
    known, unknown = recorded(ledger.operations), recorded(ledger.operations, unknown=True)
    found = counted(scene.primary, scene.secondary)
    assert unknown.total() > 0
    assert found != known
    for cell in known | unknown | found:
        assert known[cell] <= found[cell] <= known[cell] + unknown[cell], cell


async def test_a_caller_that_is_cancelled_leaves_an_unknown_outcome(scene: Scene, tmp_path: Path) -> None:
    client = scene.client(state_dir=tmp_path, **QUICK)
    async with client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(text("first"))
        scene.primary.faults.set("delay", seconds=600.0)
        sending = asyncio.ensure_future(sender.send_messages(text("cancelled")))
        await eventually(lambda: scene.primary.count(OperationKind.SEND) == 2)
        sending.cancel()
        await asyncio.wait({sending})
        scene.primary.faults.clear()
    ledger = read(tmp_path)
    once = Counter({("contoso", "orders", "send", "count"): 1, ("contoso", "orders", "send", "units"): 1})
    sends = [one for one in ledger.operations if one.namespace == "contoso"]
    assert recorded(sends) == once
    assert recorded(sends, unknown=True) == once


async def test_the_requests_of_the_provisioner_are_recorded(scene: Scene, tmp_path: Path) -> None:
    """They are billed as well: queues that are there, queues that are made, and the list of all."""
    async with scene.client(state_dir=tmp_path, backlog_queue_count=5) as client:
        await until_provisioned(client)
    found = recorded(read(tmp_path).operations)
    assert found == counted(scene.primary, scene.secondary)
    of_entity = {entity: amount for (_, entity, _, what), amount in found.items() if what == "count"}
    # Two queues and that of the lease were not there, so that nobody's account was asked; each was then made.
    assert of_entity == {
        **{f"contoso/x-servicebus-transfer/{index}": 1 for index in range(5)},
        "contoso/x-pairbus-syphon": 1,
        "$namespace": 4,
    }


async def test_what_clients_of_a_fleet_tell_each_other_is_recorded(scene: Scene, tmp_path: Path) -> None:
    """To the last word; locks, had or refused, are not billed."""
    async with scene.client(state_dir=tmp_path, **QUICK) as client:
        await until_provisioned(client)
        way = FleetWay(
            client.pair.secondary, name="contoso", records=tmp_path / "records", clock=SystemClock()
        )
        one, other = way.open(), way.open()
        lock = await one.lock("slot")
        assert lock is not None
        assert await other.lock("slot") is None
        lock.release()
        texts = [b"all is well", b"all is well", b"x" * 100_000]
        await one.post(texts[0], copies=2, life=600.0)
        await one.post(texts[2], copies=1, life=600.0)
        heard = [await other.hear(600.0) for _ in texts]
        assert sorted(map(bytes, filter(None, heard))) == texts
        await one.close()
        await other.close()
        await way.close()
    operations = read(tmp_path).operations
    assert recorded(operations) == counted(scene.primary, scene.secondary)
    assert ways_recorded(operations) == ways_counted(scene)
    words = [one for one in operations if one.stage in ("word", "word_receive")]
    queue = "contoso-dr", "contoso/x-pairbus-syphon"
    assert recorded(words) == {
        (*queue, "send", "count"): 3,
        (*queue, "send", "units"): 4,
        (*queue, "delivery", "count"): 3,
        (*queue, "delivery", "units"): 4,
    }


async def redirect(client: PairedServiceBusClient, messages: int) -> None:
    """Have messages in the backlog, and the entity back before anybody pings."""
    client.fail_over("orders")
    sender = client.get_queue_sender("orders")
    for number in range(messages):
        await sender.send_messages(text(f"redirected-{number}"))
    client.mark_path_healthy("orders")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's receives wait in real time, and a drain for the last of them."""
    monkeypatch.setattr(sdk_transport, "LONGEST_WAIT", 0.5)


async def test_a_pump_on_the_sdk_records_what_the_broker_counts(scene: Scene, tmp_path: Path) -> None:
    """To the last one too, but for empty receives, of which the SDK does not show all."""
    async with scene.client(state_dir=tmp_path, **QUICK) as client:
        await until_provisioned(client)
        await redirect(client, 12)
    done = await pump(scene, tmp_path, transport="sdk", wait=5.0).run()
    assert done.moved == 12
    found, expected = recorded(read(tmp_path).operations), counted(scene.primary, scene.secondary)
    assert without_idle(found) == without_idle(expected)


def without_idle(cells: Cells) -> Cells:
    return Counter({cell: amount for cell, amount in cells.items() if cell[2] != "empty_receive"})


@pytest.mark.parametrize("transport", ["amqp", "sdk"])
async def test_answers_that_a_pump_loses_are_counted_as_unknown(
    scene: Scene, tmp_path: Path, transport: Literal["amqp", "sdk"]
) -> None:
    """Invariant I8 for client and pump together: they differ by the unknown outcomes, and by no more."""
    async with scene.client(state_dir=tmp_path, **QUICK) as client:
        await until_provisioned(client)
        await redirect(client, 12)
    scene.primary.faults.set("drop", every=1)
    cut = await pump(scene, tmp_path, transport=transport, wait=5.0).run()
    scene.primary.faults.clear()
    rest = await pump(scene, tmp_path, transport=transport, wait=5.0).run()
    assert cut.moved + rest.moved == 12
    ledger = read(tmp_path)
    known, unknown = recorded(ledger.operations), recorded(ledger.operations, unknown=True)
    found = counted(scene.primary, scene.secondary)
    assert unknown.total() > 0
    for cell in without_idle(known | unknown | found):
        assert known[cell] <= found[cell] <= known[cell] + unknown[cell], cell

"""The pre-flight check against embedded namespaces.

A check takes the SDK a second or two of waiting, whatever it finds. So all of them run at once, each with the
pair that it needs, and the tests look at the reports.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from pairbus.backlog.depth import read_depth
from pairbus.backlog.findings import Plan
from pairbus.backlog.preflight import Preflight, PreflightReport
from pairbus.broker import Broker
from pairbus.broker.engine.settings import EntityStatus, NamespaceLimits, QueueSettings, TopicSettings
from pairbus.broker.engine.tiers import PREMIUM, STANDARD
from pairbus.options import SendAvailabilityOptions
from pairbus.sdk.side import SdkSide

from .bench import provisioner

WEEK = 604_800.0
SAFE = QueueSettings(requires_duplicate_detection=True, duplicate_detection_history_time_window=WEEK)
COUNT = 2
QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(COUNT)]
FREE = COUNT * 5120 * 1024**2


async def check(
    primary: str,
    secondary: str,
    *,
    entities: Sequence[str] = (),
    plan: Plan | None = None,
    limit: float = 10.0,
) -> PreflightReport:
    """Check the pair of two connection strings."""
    return await Preflight(
        SdkSide(primary, keywords={}),
        SdkSide(secondary, keywords={}),
        name="contoso",
        options=SendAvailabilityOptions(backlog_queue_count=COUNT),
        plan=plan or Plan(outage=3600.0, rate=10.0),
        entities=entities,
        limit=limit,
    ).run()


def found(report: PreflightReport) -> list[tuple[str, str, str]]:
    return sorted((one.severity, one.topic, one.subject) for one in report.findings if one.severity != "note")


class Scenes:
    """Pairs for every occasion."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def pair(self, limits: NamespaceLimits = STANDARD) -> Broker:
        broker = self._stack.enter_context(Broker({"contoso": 0, "contoso-dr": 0}, limits=limits))
        broker["contoso"].create_queue("orders", SAFE)
        return broker

    async def provisioned_pair(self) -> Broker:
        broker = self.pair()
        await provisioner(broker, count=COUNT).run()
        return broker

    async def rich_pair(self) -> Broker:
        """One with other entities, too: without duplicate detection, a topic, a disabled one."""
        broker = await self.provisioned_pair()
        primary = broker["contoso"]
        primary.create_queue("loose")
        primary.create_topic("news", TopicSettings(requires_duplicate_detection=True))
        closed = QueueSettings(requires_duplicate_detection=True, status=EntityStatus.DISABLED)
        primary.create_queue("closed", closed)
        primary.create_queue("fabrikam/x-servicebus-transfer/0")  # the backlog of somebody else
        return broker

    async def on_rich_pair(self) -> dict[str, PreflightReport]:
        broker = await self.rich_pair()
        one, two = broker["contoso"].policies, broker["contoso-dr"].policies
        return await gather(
            good=check(one["root"], two["root"], entities=["orders"]),
            can_send=check(one["send"], two["send"], entities=["orders"]),
            cannot_list=check(one["send"], two["root"]),
            cannot_send=check(one["listen"], two["listen"], entities=["orders"]),
            everything=check(one["root"], two["root"]),
            news=check(one["root"], two["root"], entities=["news"], plan=Plan(outage=60.0)),
            nowhere=check(one["root"], two["root"], entities=["nowhere"]),
        )

    async def on_unprovisioned_pair(self) -> dict[str, PreflightReport]:
        broker = self.pair()
        one, two = broker["contoso"].policies, broker["contoso-dr"].policies
        return await gather(
            missing=check(one["root"], two["root"]), missing_blind=check(one["root"], two["send"])
        )

    async def with_larger_messages(self) -> dict[str, PreflightReport]:
        premium, standard = self.pair(PREMIUM), await self.provisioned_pair()
        primary, secondary = premium["contoso"].connection_string, standard["contoso-dr"].connection_string
        return {"larger": await check(primary, secondary, plan=Plan(outage=60.0))}

    async def with_full_backlog(self) -> dict[str, PreflightReport]:
        broker = await self.provisioned_pair()
        one, two = broker["contoso"].connection_string, broker["contoso-dr"].connection_string
        async with ServiceBusClient.from_connection_string(two) as client:
            async with client.get_queue_sender(QUEUES[1]) as sender:
                await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
            async with client.get_queue_receiver(QUEUES[1], max_wait_time=5) as receiver:
                await receiver.dead_letter_message((await receiver.receive_messages())[0], reason="test")
        return {"backlog": await check(one, two, plan=Plan(outage=3600.0, rate=100_000.0))}

    async def when_down(self, side: str, fault: str, limit: float) -> dict[str, PreflightReport]:
        broker = await self.rich_pair()
        broker["contoso" if side == "primary" else "contoso-dr"].faults.set(fault)
        one, two = broker["contoso"].connection_string, broker["contoso-dr"].connection_string
        return {f"{side} {fault}": await check(one, two, entities=["loose"], limit=limit)}


async def gather(**checks: Coroutine[Any, Any, PreflightReport]) -> dict[str, PreflightReport]:
    return dict(zip(checks, await asyncio.gather(*checks.values()), strict=True))


@pytest.fixture(scope="module")
def reports() -> Iterator[dict[str, PreflightReport]]:
    async def run(scenes: Scenes) -> dict[str, PreflightReport]:
        all_of_them = await asyncio.gather(
            scenes.on_rich_pair(),
            scenes.on_unprovisioned_pair(),
            scenes.with_larger_messages(),
            scenes.with_full_backlog(),
            scenes.when_down("primary", "refuse", 10.0),
            scenes.when_down("secondary", "refuse", 10.0),
            # Long enough for the side that answers, although so much happens at once, and the machine may
            # stand still for a while.
            scenes.when_down("primary", "silence", 7.0),
            scenes.when_down("secondary", "silence", 7.0),
        )
        return {name: report for some in all_of_them for name, report in some.items()}

    with ExitStack() as stack:
        yield asyncio.run(run(Scenes(stack)))


Reports = dict[str, PreflightReport]


def test_a_good_pair_has_no_findings(reports: Reports) -> None:
    report = reports["good"]
    assert found(report) == []
    assert not report.has_findings
    assert report.unreachable == ()
    assert report.capacity is not None
    assert report.capacity.free_bytes == FREE  # nothing was sent


def test_keys_that_can_only_send_are_enough_and_noted(reports: Reports) -> None:
    report = reports["can_send"]
    assert found(report) == []
    assert [one.subject for one in report.findings if one.topic == "claims"] == ["secondary", "primary"]
    assert report.capacity is None


def test_a_check_that_could_look_at_no_entity_does_not_say_that_all_is_well(reports: Reports) -> None:
    assert found(reports["cannot_list"]) == [("warning", "claims", "primary")]
    assert any("--entity" in one.text for one in reports["cannot_list"].findings)


def test_keys_that_cannot_send_are_found(reports: Reports) -> None:
    assert found(reports["cannot_send"]) == [("error", "claims", name) for name in [*QUEUES, "orders"]]


def test_entities_are_looked_at(reports: Reports) -> None:
    assert found(reports["everything"]) == [
        ("error", "reach", "closed"),
        ("warning", "duplicates", "closed"),
        ("warning", "duplicates", "loose"),
        ("warning", "duplicates", "news"),
    ]
    assert found(reports["news"]) == []
    assert found(reports["nowhere"]) == [("error", "names", "nowhere")]


def test_missing_backlog_queues_are_found_with_and_without_manage(reports: Reports) -> None:
    # The service says of an entity that is not there that it is not, whatever the key may do.
    for name in ("missing", "missing_blind"):
        assert found(reports[name]) == [("error", "backlog", f"{QUEUES[0]} and 1 more")]


def test_a_primary_that_takes_larger_messages_is_found(reports: Reports) -> None:
    assert found(reports["larger"]) == [("warning", "headroom", "orders")]


def test_the_backlog_and_its_room(reports: Reports) -> None:
    report = reports["backlog"]
    assert found(report) == [
        ("warning", "backlog", "secondary"),
        ("warning", "backlog", "secondary"),
        ("warning", "capacity", "secondary"),
    ]
    assert [one.text for one in report.findings if one.topic == "backlog"] == [
        "1 message waits in the backlog: `pairbus syphon run --once` moves what can be moved",
        "1 message is a dead letter of the backlog: `pairbus redrive --dry-run` shows why",
    ]
    assert report.capacity is not None
    assert 0 < report.capacity.free_bytes < FREE


@pytest.mark.parametrize("fault", ["refuse", "silence"])
@pytest.mark.parametrize(
    ("side", "still"), [("primary", ("note", "capacity")), ("secondary", ("warning", "duplicates"))]
)
def test_a_side_that_is_down_is_unreachable_and_the_other_is_looked_at(
    reports: Reports, side: str, fault: str, still: tuple[str, str]
) -> None:
    report = reports[f"{side} {fault}"]
    assert report.unreachable == (side,)
    assert still in [(one.severity, one.topic) for one in report.findings]


@pytest.mark.parametrize(
    ("policy", "fault", "trouble"), [("send", None, "not_permitted"), ("root", "refuse", "unreachable")]
)
async def test_a_depth_that_nobody_tells_is_no_error(
    broker: Broker, policy: str, fault: str | None, trouble: str
) -> None:
    secondary = broker["contoso-dr"]
    for queue in QUEUES:
        secondary.create_queue(queue)
    if fault is not None:
        secondary.faults.set(fault)
    side, before, asked = SdkSide(secondary.policies[policy], keywords={}), asyncio.all_tasks(), []
    depth = await read_depth(
        side.open_administration, QUEUES * 10, on_request=lambda entity, fate: asked.append(entity)
    )
    assert depth.trouble is not None
    assert depth.trouble.value == trouble
    assert depth.reason
    assert len(asked) < 10, "the others would be refused it as well"
    assert asyncio.all_tasks() == before


async def test_the_depth_of_queues_that_are_there_and_of_one_that_is_not(broker: Broker) -> None:
    secondary = broker["contoso-dr"]
    secondary.create_queue(QUEUES[1])
    client = ServiceBusClient.from_connection_string(secondary.connection_string)
    async with client, client.get_queue_sender(QUEUES[1]) as sender:
        await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
    depth = await read_depth(SdkSide(secondary.connection_string, keywords={}).open_administration, QUEUES)
    assert (depth.active, depth.dead_letters, depth.missing) == (2, 0, (QUEUES[0],))
    assert depth.queues[0].size > 0

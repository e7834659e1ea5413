"""Backlog queues on an embedded secondary: created, adopted, reported, with rights and without."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from pairbus.backlog.provisioner import Provisioner, ProvisioningReport
from pairbus.broker import Broker
from pairbus.broker.engine.settings import EntityStatus, QueueSettings
from pairbus.broker.engine.tiers import STANDARD
from pairbus.pairing.names import lease_queue_name
from tests.waiting import PATIENCE

from .bench import SteppedTimers, provisioner, queue_names, queue_properties

NAMES = [f"contoso/x-servicebus-transfer/{index}" for index in range(10)]
FOR_EVER = timedelta(days=10_000_000)
INT32_MAX = 2_147_483_647
AS_CREATED = QueueSettings(
    max_size_in_megabytes=5120, max_delivery_count=INT32_MAX, dead_lettering_on_message_expiration=True
)


async def test_missing_queues_are_created_with_the_settings_of_a_backlog_queue(broker: Broker) -> None:
    report = await provisioner(broker, count=10).run()
    assert report.state == "ready"
    assert report.created == tuple(NAMES)
    assert report.warnings == ()
    assert report.extra == ()
    assert all(
        not queue.existed and queue.error is None and queue.differences == () for queue in report.queues
    )
    lease = lease_queue_name("contoso")
    assert queue_names(broker) == sorted([*NAMES, lease])
    held = queue_properties(broker, lease)
    assert (held.requires_session, held.lock_duration) == (True, timedelta(minutes=1))
    found = queue_properties(broker, NAMES[9])
    assert found.max_size_in_megabytes == 5120
    assert found.max_delivery_count == INT32_MAX
    for duration in (found.default_message_time_to_live, found.auto_delete_on_idle):
        assert isinstance(duration, timedelta)
        assert duration > FOR_EVER
    assert found.lock_duration == timedelta(minutes=1)
    assert found.dead_lettering_on_message_expiration is True
    assert found.enable_batched_operations is True
    assert (found.requires_session, found.requires_duplicate_detection) == (False, False)


async def test_a_second_run_finds_everything_and_creates_nothing(broker: Broker) -> None:
    await provisioner(broker).run()
    report = await provisioner(broker).run()
    assert report.state == "ready"
    assert report.created == ()
    assert [queue.existed for queue in report.queues] == [True] * 3


async def test_only_what_is_missing_is_created(broker: Broker) -> None:
    broker["contoso-dr"].create_queue(NAMES[1], AS_CREATED)
    report = await provisioner(broker).run()
    assert report.state == "ready"
    assert report.created == (NAMES[0], NAMES[2])
    assert report.queues[1].existed
    assert report.queues[1].differences == ()


async def test_a_queue_with_other_settings_is_adopted_and_told_and_not_changed(broker: Broker) -> None:
    other = QueueSettings(
        max_size_in_megabytes=1024,
        max_delivery_count=10,
        default_message_time_to_live=3600.0,
        auto_delete_on_idle=86_400.0,
        lock_duration=30.0,
        enable_batched_operations=False,
        requires_duplicate_detection=True,
        status=EntityStatus.SEND_DISABLED,
    )
    broker["contoso-dr"].create_queue(NAMES[0], other)
    before = queue_properties(broker, NAMES[0])
    report = await provisioner(broker, count=1).run()
    assert report.state == "ready"
    (queue,) = report.queues
    assert (queue.existed, queue.created, queue.error) == (True, False, None)
    assert {str(difference) for difference in queue.differences} == {
        "max_size_in_megabytes is 1024, not 5120",
        "max_delivery_count is 10, not 2147483647",
        "default_message_time_to_live is 3600 s, not none",
        "auto_delete_on_idle is 86400 s, not none",
        "lock_duration is 30 s, not 60 s",
        "dead_lettering_on_message_expiration is false, not true",
        "enable_batched_operations is false, not true",
        "requires_duplicate_detection is true, not false",
        "status is SendDisabled, not Active",
    }
    assert repr(queue_properties(broker, NAMES[0])) == repr(before)


async def test_extra_queues_are_told_and_left_alone(broker: Broker) -> None:
    secondary = broker["contoso-dr"]
    for name in (NAMES[7], "contoso/x-servicebus-transfer/12", "fabrikam/x-servicebus-transfer/9", "orders"):
        secondary.create_queue(name)
    report = await provisioner(broker, count=2).run()
    assert report.state == "ready"
    assert report.extra == (NAMES[7], "contoso/x-servicebus-transfer/12")
    assert any("beyond the count" in warning for warning in report.warnings)
    assert NAMES[7] in queue_names(broker)


async def test_without_create_it_only_looks(broker: Broker) -> None:
    broker["contoso-dr"].create_queue(NAMES[0], AS_CREATED)
    report = await provisioner(broker, count=2, create=False).run()
    assert report.state == "pending"
    assert (report.queues[0].existed, report.queues[1].error) == (True, "it does not exist")
    assert queue_names(broker) == [NAMES[0]]


async def test_a_name_that_a_topic_has_is_told(broker: Broker) -> None:
    broker["contoso-dr"].create_topic(NAMES[1])
    report = await provisioner(broker).run()
    assert report.state == "pending"
    assert [queue.created for queue in report.queues] == [True, False, True]
    assert report.queues[1].error == "a topic has this name"


async def test_two_that_provision_at_once_end_with_the_same(broker: Broker) -> None:
    reports = await asyncio.gather(*(provisioner(broker, count=6).run() for _ in range(3)))
    assert [report.state for report in reports] == ["ready"] * 3
    created = [name for report in reports for name in report.created]
    assert sorted(created) == NAMES[:6]


@pytest.mark.parametrize("highest", [2000, 5000, 100])
async def test_a_service_that_takes_less_gets_the_highest_delivery_count_that_it_takes(highest: int) -> None:
    limits = replace(STANDARD, max_delivery_count=highest)
    with Broker({"contoso": 0, "contoso-dr": 0}, limits=limits) as broker:
        report = await provisioner(broker).run()
        assert report.state == "ready"
        assert len(report.created) == 3
        assert [queue_properties(broker, name).max_delivery_count for name in NAMES[:3]] == [highest] * 3
        assert any(f"a delivery count of {highest} at most" in warning for warning in report.warnings)
        for queue in report.queues:
            assert [difference.setting for difference in queue.differences] == ["max_delivery_count"]


async def test_a_service_that_refuses_another_setting_is_quoted() -> None:
    limits = replace(STANDARD, max_queue_megabytes=1024)
    with Broker({"contoso": 0, "contoso-dr": 0}, limits=limits) as broker:
        report = await provisioner(broker, count=2).run()
        assert report.state == "pending"
        assert all("max_size_in_megabytes" in str(queue.error) for queue in report.queues)
        assert all("<" not in str(queue.error) for queue in report.queues), "its words, not its markup"
        assert queue_names(broker) == [lease_queue_name("contoso")]


@pytest.mark.parametrize("policy", ["send", "listen"])
async def test_without_manage_it_is_not_permitted_and_nothing_happens(broker: Broker, policy: str) -> None:
    report = await provisioner(broker, policy=policy).run()
    assert report.state == "not_permitted"
    assert "is its key right, and has it the Manage claim?" in report.warnings[0]
    assert any("Manage" in warning for warning in report.warnings)
    assert queue_names(broker) == []


async def test_after_provisioning_a_key_that_can_only_send_is_enough(broker: Broker) -> None:
    await provisioner(broker).run()
    client = ServiceBusClient.from_connection_string(broker["contoso-dr"].policies["send"], retry_total=0)
    async with client, client.get_queue_sender(NAMES[2]) as sender:
        await sender.send_messages(ServiceBusMessage("wrapped"))
    assert broker["contoso-dr"].message_count(NAMES[2]) == 1


async def test_keep_trying_ends_when_it_is_not_permitted(broker: Broker) -> None:
    timers = SteppedTimers()
    report = await provisioner(broker, policy="send", timers=timers).keep_trying(lambda report: None)
    assert report.state == "not_permitted"
    assert timers.waits == []


@pytest.mark.parametrize("fault", ["refuse", "reset"])
async def test_a_secondary_that_is_down_is_reported(broker: Broker, fault: str) -> None:
    broker["contoso-dr"].faults.set(fault)
    report = await provisioner(broker).run()
    assert report.state == "unreachable"
    assert [queue.name for queue in report.queues] == NAMES[:3]
    assert "cannot be reached" in report.warnings[0]


@pytest.mark.parametrize("fault", ["silence", "blackhole"])
async def test_a_secondary_that_says_nothing_is_given_up_in_time(broker: Broker, fault: str) -> None:
    broker["contoso-dr"].faults.set(fault)
    async with asyncio.timeout(PATIENCE):
        report = await provisioner(broker, request_limit=0.3).run()
    assert report.state == "unreachable"


async def test_keep_trying_pauses_longer_and_longer_until_the_secondary_is_back(broker: Broker) -> None:
    secondary, timers = broker["contoso-dr"], SteppedTimers()
    secondary.faults.set("refuse")
    reports: list[ProvisioningReport] = []

    def hear(report: ProvisioningReport) -> None:
        reports.append(report)
        if len(reports) == 9:
            secondary.faults.clear()

    last = await provisioner(broker, timers=timers).keep_trying(hear)
    assert [report.state for report in reports] == ["unreachable"] * 9 + ["ready"]
    assert last is reports[-1]
    assert timers.waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0]
    assert len(queue_names(broker)) == 3 + 1


async def test_pauses_are_shorter_by_chance(broker: Broker) -> None:
    timers = SteppedTimers(moment=100.0)
    broker["contoso-dr"].faults.set("refuse")

    def hear(report: ProvisioningReport) -> None:
        if len(timers.waits) == 3:
            broker["contoso-dr"].faults.clear()

    await provisioner(broker, timers=timers, random=lambda: 0.5).keep_trying(hear)
    assert timers.waits == [3.75, 7.5, 15.0, 30.0]


async def test_an_error_of_our_own_is_not_taken_for_the_service(broker: Broker) -> None:
    def broken() -> object:
        raise LookupError("no such thing")

    with pytest.raises(LookupError):
        await Provisioner(broken, "contoso", count=1).run()  # type: ignore[arg-type]


async def test_the_embedded_namespace_is_asked_without_tls_and_the_key_is_nowhere_to_be_seen(
    broker: Broker,
) -> None:
    secondary = broker["contoso-dr"]
    secondary.faults.set("refuse")
    report = await provisioner(broker).run()
    key = secondary.connection_string.partition("SharedAccessKey=")[2].partition(";")[0]
    assert key
    assert key not in repr(report)

"""Both sides down: what the local spool keeps, for whom, how much, and how it is sent again."""

import asyncio
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus.broker.engine.settings import QueueSettings
from pairbus.client.errors import SpoolError, SpoolFullError
from pairbus.client.observers.observer import Observer, Sending
from pairbus.client.state.records import KIND
from pairbus.client.state.spool_aside import list_refused
from pairbus.ledger.segment import closed_segments, read_segment
from pairbus.options import EntityState
from pairbus.testing import ManualTimers

from .outage import hanging_disk, in_an_outage, in_time
from .scene import BACKLOG, Scene, eventually, text

MIB = 1024 * 1024
SOON = datetime.now(UTC) + timedelta(hours=1)


def spooled(directory: Path) -> list[Path]:
    return sorted((directory / "spool").rglob("[0-9]*.spool"))


async def test_what_neither_side_takes_is_kept_and_sent_in_order_when_one_is_back(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = await in_an_outage(still, tmp_path)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1"))
    await sender.send_messages([text("2"), text("3")])
    assert await sender.schedule_messages(text("4"), SOON) == [-1]
    status = client.status().spool
    assert status is not None
    assert status.messages == 4
    assert 0 < status.bytes < status.limit
    assert client.status().entities[0].sent["spool"] == {"ok": 4, "failed": 0, "unknown": 0}
    assert spooled(tmp_path)
    still.secondary.faults.clear()
    await sender.send_messages(text("5"))  # behind those that wait
    await in_time(still, lambda: len(still.backlog_ids()) == 5)
    assert still.backlog_ids() == ["1", "2", "3", "4", "5"]
    await eventually(lambda: not spooled(tmp_path))
    await eventually(lambda: client.status().spool.messages == 0)  # type: ignore[union-attr]
    assert client.status().spool.bytes == 0  # type: ignore[union-attr]
    await sender.send_messages(text("6"))
    assert still.backlog_ids()[-1] == "6"
    assert client.status().entities[0].sent["spool"]["ok"] == 5


async def test_the_status_warns_of_what_somebody_has_removed_from_the_spool(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = await in_an_outage(still, tmp_path)
    sender = client.get_queue_sender("orders")
    await sender.send_messages([text("removed"), text("as well")])
    (file,) = spooled(tmp_path)
    file.unlink()
    still.primary.faults.clear()
    await in_time(still, lambda: client.status().spool.messages == 0)  # type: ignore[union-attr]
    assert f"{file} has been removed by somebody, with 2 messages" in client.status().warnings


async def test_the_primary_may_be_the_first_to_come_back(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = await in_an_outage(still, tmp_path, ping_jitter=0.0)
    sender = client.get_queue_sender("orders")
    for name in ("1", "2", "3"):
        await sender.send_messages(text(name))
    still.primary.faults.clear()
    await in_time(still, lambda: still.ids() == ["before", "1", "2", "3"])
    assert still.state() is EntityState.HEALTHY


async def test_one_entity_that_is_down_does_not_hold_up_the_others(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    still.primary.create_queue("invoices")
    client = await in_an_outage(still, tmp_path)
    client.fail_over("invoices")
    await client.get_queue_sender("orders").send_messages(text("1"))
    await client.get_queue_sender("invoices").send_messages(text("2"))
    still.primary.faults.clear()
    still.primary.faults.set("refuse", entity="orders")
    client.mark_path_healthy("invoices")
    await eventually(lambda: still.ids("invoices") == ["2"])
    await eventually(lambda: client.status().spool.messages == 1)  # type: ignore[union-attr]
    assert still.ids("orders") == ["before"]


class Cutter(Observer):
    """Takes the secondary away as soon as a backlog queue has taken something."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def sent(self, sending: Sending) -> None:
        if (sending.route, sending.outcome) == ("backlog", "ok"):
            self._scene.secondary.faults.set("refuse")


async def test_of_a_list_that_is_split_only_what_no_queue_has_taken_is_spooled(
    still: Scene, tmp_path: Path
) -> None:
    client = still.client(state_dir=tmp_path, enable_spool=True, observers=[Cutter(still)])
    await client.start()
    spool = client.pair.spool
    assert spool is not None
    await eventually(lambda: not spool.is_adopting)  # or all of it might wait behind what may be there
    client.fail_over("orders")
    fill = dict.fromkeys(("one", "two"), "x" * 30_000)
    large = [text(name, application_properties=fill) for name in "abcdef"]
    await client.get_queue_sender("orders").send_messages(large)
    taken = still.backlog_ids()
    assert 0 < len(taken) < 6
    sent = client.status().entities[0].sent
    assert (sent["backlog"]["ok"], sent["spool"]["ok"]) == (len(taken), 6 - len(taken))
    later = still.client(state_dir=tmp_path, enable_spool=True)
    await client.close()
    still.secondary.faults.clear()
    await later.start()
    await eventually(lambda: len(still.all_ids()) == 6)
    assert len(still.backlog_ids()) + len(still.ids()) == 6, "none arrives twice"


async def test_the_spool_survives_the_process(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = await in_an_outage(still, tmp_path)
    sender = client.get_queue_sender("orders")
    await asyncio.gather(*(sender.send_messages(text(f"{number:02d}")) for number in range(20)))
    await client.close()
    assert spooled(tmp_path)
    still.primary.faults.clear()
    still.secondary.faults.clear()
    later = still.client(state_dir=tmp_path, enable_spool=True)
    await later.start()
    await eventually(lambda: len(still.ids()) == 21)
    assert still.ids() == ["before", *(f"{number:02d}" for number in range(20))]
    await eventually(lambda: not spooled(tmp_path))
    await later.close()
    assert list((tmp_path / "spool").iterdir()) == []


async def test_a_full_spool_says_so_and_keeps_nothing_of_the_call(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = await in_an_outage(still, tmp_path, spool_max_bytes=MIB)
    sender = client.get_queue_sender("orders")
    large = [ServiceBusMessage(b"x" * 200_000, message_id=f"{number}") for number in range(5)]
    for message in large:
        await sender.send_messages(message)
    with pytest.raises(SpoolFullError) as caught:
        await sender.send_messages([text("a"), ServiceBusMessage(b"x" * 200_000)])
    assert caught.value.limit == MIB
    assert caught.value.held > 1_000_000
    await sender.send_messages(text("small"))
    still.secondary.faults.clear()
    await in_time(still, lambda: len(still.backlog_ids()) == 6)
    assert still.backlog_ids() == [*(f"{number}" for number in range(5)), "small"]


async def test_a_directory_that_cannot_be_written_is_told(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = await in_an_outage(still, tmp_path)
    (tmp_path / "spool").write_text("a file, where a directory should be")
    with pytest.raises(SpoolError, match="cannot be written to"):
        await client.get_queue_sender("orders").send_messages(text("1"))
    assert client.status().spool.messages == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("timeout", [None, 3.0])
async def test_a_disk_that_hangs_is_waited_for_as_long_as_a_call_may_take(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path, timeout: float | None
) -> None:
    client = await in_an_outage(still, tmp_path)
    with hanging_disk() as waiting:
        sending = still.begin(client.get_queue_sender("orders").send_messages(text("1"), timeout=timeout))
        await eventually(lambda: "pairbus-spool" in waiting)
        await manual_timers.advance(timeout or 10.0)
        with pytest.raises(OperationTimeoutError, match="may still arrive"):
            await sending
    await eventually(lambda: client.status().spool.messages == 1)  # type: ignore[union-attr]


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_disk_that_hangs_keeps_nothing_from_the_backlog(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path, is_cancelled: bool
) -> None:
    """What it was to keep may be there, and is not waited for before each call that comes behind it; whatever
    limits the callers have.
    """
    client = await in_an_outage(still, tmp_path)
    sender = client.get_queue_sender("orders")
    with hanging_disk() as waiting:
        sending = still.begin(sender.send_messages(text("1"), timeout=3.0))
        await eventually(lambda: "pairbus-spool" in waiting)
        if is_cancelled:
            sending.cancel()
            await asyncio.wait({sending})
        else:
            await manual_timers.advance(3.0)
            with pytest.raises(OperationTimeoutError, match="may still arrive"):
                await sending
        assert client.status().entities[0].sent["spool"] == {"ok": 0, "failed": 0, "unknown": 1}
        assert still.diary.outcomes("spool") == ["unknown"]
        still.secondary.faults.clear()
        await in_time(still, lambda: bool(client.pair.backlog.rotation.usable(manual_timers.now())))
        await manual_timers.advance(10.0)  # for which the disk has told of nothing, whoever waited how long
        sending = still.begin(sender.send_messages(text("2")))
        await in_time(still, sending.done)
        await sending
        assert still.backlog_ids() == ["2"]
    await in_time(still, lambda: still.backlog_ids() == ["2", "1"])
    await eventually(lambda: client.status().spool.messages == 0)  # type: ignore[union-attr]


async def test_what_does_not_fit_the_backlog_waits_for_the_primary_and_the_rest_goes_on(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = await in_an_outage(still, tmp_path, ping_jitter=0.0)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1"))
    await sender.send_messages(ServiceBusMessage(os.urandom(262_100), message_id="large"))
    await sender.send_messages(text("2"))
    still.secondary.faults.clear()
    await in_time(still, lambda: still.backlog_ids() == ["1", "2"])
    await eventually(lambda: client.status().spool.messages == 1)  # type: ignore[union-attr]
    await sender.send_messages(text("3"))
    assert still.backlog_ids() == ["1", "2", "3"], "what waits for the primary holds up nobody"
    still.primary.faults.clear()
    await in_time(still, lambda: still.ids() == ["before", "large"])
    await eventually(lambda: client.status().spool.messages == 0)  # type: ignore[union-attr]
    assert client.status().spool.bytes == 0  # type: ignore[union-attr]


async def test_what_waits_for_the_primary_outlives_the_process(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = await in_an_outage(still, tmp_path)
    await client.get_queue_sender("orders").send_messages(
        ServiceBusMessage(os.urandom(262_100), message_id="large")
    )
    still.secondary.faults.clear()
    await in_time(still, lambda: list((tmp_path / "spool").rglob("late-*.spool")) != [])
    await eventually(lambda: client.status().spool.messages == 1)  # type: ignore[union-attr]
    await client.close()
    still.primary.faults.clear()
    later = still.client(state_dir=tmp_path, enable_spool=True)
    await later.start()
    await eventually(lambda: still.ids() == ["before", "large"])


async def test_what_is_refused_for_its_own_sake_is_kept_and_the_rest_goes_on(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    still.primary.create_queue("strict", QueueSettings(requires_session=True))
    client = await in_an_outage(still, tmp_path)
    client.fail_over("strict")
    sender = client.get_queue_sender("strict")
    await sender.send_messages([text("1", session_id="s"), text("2"), text("3", session_id="s")])
    still.primary.faults.clear()
    client.mark_path_healthy("strict")
    await in_time(still, lambda: len(still.ids("strict")) == 2)
    assert still.ids("strict") == ["1", "3"]
    await eventually(lambda: client.status().spool.messages == 0)  # type: ignore[union-attr]
    status = client.status().spool
    assert status is not None
    assert (status.bytes, status.refused, status.damaged) == (0, 1, 0)
    assert "2 was refused for strict" in caplog.text
    [kept] = list_refused(tmp_path)
    assert (kept.path, kept.message_id, kept.session_id) == ("strict", "2", None)
    assert "session" in kept.reason
    kept.file.unlink()
    client.status()
    await eventually(lambda: client.status().spool.refused == 0)  # type: ignore[union-attr]


@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_what_was_sent_without_an_answer_before_it_was_spooled_is_on_record(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path, side: str
) -> None:
    """So that a verdict can say how often at most a message has arrived."""
    client = still.client(state_dir=tmp_path, enable_spool=True, failover_interval=0.0, backlog_queue_count=1)
    async with client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(text("0"))
        if side == "primary":
            still.secondary.faults.set("refuse")
            still.primary.faults.set("delay", seconds=60)  # it is taken, and nobody is told
            queue, taken = "orders", 2
        else:
            client.fail_over("orders")
            await sender.send_messages(text("1"))
            still.primary.faults.set("refuse")
            still.secondary.faults.set("delay", seconds=60)
            queue, taken = BACKLOG[0], 2
        sending = still.begin(sender.send_messages(text("2")))
        namespace = still.primary if side == "primary" else still.secondary
        await eventually(lambda: namespace.message_count(queue) == taken)
        await in_time(still, sending.done)
        assert client.status().spool.messages == 1  # type: ignore[union-attr]
        still.primary.faults.clear()
        still.secondary.faults.clear()
        await in_time(still, lambda: client.status().spool.messages == 0)  # type: ignore[union-attr]
    rows = [row for path in closed_segments(tmp_path / "records", KIND) for row in read_segment(path).rows]
    assert [row["message_id"] for row in rows if row["outcome"] == "unanswered"] == ["2"]


WRONG: Any = {"a property": {"content_type": 5}, "the header": {"priority": "high"}, "a name": {1: 2}}
WRONGLY_TYPED = {
    "a property": AmqpAnnotatedMessage(
        data_body=b"x", properties=AmqpMessageProperties(message_id="1", **WRONG["a property"])
    ),
    "the header": AmqpAnnotatedMessage(data_body=b"x", header=AmqpMessageHeader(**WRONG["the header"])),
    "a name": AmqpAnnotatedMessage(data_body=b"x", application_properties=WRONG["a name"]),
}


@pytest.mark.parametrize("what", WRONGLY_TYPED)
async def test_what_no_namespace_can_read_is_refused_at_once_with_the_same_words(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path, what: str
) -> None:
    """The SDK writes some wrong types as they are, and it is the namespace that refuses them."""
    message = WRONGLY_TYPED[what]
    async with ServiceBusClient.from_connection_string(still.primary.connection_string) as plain:
        with pytest.raises(ServiceBusError) as by_primary:
            await plain.get_queue_sender("orders").send_messages(message)
    client = await in_an_outage(still, tmp_path)
    with pytest.raises(type(by_primary.value), match=re.escape(str(by_primary.value))):
        await client.get_queue_sender("orders").send_messages(message)
    assert client.status().spool.messages == 0  # type: ignore[union-attr]

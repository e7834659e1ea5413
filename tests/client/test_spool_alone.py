"""The spool by itself: what is on the disk, what a crash leaves, and lanes that do not hold each other up."""

import asyncio
import errno
import os
import shutil
import threading
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader

from pairbus.client.errors import SpoolError
from pairbus.client.sending.message import Message
from pairbus.client.sending.spool import Spool
from pairbus.client.sending.spool_lane import UnsendableRecord
from pairbus.client.state.packing import pack, unpack
from pairbus.client.state.spool_records import SpoolRecord
from pairbus.client.state.spool_store import LineKey, SpoolStore
from pairbus.client.state.spool_survey import list_waiting
from pairbus.clock import ManualClock
from pairbus.pairing.errors import BacklogUnavailableError, MessageTooLargeForBacklog
from pairbus.testing import ManualTimers
from pairbus.timers import LoopTimers
from tests.waiting import PATIENCE

from .scene import eventually, text

MIB = 1024 * 1024


class Sink:
    """Takes what is replayed, or does not."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.refuses: set[str] = set()
        self.rejects: set[str] = set()

    async def __call__(self, path: str, messages: list[Message], when: datetime | None) -> None:
        for message in messages:
            name = str(message)
            if name in self.rejects:
                raise UnsendableRecord(name)
            if name in self.refuses or path in self.refuses:
                raise ConnectionError(name)
        self.taken.extend(str(message) for message in messages)


async def test_a_message_is_on_the_disk_when_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def watch(name: str) -> None:
        sync = getattr(os, name)

        def note(descriptor: int) -> None:
            synced.append(name)
            sync(descriptor)

        monkeypatch.setattr(os, name, note)

    watch("fsync")
    watch("fdatasync")
    spool = Spool(tmp_path, limit=MIB)
    await spool.append("orders", [text("1")])
    assert sorted(synced) == ["fdatasync", "fsync", "fsync"]  # the record, its directory, and the one above
    synced.clear()
    await asyncio.gather(*(spool.append("orders", [text(f"{number}")]) for number in range(100)))
    assert 1 <= len(synced) < 50  # calls side by side share one
    assert set(synced) == {"fdatasync"}
    await spool.close()


async def test_a_failed_record_is_tried_again_after_a_pause_that_grows(
    tmp_path: Path, manual_timers: ManualTimers
) -> None:
    spool, sink = Spool(tmp_path, limit=MIB), Sink()
    sink.refuses = {"2"}
    for name in ("1", "2", "3"):
        await spool.append("orders", [text(name)])
    spool.start(sink, timers=manual_timers)
    await eventually(lambda: (spool.status().messages, spool.status().last_failure) == (2, "2"))
    assert sink.taken == ["1"]
    sink.refuses = set()
    await manual_timers.advance(0.9)
    assert manual_timers.next_at == pytest.approx(manual_timers.now() + 0.1)
    assert sink.taken == ["1"]
    await manual_timers.advance(0.2)
    await eventually(lambda: sink.taken == ["1", "2", "3"])
    await spool.close()


async def test_records_left_by_a_crash_are_found_and_a_torn_one_is_cut(
    tmp_path: Path, manual_timers: ManualTimers, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path, limit=MIB)
    for name in ("1", "2", "3"):
        await spool.append("Orders", [text(name)])
    [file] = tmp_path.rglob("*.spool")
    whole = file.read_bytes()
    await spool.close()
    file.write_bytes(whole[:-3])  # as a power cut might leave it
    sink = Sink()
    again = Spool(tmp_path, limit=MIB)
    again.start(sink, timers=manual_timers)
    await eventually(lambda: sink.taken == ["1", "2"])
    assert "cut short" in caplog.text
    await eventually(lambda: again.status().messages == 0)
    await again.close()


async def test_what_was_sent_before_a_crash_is_not_sent_again(
    tmp_path: Path, manual_timers: ManualTimers
) -> None:
    spool, sink = Spool(tmp_path, limit=MIB), Sink()
    for number in range(10):
        await spool.append("orders", [text(f"{number}")])
    sink.refuses = {"7"}
    spool.start(sink, timers=manual_timers)
    await eventually(lambda: len(sink.taken) == 7)
    await spool.close()
    again = Spool(tmp_path, limit=MIB)
    sink.refuses = set()
    again.start(sink, timers=manual_timers)
    await eventually(lambda: len(sink.taken) == 10)
    assert sink.taken == [f"{number}" for number in range(10)]
    await again.close()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_call_that_is_under_way_has_a_moment_to_end(
    tmp_path: Path, manual_timers: ManualTimers, is_answered: bool
) -> None:
    """Or else the next client makes it again, and its messages are twice at the primary."""
    spool, begun, answer = Spool(tmp_path, limit=MIB), asyncio.Event(), asyncio.Event()
    sent: list[str] = []

    async def send(path: str, messages: list[Message], when: datetime | None) -> None:
        begun.set()
        await answer.wait()
        sent.extend(map(str, messages))

    await spool.append("orders", [text("1")])
    await spool.append("orders", [text("2")])
    spool.start(send, timers=manual_timers)
    await begun.wait()
    closing = asyncio.create_task(spool.close(PATIENCE if is_answered else 0.01))
    await asyncio.sleep(0)
    if is_answered:
        answer.set()
    await closing
    assert sent == ["1"] * is_answered
    assert [one.message_id for one in list_waiting(tmp_path)] == ["1", "2"][is_answered:]


async def test_a_call_of_any_size_is_sent(tmp_path: Path, manual_timers: ManualTimers) -> None:
    """What a peer may send is bounded; what we wrote ourselves must be readable."""
    spool, sink = Spool(tmp_path, limit=64 * MIB), Sink()
    names = [f"{number}" for number in range(4500)]
    deep: Any = "end"
    for _ in range(30):
        deep = [deep]
    await spool.append("orders", [text(name) for name in names])
    await spool.append("orders", [ServiceBusMessage("deep", application_properties={"deep": deep})])
    spool.start(sink, timers=manual_timers)
    await eventually(lambda: spool.status().messages == 0)
    assert sink.taken == [*names, "deep"]
    assert spool.status().damaged == 0
    await spool.close()


async def test_what_is_found_to_be_damaged_is_counted(tmp_path: Path, manual_timers: ManualTimers) -> None:
    spool, sink = Spool(tmp_path, limit=MIB), Sink()
    await spool.append("orders", [text("1")])
    [file] = tmp_path.rglob("*.spool")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    spool.start(sink, timers=manual_timers)
    await eventually(lambda: spool.status().messages == 0)
    assert spool.status().damaged == 1
    assert sink.taken == []
    await spool.close()


@pytest.mark.parametrize("refused", ["0", "1", "2", "3"])
async def test_a_refused_message_at_the_end_of_a_file_takes_nothing_of_the_next_one_along(
    tmp_path: Path, manual_timers: ManualTimers, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """That a file is done with was noted twice, the second time for the file behind it."""
    monkeypatch.setattr("pairbus.client.state.spool_store._FILE_BYTES", 1)
    spool, sink = Spool(tmp_path, limit=MIB), Sink()
    names = ["0", "1", "2", "3"]
    for name in names:
        await spool.append("orders", [text(name)])
    sink.rejects = {refused}
    spool.start(sink, timers=manual_timers)
    await eventually(lambda: spool.status().messages == 0)
    assert sink.taken == [name for name in names if name != refused]
    assert spool.status().refused == 1
    await spool.close()


@pytest.mark.parametrize("damage", [b"", b"half", b"-1", b"7", b"99999999", b"\xff\x00", "\u0661".encode()])
async def test_a_damaged_cursor_is_told_and_its_file_sent_from_the_start(
    tmp_path: Path, manual_timers: ManualTimers, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    """As a power cut may leave it; nothing is lost, whatever it says."""
    spool, sink = Spool(tmp_path, limit=MIB), Sink()
    for name in ("1", "2", "3"):
        await spool.append("orders", [text(name)])
    sink.refuses = {"3"}
    spool.start(sink, timers=manual_timers)
    await eventually(lambda: list(tmp_path.rglob("*.cursor")) != [])
    await spool.close()
    [cursor] = tmp_path.rglob("*.cursor")
    cursor.write_bytes(damage)
    again, sink = Spool(tmp_path, limit=MIB), Sink()
    again.start(sink, timers=manual_timers)
    await eventually(lambda: sink.taken == ["1", "2", "3"])
    assert f"{cursor} is damaged" in caplog.text
    await eventually(lambda: again.status().messages == 0)
    await again.close()
    assert list(tmp_path.iterdir()) == []


async def test_what_is_whole_and_no_message_is_put_aside_and_the_rest_is_sent(
    tmp_path: Path, manual_timers: ManualTimers, caplog: pytest.LogCaptureFixture
) -> None:
    spool = Spool(tmp_path, limit=MIB)
    await spool.append("orders", [text("1")])
    await spool.append("invoices", [text("2")])
    await spool.close()
    strange = SpoolStore.create(tmp_path)
    strange.append(LineKey("orders"), [SpoolRecord("orders", 3, b"\xff")])
    strange.close()
    again, sink = Spool(tmp_path, limit=MIB), Sink()
    await again.append("orders", [text("3")])
    again.start(sink, timers=manual_timers)
    await eventually(lambda: again.status().messages == 0)
    assert sorted(sink.taken) == ["1", "2", "3"]
    assert f"{strange.directory}" in caplog.text
    await again.close()
    [kept] = (tmp_path / "damaged").iterdir()
    assert list(tmp_path.iterdir()) == [tmp_path / "damaged"]
    assert kept.read_bytes().endswith(b"orders\xff")


async def test_what_fails_in_an_unexpected_way_is_told_to_all_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, limit=MIB)

    def fail(*_: object) -> None:
        raise KeyError("no such line")

    with monkeypatch.context() as broken:
        broken.setattr(SpoolStore, "keep", fail)
        async with asyncio.timeout(1000):  # of the hurried loop
            told = await asyncio.gather(
                *(spool.append("orders", [text(f"{number}")]) for number in range(5)), return_exceptions=True
            )
    assert [type(each) for each in told] == [SpoolError] * 5
    assert (spool.status().messages, spool.status().bytes) == (0, 0)
    await spool.append("orders", [text("5")])
    assert spool.status().messages == 1
    await spool.close()
    with pytest.raises(SpoolError, match="has been closed"):
        await spool.append("orders", [text("6")])
    assert spool.status().messages == 1


async def test_a_disk_that_takes_nothing_is_told_until_it_takes_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    spool = Spool(tmp_path, limit=MIB, clock=clock)
    await spool.append("orders", [text("1")])

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(SpoolStore, "keep", fail)
        full.setattr("pairbus.client.sending.spool.try_directory", fail)
        with pytest.raises(SpoolError, match="No space left on device"):
            await spool.append("orders", [text("2")])
        told = spool.status()
        assert told.bytes == told.limit > 0  # it is full
        await spool.thread.run(lambda: None)
        assert [one for one in spool.warnings if "No space left" in one]
    spool.status()
    await spool.thread.run(lambda: None)
    assert (spool.warnings, spool.status().limit) == ([], MIB)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    clock.advance(1.1)
    await spool.append("orders", [text("3")])
    assert spool.status().limit == spool.status().bytes + 100
    room = spool.status().limit
    await spool.append("orders", [text("4")])
    assert spool.status().limit == max(room, spool.status().bytes), "also before the disk is asked again"
    await spool.close()


async def test_a_store_that_cannot_be_closed_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        left = SpoolStore.create(tmp_path)
        left.append(LineKey.of("orders"), [SpoolRecord("orders", 1, pack([text(f"{number}")]))])
        left.close()
    spool = Spool(tmp_path, limit=MIB)
    await spool.thread.run(spool._adopt_stores)
    await spool.append("bills", [text("3")])
    closed: list[SpoolStore] = []
    let_go = SpoolStore.close

    def close(store: SpoolStore) -> None:
        closed.append(store)
        let_go(store)
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(SpoolStore, "close", close)
    with pytest.raises(PermissionError):
        await spool.close()
    assert len(closed) == 3


async def test_a_caller_that_is_cancelled_leaves_the_count_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, limit=MIB)
    begun, allowed = threading.Event(), threading.Event()

    def fail(*_: object) -> None:
        begun.set()
        allowed.wait(PATIENCE)
        raise OSError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(SpoolStore, "keep", fail)
        caller = asyncio.create_task(spool.append("orders", [text("1")]))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        caller.cancel()
        await asyncio.wait({caller})
        assert spool.status().messages == 1
        allowed.set()
        await eventually(lambda: spool.status().messages == 0)
    await spool.close()


async def test_an_entity_that_fails_in_an_unexpected_way_does_not_hold_up_the_others(
    tmp_path: Path, manual_timers: ManualTimers
) -> None:
    class Picky(Sink):
        async def __call__(self, path: str, messages: list[Message], when: datetime | None) -> None:
            if path == "orders":
                raise KeyError(path)
            await super().__call__(path, messages, when)

    spool, sink = Spool(tmp_path, limit=MIB), Picky()
    for entity, name in (("orders", "1"), ("invoices", "2")):
        await spool.append(entity, [text(name)])
    spool.start(sink, timers=manual_timers)
    await eventually(lambda: sink.taken == ["2"])
    assert spool.holds("orders")
    await spool.close()


async def test_a_lane_whose_cancellation_is_swallowed_ends_all_the_same(
    tmp_path: Path, manual_timers: ManualTimers
) -> None:
    """As the SDK does: it makes an error of its own of it."""
    begun = asyncio.Event()

    async def swallow(path: str, messages: list[Message], when: datetime | None) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("lost") from None

    spool = Spool(tmp_path, limit=MIB)
    await spool.append("orders", [text("1")])
    spool.start(swallow, timers=manual_timers)
    async with asyncio.timeout(1000):
        await begun.wait()
        await spool.close()
    assert len(list_waiting(tmp_path)) == 1


async def test_a_path_that_hangs_holds_up_no_other(tmp_path: Path, manual_timers: ManualTimers) -> None:
    """A throttled one, say, whose sends wait as long as they are asked to."""
    sink = Sink()

    async def hang(path: str, messages: list[Message], when: datetime | None) -> None:
        if path == "orders":
            await asyncio.Event().wait()
        await sink(path, messages, when)

    spool = Spool(tmp_path, limit=MIB)
    for number in range(3):
        await spool.append("orders", [text(f"o{number}")])
        await spool.append("bills", [text(f"b{number}")])
    spool.start(hang, timers=manual_timers)
    await eventually(lambda: sink.taken == ["b0", "b1", "b2"])
    await eventually(lambda: spool.status().messages == 3)
    await spool.close()


class Splitter(Sink):
    """Takes one message of a list, and then is down."""

    async def __call__(self, path: str, messages: list[Message], when: datetime | None) -> None:
        if len(messages) > 1:
            self.taken.append(str(messages[0]))
            error = BacklogUnavailableError(1)
            error.taken = 1
            raise error
        await super().__call__(path, messages, when)


async def test_what_is_known_to_be_sent_of_a_list_is_not_sent_again_by_the_next_process(
    tmp_path: Path, manual_timers: ManualTimers
) -> None:
    spool, sink = Spool(tmp_path, limit=MIB), Splitter()
    await spool.append("orders", [text("m0"), text("m1"), text("m2"), text("m3")])
    spool.start(sink, timers=manual_timers)
    await eventually(lambda: spool.status().messages == 2)
    await spool.close()
    assert sink.taken == ["m0", "m1"]
    assert [one.message_id for one in list_waiting(tmp_path)] == ["m2", "m3"]
    again, later = Spool(tmp_path, limit=MIB), Sink()
    again.start(later, timers=manual_timers)
    await eventually(lambda: later.taken == ["m2", "m3"])
    await eventually(lambda: again.status().bytes == 0)
    await again.close()


async def test_living_processes_do_not_take_from_each_other(
    tmp_path: Path, manual_timers: ManualTimers
) -> None:
    one, other, sink = Spool(tmp_path, limit=MIB), Spool(tmp_path, limit=MIB), Sink()
    await one.append("orders", [text("1")])
    other.start(sink, timers=manual_timers)
    await manual_timers.advance(100.0)
    await other.append("orders", [text("2")])
    other.nudge()
    # What it had taken from another would be sent before its own.
    await eventually(lambda: bool(sink.taken))
    assert sink.taken == ["2"]
    await one.close()
    await other.close()


def test_messages_come_back_as_they_were() -> None:
    when = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
    value = {
        "a": [1, 2.5, None, True, (5, "x"), Decimal("1.5"), when],
        b"k": uuid.UUID(int=5),
        7: {"TYPE": "LONG"},
    }
    messages: list[Any] = [
        text("1", application_properties={"when": when, "n": {"TYPE": "LONG", "VALUE": 5}}, session_id="s"),
        AmqpAnnotatedMessage(value_body=value, header=AmqpMessageHeader(priority=5), footer={"f": b"x"}),
        AmqpAnnotatedMessage(sequence_body=[[1, "a"], [value]], annotations={"x-opt-partition-key": "p"}),
        AmqpAnnotatedMessage(data_body=[b"one", b"two"], properties={"message_id": uuid.UUID(int=1)}),
        AmqpAnnotatedMessage(value_body={1.5: {None: "a"}, True: [{uuid.UUID(int=2): b"b", (1, "t"): 5}]}),
        AmqpAnnotatedMessage(data_body=b"x", application_properties={"octets": bytearray(b"one"), "k": b"1"}),
        AmqpAnnotatedMessage(
            value_body=[{"TYPE": "ULONG", "VALUE": 2**64 - 1}], properties={"message_id": 2**63}
        ),
        # What is packed at a glance, and what differs from it in one thing.
        text("2"),
        text("3", subject="s"),
        AmqpAnnotatedMessage(data_body=b"", header={}, properties={"message_id": "\u00fc" * 200}, footer={}),
        AmqpAnnotatedMessage(data_body=bytes(70_000), properties={"message_id": "6"}, annotations={}),
        AmqpAnnotatedMessage(data_body=b"4", header=AmqpMessageHeader(), properties={"message_id": 4}),
        AmqpAnnotatedMessage(data_body=b"5", properties={}, annotations={}, application_properties={"a": {}}),
    ]
    found, about = unpack(pack(messages, scheduled_for=when))
    assert about == {"scheduled_for": when}
    alone = [unpack(pack([message], scheduled_for=when, stays=False)) for message in messages]
    assert all(said == {"scheduled_for": when, "stays": False} for _, said in alone)
    for one, other in zip(messages * 2, found + [other for (other,), _ in alone], strict=True):
        raw = one.raw_amqp_message if isinstance(one, ServiceBusMessage) else one
        assert isinstance(other, AmqpAnnotatedMessage)
        assert repr(_parts(other)) == repr(_parts(raw))  # which tells bytes from a bytearray


def _parts(message: AmqpAnnotatedMessage) -> list[Any]:
    body = message.body if message.body_type.name == "VALUE" else list(message.body)
    names = (
        "header",
        "properties",
        "application_properties",
        "annotations",
        "delivery_annotations",
        "footer",
    )
    return [message.body_type, body, *(getattr(message, name) for name in names)]


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8])
async def test_what_is_moved_while_the_spool_is_closed_is_not_there_twice(tmp_path: Path, steps: int) -> None:
    async def refuse(path: str, messages: list[Message], when: datetime | None) -> None:
        asked.set()
        raise MessageTooLargeForBacklog(path, message_id="m", size=2, limit=1)

    asked = asyncio.Event()
    store = SpoolStore.create(tmp_path)
    message = ServiceBusMessage("x", message_id="m")
    record = SpoolRecord("orders", 1, pack([message], scheduled_for=None, stays=False))
    store.append(LineKey.of("orders"), [record])
    store.close()
    spool = Spool(tmp_path, limit=MIB)
    spool.start(refuse, timers=LoopTimers(asyncio.get_running_loop()))
    await asked.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    await spool.close()
    assert len(list_waiting(tmp_path)) == 1


async def test_a_directory_that_somebody_removed_is_made_anew(
    tmp_path: Path, manual_timers: ManualTimers
) -> None:
    sink = Sink()
    sink.refuses.add("orders")
    spool = Spool(tmp_path / "spool", limit=MIB)
    spool.start(sink, timers=manual_timers)
    await spool.append("orders", [text("gone")])
    await eventually(lambda: spool.status().last_failure is not None)  # and so its lane rests
    shutil.rmtree(tmp_path)
    await spool.append("orders", [text("kept")])
    sink.refuses.clear()
    await manual_timers.advance(60.0)
    await eventually(lambda: spool.is_empty)
    assert sink.taken == ["kept"]
    assert (spool.status().messages, spool.status().bytes) == (0, 0)
    await spool.close()

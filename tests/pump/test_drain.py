"""Draining: everything ends where it belongs, as it was, in order, with a receipt."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from pairbus.amqp.types import Int, Symbol, UInt
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings, TopicSettings
from pairbus.ledger.receipts import ReceiptLog
from pairbus.ledger.segment import closed_segments
from pairbus.pump.options import PumpOptions
from pairbus.pump.pump import Pump
from pairbus.pump.summary import PumpSummary
from tests.ledger.receipts import read_receipts
from tests.waiting import PATIENCE

from .bench import Bench, backlog, envelope


async def test_thousands_for_queues_topics_and_sessions(bench: Bench) -> None:
    """I2, I4, I5: nothing lost, nothing twice, order kept for each path and session."""
    queues = bench.create("orders", "bills", "Deep/Path", count=4)
    bench.primary.create_queue("sessions", QueueSettings(requires_session=True))
    bench.primary.create_topic("news", TopicSettings())
    bench.primary.create_subscription("news", "all")
    paths = {"orders": "orders", "ORDERS": "orders", "bills": "bills", "deep/path": "Deep/Path", "news": ""}
    chance = random.Random(1)
    wanted: dict[str, list[str]] = {}
    for index, queue in enumerate(queues):
        payloads = []
        for number in range(1000):
            name = f"{index}-{number:04}"
            if number % 3:
                path = chance.choice(sorted(paths))
                payloads.append(envelope(path, name))
                key = f"{index} {paths[path] or 'news/Subscriptions/all'}"
            else:
                session = f"s{index}-{chance.randrange(20)}"
                payloads.append(envelope("sessions", name, session=session))
                key = f"{index} sessions {session}"
            wanted.setdefault(key, []).append(name)
        bench.load(queue, payloads)
    summary = await bench.drain(queues)
    assert (summary.moved, summary.waiting, summary.dead_lettered, summary.unknown) == (4000, 0, 0, 0)
    assert all(bench.secondary.message_count(queue) == 0 for queue in queues)
    found: dict[str, list[str]] = {}
    for path in ("orders", "bills", "Deep/Path", "sessions", "news/Subscriptions/all"):
        for one in bench.stored(path):
            name = str(one.properties.message_id)
            session_id = one.properties.group_id
            key = f"{name[0]} {path}" + (f" {session_id}" if session_id else "")
            found.setdefault(key, []).append(name)
    assert found == wanted
    assert sorted(bench.receipt_ids) == sorted(name for names in wanted.values() for name in names)
    assert summary.paths["orders"].moved == len(bench.ids("orders"))
    assert summary.slowest_path in summary.paths


async def test_what_arrives_is_what_was_sent(bench: Bench) -> None:
    """I4: body and properties, with their types."""
    (queue,) = bench.create("orders")
    own = {
        "count": Int(3),
        "size": UInt(4),
        "name": "ä",
        "kind": Symbol("x"),
        "flag": True,
        "raw": b"\x00\xff",
    }
    bench.load(queue, [envelope("orders", "m", body=b"\x00body\xff" * 50, properties=own)])
    await bench.drain([queue])
    (found,) = bench.stored("orders")
    properties = found.application_properties
    assert properties == own
    assert {name: type(value) for name, value in properties.items()} == {
        name: type(value) for name, value in own.items()
    }
    assert found.data_sections() == [b"\x00body\xff" * 50]
    assert found.header.durable is True


async def test_schedules_are_kept(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    later = int((time.time() + 3600) * 1000)
    bench.load(queue, [envelope("orders", "m", scheduled_ms=later)])
    await bench.drain([queue])
    (found,) = bench.stored("orders")
    assert found.annotations["x-opt-scheduled-enqueue-time"] == later


async def test_time_to_live_by_policy(bench: Bench) -> None:
    (queue,) = bench.create("paused", "deducted")
    bench.load(
        queue,
        [
            envelope("paused", "p", ttl_ms=1),
            envelope("deducted", "gone", ttl_ms=1),
            envelope("deducted", "left", ttl_ms=3_600_000),
        ],
    )
    before = time.time()
    summary = await bench.drain([queue], ttl_policies={"Deducted": "deduct"})
    assert (summary.moved, summary.dead_lettered) == (2, 1)
    assert bench.dead_letters(queue) == {"gone": "TTLExpiredException"}
    (left,) = bench.stored("deducted")
    assert left.header.ttl is not None
    assert 3_500_000 < left.header.ttl <= 3_600_000
    born, expiry = left.properties.creation_time, left.properties.absolute_expiry_time
    assert born is not None
    assert expiry is not None
    assert expiry / 1000 == pytest.approx(before + 3600, abs=60)
    assert expiry - born == left.header.ttl  # which the entity takes for its life
    assert bench.receipts.rows[-1]["path"] in ("paused", "deducted")
    assert {row["reason"] for row in bench.receipts.rows if row["outcome"] == "dead-lettered"} == {
        "TTLExpiredException"
    }


async def test_malformed_envelopes_end_in_the_dead_letters(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    bench.load(
        queue,
        [
            envelope(None, "no-path"),
            envelope("orders", "good"),
            envelope(None, "number", properties={"x-ms-path": 7}),
            envelope(None, "dollar", properties={"x-ms-path": "orders/$DeadLetterQueue"}),
            envelope(
                "orders", "zip", properties={"x-pairbus-body-encoding": "deflate", "x-pairbus-body-size": 9}
            ),
            envelope("orders", "ttl", properties={"x-ms-timetolive": "soon"}),
        ],
    )
    summary = await bench.drain([queue])
    assert (summary.moved, summary.dead_lettered) == (1, 5)
    names = ("no-path", "number", "dollar", "zip", "ttl")
    assert bench.dead_letters(queue) == dict.fromkeys(names, "MalformedEnvelope")
    assert bench.ids("orders") == ["good"]
    assert len(bench.receipts.rows) == 6


async def test_two_pairs_share_one_secondary(bench: Bench) -> None:
    """A backlog namespace with queues of two primaries: each pump moves its own alone."""
    (queue,) = bench.create("orders")
    other = backlog(0, "fabrikam")
    bench.secondary.create_queue(other)
    bench.load(queue, [envelope("orders", "ours")])
    bench.load(other, [envelope("orders", "theirs")])
    await bench.drain([queue])
    assert bench.ids("orders") == ["ours"]
    assert bench.ids(other, on=bench.secondary) == ["theirs"]
    assert {row["pair"] for row in bench.receipts.rows} == {"contoso"}


async def test_receipts_are_on_the_disk_before_the_messages_are_gone(bench: Bench, tmp_path: Path) -> None:
    queues = bench.create("orders", count=3)
    for index, queue in enumerate(queues):
        bench.load(queue, [envelope("orders", f"{index}-{number}", session="s") for number in range(50)])
    log = ReceiptLog(tmp_path, writer="me")
    pump = Pump(bench.pair(), queues, options=PumpOptions(drain=True, drain_wait=0.05), receipts=log)
    assert (await pump.run()).moved == 150
    rows = read_receipts(closed_segments(tmp_path, "receipts"))
    assert len(rows) == 150
    row = next(row for row in rows.values() if row["message_id"] == "1-7")
    assert row["backlog_queue"] == queues[1]
    assert (row["writer"], row["session"], row["attempts"], row["outcome"]) == ("me", "s", 1, "moved")
    assert row["enqueued"] <= row["moved"]


async def test_a_disk_that_takes_no_receipts_ends_the_pump_and_loses_nothing(
    bench: Bench, tmp_path: Path
) -> None:
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", "m")])
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    log = ReceiptLog(blocked / "records")
    pump = Pump(bench.pair(), [queue], options=PumpOptions(drain=True, drain_wait=0.05), receipts=log)
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        await pump.run()
    assert bench.ids(queue, on=bench.secondary) == ["m"]


async def test_the_broker_counted_what_the_pump_recorded(bench: Bench) -> None:
    """I8."""
    queues = bench.create("orders", count=2)
    for queue in queues:
        bench.load(queue, [envelope("orders", f"{queue}{number}") for number in range(300)])
    summary = await bench.drain(queues)
    assert bench.counted(OperationKind.SEND, on=bench.primary) == summary.moved == 600
    assert bench.counted(OperationKind.DELIVERY) == 600
    assert bench.counted(OperationKind.COMPLETE) == 600
    assert (
        bench.counted(OperationKind.ABANDON)
        == bench.counted(OperationKind.DEFER)
        == bench.counted(OperationKind.RELEASE)
        == 0
    )


async def test_progress_is_told(bench: Bench) -> None:
    """While it runs, not at its end alone: the pump is asked to stop by what it has told."""
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", str(number)) for number in range(100)])
    told: list[PumpSummary] = []

    def note(summary: PumpSummary) -> None:
        told.append(summary)
        if len(told) > 1 and summary.moved == 100:
            pump.stop()

    pump = Pump(bench.pair(), [queue], options=PumpOptions(progress_interval=0.02), on_progress=note)
    async with asyncio.timeout(PATIENCE):
        await pump.run()
    assert [summary.moved for summary in told] == sorted(summary.moved for summary in told)
    assert told[-1].moved == 100
    assert len(told) > 2


async def test_one_path_only(bench: Bench) -> None:
    (queue,) = bench.create("orders", "bills")
    bench.load(queue, [envelope("orders", "o"), envelope("bills", "b"), envelope("orders", "p")])
    summary = await bench.drain([queue], only_paths=("Orders",))
    assert (summary.moved, summary.waiting) == (2, 1)
    assert bench.ids("orders") == ["o", "p"]
    assert (await bench.drain([queue])).moved == 1
    assert bench.ids("bills") == ["b"]


async def test_a_rate_limit_is_kept(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", str(number)) for number in range(150)])
    summary = await bench.drain([queue], max_rate=200.0)
    assert summary.moved == 150
    assert summary.seconds > 0.5  # a tenth of a second's worth may go at once


async def test_the_sdk_drains_too(bench: Bench) -> None:
    (queue,) = bench.create("orders", "sessions")
    payloads = [envelope("orders", f"o{number}") for number in range(30)]
    payloads += [envelope("sessions", f"s{number}", session="one") for number in range(10)]
    bench.load(queue, [*payloads, envelope(None, "bad")])
    summary = await bench.drain([queue], transport="sdk")
    assert (summary.moved, summary.dead_lettered) == (40, 1)
    assert bench.ids("orders") == [f"o{number}" for number in range(30)]
    assert bench.ids("sessions") == [f"s{number}" for number in range(10)]
    assert bench.dead_letters(queue) == {"bad": "MalformedEnvelope"}
    assert bench.stored(queue, on=bench.secondary) == []

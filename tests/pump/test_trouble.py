"""When something is wrong with a path: the others go on, nothing spins, each message ends where it should."""

import asyncio
import errno
import time
from collections.abc import Sequence

import pytest

from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.ledger.receipts import MemoryReceipts, Receipt
from pairbus.pump.intake import NumberGap
from tests.waiting import eventually

from .bench import Bench, SettableClock, envelope


def load_mixture(bench: Bench, queue: str, paths: list[str], count: int) -> None:
    payloads = []
    for number in range(count):
        for path in paths:
            session = f"s{number % 5}" if number % 2 else None
            payloads.append(envelope(path, f"{path}-{number:03}", session=session))
    bench.load(queue, payloads)


async def test_a_path_that_is_down_waits_and_the_others_drain(bench: Bench) -> None:
    """I7."""
    queues = bench.create("good", "bad", count=2)
    for queue in queues:
        load_mixture(bench, queue, ["good", "bad"], 100)
    bench.primary.faults.set("refuse", entity="bad")
    summary = await bench.drain(queues)
    assert (summary.moved, summary.waiting, summary.dead_lettered) == (200, 200, 0)
    assert len(bench.ids("good")) == 200
    assert summary.paths["bad"].trouble is not None
    # Each message was delivered and put aside once; the path was tried a few times, not for each.
    assert bench.counted(OperationKind.DELIVERY) <= 400 + 20
    assert bench.counted(OperationKind.DEFER) <= 200 + 20
    assert all(bench.locked(queue) == 0 for queue in queues)
    bench.primary.faults.clear()
    again = await bench.drain(queues)
    assert (again.moved, again.waiting) == (200, 0)
    for_sessions = [one for one in bench.stored("bad") if one.properties.group_id]
    for session in {one.properties.group_id for one in for_sessions}:
        names = [str(one.properties.message_id) for one in for_sessions if one.properties.group_id == session]
        for name in names:  # the two queues hold the same names; each is in order by itself
            assert names.count(name) == 2
        assert list(dict.fromkeys(names)) == sorted(set(names))
    assert sorted(bench.receipt_ids) == sorted(bench.ids("good") + bench.ids("bad"))


@pytest.mark.parametrize("step", [-3600.0, 3600.0])
async def test_a_clock_that_is_set_delays_no_other_try(bench: Bench, step: float) -> None:
    """However far it is set back: what was put aside is tried when it would have been."""
    (queue,) = bench.create("orders")
    names = [f"{number:03}" for number in range(20)]
    bench.load(queue, [envelope("orders", name) for name in names])
    bench.primary.faults.set("refuse", entity="orders")
    clock = SettableClock()
    pump = bench.pump([queue], drain=False, clock=clock)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: bench.counted(OperationKind.DEFER) >= len(names))
    clock.ahead = step
    bench.primary.faults.clear()
    await eventually(lambda: sorted(bench.ids("orders")) == names)
    pump.stop()
    assert (await running).lost_locks == 0


async def put_aside_by_three(bench: Bench, queue: str, count: int) -> list[str]:
    """Messages that three drains in a row found no way for, each of which ended cleanly; their ids."""
    names = [f"{number:03}" for number in range(count)]
    sent = [
        envelope("orders", one, session="s" if int(one) % 2 else None, properties={"n": 1}) for one in names
    ]
    bench.load(queue, sent)
    bench.primary.faults.set("refuse")
    for _ in range(3):
        assert (await bench.drain([queue])).waiting == count
    bench.primary.faults.clear()
    return names


async def test_what_was_put_aside_again_and_again_is_not_in_doubt(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    names = await put_aside_by_three(bench, queue, 300)
    assert (await bench.drain([queue])).moved == 300
    assert sorted(bench.ids("orders")) == names
    assert [row for row in bench.receipts.rows if row["unsure"]] == []
    assert all(one.application_properties == {"n": 1} for one in bench.stored("orders"))


async def test_what_a_dead_pump_had_fetched_is_in_doubt(bench: Bench) -> None:
    """However often it was put aside before."""
    (queue,) = bench.create("orders")
    names = await put_aside_by_three(bench, queue, 20)
    with bench.short_locks(queue):
        bench.fetch_deferred(queue, 8)
    await eventually(lambda: bench.locked(queue) == 0)  # else the pump waits as long as its own locks last
    assert (await bench.drain([queue])).moved == 20
    assert {row["message_id"] for row in bench.receipts.rows if row["unsure"]} == set(names[:8])


async def test_who_is_stopped_completes_what_was_moved_and_lies_put_aside(bench: Bench) -> None:
    """Its locks have ended while the primary took its time; the next pump would send it again."""
    (queue,) = bench.create("orders")
    names = await put_aside_by_three(bench, queue, 20)
    bench.primary.faults.set("delay", entity="orders", seconds=2.0)
    pump = bench.pump([queue], drain=False)
    with bench.short_locks(queue):
        running = asyncio.create_task(pump.run())
        await eventually(lambda: len(bench.ids("orders")) == len(names))
        await eventually(lambda: bench.locked(queue) == 0)
    pump.stop()
    assert (await running).lost_locks >= len(names)
    bench.primary.faults.clear()
    assert (await bench.drain([queue])).moved == 0
    assert sorted(bench.ids("orders")) == names


class StuckReceipts(MemoryReceipts):
    """A disk that says nothing, and then that it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = asyncio.Event()

    async def append(self, rows: Sequence[Receipt]) -> None:
        await self.is_full.wait()
        raise OSError(errno.ENOSPC, "No space left on device")


async def test_who_has_no_receipt_for_what_lies_put_aside_completes_none_of_it(bench: Bench) -> None:
    """Its locks have ended, and it was found put aside, while the disk took its time."""
    (queue,) = bench.create("orders")
    names = await put_aside_by_three(bench, queue, 20)
    bench.receipts = receipts = StuckReceipts()
    pump = bench.pump([queue], drain=False)
    with bench.short_locks(queue):
        running = asyncio.create_task(pump.run())
        await eventually(lambda: len(bench.ids("orders")) == len(names))
        await eventually(lambda: bench.locked(queue) == 0)
    (one,) = pump._pumps
    await one._intake.look_through(one._source, NumberGap())
    receipts.is_full.set()
    with pytest.raises(OSError, match="No space"):
        await running
    assert sorted(bench.ids(queue, on=bench.secondary)) == names


async def test_what_a_dead_pump_had_is_in_doubt_though_its_time_is_over(bench: Bench) -> None:
    """It may have been sent in time, and who redrives it sends it a second time."""
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", name, ttl_ms=1) for name in ("had", "fresh")])
    with bench.short_locks(queue):
        bench.hold(queue, 1)
    assert (await bench.drain([queue], ttl_policy="deduct")).dead_lettered == 2
    assert {row["message_id"]: row["unsure"] for row in bench.receipts.rows} == {"had": 1, "fresh": 0}


async def test_what_was_fetched_when_a_pump_stops_is_not_in_doubt(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    names = await put_aside_by_three(bench, queue, 300)
    bench.primary.faults.set("delay", entity="orders", seconds=0.5)
    pump = bench.pump([queue], drain=False, max_rate=50.0)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: bench.locked(queue) > 100)
    pump.stop()
    await running
    assert bench.counted(OperationKind.ABANDON) > 0
    bench.primary.faults.clear()
    await bench.drain([queue])
    assert sorted(bench.ids("orders")) == names
    assert [row for row in bench.receipts.rows if row["unsure"]] == []


async def test_a_path_that_comes_back_is_served_in_order_while_the_pump_runs(bench: Bench) -> None:
    """I5: what was put aside is sent before what came later."""
    (queue,) = bench.create("orders")
    bench.primary.faults.set("disabled", entity="orders")
    bench.load(queue, [envelope("orders", f"a{number:03}", session="s") for number in range(50)])
    pump = bench.pump([queue], drain=False, poll=5.0, first_back_off=0.1)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: bench.counted(OperationKind.DEFER) >= 50)
    bench.load(queue, [envelope("orders", f"b{number:03}", session="s") for number in range(50)])
    await eventually(lambda: bench.counted(OperationKind.DEFER) >= 100)
    bench.primary.faults.clear()
    await eventually(lambda: bench.primary.message_count("orders") >= 100)
    bench.load(queue, [envelope("orders", f"c{number:03}", session="s") for number in range(50)])
    await eventually(lambda: bench.primary.message_count("orders") >= 150)
    pump.stop()
    summary = await running
    assert summary.moved == 150
    assert bench.ids("orders") == [f"{letter}{number:03}" for letter in "abc" for number in range(50)]
    assert bench.secondary.message_count(queue) == 0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"kind": "error", "condition": "amqp:not-found"}, "EntityNotFound"),
        ({"kind": "error", "condition": "com.microsoft:argument-error"}, "Malformed"),
    ],
    ids=["gone", "argument"],
)
async def test_poison_ends_in_the_dead_letters(bench: Bench, fault: dict[str, str], reason: str) -> None:
    (queue,) = bench.create("good", "bad")
    load_mixture(bench, queue, ["good", "bad"], 40)
    bench.primary.faults.set(fault["kind"], entity="bad", condition=fault["condition"])
    summary = await bench.drain([queue])
    assert (summary.moved, summary.dead_lettered, summary.waiting) == (40, 40, 0)
    dead = bench.dead_letters(queue)
    assert len(dead) == 40
    assert set(dead.values()) == {reason}
    assert {row["reason"] for row in bench.receipts.rows if row["outcome"] == "dead-lettered"} == {reason}


async def test_a_refused_path_waits_in_a_drain_and_disturbs_nobody(bench: Bench) -> None:
    """If it is for good, or for want of a token, shows in a minute; a drain does not wait for that."""
    (queue,) = bench.create("good", "bad")
    load_mixture(bench, queue, ["good", "bad"], 40)
    bench.primary.faults.set("error", entity="bad", condition="amqp:unauthorized-access")
    summary = await bench.drain([queue])
    assert (summary.moved, summary.dead_lettered, summary.waiting) == (40, 0, 40)
    trouble = summary.paths["bad"].trouble
    assert trouble is not None
    assert "unauthorized" in trouble


async def test_a_primary_that_takes_no_connection_leaves_nothing_in_doubt(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    load_mixture(bench, queue, ["orders"], 20)
    bench.primary.faults.set("refuse")
    summary = await bench.drain([queue])
    assert (summary.waiting, summary.unknown, bench.receipts.rows) == (20, 0, [])


async def test_tokens_that_cannot_be_had_for_a_while_bury_nothing(bench: Bench) -> None:
    """In mid-drain, for paths that were served a moment before as for new ones."""
    (queue,) = bench.create("orders", "bills")
    load_mixture(bench, queue, ["orders", "bills"], 30)
    pump = bench.pump([queue], drain=False, poll=5.0, max_rate=40.0)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: bench.receipts.rows)
    bench.primary.faults.set("token", duration=1.0)
    await eventually(lambda: len(bench.receipt_ids) >= 60)
    pump.stop()
    summary = await running
    assert (summary.moved, summary.dead_lettered) == (60, 0)


async def test_a_deleted_entity_costs_a_few_attempts_not_one_a_message(bench: Bench) -> None:
    (queue,) = bench.create("good")
    load_mixture(bench, queue, ["good", "never-there"], 200)
    summary = await bench.drain([queue])
    assert (summary.moved, summary.dead_lettered) == (200, 200)
    assert set(bench.dead_letters(queue).values()) == {"EntityNotFound"}


async def test_a_full_entity_is_like_one_that_is_down(bench: Bench) -> None:
    (queue,) = bench.create("good", "full")
    load_mixture(bench, queue, ["good", "full"], 50)
    bench.primary.faults.set("full", entity="full")
    summary = await bench.drain([queue])
    assert (summary.moved, summary.waiting, summary.dead_lettered) == (50, 50, 0)
    assert bench.counted(OperationKind.SEND_REFUSED, on=bench.primary) <= 60


async def test_a_message_that_is_too_large_leaves_its_neighbours_alone(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    body = b"x" * 261_900
    bench.load(
        queue,
        [
            envelope("orders", "a", session="s"),
            envelope("orders", "b", session="s"),
            envelope("orders", "c", session="s"),
        ],
    )
    # Fits the backlog, but not the primary, whose limit we lower by a fault for just this body's kind.
    bench.primary.update_queue("orders", QueueSettings(max_message_size_in_kilobytes=None))
    assert len(body) < 262_144
    bench.primary.faults.set("error", entity="orders", condition="amqp:link:message-size-exceeded")
    summary = await bench.drain([queue])
    assert summary.dead_lettered == 3
    assert set(bench.dead_letters(queue).values()) == {"MessageTooLarge"}


async def test_a_busy_path_is_given_the_time_it_asks_for(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", f"{number:03}") for number in range(100)])
    bench.primary.faults.set("busy", entity="orders")
    begun = time.monotonic()
    draining = asyncio.create_task(bench.drain([queue]))
    await eventually(lambda: "a path does not take messages: Busy" in caplog.text)
    bench.primary.faults.clear()
    summary = await draining
    assert (summary.moved, summary.waiting) == (100, 0)
    assert time.monotonic() - begun >= 2.0  # the broker asks for two seconds


async def test_lost_answers_make_duplicates_of_just_those(bench: Bench) -> None:
    """I3: what was taken without an answer may come twice; nothing is lost, and order holds in sessions."""
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", f"{number:03}", session="s") for number in range(300)])
    bench.primary.faults.set("drop", entity="orders", every=3)
    pump = bench.pump([queue], drain=False, poll=5.0, first_back_off=0.05, longest_back_off=0.05)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: len(set(bench.receipt_ids)) >= 300)
    pump.stop()
    await running
    names = bench.ids("orders")
    assert set(names) == {f"{number:03}" for number in range(300)}
    first_seen = list(dict.fromkeys(names))
    assert first_seen == sorted(first_seen)
    assert len(names) > 300, "no answer was lost, so this test shows nothing"
    assert bench.secondary.message_count(queue) == 0


async def test_a_backlog_queue_that_is_missing_does_not_disturb_the_others(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", "m")])
    summary = await bench.drain([queue, "contoso/x-servicebus-transfer/9"], first_back_off=0.02)
    assert summary.moved == 1
    assert list(summary.queue_errors) == ["contoso/x-servicebus-transfer/9"]


async def test_the_secondary_may_be_cut_in_the_middle(bench: Bench) -> None:
    """Locks outlive links: what was received is sent once and completed over a new line."""
    queues = bench.create("orders", count=2, lock=2.0)  # what was on the wire is locked for that long
    for index, queue in enumerate(queues):
        load = [envelope("orders", f"{index}-{number:04}", session=f"s{number % 7}") for number in range(400)]
        bench.load(queue, load)
    pump = bench.pump(queues, max_rate=1000.0, max_in_hand=100, first_back_off=0.05, longest_back_off=0.2)
    running = asyncio.create_task(pump.run())
    for count in (100, 300, 500):
        await eventually(lambda count=count: len(bench.receipt_ids) >= count)  # type: ignore[misc]
        bench.secondary.faults.set("reset", duration=0.05)
    summary = await running
    assert summary.waiting == 0
    names = bench.ids("orders")
    assert set(names) == {f"{index}-{number:04}" for index in range(2) for number in range(400)}
    for index in range(2):
        for session in range(7):
            mine = [name for name in names if name[0] == str(index) and int(name[2:]) % 7 == session]
            first_seen = list(dict.fromkeys(mine))
            assert first_seen == sorted(first_seen)
    assert set(bench.receipt_ids) == set(names)

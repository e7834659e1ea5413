"""Peers that say nothing any more: deadlines hold, nothing is lost, and the pump goes on when they are back.

Messages in hand are put aside or given back where anybody listens; elsewhere their locks end by themselves.
"""

import asyncio
from collections import Counter

import pytest

from pairbus.pump.amqp_transport import AmqpSource, AmqpTransport
from pairbus.pump.options import PumpOptions
from pairbus.pump.pump import Pump, open_transport
from pairbus.pump.summary import PumpSummary
from pairbus.pump.transport import Unit
from tests.waiting import PATIENCE, eventually

from .bench import Bench, envelope

LOCK = 2.0
NAMES = [f"{number:04}" for number in range(600)]


def load(bench: Bench, queue: str) -> None:
    """Half of them in sessions, half without."""
    bench.load(
        queue,
        [envelope("orders", name, session=f"s{int(name) % 4}" if int(name) % 2 else None) for name in NAMES],
    )


def check_order(bench: Bench) -> None:
    """Order of first arrivals, session by session."""
    arrived = list(dict.fromkeys(bench.ids("orders")))
    for session in (1, 3):
        mine = [name for name in arrived if int(name) % 4 == session]
        assert mine == sorted(mine)


async def until(bench: Bench, count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        await eventually(lambda: len(bench.receipt_ids) >= count)


def transports(pump: Pump) -> tuple[AmqpTransport, AmqpTransport]:
    """To the primary, and to the secondary."""
    (one,) = pump._pumps
    primary, source = one._station.primary, one._source
    assert isinstance(primary, AmqpTransport)
    assert isinstance(source, AmqpSource)
    return primary, source._transport


async def hasten(
    bench: Bench, running: asyncio.Task[PumpSummary], transport: AmqpTransport, timeout: float
) -> None:
    """Have only that peer given up early which will be silent. All that began before has ended then.

    Where the machine stands still meanwhile the drain may be over: the peer seemed silent already.
    """
    transport.timeout = timeout
    enough = len(bench.receipt_ids) + 100
    await eventually(lambda: running.done() or len(bench.receipt_ids) >= enough)


def has_noticed(pump: Pump) -> bool:
    """Whether a send was not answered, or a completion."""
    (one,) = pump._pumps
    return one._station.tally.unknown > 0 or len(one._intake.unsettled) > one._finishing


@pytest.mark.parametrize(("side", "fault"), [("primary", "blackhole"), ("secondary", "silence")])
async def test_a_peer_falls_silent_in_the_middle_and_is_healed(bench: Bench, side: str, fault: str) -> None:
    (queue,) = bench.create("orders", lock=LOCK)
    load(bench, queue)
    pump = bench.pump(
        [queue],
        send_timeout=0.5,
        first_back_off=0.05,
        longest_back_off=0.2,
        max_rate=600.0,
        drain=False,
        poll=5.0,
    )
    running = asyncio.create_task(pump.run())
    await until(bench, 100)
    getattr(bench, side).faults.set(fault)
    await eventually(lambda: has_noticed(pump), what="a deadline of an answer")
    getattr(bench, side).faults.clear()
    async with asyncio.timeout(40):
        await eventually(lambda: not bench.secondary.message_count(queue))
    pump.stop()
    summary = await running
    arrived = Counter(bench.ids("orders"))
    assert set(arrived) == set(NAMES) == set(bench.receipt_ids)
    # Only what was sent without an answer may have come twice: what could not be completed is remembered.
    assert sum(arrived.values()) - len(NAMES) <= summary.unknown
    assert summary.dead_lettered == 0
    check_order(bench)


async def test_a_drain_ends_with_what_a_silent_primary_does_not_take(bench: Bench) -> None:
    (queue,) = bench.create("orders", lock=LOCK)
    load(bench, queue)
    pump = bench.pump([queue], send_timeout=PATIENCE, max_rate=300.0, longest_back_off=0.4)
    running = asyncio.create_task(pump.run())
    await until(bench, 100)
    await hasten(bench, running, transports(pump)[0], 0.4)
    bench.primary.faults.set("silence")
    async with asyncio.timeout(PATIENCE):  # deadlines hold
        summary = await running
    assert summary.moved + summary.waiting == len(NAMES)
    assert summary.waiting > 0
    assert bench.locked(queue) == 0, "all that was in hand is put aside"
    bench.primary.faults.clear()
    again = await bench.drain([queue])
    assert (again.moved, again.waiting) == (summary.waiting, 0)
    assert set(bench.ids("orders")) == set(NAMES) == set(bench.receipt_ids)
    extra = sum(Counter(bench.ids("orders")).values()) - len(NAMES)
    assert extra <= summary.unknown
    check_order(bench)


async def test_a_drain_ends_when_the_secondary_falls_into_a_black_hole(bench: Bench) -> None:
    (queue,) = bench.create("orders", lock=LOCK)
    load(bench, queue)
    pump = bench.pump(
        [queue], send_timeout=PATIENCE, max_rate=300.0, first_back_off=0.05, longest_back_off=0.1
    )
    running = asyncio.create_task(pump.run())
    await until(bench, 100)
    await hasten(bench, running, transports(pump)[1], 0.3)
    bench.secondary.faults.set("blackhole")
    async with asyncio.timeout(PATIENCE):
        summary = await running
    assert list(summary.queue_errors) == [queue]
    bench.secondary.faults.clear()
    # Nothing stays locked longer than its lock.
    async with asyncio.timeout(LOCK + 15):
        await eventually(lambda: not bench.locked(queue))
    again = await bench.drain([queue])
    assert again.waiting == 0
    assert bench.secondary.message_count(queue) == 0
    assert set(bench.ids("orders")) == set(NAMES) == set(bench.receipt_ids)
    check_order(bench)


async def test_all_who_wait_for_a_silent_entity_wait_for_one_deadline(bench: Bench) -> None:
    bench.create("orders")
    bench.primary.faults.set("blackhole", entity="orders")
    transport = open_transport(bench.pair().primary.resolve(), PumpOptions(send_timeout=0.5))
    end = transport.destination("orders")
    unit = Unit([envelope("orders", "m")])
    found = await asyncio.gather(*(end.send([unit]) for _ in range(10)))
    (first, *others) = [outcome for (outcome,) in found]
    assert first is not None
    assert all(other is first for other in others), "one attempt for all of them"
    (again,) = await end.send([unit])
    assert again is not first, "who comes later tries anew"
    bench.primary.faults.clear()
    assert isinstance(transport, AmqpTransport)
    transport.timeout = PATIENCE  # who is answered has all the time it takes
    assert await end.send([unit]) == [None]
    await transport.close()


async def test_a_stop_is_not_held_up_by_silence(bench: Bench) -> None:
    (queue,) = bench.create("orders", lock=LOCK)
    load(bench, queue)
    pump = bench.pump([queue], drain=False, send_timeout=0.5, max_rate=600.0)
    running = asyncio.create_task(pump.run())
    await until(bench, 50)
    bench.primary.faults.set("blackhole")
    bench.secondary.faults.set("blackhole")
    pump.stop()
    async with asyncio.timeout(PATIENCE):
        await running


async def test_what_came_is_given_back_though_nobody_answers_for_the_credit(bench: Bench) -> None:
    """The namespace is there, and says nothing of this queue. What it has sent must not stay locked."""
    queue, other = bench.create("orders", count=2)
    # The deadline also of what is answered, without which the line would be given up.
    transport = open_transport(bench.pair().secondary.resolve(), PumpOptions(send_timeout=3.0))
    source, beside = transport.source(queue), transport.source(other)
    assert isinstance(source, AmqpSource)
    assert await source.receive(10, 0.0) == []
    bench.load(queue, [envelope("orders", name) for name in NAMES[:3]])
    await eventually(lambda: source._receiver.present and len(source._receiver.present.buffer) == 3)
    bench.secondary.faults.set("silence", entity=queue)
    stopping = asyncio.create_task(source.stop_receiving())
    while not stopping.done():
        assert await beside.peek(0, 1) == []
    bench.secondary.faults.clear()
    came = await stopping
    assert len(came) == bench.locked(queue) == 3
    assert await source.release(came) == [None] * 3
    assert bench.locked(queue) == 0
    await transport.close()


@pytest.mark.parametrize("drain", [False, True])
async def test_a_pump_that_begins_heeds_a_stop(bench: Bench, drain: bool) -> None:
    (queue,) = bench.create("orders")
    bench.secondary.faults.set("silence")
    pump = bench.pump([queue], send_timeout=600.0, drain=drain, poll=5.0)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: pump._pumps and pump._pumps[0]._asking.is_on, what="a first question")
    pump.stop()
    async with asyncio.timeout(PATIENCE):
        summary = await running
    assert (summary.moved, summary.waiting) == (0, 0)

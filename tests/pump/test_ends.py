"""How a pump ends: asked to, killed, or idle for hours."""

import asyncio
import time

import pytest

from pairbus import words
from pairbus.amqp.message import Header, encode_annotations, encode_header
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.counters import OperationKind
from pairbus.clock import ManualClock
from pairbus.pump.amqp_transport import AmqpSource
from pairbus.pump.lanes import Lanes
from pairbus.pump.options import PumpOptions
from pairbus.pump.parcel import Parcel
from pairbus.pump.pump import Pump
from pairbus.pump.queue import QueuePump
from pairbus.pump.rate import Room
from pairbus.pump.summary import PumpSummary
from tests.waiting import PATIENCE, eventually

from .bench import Bench, backlog, envelope, opened


async def test_a_stop_in_the_middle_leaves_nothing_locked_and_sends_nothing_twice(bench: Bench) -> None:
    queues = bench.create("orders", "sessions", count=3)
    for index, queue in enumerate(queues):
        payloads = []
        for number in range(1500):
            is_for_session = number % 2
            payloads.append(
                envelope(
                    "sessions" if is_for_session else "orders",
                    f"{index}-{number:04}",
                    session=f"s{number % 10}" if is_for_session else None,
                )
            )
        bench.load(queue, payloads)
    pump = bench.pump(queues, drain=False, poll=5.0)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: len(bench.receipts.rows) >= 500)
    pump.stop()
    summary = await running
    assert 500 <= summary.moved < 4500, "the stop came too late to show anything"
    assert all(bench.locked(queue) == 0 for queue in queues)
    names = bench.ids("orders") + bench.ids("sessions")
    assert len(names) == len(set(names)) == summary.moved == len(bench.receipts.rows)
    assert sorted(bench.receipt_ids) == sorted(names)
    left = [name for queue in queues for name in bench.ids(queue, on=bench.secondary)]
    assert sorted(left + names) == sorted(f"{i}-{n:04}" for i in range(3) for n in range(1500))
    assert bench.counted(OperationKind.ABANDON) == 0
    again = await bench.drain(queues)
    assert again.moved == 4500 - summary.moved
    every_name = bench.ids("orders") + bench.ids("sessions")
    assert len(every_name) == len(set(every_name)) == 4500
    for index in range(3):
        for session in range(1, 10, 2):
            mine = [n for n in bench.ids("sessions") if n[0] == str(index) and int(n[2:]) % 10 == session]
            assert mine == sorted(mine)


async def test_killed_between_send_and_complete() -> None:
    """What was sent and not completed comes again; only that is twice, receipts cover all, order holds."""
    clock = ManualClock(time.time())  # no lock ends before the process has died
    with opened(clock=clock) as bench:
        await check_a_kill(bench, clock)


async def check_a_kill(bench: Bench, clock: ManualClock) -> None:
    (queue,) = bench.create("orders", lock=60.0)
    names = [f"{number:04}" for number in range(600)]
    bench.load(queue, [envelope("orders", name, session=f"s{int(name) % 3}") for name in names])
    pump = bench.pump([queue], drain=False, max_rate=2000.0)
    completed = 0
    original = AmqpSource.complete

    async def complete_some(self: AmqpSource, deliveries: list[object]) -> object:
        nonlocal completed
        completed += 1
        if completed > 2:
            await asyncio.Event().wait()  # the process dies here
        return await original(self, deliveries)  # type: ignore[arg-type]

    AmqpSource.complete = complete_some  # type: ignore[assignment,method-assign]
    try:
        running = asyncio.create_task(pump.run())
        await eventually(lambda: completed >= 4)
        for one in pump._pumps:  # hard: no farewell, no settling
            for task in one._tasks:
                task.cancel()
            transport = one._source._transport  # type: ignore[attr-defined]
            (await transport._connecting).cut("killed", "killed")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    finally:
        AmqpSource.complete = original  # type: ignore[method-assign]
    sent_before = bench.ids("orders")
    left = set(bench.ids(queue, on=bench.secondary))
    unsure = set(sent_before) & left
    assert unsure, "nothing was between send and complete"
    clock.advance(61.0)
    bench.broker.tick()
    summary = await bench.drain([queue])
    assert summary.moved == len(left)
    arrived = bench.ids("orders")
    assert {name for name in arrived if arrived.count(name) > 1} <= unsure
    assert set(arrived) == set(names) == set(bench.receipt_ids)
    for session in range(3):
        mine = [name for name in arrived if int(name) % 3 == session]
        assert list(dict.fromkeys(mine)) == sorted(set(mine))
    assert len({row["op"] for row in bench.receipts.rows}) == 600
    doubtful = {row["message_id"] for row in bench.receipts.rows if row["unsure"]}
    assert unsure <= doubtful <= left


async def test_newer_messages_wait_for_those_that_a_dead_pump_has_locked() -> None:
    """I5 after a crash: locks of the dead hide older messages of a session, which must still go first."""
    clock = ManualClock(time.time())
    with opened(clock=clock) as bench:
        (queue,) = bench.create("orders")
        bench.load(queue, [envelope("orders", f"a{number}", session="s") for number in range(5)])
        bench.load(queue, [envelope("orders", "free", session="other")])
        with bench.short_locks(queue):
            bench.hold(queue, 3)
        draining = asyncio.create_task(bench.drain([queue]))
        await eventually(lambda: bench.ids("orders"))
        assert bench.ids("orders") == ["free"], "another session need not wait"
        clock.advance(1.0)
        bench.broker.tick()
        summary = await draining
        assert summary.moved == 6
        assert bench.ids("orders") == ["free", *(f"a{number}" for number in range(5))]


async def test_messages_that_a_dead_pump_put_aside_are_found(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", f"a{number}", session="s") for number in range(20)])
    bench.set_aside(queue, 10)
    summary = await bench.drain([queue])
    assert summary.moved == 20
    assert bench.ids("orders") == [f"a{number}" for number in range(20)]


async def test_messages_put_aside_are_moved_under_short_locks_too(bench: Bench) -> None:
    """Fetched messages are all there is to learn the lock's duration from."""
    (queue,) = bench.create("orders", lock=5.0)
    bench.load(queue, [envelope("orders", f"a{number}") for number in range(5)])
    bench.set_aside(queue, 5)
    summary = await bench.drain([queue])
    assert (summary.moved, summary.waiting) == (5, 0)


async def test_a_drain_waits_for_messages_that_somebody_holds(bench: Bench) -> None:
    (queue,) = bench.create("orders", lock=0.6)
    bench.load(queue, [envelope("orders", "held")])
    begun = time.monotonic()
    bench.hold(queue, 1)
    summary = await bench.drain([queue])
    assert summary.moved == 1
    assert time.monotonic() - begun > 0.4


@pytest.mark.parametrize("transport", ["amqp", "sdk"])
async def test_a_drain_does_not_wait_for_what_is_scheduled_in_a_backlog_queue(
    bench: Bench, transport: str
) -> None:
    """Some other client has put it there. Later messages of its session do not wait for it either."""
    (queue,) = bench.create("orders")
    header = encode_header(Header(durable=True))
    later = encode_annotations({Symbol(words.SCHEDULED_TIME): Timestamp(int(time.time() + 3600) * 1000)})
    tomorrow = envelope("orders", "tomorrow", session="s").removeprefix(header)
    bench.load(queue, [envelope("orders", "before", session="s")])
    bench.load(queue, [header + later + tomorrow])
    bench.load(queue, [envelope("orders", "behind", session="s")])
    summary = await bench.drain([queue], transport=transport)
    assert (bench.ids("orders"), summary.moved) == (["before", "behind"], 2)
    assert summary.queue_errors == {queue: "1 message is scheduled there for a later time"}


async def test_a_drain_ends_where_a_queue_gives_nothing_and_cannot_be_looked_at(bench: Bench) -> None:
    """As one that is throttled: nobody refuses a receiver."""
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", f"m{number}") for number in range(200)])
    pump = bench.pump([queue], max_rate=100)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: len(bench.receipts.rows) > 10)
    bench.secondary.faults.set("busy", entity=queue)
    summary = await running
    assert "throttled" in summary.queue_errors[queue]


async def test_idle_queues_cost_one_empty_receive_a_poll(bench: Bench) -> None:
    """Ten queues: an empty receive each for every poll, and the one that the stop cut short."""
    queues = bench.create("orders", count=10)
    pump = bench.pump(queues, drain=False, poll=0.5)
    begun = time.monotonic()
    running = asyncio.create_task(pump.run())
    await eventually(lambda: bench.counted(OperationKind.EMPTY_RECEIVE) >= 10 * 5)
    pump.stop()
    await running
    polls = (time.monotonic() - begun) / 0.5
    assert 10 * 5 <= bench.counted(OperationKind.EMPTY_RECEIVE) <= 10 * (polls + 1)
    assert bench.counted(OperationKind.MANAGEMENT) == 10  # one look through each queue at the start


async def test_a_message_ends_a_poll_at_once(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    pump = bench.pump([queue], drain=False, poll=900.0)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: bench.counted(OperationKind.MANAGEMENT))  # its look at the queue: now it polls
    bench.load(queue, [envelope("orders", "m")])
    await eventually(lambda: bench.ids("orders"))
    pump.stop()
    await running


async def test_a_thousand_idle_queues_wait_and_do_nothing(bench: Bench) -> None:
    queues = [backlog(index) for index in range(1000)]
    for queue in queues:
        bench.secondary.create_queue(queue)
    pump = bench.pump(queues, drain=False, poll=900.0, progress_interval=900.0)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: bench.counted(OperationKind.MANAGEMENT) >= 1000)
    await eventually(lambda: all(one._source._receiver.present for one in pump._pumps))  # type: ignore[attr-defined]
    loop = asyncio.get_running_loop()

    def due_soon() -> int:
        """Timers of the next minutes: one that asks again and again would have one for each queue."""
        timers = loop._scheduled  # type: ignore[attr-defined]
        return sum(not timer.cancelled() and timer.when() < loop.time() + 300.0 for timer in timers)

    await eventually(lambda: due_soon() < 20, what="quiet")
    pump.stop()
    await running
    assert bench.counted(OperationKind.EMPTY_RECEIVE) == 1000


async def test_a_run_may_have_an_end(bench: Bench) -> None:
    (queue,) = bench.create("orders")
    begun = time.monotonic()
    summary = await bench.drain([queue], drain=False, run_for=0.3)
    assert summary.moved == 0
    assert time.monotonic() - begun > 0.25
    assert PumpOptions().poll == 900.0


async def test_a_mistake_in_one_queue_ends_the_run_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other queue would be polled for an hour; nothing of it stays locked."""
    first, second = bench.create("orders", count=2)
    original = QueuePump.run

    async def run(self: QueuePump) -> None:
        if self.queue == second:
            raise LookupError("a mistake of ours")
        await original(self)

    monkeypatch.setattr(QueuePump, "run", run)
    with pytest.raises(LookupError, match="a mistake of ours"):
        async with asyncio.timeout(PATIENCE):
            await bench.pump([first, second], drain=False, poll=3600.0).run()
    assert bench.locked(first) == 0


async def test_a_mistake_in_a_plan_that_nobody_waits_for_ends_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer's error is the event loop's; the queue would stand still and a drain never end."""
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", "1")])
    plan, is_broken = Lanes.plan, False

    def break_down(lanes: Lanes[Parcel], now: float, room: Room | None) -> object:
        if is_broken:
            raise KeyError("a lane that is not there")
        return plan(lanes, now, room)

    monkeypatch.setattr(Lanes, "plan", break_down)
    pump = bench.pump([queue], drain=False, poll=60.0)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: bench.receipts.rows)
    await asyncio.sleep(0)
    is_broken = True
    pump._pumps[0]._advance_soon()
    with pytest.raises(KeyError, match="a lane that is not there"):
        await asyncio.wait_for(running, PATIENCE)


async def test_progress_is_told_again_after_a_listener_has_failed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    (queue,) = bench.create("orders")
    told: list[PumpSummary] = []
    stop = asyncio.Event()

    def listen(summary: PumpSummary) -> None:
        told.append(summary)
        if len(told) == 1:
            raise KeyError("no such gauge")
        stop.set()

    options = PumpOptions(drain=False, progress_interval=0.02)
    pump = Pump(bench.pair(), [queue], options=options, on_progress=listen, stop=stop)
    await asyncio.wait_for(pump.run(), PATIENCE)
    assert len(told) >= 2
    assert "progress could not be told" in caplog.text


@pytest.mark.parametrize("place", ["receive", "complete"])
async def test_a_step_that_is_cancelled_by_nobody_ends_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """As the SDK does now and then; what the step held would be held for ever, and a drain never end."""
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", "1")])

    async def cancel(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(AmqpSource, place, cancel)
    with pytest.raises(RuntimeError, match="called off"):
        await asyncio.wait_for(bench.pump([queue], drain=place == "complete").run(), PATIENCE)

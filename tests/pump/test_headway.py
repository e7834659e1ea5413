"""A pump that makes no headway says so, and why."""

import asyncio

import pytest

from pairbus.pump.headway import Headway
from pairbus.pump.options import PumpOptions
from pairbus.pump.pump import Pump
from pairbus.pump.summary import PumpSummary
from tests.waiting import eventually

from .bench import Bench, envelope


def test_time_counts_from_the_last_message_and_only_while_there_is_work() -> None:
    headway = Headway()
    assert headway.note(0, has_work=True, now=0.0) is None
    assert headway.note(0, has_work=True, now=29.0) is None
    assert headway.note(0, has_work=True, now=31.0) == 31.0
    assert headway.note(0, has_work=False, now=40.0) is None
    assert headway.note(0, has_work=True, now=60.0) is None
    assert headway.note(1, has_work=True, now=71.0) is None
    assert headway.note(1, has_work=True, now=102.0) == 31.0


def test_it_is_told_less_and_less_often() -> None:
    headway = Headway()
    headway.note(0, has_work=True, now=0.0)
    told = [now for now in range(30, 90_000) if headway.is_news(float(now))]
    assert told[:4] == [30, 90, 210, 450]
    assert len(told) < 35
    headway.note(1, has_work=True, now=90_000.0)
    assert headway.is_news(90_000.0), "another time it is news again"


async def test_the_reason_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pairbus.pump.headway._PATIENCE", 0.05)
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", "m")])
    bench.primary.faults.set("full", entity="orders")
    told: list[PumpSummary] = []
    options = PumpOptions(progress_interval=0.02, first_back_off=0.1, longest_back_off=0.1)
    pump = Pump(bench.pair(), [queue], options=options, on_progress=told.append)
    running = asyncio.create_task(pump.run())
    # On a slow machine the first reason is that nothing has been refused yet.
    await eventually(lambda: told and "orders is " in (told[-1].stall or ""))
    assert "maximum entity size" in (told[-1].stall or "")
    bench.primary.faults.clear()
    await eventually(lambda: told[-1].moved == 1 and told[-1].stall is None)
    pump.stop()
    await running
    assert sum("no progress for" in record.getMessage() for record in caplog.records) == 1


async def test_who_has_moved_all_there_was_is_idle(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It polls on, for a quarter of an hour, and nothing is left that it could make headway with."""
    monkeypatch.setattr("pairbus.pump.headway._PATIENCE", 0.05)
    (queue,) = bench.create("orders")
    told: list[PumpSummary] = []
    pump = Pump(bench.pair(), [queue], options=PumpOptions(progress_interval=0.02), on_progress=told.append)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: told)
    for _ in range(3):  # the first may be found as the pump begins
        before = told[-1].moved
        bench.load(queue, [envelope("orders", "m")])
        await eventually(lambda: told[-1].moved > before)  # noqa: B023 - waited for here
    await eventually(lambda: {(one.moved, one.stall) for one in told[-10:]} == {(3, None)})
    pump.stop()
    await running


async def test_a_drain_whose_rest_is_locked_by_another_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.pump.headway._PATIENCE", 0.05)
    (queue,) = bench.create("orders")
    bench.load(queue, [envelope("orders", "m")])
    bench.hold(queue, 1)
    told: list[PumpSummary] = []
    options = PumpOptions(progress_interval=0.02, drain=True)
    pump = Pump(bench.pair(), [queue], options=options, on_progress=told.append)
    running = asyncio.create_task(pump.run())
    await eventually(lambda: told and f"what is left in {queue} is locked" in (told[-1].stall or ""))
    pump.stop()
    await running
    assert bench.locked(queue) == 1

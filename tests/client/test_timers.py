"""The timers that tests turn by hand, and those of the event loop."""

import asyncio
import time

import pytest

from pairbus.testing import ManualTimers
from pairbus.timers import LoopTimers


async def test_timers_are_called_at_their_time_in_order(manual_timers: ManualTimers) -> None:
    start, called = manual_timers.now(), list[tuple[str, float]]()

    def note(name: str) -> None:
        called.append((name, manual_timers.now() - start))

    manual_timers.call_at(start + 3.0, lambda: note("late"))
    manual_timers.call_at(start + 1.0, lambda: note("early"))
    cancelled = manual_timers.call_at(start + 2.0, lambda: note("never"))
    manual_timers.call_at(start + 1.0, lambda: note("next"))
    cancelled.cancel()
    assert manual_timers.next_at == start + 1.0
    await manual_timers.advance(2.5)
    assert called == [("early", 1.0), ("next", 1.0)]
    assert manual_timers.now() == start + 2.5
    await manual_timers.advance(0.5)
    assert called[-1] == ("late", 3.0)
    assert manual_timers.next_at is None


async def test_timers_that_others_set_are_seen(manual_timers: ManualTimers) -> None:
    start, called = manual_timers.now(), list[float]()

    def again() -> None:
        called.append(manual_timers.now() - start)
        if len(called) < 3:
            manual_timers.call_at(manual_timers.now() + 1.0, again)

    manual_timers.call_at(start + 1.0, again)
    await manual_timers.advance(10.0)
    assert called == [1.0, 2.0, 3.0]


async def test_time_does_not_go_back(manual_timers: ManualTimers) -> None:
    with pytest.raises(ValueError, match="go back"):
        await manual_timers.advance(-1.0)


def test_a_loop_without_a_clock_of_its_own_is_not_asked() -> None:
    with asyncio.Runner() as runner:
        timers = LoopTimers(runner.get_loop())
        assert timers.now is time.monotonic
        assert timers.now() == pytest.approx(runner.get_loop().time(), abs=1.0)


async def test_a_loop_with_a_clock_of_its_own_is(manual_timers: ManualTimers) -> None:
    loop = asyncio.get_running_loop()
    timers = LoopTimers(loop)
    assert timers.now == loop.time
    called = asyncio.Event()
    timers.call_at(timers.now() + 0.1, called.set)
    await called.wait()

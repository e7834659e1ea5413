"""Calls that come from threads at the same moment share one wake-up of the loop, and none is forgotten."""

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from pairbus.portal import Portal, _Call
from tests.waiting import PATIENCE, wait_until


@pytest.fixture(params=[False, True], ids=["keeps its loop", "lends its loop"])
def portal(request: pytest.FixtureRequest) -> Iterator[Portal]:
    portal = Portal("portal-of-a-test", lends=request.param)
    yield portal
    portal.close(timeout=PATIENCE)


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_a_call_that_comes_when_the_loop_has_just_looked_is_not_forgotten(portal: Portal) -> None:
    class Arrivals(deque[_Call[Any]]):
        """Another call comes in the moment in which nothing more was found."""

        def __bool__(self) -> bool:
            is_found = len(self) > 0
            while late and not is_found:
                portal._hand_over(late.pop())
            return is_found

    call: _Call[int] = _Call(partial(double, 3))
    late: list[_Call[Any]] = [call]
    portal._arrivals = Arrivals()
    portal.call(lambda: None, timeout=PATIENCE)
    assert call.wait(PATIENCE)
    assert call.result() == 6


def test_calls_that_come_while_the_loop_is_being_woken_up_share_that(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait(PATIENCE)

    with ThreadPoolExecutor(6) as pool:
        holding = pool.submit(portal.call, hold)
        assert held.wait(PATIENCE)
        woken: list[Any] = []
        wake = portal._loop.call_soon_threadsafe

        def wake_and_note(*what: Any) -> Any:
            woken.append(what)
            return wake(*what)

        monkeypatch.setattr(portal._loop, "call_soon_threadsafe", wake_and_note)
        calls = [pool.submit(portal.run, double, 0)]
        wait_until(lambda: len(woken) == 1)
        calls += [pool.submit(portal.run, double, number) for number in range(1, 5)]
        wait_until(lambda: len(portal._arrivals) == 5)
        go_on.set()
        assert [call.result(PATIENCE) for call in calls] == [0, 2, 4, 6, 8]
        holding.result(PATIENCE)
    assert len(woken) == 1


def test_a_caller_that_is_interrupted_before_it_wakes_the_loop_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    portal = Portal("portal-of-a-test", lends=False)
    schedule = portal._schedule
    interrupts = iter([KeyboardInterrupt])

    def interrupt_once(*what: Any) -> bool:
        for interrupt in interrupts:
            raise interrupt
        return schedule(*what)

    monkeypatch.setattr(portal, "_schedule", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        portal.run(double, 1)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(portal.run, double, 2)
        try:
            assert call.result(PATIENCE) == 4
        finally:
            portal.close(timeout=PATIENCE)

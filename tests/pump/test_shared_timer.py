"""Deadlines that share one timer."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.wire.shared_timer import SharedTimer
from tests.examples import examples
from tests.simulation.loop import SimulatedLoop
from tests.waiting import PATIENCE


class _Waiting:
    """Waits for some seconds, `again` times as long as that, or until it is called off."""

    def __init__(self, timer: SharedTimer, seconds: float, again: int = 0) -> None:
        self._timer = timer
        self._seconds = seconds
        self._again = again
        self.lapsed_at: list[float] = []
        timer.set(self, seconds)

    def lapse(self) -> None:
        self.lapsed_at.append(asyncio.get_running_loop().time())
        if self._again:
            self._again -= 1
            self._timer.set(self, self._seconds)


_waits = st.tuples(
    st.floats(0, 50), st.floats(0.1, 50), st.integers(0, 2), st.one_of(st.none(), st.floats(0, 60))
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(_waits, max_size=12))
def test_each_is_told_when_it_is_due_unless_it_was_called_off(
    waits: list[tuple[float, float, int, float | None]],
) -> None:
    loop = SimulatedLoop(1)

    async def wait(timer: SharedTimer, begin: float, seconds: float, again: int, end: float | None) -> None:
        await asyncio.sleep(begin)
        begun, waiting = loop.time(), _Waiting(timer, seconds, again)
        due = [begun + seconds * (count + 1) for count in range(again + 1)]
        if end is not None:
            await asyncio.sleep(end)
            timer.call_off(waiting)
            due = [one for one in due if one < begun + end - 1e-6]
        await asyncio.sleep(400)
        found = [one for one in waiting.lapsed_at if end is None or one < begun + end - 1e-6]
        assert len(found) == len(due)
        assert all(abs(one - expected) < 1e-3 for one, expected in zip(found, due, strict=True))

    async def play() -> None:
        timer = SharedTimer(loop)
        await asyncio.gather(*(wait(timer, *one) for one in waits))

    loop.run(play(), limit=2000.0)


async def test_one_that_was_called_off_by_another_is_not_told() -> None:
    loop, told = asyncio.get_running_loop(), []
    timer = SharedTimer(loop)

    class One:
        other: One

        def lapse(self) -> None:
            told.append(self)
            timer.call_off(self.other)

    first, second = One(), One()
    first.other, second.other = second, first
    for one in (first, second):
        timer.set(one, 0.0)
    done = loop.create_future()
    loop.call_later(0.01, done.set_result, None)
    await done
    assert told == [first]


def test_what_becomes_due_in_a_slow_turn_counts_after_the_next_look_at_the_sockets() -> None:
    class Loop(asyncio.SelectorEventLoop):
        now = 0.0

        def time(self) -> float:
            return self.now

    class One:
        def __init__(self, name: str) -> None:
            self.name = name

        def lapse(self) -> None:
            seen.append(self.name)
            if self.name == "second":
                loop.stop()

    def read_slowly() -> None:
        loop.now = 10.0
        loop.call_soon(seen.append, "read")

    loop, seen = Loop(), list[str]()
    timer = SharedTimer(loop)
    loop.call_at(0.5, read_slowly)
    timer.set(One("first"), 1.0)
    timer.set(One("second"), 2.0)
    loop.call_soon(setattr, loop, "now", 1.0)
    loop.run_forever()
    loop.close()
    assert seen == ["first", "read", "second"]


async def test_who_raises_keeps_nobody_else_from_being_told() -> None:
    loop = asyncio.get_running_loop()
    raised: list[object] = []
    loop.set_exception_handler(lambda _, context: raised.append(context["exception"]))
    timer, told = SharedTimer(loop), asyncio.Event()

    class _Broken:
        def lapse(self) -> None:
            raise RuntimeError("broken")

    class _Told:
        def lapse(self) -> None:
            told.set()

    timer.set(_Broken(), 0.0)
    timer.set(_Told(), 0.0)
    await asyncio.wait_for(told.wait(), PATIENCE)
    assert [str(one) for one in raised] == ["broken"]

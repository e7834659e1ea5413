"""Work that stops in the middle and goes on later, and what is decided one after the other by it."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.broker import strand
from pairbus.broker.decisions import Decisions
from pairbus.broker.engine.breath import breathe
from pairbus.broker.strand import Strand
from tests.waiting import PATIENCE

# -- the strand


@pytest.fixture
def thread() -> Iterator[Strand]:
    one = Strand("test")
    yield one
    one.close()


def count_to(most: int, counted: list[int]) -> Callable[[], None]:
    def count() -> None:
        for number in range(most):
            counted.append(number)
            breathe()

    return count


def test_work_stops_where_it_breathes_and_goes_on_from_there(breathless: None, thread: Strand) -> None:
    counted: list[int] = []
    thread.begin(count_to(3, counted))
    seen = [list(counted)]
    while thread.is_under_way:
        thread.go_on()
        seen.append(list(counted))
    assert seen == [[0], [0, 1], [0, 1, 2], [0, 1, 2]]


def test_work_that_is_short_does_not_stop(thread: Strand) -> None:
    counted: list[int] = []
    thread.begin(count_to(3, counted))
    assert (thread.is_under_way, counted) == (False, [0, 1, 2])


def test_long_work_stops_at_the_first_place_behind_it(thread: Strand) -> None:
    counted: list[int] = []

    def work() -> None:
        for number in range(3):
            until = time.thread_time() + 2 * strand.SLICE
            while time.thread_time() < until:
                counted.append(number)
            breathe()

    thread.begin(work)
    for number in range(3):
        assert (thread.is_under_way, set(counted)) == (True, set(range(number + 1)))
        thread.go_on()
    assert not thread.is_under_way


def test_an_error_is_told_and_the_next_work_is_done(breathless: None, thread: Strand) -> None:
    def fail() -> None:
        breathe()
        raise ZeroDivisionError

    thread.begin(fail)
    thread.finish()
    assert isinstance(thread.error, ZeroDivisionError)
    thread.begin(lambda: None)
    assert thread.error is None


def test_work_that_nobody_wants_ends_where_it_stands(breathless: None) -> None:
    thread, counted = Strand("test"), list[int]()
    thread.begin(count_to(1000, counted))
    thread.close()
    assert counted == [0]
    assert isinstance(thread.error, GeneratorExit)


def test_off_the_strand_nothing_stops(breathless: None) -> None:
    counted: list[int] = []
    count_to(100, counted)()
    assert len(counted) == 100


# -- decisions


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.booleans()), max_size=12))
def test_one_thing_is_decided_at_a_time_and_in_order(asked: list[tuple[bool, int, bool]]) -> None:
    """`asked`: whether it takes long, where it stops, whether it fails."""
    story: list[str] = []

    def work(number: int, stops: int, fails: bool) -> Callable[[], int]:
        def act() -> int:
            story.append(f"begin {number}")
            for _ in range(stops):
                breathe()
            story.append(f"end {number}")
            if fails:
                raise ZeroDivisionError
            return number

        return act

    def conclude(number: int) -> Callable[[Callable[[], int]], None]:
        def then(outcome: Callable[[], int]) -> None:
            try:
                story.append(f"{outcome()}")
            except ZeroDivisionError:
                story.append(f"{number}")

        return then

    async def ask() -> None:
        decisions = Decisions("test")
        try:
            for number, (is_long, stops, fails) in enumerate(asked):
                if is_long:
                    decisions.make(work(number, stops, fails), conclude(number))
                else:
                    decisions.when_free(lambda number=number: story.append(f"{number}"))  # type: ignore[misc]
            free = asyncio.Event()
            decisions.when_free(free.set)
            await asyncio.wait_for(free.wait(), PATIENCE)
            assert not decisions.are_made
        finally:
            decisions.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strand, "SLICE", -1.0)
        asyncio.run(ask())
    told = []
    for number, (is_long, _, _) in enumerate(asked):
        told += [f"begin {number}", f"end {number}"] * is_long + [f"{number}"]
    assert story == told


def test_who_fails_keeps_nobody_else_waiting(breathless: None) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    async def ask() -> None:
        decisions, done = Decisions("test"), asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        decisions.make(breathe, lambda _: None)
        decisions.when_free(fail)
        decisions.when_free(done.set)
        await asyncio.wait_for(done.wait(), PATIENCE)
        decisions.close()

    asyncio.run(ask())

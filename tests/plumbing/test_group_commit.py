"""Group commit: every append ends, what was acknowledged is on the disk, what failed is told."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.plumbing import group_commit
from pairbus.plumbing.group_commit import GroupCommit, WriteHere
from pairbus.plumbing.serial_thread import SerialThread
from tests.examples import examples
from tests.waiting import PATIENCE


class SteppedThread(SerialThread):
    """Does a piece of work when it is told to; or takes none at all."""

    def __init__(self) -> None:
        super().__init__("stepped")
        self.work: list[Callable[[], object]] = []
        self.refusal: BaseException | None = None

    def _pass_on(self, act: Callable[[], None]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.work.append(act)

    def step(self) -> None:
        if self.work:
            self.work.pop(0)()


class Disk:
    """Takes items, as long as it is well."""

    def __init__(self) -> None:
        self.items: list[int] = []
        self.error: BaseException | None = None
        self.calls: list[list[int]] = []

    def write(self, items: Sequence[int]) -> None:
        self.calls.append(list(items))
        if self.error is not None:
            raise self.error
        self.items += items


class HereDisk:
    """Takes items on the loop, where it can; how that ends is told when the test says so, or by `wait`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.is_able = True
        self.error: BaseException | None = None
        self._begun: tuple[list[int], Callable[[bool], None]] | None = None

    def begin(self, items: list[int], ended: Callable[[bool], None]) -> bool:
        assert self._begun is None, "one at a time"
        if self.error is not None:
            raise self.error
        if self.is_able:
            self._begun = items, ended
        return self.is_able

    def end(self, *, is_kept: bool) -> None:
        if self._begun is not None:
            (items, ended), self._begun = self._begun, None
            if is_kept:
                self._disk.items += items
            ended(is_kept)

    def wait(self) -> None:
        self.end(is_kept=True)

    @property
    def is_under_way(self) -> bool:
        return self._begun is not None


def failure(kind: type[BaseException]) -> BaseException:
    return kind("broken")


ERRORS = st.sampled_from([OSError, KeyError, RuntimeError, StopIteration, MemoryError, SystemExit])
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 3)),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("tick"), st.just(0)),
    st.tuples(st.just("thread"), st.just(0)),
    st.tuples(st.just("break"), ERRORS),
    st.tuples(st.just("refuse"), ERRORS),
    st.tuples(st.just("mend"), st.just(0)),
    st.tuples(st.just("able"), st.booleans()),
    st.tuples(st.just("break here"), ERRORS.filter(lambda kind: issubclass(kind, Exception))),
    st.tuples(st.just("end here"), st.booleans()),
    st.tuples(st.just("other work"), st.just(0)),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_in_every_order_of_events_every_append_ends_and_none_is_lied_to(
    steps: list[tuple[str, Any]],
) -> None:
    asyncio.run(play(steps))


async def play(steps: list[tuple[str, Any]]) -> None:
    thread, disk = SteppedThread(), Disk()
    here = HereDisk(disk)
    commit: GroupCommit[int] = GroupCommit(disk.write, thread=thread, here=WriteHere(here.begin, here.wait))
    appends: list[tuple[list[int], asyncio.Task[None]]] = []
    given_up: set[asyncio.Task[None]] = set()
    numbers = iter(range(1000))

    async def append(items: list[int]) -> None:
        try:
            await commit.append(items)
        except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop of the test
            raise RuntimeError("ended") from error

    def work() -> None:
        assert not here.is_under_way, "the thread waits for what was lent"

    for name, value in steps:
        if name == "append":
            items = [next(numbers) for _ in range(value)]
            appends.append((items, asyncio.create_task(append(items))))
        elif name == "cancel" and appends:
            task = appends[value % len(appends)][1]
            if task.cancel():
                given_up.add(task)
        elif name == "tick":
            await asyncio.sleep(0)
        elif name == "thread":
            thread.step()
        elif name == "break":
            disk.error = failure(value)
        elif name == "refuse":
            thread.refusal = failure(value)
        elif name == "mend":
            disk.error = thread.refusal = here.error = None
        elif name == "able":
            here.is_able = value
        elif name == "break here":
            here.error = failure(value)
        elif name == "end here":
            here.end(is_kept=value)
        elif name == "other work" and thread.refusal is None:
            thread.post(work)
    # The end: whatever there was is carried out, and then nothing is left.
    disk.error = thread.refusal = here.error = None
    ends = asyncio.get_running_loop().time() + PATIENCE

    async def end(*tasks: asyncio.Task[None]) -> None:
        while thread.work or here.is_under_way or not all(task.done() for task in tasks):
            assert asyncio.get_running_loop().time() < ends, "every append ends"
            thread.step()
            here.end(is_kept=True)
            await asyncio.sleep(0 if thread.work else 0.001)

    await end(*(task for _, task in appends))
    for items, task in appends:
        kept = [item in disk.items for item in items]
        assert all(kept) or not any(kept), "the items of an append are written together"
        if task.cancelled():
            assert task in given_up, "nobody else is cancelled"
        elif task.exception() is None:
            assert all(kept), "what was acknowledged is on the disk"
        else:
            assert not any(kept), "what failed is told, and nothing else is"
    assert disk.items == sorted(disk.items), "in the order of the appends"
    last = asyncio.create_task(commit.append([9999]))
    await asyncio.sleep(0)
    await end(last)
    last.result()
    assert disk.items[-1] == 9999, "a failure ends with its call"


async def test_what_comes_meanwhile_shares_the_next_call() -> None:
    disk, thread = Disk(), SerialThread("commit-of-a-test")
    begun, allowed = threading.Event(), threading.Event()

    def write(items: list[int]) -> None:
        begun.set()
        assert allowed.wait(PATIENCE)
        disk.write(items)

    commit: GroupCommit[int] = GroupCommit(write, thread=thread)
    first = asyncio.create_task(commit.append([0]))
    await asyncio.to_thread(begun.wait, PATIENCE)
    others = [asyncio.create_task(commit.append([number])) for number in range(1, 100)]
    await asyncio.sleep(0)
    allowed.set()
    await asyncio.wait_for(asyncio.gather(first, *others), PATIENCE)
    assert disk.calls == [[0], list(range(1, 100))]
    thread.rest()


async def test_a_failure_to_gather_is_told() -> None:
    thread = SteppedThread()

    def fail() -> None:
        raise KeyError("gathering")

    commit: GroupCommit[int] = GroupCommit(Disk().write, thread=thread, gather=fail)
    task = asyncio.create_task(commit.append([1]))
    await asyncio.sleep(0)
    thread.step()
    with pytest.raises(KeyError, match="gathering"):
        await asyncio.wait_for(task, PATIENCE)


async def test_whoever_waits_learns_of_whatever_ended_it() -> None:
    disk, thread = Disk(), SerialThread("commit-of-a-test")
    disk.error = KeyError("row")
    commit: GroupCommit[int] = GroupCommit(disk.write, thread=thread)
    ended = await asyncio.wait_for(
        asyncio.gather(*(commit.append([number]) for number in range(10)), return_exceptions=True), PATIENCE
    )
    assert [type(each) for each in ended] == [KeyError] * 10
    disk.error = None
    await asyncio.wait_for(commit.append([1]), PATIENCE)
    assert disk.items == [1]
    thread.rest()


def test_it_outlives_a_loop_that_was_closed_while_somebody_waited() -> None:
    disk, thread = Disk(), SteppedThread()
    commit: GroupCommit[int] = GroupCommit(disk.write, thread=thread)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(commit.append([1]), 0.01)

    async def keep(number: int) -> None:
        waiting = asyncio.create_task(commit.append([number]))
        await asyncio.sleep(0)
        thread.step()
        await asyncio.wait_for(waiting, PATIENCE)

    asyncio.run(give_up())
    asyncio.run(keep(2))
    asyncio.run(keep(3))
    assert disk.items == [1, 2, 3]


async def test_who_waits_goes_on_in_the_turn_that_hears_of_the_end() -> None:
    loop, disk, thread = asyncio.get_running_loop(), Disk(), SteppedThread()
    told: list[str] = []

    async def append(number: int) -> None:
        await commit.append([number])
        told.append(f"{number} goes on")
        loop.call_soon(told.append, "the next turn")

    commit: GroupCommit[int] = GroupCommit(
        disk.write, thread=thread, ended=lambda items, error: told.append(f"{items} have ended")
    )
    tasks = [asyncio.create_task(append(number)) for number in range(2)]
    await asyncio.sleep(0)
    thread.step()
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    assert told[:4] == ["[0, 1] have ended", "0 goes on", "1 goes on", "the next turn"]


def test_one_who_ends_the_program_leaves_nobody_waiting() -> None:
    disk, thread, told = Disk(), SteppedThread(), list[int]()
    commit: GroupCommit[int] = GroupCommit(disk.write, thread=thread)
    loop = asyncio.new_event_loop()

    async def append(number: int) -> None:
        await commit.append([number])
        told.append(number)
        if number == 1:
            raise SystemExit

    tasks = [loop.create_task(append(number)) for number in range(4)]
    loop.call_later(0, lambda: loop.call_soon(thread.step))
    with pytest.raises(SystemExit):
        loop.run_until_complete(asyncio.wait(tasks, timeout=PATIENCE))
    assert told == [0, 1]
    loop.run_until_complete(asyncio.wait(tasks, timeout=PATIENCE))
    assert told == [0, 1, 2, 3]
    assert isinstance(tasks[1].exception(), SystemExit)
    loop.close()


async def test_a_write_that_is_interrupted_as_it_begins_is_made_by_the_thread_and_only_there() -> None:
    disk, thread = Disk(), SteppedThread()
    told: list[Callable[[bool], None]] = []

    def begin(items: list[int], ended: Callable[[bool], None]) -> bool:
        told.append(ended)
        raise KeyboardInterrupt

    commit: GroupCommit[int] = GroupCommit(disk.write, thread=thread, here=WriteHere(begin, lambda: None))
    with pytest.raises(KeyboardInterrupt):
        await commit.append([1])
    while thread.work:
        thread.step()
    assert disk.items == [1]
    told[0](True)
    assert disk.items == [1]
    assert thread.lend(lambda: True, lambda: None), "nothing is counted twice"


async def test_the_next_write_begins_before_those_go_on_whose_write_has_ended() -> None:
    disk, thread, told = Disk(), SteppedThread(), list[str]()
    here = HereDisk(disk)
    commit: GroupCommit[int] = GroupCommit(disk.write, thread=thread, here=WriteHere(here.begin, here.wait))

    async def append(number: int) -> None:
        await commit.append([number])
        told.append(f"{number} goes on, another is under way: {here.is_under_way}")

    tasks = [asyncio.create_task(append(number)) for number in range(2)]
    await asyncio.sleep(0)
    here.end(is_kept=True)
    await asyncio.sleep(0)
    here.end(is_kept=True)
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    assert told == [
        "0 goes on, another is under way: True",
        "1 goes on, another is under way: False",
    ]
    assert not thread.work


@pytest.mark.parametrize(
    "is_told_first", [False, True], ids=["the thread waits for it", "the loop hears of it"]
)
async def test_what_came_before_other_work_of_the_thread_is_written_before_it(is_told_first: bool) -> None:
    """Who closes the files, say: what came before that is written to those."""
    disk, thread, found = Disk(), SteppedThread(), list[list[int]]()
    here = HereDisk(disk)
    commit: GroupCommit[int] = GroupCommit(disk.write, thread=thread, here=WriteHere(here.begin, here.wait))
    tasks = [asyncio.create_task(commit.append([number])) for number in range(3)]
    await asyncio.sleep(0)
    assert here.is_under_way
    thread.post(lambda: found.append([*disk.items]))
    if is_told_first:
        here.end(is_kept=True)
    while thread.work:
        thread.step()
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    assert found == [[0, 1, 2]]


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_write_that_is_interrupted_as_it_begins_is_made_once(has_begun: bool) -> None:
    """Nobody knows then whether it has begun: who waits for it does."""
    disk, thread = Disk(), SteppedThread()
    here = HereDisk(disk)

    def begin(items: list[int], ended: Callable[[bool], None]) -> bool:
        if has_begun:
            here.begin(items, ended)
        raise KeyboardInterrupt

    commit: GroupCommit[int] = GroupCommit(disk.write, thread=thread, here=WriteHere(begin, here.wait))
    with pytest.raises(KeyboardInterrupt):
        await commit.append([1])
    while thread.work:
        thread.step()
    assert disk.items == [1]
    assert thread.lend(lambda: True, lambda: None), "nothing is counted twice"


async def test_who_is_interrupted_as_the_next_write_begins_leaves_nobody_waiting() -> None:
    disk, thread = Disk(), SteppedThread()
    here = HereDisk(disk)

    def begin(items: list[int], ended: Callable[[bool], None]) -> bool:
        if items != [0]:
            raise KeyboardInterrupt
        return here.begin(items, ended)

    commit: GroupCommit[int] = GroupCommit(disk.write, thread=thread, here=WriteHere(begin, here.wait))
    tasks = [asyncio.create_task(commit.append([number])) for number in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(KeyboardInterrupt):
        here.end(is_kept=True)
    while thread.work:
        thread.step()
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    assert disk.items == [0, 1]


@pytest.mark.parametrize("is_here", [False, True])
async def test_who_is_interrupted_while_many_are_told_leaves_none_of_them_waiting(
    monkeypatch: pytest.MonkeyPatch, is_here: bool
) -> None:
    disk, thread = Disk(), SteppedThread()
    here = HereDisk(disk)
    here.is_able = is_here
    commit: GroupCommit[int] = GroupCommit(disk.write, thread=thread, here=WriteHere(here.begin, here.wait))
    end, count = group_commit._Waiter.end, itertools.count()

    def interrupted(waiter: Any, error: BaseException | None) -> None:
        if next(count) == 1:
            raise KeyError("of another thread")
        end(waiter, error)

    monkeypatch.setattr(group_commit._Waiter, "end", interrupted)
    monkeypatch.setattr(asyncio.get_running_loop(), "call_exception_handler", lambda context: None)
    tasks = [asyncio.create_task(commit.append([number])) for number in range(4)]
    for _ in range(3):
        await asyncio.sleep(0)
        with suppress(KeyError):
            here.end(is_kept=True)
        thread.step()
    await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
    assert disk.items == [0, 1, 2, 3]

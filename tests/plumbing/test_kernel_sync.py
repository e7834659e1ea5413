"""Syncs by the kernel: the end is told once, on the loop or to whoever waits for it; else nothing begins."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.plumbing import kernel_sync
from pairbus.plumbing.kernel_sync import KernelSync
from tests.examples import examples
from tests.waiting import PATIENCE, eventually

CAN = kernel_sync._find_kernel() is not None


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY)
    yield descriptor
    os.close(descriptor)


async def test_its_end_is_told_on_the_loop(file: int) -> None:
    sync, loop = KernelSync(), asyncio.get_running_loop()
    for _ in range(20):
        ended: asyncio.Future[bool] = loop.create_future()
        os.write(file, b"data")
        assert sync.begin(file, ended.set_result) == CAN
        if not CAN:
            break
        assert not sync.begin(file, ended.set_result), "one at a time"
        assert await asyncio.wait_for(ended, PATIENCE)
    await asyncio.to_thread(sync.end)
    sync.leave_loop()
    assert not sync.begin(file, lambda _: None)


STEPS = st.lists(st.sampled_from(["begin", "wait", "turn"]), max_size=12)


@settings(max_examples=examples(200), deadline=None)
@given(steps=STEPS)
def test_whoever_asks_for_its_end_and_however_often_it_is_told_once(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "kernel-sync"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        asyncio.run(play(steps, descriptor))
    finally:
        os.close(descriptor)


async def play(steps: list[str], descriptor: int) -> None:
    sync, told, begun = KernelSync(), list[int](), 0
    for step in steps:
        if step == "begin":
            os.write(descriptor, b"x")
            begun += sync.begin(descriptor, lambda is_kept, number=begun: told.append(number))  # type: ignore[misc]
        elif step == "wait":
            await asyncio.to_thread(sync.wait)
            assert len(told) == begun, "it has been waited for"
        else:
            await asyncio.sleep(0)
        assert begun - 1 <= len(told) <= begun
    await asyncio.to_thread(sync.end)
    sync.leave_loop()
    await asyncio.sleep(0)
    assert told == [*range(begun)]


def test_a_loop_that_is_closed_meanwhile_takes_no_end_away(file: int) -> None:
    sync, told = KernelSync(), list[bool]()

    async def begin() -> bool:
        os.write(file, b"data")
        return sync.begin(file, told.append)

    has_begun = asyncio.run(begin())
    sync.wait()
    assert told == [True] * has_begun
    assert asyncio.run(begin()) == has_begun, "another loop may have it then"
    sync.end()
    sync.leave_loop()
    assert told == [True, True] * has_begun


async def test_a_loop_beside_it_has_none(file: int) -> None:
    sync, ended = KernelSync(), asyncio.Event()
    has_begun = sync.begin(file, lambda _: ended.set())
    if has_begun:
        await asyncio.wait_for(ended.wait(), PATIENCE)

    async def begin_elsewhere() -> bool:
        return sync.begin(file, lambda _: None)

    assert not await asyncio.to_thread(asyncio.run, begin_elsewhere())
    assert sync.is_able == has_begun, "ours may go on"
    await asyncio.to_thread(sync.end)
    sync.leave_loop()


async def test_what_cannot_be_synced_is_not_begun(tmp_path: Path) -> None:
    sync = KernelSync()
    reading, writing = os.pipe()
    assert not sync.begin(writing, lambda _: None), "a pipe is on no disk"
    assert not sync.is_able
    os.close(reading)
    os.close(writing)
    sync.end()
    sync.leave_loop()


async def test_where_the_system_cannot_nothing_is_asked_of_it(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As macOS, or another processor."""
    monkeypatch.setattr(sys, "platform", "darwin")
    kernel_sync._find_kernel.cache_clear()
    try:
        sync = KernelSync()
    finally:
        monkeypatch.undo()
        kernel_sync._find_kernel.cache_clear()
    assert not sync.is_able
    assert not sync.begin(file, lambda _: None)
    sync.wait()
    sync.end()
    sync.leave_loop()


@pytest.mark.parametrize("answer", [-5, None], ids=["of the disk", "of the call that asks"])
async def test_a_failure_is_told(file: int, monkeypatch: pytest.MonkeyPatch, answer: int | None) -> None:
    sync, told = KernelSync(), list[bool]()
    has_begun = sync.begin(file, told.append)

    def ask(self: object, number: int, *given: object, is_long: bool = False) -> int:
        if answer is None:
            raise OSError(22, "Invalid argument")
        kernel_sync._ANSWER.pack_into(sync._answer, 0, sync._number, 0, answer, 0)
        return 1

    with monkeypatch.context() as broken:
        broken.setattr(kernel_sync._Kernel, "ask", ask)
        waiting = threading.Thread(target=sync.wait)
        waiting.start()
        waiting.join(PATIENCE)
        assert told == [False] * has_begun
        assert sync.is_able == (CAN and answer is not None), "who cannot be asked once is not asked again"
        await asyncio.to_thread(sync.end)  # which is told of nothing that the kernel refuses
    sync.leave_loop()


class PoliteLock:
    """Whoever lets go of it first lets another have it."""

    def __init__(self, other: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._others = [threading.Thread(target=other, daemon=True)]
        self.had = threading.Event()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()
        if self._others and threading.current_thread() is threading.main_thread():
            self.other = self._others.pop()
            self.other.start()
            assert self.had.wait(PATIENCE)
        self.had.set()


async def test_who_comes_to_wait_just_as_the_loop_hears_of_the_end_does_not_wait_for_another(
    file: int,
) -> None:
    sync, told = KernelSync(), list[bool]()
    if sync.begin(file, told.append):
        lock = PoliteLock(sync.wait)
        sync._lock = lock  # type: ignore[assignment]
        await eventually(lambda: bool(told))
        await asyncio.to_thread(lock.other.join, PATIENCE)
        assert not lock.other.is_alive()
        assert told == [True]
    await asyncio.to_thread(sync.end)
    sync.leave_loop()


async def test_whoever_waits_goes_on_when_it_has_been_told(file: int) -> None:
    """Else two would be at the file: who is told of the end, on the loop, and who waited for it."""
    sync, loop, told = KernelSync(), asyncio.get_running_loop(), list[str]()
    is_over = loop.create_future()

    def wait() -> None:
        sync.wait()
        told.append("waited")

    waiting = threading.Thread(target=wait)

    def end(is_kept: bool) -> None:
        waiting.start()
        waiting.join(0.05)
        told.append("told")
        is_over.set_result(None)

    if sync.begin(file, end):
        await asyncio.wait_for(is_over, PATIENCE)
        await asyncio.to_thread(waiting.join, PATIENCE)
        assert told == ["told", "waited"]
    await asyncio.to_thread(sync.end)
    sync.leave_loop()


@pytest.mark.parametrize(
    ("moment", "interruption"),
    [
        *((moment, KeyboardInterrupt) for moment in ("setup", "submit", "submitted")),
        *(
            (moment, error)
            for moment in ("events", "answered", "told")
            for error in (KeyboardInterrupt, KeyError)
        ),
    ],
)
def test_one_who_is_interrupted_leaves_nobody_waiting(
    file: int, monkeypatch: pytest.MonkeyPatch, moment: str, interruption: type[BaseException]
) -> None:
    """The end of what has begun is told once; nobody waits for what has not; and the next one has its own."""
    if not CAN:
        return
    sync, told, loop = KernelSync(), list[str](), asyncio.new_event_loop()
    ask, is_over = kernel_sync._Kernel.ask, list[bool]()

    def interrupted(self: Any, number: int, *given: object, is_long: bool = False) -> int:
        names = {"submitted": "submit", "answered": "events"}
        if is_over or number != getattr(self.numbers, names.get(moment, moment), None):
            return ask(self, number, *given, is_long=is_long)
        is_over.append(True)
        if moment in names:
            ask(self, number, *given, is_long=is_long)
        raise interruption

    async def begin(name: str) -> bool:
        os.write(file, b"data")
        return sync.begin(file, partial(tell, name))

    def tell(name: str, is_kept: bool) -> None:
        if moment == "told" and not is_over:
            is_over.append(True)
            raise interruption
        told.append(f"{name} {is_kept}")

    monkeypatch.setattr(kernel_sync._Kernel, "ask", interrupted)
    hear, has_begun = partial(eventually, lambda: bool(told)), False
    try:
        has_begun = loop.run_until_complete(begin("first"))
        loop.run_until_complete(hear())
    except interruption:
        if has_begun:
            loop.run_until_complete(hear())
    assert is_over
    assert told == ["first True"] * has_begun
    waiting = threading.Thread(target=sync.wait, daemon=True)
    waiting.start()
    waiting.join(PATIENCE)
    assert not waiting.is_alive(), "there is nothing to wait for"
    told.clear()
    assert loop.run_until_complete(begin("second"))
    loop.run_until_complete(hear())
    assert told == ["second True"]
    sync.end()
    sync.leave_loop()
    loop.close()


async def test_a_loop_that_cannot_be_told_has_none(file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every loop can wait for a descriptor."""

    def refuse(*given: object) -> None:
        raise NotImplementedError

    sync = KernelSync()
    monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", refuse)
    assert not sync.begin(file, lambda _: None)
    assert not sync.is_able
    sync.end()
    sync.leave_loop()

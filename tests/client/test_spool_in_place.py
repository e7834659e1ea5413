"""Records that are written on the event loop and synced by the kernel are kept as those of the thread are."""

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.client.sending import spool as spool_module
from pairbus.client.sending.message import Message, message_id_of
from pairbus.client.sending.spool import Spool
from pairbus.client.state import spool_file
from pairbus.client.state.packing import unpack
from pairbus.client.state.spool_store import LineKey, adopt_stores
from pairbus.clock import ManualClock
from pairbus.plumbing.files import write_all
from pairbus.plumbing.kernel_sync import Ended
from pairbus.timers import LoopTimers
from tests.examples import examples
from tests.waiting import PATIENCE

from .scene import eventually, text

MIB = 1024 * 1024


class SteppedSync:
    """Syncs of a kernel that end when the test says so, well or not, or when somebody waits for them."""

    is_able = True

    def __init__(self) -> None:
        self.under_way: Ended | None = None
        self.count = 0

    def begin(self, descriptor: int, ended: Ended) -> bool:
        assert self.under_way is None, "one at a time"
        self.under_way = ended
        self.count += 1
        return True

    def step(self, *, is_kept: bool) -> None:
        ended, self.under_way = self.under_way, None
        if ended is not None:
            ended(is_kept)

    def wait(self) -> None:
        self.step(is_kept=True)

    def end(self) -> None:
        self.wait()

    def leave_loop(self) -> None:
        """There is nothing to be left."""


def left_behind(directory: Path) -> list[str]:
    """The ids of what another client would send."""
    found: list[str] = []
    for store in adopt_stores(directory):
        for key in store.lines():
            reading = store.read(key)
            for one in [] if reading is None else reading.unsent:
                found += map(message_id_of, unpack(one.record.packed)[0][one.sent :])
        store.close()
    return found


async def open_spool(
    directory: Path, monkeypatch: pytest.MonkeyPatch, **named: Any
) -> tuple[Spool, SteppedSync]:
    """A spool whose next record has room on the disk."""
    sync = SteppedSync()
    monkeypatch.setattr(spool_module, "KernelSync", lambda: sync)
    spool = Spool(directory, limit=MIB, clock=ManualClock(), **named)
    for name, size in (("a", 2000), ("b", 1)):  # the first makes the file, the second as much room again
        await spool.append("orders", [ServiceBusMessage(b"x" * size, message_id=name)])
    assert sync.count == 0
    await its_thread_is_free(spool)
    return spool, sync


async def its_thread_is_free(spool: Spool) -> None:
    """It tells the end of a write, and is done a moment later."""
    await eventually(lambda: spool.thread.at_once(lambda: True))


async def test_a_record_is_kept_when_the_kernel_has_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, sync = await open_spool(tmp_path, monkeypatch)
    waiting = [asyncio.create_task(spool.append("orders", [text(name)])) for name in "cde"]
    await asyncio.sleep(0)
    assert sync.count == 1
    assert not any(task.done() for task in waiting)
    sync.step(is_kept=True)
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, False, False]
    assert sync.count == 2, "those who came meanwhile share the next one"
    sync.step(is_kept=True)
    await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
    await spool.close()
    assert left_behind(tmp_path) == ["a", "b", "c", "d", "e"]


async def test_what_the_kernel_could_not_sync_the_thread_writes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, sync = await open_spool(tmp_path, monkeypatch)
    waiting = [asyncio.create_task(spool.append("orders", [text(name)])) for name in "cd"]
    await asyncio.sleep(0)
    sync.step(is_kept=False)
    await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
    assert sync.count == 1
    await spool.close()
    assert left_behind(tmp_path) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("removal", [Path.unlink, lambda path: path.write_bytes(b"")], ids=["gone", "empty"])
async def test_a_file_that_somebody_touches_meanwhile_is_written_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removal: Callable[[Path], object]
) -> None:
    spool, sync = await open_spool(tmp_path, monkeypatch)
    waiting = asyncio.create_task(spool.append("orders", [text("c")]))
    await asyncio.sleep(0)
    (file,) = tmp_path.rglob("*.spool")
    removal(file)
    sync.step(is_kept=True)
    await asyncio.wait_for(waiting, PATIENCE)
    await spool.close()
    assert left_behind(tmp_path)[-1:] == ["c"]


async def test_a_write_that_fails_on_the_loop_is_made_by_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, sync = await open_spool(tmp_path, monkeypatch)
    failures = [OSError(5, "Input/output error")]

    def write(descriptor: int, data: bytes) -> None:
        write_all(descriptor, data[: len(data) // 2])
        if failures:
            raise failures.pop()
        write_all(descriptor, data[len(data) // 2 :])

    monkeypatch.setattr(spool_file, "write_all", write)
    await asyncio.wait_for(spool.append("orders", [text("c")]), PATIENCE)
    assert (sync.count, failures) == (0, [])
    await spool.close()
    assert left_behind(tmp_path) == ["a", "b", "c"]


async def test_a_disk_that_is_slow_once_is_waited_for_on_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs does so in a sync, and then the loop never waits for it."""
    spool, sync = await open_spool(tmp_path, monkeypatch)
    clock = spool._clock
    assert isinstance(clock, ManualClock)
    waiting = asyncio.create_task(spool.append("orders", [text("c")]))
    await asyncio.sleep(0)
    clock.advance(0.1)
    sync.step(is_kept=True)
    await asyncio.wait_for(waiting, PATIENCE)
    await asyncio.wait_for(spool.append("orders", [text("d")]), PATIENCE)
    assert sync.count == 1, "by the thread"
    await its_thread_is_free(spool)
    last = asyncio.create_task(spool.append("orders", [text("e")]))
    await asyncio.sleep(0)
    assert sync.count == 2, "which was quick"
    sync.step(is_kept=True)
    await asyncio.wait_for(last, PATIENCE)
    await spool.close()


async def test_a_file_is_not_deleted_while_a_record_of_it_is_on_its_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that it has is sent in that moment."""
    spool, sync = await open_spool(tmp_path, monkeypatch)
    sent: list[str] = []
    may_send = asyncio.Event()

    async def take(path: str, messages: list[Message], when: object) -> None:
        await may_send.wait()
        sent.extend(map(message_id_of, messages))

    spool.start(take, timers=LoopTimers(asyncio.get_running_loop()))
    await spool.hold_up()
    await eventually(lambda: spool.thread.at_once(lambda: True))  # the lane has read, and waits to send
    waiting = asyncio.create_task(spool.append("orders", [text("c")]))
    await asyncio.sleep(0)
    assert sync.under_way is not None
    may_send.set()
    await eventually(lambda: sorted(sent) == ["a", "b", "c"])
    await asyncio.wait_for(waiting, PATIENCE)
    await eventually(lambda: spool.is_empty)
    await spool.close()
    assert left_behind(tmp_path) == []


async def test_whoever_closes_waits_for_what_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool, sync = await open_spool(tmp_path, monkeypatch)
    waiting = asyncio.create_task(spool.append("orders", [text("c")]))
    await asyncio.sleep(0)
    assert sync.under_way is not None
    await asyncio.wait_for(spool.close(), PATIENCE)
    await asyncio.wait_for(waiting, PATIENCE)
    assert left_behind(tmp_path) == ["a", "b", "c"]


async def test_what_waits_behind_it_is_written_before_the_files_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever takes them over then would not see it."""
    spool, sync = await open_spool(tmp_path, monkeypatch)
    found: list[list[str]] = []
    close_stores = spool._close_stores

    def close() -> None:
        close_stores()
        found.append(left_behind(tmp_path))

    monkeypatch.setattr(spool, "_close_stores", close)
    waiting = [asyncio.create_task(spool.append("orders", [text(name)])) for name in "cd"]
    await asyncio.sleep(0)
    assert sync.under_way is not None
    await asyncio.wait_for(spool.close(), PATIENCE)
    await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
    assert found == [["a", "b", "c", "d"]]


def test_a_loop_that_is_closed_meanwhile_leaves_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Spool] = []

    async def give_up() -> None:
        spool, sync = await open_spool(tmp_path, monkeypatch)
        made.append(spool)
        waiting = asyncio.create_task(spool.append("orders", [text("c")]))
        await asyncio.sleep(0)
        assert sync.under_way is not None
        waiting.cancel()

    asyncio.run(give_up())

    async def go_on() -> None:
        [spool] = made
        await asyncio.wait_for(spool.append("orders", [text("d")]), PATIENCE)
        await spool.close()

    asyncio.run(go_on())
    assert left_behind(tmp_path) == ["a", "b", "c", "d"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(["orders", "orders", "orders", "bills"])),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("kernel"), st.booleans()),
        st.tuples(st.just("touch"), st.sampled_from(["longer", "shorter", "gone"])),
        st.tuples(st.just("time"), st.sampled_from([0.001, 0.1, 2.0])),
        st.tuples(st.just("turn"), st.just(0)),
        st.tuples(st.just("rest"), st.just(0)),
    ),
    max_size=40,
)


@settings(max_examples=examples(200), deadline=None)
@given(STEPS)
def test_whatever_happens_what_was_acknowledged_can_be_sent_in_its_order(
    steps: list[tuple[str, Any]],
) -> None:
    with TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patched:
        asyncio.run(play(steps, Path(scratch), patched))


async def play(steps: list[tuple[str, Any]], directory: Path, patched: pytest.MonkeyPatch) -> None:
    spool, sync = await open_spool(directory, patched)
    clock = spool._clock
    assert isinstance(clock, ManualClock)
    calls: dict[str, tuple[str, asyncio.Task[None]]] = {}
    is_touched = False
    for number, (name, value) in enumerate(steps):
        if name == "append":
            called = f"m{number}"
            message = text(called)
            calls[called] = value, asyncio.create_task(spool.append(value, [message]))
        elif name == "cancel" and calls:
            [*calls.values()][value % len(calls)][1].cancel()
        elif name == "kernel":
            sync.step(is_kept=value)
        elif name == "touch" and not is_touched:
            is_touched = touch(directory, value)
        elif name == "time":
            clock.advance(value)
        elif name == "turn":
            await asyncio.sleep(0)
        elif name == "rest":
            await end(sync, calls)
    await end(sync, calls)
    held = spool.status().messages
    await spool.close()
    kept = {called for called, (_, task) in calls.items() if not task.cancelled()}
    assert all(task.cancelled() or task.exception() is None for _, task in calls.values())
    found = left_behind(directory)
    assert len(found) == len(set(found)), "once"
    if not is_touched:  # who touches the files of others takes what was in them
        assert kept <= set(found)
        assert held == len(found)
    for path in ("orders", "bills"):
        mine = [called for called in found if calls.get(called, (path,))[0] == path and called in calls]
        assert mine == sorted(mine, key=[*calls].index)


def touch(directory: Path, how: str) -> bool:
    (file, *_) = sorted(directory.rglob("*.spool"))
    if how == "gone":
        file.unlink()
    elif how == "longer":
        with file.open("ab") as other:
            other.write(random.Random(how).randbytes(50))
        return False  # which takes nothing away
    else:
        os.truncate(file, file.stat().st_size // 2)
    return True


async def end(sync: SteppedSync, calls: dict[str, tuple[str, asyncio.Task[None]]]) -> None:
    ends = asyncio.get_running_loop().time() + PATIENCE
    while sync.under_way is not None or not all(task.done() for _, task in calls.values()):
        assert asyncio.get_running_loop().time() < ends, "every append ends"
        sync.step(is_kept=True)
        await asyncio.sleep(0.0005)


async def test_the_kernel_of_this_machine_is_asked(tmp_path: Path) -> None:
    """With nothing in the place of anything."""
    spool = Spool(tmp_path, limit=MIB)
    names = [f"{number}" for number in range(300)]

    async def call(mine: list[str]) -> None:
        for name in mine:
            await spool.append("orders", [text(name)])

    await asyncio.wait_for(asyncio.gather(*(call(names[first::10]) for first in range(10))), PATIENCE)
    await spool.close()
    assert sorted(left_behind(tmp_path), key=int) == names
    assert LineKey.of("orders") in spool._held

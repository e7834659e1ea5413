"""Where a client lives: on one event loop, in one process, beside others with the same state."""

import asyncio
import gc
import os
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker import Broker
from pairbus.client.errors import WrongLoopError
from pairbus.client.sending import acquaintance
from pairbus.client.sending.acquaintance import Acquaintance
from pairbus.client.state import landmark
from pairbus.client.state.landmark import Landmark
from pairbus.pairing.errors import ForkedClientError
from tests.logs import our_lines
from tests.waiting import PATIENCE

from .scene import Scene, eventually, text


def test_a_client_lives_on_one_event_loop(broker: Broker) -> None:
    scene = Scene(broker)
    client = scene.client()
    sender = client.get_queue_sender("orders")

    async def send() -> None:
        await sender.send_messages(text("1"))

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(send())
        with pytest.raises(WrongLoopError, match="event loop"):
            second.run(send())
        with pytest.raises(WrongLoopError):
            second.run(client.close())
        for use in (client.fail_over, client.mark_path_healthy, client.fault):
            with pytest.raises(WrongLoopError, match="call_soon_threadsafe"):
                use("orders")  # as from a thread that has none
        first.run(send())
        assert not scene.diary.changes
        first.run(client.close())
    gc.collect()


def test_a_forked_client_is_refused(broker: Broker) -> None:
    scene = Scene(broker)
    client = scene.client()
    sender = client.get_queue_sender("orders")

    async def send(name: str) -> None:
        await client.get_queue_sender("orders").send_messages(text(name))

    async def send_again(name: str) -> None:
        await sender.send_messages(text(name))

    with asyncio.Runner() as runner:
        runner.run(send_again("1"))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # the child must not run what pytest would run at its end
            try:
                outcomes = [_outcome(send("2")), _outcome(client.close())]
                # On the parent's own loop, by a sender whose link is open.
                outcomes.append(_outcome_of_step(runner.get_loop(), send_again("2")))
                os.write(writing, " ".join(outcomes).encode())
            finally:
                os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        told = os.read(reading, 1000).decode()
        os.close(reading)
        assert told.split() == [ForkedClientError.__name__] * 3
        runner.run(send("3"))
        runner.run(client.close())
    assert scene.ids() == ["1", "3"]


def _outcome(use: Any) -> str:
    try:
        asyncio.run(use)
    except ForkedClientError as error:
        return type(error).__name__
    return "nothing"


def _outcome_of_step(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> str:
    """What the first step of a coroutine raises, as if a loop ran it that is not to be touched."""
    asyncio._set_running_loop(loop)
    try:
        work.send(None)
    except BaseException as error:  # noqa: BLE001 - it is what is asked for
        return type(error).__name__
    finally:
        asyncio._set_running_loop(None)
    return "none"


def test_two_processes_that_reach_the_primary_at_once_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = Landmark(tmp_path, "sb://contoso"), Landmark(tmp_path, "sb://contoso")
    replace = os.replace

    def meet(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        other.set()
        replace(source, target)

    monkeypatch.setattr(os, "replace", meet)
    one.set()
    assert one.is_set()
    assert other.is_set()
    assert [path.name for path in tmp_path.iterdir()] == ["primary-reached"]
    assert our_lines(caplog) == []


async def test_a_disk_that_hangs_is_asked_for_the_mark_once_and_not_for_each_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an outage sends fail by the thousand, and each question holds a thread."""
    answers, threads, found = threading.Event(), set[threading.Thread](), list[str]()

    def hang(path: Path) -> bytes:
        threads.add(threading.current_thread())
        answers.wait(PATIENCE)
        raise FileNotFoundError(path)

    async def find_queues(deadline: float | None) -> list[str]:
        return found

    monkeypatch.setattr(landmark, "read_file", hang)
    monkeypatch.setattr(acquaintance, "_MOMENT", 0.001)
    mark = Landmark(tmp_path, "sb://contoso")
    known = Acquaintance(mark, find_queues=find_queues, made_by_us=list)
    try:
        for _ in range(10):
            assert not await known.was_paired_before(None)
        found.append("of somebody else")
        for _ in range(10):
            assert await known.was_paired_before(None)
        await eventually(lambda: len(threads) >= 2)
    finally:
        answers.set()
    await eventually(lambda: not any(thread.is_alive() for thread in threads))
    assert len(threads) == 2, "one asks, and one makes the mark"
    monkeypatch.undo()
    assert mark.is_set()

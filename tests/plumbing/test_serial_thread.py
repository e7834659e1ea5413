"""One thread beside the loop, in order."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pairbus.plumbing.serial_thread import SerialThread

LIMIT = 40.0


def test_work_is_done_in_order_on_one_daemon_thread() -> None:
    thread = SerialThread("serial-of-a-test")
    done: list[tuple[int, str]] = []

    def work(number: int) -> bool:
        done.append((number, threading.current_thread().name))
        return threading.current_thread().daemon

    assert all(future.result(LIMIT) for future in [thread.submit(work, number) for number in range(50)])
    assert done == [(number, "serial-of-a-test") for number in range(50)]
    assert_it_rests(thread)


def assert_it_rests(thread: SerialThread) -> None:
    (alive,) = (each for each in threading.enumerate() if each.name == "serial-of-a-test")
    thread.rest()
    alive.join(LIMIT)
    assert not alive.is_alive()


def test_an_error_is_that_of_its_own_piece_of_work() -> None:
    thread = SerialThread("serial-of-a-test")
    with pytest.raises(ZeroDivisionError):
        thread.submit(lambda: 1 / 0).result(LIMIT)
    assert thread.submit(lambda: 2).result(LIMIT) == 2
    assert_it_rests(thread)


def test_what_was_submitted_is_done_before_it_rests_and_more_is_done_after_that() -> None:
    thread = SerialThread("serial-of-a-test")
    allowed = threading.Event()
    first, cancelled = thread.submit(allowed.wait, LIMIT), thread.submit(lambda: 1)
    last = thread.submit(lambda: 2)
    assert cancelled.cancel()
    thread.rest()
    thread.rest()
    after = thread.submit(lambda: 3)
    allowed.set()
    assert (first.result(LIMIT), last.result(LIMIT), after.result(LIMIT)) == (True, 2, 3)
    for number in range(100):
        thread.rest()
        assert thread.submit(abs, number).result(LIMIT) == number
    assert_it_rests(thread)
    assert thread.submit(lambda: 4).result(LIMIT) == 4
    assert_it_rests(thread)


async def test_work_ends_though_its_caller_is_cancelled() -> None:
    thread = SerialThread("serial-of-a-test")
    allowed, done = threading.Event(), threading.Event()
    blocking = thread.submit(allowed.wait, LIMIT)
    caller = asyncio.create_task(thread.run(done.set))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait({caller}, timeout=LIMIT)
    assert caller.cancelled()
    allowed.set()
    blocking.result(LIMIT)
    assert await thread.run(done.wait, LIMIT)
    assert_it_rests(thread)


def test_nothing_is_done_at_once_beside_or_before_other_work() -> None:
    thread = SerialThread("serial-of-a-test")
    assert thread.at_once(lambda: True)
    assert not thread.at_once(lambda: False)
    begun, allowed = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return allowed.wait(LIMIT)

    first, second = thread.submit(work), thread.submit(lambda: True)
    assert not thread.at_once(lambda: True), "it waits"
    assert begun.wait(LIMIT)
    assert not thread.at_once(lambda: True), "it is being done"
    allowed.set()
    assert first.result(LIMIT)
    assert second.result(LIMIT)
    assert_it_rests(thread)
    assert thread.at_once(lambda: True), "all is done"
    with pytest.raises(ZeroDivisionError):
        thread.at_once(lambda: 1 // 0 == 1)
    assert thread.at_once(lambda: True)


def test_none_is_started_without_work() -> None:
    SerialThread("serial-of-a-test").rest()
    assert "serial-of-a-test" not in {each.name for each in threading.enumerate()}


def test_at_the_end_of_a_process_that_starts_no_more_threads_it_is_done_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    thread = SerialThread("serial-of-a-test")
    assert [thread.submit(abs, -n).result(0.0) for n in range(3)] == [0, 1, 2]
    assert thread.submit(lambda: thread.submit(abs, -4)).result(0.0).result(0.0) == 4
    thread.rest()

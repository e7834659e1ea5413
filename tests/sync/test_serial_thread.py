"""One thread beside the loop, in order."""

from __future__ import annotations

import threading

import pytest

from pairbus.client.serial_thread import SerialThread

LIMIT = 10.0


def test_work_is_done_in_order_on_one_daemon_thread() -> None:
    thread = SerialThread("serial-of-a-test")
    done: list[tuple[int, str]] = []

    def work(number: int) -> bool:
        done.append((number, threading.current_thread().name))
        return threading.current_thread().daemon

    assert all(future.result(LIMIT) for future in [thread.submit(work, number) for number in range(50)])
    assert done == [(number, "serial-of-a-test") for number in range(50)]
    thread.shutdown()
    assert "serial-of-a-test" not in {each.name for each in threading.enumerate()}


def test_an_error_is_that_of_its_own_piece_of_work() -> None:
    thread = SerialThread("serial-of-a-test")
    with pytest.raises(ZeroDivisionError):
        thread.submit(lambda: 1 / 0).result(LIMIT)
    assert thread.submit(lambda: 2).result(LIMIT) == 2
    thread.shutdown()


def test_what_was_submitted_is_done_and_nothing_more_is_taken() -> None:
    thread = SerialThread("serial-of-a-test")
    allowed = threading.Event()
    first, cancelled = thread.submit(allowed.wait, LIMIT), thread.submit(lambda: 1)
    last = thread.submit(lambda: 2)
    assert cancelled.cancel()
    thread.shutdown(wait=False)
    thread.shutdown(wait=False)
    allowed.set()
    assert (first.result(LIMIT), last.result(LIMIT)) == (True, 2)
    with pytest.raises(RuntimeError, match="shut down"):
        thread.submit(lambda: 3)


def test_none_is_started_without_work() -> None:
    SerialThread("serial-of-a-test").shutdown()
    assert "serial-of-a-test" not in {each.name for each in threading.enumerate()}


def test_at_the_end_of_a_process_that_starts_no_more_threads_it_is_done_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    thread = SerialThread("serial-of-a-test")
    assert [thread.submit(abs, -n).result(0.0) for n in range(3)] == [0, 1, 2]
    thread.shutdown()

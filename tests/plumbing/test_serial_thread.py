"""One thread beside the loop, in order."""

import threading
from collections.abc import Iterator

import pytest

from pairbus.plumbing.serial_thread import SerialThread
from tests.waiting import PATIENCE

NAME = "serial-of-a-test"


@pytest.fixture
def thread() -> Iterator[SerialThread]:
    """Is to rest at the end, whatever becomes of the test: the next one looks for a thread of that name."""
    made = SerialThread(NAME)
    yield made
    made.rest()


def test_work_is_done_in_order_on_one_daemon_thread(thread: SerialThread) -> None:
    done: list[tuple[int, str]] = []

    def work(number: int) -> bool:
        done.append((number, threading.current_thread().name))
        return threading.current_thread().daemon

    assert all(future.result(PATIENCE) for future in [thread.submit(work, number) for number in range(50)])
    assert done == [(number, NAME) for number in range(50)]
    assert_it_rests(thread)


def assert_it_rests(thread: SerialThread) -> None:
    (alive,) = (each for each in threading.enumerate() if each.name == NAME)
    thread.rest()
    alive.join(PATIENCE)
    assert not alive.is_alive()


def test_an_error_is_that_of_its_own_piece_of_work(thread: SerialThread) -> None:
    with pytest.raises(ZeroDivisionError):
        thread.submit(lambda: 1 / 0).result(PATIENCE)
    assert thread.submit(lambda: 2).result(PATIENCE) == 2
    assert_it_rests(thread)


def test_what_was_submitted_is_done_before_it_rests_and_more_is_done_after_that(thread: SerialThread) -> None:
    allowed = threading.Event()
    first, cancelled = thread.submit(allowed.wait, PATIENCE), thread.submit(lambda: 1)
    last = thread.submit(lambda: 2)
    assert cancelled.cancel()
    thread.rest()
    thread.rest()
    after = thread.submit(lambda: 3)
    allowed.set()
    assert (first.result(PATIENCE), last.result(PATIENCE), after.result(PATIENCE)) == (True, 2, 3)
    for number in range(100):
        thread.rest()
        assert thread.submit(abs, number).result(PATIENCE) == number
    assert_it_rests(thread)
    assert thread.submit(lambda: 4).result(PATIENCE) == 4
    assert_it_rests(thread)


async def test_work_ends_though_its_caller_is_cancelled(thread: SerialThread) -> None:
    allowed, done = threading.Event(), threading.Event()
    blocking = thread.submit(allowed.wait, PATIENCE)
    caller = thread.run(done.set)
    caller.cancel()
    assert caller.cancelled()
    allowed.set()
    blocking.result(PATIENCE)
    assert await thread.run(done.wait, PATIENCE)
    assert_it_rests(thread)


def test_nothing_is_done_at_once_beside_or_before_other_work(thread: SerialThread) -> None:
    assert thread.at_once(lambda: True)
    assert not thread.at_once(lambda: False)
    begun, allowed = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return allowed.wait(PATIENCE)

    first, second = thread.submit(work), thread.submit(lambda: True)
    assert not thread.at_once(lambda: True), "it waits"
    assert begun.wait(PATIENCE)
    assert not thread.at_once(lambda: True), "it is being done"
    allowed.set()
    assert first.result(PATIENCE)
    assert second.result(PATIENCE)
    assert_it_rests(thread)
    assert thread.at_once(lambda: True), "all is done"
    with pytest.raises(ZeroDivisionError):
        thread.at_once(lambda: 1 // 0 == 1)
    assert thread.at_once(lambda: True)


def test_none_is_started_without_work(thread: SerialThread) -> None:
    thread.rest()
    assert NAME not in {each.name for each in threading.enumerate()}


def test_at_the_end_of_a_process_that_starts_no_more_threads_it_is_done_at_once(
    thread: SerialThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert [thread.submit(abs, -n).result(0.0) for n in range(3)] == [0, 1, 2]
    assert thread.submit(lambda: thread.submit(abs, -4)).result(0.0).result(0.0) == 4
    thread.rest()


def test_what_is_posted_while_it_is_lent_is_done_after_the_wait(thread: SerialThread) -> None:
    done: list[str] = []
    is_over = threading.Event()

    def wait() -> None:
        done.append("waited")
        thread.give_back()

    assert thread.lend(lambda: True, wait)
    assert not thread.at_once(lambda: True)
    assert not thread.lend(lambda: True, wait), "to one alone"
    thread.post(lambda: done.append("posted"))
    thread.post(is_over.set)
    assert is_over.wait(PATIENCE)
    assert done == ["waited", "posted"]


def test_what_has_ended_by_itself_is_waited_for_by_nobody(thread: SerialThread) -> None:
    done: list[str] = []
    assert not thread.lend(lambda: False, lambda: done.append("waited")), "nothing was begun"
    assert thread.lend(lambda: True, lambda: done.append("waited"))
    thread.give_back()
    assert thread.submit(done.append, "submitted").result(PATIENCE) is None
    assert done == ["submitted"]


def test_one_who_is_interrupted_as_it_is_lent_is_waited_for(thread: SerialThread) -> None:
    """It may be under way."""
    done: list[str] = []

    def begin() -> bool:
        raise KeyboardInterrupt

    def wait() -> None:
        done.append("waited")
        thread.give_back()

    with pytest.raises(KeyboardInterrupt):
        thread.lend(begin, wait)
    assert thread.submit(done.append, "submitted").result(PATIENCE) is None
    assert done == ["waited", "submitted"]
    assert thread.lend(lambda: True, wait), "it has been given back"

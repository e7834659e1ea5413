"""The way from threads into an event loop."""

import asyncio
import contextvars
import gc
import operator
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pytest

from pairbus import portal as portal_module
from pairbus.portal import Portal, PortalClosed, PortalReentered
from tests.logs import our_lines
from tests.waiting import PATIENCE

T = TypeVar("T")
COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


Make = Callable[[], Portal]


@pytest.fixture(params=[False, True], ids=["keeps its loop", "lends its loop"])
def make(request: pytest.FixtureRequest) -> Make:
    """Both kinds of portals keep the same promises."""
    return partial(Portal, "portal-of-a-test", lends=request.param)


@pytest.fixture
def portal(make: Make) -> Iterator[Portal]:
    portal = make()
    yield portal
    portal.close(timeout=PATIENCE)


@pytest.fixture
def lending() -> Iterator[Portal]:
    portal = Portal("portal-of-a-test", lends=True)
    yield portal
    portal.close(timeout=PATIENCE)


@pytest.fixture
def lending_to_main(lending: Portal, monkeypatch: pytest.MonkeyPatch) -> Portal:
    """In a program that has no handler but Python's for Ctrl-C; that of the test's own deadline stays."""
    others = [number for number in portal_module._OTHER_SIGNALS if number != signal.SIGALRM]
    monkeypatch.setattr(portal_module, "_OTHER_SIGNALS", others)
    return lending


def on_a_thread(work: Callable[[], T]) -> T:
    """What a thread of its own makes of it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(PATIENCE)


async def double(number: int, *, plus: int = 0) -> int:
    await asyncio.sleep(0)
    return 2 * number + plus


async def fail() -> None:
    raise LookupError("nothing there")


def test_a_call_brings_back_its_result(portal: Portal) -> None:
    assert portal.run(double, 4, plus=1) == 9
    assert portal.call(threading.get_ident) != threading.get_ident()


def test_a_call_raises_what_was_raised_there_and_the_portal_goes_on(portal: Portal) -> None:
    with pytest.raises(LookupError, match="nothing there"):
        portal.run(fail)
    assert portal.run(double, 1) == 2


def test_the_context_of_the_caller_goes_along(portal: Portal) -> None:
    async def colour_in_a_task() -> str:
        async def look() -> str:
            return COLOUR.get()

        return await asyncio.create_task(look())

    token = COLOUR.set("green")
    try:
        assert portal.run(colour_in_a_task) == "green"
    finally:
        COLOUR.reset(token)
    assert portal.run(colour_in_a_task) == "none"


def test_a_call_on_the_own_thread_is_refused_instead_of_waiting_for_ever(portal: Portal) -> None:
    def call_again() -> None:
        portal.run(double, 1)

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # no coroutine may be left that was never awaited
        with pytest.raises(PortalReentered, match="on_state_change"):
            portal.call(call_again, timeout=PATIENCE)
        gc.collect()


def test_a_portal_may_be_used_inside_another_event_loop(portal: Portal) -> None:
    async def block_the_own_loop() -> int:
        return portal.run(double, 3)

    assert asyncio.run(block_the_own_loop()) == 6


def test_a_call_that_is_not_answered_in_time_is_cancelled(portal: Portal) -> None:
    cancelled = threading.Event()

    async def sleep_long() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(PortalClosed, match=r"within 0\.05 s"):
        portal.run_within(0.05, sleep_long)
    assert cancelled.wait(PATIENCE)


def test_a_blocked_loop_does_not_hold_a_call_with_a_limit(portal: Portal) -> None:
    began, released = threading.Event(), threading.Event()

    def block() -> None:
        began.set()
        released.wait(PATIENCE)

    while not began.is_set():  # it may be called off before it begins
        with pytest.raises(PortalClosed):
            portal.call(block, timeout=0.05)
    with pytest.raises(PortalClosed):
        portal.call(lambda: None, timeout=0.05)
    released.set()
    assert portal.run(double, 2) == 4


def test_those_who_wait_are_told_when_it_is_closed(make: Make) -> None:
    portal = make()
    began, told = threading.Barrier(2), []

    async def wait_for_ever() -> None:
        await asyncio.get_running_loop().run_in_executor(None, began.wait)
        await asyncio.Event().wait()

    def call() -> None:
        try:
            portal.run(wait_for_ever)
        except PortalClosed as error:
            told.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    began.wait(PATIENCE)
    portal.close(timeout=PATIENCE)
    caller.join(PATIENCE)
    assert len(told) == 1
    with pytest.raises(PortalClosed):
        portal.run(double, 1)
    portal.close(timeout=PATIENCE)  # once more does no harm


def test_closing_and_calling_at_the_same_time_never_hangs(make: Make) -> None:
    for _ in range(30):
        portal = make()
        outcomes: list[str] = []

        def call(portal: Portal = portal, outcomes: list[str] = outcomes) -> None:
            try:
                while True:
                    portal.run(double, 1)
            except PortalClosed:
                outcomes.append("told")

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        portal.close(timeout=PATIENCE)
        for caller in callers:
            caller.join(PATIENCE)
        assert outcomes == ["told"] * 4


def test_what_begins_while_it_ends_is_cancelled_too(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    portal = make()
    swept = threading.Event()

    async def sweep() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            swept.set()

    async def leave_a_sweeper() -> None:
        tasks: list[asyncio.Task[None]] = []

        async def work() -> None:
            try:
                await asyncio.sleep(PATIENCE)
            finally:
                tasks.append(asyncio.create_task(sweep()))
                await asyncio.sleep(0)

        tasks.append(asyncio.create_task(work()))
        await asyncio.sleep(0)

    portal.run(leave_a_sweeper)
    portal.close(timeout=PATIENCE)
    gc.collect()
    assert swept.is_set()
    assert our_lines(caplog) == []


def test_leaving_says_farewell_and_does_not_wait(make: Make) -> None:
    portal = make()
    said, allowed = threading.Event(), threading.Event()

    async def farewell() -> None:
        await asyncio.get_running_loop().run_in_executor(None, allowed.wait)
        said.set()

    portal.leave(farewell)
    assert not portal.join(0.0)
    allowed.set()
    assert portal.join(PATIENCE)
    assert said.is_set()


def test_a_loop_ends_though_its_farewell_fails(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    portal = make()
    portal.leave(fail)
    assert portal.join(PATIENCE)


def test_work_for_other_threads_does_not_keep_anybody(portal: Portal) -> None:
    released = threading.Event()

    async def look_up() -> bool:
        return await asyncio.get_running_loop().run_in_executor(None, released.wait, PATIENCE)

    async def raise_there() -> None:
        await asyncio.to_thread(lambda: 1 / 0)

    waiting = threading.Thread(target=lambda: portal.run(look_up))
    waiting.start()
    # One that hangs holds up neither the next one nor the end: its thread is a daemon.
    with pytest.raises(ZeroDivisionError):
        portal.run(raise_there)
    assert [thread for thread in threading.enumerate() if thread.name == "pairbus-work" and thread.daemon]
    released.set()
    waiting.join(PATIENCE)


def test_an_error_does_not_keep_its_caller_alive(portal: Portal) -> None:
    class Token:
        pass

    def call() -> None:
        token = Token()
        found.append(token)
        with pytest.raises(LookupError):
            portal.run(fail)

    found: list[Token] = []
    call()
    gc.disable()
    try:
        watched = weakref.ref(found.pop())
        assert watched() is None
    finally:
        gc.enable()


def test_a_process_that_starts_no_more_threads_does_the_work_on_the_loop(
    portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    async def look_up() -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert portal.run(look_up) == "portal-of-a-test"


async def leave_behind(error: Exception) -> None:
    """A future that fails, and that nobody asks."""
    asyncio.get_running_loop().create_future().set_exception(error)
    gc.collect()


@pytest.mark.parametrize(
    ("error", "told"),
    [(ConnectionResetError("a line of this test"), []), (LookupError("a mistake of this test"), ["ERROR"])],
)
def test_only_a_dead_connection_that_nobody_uses_is_left_out_of_the_log(
    portal: Portal, caplog: pytest.LogCaptureFixture, error: Exception, told: list[str]
) -> None:
    portal.run(leave_behind, error)
    about_it = [record for record in caplog.records if str(error) in record.getMessage()]
    assert [record.levelname for record in about_it] == told


async def where() -> int:
    await asyncio.sleep(0)
    return threading.get_ident()


def borrow(portal: Portal) -> int:
    """Call until the loop runs on the own thread; that thread."""
    ends = time.monotonic() + PATIENCE
    while portal.run(where) != threading.get_ident():
        assert time.monotonic() < ends, "the loop was never lent"
    return threading.get_ident()


def run_here(portal: Portal, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Have a coroutine function run on the own thread."""
    me = threading.get_ident()

    async def work_if_here() -> bool:
        if threading.get_ident() != me:
            return False  # the portal's thread was quicker
        await work()
        return True

    ends = time.monotonic() + PATIENCE
    while not portal.run(work_if_here):
        assert time.monotonic() < ends, "the loop was never lent"


def test_a_thread_that_calls_alone_runs_the_loop_itself(lending: Portal) -> None:
    assert on_a_thread(lambda: borrow(lending)) != threading.get_ident()


def test_the_main_thread_runs_the_loop_itself_too(lending_to_main: Portal) -> None:
    borrow(lending_to_main)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    on_a_thread(lambda: borrow(lending_to_main))
    borrow(lending_to_main)


@pytest.mark.parametrize("when", ["at once", "while it waits"])
def test_ctrl_c_is_raised_when_the_loop_has_stopped_for_it(lending_to_main: Portal, when: str) -> None:
    """Not amid what the loop is about, wherever it comes: the turn is done to its end."""
    done: list[str] = []
    cancelled = threading.Event()

    def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)
        done.append("the turn")

    async def wait_for_ever() -> None:
        if when == "at once":
            interrupt()
        else:
            asyncio.get_running_loop().call_soon(interrupt)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    with pytest.raises(KeyboardInterrupt):
        run_here(lending_to_main, wait_for_ever)
    assert done == ["the turn"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert cancelled.wait(PATIENCE)
    assert lending_to_main.run(double, 4) == 8


def test_ctrl_c_wakes_a_loop_that_waits_or_is_about_to(lending_to_main: Portal) -> None:
    main = threading.get_ident()
    for _ in range(30):
        begun = threading.Event()

        async def wait_for_ever(begun: threading.Event = begun) -> None:
            begun.set()
            await asyncio.Event().wait()

        def interrupt(begun: threading.Event = begun) -> None:
            begun.wait(PATIENCE)
            signal.pthread_kill(main, signal.SIGINT)

        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            run_here(lending_to_main, wait_for_ever)
        interrupter.join(PATIENCE)
    assert lending_to_main.run(double, 4) == 8


def test_who_presses_ctrl_c_twice_gets_out_of_what_blocks_the_loop(lending_to_main: Portal) -> None:
    async def block() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("never")

    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run_here(lending_to_main, block)
    assert done == []
    assert lending_to_main.run(double, 4) == 8
    borrow(lending_to_main)


def test_a_main_thread_with_handlers_of_its_own_borrows_nothing(lending_to_main: Portal) -> None:
    """What they raise would end whatever the loop is about, and a call that they make would be refused."""
    called = []
    before = signal.signal(signal.SIGUSR1, lambda *_: called.append(lending_to_main.run(double, 4)))
    try:

        async def interrupt() -> int:
            signal.pthread_kill(main, signal.SIGUSR1)
            return await where()

        main = threading.get_ident()
        borrowed = {lending_to_main.run(where) for _ in range(50)} | {lending_to_main.run(interrupt)}
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert main not in borrowed
    assert called == [8]
    borrow(lending_to_main)


def test_a_thread_that_python_does_not_take_for_the_main_one_borrows_nothing(
    lending: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where Python is a part of another program."""

    def check() -> None:
        me = threading.current_thread()
        monkeypatch.setattr(threading, "main_thread", lambda: me)
        assert threading.get_ident() not in {lending.run(where) for _ in range(50)}

    on_a_thread(check)


def test_a_thread_with_a_loop_of_its_own_borrows_nothing(lending: Portal) -> None:
    async def call() -> set[int]:
        return {lending.run(where) for _ in range(50)} - {threading.get_ident()}

    assert on_a_thread(lambda: borrow(lending) and asyncio.run(call()))


def test_the_loop_goes_on_when_its_borrowers_are_gone(lending: Portal) -> None:
    rung = threading.Event()

    async def set_alarm() -> None:
        asyncio.get_running_loop().call_later(0.05, rung.set)

    on_a_thread(lambda: (borrow(lending), lending.run(set_alarm)))
    assert rung.wait(PATIENCE)


def test_a_call_that_is_run_by_its_caller_serves_others_meanwhile(lending: Portal) -> None:
    ends = time.monotonic() + PATIENCE
    while not served_by_a_caller(lending):  # the portal's thread was quicker
        assert time.monotonic() < ends, "the loop was never lent"


def served_by_a_caller(portal: Portal) -> bool:
    """One waits for what only others bring, by every way into the loop; whether it ran the loop itself."""
    begun, stages = threading.Event(), [asyncio.Event() for _ in range(3)]

    async def wait_for_all() -> int:
        begun.set()
        for stage in stages:
            await stage.wait()
        return threading.get_ident()

    async def bring(number: int) -> None:
        stages[number].set()

    def lead() -> bool:
        return borrow(portal) == portal.run(wait_for_all)

    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(lead)
        assert begun.wait(PATIENCE)
        pool.submit(portal.run, bring, 0).result(PATIENCE)
        portal.run(bring, 1)
        portal.call(stages[2].set)
        return leader.result(PATIENCE)


def test_closing_ends_a_call_that_is_run_by_its_caller(lending: Portal) -> None:
    begun = threading.Event()

    async def wait_for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def lead() -> None:
        borrow(lending)
        lending.run(wait_for_ever)

    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(lead)
        assert begun.wait(PATIENCE)
        lending.close(timeout=PATIENCE)
        with pytest.raises(PortalClosed):
            leader.result(PATIENCE)


def test_a_call_from_a_loop_that_its_caller_runs_is_refused(lending: Portal) -> None:
    async def call_again() -> None:
        lending.run(double, 1)

    def lead() -> None:
        borrow(lending)
        lending.run(call_again)

    with pytest.raises(PortalReentered):
        on_a_thread(lead)
    assert lending.run(double, 1) == 2


@pytest.mark.parametrize("threads", [2, 5, 16])
def test_every_call_of_many_threads_has_its_own_answer(portal: Portal, threads: int) -> None:
    """Alone, side by side, in bursts and after pauses: whoever runs the loop, nobody waits for ever."""

    def call(thread: int) -> list[int]:
        found = []
        for number in range(60):
            if (thread + number) % 7 == 0:
                time.sleep(0.002)  # others are alone meanwhile
            found.append(
                portal.run(double, number) if number % 5 else portal.call(partial(operator.mul, 2, number))
            )
        return found

    with ThreadPoolExecutor(threads) as pool:
        for found in pool.map(call, range(threads), timeout=PATIENCE):
            assert found == [2 * number for number in range(60)]

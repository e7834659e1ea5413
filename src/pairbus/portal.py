"""A way from ordinary threads into one event loop, on a daemon thread of its own.

Theory of operation
1. A call is handed to the loop and its caller waits on a lock: one wake-up of the loop's thread and one of
   the caller's. The lock is the cheapest thing that a signal interrupts; a future with its condition costs
   about twice as much.
2. What is handed over is a function, not a coroutine. The coroutine is made on the loop, so that a call that
   never gets there leaves none behind that was never awaited. It runs in a copy of the caller's context,
   which carries the caller's trace.
3. An interrupted caller (Ctrl-C) cancels its call and goes; the loop and everybody else's calls live on.
4. A call on the loop's own thread would wait for itself, and is refused.
5. Work for other threads (names to look up, tokens to fetch) gets daemon threads (`threads`).
6. When the loop ends, what still runs on it is cancelled, and whoever still waits is told.
7. A call that was called away may leave a write to a dead connection behind, which fails when nobody waits
   for it any more. That is no news for the application's log.
8. Two wake-ups cost more than a small call. A portal that *lends* its loop has it run by the caller's own
   thread: whoever calls while nobody runs it does so himself until his call is done. The portal's thread has
   it back when nobody has run it for a moment, and at once when somebody waits for a call; with the last call
   that was waited for it lends the loop again. So one caller needs no wake-up, and many share one thread as
   before. Between two calls of such a caller the loop stands still for as long as that moment.
9. Handlers of signals run on the main thread, and what they raise would end whatever the loop is about. So
   while that thread runs the loop Ctrl-C is put off until the loop has stopped for it, which it does at once;
   who presses it a second time before that has something on the loop that blocks, and gets out of it. With
   any other handler of the application's it borrows nothing: such a one may also want to make a call. Nor
   does a thread borrow that runs another event loop. A child that another thread forks meanwhile runs no
   loop: there Ctrl-C is what it was.
10. To wake up the loop costs a system call, at which every thread that waits for Python's lock may take it
   away. So calls that come before the loop has seen the last wake-up share it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes names of what it tells: as long as a small call
import asyncio
import contextvars
import logging
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from .errors import PairbusError
from .threads import DaemonThreads

T = TypeVar("T")
P = ParamSpec("P")
log = logging.getLogger(__name__)
# After so long without anybody who runs a loop that is lent its own thread has it back.
_MOMENT = 0.01
# What is cancelled may begin new work to clean up, which is cancelled in its turn; but not without end.
_CANCEL_ROUNDS = 5
_OTHER_SIGNALS = tuple(int(number) for number in signal.valid_signals() if number != signal.SIGINT)


class PortalClosed(PairbusError):
    """The event loop behind the call has ended, or did not answer in time."""


class PortalReentered(PairbusError):
    """A call was made on the very thread that would have to carry it out."""

    def __init__(self) -> None:
        super().__init__(
            "This call would wait for the event loop on whose thread it is made, and so for ever. Observers "
            "run there: let them hand such work to another thread, or use on_state_change, which has its own."
        )


class _Call(Generic[T]):
    """One call on its way through the loop."""

    __slots__ = (
        "_context",
        "_done",
        "_error",
        "_is_called_off",
        "_task",
        "_value",
        "_work",
        "borrows",
        "ended",
    )

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._context = contextvars.copy_context()
        #: Whether its caller may run the loop, and what is told of its end, on the loop.
        self.borrows = False
        self.ended: Callable[[_Call[T]], None] | None = None
        self._is_called_off = False
        self._done = threading.Lock()
        self._done.acquire()
        self._task: asyncio.Task[None] | None = None
        self._value: T | None = None
        self._error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return not self._done.locked()

    def wait(self, timeout: float) -> bool:
        """Wait until it is done, for ever if `timeout` is -1; whether it is."""
        return self._done.acquire(timeout=timeout)

    def result(self) -> T:
        """What came of it, once it is done."""
        if self._error is None:
            return self._value  # type: ignore[return-value]  # of the type T, which may be None
        error, self._error = self._error, None
        try:
            raise error
        finally:
            del error  # or its traceback would hold this frame, and this frame the error

    # -- on the loop's thread

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the work, in the context that the caller had."""
        if not self._is_called_off:
            self._task = loop.create_task(self._perform(), context=self._context)

    def call_off(self) -> None:
        """Nobody waits for it any more."""
        self._is_called_off = True
        if self._task is not None:
            self._task.cancel()

    def fail(self, error: BaseException) -> None:
        """End it from outside, unless it has ended."""
        if self._done.locked():
            self._error = error
            self._done.release()

    async def _perform(self) -> None:
        try:
            self._value = await self._work()
        except asyncio.CancelledError:
            self._error = PortalClosed("The event loop was closed while this call was under way.")
        except BaseException as error:  # noqa: BLE001 - it is raised where the caller waits
            self._error = error
        if self.ended is not None:
            self.ended(self)
        self._done.release()


class _CtrlC:
    """Ctrl-C on the main thread, put off while that runs the loop. Rule 9."""

    def __init__(self, portal: Portal, loop: asyncio.AbstractEventLoop) -> None:
        self._portal = portal
        self._loop = loop
        self._count = 0
        self._is_heard = False
        self._other_bell = -1
        # What comes while the loop is about to wait is not seen before it wakes up. So it is woken: Python
        # writes a byte here when a signal comes, whatever it does just then.
        self._heard, self._bell = socket.socketpair()
        self._heard.setblocking(False)
        self._bell.setblocking(False)
        loop.add_reader(self._heard, self._heard.recv, 1024)

    def put_off(self) -> None:
        """From now on. ValueError where this is not what Python takes for the main thread, as in a program
        that Python is a part of.
        """
        self._count, self._is_heard = 0, False
        _signal.signal(signal.SIGINT, self._take)

    def __enter__(self) -> None:
        """It is put off already: nothing may come in between."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._count and error is None:
            raise KeyboardInterrupt

    def run_loop(self) -> None:
        """Run the loop, with the loan; it stops for Ctrl-C."""
        self._other_bell = _signal.set_wakeup_fd(self._bell.fileno(), warn_on_full_buffer=False)
        try:
            self._loop.run_forever()
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        with suppress(OSError, ValueError):  # who set the other one has closed it
            _signal.set_wakeup_fd(self._other_bell)

    @classmethod
    def end_in_child(cls) -> None:
        """After a fork: nothing is put off any more."""
        putting_off = getattr(_signal.getsignal(signal.SIGINT), "__self__", None)
        if isinstance(putting_off, cls):
            _signal.signal(signal.SIGINT, signal.default_int_handler)
            putting_off._hang_up()

    def close(self) -> None:
        """The loop has ended."""
        self._heard.close()
        self._bell.close()

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 1:
            self._portal._schedule(self._hear)
        elif self._count == 2 and not self._is_heard and self._loop.is_running():
            raise KeyboardInterrupt

    def _hear(self) -> None:
        self._is_heard = True
        self._portal._stop()


os.register_at_fork(after_in_child=_CtrlC.end_in_child)


class Portal:
    """One event loop on one daemon thread."""

    def __init__(
        self,
        name: str,
        *,
        make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
        lends: bool = False,
    ) -> None:
        """`lends`: rule 8."""
        self._loop = make_loop()
        self._loop.set_exception_handler(_tell)
        self._loop.set_default_executor(DaemonThreads())
        self._calls: set[_Call[Any]] = set()  # that have not ended
        self._arrivals: deque[_Call[Any]] = deque()  # that have not begun
        self._is_told = False  # that there are such
        self._is_over = False  # the loop is to end
        self._is_ending = False
        self._has_ended = False
        self._lends = lends
        self._loan = threading.Lock()  # of whoever runs the loop
        self._runner: int | None = None
        self._lent_for: _Call[Any] | None = None
        self._ctrl_c = _CtrlC(self, self._loop) if lends else None
        self._loans = 0
        self._wanted = threading.Lock()  # let go when the portal's thread is to run the loop
        self._wanted.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Have a coroutine function run on the loop, and wait for its result."""
        call = _Call(partial(function, *args, **kwargs))
        call.borrows = self._lends and _may_borrow()
        return self._carry(call, None)

    def run_within(self, seconds: float, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same, but cancelled and refused with PortalClosed when the time is over."""
        return self._carry(_Call(function), seconds)

    def call(self, function: Callable[[], T], *, timeout: float | None = None) -> T:
        """Call a plain function on the loop's thread and wait for its result."""

        async def perform() -> T:
            return function()

        return self._carry(_Call(perform), timeout)

    def post(self, function: Callable[[], object]) -> bool:
        """Have a plain function called on the loop's thread; nobody waits for that. False if it has ended."""
        is_posted = self._schedule(function)
        self._want()
        return is_posted

    @property
    def is_here(self) -> bool:
        """Whether this is the thread that runs the loop."""
        return threading.get_ident() == self._runner

    def leave(self, farewell: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a last coroutine function and end the loop; nobody waits for that here."""

        async def part() -> None:
            try:
                await farewell()
            finally:
                self._is_over = True
                self._stop()

        self._schedule(self._begin, _Call(part))
        self._want()

    def close(self, *, timeout: float) -> None:
        """Cancel what still runs on the loop, end it, and wait for its thread."""
        self._is_over = True
        self._schedule(self._stop)
        self._want()
        self.join(timeout)

    def join(self, timeout: float) -> bool:
        """Wait for the end of the loop; whether it has ended."""
        if not self.is_here:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # -- a call

    def _carry(self, call: _Call[T], timeout: float | None) -> T:
        if self.is_here:
            raise PortalReentered
        is_done = False
        call.ended = self._end
        # Among those who are told of the end before the end is looked for: one of the two sees the other. And
        # before the loan is asked for: whoever has it looks for calls when it is given back.
        self._calls.add(call)
        try:
            if self._has_ended:
                raise PortalClosed("The event loop has been closed.")
            lent = None
            if call.borrows and not self._loan.locked() and not self._is_over:
                lent = self._run_if_lent(call)
            if lent is not None:
                is_done = lent
            elif not self._hand_over(call):
                raise PortalClosed("The event loop has been closed.")
            elif self._lends and not self._loan.locked():
                self._want()
            if not is_done:
                is_done = call.wait(-1 if timeout is None else timeout)
        finally:
            self._calls.discard(call)
            if not is_done:  # its time is over, or it was interrupted, perhaps before the loop was told
                self._schedule(call.call_off)
                self._schedule(self._take_arrivals)
        if not is_done:
            raise PortalClosed(f"The event loop did not answer within {timeout:g} s.")
        return call.result()

    def _run_if_lent(self, call: _Call[Any]) -> bool | None:
        """Run the loop here, unless somebody else does: whether the call is done, or None."""
        ctrl_c = self._ctrl_c
        if ctrl_c is None or threading.current_thread() is not threading.main_thread():
            if self._loan.acquire(blocking=False):
                return self._run_until_done(call, self._loop.run_forever)
            return None
        try:
            ctrl_c.put_off()
        except ValueError:
            return None
        with ctrl_c:  # before the loan is asked for: whoever has it must come to give it back
            if self._loan.acquire(blocking=False):
                return self._run_until_done(call, ctrl_c.run_loop)
            return None

    def _run_until_done(self, call: _Call[Any], run_loop: Callable[[], None]) -> bool:
        """With the loan: run the loop here; whether the call is done, and not the loop over before that."""
        self._runner, self._lent_for = threading.get_ident(), call
        try:
            self._begin(call)
            run_loop()
        finally:
            self._runner = self._lent_for = None
            self._loans += 1
            self._loan.release()
            if self._calls or self._is_over:
                self._want()
        return call.is_done

    def _want(self) -> None:
        """Have the portal's thread run the loop as soon as it can."""
        with suppress(RuntimeError):  # it is wanted already
            self._wanted.release()

    def _hand_over(self, call: _Call[Any]) -> bool:
        """Have a call begun on the loop's thread; False if that has ended. Rule 10."""
        self._arrivals.append(call)
        if not self._is_told:
            self._is_told = True
            return self._schedule(self._take_arrivals)
        return True

    def _schedule(self, function: Callable[..., object], *args: Any) -> bool:
        """Have something called on the loop's thread; False if it has ended."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return False
        return True

    # -- the thread

    def _take_arrivals(self) -> None:
        self._is_told = False  # before one looks: what comes after that is told of again
        while self._arrivals:
            self._begin(self._arrivals.popleft())

    def _begin(self, call: _Call[Any]) -> None:
        if not self._is_ending:
            call.begin(self._loop)

    def _end(self, call: _Call[Any]) -> None:
        """A call has ended: its caller has what it runs the loop for, or the next one may run it."""
        self._calls.discard(call)
        if call is self._lent_for or (call.borrows and self._lent_for is None and not self._calls):
            self._stop()

    def _stop(self) -> None:
        """Let whoever runs the loop end that, but for what ends it for good."""
        if not self._is_ending:
            self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._take_turns()
            self._is_ending = True
            self._cancel_all()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._has_ended = True
            self._loop.close()
            if self._ctrl_c is not None:
                self._ctrl_c.close()
            for call in list(self._calls):
                call.fail(PortalClosed("The event loop has been closed."))

    def _take_turns(self) -> None:
        """Run the loop whenever nobody else does, until it is over; the loan is kept then."""
        self._loan.acquire()
        while True:
            self._runner = threading.get_ident()
            if not self._is_over:
                self._loop.run_forever()
            if self._is_over or not self._lends:
                return
            self._runner = None
            self._loan.release()
            if not self._calls:
                self._rest()
            self._loan.acquire()

    def _rest(self) -> None:
        """Wait until the loop is wanted, or nobody has run it for a moment."""
        seen = None
        while seen != self._loans:
            seen = self._loans
            if self._wanted.acquire(timeout=_MOMENT):
                return

    def _cancel_all(self) -> None:
        for _ in range(_CANCEL_ROUNDS):
            tasks = asyncio.all_tasks(self._loop)
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _may_borrow() -> bool:
    """Rule 9."""
    if asyncio._get_running_loop() is not None:  # the other one raises, which takes longer than all of this
        return False
    return threading.current_thread() is not threading.main_thread() or _has_only_ctrl_c()


def _has_only_ctrl_c() -> bool:
    """Whether no signal but that of Ctrl-C, with what Python does for it, has a handler of Python's."""
    handler_of = _signal.getsignal
    return handler_of(signal.SIGINT) is signal.default_int_handler and not any(
        map(callable, map(handler_of, _OTHER_SIGNALS))
    )


def _tell(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What asyncio has to tell goes to the log, but for the end of a connection that nobody waits for."""
    future, error = context.get("future"), context.get("exception")
    if isinstance(error, ConnectionError) and not isinstance(future, asyncio.Task | None):
        log.debug("a connection was lost that nobody used any more: %s", error)
    else:
        loop.default_exception_handler(context)

"""Work that blocks, done in order on one thread beside the event loop.

The usual executor is not for this. It takes no more work once the main thread has ended, though other threads
of the application may still send, and the closing of a client at the end of the process comes later still.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import ParamSpec, TypeVar

from pairbus.threads import fulfil

P = ParamSpec("P")
T = TypeVar("T")


class SerialThread:
    """One daemon thread, from the first work to `rest`, and again: nothing is refused, nothing overlaps."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        # Posted and not done yet.
        self._pending = 0
        # While something is done elsewhere in our stead: what waits for its end.
        self._wait: Callable[[], None] | None = None
        # Entered again by work that submits more where no thread can be started.
        self._lock = threading.RLock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function called after all that was submitted before."""
        future: Future[T] = Future()

        def perform() -> None:
            if future.set_running_or_notify_cancel():
                fulfil(future, partial(fn, *args, **kwargs))

        self.post(perform)
        return future

    def post(self, act: Callable[[], None]) -> None:
        """Have a function called that never raises and tells its end itself: a future costs more."""

        def perform() -> None:
            try:
                act()
            finally:
                with self._lock:
                    self._pending -= 1

        with self._lock:
            self._pending += 1
            try:
                if self._wait is not None:
                    self._pass_on(self._wait)
                    self._wait = None
                self._pass_on(perform)
            except BaseException:
                self._pending -= 1
                raise

    def at_once(self, fn: Callable[P, bool], /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Call a short function here, if nothing else is done or waits, and tell what it says; else False."""
        with self._lock:
            return self._pending == 0 and fn(*args, **kwargs)

    def lend(self, begin: Callable[[], bool], wait: Callable[[], None]) -> bool:
        """The same for what is not over when `begin` returns: it is under way until `give_back`. Whatever is
        posted before that is done after `wait`, which is called on the thread and never raises. If `begin`
        raises, nobody knows whether it is under way: `wait` finds out, and gives back what is not.
        """
        with self._lock:
            if self._pending:
                return False
            self._pending, self._wait = 1, wait
            if begin():
                return True
            self.give_back()
            return False

    def give_back(self) -> None:
        """What was begun has ended; from any thread."""
        with self._lock:
            self._pending -= 1
            self._wait = None

    def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        """The same, from an event loop. What has been submitted is done though its caller is cancelled."""
        return asyncio.shield(asyncio.wrap_future(self.submit(fn, *args, **kwargs)))

    def rest(self) -> None:
        """Let the thread end when all that was submitted is done."""
        with self._lock:
            if self._thread is not None:
                self._work.put(None)

    def _pass_on(self, act: Callable[[], None]) -> None:
        self._work.put(act)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # From Python 3.12 on no thread is started any more while the process ends: it is done here.
            while not self._work.empty():
                self._perform_next()
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            if not self._perform_next():
                with self._lock:
                    if self._work.empty():  # or work has come since
                        self._thread = None
                        return

    def _perform_next(self) -> bool:
        """Wait for a piece of work and do it; False if the thread is to end."""
        perform = self._work.get()
        if perform is not None:
            perform()
        return perform is not None

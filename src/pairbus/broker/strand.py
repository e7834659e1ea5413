"""Work that stops in the middle and goes on later.

Theory
1. All namespaces of a process share one event loop, and what one of them has to do may take a second of
   computing. Such work is done on a *strand*: a thread of its own that never runs beside the loop's. Whoever
   lets it go on waits until it stops. So it is a generator that may yield at any depth of calls, and needs no
   locks: to pass control there and back takes some ten microseconds.
2. It stops where it breathes (`engine.breath`) and has had its slice of time, and goes on when it is told to.
3. What is done on it is computing, on what belongs to the namespace. It knows nothing of the event loop.
4. Work that nobody wants any more is given up where it has stopped: it ends there, as a generator that is
   closed does, with an exception that nobody catches.
"""

import _thread
import threading
import time
from collections.abc import Callable

from .engine.breath import PAUSE

# Seconds of processor time that all others may have to wait. Their own way through a namespace takes three
# turns of the loop.
SLICE = 0.001


class Strand:
    """Does one piece of work at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._act: Callable[[], None] | None = None
        # Who holds neither of these two waits for the other side.
        self._goes, self._stops = _thread.allocate_lock(), _thread.allocate_lock()
        self._goes.acquire()
        self._stops.acquire()
        self._slice = self._began = 0.0
        # When to look at the processor time that is used: time that passes is quicker to tell.
        self._look_at = 0.0
        self._is_abandoned = False
        #: What the work ended with, if that was an exception.
        self.error: BaseException | None = None
        self.is_under_way = False

    @property
    def is_here(self) -> bool:
        """Whether it is the work that asks."""
        return threading.current_thread() is self._thread

    def begin(self, act: Callable[[], None]) -> None:
        """Do some work, up to where it stops for the first time."""
        assert not self.is_under_way
        assert not self._is_abandoned, "the strand is closed"
        if self._thread is None:
            self._start()
        self._act, self.error, self.is_under_way = act, None, True
        self.go_on()

    def go_on(self, slice_: float | None = None) -> None:
        """Go on with it, up to where it stops again, or ends."""
        assert not self.is_here, "work cannot wait for itself"
        self._slice = SLICE if slice_ is None else slice_
        self._goes.release()
        self._stops.acquire()

    def finish(self) -> None:
        """Go on with it to its end."""
        while self.is_under_way:
            self.go_on(float("inf"))

    def close(self) -> None:
        """Give up what is under way, and end the thread."""
        self._is_abandoned = True
        if self._thread is None:
            return
        if self.is_under_way:
            self.finish()
        self._goes.release()
        self._thread.join()
        self._thread = None

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        PAUSE.set(self._pause)
        while True:
            self._goes.acquire()
            if self._act is None:
                return
            self._set_out()
            try:
                self._act()
            except BaseException as error:  # noqa: BLE001 - it is told to whoever began it
                self.error = error
            self._act, self.is_under_way = None, False
            self._stops.release()

    def _set_out(self) -> None:
        self._began, self._look_at = time.thread_time(), time.perf_counter() + self._slice

    def _pause(self) -> None:
        now = time.perf_counter()
        if now < self._look_at:
            return
        left = self._began + self._slice - time.thread_time()
        if left > 0:  # others have had the processor meanwhile
            self._look_at = now + left
            return
        self._stops.release()
        self._goes.acquire()
        self._set_out()
        if self._is_abandoned:
            raise GeneratorExit

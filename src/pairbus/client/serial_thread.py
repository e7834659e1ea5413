"""Work that blocks, done in order on one thread beside the event loop.

The usual executor is not for this. It takes no more work once the main thread has ended, though other threads
of the application may still send, and the closing of a client at the end of the process comes later still.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar

__all__ = ["SerialThread"]

P = ParamSpec("P")
T = TypeVar("T")


class SerialThread(Executor):
    """One daemon thread, started with the first piece of work."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_over = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function called after all that was submitted before."""
        future: Future[T] = Future()

        def perform() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - it is raised where the future is awaited
                future.set_exception(error)
            else:
                future.set_result(result)

        with self._lock:
            if self._is_over:
                raise RuntimeError(f"the thread {self._name} has been shut down")
            self._work.put(perform)
            if self._thread is None:
                self._start()
        return future

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # From Python 3.12 on no thread is started any more while the process ends: it is done here.
            self._work.put(None)
            self._run()
        else:
            self._thread = thread

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more work, and end when what was submitted is done."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                self._work.put(None)
        if wait and self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (perform := self._work.get()) is not None:
            perform()

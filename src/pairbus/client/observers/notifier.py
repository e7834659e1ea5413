"""Calls the application's callback: on a thread of its own, never on the loop, in order, once a change."""

from __future__ import annotations

import inspect
import logging
import queue
import threading
from collections.abc import Callable
from contextvars import ContextVar

from pairbus.errors import ConfigurationError
from pairbus.options import StateChange

log = logging.getLogger(__name__)
# Set on the thread of a callback, and so in the context of all that the callback has done elsewhere.
_caller: ContextVar[Notifier | None] = ContextVar("pairbus_notifier", default=None)


def check_callback(callback: Callable[[StateChange], object] | None) -> None:
    """Refuse what cannot be called, or would be called without anything coming of it."""
    if callback is None:
        return
    if not callable(callback):
        raise ConfigurationError(f"on_state_change must be a function, and {callback!r} is none")
    if any(map(inspect.iscoroutinefunction, (callback, type(callback).__call__))):
        raise ConfigurationError(
            "on_state_change is called on a thread of its own, where nobody awaits a coroutine function. "
            "Give a plain one, which hands it to a loop: asyncio.run_coroutine_threadsafe(tell(change), loop)"
        )


class Notifier:
    """Hands changes of state to a callback. The thread is started with the first change."""

    def __init__(self, callback: Callable[[StateChange], object] | None) -> None:
        self._callback = callback
        self._changes: queue.SimpleQueue[StateChange | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        """Whether anything has been told."""
        return self._thread is not None

    @property
    def is_calling(self) -> bool:
        """Whether the callback is behind this, be it by way of an event loop: then nobody can wait for it."""
        return _caller.get() is self

    def tell(self, change: StateChange) -> None:
        """Have the callback called with this change, soon."""
        if self._callback is None:
            return
        if self._thread is None and not self._start():
            self._call(change)
            return
        self._changes.put(change)

    def _start(self) -> bool:
        thread = threading.Thread(target=self._run, name="pairbus-state-changes", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False  # from Python 3.12 on no thread is started any more while the process ends
        self._thread = thread
        return True

    def close(self, timeout: float) -> None:
        """Let the callback have what was told before, but do not wait longer than this."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._changes.put(None)
            self._thread.join(timeout)

    def _run(self) -> None:
        _caller.set(self)
        while (change := self._changes.get()) is not None:
            self._call(change)

    def _call(self, change: StateChange) -> None:
        assert self._callback is not None
        try:
            self._callback(change)
        except BaseException:  # also an exit, which ends no process from here: the next change is told, too
            log.exception("on_state_change failed for %s", change)

"""What one task waits for, once: it goes on in the very turn of the event loop that tells.

A future of asyncio has its task called in the next turn. For whoever waits for one thing after another, that
turn, with its look at all sockets, costs as much as what is waited for. So a promise calls its task by
itself, where nobody else's task is running; else it does what a future does.

To a task it is a future: asyncio asks for the methods below and the mark, and for nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class Promise:
    """Awaited by one task. What becomes of it sets `_is_done`, and has the task woken."""

    __slots__ = ("_asyncio_future_blocking", "_call", "_context", "_is_done", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self.loop = loop
        self._is_done = False
        self._call: Callable[[Any], object] | None = None
        self._context: Context  # of that call

    def __await__(self) -> Generator[Promise, None, None]:
        if self._is_done:
            self.result()
            return
        self._asyncio_future_blocking = True
        yield self  # a task asks for the result before it goes on, and raises what that raises

    def done(self) -> bool:
        """Whether it is there, or was given up."""
        return self._is_done

    def wake(self) -> None:
        """Let the task go on here and now; no other may be running."""
        call, self._call = self._call, None
        if call is not None:
            self._context.run(call, self)

    def wake_later(self) -> None:
        """Let the task go on in the next turn."""
        call, self._call = self._call, None
        if call is not None:
            self.loop.call_soon(call, self, context=self._context)

    # -- for the task

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.loop

    def add_done_callback(self, call: Callable[[Any], object], *, context: Context) -> None:
        self._call, self._context = call, context
        if self._is_done:
            self.wake_later()

    def cancel(self, msg: Any = None) -> bool:
        """The task is cancelled: it does not wait any more."""
        if self._is_done:
            return False
        self._is_done = True
        self.wake_later()
        return True

    def result(self) -> None:
        """Raises, where it was not kept."""
        raise asyncio.CancelledError


def wake_all(promises: deque[Any], loop: asyncio.AbstractEventLoop) -> None:
    """Let all go on who wait for these, in their order; called by the loop."""
    is_free = asyncio.current_task(loop) is None  # or somebody runs the loop from within a task
    try:
        while promises and is_free:
            promises.popleft().wake()
    finally:  # also if one of them ends the program
        while promises:
            promises.popleft().wake_later()

"""What a single send waits for: it goes on in the very turn of the event loop in which its answer is read.

A future of asyncio has its task called in the next turn. For a send that waits for nothing else, that turn,
with its look at all sockets, costs as much as the message. So an answer calls its task by itself, when all
that was read has been handled and nobody else's task is running; else it does what a future does.

To a task it is a future: asyncio asks for the five methods below and the mark, and for nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class SendAnswer:
    """Awaited by one task, once. `wake_soon` is told when it is there and somebody waits for it."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_call",
        "_context",
        "_is_cancelled",
        "_is_done",
        "_loop",
        "_wake",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, wake_soon: Callable[[SendAnswer], None]) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._wake = wake_soon
        self._is_done = self._is_cancelled = False
        self._call: Callable[[SendAnswer], object] | None = None
        self._context: Context | None = None

    def __await__(self) -> Generator[SendAnswer, None, None]:
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        self.result()

    def done(self) -> bool:
        """Whether it is there, or was given up."""
        return self._is_done

    def set_result(self, result: None) -> None:
        """It is there."""
        self._is_done = True
        if self._call is not None:
            self._wake(self)

    def wake(self) -> None:
        """Let the task go on here and now; no other may be running."""
        call, self._call = self._call, None
        if call is not None and self._context is not None:
            self._context.run(call, self)

    def wake_later(self) -> None:
        """Let the task go on in the next turn."""
        call, self._call = self._call, None
        if call is not None:
            self._loop.call_soon(call, self, context=self._context)

    # -- for the task

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, call: Callable[[SendAnswer], object], *, context: Context) -> None:
        self._call, self._context = call, context
        if self._is_done:
            self.wake_later()

    def cancel(self, msg: Any = None) -> bool:
        """The task is cancelled: it does not wait any more."""
        if self._is_done:
            return False
        self._is_done = self._is_cancelled = True
        self.wake_later()
        return True

    def result(self) -> None:
        if self._is_cancelled:
            raise asyncio.CancelledError

"""What a single send waits for: it goes on in the very turn of the event loop in which its answer is read.

A future of asyncio has its task called in the next turn. For a send that waits for nothing else, that turn,
with its look at all sockets, costs as much as the message. So an answer calls its task by itself, when all
that was read has been handled and nobody else's task is running; else it does what a future does.

To a task it is a future: asyncio asks for the five methods below and the mark, and for nothing else. To a
link it is a wave of one message. It is both, so that a message needs no more objects than this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Protocol

from pairbus.pairing.failures import Fate

from .errors import TransportError


class Postman(Protocol):
    """Whoever sends the message and reads the answer."""

    loop: asyncio.AbstractEventLoop

    def wake_soon(self, answer: SendAnswer) -> None:
        """It is there, and somebody waits for it."""

    def give_up_one(self, answer: SendAnswer) -> None:
        """Nobody waits for it any more."""


class SendAnswer:
    """Awaited by one task, once."""

    __slots__ = (
        "_asyncio_future_blocking",
        "_call",
        "_context",
        "_is_done",
        "error",
        "fate",
        "postman",
    )

    def __init__(self, postman: Postman) -> None:
        self._asyncio_future_blocking = False
        self.postman = postman
        self._is_done = False
        self._call: Callable[[SendAnswer], object] | None = None
        self._context: Context  # of that call
        #: None being success; and what a bill sees of it.
        self.error: TransportError | None = None
        self.fate: Fate = "unsent"

    def __await__(self) -> Generator[SendAnswer, None, None]:
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
            self.postman.loop.call_soon(call, self, context=self._context)

    # -- for the link

    def leave(self, index: int) -> None:
        """It is on its way."""
        self.fate = "unknown"

    def conclude(self, index: int, fate: Fate | None, error: TransportError | None) -> None:
        """It is there; `fate` is None where that has not changed."""
        if self._is_done:
            return
        self._is_done = True
        self.error = error
        if fate is not None:
            self.fate = fate
        if self._call is not None:
            self.postman.wake_soon(self)

    # -- for the task

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.postman.loop

    def add_done_callback(self, call: Callable[[SendAnswer], object], *, context: Context) -> None:
        self._call, self._context = call, context
        if self._is_done:
            self.wake_later()

    def cancel(self, msg: Any = None) -> bool:
        """The task is cancelled: it does not wait any more, and nothing more is heard of the message."""
        if self._is_done:
            return False
        self._is_done = True
        self.postman.give_up_one(self)
        self.wake_later()
        return True

    def result(self) -> None:
        """Raises, where the message was not taken."""
        if self.fate == "taken":
            return
        if self.error is not None:
            raise self.failure(self.error)
        raise asyncio.CancelledError

    def failure(self, error: TransportError) -> Exception:
        """What is raised in the task."""
        return error

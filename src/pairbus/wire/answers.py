"""What a single send waits for: it goes on in the very turn of the event loop in which its answer is read.

To its task an answer is a promise, to a link a wave of one message. It is both, so that a message needs no
more objects than this one.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from pairbus.pairing.failures import Fate
from pairbus.plumbing.promises import Promise

from .errors import TransportError


class Postman(Protocol):
    """Whoever sends the message and reads the answer."""

    loop: asyncio.AbstractEventLoop

    def wake_soon(self, answer: SendAnswer) -> None:
        """It is there, and somebody waits for it."""

    def give_up_one(self, answer: SendAnswer) -> None:
        """Nobody waits for it any more."""


class SendAnswer(Promise):
    """Awaited by one task, once."""

    __slots__ = ("error", "fate", "postman")

    def __init__(self, postman: Postman) -> None:
        Promise.__init__(self, postman.loop)
        self.postman = postman
        #: None being success; and what a bill sees of it.
        self.error: TransportError | None = None
        self.fate: Fate = "unsent"

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

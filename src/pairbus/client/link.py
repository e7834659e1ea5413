"""One SDK sender behind a FIFO, with a deadline that holds.

Theory of operation
1. SDK senders are not safe for several callers at once, so that one call at a time is made on each; the
   others wait in order.
2. A call of the SDK runs in a task of its own (in the context of its caller, whose trace it carries). Whoever
   waits for it can therefore stop waiting at any moment: when its time is over, when the failover abandons
   it, when it is cancelled. What the SDK then does with the cancellation, and how long that takes, concerns
   nobody.
3. A sender whose call was given up is in an unknown state. It is buried (closed in the background, within a
   limit) and the next call opens a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from azure.core.exceptions import AzureError

from .observer import Outcome
from .timers import Timers

__all__ = ["Attempt", "Ending", "Graveyard", "Operation", "Result", "SdkSender", "SendLink"]

log = logging.getLogger("pairbus.client")
# How long an SDK sender may take to close; a silent peer makes it wait for an answer.
CLOSE_LIMIT = 5.0


class SdkSender(Protocol):
    """What is used of the SDK's sender."""

    async def send_messages(self, message: Any, *, timeout: float | None = None) -> None: ...
    async def schedule_messages(self, messages: Any, schedule_time_utc: Any) -> list[int]: ...
    async def cancel_scheduled_messages(self, sequence_numbers: Any) -> None: ...
    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> Any: ...
    async def __aenter__(self) -> Any: ...
    async def close(self) -> None: ...


Operation = Callable[[SdkSender], Coroutine[Any, Any, Any]]


class Ending(Enum):
    """How an attempt ended."""

    DONE = "done"
    FAILED = "failed"
    OUT_OF_TIME = "out of time"
    ABANDONED = "abandoned"
    TURN = "it is its turn"


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt ended, with what the SDK gave or raised. `on_wire`: it had its turn."""

    ending: Ending
    value: Any = None
    error: BaseException | None = None
    on_wire: bool = True

    @property
    def outcome(self) -> Outcome:
        """What is known of it."""
        if self.ending is Ending.DONE:
            return "ok"
        return "failed" if self.error is not None else "unknown"


class Attempt:
    """One try to have something done; it can be ended from outside."""

    __slots__ = ("_waiter", "is_abandoned")

    def __init__(self) -> None:
        self._waiter: asyncio.Future[Ending] | None = None
        self.is_abandoned = False

    def end(self, ending: Ending) -> bool:
        """End the waiting, if it has not ended already."""
        waiter = self._waiter
        if waiter is None or waiter.done():
            return False
        waiter.set_result(ending)
        return True

    def abandon(self) -> None:
        """A failover has overtaken this attempt."""
        self.is_abandoned = True
        self.end(Ending.ABANDONED)

    def expire(self) -> None:
        """Its time is over."""
        self.end(Ending.OUT_OF_TIME)

    def finish(self, task: asyncio.Task[Any]) -> None:
        """The SDK has answered."""
        self.end(Ending.DONE)

    def waiter(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Ending]:
        """What to await until somebody ends it."""
        self._waiter = loop.create_future()
        return self._waiter


class Graveyard:
    """Closes what nobody uses any more, in the background and within a limit."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def bury(self, sender: SdkSender, *, after: asyncio.Task[Any] | None = None) -> None:
        """Close a sender, once the call that still runs on it has been cancelled."""
        task = asyncio.get_running_loop().create_task(self._close(sender, after))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self, sender: SdkSender, after: asyncio.Task[Any] | None) -> None:
        try:
            async with asyncio.timeout(CLOSE_LIMIT):
                if after is not None:
                    after.cancel()
                    await asyncio.wait({after})
                await sender.close()
        except TimeoutError:
            log.info("a link did not close within %g s and was dropped", CLOSE_LIMIT)
        except (OSError, AzureError, ValueError) as error:
            # It was given up because it did not work; that it does not close either is no news.
            log.info("a link that was given up did not close: %s", error)

    async def wait(self, seconds: float) -> None:
        """Wait until all is closed, or the time is over; then the rest is cancelled."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=seconds)
            for task in late:
                task.cancel()


class SendLink:
    """A FIFO in front of one SDK sender."""

    def __init__(self, open_sender: Callable[[], SdkSender], *, graveyard: Graveyard, timers: Timers) -> None:
        self._open_sender = open_sender
        self._graveyard = graveyard
        self._timers = timers
        self._sender: SdkSender | None = None
        self._busy = False
        self._waiting: deque[Attempt] = deque()
        self._loop = asyncio.get_running_loop()
        #: When the present sender last did what it was asked to; None for one that has done nothing yet.
        self.last_success: float | None = None

    @property
    def length(self) -> int:
        """How many wait or are at it."""
        return len(self._waiting) + self._busy

    async def run(
        self,
        attempt: Attempt,
        operation: Operation,
        *,
        limit: float,
        deadline: float | None,
    ) -> Result:
        """Wait for the turn, then do `operation` for at most `limit` seconds; all of it before `deadline`."""
        if self._busy:
            ending = await self._wait_turn(attempt, deadline)
            if ending is not Ending.TURN:
                return Result(ending, on_wire=False)
        self._busy = True
        try:
            return await self._perform(attempt, operation, limit, deadline)
        finally:
            self._pass_turn()

    def discard(self) -> None:
        """Use a new sender from now on."""
        if self._sender is not None:
            self._graveyard.bury(self._sender)
            self._forget_sender()

    async def close(self) -> None:
        """Close the sender at once; who still waits is abandoned."""
        while self._waiting:
            self._waiting.popleft().abandon()
        self.discard()

    async def _wait_turn(self, attempt: Attempt, deadline: float | None) -> Ending:
        waiter = attempt.waiter(self._loop)
        self._waiting.append(attempt)
        timer = self._expire_at(attempt, deadline)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result() is Ending.TURN:
                self._pass_turn()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    async def _perform(
        self,
        attempt: Attempt,
        operation: Operation,
        limit: float,
        deadline: float | None,
    ) -> Result:
        if attempt.is_abandoned:  # between being given its turn and taking it
            return Result(Ending.ABANDONED, on_wire=False)
        if self._sender is None:
            self._sender = self._open_sender()
        task = self._loop.create_task(operation(self._sender))
        waiter = attempt.waiter(self._loop)
        task.add_done_callback(attempt.finish)
        ends = self._timers.now() + limit
        timer = self._expire_at(attempt, ends if deadline is None else min(ends, deadline))
        try:
            ending = await waiter
        except asyncio.CancelledError:
            self._give_up(task)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if ending is not Ending.DONE:
            self._give_up(task)
            return Result(ending)
        return self._read(task)

    def _read(self, task: asyncio.Task[Any]) -> Result:
        if task.cancelled():
            return Result(Ending.FAILED, error=ConnectionAbortedError("the SDK cancelled its own call"))
        error = task.exception()
        if error is not None:
            return Result(Ending.FAILED, error=error)
        self.last_success = self._timers.now()
        return Result(Ending.DONE, value=task.result())

    def _give_up(self, task: asyncio.Task[Any]) -> None:
        """Nobody waits for this call any more, and nobody knows what it has done to its sender."""
        task.cancel()
        task.add_done_callback(_look_away)
        if self._sender is not None:
            self._graveyard.bury(self._sender, after=task)
            self._forget_sender()

    def _forget_sender(self) -> None:
        self._sender = None
        self.last_success = None

    def _pass_turn(self) -> None:
        while self._waiting:
            if self._waiting.popleft().end(Ending.TURN):
                return
        self._busy = False

    def _expire_at(self, attempt: Attempt, when: float | None) -> Any:
        if when is None:
            return None
        return self._timers.call_at(when, attempt.expire)


def _look_away(task: asyncio.Task[Any]) -> None:
    """Take note of the outcome of a call that was given up, so that asyncio does not complain of it."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()

"""A caller's place in a line: what it waits for, and how it is called away from that."""

import asyncio
from collections.abc import Awaitable
from enum import Enum
from typing import Any, Final

from pairbus.pairing.failures import Fate
from pairbus.sdk.failures import describe
from pairbus.timers import Timers


class Ending(Enum):
    """How a wait or a call ended."""

    TURN = "it is its turn"
    ANSWERED = "the SDK has answered"
    DONE = "done"
    FAILED = "failed"
    OUT_OF_TIME = "out of time"
    ABANDONED = "abandoned"
    RESTED = "the rest is over"


_DONE: Final = Ending.DONE  # see `link.py`


class Ticket:
    """A caller's place in the line. It waits for one thing at a time, and can be called away from that.

    It waits either for a future, or in place: inside a call that its own task makes. From a future it is
    called away by a result; out of a call by cancelling the task, which is undone when the call is left, as
    `asyncio.timeout` does.
    """

    __slots__ = (
        "_called_away",
        "_cancelling",
        "_ending",
        "_task",
        "_waiter",
        "called_at",
        "error",
        "failures",
        "is_abandoned",
        "is_sent",
        "sender",
        "unknown",
        "value",
        "worked_at",
    )

    def __init__(self) -> None:
        self._waiter: asyncio.Future[Ending] | None = None
        # Its own, while it waits in place; the next three are set then.
        self._task: asyncio.Task[Any] | None = None
        self._ending: Ending | None
        self._called_away: int
        self._cancelling: int
        self.is_abandoned = False
        self.failures = 0
        #: Calls that were repeated at once though they may have been done; whoever tells of them resets it.
        self.unknown = 0
        #: Whether the last call has come to more than the opening of a link.
        self.is_sent = False
        #: What the last call was made on, if it came to that.
        self.sender: Any = None
        #: When that had last done what it was asked to, before the call.
        self.worked_at: float | None = None
        #: When the last call began; None if it has not come to a call since the ticket joined the line.
        self.called_at: float | None = None
        #: What the SDK gave or raised.
        self.value: Any = None
        self.error: BaseException | None = None

    def begin(self) -> None:
        """Join a line."""
        self.is_abandoned = False
        self.called_at = None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for somebody to end it."""
        return self._waiter is not None and not self._waiter.done()

    # -- being called away

    def end(self, ending: Ending) -> bool:
        """End what it waits for, if it waits. False if it does not."""
        if self._task is not None:
            if self._ending is None:
                self._ending = ending
            self._called_away += 1
            self._task.cancel()
            return True
        waiter = self._waiter
        if waiter is None or waiter.done():
            return False
        waiter.set_result(ending)
        return True

    def abandon(self) -> None:
        """A failover has overtaken it, or the client is being closed."""
        self.is_abandoned = True
        self.end(Ending.ABANDONED)

    def expire(self) -> None:
        """Its time is over."""
        self.end(Ending.OUT_OF_TIME)

    # -- waiting

    def waiter(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Ending]:
        """What to await until somebody ends it."""
        self._waiter = waiter = loop.create_future()
        return waiter

    def enter(self, sender: Any, now: float, worked_at: float | None) -> None:
        """A call begins. If there is a sender for it already, wait in place from now on; `worked_at` is when
        that last did what it was asked to.
        """
        self.called_at = now
        self.sender = sender
        self.worked_at = worked_at
        self.is_sent = sender is not None
        if sender is None:
            return
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._ending = None
        self._called_away = 0
        # One that was asked for in this very step is yet to come out of the call.
        self._cancelling = task.cancelling() - getattr(task, "_must_cancel", False)

    def vacate(self) -> Ending | None:
        """Wait in place no more. Why it was called away, if it was; its task is as it was before."""
        task, self._task = self._task, None
        if self._called_away and task is not None:
            for _ in range(self._called_away):
                task.uncancel()
        return self._ending

    @property
    def is_cancelled(self) -> bool:
        """Out of a call: whether somebody has cancelled its task, since it began, who is none of ours."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > self._cancelling


async def in_time(timers: Timers, ends: float, work: Awaitable[object]) -> bool:
    """Wait for something that goes on without us, until then at most; whether it has come to its end."""
    ticket = Ticket()
    ticket.enter(work, timers.now(), None)
    timer = timers.call_at(ends, ticket.expire)
    try:
        try:
            await work
        finally:
            timer.cancel()
            reason = ticket.vacate()
    except asyncio.CancelledError:
        if reason is None or ticket.is_cancelled:
            raise
    return reason is None


def ends_caller(error: BaseException) -> bool:
    """Whether it ends the caller or the program, and not the call. Who outlives its loop is left alone."""
    return not isinstance(error, Exception | GeneratorExit)


def fate_of(ending: Ending | None, ticket: Ticket) -> Fate:
    """What became of a call that was made, as a bill sees it. None for a call that was cancelled."""
    if ending is _DONE:
        return "taken"
    is_told = ticket.error is not None and ending is Ending.FAILED
    fate: Fate = describe(ticket.error).fate if is_told and ticket.error is not None else "unknown"
    return "unsent" if fate == "unknown" and not ticket.is_sent else fate

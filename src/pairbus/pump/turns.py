"""Whose turn it is to begin: of many queues that are drained, some at a time.

1. A queue begins when it has its *turn*. So many have one at a time, and none gets one while more than enough
   messages are in hand. What a thousand queues hold would else lie in memory at once, in a thousand small
   pieces, long before it can be sent.
2. A turn ends when it is known how the queue fares: it has no more, it is long, it cannot be read, or it has
   to wait. What is in hand then is sent and completed beside the next turns, and who is long goes on.
3. Nobody waits for those whose turn does not end, nor for a path that takes nothing: now and then one more
   queue begins, whatever the others do.
"""

import asyncio
from collections import deque

from .transport import BacklogSource

_TURNS = 32
# A queue that has given so many is long.
_LONG = 1000
# Messages in hand of all queues with which no queue begins.
_ENOUGH = 5000
_LONGEST_PAUSE = 0.1


class Turns:
    """The turns of all queues of a pump."""

    def __init__(self, *, most: int = _TURNS, enough: int = _ENOUGH, pause: float = _LONGEST_PAUSE) -> None:
        """One more queue begins each `pause` seconds in any case."""
        self._most = most
        self._enough = enough
        self._pause = pause
        self._is_open = False
        self._inside = 0
        self._in_hand = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self) -> None:
        """Wait for a turn."""
        if not self._waiting and self._is_free:
            self._inside += 1
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if self._timer is None:
            self._timer = loop.call_later(self._pause, self._go_on)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had just been given
                self.leave()
            raise

    def leave(self) -> None:
        """A turn has ended."""
        self._inside -= 1
        self._admit()

    def note_in_hand(self, messages: int) -> None:
        """All queues have so many messages in hand."""
        self._in_hand = messages
        if self._waiting:
            self._admit()

    def open(self) -> None:
        """Let all in, from now on: a queue does not say when it has no more, or all are to end."""
        self._is_open = True
        self._admit()

    @property
    def _is_free(self) -> bool:
        return self._is_open or (self._inside < self._most and self._in_hand < self._enough)

    def _admit(self) -> None:
        while self._waiting and self._is_free:
            self._admit_one()
        if not self._waiting and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _admit_one(self) -> None:
        turn = self._waiting.popleft()
        if not turn.done():  # its queue was called off
            self._inside += 1
            turn.set_result(None)

    def _go_on(self) -> None:
        """Rule 3."""
        self._timer = None
        if self._waiting:
            self._admit_one()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._go_on)


class Turn:
    """The turn of one queue."""

    def __init__(self, turns: Turns, source: BacklogSource) -> None:
        self._of = turns
        self._source = source
        self._is_on = False
        self._came = 0

    async def take(self) -> None:
        """Wait for it; not where a queue does not say when it has no more, since each then waits for that."""
        if self._source.is_told:
            await self._of.enter()
            self._is_on = True

    def note(self, messages: int) -> None:
        """So many have come."""
        self._came += messages
        if self._came > _LONG:
            self.end()

    def end(self) -> None:
        """It is known how the queue fares."""
        if self._is_on:
            self._is_on = False
            self._of.leave()
            if not self._source.is_told:
                self._of.open()

"""When a connection has to say that it is alive, or is over since the other side has not said so in time.

Both concern the socket, so that their time is the machine's, not the broker's clock, which a test may turn.
"""

import asyncio
import math
import time
from collections.abc import Callable

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import ProtocolEvent


class Heartbeat:
    """The timer of one connection."""

    __slots__ = ("_at", "_machine", "_tell", "_timer")

    def __init__(self, machine: Connection, tell: Callable[[list[ProtocolEvent]], None]) -> None:
        """`tell` is told what has come of it."""
        self._machine = machine
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf

    def arm(self) -> None:
        """Come back for the next heartbeat or time-out. Both mostly move away: a timer may come too early."""
        due = self._machine.next_deadline
        if due is not None and due < self._at:
            self.stop()
            self._at = due
            wait = max(0.0, due - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._beat)

    def stop(self) -> None:
        """Come back no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self._timer, self._at = None, math.inf
        self._tell(self._machine.tick(time.monotonic()))

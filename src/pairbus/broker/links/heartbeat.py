"""When a connection has to say that it is alive, or is over since the other side has not said so in time.

Both concern the socket, so that their time is the machine's, not the broker's clock, which a test may turn.
"""

import asyncio
import math
import time
from collections.abc import Callable
from enum import Enum

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import ProtocolEvent


class Heartbeat:
    """The timer of one connection."""

    __slots__ = ("_at", "_machine", "_state", "_tell", "_timer")

    def __init__(self, machine: Connection, tell: Callable[[list[ProtocolEvent]], None]) -> None:
        """`tell` is told what has come of it."""
        self._machine = machine
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf
        # That of the machine when it was last asked.
        self._state: Enum | None = None

    def arm(self) -> None:
        """Come back for the next heartbeat or time-out. While the machine's state stays as it is, both only
        move away: a timer may come too early, and the machine is not asked after every turn.
        """
        if self._machine.state is self._state:
            return
        self._state = self._machine.state
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
        self._timer, self._at, self._state = None, math.inf, None
        self._tell(self._machine.tick(time.monotonic()))

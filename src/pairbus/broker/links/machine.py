"""The protocol machine of a client's connection, as a namespace sets it up, keeps it alive and ends it.

Signs of life concern the socket, so that their time is the machine's, not the broker's clock, which a test
may turn.
"""

import asyncio
import math
import time
from collections.abc import Callable
from enum import Enum

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import ProtocolEvent
from pairbus.amqp.limits import CodecLimits
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import Target
from pairbus.amqp.types import Symbol, UInt
from pairbus.words import CREDITS

# Azure closes a connection on which nothing was heard for four minutes.
IDLE_TIMEOUT = 240.0
_MAX_FRAME_SIZE = 65536


def make_machine(namespace: str, limits: CodecLimits, *, credits: int | None, now: float) -> Connection:
    """A new one, for a peer that nobody knows yet; `now` is monotonic."""
    return Connection(
        server=True,
        container_id=namespace,
        # The npm client of a connection string with a signature instead of a key does without SASL. Such a
        # peer may do no more than one that came as ANONYMOUS: nothing before it has put a token.
        sasl_optional=True,
        max_frame_size=_MAX_FRAME_SIZE,
        idle_timeout=IDLE_TIMEOUT,
        limits=limits,
        properties=None if credits is None else {Symbol(CREDITS): UInt(credits)},
        trusted=False,
        now=now,
    )


def target_of(link: Link) -> str | None:
    """Where the client's end of a link is."""
    target = link.remote_attach.target if link.remote_attach else None
    return target.address if isinstance(target, Target) else None


class Heartbeat:
    """The timer of one connection."""

    __slots__ = ("_at", "_is_unheard", "_machine", "_state", "_tell", "_timer")

    def __init__(
        self,
        machine: Connection,
        tell: Callable[[list[ProtocolEvent]], None],
        *,
        is_unheard: Callable[[], bool],
    ) -> None:
        """`tell` is told what has come of it. `is_unheard`: what the client says waits, so it is not idle."""
        self._machine = machine
        self._is_unheard = is_unheard
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
        now = time.monotonic()
        if self._is_unheard():
            self._machine.note_sign_of_life(now)
        self._tell(self._machine.tick(now))


class Clog:
    """The socket of one connection takes no bytes: looks, after a while, whether any have left since."""

    __slots__ = ("_cut", "_later", "_number")

    def __init__(self, later: Callable[[float, Callable[[], None]], None], cut: Callable[[], None]) -> None:
        """`cut` is called when none have."""
        self._later = later
        self._cut = cut
        self._number = 0

    def begin(self, transport: asyncio.WriteTransport, patience: float) -> None:
        """It takes none from now on."""
        self._number += 1
        self._await(transport, patience, self._number)

    def end(self) -> None:
        """It takes bytes again, or is gone."""
        self._number += 1

    def _await(self, transport: asyncio.WriteTransport, patience: float, number: int) -> None:
        waiting = transport.get_write_buffer_size()

        def look() -> None:
            if self._number != number:
                return
            if transport.get_write_buffer_size() < waiting:
                self._await(transport, patience, number)
            else:
                self._cut()

        self._later(patience, look)


# Seconds that a client has to answer our close before the socket goes, and what its answer begins with.
CLOSE_WAIT = 1.0
_CLOSE_MARK = b"\x00\x53\x18"


class Farewell:
    """Waits for the client's close, for a moment. `is_due` if it is to be waited for at all."""

    __slots__ = ("_hang_up", "_heard", "has_begun", "is_due")

    def __init__(self, hang_up: Callable[[], None]) -> None:
        self._hang_up = hang_up
        self._heard = b""
        self.is_due = False
        self.has_begun = False

    def begin(self) -> None:
        """Our close has been said."""
        if not self.has_begun:
            self.has_begun = True
            asyncio.get_running_loop().call_later(CLOSE_WAIT, self._hang_up)

    def listen(self, data: bytes) -> None:
        """Bytes have come, of which only the close counts: what was on its way is passed over."""
        self._heard = self._heard[-2:] + data
        if _CLOSE_MARK in self._heard:
            self._hang_up()

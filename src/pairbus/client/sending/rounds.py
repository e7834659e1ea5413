"""Calls on their way to the backlog, and those that travel together.

The SDK needs as long for a batch as for a message. So those who wait in line for a queue go in one transfer,
a *convoy*:

1. It is made by a task of its own, and not by one of the callers: each of them may be called away or run out
   of time, and the others hear nothing of it. Its message may have been taken, as with a call of its own.
2. Whoever has left before the transfer is written is not in it. When all have left it is given up.
3. What becomes of the transfer becomes of each message in it: taken, refused, or nobody knows.
4. What is to be sent to the same queue again goes back to the front of the line. A refusal may be for the
   sake of one message: then each goes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from azure.servicebus.amqp import AmqpAnnotatedMessage

from pairbus.client.direct.encoding import Routing, encode_to_enclose, routing_of
from pairbus.client.observers.observer import AttemptOutcome
from pairbus.sdk.failures import describe

from .link import SdkOperation
from .ticket import Ending, Ticket

_DONE: Final = Ending.DONE  # see `link.py`
# What a round may take beyond the time of one attempt.
_ROUND_REST = 5.0
# As many messages go in one transfer at most, which all have the fate of one.
_MOST = 100
# What a batch adds to a message.
_FRAME = 8

# Hears of the queue, the call, and how it ended: None if it was cancelled.
Observe = Callable[[str, Ticket, "Ending | None"], None]


class Consignment:
    """A message that goes by itself, or in a convoy, as bytes."""

    def __init__(self, native: AmqpAnnotatedMessage) -> None:
        self.native = native
        #: Once it is written.
        self.payload: bytes | None = None
        self._routing: Routing | None = None

    @property
    def routing(self) -> Routing:
        """What the service routes it by."""
        if self._routing is None:
            self._routing = routing_of(self.native)
        return self._routing

    def encode(self, limit: int) -> bytes | None:
        """Its bytes; None if the SDK has to write it. Raises what the SDK raises if it cannot be written."""
        if self.payload is None:
            self.payload = encode_to_enclose(self.native, limit)
        return self.payload


class Round(Ticket):
    """What one call wants done, which queues it has tried, and until when it may go on.

    The time runs while it has a turn, or others set out with it: waiting for that takes none of it.
    """

    __slots__ = ("_left", "convoy", "deadline", "ends", "observe", "operation", "parcel", "tried")

    def __init__(
        self,
        operation: SdkOperation,
        deadline: float | None,
        *,
        observe: Observe | None = None,
        parcel: Consignment | None = None,
    ) -> None:
        """`parcel` is what others may take along."""
        super().__init__()
        self.operation = operation
        self.deadline = deadline
        self.observe = observe
        self.parcel = parcel
        self.tried: set[str] = set()
        #: While its time runs.
        self.ends = math.inf
        self._left = math.inf
        #: That which it is in now.
        self.convoy: Convoy | None = None

    def set_out(self, now: float, send_timeout: float) -> None:
        """It has a turn: its time runs, or runs on."""
        if self.ends == math.inf:
            self.ends = now + min(self._left, send_timeout + _ROUND_REST)

    def halt(self, now: float) -> None:
        """It waits for others: its time stands still."""
        if self.ends != math.inf:
            self._left, self.ends = self.ends - now, math.inf

    def time_to_try(self, now: float, send_timeout: float) -> float:
        """How long an attempt that begins now may take, but for the caller's own time."""
        return min(send_timeout, self._left if self.ends == math.inf else self.ends - now)

    @property
    def stops_at(self) -> float:
        """The end of the round, or of the caller's time if that is earlier."""
        return self.ends if self.deadline is None else min(self.ends, self.deadline)

    def tell(self, queue: str, ending: Ending | None) -> None:
        """Tell of its last call, if it came to one, and of those that were repeated at once."""
        if self.called_at is None or self.observe is None:
            return
        is_sent = self.is_sent
        while self.unknown:
            self.unknown, self.is_sent = self.unknown - 1, True
            self.observe(queue, self, None)
        self.is_sent = is_sent
        self.observe(queue, self, ending)

    def leave_convoy(self, ending: Ending | None) -> None:
        """Its wait is over; if its convoy is still on the way, it is told that one has left."""
        convoy, self.convoy = self.convoy, None
        if convoy is not None:
            self._share(convoy)
            convoy.left_by(self, ending)

    def arrive(self) -> None:
        """Its convoy's call has ended, and so has its own."""
        if self.convoy is not None:
            self._share(self.convoy)
            self.convoy = None

    def _share(self, convoy: Convoy) -> None:
        self.called_at, self.is_sent = convoy.called_at, convoy.is_sent
        self.error, self.unknown = convoy.error, convoy.unknown


class Convoy(Ticket):
    """Rounds whose messages go in one transfer, and the place of that on the link."""

    __slots__ = ("_now", "_room", "_send_timeout", "limit", "rounds")

    def __init__(self, room: int, *, now: float, send_timeout: float) -> None:
        """`room` is how many bytes a batch holds."""
        super().__init__()
        #: Who is in it, in order.
        self.rounds: list[Round] = []
        self._room = room
        self._now, self._send_timeout = now, send_timeout
        #: How long the call may take.
        self.limit = 0.0

    def takes(self, ticket: Ticket) -> bool:
        """Whether the next in line comes along: an attempt of its own would take as long, and it fits."""
        if not isinstance(ticket, Round) or ticket.parcel is None or len(self.rounds) == _MOST:
            return False
        parcel = ticket.parcel
        limit = ticket.time_to_try(self._now, self._send_timeout)
        if limit <= 0.0 or (self.rounds and limit != self.limit):
            return False
        try:
            payload = None if self._is_routed_apart(parcel) else parcel.encode(self._room)
        except Exception:  # noqa: BLE001 - whatever it is, its own call raises it
            return False
        if payload is None or len(payload) + _FRAME > self._room:
            return False
        self._room -= len(payload) + _FRAME
        self.limit = limit
        self.rounds.append(ticket)
        ticket.convoy = self
        return True

    def _is_routed_apart(self, parcel: Consignment) -> bool:
        first = self.rounds[0].parcel if self.rounds else None
        return first is not None and first.routing[1:] != parcel.routing[1:]

    def left_by(self, round_: Round, ending: Ending | None) -> None:
        """Somebody is out of time, or was cancelled; rule 2."""
        self.rounds.remove(round_)
        if not self.rounds:
            self.is_abandoned = True  # also if the call has not begun
            self.end(ending or Ending.ABANDONED)

    def disband(self) -> list[Round]:
        """The call has ended: who is still in it, each with what became of it."""
        rounds, self.rounds = self.rounds, []
        for each in rounds:
            each.arrive()
        return rounds


def outcome_of(ending: Ending | None, ticket: Ticket) -> AttemptOutcome:
    """How a call to a backlog queue ended."""
    if ending is _DONE:
        return "ok"
    if not ticket.is_sent:
        return "failed"
    if ending is not Ending.FAILED or ticket.error is None:
        return "unknown"
    return "failed" if describe(ticket.error).is_outcome_known else "unknown"

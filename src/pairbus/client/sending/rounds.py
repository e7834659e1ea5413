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

import logging
import math
from collections.abc import Awaitable
from typing import Any, Final, Protocol, cast

from pairbus.client.direct.encoding import Routing, encode_envelope
from pairbus.client.observers.observer import AttemptOutcome
from pairbus.client.status import SendCounts
from pairbus.pairing.failures import Failure, FailureKind, classify
from pairbus.sdk.failures import describe
from pairbus.sdk.side import SdkSender, WrittenSender

from .calls import EntityCall
from .pinger import open_link
from .ticket import Ending, Ticket
from .wrapping import WrappedGroup, WrappedMessage, Wrapping

log = logging.getLogger(__name__)
_DONE: Final = Ending.DONE  # see `link.py`
# Of a backlog queue: waiting does not help against it.
_LASTING = (FailureKind.MISSING, FailureKind.DISABLED, FailureKind.FULL)
# What a round may take beyond the time of one attempt.
_ROUND_REST = 5.0
# As many messages go in one transfer at most, which all have the fate of one.
_MOST = 100
# What a batch adds to a message.
_FRAME = 8


class Bond:
    """The queue that the sessions of a call are bound to, since their messages wait there; None for any."""

    __slots__ = ("queue",)

    def __init__(self, queue: str | None) -> None:
        self.queue = queue

    def is_broken_by(self, failure: Failure, path: str) -> bool:
        """Whether the queue failed in a way that waiting does not help against; then any is as good."""
        if classify(failure) not in _LASTING:
            return False
        log.warning("a session of %s goes on without its order, in another queue: %s", path, failure.summary)
        self.queue = None
        return True


class Round(Ticket):
    """One call's way through the backlog queues: which it has tried, and until when it may go on. By itself
    it opens a link.

    The time runs while it has a turn, or others set out with it: waiting for that takes none of it.
    """

    __slots__ = ("_left", "bond", "convoy", "deadline", "ends", "parcel", "path", "queue", "tried")

    def __init__(
        self,
        path: str,
        deadline: float | None,
        *,
        parcel: WrappedMessage | None = None,
        bond: Bond | None = None,
    ) -> None:
        """`parcel` is what others may take along; `bond` where the order of sessions is kept."""
        Ticket.__init__(self)  # see `calls.py`
        self.path = path
        self.deadline = deadline
        self.parcel = parcel
        self.bond = bond
        self.tried: set[str] = set()
        #: Where it has set out for, with the turn, until it is heard what came of that.
        self.queue: str | None = None
        #: While its time runs.
        self.ends = math.inf
        self._left = math.inf
        #: That which it is in now.
        self.convoy: Convoy | None = None

    def transmit(self, sender: SdkSender) -> Awaitable[Any]:
        """Have the SDK do what is wanted."""
        return open_link(sender)

    def observe(self, queue: str, ending: Ending | None) -> None:
        """Hear how a call ended, or None if it was cancelled. Nobody counts links."""

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
        if self.called_at is None:
            return
        if self.unknown:
            is_sent, self.is_sent = self.is_sent, True
            for _ in range(self.unknown):
                self.observe(queue, None)
            self.unknown, self.is_sent = 0, is_sent
        self.observe(queue, ending)

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


class Carrier(Protocol):
    """Who sends shipments, and hears of them."""

    def transmit(self, wanted: Shipment, sender: SdkSender) -> Awaitable[Any]: ...
    def arrived(self, wanted: Shipment, queue: str) -> Awaitable[None] | None: ...
    def observe(self, wanted: Shipment, queue: str, ending: Ending | None) -> None: ...


class Shipment(Round):
    """Messages of a call on their way to the backlog, all that go together."""

    __slots__ = ("_carrier", "batch", "call", "counts", "messages", "unsure", "wrapping")

    def __init__(
        self,
        carrier: Carrier,
        call: EntityCall,
        wrapping: Wrapping,
        group: WrappedGroup,
        counts: SendCounts,
        bond: Bond | None = None,
    ) -> None:
        messages, batch = group
        parcel = messages[0] if wrapping.as_bytes and batch is None and len(messages) == 1 else None
        Round.__init__(self, wrapping.path, call.deadline, parcel=parcel, bond=bond)
        self._carrier = carrier
        self.call = call
        self.wrapping = wrapping
        self.messages, self.batch = messages, batch
        self.counts = counts
        #: Queues that may have taken it without a word.
        self.unsure: list[str] = []

    @property
    def payloads(self) -> list[bytes]:
        """Its messages as bytes, all of them or none."""
        return [one.payload for one in self.messages if one.payload is not None]

    def transmit(self, sender: SdkSender) -> Awaitable[Any]:
        return self._carrier.transmit(self, sender)

    def arrived(self) -> Awaitable[None] | None:
        """The SDK has sent it, to the queue for which it had set out. What is still to be waited for."""
        assert self.queue is not None
        return self._carrier.arrived(self, self.queue)

    def observe(self, queue: str, ending: Ending | None) -> None:
        self._carrier.observe(self, queue, ending)


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

    def transmit(self, sender: SdkSender) -> Awaitable[Any]:
        """Have the SDK send all that is in it."""
        parcels = [each.parcel for each in self.rounds if each.parcel is not None]
        payloads = [parcel.payload for parcel in parcels if parcel.payload is not None]
        return send_batch(sender, parcels[0].routing, payloads)

    def _is_routed_apart(self, parcel: WrappedMessage) -> bool:
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


def send_batch(sender: SdkSender, first: Routing, payloads: list[bytes]) -> Awaitable[Any]:
    """Have the SDK send a batch that is written."""
    return cast(WrittenSender, sender).send_written(encode_envelope(first, payloads), is_batch=True)


def outcome_of(ending: Ending | None, ticket: Ticket) -> AttemptOutcome:
    """How a call to a backlog queue ended."""
    if ending is _DONE:
        return "ok"
    if not ticket.is_sent:
        return "failed"
    if ending is not Ending.FAILED or ticket.error is None:
        return "unknown"
    return "failed" if describe(ticket.error).is_outcome_known else "unknown"

"""Links of a line: a sender and a receiver.

1. A *wave* is a list of transfers, or of settlements, with one future for all of them. It ends when the last
   outcome is in, or with its deadline: what was not answered then has failed as unanswered, the rest keeps
   its outcome.
2. A sender minds its credit. What is beyond it waits, in order, and leaves when a flow brings more.
3. A receiver settles in two steps: ours, then the peer's echo. Only the echo ends the wave, since only then
   is it certain that a message is gone. Runs of neighbouring deliveries are settled with one frame.
4. A link that is lost fails its waves. Messages that a receiver has already got stay in its buffer: their
   locks outlive the link.
5. A peer that detaches a link for what is in a message does not say which. If there was one on the way it was
   that; several are suspected, and are sent again one by one. What is larger than the peer
   takes is not sent at all, so that it takes no others with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Self

from pairbus import conditions
from pairbus.amqp.errors import UsageError
from pairbus.amqp.events import LinkAttached, LinkFlowed, Settled, TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.message import Properties, encode_data, encode_properties
from pairbus.amqp.performatives import (
    RECEIVER_SECOND,
    SENDER_SETTLED,
    SENDER_UNSETTLED,
    Accepted,
    DeliveryState,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
)
from pairbus.amqp.session import Session
from pairbus.pairing.failures import Fate
from pairbus.pairing.headroom import BATCH_RESERVE
from pairbus.plumbing.ranges import ranges_of

from .answers import SendAnswer
from .errors import CONNECTION_LOST, OF_A_MESSAGE, SUSPECTED, UNANSWERED, TransportError
from .line import AmqpLine
from .meter import Meter

# Microsoft's message format of a batch: an envelope whose data sections are each a whole encoded message.
BATCH_FORMAT = 0x80013700
# Whoever asks for all that there is hears of so many at once, or of what has come in so many seconds: a queue
# of a hundred messages often comes with two reads, and what is done with either takes as long as with both.
_ENOUGH, _MOMENT = 250, 0.05


class Wave:
    """Outcomes of several deliveries, and a future that is done when all are in.

    `fates` is what a bill sees: an answer tells that the peer has counted, silence does not.
    """

    __slots__ = ("errors", "fates", "future", "left")

    def __init__(self, future: asyncio.Future[None], size: int) -> None:
        self.errors: dict[int, TransportError] = {}
        self.fates: list[Fate] = ["unsent"] * size
        self.left = size
        self.future = future

    def mover(self, waves: Mapping[int, tuple[Wave | SendAnswer, int]]) -> Callable[[], bool]:
        """Tells, each time since the last time, whether the peer has come nearer to the end of this wave: it
        has answered a part of it, or of one before it. `waves` are those of the link, the oldest first.
        """
        left, oldest = self.left, next(iter(waves), None)

        def is_moving() -> bool:
            nonlocal left, oldest
            before = left, oldest
            left, oldest = self.left, next(iter(waves), None)
            if left != before[0]:
                return True
            return oldest is not None and oldest != before[1] and waves[oldest][0] is not self

        return is_moving

    def leave(self, index: int) -> None:
        """One is on its way."""
        self.fates[index] = "unknown"

    def conclude(self, index: int, fate: Fate | None, error: TransportError | None) -> None:
        """One outcome is in; `fate` is None where that has not changed."""
        if fate is not None:
            self.fates[index] = fate
        self.settle(index, error)

    def settle(self, index: int, error: TransportError | None) -> None:
        if error is not None:
            self.errors[index] = error
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(None)

    def outcomes(self) -> list[TransportError | None]:
        """The error of each, None being success; those that never left are told apart."""
        errors = self.errors
        for index in errors:
            if self.fates[index] == "unsent":
                errors[index] = errors[index].unsent()
        return [errors.get(index) for index in range(len(self.fates))]


class LinkEnd:
    """What all links share: being attached, and being lost."""

    def __init__(self, line: AmqpLine) -> None:
        self.line = line
        self.lost: TransportError | None = None
        self._attached: asyncio.Future[None] = line.loop.create_future()
        self.link: Link

    async def await_attached(self, timeout: float) -> None:
        """Wait for the peer's attach; detached again if it does not come."""
        try:
            await self.line.answer(self._attached, timeout)
        except (TransportError, asyncio.CancelledError):
            self.abandon()
            raise

    def abandon(self) -> None:
        """Detach without waiting for the answer."""
        self.link.detach()
        self.line.flush_soon()
        self.line.forget(self.link)
        self.on_lost(TransportError(CONNECTION_LOST, "the link was detached by us"))

    def on_attached(self, event: LinkAttached) -> None:
        # Null termini are a refusal, whose reason comes with the detach that follows.
        granted = event.attach.target if self.link.is_sender else event.attach.source
        if granted is not None and not self._attached.done():
            self._attached.set_result(None)

    def on_lost(self, error: TransportError) -> None:
        if self.lost is None:
            self.lost = error
        if not self._attached.done():
            self._attached.set_exception(error)
            self._attached.exception()

    def on_received(self, event: TransferReceived) -> None:
        """Senders receive nothing."""

    def on_settled(self, event: Settled) -> None:
        """Receivers of answers settle nothing in two steps."""

    def on_accepted(self, delivery_id: int) -> None:
        """Nor is anything that they send accepted."""

    def on_flowed(self, event: LinkFlowed) -> None:
        """Only senders and draining receivers care."""

    def check(self) -> None:
        """Raise if the link is lost."""
        if self.lost is not None:
            raise TransportError(self.lost.condition, self.lost.description)


class SenderLink(LinkEnd):
    """Sends, with as many transfers on the way as there is credit for."""

    def __init__(self, line: AmqpLine, address: str) -> None:
        super().__init__(line)
        self.loop = line.loop
        self.wake_soon = line.wake_soon
        self._waves: dict[int, tuple[Wave | SendAnswer, int]] = {}
        self._waiting: deque[tuple[bytes, int, Wave | SendAnswer, int]] = deque()
        self._limit = inf
        self.link = line.attach(self, partial(attach_link, sends=True, address=address))

    @classmethod
    async def open(cls, line: AmqpLine, address: str, *, timeout: float) -> SenderLink:
        """A link that is attached."""
        sender = cls(line, address)
        await sender.await_attached(timeout)
        return sender

    @property
    def max_message_size(self) -> int | None:
        """The largest message that the peer takes, if it says."""
        attach = self.link.remote_attach
        return (attach.max_message_size or None) if attach is not None else None

    async def send(
        self,
        transfers: Sequence[tuple[bytes, int]],
        *,
        timeout: float,
        on_fates: Callable[[Sequence[Fate]], None] | None = None,
    ) -> list[TransportError | None]:
        """Send payloads, each with its message format; the outcome of each, None being success."""
        if self.lost is not None:
            return [self.lost.unsent()] * len(transfers)
        future = self.line.loop.create_future()
        wave = Wave(future, len(transfers))
        self._waiting.extend((payload, form, wave, index) for index, (payload, form) in enumerate(transfers))
        self._send_waiting()
        try:
            await self.line.answer(future, timeout, is_moving=wave.mover(self._waves))
        except TransportError as error:
            self.give_up(wave, error)
        except asyncio.CancelledError:
            self.give_up(wave, TransportError(UNANSWERED, "called off"))
            raise
        finally:
            if on_fates is not None:
                on_fates(wave.fates)
        return wave.outcomes()

    def post(self, payload: bytes, wave: Wave | SendAnswer, message_format: int = 0) -> None:
        """Send one payload, as a wave that somebody else waits for; raises if the link is lost."""
        if self.lost is not None:
            self.check()
        link, waves = self.link, self._waves
        if (
            self._waiting
            or not link.is_alive
            or link.credit <= 0
            or len(payload) > self._limit
            or link.session.outbox.items
        ):
            self._waiting.append((payload, message_format, wave, 0))
            self._send_waiting()
            return
        # What the long way does with it, there being nothing to wait for.
        waves[link.send(payload, message_format=message_format)] = wave, 0
        wave.leave(0)
        if len(waves) == 1:
            self.line.flush_alone()
        else:
            self.line.flush_soon()

    def mover(self, wave: Wave) -> Callable[[], bool]:
        """See `Wave.mover`."""
        return wave.mover(self._waves)

    def _send_waiting(self) -> None:
        waiting, link, waves = self._waiting, self.link, self._waves
        room, limit = link.sendable, self._limit
        while waiting and room > 0:
            payload, message_format, wave, index = waiting.popleft()
            if len(payload) > limit and _is_too_large(payload, message_format, limit):
                wave.conclude(index, None, _too_large(len(payload), limit))
                continue
            waves[link.send(payload, message_format=message_format)] = wave, index
            wave.leave(index)
            room -= 1
            if not room:
                room = link.sendable
        if len(waves) == 1:
            self.line.flush_alone()
        else:
            self.line.flush_soon()

    def give_up(self, wave: Wave, error: TransportError) -> None:
        """Nobody waits for it any longer: what is not answered by now has failed."""
        if wave.left:
            for index in self._drop(wave):
                wave.errors[index] = error

    def give_up_one(self, answer: SendAnswer) -> None:
        """The same of a single message, of which nothing more is heard."""
        self._drop(answer)

    def _drop(self, wave: Wave | SendAnswer) -> list[int]:
        open_ones = {delivery_id: index for delivery_id, (of, index) in self._waves.items() if of is wave}
        for delivery_id in open_ones:
            del self._waves[delivery_id]
        waiting = [index for _, _, of, index in self._waiting if of is wave]
        if waiting:
            self._waiting = deque(item for item in self._waiting if item[2] is not wave)
        return [*open_ones.values(), *waiting]

    def on_attached(self, event: LinkAttached) -> None:
        super().on_attached(event)
        self._limit = self.max_message_size or inf

    def on_flowed(self, event: LinkFlowed) -> None:
        if self._waiting:
            self._send_waiting()

    def on_settled(self, event: Settled) -> None:
        error = None if type(event.state) is Accepted else _send_error(event.state)
        fate: Fate = "taken" if error is None else "refused"
        for delivery_id in event.delivery_ids:
            found = self._waves.pop(delivery_id, None)
            if found is not None:
                found[0].conclude(found[1], fate, error)
            if not event.settled:
                self.link.settle(delivery_id, event.state)

    def on_accepted(self, delivery_id: int) -> None:
        found = self._waves.pop(delivery_id, None)
        if found is not None:
            found[0].conclude(found[1], "taken", None)

    def on_lost(self, error: TransportError) -> None:
        blamed = error
        if self._attached.done():
            if error.condition == conditions.UNAUTHORIZED:
                # It was allowed when the link was attached, so that it is the token that has ended.
                blamed = error = TransportError(conditions.AUTH_FAILED, error.description)
            elif error.condition in OF_A_MESSAGE:
                # Rule 5.
                error = TransportError(SUSPECTED, f"the link was lost with several messages on it: {error}")
        super().on_lost(error)
        waves, self._waves = self._waves, {}
        waiting, self._waiting = self._waiting, deque()
        for wave, index in waves.values():
            wave.conclude(index, None, blamed if len(waves) == 1 else error)
        for _, _, wave, index in waiting:
            wave.conclude(index, None, error)


class ReceiverLink(LinkEnd):
    """Receives under peek-lock, or with `deletes` in the mode receive-and-delete."""

    def __init__(
        self,
        line: AmqpLine,
        address: str,
        meter: Meter,
        *,
        filters: dict[Any, Any] | None = None,
        properties: dict[Any, Any] | None = None,
        deletes: bool = False,
    ) -> None:
        super().__init__(line)
        self._address = address
        self._meter = meter
        self._granted = 0
        self._delivered = 0  # since then
        self._awaited = 1  # so many in the buffer are waited for; to be looked at when so many have come
        self._look_at: float = inf
        self._is_dry = False  # the last thing that was said of the queue is that there is no more
        self._unnoted: list[int] = []  # the sizes of deliveries that the meter has not heard of
        self.buffer: deque[TransferReceived] = deque()
        self._arrived: asyncio.Future[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._waves: dict[int, tuple[Wave, int]] = {}
        make = partial(
            attach_link,
            sends=False,
            address=address,
            filters=filters,
            properties=properties,
            deletes=deletes,
        )
        self.link = line.attach(self, make)

    @classmethod
    async def open(cls, line: AmqpLine, address: str, *, timeout: float, meter: Meter | None = None) -> Self:
        """A link that is attached; it has no credit yet."""
        receiver = cls(line, address, meter or Meter())
        await receiver.await_attached(timeout)
        return receiver

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Let this many messages come from now on; with `drain` what there is, and no more."""
        self._end_grant()
        self._granted, self._delivered, self._is_dry = credit, 0, False
        self.link.flow(credit, drain=drain)
        self.line.flush_soon()

    def _end_grant(self) -> None:
        """A grant that ends without a delivery is an empty receive."""
        if self._granted and not self._delivered:
            self._meter.note(self._address, "empty_receive", count=1)
        self._granted = 0

    async def arrival(self, wait: float, *, least: int = 1) -> bool:
        """Wait until so many are in the buffer, or, when some are, for a moment; whether any are. Raises
        if the link is lost meanwhile.
        """
        if len(self.buffer) >= least:
            return True
        self.check()
        self._awaited, self._look_at = least, self._delivered + 1
        self._arrived = self.line.loop.create_future()
        self.line.timer.set(self, wait)
        try:
            await self._arrived
        finally:
            self.line.timer.call_off(self)
            self._arrived = None
        if not self.buffer:
            self.check()
        return bool(self.buffer)

    def lapse(self) -> None:
        """The wait for an arrival is over, whether something came or not."""
        self._look_at = inf
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def gather(self, credit: int, timeout: float) -> bool | None:
        """Have what there is, for so much credit; whether something is in the buffer. It is not when the peer
        has said, since that was last asked, that there is no more. None if it says nothing in time.
        """
        if self.buffer and (self._delivered >= self._granted or not self.is_draining):
            return True
        if not self.is_draining:
            self.check()
            if self._is_dry:
                self._is_dry = False
                return False
            self.grant(credit, drain=True)
            self._drained = self.line.loop.create_future()
        if await self.arrival(_MOMENT if self.buffer else timeout, least=min(credit, _ENOUGH)):
            return True
        self._is_dry = False
        return None if self.is_draining else False

    @property
    def is_draining(self) -> bool:
        """Whether the peer has been asked for what there is, and has not said yet that this was all."""
        return self._drained is not None and not self._drained.done()

    async def drain(self, timeout: float) -> None:
        """Take back what credit is left; what is on its way has then arrived."""
        if self.lost is None and self.link.credit > 0:
            if not self.is_draining:
                self._drained = self.line.loop.create_future()
                self.link.flow(self.link.credit, drain=True)
                self.line.flush_soon()
            assert self._drained is not None
            await self.line.answer(self._drained, timeout)

    async def settle(
        self, ids: Sequence[int], state: DeliveryState, *, timeout: float
    ) -> dict[int, TransportError]:
        """Settle deliveries alike and wait for the echoes; those that failed, by their place in `ids`."""
        if self.lost is not None:
            return dict.fromkeys(range(len(ids)), self.lost)
        future = self.line.loop.create_future()
        wave = Wave(future, len(ids))
        for index, delivery_id in enumerate(ids):
            self._waves[delivery_id] = wave, index
            wave.fates[index] = "unknown"
        for first, last in ranges_of(ids):
            self.link.settle_range(first, last, state, settled=False)
        self.line.flush_soon()
        try:
            await self.line.answer(future, timeout, is_moving=wave.mover(self._waves))
        except TransportError as error:
            for delivery_id in ids:
                found = self._waves.pop(delivery_id, None)
                if found is not None:
                    wave.errors[found[1]] = error
        finally:
            unknown = wave.fates.count("unknown")
            self._meter.note(self._address, _kind_of(state), count=len(ids) - unknown, unknown=unknown)
        return wave.errors

    def on_received(self, event: TransferReceived) -> None:
        self.buffer.append(event)
        self._delivered += 1
        if self._meter.is_on:
            # All that one read brings is noted at once: one by one it was a twentieth of what a pump does.
            if not self._unnoted:
                self.line.loop.call_soon(self._note_deliveries)
            self._unnoted.append(len(event.payload))
        if self._delivered >= self._look_at:
            self._look()

    def _look(self) -> None:
        """Whether there is enough for those who wait, or all that was granted; if not, they wait a moment."""
        missing, left = self._awaited - len(self.buffer), self._granted - self._delivered
        if missing > 0 and left > 0:
            self._look_at = self._delivered + min(missing, left)
            self.line.timer.set(self, _MOMENT)
        else:
            self.lapse()

    def _note_deliveries(self) -> None:
        sizes, self._unnoted = self._unnoted, []
        self._meter.note_sizes(self._address, "delivery", sizes)

    def on_settled(self, event: Settled) -> None:
        error = _settle_error(event.state) if type(event.state) is Rejected else None
        for delivery_id in event.delivery_ids:
            found = self._waves.pop(delivery_id, None)
            if found is not None:
                found[0].fates[found[1]] = "taken"
                found[0].settle(found[1], error)

    def on_flowed(self, event: LinkFlowed) -> None:
        if self._drained is not None and self.link.credit <= 0 and not self._drained.done():
            self._is_dry = self._delivered < self._granted
            self._end_grant()
            self._drained.set_result(None)
            self.lapse()

    def on_lost(self, error: TransportError) -> None:
        super().on_lost(error)
        self._end_grant()
        waves, self._waves = self._waves, {}
        for wave, index in waves.values():
            wave.settle(index, error)
        self.lapse()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)


def encode_batch(payloads: Iterable[bytes], *, session_id: str | None) -> bytes:
    """Several messages as one atomic transfer; the session on the outside lets the service route it."""
    head = [encode_properties(Properties(group_id=session_id))] if session_id is not None else []
    return b"".join((*head, *map(encode_data, payloads)))


def attach_link(
    session: Session,
    name: str,
    *,
    sends: bool,
    address: str,
    mode: int = RECEIVER_SECOND,
    filters: dict[Any, Any] | None = None,
    properties: dict[Any, Any] | None = None,
    deletes: bool = False,
) -> Link:
    """Ask for a link to an address; our own end of it has the link's name."""
    source, target = (name, address) if sends else (address, name)
    try:
        return session.attach(
            name=name,
            role_sender=sends,
            source=Source(address=source, filter=filters),
            target=Target(address=target),
            snd_settle_mode=SENDER_SETTLED if deletes else SENDER_UNSETTLED,
            rcv_settle_mode=0 if sends or deletes else mode,
            properties=properties,
        )
    except UsageError as error:
        raise TransportError(conditions.NOT_ALLOWED, str(error)) from error


def _is_too_large(payload: bytes, message_format: int, limit: float) -> bool:
    """Above the limit: a batch may be, by its envelope, which is counted neither by those that fill it nor by
    the peer.
    """
    return message_format != BATCH_FORMAT or len(payload) > limit + BATCH_RESERVE


def _too_large(size: int, limit: float) -> TransportError:
    text = f"The message has {size} bytes, and the entity takes {limit:.0f} at most."
    return TransportError(conditions.MESSAGE_SIZE_EXCEEDED, text)


def _send_error(state: DeliveryState | None) -> TransportError:
    match state:
        case Rejected(error=error) if error is not None:
            return TransportError(error.condition, error.description)
        case Released() | Modified():
            return TransportError(conditions.INTERNAL_ERROR, "the peer gave the message back")
        case _:
            return TransportError(conditions.INTERNAL_ERROR, f"the peer answered {state}")


def _kind_of(state: DeliveryState) -> str:
    """What a settlement is called on a bill."""
    match state:
        case Accepted():
            return "complete"
        case Rejected():
            return "dead_letter"
        case Modified(undeliverable_here=True):
            return "defer"
        case Modified():
            return "abandon"
        case _:
            return "release"


def _settle_error(state: DeliveryState | None) -> TransportError | None:
    """The echo of a dead-lettering is a rejection without an error; with one, the settlement failed."""
    if isinstance(state, Rejected) and state.error is not None:
        return TransportError(state.error.condition, state.error.description)
    return None

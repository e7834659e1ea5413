"""The transport on our own AMQP: one line to the namespace, shared by its ends, opened again when lost."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Generic, Protocol, TypeVar

from pairbus import conditions, words
from pairbus.amqp.message import MessageSections, encode_value, scan
from pairbus.amqp.performatives import ACCEPTED, RELEASED, AmqpError, DeliveryState, Modified, Rejected
from pairbus.amqp.types import Array, Int, Symbol, UInt
from pairbus.pairing.envelope import ACCOUNTED
from pairbus.pairing.failures import Fate
from pairbus.plumbing.tasks import is_cancelled
from pairbus.wire.errors import CONNECTION_LOST, OF_A_MESSAGE, TransportError, is_denial
from pairbus.wire.line import AmqpLine, Place
from pairbus.wire.links import BATCH_FORMAT, ReceiverLink, SenderLink, encode_batch
from pairbus.wire.meter import Meter
from pairbus.wire.requests import RequestLink
from pairbus.wire.sign_in import open_line
from pairbus.wire.tokens import CredentialTokens, TokenSource

from .peeked_page import read_page
from .transport import Delivery, Peeked, Refusal, Unit
from .unwrapping import DEFERRED, SCHEDULED, read_postmark


class _Loseable(Protocol):
    """What a slot needs to know of a link."""

    @property
    def lost(self) -> TransportError | None: ...
    def abandon(self) -> None: ...


T = TypeVar("T")
L = TypeVar("L", bound=_Loseable)
_ACCOUNTED = ACCOUNTED.encode()
_DEFERRED = Modified(delivery_failed=True, undeliverable_here=True)
# Requests for many messages are cut into pieces: the answer is one message, and there is a limit for those.
FETCH_AT_ONCE = 100
SETTLE_AT_ONCE = 500
LINKS_OPENING = 64
# What is received of what was asked for before the namespace has told of its credits: they may be few.
_FIRST_OF_CREDITS = 10
# Azure detaches a link on which nothing happens for ten minutes; whether a receiver with credit is such a one
# it does not say. So a receive waits as long as it is to, and to be detached after so long is no failure.
SERVICE_LINK_IDLE = 540.0
_CLOSED = "the connection was closed by us"
# What a bill calls a settlement that is asked for by this word.
_KINDS = {"completed": "complete", "defered": "defer", "abandoned": "abandon", "suspended": "dead_letter"}


class AmqpTransport:
    """One namespace, over one line."""

    def __init__(
        self, place: Place, tokens: TokenSource, *, timeout: float = 10.0, container_id: str = "pairbus-pump"
    ) -> None:
        """`timeout` is the deadline of a single answer. Does no I/O."""
        self.timeout = timeout
        self.longest_wait = math.inf
        self.meter = Meter()
        self.on_credits: Callable[[float], None] = lambda credits: None
        self.has_credits = False  # as far as the namespace has told
        self._place = place
        self._tokens = tokens
        self._container_id = container_id
        self._connecting: asyncio.Task[AmqpLine] | None = None
        self._is_closed = False
        #: Links that are opened at a time: a thousand at once would pass their own deadlines.
        self.opening = asyncio.Semaphore(LINKS_OPENING)

    def __repr__(self) -> str:
        return f"<AmqpTransport {self._place.host}:{self._place.port}>"

    def source(self, queue: str) -> AmqpSource:
        return AmqpSource(self, queue)

    def destination(self, path: str) -> AmqpDestination:
        return AmqpDestination(self, path)

    async def close(self) -> None:
        self._is_closed = True  # whoever still has it must not open a line that nobody closes
        task, self._connecting = self._connecting, None
        if task is not None:
            if not task.done():
                task.cancel()
            (found,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(found, AmqpLine):
                await found.close()
        if isinstance(self._tokens, CredentialTokens):
            await self._tokens.close()

    async def open_link(
        self, path: str, attach: Callable[[AmqpLine], Awaitable[T]], *, widely: bool = False
    ) -> T:
        """A link to an entity, over the line, with a token for it; `widely`: or for the whole namespace."""
        async with self.opening:
            line = await self._join()
            if await line.authorize(path, widely=widely):
                try:
                    return await attach(line)
                except TransportError as error:
                    if not is_denial(error):
                        raise
                line.distrust(path)
                await line.authorize(path)
            return await attach(line)

    async def line(self, path: str) -> AmqpLine:
        """The line, open, with a token for an entity put."""
        line = await self._join()
        await line.authorize(path)
        return line

    async def _join(self) -> AmqpLine:
        task = self._connecting
        if task is None or (task.done() and _is_over(task)):
            if self._is_closed:
                raise TransportError(CONNECTION_LOST, _CLOSED)
            task = self._connecting = asyncio.get_running_loop().create_task(self._connect())
        if task.done():
            return task.result()
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise TransportError(CONNECTION_LOST, _CLOSED) from None

    def distrust(self, path: str) -> None:
        """Have the token for an entity put anew before a link to it is opened again."""
        task = self._connecting
        if task is not None and task.done() and not _is_over(task):
            task.result().distrust(path)

    async def _connect(self) -> AmqpLine:
        line = await open_line(
            self._place,
            self._tokens,
            timeout=self.timeout,
            container_id=self._container_id,
        )
        if isinstance(credits := line.welcome.get(words.CREDITS), int):
            self.has_credits = True
            self.on_credits(credits)
        return line


def _is_over(task: asyncio.Task[AmqpLine]) -> bool:
    return task.cancelled() or task.exception() is not None or task.result().lost is not None


class _Slot(Generic[L]):
    """A link that is opened when needed, by the first who needs it, for all and in its own task."""

    def __init__(
        self, open_link: Callable[[], Coroutine[Any, Any, L]], on_denied: Callable[[], None]
    ) -> None:
        """`on_denied` is called before it is opened again, if it was lost or refused for want of a claim."""
        self._open = open_link
        self._on_denied = on_denied
        self._is_opening = False
        self._waiting: list[asyncio.Future[None]] = []
        self._called = 0  # of those who waited, who go on in this turn of the event loop or the next
        self._failure: TransportError | None = None
        self.present: L | None = None  # if it was opened, be it lost or not

    async def get(self) -> L:
        """The link, open. Who comes when it has just opened does not overtake those who waited."""
        if self._called:
            await asyncio.sleep(0)
        while self._is_opening:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            finally:
                self._called -= not turn.cancelled()
        link = self.present
        if link is not None and link.lost is None:
            return link
        if is_denial(self._failure if link is None else link.lost):
            self._on_denied()
        self._is_opening, self.present, self._failure = True, None, None
        try:
            link = self.present = await self._open()
            return link
        except TransportError as error:
            self._failure = error
            self._tell(error)
            raise
        finally:
            self._is_opening = False
            self._tell(None)

    def _tell(self, error: TransportError | None) -> None:
        """Those who wait fail with the one that opened the link, or look again."""
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if turn.done():
                continue
            self._called += 1
            if error is None:
                turn.set_result(None)
            else:
                turn.set_exception(error)

    def drop(self) -> None:
        link, self.present, self._failure = self.present, None, None
        if link is not None and link.lost is None:
            link.abandon()


class AmqpSource:
    """A backlog queue."""

    def __init__(self, transport: AmqpTransport, queue: str) -> None:
        self._transport = transport
        self._queue = queue
        self.is_told = True  # when there is no more; where nothing is said one has to wait
        distrust = partial(transport.distrust, queue)
        self._receiver = _Slot(self._open_receiver, distrust)
        self._management = _Slot(self._open_management, distrust)

    async def _open_receiver(self) -> ReceiverLink:
        timeout, meter = self._transport.timeout, self._transport.meter
        return await self._transport.open_link(
            self._queue,
            lambda line: ReceiverLink.open(line, self._queue, timeout=timeout, meter=meter),
            widely=True,
        )

    async def _open_management(self) -> RequestLink:
        node, timeout = f"{self._queue}/{words.MANAGEMENT}", self._transport.timeout
        return await self._transport.open_link(
            self._queue, lambda line: RequestLink.open(line, node, timeout=timeout), widely=True
        )

    # -- receiving

    async def attach(self) -> None:
        """Open the link that messages come over, which tells whether they may be received."""
        await self._receiver.get()

    async def receive(self, limit: int, wait: float, *, at_once: bool = False) -> list[Delivery]:
        held = self._receiver.present
        if held is not None and held.buffer and not (at_once and held.is_draining):
            return self._take(held, limit)
        now = asyncio.get_running_loop().time
        end: float | None = None  # what it takes to open the link is no part of the wait
        while True:
            begun, knew = now(), self._transport.has_credits
            link = await self._receiver.get()
            if self._transport.has_credits and not knew:
                limit = min(limit, _FIRST_OF_CREDITS)
            if at_once and self.is_told:
                is_there = await link.gather(limit, self._transport.timeout)
                if is_there is not None:
                    return self._take(link, limit) if is_there else []
                self.is_told = False
            end = end or now() + wait
            link.grant(limit)  # also if credit is left: a poll is one grant
            try:
                return self._take(link, limit) if await link.arrival(max(0.0, end - now())) else []
            except TransportError as error:
                if error.condition != conditions.DETACH_FORCED or now() - begun < SERVICE_LINK_IDLE:
                    raise

    def _take(self, link: ReceiverLink, limit: int) -> list[Delivery]:
        taken = [link.buffer.popleft() for _ in range(min(limit, len(link.buffer)))]
        return [Delivery(event.payload, event.tag, (link, event.delivery_id)) for event in taken]

    async def stop_receiving(self) -> list[Delivery]:
        link = self._receiver.present
        if link is None:
            return []
        with suppress(TransportError):
            await link.drain(self._transport.timeout)
        return self._take(link, len(link.buffer))

    # -- settling

    async def complete(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        return await self._settle(deliveries, ACCEPTED, "completed")

    async def defer(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        return await self._give_back(deliveries, "defered")  # the protocol's own spelling

    async def release(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        return await self._give_back(deliveries, "abandoned")

    async def dead_letter(self, delivery: Delivery, *, reason: str, description: str) -> Refusal:
        info = {Symbol(words.REASON): reason, Symbol(words.DESCRIPTION): description}
        state = Rejected(AmqpError(conditions.DEAD_LETTER, "", info))
        extra = {"deadletter-reason": reason, "deadletter-description": description}
        (outcome,) = await self._settle([delivery], state, "suspended", extra)
        return outcome

    async def _give_back(self, deliveries: Sequence[Delivery], status: str) -> list[Refusal]:
        """With the mark of those that are accounted for."""
        outcomes: list[Refusal] = [None] * len(deliveries)
        by_mark: dict[int, list[int]] = {}
        for place, delivery in enumerate(deliveries):
            by_mark.setdefault(_mark(delivery, status), []).append(place)
        for mark, places in by_mark.items():
            some = [deliveries[place] for place in places]
            state: DeliveryState = RELEASED if status == "abandoned" else _DEFERRED
            extra: dict[str, Any] = {}
            if mark:
                extra["properties-to-modify"] = {ACCOUNTED: mark}
                if status == "defered":
                    state = replace(_DEFERRED, message_annotations={Symbol(ACCOUNTED): mark})
            found = await self._settle(some, state, status, extra)
            for place, error in zip(places, found, strict=True):
                if mark and error is not None and error.condition in OF_A_MESSAGE:
                    (error,) = await self._settle_by_token([deliveries[place]], status, {})
                outcomes[place] = error
        return outcomes

    async def _settle(
        self,
        deliveries: Sequence[Delivery],
        state: DeliveryState,
        status: str,
        extra: dict[str, Any] | None = None,
    ) -> list[Refusal]:
        """Over the link where the lock was got, as long as it is there, else by the lock's token."""
        outcomes: list[Refusal] = [None] * len(deliveries)
        by_link: dict[ReceiverLink, list[int]] = {}
        by_token: list[int] = []
        for index, delivery in enumerate(deliveries):
            link = delivery.handle[0] if isinstance(delivery.handle, tuple) else None
            if link is not None and link.lost is None:
                by_link.setdefault(link, []).append(index)
            else:
                by_token.append(index)
        for link, places in by_link.items():
            ids = [deliveries[place].handle[1] for place in places]  # type: ignore[index]
            failed = await link.settle(ids, state, timeout=self._transport.timeout)
            for at, error in failed.items():
                if link.lost is not None:
                    by_token.append(places[at])
                else:
                    outcomes[places[at]] = error
        for begin in range(0, len(by_token), SETTLE_AT_ONCE):
            places = sorted(by_token)[begin : begin + SETTLE_AT_ONCE]
            found = await self._settle_by_token([deliveries[place] for place in places], status, extra or {})
            for place, outcome in zip(places, found, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def _settle_by_token(
        self, deliveries: Sequence[Delivery], status: str, extra: dict[str, Any]
    ) -> list[Refusal]:
        body = {"disposition-status": status, "lock-tokens": _tokens(deliveries), **extra}
        meter, kind, size = self._transport.meter, _KINDS[status], len(deliveries)
        try:
            await self._ask("update-disposition", body)
        except TransportError as error:
            # The service has come as far as the first lock that is lost.
            came_to = int(error.condition == conditions.MESSAGE_LOCK_LOST)
            meter.note(self._queue, kind, count=came_to, unknown=size - came_to)
            if len(deliveries) == 1 or error.condition != conditions.MESSAGE_LOCK_LOST:
                return [error] * len(deliveries)
            # One lock that is lost fails the request: find out which.
            singly = [await self._settle_by_token([delivery], status, extra) for delivery in deliveries]
            return [outcome for (outcome,) in singly]
        meter.note(self._queue, kind, count=size)
        return [None] * len(deliveries)

    # -- deferred messages, peeks and locks

    async def fetch(self, sequence_numbers: Sequence[int]) -> list[Delivery | TransportError]:
        found: list[Delivery | TransportError] = []
        for begin in range(0, len(sequence_numbers), FETCH_AT_ONCE):
            found += await self._fetch(sequence_numbers[begin : begin + FETCH_AT_ONCE])
        return found

    async def _fetch(self, numbers: Sequence[int]) -> list[Delivery | TransportError]:
        body = {"sequence-numbers": Array(numbers, int), "receiver-settle-mode": UInt(1)}
        try:
            answer = await self._ask("receive-by-sequence-number", body)
        except TransportError as error:
            if error.condition != conditions.MESSAGE_NOT_FOUND:
                raise
            if len(numbers) == 1:
                return [error]
            singly = [await self._fetch([number]) for number in numbers]
            return [one for some in singly for one in some]
        fetched = {
            read_postmark(scan(payload)).sequence_number: Delivery(payload, message["lock-token"].bytes_le)
            for message in answer.get("messages", ())
            for payload in [message["message"]]
        }
        sizes = [len(one.payload) for one in fetched.values()]
        self._transport.meter.note_sizes(self._queue, "delivery", sizes)
        missing = TransportError(conditions.MESSAGE_NOT_FOUND, "the answer does not have it")
        return [fetched.get(number, missing) for number in numbers]

    async def peek(self, from_sequence_number: int, limit: int) -> list[Peeked]:
        return [_peeked(payload) for payload in await self.peek_payloads(from_sequence_number, limit)]

    async def peek_payloads(
        self, from_sequence_number: int, limit: int, *, with_bodies: bool = True
    ) -> list[bytes]:
        """The same messages as bytes, for whoever reads them in another way."""
        body = _encode_look(from_sequence_number, limit, with_bodies)
        payloads: list[bytes] = await self._ask("peek-message", body, read_page)
        return payloads

    async def renew(self, deliveries: Sequence[Delivery]) -> list[float | TransportError]:
        renewed: list[float | TransportError] = []
        for begin in range(0, len(deliveries), SETTLE_AT_ONCE):
            renewed += await self._renew(deliveries[begin : begin + SETTLE_AT_ONCE])
        return renewed

    async def _renew(self, deliveries: Sequence[Delivery]) -> list[float | TransportError]:
        try:
            answer = await self._ask("renew-lock", {"lock-tokens": _tokens(deliveries)})
        except TransportError as error:
            if len(deliveries) == 1 or error.condition != conditions.MESSAGE_LOCK_LOST:
                return [error] * len(deliveries)
            singly = [await self._renew([delivery]) for delivery in deliveries]
            return [one for some in singly for one in some]
        return [float(until) / 1000 for until in answer.get("expirations", ())]

    async def _ask(
        self,
        operation: str,
        body: dict[str, Any] | bytes,
        read: Callable[[MessageSections], Any] | None = None,
    ) -> Any:
        transport, link = self._transport, await self._management.get()
        note = partial(transport.meter.note_request, self._queue)
        try:
            return await link.request(operation, body, timeout=transport.timeout, on_fate=note, read=read)
        except TransportError as error:
            if is_denial(error):
                transport.distrust(self._queue)
                self._management.drop()
            raise

    async def close(self) -> None:
        self._receiver.drop()
        self._management.drop()

    async def leave(self) -> None:
        """To detach the links of a thousand queues, one by one, takes as long as to move messages."""
        link = self._receiver.present
        if link is None or link.link.credit > 0:
            await self.close()


class AmqpDestination:
    """A queue or topic."""

    def __init__(self, transport: AmqpTransport, path: str) -> None:
        self._transport = transport
        self._path = path
        self._sender = _Slot(self._open, partial(transport.distrust, path))

    async def _open(self) -> SenderLink:
        timeout = self._transport.timeout
        try:
            return await self._transport.open_link(
                self._path, lambda line: SenderLink.open(line, self._path, timeout=timeout)
            )
        except TransportError as error:
            raise error.unsent() from error

    async def send(self, units: Sequence[Unit]) -> list[Refusal]:
        try:
            link = await self._sender.get()
        except TransportError as error:
            return [error] * len(units)

        def note(fates: Sequence[Fate]) -> None:
            meter = self._transport.meter
            if not meter.is_on:
                return
            sizes: dict[Fate, list[int]] = {}
            if fates.count("taken") == len(fates):  # as it should be
                sizes["taken"] = [len(payload) for unit in units for payload in unit.payloads]
            else:
                for unit, fate in zip(units, fates, strict=True):
                    sizes.setdefault(fate, []).extend(map(len, unit.payloads))
            meter.note_sizes(self._path, "send", sizes.get("taken", ()))
            meter.note_sizes(self._path, "send_refused", sizes.get("refused", ()))
            meter.note_sizes(self._path, "send", sizes.get("unknown", ()), known=False)

        return await link.send(
            [_transfer(unit) for unit in units], timeout=self._transport.timeout, on_fates=note
        )

    async def close(self) -> None:
        self._sender.drop()


def _transfer(unit: Unit) -> tuple[bytes, int]:
    if len(unit.payloads) == 1:
        return unit.payloads[0], 0
    return encode_batch(unit.payloads, session_id=unit.session_id), BATCH_FORMAT


def _tokens(deliveries: Sequence[Delivery]) -> Array:
    return Array([uuid.UUID(bytes_le=delivery.lock_token) for delivery in deliveries], uuid.UUID)


def _mark(delivery: Delivery, status: str) -> int:
    """What is put aside for the first time needs none, unless it is a copy that has one of another life."""
    is_needed = delivery.accounted > (status == "defered") or _ACCOUNTED in delivery.payload
    return delivery.accounted if is_needed else 0


@lru_cache(maxsize=16)
def _encode_look(first: int, most: int, with_bodies: bool) -> bytes:
    """Of a thousand queues the same is asked."""
    body = {"from-sequence-number": first, "message-count": Int(most)}
    if not with_bodies:
        body["omit-message-body"] = True  # a service that does not know it sends them
    return encode_value(body)


def _peeked(payload: bytes) -> Peeked:
    sections = scan(payload)
    mark = read_postmark(sections)
    state = mark.state
    return Peeked(mark.sequence_number, state == DEFERRED, sections, state == SCHEDULED)

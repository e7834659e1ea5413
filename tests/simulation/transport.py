"""The pump's transport over a simulated namespace: the first seam, held to the contract of all transports."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import TypeVar

from pairbus import conditions
from pairbus.amqp.message import scan
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.results import Handout
from pairbus.broker.links.wire import render_delivery, render_peeked
from pairbus.pairing.envelope import ACCOUNTED
from pairbus.pump.transport import Delivery, Peeked, Refusal, Unit
from pairbus.pump.unwrapping import DEFERRED, SCHEDULED, read_postmark
from pairbus.wire.errors import CONNECTION_LOST, UNANSWERED, TransportError
from pairbus.wire.meter import Meter

from .loop import current_process, outside
from .namespace import Attempt, Connection, Link, LostWord, Receiver, SimulatedNamespace, message_id

__all__ = ["SimulatedTransport"]

T = TypeVar("T")
_FETCH_AT_ONCE = 100


def _error(error: LostWord | Refused) -> TransportError:
    if isinstance(error, Refused):
        return TransportError(error.condition, error.description)
    return TransportError(CONNECTION_LOST if error.is_broken else UNANSWERED, str(error))


class SimulatedTransport:
    """One namespace over one connection, which is opened again when it was lost."""

    def __init__(self, namespace: SimulatedNamespace, *, timeout: float = 10.0) -> None:
        self.namespace = namespace
        self.timeout = timeout
        self.longest_wait = inf
        self.meter = Meter()
        self.on_credits: Callable[[float], None] = lambda credits: None
        self._connection: Connection | None = None
        self._is_closed = False
        self._turn = asyncio.Lock()

    def source(self, queue: str) -> SimulatedSource:
        return SimulatedSource(self, queue)

    def destination(self, path: str) -> SimulatedDestination:
        return SimulatedDestination(self, path)

    async def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            self._connection.cut("closed")

    async def open(self, entity: str, *, receives: bool = False, manages: bool = False) -> Link:
        """A new link, on a new connection if need be."""
        if self._is_closed:
            raise TransportError(CONNECTION_LOST, "closed")
        namespace = self.namespace
        try:
            async with self._turn:
                if self._connection is None or self._connection.lost is not None:
                    self._connection = await namespace.connect(self.timeout)
            connection = self._connection
            link = Receiver(connection, entity) if receives else Link(connection, entity)

            def attach(engine: Namespace, now: float) -> None:
                namespace.authorize(connection, entity)
                node = engine.node(entity)
                if not manages:
                    namespace.check("attach", entity)
                if receives:
                    assert isinstance(node, MessageQueue)
                    node.check_receiver(with_session=False)

            await connection.answer(link, "attach", attach, self.timeout)
        except (LostWord, Refused) as error:
            raise _error(error) from None
        connection.attach(link)
        if connection.lost is not None:
            raise _error(connection.lost)
        return link


class SimulatedSource:
    """A backlog queue."""

    is_told = True  # it waits all the same, so that turns last long

    def __init__(self, transport: SimulatedTransport, queue: str) -> None:
        self._transport = transport
        self._namespace = transport.namespace
        self._queue = queue
        self._receiver: Receiver | None = None
        self._management: Link | None = None
        self._turn = asyncio.Lock()

    # -- receiving

    async def receive(self, limit: int, wait: float, *, at_once: bool = False) -> list[Delivery]:
        receiver = self._receiver
        if receiver is not None and receiver.buffer:
            return self._take(receiver, limit)
        if receiver is None or receiver.is_lost:
            link = await self._transport.open(self._queue, receives=True)
            assert isinstance(link, Receiver)
            receiver = self._receiver = link
        self._grant(receiver, limit)
        receiver.arrived.clear()
        try:
            async with asyncio.timeout(wait):
                await receiver.arrived.wait()
        except TimeoutError:
            return []
        if not receiver.buffer and receiver.is_lost:
            raise _error(receiver.connection.lost or LostWord(is_broken=True, text="the link was detached"))
        return self._take(receiver, limit)

    def _grant(self, receiver: Receiver, limit: int) -> None:
        loop, namespace, received = asyncio.get_running_loop(), self._namespace, receiver.received

        def arrive() -> None:
            if not receiver.is_lost and not namespace.strikes("silence", entity=self._queue):
                try:
                    namespace.act(lambda engine, now: namespace.grant(receiver, limit, received=received))
                except Refused:
                    receiver.connection.detach(self._queue)

        receiver.arrives = max(receiver.arrives + 1e-6, loop.time() + namespace.travel(self._queue))
        loop.call_at(receiver.arrives, arrive, context=outside())

    def _take(self, receiver: Receiver, limit: int) -> list[Delivery]:
        return [
            _delivery(*receiver.buffer.popleft(), receiver) for _ in range(min(limit, len(receiver.buffer)))
        ]

    async def stop_receiving(self) -> list[Delivery]:
        receiver = self._receiver
        if receiver is None:
            return []
        if not receiver.is_lost:

            def drain(engine: Namespace, now: float) -> None:
                self._namespace.grant(receiver, 0, drains=True)

            with suppress(LostWord, Refused):
                await receiver.connection.answer(receiver, "drain", drain, self._transport.timeout)
        return self._take(receiver, len(receiver.buffer))

    # -- settling

    async def complete(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        def complete(queue: MessageQueue, delivery: Delivery, now: float) -> None:
            token = uuid.UUID(bytes_le=delivery.lock_token)
            locked = queue._locks.find(token)
            if locked is not None:
                self._namespace.on_leaving("complete", self._queue, locked.sequence_number)
            queue.complete(token, now)

        return await self._settle("complete", deliveries, complete)

    async def defer(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        def defer(queue: MessageQueue, delivery: Delivery, now: float) -> None:
            is_marked = delivery.accounted > 1 or ACCOUNTED.encode() in delivery.payload
            changes = {ACCOUNTED: delivery.accounted} if is_marked else None
            queue.defer(uuid.UUID(bytes_le=delivery.lock_token), now, properties=changes)

        return await self._settle("defer", deliveries, defer)

    async def release(self, deliveries: Sequence[Delivery]) -> list[Refusal]:
        def release(queue: MessageQueue, delivery: Delivery, now: float) -> None:
            queue.release(uuid.UUID(bytes_le=delivery.lock_token), now)

        return await self._settle("release", deliveries, release)

    async def dead_letter(self, delivery: Delivery, *, reason: str, description: str) -> Refusal:
        def bury(queue: MessageQueue, delivery: Delivery, now: float) -> None:
            token = uuid.UUID(bytes_le=delivery.lock_token)
            locked = queue._locks.find(token)
            if locked is not None:
                self._namespace.on_leaving("dead-letter", self._queue, locked.sequence_number)
            queue.dead_letter(token, now, reason=reason, description=description)

        (outcome,) = await self._settle("dead-letter", [delivery], bury)
        return outcome

    async def _settle(
        self,
        kind: str,
        deliveries: Sequence[Delivery],
        settle: Callable[[MessageQueue, Delivery, float], None],
    ) -> list[Refusal]:
        """Over the link where the locks were got, as long as it is there, else by the locks' tokens."""
        outcomes: list[Refusal] = [None] * len(deliveries)
        by_token: list[int] = []
        by_link: dict[Receiver, list[int]] = {}
        for place, delivery in enumerate(deliveries):
            receiver = delivery.handle
            if isinstance(receiver, Receiver) and not receiver.is_lost:
                by_link.setdefault(receiver, []).append(place)
            else:
                by_token.append(place)
        for receiver, places in by_link.items():

            def each(engine: Namespace, now: float, places: list[int] = places) -> list[Refused | None]:
                queue = self._namespace.queue(self._queue)
                return [_outcome(settle, queue, deliveries[place], now) for place in places]

            try:
                found = await receiver.connection.answer(receiver, kind, each, self._transport.timeout)
            except (LostWord, Refused) as error:
                if kind == "complete":
                    self._namespace.on_unsettled([deliveries[place] for place in places], False)
                if receiver.is_lost:
                    by_token += places
                else:
                    for place in places:
                        outcomes[place] = _error(error)
            else:
                for place, refused in zip(places, found, strict=True):
                    outcomes[place] = None if refused is None else _error(refused)
                    if refused is not None and kind == "complete":
                        self._namespace.on_unsettled([deliveries[place]], True)
        if by_token:
            by_token.sort()
            told = await self._settle_by_token(kind, [deliveries[place] for place in by_token], settle)
            for place, outcome in zip(by_token, told, strict=True):
                outcomes[place] = outcome
        return outcomes

    async def _settle_by_token(
        self,
        kind: str,
        deliveries: Sequence[Delivery],
        settle: Callable[[MessageQueue, Delivery, float], None],
    ) -> list[Refusal]:
        def settle_all(engine: Namespace, now: float) -> None:
            queue = self._namespace.queue(self._queue)
            for delivery in deliveries:  # the first lock that is lost fails the request
                settle(queue, delivery, now)

        try:
            await self._manage(kind, settle_all)
        except TransportError as error:
            if error.condition != conditions.MESSAGE_LOCK_LOST:
                if kind == "complete":
                    self._namespace.on_unsettled(deliveries, False)
                return [error] * len(deliveries)
            if len(deliveries) == 1:
                if kind == "complete":
                    self._namespace.on_unsettled(deliveries, True)
                return [error]
            return [(await self._settle_by_token(kind, [one], settle))[0] for one in deliveries]
        return [None] * len(deliveries)

    # -- deferred messages, peeks and locks

    async def fetch(self, sequence_numbers: Sequence[int]) -> list[Delivery | TransportError]:
        found: list[Delivery | TransportError] = []
        for begin in range(0, len(sequence_numbers), _FETCH_AT_ONCE):
            found += await self._fetch(sequence_numbers[begin : begin + _FETCH_AT_ONCE])
        return found

    async def _fetch(self, numbers: Sequence[int]) -> list[Delivery | TransportError]:
        def fetch(engine: Namespace, now: float) -> list[Delivery]:
            queue = self._namespace.queue(self._queue)
            return [_fetched(handout) for handout in queue.receive_deferred(numbers, now)]

        try:
            return [*await self._manage("fetch", fetch)]
        except TransportError as error:
            if error.condition != conditions.MESSAGE_NOT_FOUND:
                raise
            if len(numbers) == 1:
                return [error]
            return [(await self._fetch([number]))[0] for number in numbers]

    async def peek(self, from_sequence_number: int, limit: int) -> list[Peeked]:
        def peek(engine: Namespace, now: float) -> list[bytes]:
            queue = self._namespace.queue(self._queue)
            return [bytes(render_peeked(one)) for one in queue.peek(from_sequence_number, limit, now)]

        return [_peeked(payload) for payload in await self._manage("peek", peek)]

    async def renew(self, deliveries: Sequence[Delivery]) -> list[float | TransportError]:
        def renew(engine: Namespace, now: float) -> list[float]:
            queue = self._namespace.queue(self._queue)
            return [queue.renew(uuid.UUID(bytes_le=one.lock_token), now) for one in deliveries]

        try:
            return [*await self._manage("renew", renew)]
        except TransportError as error:
            if len(deliveries) == 1 or error.condition != conditions.MESSAGE_LOCK_LOST:
                return [error] * len(deliveries)
            return [(await self.renew([one]))[0] for one in deliveries]

    async def _manage(self, kind: str, act: Callable[[Namespace, float], T]) -> T:
        async with self._turn:
            if self._management is None or self._management.is_lost:
                self._management = await self._transport.open(self._queue, manages=True)
        link = self._management

        def checked(engine: Namespace, now: float) -> T:
            self._namespace.check("manage", self._queue)
            return act(engine, now)

        try:
            return await link.connection.answer(link, kind, checked, self._transport.timeout)
        except (LostWord, Refused) as error:
            raise _error(error) from None

    async def close(self) -> None:
        for link in (self._receiver, self._management):
            if link is not None and not link.is_lost:
                _let_go(link)

    leave = close


class SimulatedDestination:
    """A queue or topic."""

    def __init__(self, transport: SimulatedTransport, path: str) -> None:
        self._transport = transport
        self._path = path
        self._link: Link | None = None
        self._turn = asyncio.Lock()
        self._failure: TransportError | None = None
        self._failures = 0

    @property
    def max_size(self) -> int | None:
        return 262_144 if self._link is not None else None

    async def _open(self) -> Link:
        """The link. Who waits while another opens it fails with that one."""
        tried = self._failures
        async with self._turn:
            if self._failure is not None and self._failures > tried:
                raise self._failure
            if self._link is None or self._link.is_lost:
                try:
                    self._link = await self._transport.open(self._path)
                except TransportError as error:
                    self._failure, self._failures = error.unsent(), self._failures + 1
                    raise self._failure from error
            return self._link

    async def send(self, units: Sequence[Unit]) -> list[Refusal]:
        try:
            link = await self._open()
        except TransportError as error:
            return [error] * len(units)
        connection, begun = link.connection, asyncio.get_running_loop().time()
        attempts = [self._attempt(unit) for unit in units]
        futures = [
            connection.ask(link, f"send {','.join(attempt.ids)}", self._taking(unit, attempt))
            for unit, attempt in zip(units, attempts, strict=True)
        ]
        await asyncio.wait(futures, timeout=self._transport.timeout)
        late = [future for future in futures if not future.done()]
        if late:
            connection.give_up(late, begun, self._transport.timeout)
        outcomes: list[Refusal] = []
        for future, attempt in zip(futures, attempts, strict=True):
            try:
                future.result()
            except (LostWord, Refused) as error:
                if isinstance(error, LostWord):
                    self._transport.namespace.unheard.update(attempt.ids)
                outcomes.append(_error(error))
            else:
                attempt.is_known = True
                outcomes.append(None)
        return outcomes

    def _attempt(self, unit: Unit) -> Attempt:
        ids = [message_id(payload) for payload in unit.payloads]
        return Attempt(self._path, ids, 0.0, current_process())

    def _taking(self, unit: Unit, attempt: Attempt) -> Callable[[Namespace, float], None]:
        namespace = self._transport.namespace

        def take(engine: Namespace, now: float) -> None:
            attempt.at = now
            namespace.take(self._path, list(unit.payloads), attempt)

        return take

    async def close(self) -> None:
        if self._link is not None and not self._link.is_lost:
            _let_go(self._link)


def _let_go(link: Link) -> None:
    link.connection._lose(link)
    if link in link.connection.links:
        link.connection.links.remove(link)


def _outcome(
    settle: Callable[[MessageQueue, Delivery, float], None],
    queue: MessageQueue,
    delivery: Delivery,
    now: float,
) -> Refused | None:
    try:
        settle(queue, delivery, now)
    except Refused as refused:
        return refused
    return None


def _delivery(payload: bytes, token: uuid.UUID, receiver: Receiver) -> Delivery:
    return Delivery(payload, token.bytes_le, receiver)


def _fetched(handout: Handout) -> Delivery:
    assert handout.lock_token is not None
    return Delivery(bytes(render_delivery(handout)), handout.lock_token.bytes_le)


def _peeked(payload: bytes) -> Peeked:
    sections = scan(payload)
    mark = read_postmark(sections)
    return Peeked(mark.sequence_number, mark.state == DEFERRED, sections, mark.state == SCHEDULED)

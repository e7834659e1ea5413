"""The queue where the clients of a fleet meet, over a simulated namespace: the third seam.

A lock whose answer was lost, or whose connection broke on the way, stays until it ends: nobody tells the
namespace that it is not wanted. Who waits for word is woken in the order of those who wait, or in any other:
that is the namespace's affair, and the seed decides.
"""

import asyncio
import random
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from pairbus import conditions
from pairbus.amqp.message import scan
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.sessions import SessionLock
from pairbus.broker.links.wire import render_delivery
from pairbus.client.fleet.amqp_fleet_line import encode_word
from pairbus.client.fleet.line import FleetLock
from pairbus.wire.errors import CONNECTION_LOST, UNANSWERED, TransportError

from .loop import outside
from .namespace import Connection, Link, LostWord, SimulatedNamespace

__all__ = ["Meeting", "SimulatedFleetLine"]

_TIMEOUT = 10.0


class Meeting:
    """The queue, and those who wait for word there."""

    def __init__(self, namespace: SimulatedNamespace, queue: str, seed: int) -> None:
        self._chance = random.Random(f"meeting {seed}") if seed % 2 == 0 else None
        self.namespace = namespace
        self.queue = queue
        self.waiting: deque[asyncio.Future[None]] = deque()
        #: How many locks were asked for.
        self.asked = 0

    def wake(self, count: int) -> None:
        """Somebody has left word."""
        while count and self.waiting:
            if self._chance is not None:
                self.waiting.rotate(self._chance.randrange(len(self.waiting)))
            future = self.waiting.popleft()
            if not future.done():
                future.set_result(None)
                count -= 1


@dataclass(slots=True, eq=False)
class _LockedLink(Link):
    """Holds a session, until it is lost or the session's lock ends."""

    meeting: Meeting | None = None
    lock: SessionLock | None = None
    ends: float = 0.0

    def on_lost(self) -> None:
        self.release()

    def release(self) -> None:
        meeting, lock, self.lock = self.meeting, self.lock, None
        if meeting is None or lock is None:
            return
        loop, namespace = asyncio.get_running_loop(), meeting.namespace

        def arrive() -> None:
            with suppress(Refused):
                namespace.act(lambda engine, now: _queue(engine, meeting).release_session(lock, now))

        loop.call_at(loop.time() + namespace.travel(self.entity), arrive, context=outside())


def _queue(engine: Namespace, meeting: Meeting) -> MessageQueue:
    node = engine.node(meeting.queue)
    assert isinstance(node, MessageQueue)
    return node


class SimulatedFleetLine:
    """One client's connection to the meeting."""

    def __init__(self, meeting: Meeting, name: str) -> None:
        self._meeting = meeting
        self._namespace = meeting.namespace
        self._name = name
        self._connection: Connection | None = None

    async def _connect(self) -> Connection:
        if self._connection is None or self._connection.lost is not None:
            try:
                self._connection = await self._namespace.connect(_TIMEOUT)
            except LostWord as error:
                raise _error(error) from None
        return self._connection

    async def lock(self, session: str) -> FleetLock | None:
        connection, meeting = await self._connect(), self._meeting
        link = _LockedLink(connection, meeting.queue, meeting=meeting)

        def attach(engine: Namespace, now: float) -> SessionLock | None:
            meeting.asked += 1
            self._admit(connection)
            return _queue(engine, meeting).accept_session(session, now)

        try:
            lock = await connection.answer(link, "attach", attach, _TIMEOUT)
        except (LostWord, Refused) as error:
            if isinstance(error, Refused) and error.condition == conditions.SESSION_CANNOT_BE_LOCKED:
                return None
            raise _error(error) from None
        assert lock is not None
        link.lock, link.ends = lock, lock.locked_until
        connection.attach(link)
        if connection.lost is not None:
            link.release()
        return link

    def _admit(self, connection: Connection) -> None:
        self._namespace.authorize(connection, self._meeting.queue)
        self._namespace.check("attach", self._meeting.queue)

    async def post(self, text: bytes, *, copies: int, life: float) -> None:
        connection, meeting = await self._connect(), self._meeting
        payloads = [encode_word(text, life) for _ in range(copies)]

        def take(engine: Namespace, now: float) -> None:
            self._admit(connection)
            self._namespace.take(meeting.queue, payloads)
            meeting.wake(copies)

        try:
            await connection.answer(Link(connection, meeting.queue), "send", take, _TIMEOUT)
        except (LostWord, Refused) as error:
            raise _error(error) from None

    async def hear(self, wait: float) -> bytes | None:
        connection, loop = await self._connect(), asyncio.get_running_loop()
        ends = loop.time() + wait
        while loop.time() < ends:
            link = Link(connection, self._meeting.queue)
            try:
                found = await connection.answer(
                    link, "attach", lambda *at: self._take(connection, *at), _TIMEOUT
                )
            except (LostWord, Refused) as error:
                raise _error(error) from None
            if found is not None:
                return found or None
            woken: asyncio.Future[None] = loop.create_future()
            self._meeting.waiting.append(woken)
            connection.pending[woken] = link
            try:
                async with asyncio.timeout_at(ends):
                    await woken
            except TimeoutError:
                return None
            except LostWord as error:
                raise _error(error) from None
            finally:
                connection.pending.pop(woken, None)
                woken.cancel()
        return None

    def _take(self, connection: Connection, engine: Namespace, now: float) -> bytes | None:
        """What is in the next session: nothing, if it has ended just then; None if there is no such."""
        self._admit(connection)
        queue = _queue(engine, self._meeting)
        lock = queue.accept_session(None, now)
        if lock is None:
            return None
        try:
            handouts = queue.receive(1, now, delete=True, session=lock)
            kind = OperationKind.DELIVERY if handouts else OperationKind.EMPTY_RECEIVE
            self._namespace.count(self._meeting.queue, kind, 0, self._name)
            return b"".join(b"".join(scan(bytes(render_delivery(one))).data_sections()) for one in handouts)
        finally:
            queue.release_session(lock, now)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.cut("closed")


def _error(error: LostWord | Refused) -> TransportError:
    if isinstance(error, Refused):
        return TransportError(error.condition, error.description)
    return TransportError(CONNECTION_LOST if error.is_broken else UNANSWERED, str(error))

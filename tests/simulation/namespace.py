"""A namespace of a history: the real engine, a network in front of it, and what goes wrong on the way.

Theory of operation
1. The engine decides as in the broker; what it has decided is committed at once. A restart makes a new engine
   from what was committed, so that locks are gone, and breaks every connection.
2. A request travels to the namespace, is done, and its answer travels back. Words on one link keep their
   order; each may be late, be lost, or take the whole connection with it. A connection that breaks leaves
   open what became of the requests on their way: for all of them together, a coin is tossed.
3. A receiver's messages are sent as soon as there are any and it has credit. What is on its way to a receiver
   whose connection breaks stays locked.
4. Who hears nothing at all on a connection until its deadline takes the connection for dead.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pairbus import conditions
from pairbus.amqp.message import scan
from pairbus.broker.counters import Counters, OperationKind
from pairbus.broker.credits import Credits
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.events import EngineEvent
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.results import Handout
from pairbus.broker.engine.settings import NamespaceLimits
from pairbus.broker.engine.tiers import RELAXED
from pairbus.broker.links.wire import render_delivery
from pairbus.clock import Clock

from .faults import REFUSALS, FaultKind, Weather
from .loop import Process, current_process, outside

__all__ = ["Attempt", "Connection", "Link", "LostWord", "Receiver", "SimulatedNamespace"]

T = TypeVar("T")
# How long a word travels, and how much longer at most if it is slow: below every deadline.
_TRAVEL = (0.0003, 0.004)
_SLOW = 6.0
# Words on one link never arrive at the same time, for then their order would be the loop's.
_APART = 1e-6


class LostWord(Exception):
    """No answer: the connection broke, or the deadline passed."""

    def __init__(self, *, is_broken: bool, text: str) -> None:
        super().__init__(text)
        self.is_broken = is_broken


@dataclass(slots=True, eq=False)
class Attempt:
    """A send that was taken, and whether its sender has heard so."""

    path: str
    ids: list[str]
    at: float
    process: Process | None
    is_known: bool = False
    begun: float = 0.0  # by its sender, on the clock of the loop
    seconds: float = 0.0  # from then until its sender heard so

    def note_answer(self, begun: float) -> None:
        """Its sender, which began then, has heard of it."""
        self.is_known, self.begun = True, begun
        self.seconds = asyncio.get_running_loop().time() - begun


@dataclass(slots=True, eq=False)
class Link:
    """Words on it keep their order."""

    connection: Connection
    entity: str
    arrives: float = 0.0
    answers: float = 0.0
    is_lost: bool = False

    def on_lost(self) -> None:
        """Nothing goes with it."""


@dataclass(slots=True, eq=False)
class Receiver(Link):
    """A link with credit; what has come waits in its buffer."""

    credit: int = 0
    sent: int = 0
    received: int = 0
    is_granted: bool = False
    has_delivered: bool = False
    buffer: deque[tuple[bytes, uuid.UUID]] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)


class Connection:
    """One connection to a namespace."""

    def __init__(self, namespace: SimulatedNamespace) -> None:
        self.namespace = namespace
        self.lost: LostWord | None = None
        self.delivers = True
        self.heard = -1.0
        self.grants: set[str] = set()
        self.links: list[Link] = []
        self.pending: dict[asyncio.Future[Any], Link] = {}
        self.process = process = current_process()
        if process is not None:
            process.on_death.append(lambda: self.cut("the process is dead"))

    def cut(self, text: str, *, is_broken: bool = True, delivers: bool | None = None) -> None:
        """It is over; whoever waits for an answer learns it."""
        if self.lost is not None:
            return
        self.lost = LostWord(is_broken=is_broken, text=text)
        self.delivers = self.namespace.chance.random() < 0.5 if delivers is None else delivers
        self.namespace.connections.pop(self, None)
        for link in self.links:
            self._lose(link)
        self._fail(self.pending, self.lost)

    def detach(self, entity: str | None) -> None:
        """Links are detached; the connection stays."""
        chosen = [link for link in self.links if entity in (None, link.entity)]
        for link in chosen:
            self._lose(link)
            self.links.remove(link)
        waiting = {future: link for future, link in self.pending.items() if link in chosen}
        self._fail(waiting, LostWord(is_broken=True, text="the link was detached"))

    def _lose(self, link: Link) -> None:
        link.is_lost = True
        link.on_lost()
        if isinstance(link, Receiver):
            self.namespace.end_grant(link)
            link.credit = 0
            link.arrived.set()

    def _fail(self, waiting: dict[asyncio.Future[Any], Link], error: LostWord) -> None:
        for future in list(waiting):
            self.pending.pop(future, None)
            if not future.done():
                future.set_exception(error)
                future.exception()

    def attach(self, link: Link) -> None:
        self.links.append(link)

    async def answer(self, link: Link, kind: str, act: Callable[[Namespace, float], T], timeout: float) -> T:
        """Ask and wait; LostWord or Refused if it comes to nothing."""
        future = self.ask(link, kind, act)
        begun = asyncio.get_running_loop().time()
        await asyncio.wait((future,), timeout=timeout)
        if not future.done():
            self.give_up([future], begun, timeout)
        return await future

    def give_up(self, futures: list[asyncio.Future[Any]], begun: float, timeout: float) -> None:
        """A deadline has passed."""
        for future in futures:
            self.pending.pop(future, None)
            if not future.done():
                future.set_exception(LostWord(is_broken=False, text=f"no answer within {timeout:g} s"))
                future.exception()
        if self.heard < begun:
            self.cut(f"nothing was heard for {timeout:g} s", is_broken=False)

    def ask(self, link: Link, kind: str, act: Callable[[Namespace, float], T]) -> asyncio.Future[T]:
        """Send a request; the future is its answer."""
        loop, namespace = asyncio.get_running_loop(), self.namespace
        future: asyncio.Future[T] = loop.create_future()
        if self.lost is not None or link.is_lost:
            future.set_exception(self.lost or LostWord(is_broken=True, text="the link was lost"))
            future.exception()
            return future
        self.pending[future] = link
        link.arrives = max(link.arrives + _APART, loop.time() + namespace.travel(link.entity))
        loop.call_at(link.arrives, self._arrive, link, kind, act, future, context=outside())
        return future

    def _arrive(
        self, link: Link, kind: str, act: Callable[[Namespace, float], T], future: asyncio.Future[T]
    ) -> None:
        namespace, loop = self.namespace, asyncio.get_running_loop()
        if (self.lost is not None or link.is_lost) and not self.delivers:
            return
        if namespace.strikes("silence", "lose-request", entity=link.entity):
            namespace.tell(kind, link.entity, "is lost")
            return
        if namespace.strikes("break-request", entity=link.entity):
            namespace.tell(kind, link.entity, "breaks the connection")
            self.cut("the connection broke", delivers=False)
            return
        try:
            result: Any = namespace.act(act)
        except Refused as refused:
            result = refused
        namespace.tell(kind, link.entity, result)
        if namespace.strikes("lose-answer", entity=link.entity):
            namespace.tell(kind, link.entity, "is not answered")
            return
        if namespace.strikes("break-answer", entity=link.entity):
            namespace.tell(kind, link.entity, "breaks the connection instead of an answer")
            self.cut("the connection broke")
            return
        link.answers = max(link.answers + _APART, loop.time() + namespace.travel(link.entity))
        loop.call_at(link.answers, self._answer, link, future, result, context=outside())

    def _answer(self, link: Link, future: asyncio.Future[Any], result: Any) -> None:
        if self.lost is not None:
            return
        self.heard = asyncio.get_running_loop().time()
        if self.pending.pop(future, None) is None or future.done():
            return
        if isinstance(result, Refused):
            future.set_exception(result)
            future.exception()
        else:
            future.set_result(result)


class SimulatedNamespace:
    """One namespace and its network."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        weather: Weather,
        *,
        seed: object = 0,
        limits: NamespaceLimits = RELAXED,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.name = name
        self.clock = clock
        self.weather = weather
        self.chance = random.Random(f"network {name} {seed}")
        self.counters = Counters()
        self.connections: dict[Connection, None] = {}
        self.attempts: list[Attempt] = []
        #: Messages of sends whose answer nobody has heard.
        self.unheard: set[str] = set()
        #: When the opening of a link was refused, by path: who opens it hears of that late.
        self.refusals: dict[str, list[float]] = {}
        #: Paths that nobody may send to.
        self.denied: set[str] = set()
        #: Called with queue and message when one is about to leave a queue, and how.
        self.on_leaving: Callable[[str, str, int], None] = lambda how, queue, number: None
        #: Called with deliveries whose completion did not get through, or that were no longer locked.
        self.on_unsettled: Callable[[Sequence[Any], bool], None] = lambda deliveries, is_lock_lost: None
        self._limits = limits
        self._throttled_until = 0.0
        self._tell = tell
        self._tokens = random.Random(f"tokens {name} {seed}")
        self._committed: list[EngineEvent] = []
        self._receivers: dict[str, list[Receiver]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self.engine = self._make()

    def _make(self) -> Namespace:
        return Namespace(
            self.name, limits=self._limits, next_token=lambda: uuid.UUID(int=self._tokens.getrandbits(128))
        )

    def tell(self, kind: str, entity: str, result: object) -> None:
        """Note something for the trace."""
        told = result if isinstance(result, str) else "done"
        if isinstance(result, Refused):
            told = result.condition
        self._tell(f"{self.name} {kind} {entity}: {told}")

    # -- the engine

    def act(self, work: Callable[[Namespace, float], T]) -> T:
        """Do something to the engine; commit it, and let receivers have what they can."""
        try:
            return work(self.engine, self.clock.now())
        finally:
            self._settle_down()

    def _settle_down(self) -> None:
        self._committed += self.engine.take_events()
        while ready := self.engine.take_ready():
            for queue in sorted(ready, key=lambda queue: queue.path):
                self._serve(queue)
        self._arm()

    def _arm(self) -> None:
        """Wake up when something is due; only receivers that wait need it."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        due = self.engine.next_deadline()
        if due is not None and self._receivers:
            loop = asyncio.get_running_loop()
            wait = max(0.001, due - self.clock.now())
            self._alarm = loop.call_at(loop.time() + wait, self._ring, context=outside())

    def _ring(self) -> None:
        self._alarm = None
        self.act(lambda engine, now: engine.tick(now))

    def restart(self) -> None:
        """End as by a power cut, and come back with what was committed."""
        self._tell(f"{self.name} restarts")
        fresh = self._make()
        fresh.replay(self._committed, now=self.clock.now())
        for connection in list(self.connections):
            connection.cut("the namespace went away", delivers=False)
        self._receivers.clear()
        self.engine = fresh

    def queue(self, path: str) -> MessageQueue:
        """The queue or sub-queue at a path."""
        node = self.engine.node(path)
        assert isinstance(node, MessageQueue)
        return node

    def take(self, path: str, payloads: list[bytes], attempt: Attempt | None = None) -> None:
        """Take messages whole or not at all."""
        self._take(path, payloads, attempt, lambda messages, now: self.engine.send(path, messages, now))

    def schedule(self, path: str, payloads: list[bytes], attempt: Attempt) -> list[int]:
        """Take messages for later, whole or not at all."""
        return self._take(
            path, payloads, attempt, lambda messages, now: self.engine.schedule(path, messages, now)
        )

    def _take(
        self,
        path: str,
        payloads: list[bytes],
        attempt: Attempt | None,
        act: Callable[[list[Incoming], float], T],
    ) -> T:
        messages = [Incoming.parse(payload) for payload in payloads]
        process = None if attempt is None else attempt.process
        name = "" if process is None else process.name
        try:
            self.check("send", path)
            result = act(messages, self.clock.now())
        except Refused:
            for message in messages:
                self.count(path, OperationKind.SEND_REFUSED, message.size, name)
            raise
        for message in messages:
            kind = OperationKind.PING if message.is_ping else OperationKind.SEND
            self.count(path, kind, message.size, name)
        if attempt is not None:
            self.attempts.append(attempt)
        return result

    def count(self, entity: str, kind: OperationKind, size: int = 0, process: str = "") -> None:
        """Count an operation, as the broker does."""
        self.counters.count(entity, process, kind=kind, size=size)

    def limit_credits(self, rate: int) -> None:
        """Have so many credits a second, which begin anywhere."""
        loop, phase = asyncio.get_running_loop(), self.chance.random()

        def throttle(seconds: float) -> None:
            loop.call_soon(self._throttle, loop.time() + seconds, context=outside())

        credits = Credits(
            rate, monotonic=lambda: loop.time() + phase, count_filters=lambda path: 0, throttle=throttle
        )
        self.counters.spend = credits.spend

    def _throttle(self, until: float) -> None:
        self._throttled_until = until
        # A little later than a message that comes just then.
        asyncio.get_running_loop().call_at(until + _APART, self.wake, context=outside())

    @property
    def is_throttled(self) -> bool:
        return asyncio.get_running_loop().time() < self._throttled_until

    # -- faults

    def strikes(self, *kinds: FaultKind, entity: str | None = None) -> bool:
        now = asyncio.get_running_loop().time()
        return self.weather.strikes(self.name, now, *kinds, entity=entity) is not None

    def travel(self, entity: str) -> float:
        """How long a word is on its way."""
        usual = self.chance.uniform(*_TRAVEL)
        return usual + self.chance.uniform(0, _SLOW) if self.strikes("slow", entity=entity) else usual

    def check(self, action: str, entity: str) -> None:
        """Raise Refused if a fault is in the way of sending, managing or attaching."""
        if self.is_throttled:
            raise Refused(*REFUSALS["busy"])
        kinds: tuple[FaultKind, ...] = ("busy", "error", "token")
        if action == "send":
            kinds = (*kinds, "full", "disabled")
        elif action == "attach":
            kinds = ("error", "busy", "disabled")
        now = asyncio.get_running_loop().time()
        fault = self.weather.strikes(self.name, now, *kinds, entity=entity)
        if fault is not None:
            raise Refused(*REFUSALS[fault.kind])
        if entity in self.denied and action == "send":
            raise Refused(conditions.UNAUTHORIZED, "Unauthorized access. 'Send' claim(s) are required.")

    # -- connections

    async def connect(self, timeout: float) -> Connection:
        """A new connection; LostWord if there is none to be had."""
        await asyncio.sleep(self.chance.uniform(*_TRAVEL))
        if self.strikes("refuse"):
            raise LostWord(is_broken=True, text="connection refused")
        if self.strikes("silence", "lose-request", "lose-answer"):
            await asyncio.sleep(timeout)
            raise LostWord(is_broken=False, text=f"no answer within {timeout:g} s")
        connection = Connection(self)
        self.connections[connection] = None
        return connection

    def authorize(self, connection: Connection, entity: str) -> None:
        """Put a token for an entity; Refused if that does not work."""
        if self.strikes("token", entity=entity):
            has_grant = bool(connection.grants)
            raise Refused(
                conditions.UNAUTHORIZED if has_grant else conditions.AUTH_FAILED,
                "401: The token service is not available.",
            )
        connection.grants.add(entity)

    def wake(self) -> None:
        """Let receivers have what they could not be given during a fault."""

        def serve(engine: Namespace, now: float) -> None:
            for path in list(self._receivers):
                self._serve(self.queue(path))

        self.act(serve)

    def detach(self, entity: str | None) -> None:
        """Detach links of all connections."""
        self._tell(f"{self.name} detaches {entity or 'all'}")
        for connection in list(self.connections):
            connection.detach(entity)

    def cut(self, text: str) -> None:
        """Break all connections."""
        self._tell(f"{self.name}: {text}")
        for connection in list(self.connections):
            connection.cut(text)

    # -- receivers

    def grant(self, receiver: Receiver, credit: int, *, received: int = 0, drains: bool = False) -> None:
        """Let so many messages go to a receiver that had `received` when it asked: those on their way
        count.
        """
        self.end_grant(receiver)
        receiver.credit = max(0, credit - (receiver.sent - received))
        if drains:
            return
        receiver.is_granted, receiver.has_delivered = credit > 0, False
        waiting = self._receivers.setdefault(receiver.entity.lower(), [])
        if receiver not in waiting:
            waiting.append(receiver)
        self._serve(self.queue(receiver.entity))

    def end_grant(self, receiver: Receiver) -> None:
        """A grant that ends without a delivery is an empty receive."""
        if receiver.is_granted and not receiver.has_delivered:
            self.count(receiver.entity, OperationKind.EMPTY_RECEIVE)
        receiver.is_granted = False

    def _serve(self, queue: MessageQueue) -> None:
        receivers = self._receivers.get(queue.path.lower(), [])
        for receiver in [one for one in receivers if one.is_lost]:
            receivers.remove(receiver)
        if self.weather.strikes(self.name, asyncio.get_running_loop().time(), "silence", entity=queue.path):
            return
        if self.is_throttled:
            return
        for receiver in receivers:
            if receiver.credit > 0:
                for handout in queue.receive(receiver.credit, self.clock.now()):
                    self._send(receiver, handout)

    def _send(self, receiver: Receiver, handout: Handout) -> None:
        loop, connection = asyncio.get_running_loop(), receiver.connection
        receiver.credit -= 1
        receiver.sent += 1
        receiver.has_delivered = True
        payload, token = bytes(render_delivery(handout)), handout.lock_token
        assert token is not None
        self.count(receiver.entity, OperationKind.DELIVERY, len(payload))

        def arrive() -> None:
            if connection.lost is None and not receiver.is_lost:
                connection.heard = loop.time()
                receiver.received += 1
                receiver.buffer.append((payload, token))
                receiver.arrived.set()

        receiver.answers = max(receiver.answers + _APART, loop.time() + self.travel(receiver.entity))
        loop.call_at(receiver.answers, arrive, context=outside())


def message_id(payload: bytes) -> str:
    """The id of an encoded message."""
    return str(scan(payload).properties.message_id)

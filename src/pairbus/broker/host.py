"""One namespace at work: its engine, its store, its port, its connections, and the turn that binds them.

The turn
1. Whatever one turn of the event loop brings (bytes of any connection, administration, timers) goes to the
   engine at once; what there is to say in return stays inside the connections.
2. At the end of the turn messages are given out to receivers with credit, the store commits the events of the
   turn, and only then do the connections write. Nothing leaves before its commit, and one commit serves all
   that arrived together.
3. If the commit fails the turn has not happened: its answers are thrown away, the engine is rebuilt from the
   store, and every connection is closed with an error, so that each client finds its request unanswered or
   refused, never wrongly confirmed.
"""

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pairbus.amqp import errors as conditions
from pairbus.amqp.limits import Limits as AmqpLimits
from pairbus.amqp.performatives import AmqpError
from pairbus.broker.admin import AdminApi, AdminHttp, Request, Response
from pairbus.broker.attach import SessionWait
from pairbus.broker.consumers import Consumers
from pairbus.broker.counters import Counters, Kind
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.settings import Limits
from pairbus.broker.errors import StoreError
from pairbus.broker.faults import Fault, FaultBoard, Line, Operation
from pairbus.broker.inbox import Inbox
from pairbus.broker.listener import Listener
from pairbus.broker.outbox import Outbox
from pairbus.broker.peer import Peer
from pairbus.broker.plan import Step
from pairbus.broker.policies import Policies
from pairbus.broker.store import Store
from pairbus.broker.tokens import Grant, JwtKey, TokenRejected, check_authorization, check_plain, check_token
from pairbus.clock import Clock

__all__ = ["NamespaceHost"]

T = TypeVar("T")
_log = logging.getLogger("pairbus.broker")


class NamespaceHost:
    """A namespace that listens on a port."""

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        policies: Policies,
        clock: Clock,
        limits: Limits,
        jwt_key: JwtKey | None = None,
    ) -> None:
        self.name = name
        self.policies = policies
        self.counters = Counters()
        self.faults = FaultBoard()
        self.amqp_limits = AmqpLimits()
        self.max_message_size = limits.max_message_size
        self.now, self.monotonic = clock.now, clock.monotonic
        self._limits = limits
        self._store = store
        self._jwt_key = jwt_key
        self.engine = self._load()
        self._consumers = Consumers()
        self._peers: set[Peer] = set()
        self._dirty: set[Peer] = set()
        self._held: list[tuple[asyncio.Future[Response], Response]] = []
        self._connections = 0
        self._turn_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        # The next heartbeat or idle time-out, in the machine's monotonic time, and the next end of a token.
        self._peers_due = math.inf
        self._tokens_end = math.inf
        self._line = Line.UP
        self._listener: Listener | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- life
    # --------------------------------------------------------------------------------------------------------

    def start(self, address: str, port: int, *, tls: Callable[[], ssl.SSLContext]) -> None:
        """Listen on `port`, 0 for any free one, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._listener = Listener(address, port, choose=self._choose, tls=tls)
        self._listener.open()
        self._arm_timer()
        _log.info("namespace listens", extra={"fields": {"namespace": self.name, "port": self.port}})

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._listener is not None, "the namespace has not been started"
        return self._listener.port

    def stop(self) -> None:
        """Close the port, say goodbye to everybody, and let go of the store."""
        self._stop_listening()
        self._end_turn()
        for peer in list(self._peers):
            peer.close(AmqpError(conditions.CONNECTION_FORCED, "The namespace is shutting down.", {}))
        self._rest()

    def kill(self) -> None:
        """Go as by a power cut: nothing is said and nothing more is committed."""
        self._stop_listening()
        self._dirty.clear()
        for peer in list(self._peers):
            peer.reset()
        self._rest()

    def _rest(self) -> None:
        # Connections are lost a little later; by then there is no turn and no timer any more.
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        self._store.close()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def _load(self) -> Namespace:
        engine = Namespace(self.name, limits=self._limits)
        engine.replay(self._store.load(), now=self.now())
        return engine

    # -- connections
    # -------------------------------------------------------------------------------------------------

    def _choose(self, first: bytes, transport: asyncio.Transport) -> asyncio.Protocol:
        if not first.startswith(b"AMQP") and first[:1].isalpha():
            return AdminHttp(self._handle_admin)
        self._connections += 1
        return Peer(self, self._connections)

    def join(self, peer: Peer) -> None:
        """A connection has been made."""
        self._peers.add(peer)
        self._peers_due = -math.inf
        self._arm_timer()

    def part(self, peer: Peer) -> None:
        """A connection has gone."""
        self._peers.discard(peer)
        self._dirty.discard(peer)
        # What it held (a session, credit) may now be somebody else's.
        self._schedule_turn()

    def touch(self, peer: Peer) -> None:
        """A connection may have something to say: flush it at the end of this turn."""
        self._dirty.add(peer)
        self._schedule_turn()

    def later(self, seconds: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        """Do something after a while, in real time."""
        assert self._loop is not None
        return self._loop.call_later(seconds, act)

    # -- receivers
    # ---------------------------------------------------------------------------------------------------

    def enlist(self, outbox: Outbox) -> None:
        """A receiver has attached."""
        self._consumers.enlist(outbox)

    def leave(self, outbox: Outbox) -> None:
        """A receiver has gone."""
        self._consumers.leave(outbox)

    def want(self, outbox: Outbox) -> None:
        """A receiver's credit has changed."""
        self._consumers.want(outbox)

    def await_session(self, wait: SessionWait) -> None:
        """An attach waits for a free session."""
        self._consumers.await_session(wait)

    def stop_waiting(self, chosen: Callable[[SessionWait], bool]) -> None:
        """Attaches that wait for a session no longer do, because they are gone."""
        self._consumers.take_waits(chosen)

    # -- the turn
    # ----------------------------------------------------------------------------------------------------

    def run(self, act: Callable[[Namespace, float], T]) -> T:
        """Do something to the engine, have its links reviewed, and commit before returning."""
        result = act(self.engine, self.now())
        self._review_links()
        self._end_turn()
        return result

    def _schedule_turn(self) -> None:
        if not self._turn_is_due and self._loop is not None:
            self._turn_is_due = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_is_due = False
        if self._loop is None:
            return
        self._dirty |= self._consumers.serve(self.engine, self.now())
        try:
            events = self.engine.take_events()
            if events:
                self._store.commit(events)
        except StoreError as error:
            self._refuse_turn(error)
            return
        dirty, self._dirty = self._dirty, set()
        for peer in dirty:
            peer.flush()
            self._peers_due = min(self._peers_due, peer.due)
            self._tokens_end = min(self._tokens_end, peer.access.next_expiry())
        self._release_answers()
        self._arm_timer()

    def _refuse_turn(self, error: StoreError) -> None:
        _log.error(
            "commit failed, turn refused", extra={"fields": {"namespace": self.name, "reason": str(error)}}
        )
        refusal = AmqpError(
            conditions.INTERNAL_ERROR, f"The namespace could not store the request: {error}", {}
        )
        for peer in list(self._peers):
            peer.close(refusal)
        self._consumers = Consumers()
        for future, _ in self._held:
            future.cancel()
        self._held.clear()
        self._dirty.clear()
        self.engine = self._load()
        self._arm_timer()

    # -- time
    # --------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let time pass: locks and messages expire, schedules come due, faults change, idle lines end."""
        now = self.now()
        self._consumers.touch(now)
        self.engine.tick(now)
        self.faults.expire(now)
        self._apply_line()
        if time.monotonic() >= self._peers_due:
            self._tick_peers()
        if now >= self._tokens_end:
            self._end_tokens(now)
        self._detach_lost_sessions(now)
        self._end_waits()
        self._end_turn()

    def _tick_peers(self) -> None:
        for peer in list(self._peers):
            peer.tick()
            self._dirty.add(peer)
        self._peers_due = min((peer.due for peer in self._peers), default=math.inf)

    def _end_tokens(self, now: float) -> None:
        for peer in list(self._peers):
            peer.access.expire(now)
            peer.detach_unauthorized(now)
        self._tokens_end = min((peer.access.next_expiry() for peer in self._peers), default=math.inf)

    def _end_waits(self) -> None:
        monotonic = self.monotonic()
        if monotonic >= self._consumers.patience_ends:
            for wait in self._consumers.take_waits(lambda wait: wait.until <= monotonic):
                wait.give_up()

    def _arm_timer(self) -> None:
        """Come back when the next thing is due, but no later than now."""
        if self._loop is None:
            return
        now = self.now()
        moments = (self.engine.next_deadline(), self.faults.next_change(now), self._tokens_end)
        waits = [moment - now for moment in moments if moment is not None]
        waits.append(self._consumers.patience_ends - self.monotonic())
        waits.append(self._peers_due - time.monotonic())
        wait = max(0.0, min(waits))
        at = self._loop.time() + wait
        if self._timer is not None:
            # Deadlines mostly move away; a timer that comes a little early is cheaper than one set each turn.
            if not self._timer.cancelled() and self._loop.time() < self._timer_at <= at:
                return
            self._timer.cancel()
        if math.isinf(wait):
            self._timer = None
            return
        self._timer_at = at
        self._timer = self._loop.call_at(at, self.tick)

    # -- faults
    # ------------------------------------------------------------------------------------------------------

    def line(self) -> Line:
        """What the namespace's line does now."""
        return self._line

    def set_fault(self, add: Callable[[FaultBoard, float], Fault]) -> Fault:
        """Add a fault; open connections feel it at once."""
        fault = add(self.faults, self.now())
        _log.warning("fault set", extra={"fields": {"namespace": self.name, **fault.describe()}})
        self._faults_changed()
        return fault

    def apply_step(self, step: Step) -> None:
        """Do what a plan of faults says."""
        step.apply(self.faults, self.now())
        _log.warning(
            "fault plan", extra={"fields": {"namespace": self.name, "kind": step.kind, "entity": step.entity}}
        )
        self._faults_changed()

    def clear_faults(self, entity: str | None = None) -> int:
        """Take away all faults, or those of one entity."""
        cleared = self.faults.clear(entity)
        _log.warning("faults cleared", extra={"fields": {"namespace": self.name, "count": cleared}})
        self._faults_changed()
        return cleared

    def _faults_changed(self) -> None:
        self._apply_line()
        self._review_links()
        self._arm_timer()

    def _apply_line(self) -> None:
        line = self.faults.line(self.now())
        if line is self._line or self._listener is None:
            return
        self._line = line
        self._listener.set_line(line)
        for peer in list(self._peers):
            peer.follow(line)

    def _review_links(self) -> None:
        """After a change of entities or faults: links that would be refused now are detached."""
        now = self.now()
        for peer in list(self._peers):
            for endpoint in list(peer.endpoints.values()):
                error = None
                if isinstance(endpoint, Inbox):
                    error = self._objection(endpoint.path, None, now)
                elif isinstance(endpoint, Outbox):
                    error = self._objection(endpoint.path, endpoint.queue, now)
                if error is not None:
                    peer.detach(endpoint, error)
        for wait in self._consumers.take_waits(lambda wait: True):
            error = self._objection(wait.queue.path, wait.queue, now)
            if error is None:
                self._consumers.await_session(wait)
            else:
                wait.refuse(error)

    def _objection(self, path: str, queue: MessageQueue | None, now: float) -> AmqpError | None:
        """Why a sender at `path`, or a receiver of `queue`, cannot be there any longer."""
        try:
            node = self.engine.node(path)
            if queue is None:
                node.check_send()
            elif node is queue:
                queue.check_receive()
            else:
                return AmqpError(conditions.NOT_FOUND, f"The entity '{path}' was deleted.", {})
        except Refused as refused:
            return AmqpError(refused.condition, refused.description, {})
        if not self.faults.any:
            return None
        if self.faults.refuses_tokens(path, now):
            return AmqpError(conditions.UNAUTHORIZED, "The token of this link is no longer accepted.", {})
        operation = Operation.ATTACH_SENDER if queue is None else Operation.ATTACH_RECEIVER
        return self.faults.severance(operation, path, now=now)

    def _detach_lost_sessions(self, now: float) -> None:
        for peer in list(self._peers):
            for endpoint in list(peer.endpoints.values()):
                if isinstance(endpoint, Outbox) and endpoint.has_lost_session(now):
                    text = "The session lock has expired. Accept the session again."
                    peer.detach(endpoint, AmqpError(conditions.SESSION_LOCK_LOST, text, {}))

    # -- tokens
    # ------------------------------------------------------------------------------------------------------

    def check_token(self, token: str, path: str) -> Grant:
        """The grant that a token gives on `path`; raises TokenRejected."""
        return check_token(token, entity=path, now=self.now(), policies=self.policies, jwt_key=self._jwt_key)

    def check_plain(self, response: bytes) -> Grant:
        """The grant that SASL PLAIN gives; raises TokenRejected."""
        return check_plain(response, policies=self.policies)

    # -- administration
    # ----------------------------------------------------------------------------------------------

    def _handle_admin(self, request: Request) -> Response | Awaitable[Response]:
        assert self._loop is not None
        answer: asyncio.Future[Response] = self._loop.create_future()
        if self._line in (Line.SILENCE, Line.BLACKHOLE):
            return answer
        self.counters.count(request.path, "http", kind=Kind.ADMIN, size=len(request.body))
        api = AdminApi(self.engine, authorize=self._authorize_admin)
        self._held.append((answer, api.handle(request, self.now())))
        self._review_links()
        self._schedule_turn()
        return answer

    def _authorize_admin(self, request: Request) -> None:
        if self.faults.refuses_tokens(request.path, self.now()):
            raise TokenRejected("The token service is not available.")
        check_authorization(
            request.headers,
            entity=request.path,
            now=self.now(),
            policies=self.policies,
            jwt_key=self._jwt_key,
        )

    def _release_answers(self) -> None:
        held, self._held = self._held, []
        for future, response in held:
            if not future.done():
                future.set_result(response)

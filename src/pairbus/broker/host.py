"""One namespace at work: its engine, its store, its port, its connections, and the turn that binds them.

The turn
1. Whatever one turn of the event loop brings (bytes of any connection, administration, timers) goes to the
   engine at once; what there is to say in return stays inside the connections.
2. At the end of the turn messages are given out to receivers with credit, what there is to say is put aside,
   the store commits the events of the turn, and only then do the connections write. Nothing leaves before
   its commit, and one commit serves all that arrived together. The wait for the disk is a thread's
   (`flights`), since other namespaces share the event loop; what arrives meanwhile is the next turn, which is
   decided on top of this one and ends when this one is committed. So whatever is said is founded on
   committed turns. What takes long to hear, to decide or to write is done a little at a time (`arrivals`,
   `decisions`): the turn of this namespace goes on until it is done, and others have theirs in between.
3. If the commit fails, or whatever else between a decision and its commit, the turn has not happened, nor has
   one that was decided on top of it: its answers are thrown away, the engine is rebuilt from the store, on
   the thread too, and every connection is closed with an error, so that each client finds its request
   unanswered or refused, never wrongly confirmed. Clients that connect before the store is read are heard
   after that. (In memory the engine is the only copy: it stays.) An error before the engine was asked ends
   one connection alone, and one in the next turn leaves the turn that is being committed as it is.
4. A store that cannot even be read leaves the namespace with nothing to stand on. Every turn is then refused,
   and the store is tried again with each of them and every second. What is due by time is not tried more
   often than that either, so that a full disk does not keep a core busy.
"""

import asyncio
import logging
import ssl
import traceback
from collections.abc import Callable, Sequence, Set
from typing import TypeVar

from pairbus import conditions
from pairbus.amqp.limits import CodecLimits
from pairbus.amqp.performatives import AmqpError
from pairbus.clock import Clock
from pairbus.fault_kinds import LineState
from pairbus.plumbing.collector import uncollected

from .access.grants import Grant
from .access.policies import Policies, Policy
from .access.tokens import check_token
from .access.web_tokens import JwtKey
from .admin.administration import Administration, AdminLine
from .admin.authorization import rules_at
from .bounded_log import BoundedLog
from .connections import Connections
from .contents import Contents
from .counters import Counters
from .decisions import Decisions
from .engine.errors import Refused
from .engine.events import EngineEvent
from .engine.namespace import Namespace
from .engine.settings import NamespaceLimits
from .errors import StoreError
from .faults.board import FaultBoard
from .faults.desk import FaultDesk
from .flights import Flight, HeldAnswers, StoreThread
from .gate import ConnectionLimits, Visitor
from .links.arrivals import Arrivals, Speaker
from .links.consumers import Consumers
from .links.held_bytes import Burdens
from .links.objections import Objections
from .links.pace import LARGEST_COPIED, MEMBER_READ, MOST_EFFORT, MOST_OUTPUT, Allowance
from .links.peer import Peer
from .links.transactions import Transactions
from .listener import Direct, Listener
from .store.store import Store
from .timekeeping import Timekeeper

T = TypeVar("T")
log = logging.getLogger(__name__)
bounded = BoundedLog(log)
# A message this much too large is still heard out and refused by itself, and its sender's link left alone: a
# link that is gone tells the Python SDK nothing about the message.
MESSAGE_ALLOWANCE = 32 << 20
# Bytes of unfinished messages a connection, beside two of the largest that there may be.
MOST_UNFINISHED = 8 << 20
# Bytes that may come in while the turn before is being committed, however slow the disk is.
MOST_UNCOMMITTED = 64 << 20
# A turn of so few events, a single send, is committed in place if there is no other namespace that this could
# stop: to pass it to a thread and back costs a tenth of such a send. After a larger one more will come.
_FEW = 4
# To write so many takes some milliseconds: more are written a few at a time. Where no other namespace waits
# for that, only what takes a tenth of a second and more: each change to the strand and back costs.
_MANY, _MANY_ALONE = 256, 4096
# A receiver that deletes on receipt settles nothing; it is told of a lost session so many seconds later.
_GRACE = 1.0
_ENGINE = Namespace.__module__.rpartition(".")[0]


class NamespaceHost:
    """A namespace that listens on a port."""

    def __init__(
        self,
        name: str,
        *,
        store: Store,
        policies: Policies,
        clock: Clock,
        limits: NamespaceLimits,
        jwt_key: JwtKey | None = None,
        is_alone: bool = False,
        burdens: Burdens | None = None,
    ) -> None:
        """`is_alone`: there is no other namespace on the event loop. `burdens` are for all namespaces."""
        self.name = name
        self.policies = policies
        self.counters = Counters()
        #: Those that it has a second, if it is limited by them.
        self.credits: int | None = None
        self.connections = Connections(forget=self.counters.forget)
        self.faults = FaultBoard()
        self.fault_desk = FaultDesk(self, self.faults)
        self.objections = Objections(self.faults, self.fault_desk)
        self.administration = Administration(self)
        self.amqp_limits = CodecLimits(
            message_allowance=MESSAGE_ALLOWANCE,
            max_partial_bytes=MOST_UNFINISHED + 2 * limits.largest_message_size,
            max_written=MOST_OUTPUT,
            largest_copied=LARGEST_COPIED,
            max_read_effort=MOST_EFFORT,
        )
        self.limits = limits
        self.engine = self._empty_engine()
        self._is_alone = is_alone
        self._most_at_once = _MANY_ALONE if is_alone else _MANY
        self.burdens = burdens or Burdens(limits.largest_message_size)
        self._store = store
        self._thread = StoreThread(store, name)
        self.contents = Contents(store, self._thread, fail=self.refuse_turn)
        self.decisions = Decisions(name)
        self.time = Timekeeper(self, clock)
        self.now, self.monotonic = self.time.now, self.time.monotonic
        self.transactions = Transactions(self.monotonic, self.later)
        self.jwt_key = jwt_key
        try:
            self.engine = self._load(self.now())
        except StoreError:
            store.close()
            raise
        # Why the store could not be read after a failed commit; the engine is then an empty one.
        self._unread: StoreError | None = None
        #: Who receives; a turn that is refused puts a new one here.
        self.consumers = Consumers()
        self.read_buffer: memoryview = memoryview(bytearray(MEMBER_READ))
        self.allowance: Allowance = Allowance()
        self.peers: set[Peer] = set()
        self.arrivals = Arrivals(self._await_turn, may_go_on=self.time.catch_up)
        self._dirty: set[Peer] = set()
        # What the thread of the store does; who speaks when it has committed; whether the next turn waits.
        self._flight: Flight | None = None
        self._staged: set[Peer] = set()
        self._turn_waits = False
        #: Bytes that this turn has taken in.
        self.uncommitted = 0
        #: What is told when the turn is committed, beside what connections say.
        self.answers = HeldAnswers()
        # Whether the event loop comes to its end, to hear who was read; whether it is to be committed then.
        self._turn_is_awaited = self._turn_is_due = False
        self._listener: Listener | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    # -- life

    def start(
        self, address: str, port: int, *, tls: Callable[[], ssl.SSLContext], limits: ConnectionLimits
    ) -> None:
        """Listen on `port`, 0 for any free one, on the running event loop."""
        self.loop = asyncio.get_running_loop()
        self._listener = Listener(
            address, port, choose=self._choose, tls=tls, limits=limits, monotonic=self.monotonic
        )
        self._listener.open()
        self.time.arm()
        log.info("namespace listens", extra={"fields": {"namespace": self.name, "port": self.port}})

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._listener is not None, "the namespace has not been started"
        return self._listener.port

    @property
    def trouble(self) -> StoreError | None:
        """Why nothing can be decided, if that is so: the store cannot be read."""
        return self._unread

    def stop(self) -> None:
        """Close the port, say goodbye to everybody, and let go of the store."""
        self._stop_listening()
        self._settle()
        self.engine.note_uses()
        self.end_turn()
        self._settle()
        for peer in list(self.peers):
            goodbye = AmqpError(conditions.CONNECTION_FORCED, "The namespace is shutting down.", {})
            peer.close(goodbye, lingers=False)
        self._rest()

    def kill(self) -> None:
        """Go as by a power cut: nothing is said and nothing more is committed."""
        self._stop_listening()
        self.decisions.close()
        self._dirty.clear()
        self._flight = None
        for peer in list(self.peers):
            peer.reset()
        self._rest()

    def _rest(self) -> None:
        # Connections are lost a little later; by then there is no turn and no timer any more.
        self.loop = None
        self.time.stop()
        self.decisions.close()
        self.contents.close()
        self._thread.close()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def _empty_engine(self) -> Namespace:
        return Namespace(self.name, limits=self.limits, created_at=self.policies.made_at)

    def _load(self, now: float) -> Namespace:
        engine = self._empty_engine()
        try:
            with uncollected():
                engine.replay(self._store.load(), now=now)
        except StoreError:
            raise
        except Exception as error:
            raise StoreError(f"the store of {self.name} contradicts itself: {error}") from error
        return engine

    # -- connections

    def _choose(
        self, first: bytes, transport: asyncio.Transport, visitor: Visitor
    ) -> asyncio.Protocol | Direct:
        if not first.startswith(b"AMQP") and first[:1].isalpha():
            return AdminLine(self, self._register("http", transport), visitor)
        return self.make_peer("amqp", transport, visitor)

    def make_peer(self, protocol: str, transport: asyncio.Transport, visitor: Visitor) -> Peer:
        """Whoever speaks AMQP on this line."""
        return Peer(self, self._register(protocol, transport), visitor)

    def _register(self, protocol: str, transport: asyncio.Transport) -> str:
        return self.connections.add(protocol, transport.get_extra_info("peername"), self.now()).name

    def join(self, peer: Peer) -> None:
        """A connection has been made."""
        self.peers.add(peer)

    def part(self, peer: Peer) -> None:
        """A connection has gone."""
        self.peers.discard(peer)
        self._dirty.discard(peer)
        info = self.connections.close(peer.name, self.now(), is_stranger=not peer.machine.trusted)
        if info is not None:
            facts = {**self._fields(peer), "container": info.container_id}
            bounded.tell(logging.INFO, "connection closed", facts)
        self._schedule_turn()  # what it held (a session, credit) may now be somebody else's

    def _fields(self, peer: Speaker) -> dict[str, str]:
        return {"namespace": self.name, "connection": peer.name}

    def touch(self, peer: Peer) -> None:
        """A connection may have something to say: flush it at the end of this turn."""
        self._dirty.add(peer)
        self._schedule_turn()

    # -- the turn

    def run(self, act: Callable[[Namespace, float], T]) -> T:
        """Do something to the engine, have its links reviewed, and commit before returning.

        All stands still meanwhile: for the event loop's own thread. `perform` is for all others.
        """
        self._settle()
        if self._unread is not None:
            self._rebuild()
            self._settle()
        result, waiting = self._act(act), self._await_commit()
        self.end_turn()
        self._settle()
        if waiting.done() and (refused := waiting.result()) is not None:
            raise refused
        return result

    async def perform(self, act: Callable[[Namespace, float], T]) -> T:
        """Do something to the engine as `run` does, and let others go on meanwhile."""
        if self._unread is not None:
            self._rebuild()
        while self._flight is not None and self._flight.is_load:
            await self._flight.landed()
        begun: asyncio.Future[tuple[T, asyncio.Future[Exception | None]]]
        begun = asyncio.get_running_loop().create_future()

        def begin() -> None:
            if begun.done():  # nobody waits for it any more
                return
            try:
                begun.set_result((self._act(act), self._await_commit()))
            except Exception as error:  # noqa: BLE001 - it is raised where it is awaited
                begun.set_exception(error)
            self._schedule_turn()

        self.decisions.when_free(begin)
        result, waiting = await begun
        refused = await waiting
        if refused is not None:
            raise refused
        return result

    def _await_commit(self) -> asyncio.Future[Exception | None]:
        """What tells that the turn is committed, or why it was refused."""
        waiting: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.answers.hold(waiting, lambda refused: refused)
        return waiting

    def _act(self, act: Callable[[Namespace, float], T]) -> T:
        if self._unread is not None:
            raise self._unread
        noted = self.engine.noted
        try:
            result = act(self.engine, self.now())
            self._review_links(self.engine.changed_since(noted))
        except Refused:
            raise
        except Exception as error:
            self.undo_half(error, noted)
            raise
        return result

    def _schedule_turn(self) -> None:
        self._turn_is_due = True
        self._await_turn()

    def _await_turn(self) -> None:
        if not self._turn_is_awaited and self.loop is not None:
            self._turn_is_awaited = True
            self.loop.call_soon(self.decisions.when_free, self._take_turn)

    def _take_turn(self) -> None:
        """All that were ready have been read: hear them, and end the turn if it has brought anything."""
        try:
            is_whole = self.arrivals.serve()
        finally:
            self._turn_is_awaited = False
        if is_whole and self._turn_is_due:
            self.end_turn()
        if self.arrivals:
            self._await_turn()

    def end_turn(self) -> None:
        """Give out, and commit; not before what is being committed or decided has come to its end."""
        self._turn_is_due = False
        if self.loop is None:
            return
        if self._flight is not None or self.decisions.are_made:
            if not self._turn_waits:
                self._turn_waits = True
                self.decisions.when_free(self._end_waiting_turn)
            return
        self._turn_waits = False
        try:
            self._detach_lost_sessions()
            self._dirty |= self.consumers.serve(self.engine, self.now())
            if self.consumers.is_behind:
                self._schedule_turn()
            if self._unread is not None:
                raise self._unread
            events = self.engine.take_events()
            self.uncommitted = 0
            self._stage()
            if events and self._store.remembers:
                if len(events) > self._most_at_once:
                    self.decisions.make(lambda: self._prepare(events), self._take_off)
                    return
                finish = self._prepare(events)
                if len(events) > _FEW or not self._is_alone or finish != self._store.finish:
                    self._flight = self._thread.commit(finish, self._on_landed)
                    return
                finish()
                self.contents.settle()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told and undone
            self.refuse_turn(error)
            return
        self._speak()

    def _end_waiting_turn(self) -> None:
        if self._turn_waits and self._flight is None:
            self.end_turn()

    def _prepare(self, events: Sequence[EngineEvent]) -> Callable[[], None]:
        self.contents.note(events)
        return self._thread.prepare(events)

    def _take_off(self, prepared: Callable[[], Callable[[], None]]) -> None:
        try:
            self._flight = self._thread.commit(prepared(), self._on_landed)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told and undone
            self.refuse_turn(error)

    def _stage(self) -> None:
        """Put aside what the turn has to say, apart from what the next one will have."""
        self._staged, self._dirty = self._dirty, set()
        for peer in self._staged:
            peer.stage()
        self.answers.stage()

    def _speak(self) -> None:
        """Say what was put aside: it is committed."""
        staged, self._staged = self._staged, set()
        for peer in staged:
            self._flush(peer)
        self.answers.release()
        self.time.arm()

    # -- the thread of the store

    @property
    def is_loading(self) -> bool:
        """Whether the namespace is being read again, so that nothing can be decided."""
        return self._flight is not None and self._flight.is_load

    @property
    def is_burdened(self) -> bool:
        """Whether so much waits for the turn before it to be committed that nobody is heard meanwhile."""
        return self.uncommitted > MOST_UNCOMMITTED and self._flight is not None

    def _on_landed(self, flight: Flight) -> None:
        self._land(flight)
        self.decisions.when_free(self._end_waiting_turn)

    def _land(self, flight: Flight) -> None:
        """Deal with what came of a commit or a load, once."""
        if self._flight is flight and flight.error is not None:
            self.decisions.finish()  # on top of what has failed; while the flight is there, no turn ends
        if self._flight is not flight:
            return
        self._flight = None
        if flight.is_load:
            self._take_load(flight)
        elif flight.error is not None:
            self.refuse_turn(flight.error)
        else:
            noted = self.contents.take_noted()
            # Whatever is being decided: the next turn will put aside what it has to say in the same place.
            self._speak()
            self.contents.keep(noted)
        flight.tell()

    def _settle(self) -> None:
        """Wait for what is under way, and let nothing else happen."""
        while self._flight is not None or self.decisions.are_made:
            self.decisions.finish()
            if (flight := self._flight) is not None:
                flight.block()
                self._land(flight)

    def _take_load(self, flight: Flight) -> None:
        if flight.error is None:
            self.engine, self._unread = flight.result, None
        else:
            error = flight.error
            self._unread = error if isinstance(error, StoreError) else StoreError(str(error))
            fields = {"namespace": self.name, "reason": str(error)}
            log.error("the store cannot be read", extra={"fields": fields})
        self.time.arm()

    def _flush(self, peer: Peer) -> None:
        try:
            peer.flush()
        except Exception:  # what it was to be told is true, but it alone goes without
            log.exception("a connection cannot be written to", extra={"fields": self._fields(peer)})
            peer.reset()

    def undo_half(self, error: Exception, noted: int) -> bool:
        """Refuse the turn if an unforeseen error may have left it half done; whether it was."""
        if not self.is_half_done(error, noted):
            return False
        self.refuse_turn(error)
        return True

    def is_half_done(self, error: Exception, noted: int) -> bool:
        """Whether an operation that has failed may have done a part of what it was to do."""
        return self.engine.noted != noted or _failed_in_engine(error)

    def refuse_turn(self, error: Exception) -> None:
        """Let the turn not have happened: nothing of it is said, and nothing kept."""
        self.decisions.finish()
        flight = self._flight
        if flight is not None and not flight.is_load:
            # The turn before is still being committed, and its answers are true if it is.
            flight.block()
            self._land(flight)
            if flight.error is not None:
                return  # all has been refused with it
        fields = {"namespace": self.name, "reason": str(error) or repr(error)}
        is_foreseen = isinstance(error, StoreError)
        log.error("turn refused", extra={"fields": fields}, exc_info=None if is_foreseen else error)
        reason = error if is_foreseen else "it failed on it. Its log says why."
        text = f"The namespace could not store the request: {reason}"
        refusal = AmqpError(conditions.INTERNAL_ERROR, text, {})
        self._rebuild()  # first: from here on no turn ends before the store has been read
        for peer in {*self.peers, *self.arrivals}:  # some whose lines are lost
            self._dismiss(peer, refusal)
        self.consumers, self.objections = Consumers(), Objections(self.faults, self.fault_desk)
        self.answers.refuse(error)
        self._dirty.clear()
        self.time.arm()

    def _dismiss(self, peer: Speaker, refusal: AmqpError) -> None:
        try:
            peer.close(refusal)
        except Exception:  # the engine that has failed is asked once more, to let go of what the peer held
            log.exception("a connection is cut", extra={"fields": self._fields(peer)})
            peer.reset()

    def _rebuild(self) -> None:
        """Take the engine back to what the store holds."""
        self.time.pause()
        if not self._store.remembers:
            self.engine.drop_events()
            return
        if self.is_loading:
            return
        self.engine = self._empty_engine()
        self._unread = StoreError(f"{self.name} is being read again after a failure. Try again in a moment.")
        now = self.now()
        self._flight = self._thread.load(lambda: self._load(now), self._on_landed)

    # -- time

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something after a while, by the broker's clock."""
        self.time.later(seconds, act)

    def tick(self) -> None:
        """Let time pass, and all that is due be done, before returning."""
        self.decisions.finish()
        self.time.pass_by()
        self.decisions.finish()

    def end_strangers(self) -> None:
        """End the connections that have shown no token in time."""
        if self._listener is not None:
            self._listener.gate.tick()

    # -- faults

    def follow_line(self, line: LineState) -> None:
        """Let the port and all connections behave as the line does from now on."""
        if self._listener is not None:
            self._listener.set_line(line)
        for peer in list(self.peers):
            peer.follow(line)

    def review(self, changed: Set[str] | None = None) -> None:
        """Entities, or faults, have changed: see what that means for the links that are open."""
        self.decisions.when_free(lambda: self._review_links(changed))
        self._schedule_turn()

    def _review_links(self, changed: Set[str] | None) -> None:
        self.objections.review(changed, self.consumers, self.engine, self.now())

    def _detach_lost_sessions(self) -> None:
        for lock in self.engine.take_lost_sessions():
            reader = self.consumers.reader_of(lock)
            if reader is not None and reader.deletes:
                self.later(_GRACE, reader.lose_session)
            elif reader is not None:
                reader.lose_session()

    # -- tokens

    def check_token(self, token: str, path: str) -> Grant:
        """The grant that a token gives on `path`; raises TokenRejected."""
        return check_token(
            token,
            entity=path,
            now=self.now(),
            policies=self.policies,
            jwt_key=self.jwt_key,
            rules=self.entity_rules,
        )

    def entity_rules(self, path: str) -> tuple[Policy, ...]:
        """The policies that a queue or topic has of its own."""
        return rules_at(self.engine, path)


def _failed_in_engine(error: Exception) -> bool:
    return any(
        frame.f_globals.get("__name__", "").startswith(_ENGINE)
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )

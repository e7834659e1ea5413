"""One AMQP connection to a namespace: a thin shell between a socket, the protocol machine and the engine.

1. Bytes go into the machine; its events are handed to the endpoint of the link that they concern. What the
   machine wants to say stays in it until the host flushes the peer at the end of the turn.
2. It does no more in one turn than its share (`pace`). What is left waits, from the newest to the oldest, in
   `_input`, in the machine and in `_todo`, and nothing is read meanwhile. (One that has said little and
   waits for its share is told to stop only when it says more, see `LITTLE`.)
3. Answers that cannot leave hold up what asks for more: while the socket takes no bytes (`_is_clogged`), or
   enough for one turn waits to be flushed (`is_full`), nothing is read, done or given out. Whoever reads
   nothing for `read_timeout` is cut.
4. Heartbeats and idle time-outs are each connection's own (`machine`).
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pairbus import conditions
from pairbus.amqp.events import (
    Closed,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    Opened,
    ProtocolEvent,
    SaslInitReceived,
    SessionBegun,
    SessionEnded,
    Settled,
    TransferReceived,
)
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import AmqpError
from pairbus.broker.access.grants import Access, Grant, TokenRejected
from pairbus.broker.access.tokens import check_plain
from pairbus.broker.bounded_log import BoundedLog
from pairbus.broker.contents import NotAtHand
from pairbus.broker.gate import CROWDED, Visitor
from pairbus.broker.listener import cut
from pairbus.broker.websocket import Carried
from pairbus.fault_kinds import LineState
from pairbus.plumbing.each import call_each

from .attach import attach_link
from .endpoint import LinkEndpoint
from .machine import Clog, Farewell, Heartbeat, make_machine
from .pace import LITTLE, MEMBER_SLICE, MOST_OUTPUT, STRANGER_READ, STRANGER_SLICE
from .requests import MOST_WAITING_BYTES, AnswerEndpoint, AnswerLinks, RequestEndpoint

if TYPE_CHECKING:
    from pairbus.broker.host import NamespaceHost

T = TypeVar("T")
log = logging.getLogger(__name__)
bounded = BoundedLog(log)
# How often one looks whether its namespace has been read again, or has committed what it holds.
BUSY_PAUSE = 0.02


class Peer(Carried):
    """A client's connection."""

    def __init__(self, host: "NamespaceHost", name: str, visitor: Visitor) -> None:
        self.host = host
        self.name = name
        self._visitor = visitor
        self.access = Access(host.name)
        self.endpoints: dict[Link, LinkEndpoint] = {}
        self.answers = AnswerLinks()
        self.machine = make_machine(host.name, host.amqp_limits, credits=host.credits, now=time.monotonic())
        self.buffer = host.read_buffer[:STRANGER_READ]
        #: Enough for one turn waits to be written. Links that were to get more are in `starved`.
        self.is_full = False
        self.starved: dict[LinkEndpoint, None] = {}
        self._transport: asyncio.Transport | None = None
        self._input = b""
        self._todo: deque[ProtocolEvent] = deque()
        self._output = 0
        self._is_busy = False  # something is left for the next turn
        self._is_waiting = False  # for the disk, or for something to be decided
        self._is_clogged = False
        self._clog = Clog(host.later, self._cut_unread)
        self._is_heavy = False  # something of what it is to be told waits
        self._reads = True
        self._has_said_all = False
        self._doomed = False
        self._mute = False
        self.is_stopped = False  # as a black hole does
        self._closing = False
        self.farewell = Farewell(self._hang_up)
        self._heartbeat = Heartbeat(self.machine, self._beat, is_unheard=self._is_unheard)
        self._is_crowded_out = False
        # What is to be said when the turn is committed, and whether the line is then cut or closed.
        self._staged = b""
        self._is_cut = False
        self._is_last_word = False

    # -- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._visitor.cut = self._turn_away
        self.host.join(self)

    def data_received(self, data: bytes) -> None:
        if self.is_deaf:
            return
        if self._closing:
            self.farewell.listen(data)
            return
        self._input = self._input + data if self._input else data
        if not self._is_busy:
            self._is_busy = True
            self.host.arrivals.add(self)
        if self._reads and len(self._input) > LITTLE:
            self._adjust_reading()

    def eof_received(self) -> bool:
        """Who shuts down the writing side alone is answered, and then let go. TLS has no such side."""
        has_side = self._transport is not None and self._transport.can_write_eof()
        if not has_side or self._mute or self.farewell.has_begun or not self.machine.trusted:
            return False
        self._has_said_all = True
        self.host.arrivals.add(self)
        return True

    @property
    def is_deaf(self) -> bool:
        return self._mute or (self._closing and not self.farewell.has_begun)

    @property
    def _hears(self) -> bool:
        """Whether what has come is done."""
        return not (self._closing or self._mute or self.is_stopped)

    @property
    def _has_more(self) -> bool:
        return bool(self._todo or self._input or self.machine.has_more)

    def charge(self, seconds: float) -> None:
        if not self.machine.trusted:
            self.host.allowance.spend(seconds)

    # -- the share of a turn

    def work(self) -> None:
        """Do what has come, as far as the share of one turn goes."""
        if self._is_waiting:
            return
        self._is_busy = False
        if self._transport is None and self._is_heard_out:
            self._let_go()
            return
        if not self._hears:
            self._adjust_reading()
            return
        if self.is_full:
            self._go_on_later()
            return
        if self.host.is_loading or self.host.is_burdened:
            self._go_on_later(BUSY_PAUSE)
            return
        now, is_stranger = time.monotonic(), not self.machine.trusted
        if is_stranger and (wait := self.host.allowance.wait(now)):
            self._go_on_later(wait)
            return
        has_happened = self._read_and_do(now, now + (STRANGER_SLICE if is_stranger else MEMBER_SLICE))
        if is_stranger:
            self.host.allowance.spend(time.monotonic() - now)
        self.host.burdens.unfinished.note(self, self.machine.partial_bytes)
        if self._is_waiting or self._has_more or self._transport is None:
            self._go_on_later()
        elif self._has_said_all and not (self.is_full or self.machine.is_held_up):
            self.machine.close()
            self._on_closed(Closed(None, local=True))
        elif not self._reads:
            self._adjust_reading()
        if has_happened or self._closing or self.machine.has_to_say:
            self.host.touch(self)

    def _read_and_do(self, now: float, until: float) -> bool:
        """Do what the bytes at hand mean; whether that is anything, and not a part of a message."""
        if not self._todo:
            data, self._input = self._input, b""
            try:
                self._todo.extend(self.machine.receive_data(data, now))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told and undone
                self._fail(error, self.host.engine.noted)
                return True
        has_happened = bool(self._todo)
        self._do(until)
        return has_happened

    def _do(self, until: float) -> None:
        todo, done, decisions = self._todo, 0, self.host.decisions
        while todo:
            event = todo.popleft()
            noted = self.host.engine.noted
            try:
                _HANDLERS[type(event)](self, event)
            except NotAtHand as absent:
                todo.appendleft(event)
                self._await(absent)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told and undone
                self._fail(error, noted)
                return
            done += 1
            if self._is_waiting or decisions.are_made or self.is_full:
                return
            if (not done & 3 or type(event) is TransferReceived) and time.monotonic() >= until:
                return

    def _await(self, absent: NotAtHand) -> None:
        """Do nothing more until this has been read."""
        self._is_waiting = True
        self.host.contents.bring_absent(absent, self.host.engine, self._stop_waiting)

    def _stop_waiting(self) -> None:
        self._is_waiting = False
        self.host.arrivals.add(self)

    def at_length(self, event: ProtocolEvent, act: Callable[[], T], then: Callable[[T], None], /) -> None:
        """Do for an event what may take long; nothing more is done for this client before it is done."""
        noted, is_late = 0, False

        def perform() -> T:
            nonlocal noted
            noted = self.host.engine.noted
            return act()

        def conclude(outcome: Callable[[], T]) -> None:
            self._is_waiting = False
            try:
                then(outcome())
            except NotAtHand as absent:
                self._todo.appendleft(event)
                self._await(absent)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told and undone
                self._fail(error, noted)
            self.host.touch(self)
            if is_late:
                self.host.arrivals.add(self)

        self._is_waiting = True
        self.host.decisions.make(perform, conclude)
        is_late = True

    def _go_on_later(self, wait: float = 0.0) -> None:
        """In the next turn, or when what is to be said has left, or what is waited for has come."""
        self._is_busy = True
        self._adjust_reading()
        if wait:
            asyncio.get_running_loop().call_later(wait, self.host.arrivals.add, self)
        elif not (self._is_waiting or (self.is_full and self._transport is not None)):
            self.host.arrivals.add(self)

    def _adjust_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        reads = not (self._is_busy or self._is_clogged or self.is_stopped)
        if reads is not self._reads:
            self._reads = reads
            (transport.resume_reading if reads else transport.pause_reading)()

    # -- a client that does not read

    def spend(self, size: int) -> None:
        """So many bytes are to be written at the end of the turn."""
        self._output += size
        if self._output >= MOST_OUTPUT:
            self.is_full = True

    def pause_writing(self) -> None:
        """The socket takes no more for now. Called by the transport."""
        assert self._transport is not None
        self._is_clogged = self.is_full = True
        self._adjust_reading()
        self._clog.begin(self._transport, self._visitor.limits.read_timeout)

    def resume_writing(self) -> None:
        """The socket takes bytes again. Called by the transport."""
        self._is_clogged = False
        self._clog.end()
        self._adjust_reading()
        self.host.touch(self)

    def _cut_unread(self) -> None:
        bounded.tell(logging.WARNING, "a client that does not read is cut", self._fields())
        self.reset()

    def _relieve(self) -> None:
        """There is room again: go on with what was held up."""
        self.is_full = False
        starved, self.starved = self.starved, {}
        for endpoint in starved:
            endpoint.on_room()
            self.host.touch(self)
        if self._is_busy or self._has_said_all:
            self.host.arrivals.add(self)

    def _turn_away(self, reason: str) -> None:
        """It has stayed a stranger for too long, or others wait for its place."""
        self.close(AmqpError(conditions.UNAUTHORIZED, reason, {}), lingers=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.host.burdens.unread.note(self, 0)
        self._visitor.leave()
        self.starved.clear()
        self._heartbeat.stop()
        self._clog.end()
        self.host.arrivals.add(self)
        self.host.part(self)

    @property
    def _is_heard_out(self) -> bool:
        """What was read of a member before its line was lost counts, though the answers go nowhere."""
        has_more = self.machine.trusted and self._hears and self._has_more
        return not has_more or self.is_full or self.host.is_loading

    def _let_go(self) -> None:
        self._closing = True
        self.host.burdens.unfinished.note(self, 0)
        try:
            self._drop_endpoints()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told and undone
            self.host.refuse_turn(error)

    @property
    def is_open(self) -> bool:
        """Whether the socket is there and nobody has said goodbye."""
        return self._transport is not None and not self._closing

    def stage(self) -> None:
        """Put aside what the machine has to say. Called by the host when a turn ends, before its commit."""
        self._is_cut, self._is_last_word = self._doomed, self._closing
        if not self._is_barred:
            self._staged += self.machine.data_to_send()

    def flush(self) -> None:
        """Write what was put aside. Called by the host, after the turn's commit."""
        if self._is_cut:
            self.reset()
        if self._transport is None or self._is_cut or self._is_barred:
            return
        data, self._staged = self._staged, b""
        if data:
            self._transport.write(data)
        self._output = 0
        if self._is_last_word:
            self._end()
            return
        if self.machine.is_held_up:  # go on with a message that is too large for one turn
            for link in self.machine.write_more():
                self.endpoints[link].on_room()
            self.host.touch(self)
        if self._is_clogged or self._is_heavy or self.machine.waiting_bytes or self.answers.waiting_bytes:
            self._weigh()
        if (self.is_full or self._has_said_all) and not (self._is_clogged or self.machine.is_held_up):
            self._relieve()
        self._heartbeat.arm()

    def _weigh(self) -> None:
        """Tell how much waits until this client reads it, opens its windows, or gives credit for it."""
        assert self._transport is not None
        waiting = self.machine.waiting_bytes + self.answers.waiting_bytes
        if self._is_clogged:
            waiting += self._transport.get_write_buffer_size()
        self._is_heavy = waiting > 0
        self.host.burdens.unread.note(self, waiting)

    def _end(self) -> None:
        """Our last word is said."""
        if not self.farewell.is_due or self._has_said_all:
            self._hang_up()
            return
        self.farewell.begin()
        self._input, self._is_busy = b"", False
        self._adjust_reading()

    def _hang_up(self) -> None:
        """The end comes when all is written; but not for one that does not read."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.close()
            if transport.get_write_buffer_size():
                self.host.later(self._visitor.limits.read_timeout, self.reset)

    def _is_unheard(self) -> bool:
        """Whether what it says waits: here, or in its socket, as long as nothing is read from that."""
        return (bool(self._input) or not self._reads) and not (self._mute or self.is_stopped)

    def _beat(self, events: list[ProtocolEvent]) -> None:
        """Do what did not come with a read, its end. A mere heartbeat lets nothing be done that waits."""
        self._todo.extend(events)
        if events and not self._is_waiting:
            self.host.decisions.when_free(lambda: self._do(math.inf))
        self.host.touch(self)

    def delay_of_answer(self, path: str) -> float:
        """How much later the answer to this send leaves. It may be lost, its line cut after the commit."""
        faults, now = self.host.faults, self.host.now()
        if faults.any and faults.drops(path, now):
            self._doomed = True
        return faults.delay(path, now) if faults.any else 0.0

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Say something after a while, if the line is there then."""

        def act_if_open() -> None:
            if self.is_open:
                act()
                self.host.touch(self)

        self.host.later(seconds, act_if_open)

    def reset(self) -> None:
        """Cut the line at once, with a reset."""
        if self._transport is not None:
            self._mute = True  # nor is heard what has come
            cut(self._transport)

    def close(self, error: AmqpError | None, *, lingers: bool = True) -> None:
        """Say goodbye, forget what was not said, and close; `lingers`: the client may say its own."""
        self.machine.data_to_send()
        self._staged = b""
        self.machine.close(error)
        self.farewell.is_due = lingers and self.machine.remote_open is not None
        self._closing = True
        self._todo.clear()
        self.host.decisions.when_free(self._drop_endpoints)
        if self._is_held:
            self.reset()  # a mute line says no goodbye
        else:
            self.stage()
            self.flush()

    @property
    def _is_barred(self) -> bool:
        """Whether nothing can be written for now."""
        return self._is_held or (self._is_clogged and not self._closing)

    @property
    def _is_held(self) -> bool:
        return self._mute or self.host.fault_desk.line is LineState.BLACKHOLE

    def follow(self, line: LineState) -> None:
        """Do as the namespace's line does from now on."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if line in (LineState.REFUSE, LineState.RESET) or (self._mute and line is LineState.UP):
            self.reset()  # what a silent line swallowed is lost, so that it cannot be taken up again
        else:
            self.is_stopped = line is LineState.BLACKHOLE
            self._mute = line is LineState.SILENCE or (self._mute and self.is_stopped)
            self._adjust_reading()
            self.host.touch(self)
            self.host.arrivals.add(self)  # with what was read before the line stopped

    # -- events of the machine

    def _fail(self, error: Exception, noted: int) -> None:
        """Something went wrong that nobody foresaw: the turn is refused, or this connection alone ends."""
        if not self.host.undo_half(error, noted):
            log.error("connection ended by an error", extra={"fields": self._fields()}, exc_info=error)
            self.close(AmqpError(conditions.INTERNAL_ERROR, "The broker failed on this connection.", {}))
        self._closing = True  # also if its line is lost, and nobody but itself knows of it

    def _on_sasl_init(self, event: SaslInitReceived) -> None:
        """Who comes without a name may go on, but attaches nothing before it has put a token."""
        is_welcome = True
        if event.mechanism == "PLAIN":
            try:
                self.take_grant(check_plain(event.initial_response or b"", policies=self.host.policies), "")
            except TokenRejected as rejected:
                is_welcome = False
                bounded.tell(logging.WARNING, "sasl refused", {**self._fields(), "reason": str(rejected)})
        self._todo.extend(self.machine.sasl_outcome(is_welcome))
        self._closing = self._closing or not is_welcome

    def _on_opened(self, event: Opened) -> None:
        info = self.host.connections.introduce(
            self.name, container_id=event.open.container_id, client=event.open.properties
        )
        self.access.known_as = event.open.hostname or self.access.known_as
        if info is not None:
            facts = {**self._fields(), "container": info.container_id, "address": info.address}
            bounded.tell(logging.INFO, "connection opened", facts)
        if self._is_crowded_out:
            self.close(AmqpError(conditions.RESOURCE_LIMIT, CROWDED, {}))

    def _on_link_flowed(self, event: LinkFlowed) -> None:
        if (endpoint := self._attentive(event.link)) is not None:
            endpoint.on_flow(event)

    def _on_received(self, event: TransferReceived) -> None:
        endpoint = self._attentive(event.link)
        # Requests are asked for the sake of their answers, which nobody would hear.
        is_in_vain = self._transport is None and isinstance(endpoint, RequestEndpoint)
        if endpoint is not None and not is_in_vain:
            endpoint.take_messages(event, self._todo)

    def _on_settled(self, event: Settled) -> None:
        if (endpoint := self._attentive(event.link)) is not None:
            endpoint.take_settlements(event, self._todo)

    def _attentive(self, link: Link) -> LinkEndpoint | None:
        """What stands behind a link, unless its entity is mute: then what was asked is lost."""
        endpoint = self.endpoints.get(link)
        faults, desk = self.host.faults, self.host.fault_desk
        if endpoint is None or not (faults.any and endpoint.path and desk.is_mute(endpoint.path)):
            return endpoint
        endpoint.is_owed_an_answer = True
        return None

    def _on_closed(self, event: Closed) -> None:
        error = event.error
        if event.local and error is not None:
            fields = {**self._fields(), "condition": error.condition, "reason": error.description}
            bounded.tell(logging.WARNING, "connection ended by a protocol error", fields)
            self.farewell.is_due = self.machine.remote_open is not None
        self._closing = True
        self.host.decisions.when_free(self._drop_endpoints)

    # -- links

    def add(self, endpoint: LinkEndpoint) -> None:
        """Let `endpoint` stand behind its link."""
        self.endpoints[endpoint.link] = endpoint
        self.host.objections.enter(endpoint, self)
        if isinstance(endpoint, AnswerEndpoint):
            self.answers.add(endpoint)

    def forget(self, link: Link) -> None:
        """A link is gone: so is what stood behind it."""
        endpoint = self.endpoints.pop(link, None)
        if endpoint is None:
            return
        self.host.objections.leave(endpoint)
        if isinstance(endpoint, AnswerEndpoint):
            self.answers.remove(endpoint)
        endpoint.on_detached()

    def detach(self, endpoint: LinkEndpoint, error: AmqpError) -> None:
        """Close one link with an error."""
        endpoint.link.detach(error)
        self.forget(endpoint.link)
        self.host.touch(self)

    def take_grant(self, grant: Grant, audience: str) -> None:
        """A token was shown: no stranger any more. If it gives less than before, links end."""
        if not self._visitor.admit():
            self._is_crowded_out = True
            if self.machine.remote_open is not None:  # before it there are no words for it
                self.close(AmqpError(conditions.RESOURCE_LIMIT, CROWDED, {}))
            return
        self.machine.trust()
        self.buffer = self.host.read_buffer
        self.answers.most_waiting = MOST_WAITING_BYTES
        self.host.time.note_token(grant.expires_at)
        if self.access.add(grant, audience):
            self.detach_unauthorized(self.host.now())

    def detach_unauthorized(self, now: float) -> None:
        """A link lives no longer than the token that it was attached with, and as long as that allows it."""
        text = "The token has expired, or a newer one allows less. Put one with the claim on $cbs in time."
        error = AmqpError(conditions.UNAUTHORIZED, text, {})
        for endpoint in list(self.endpoints.values()):
            if (needed := endpoint.needs) is not None and not self.access.allows(*needed, now=now):
                self.detach(endpoint, error)

    def _drop_endpoints(self) -> None:
        call_each([partial(self.forget, link) for link in self.endpoints])

    def _fields(self) -> dict[str, Any]:
        return {"namespace": self.host.name, "connection": self.name}


_HANDLERS: dict[type[ProtocolEvent], Callable[[Peer, Any], None]] = {
    SaslInitReceived: Peer._on_sasl_init,
    Opened: Peer._on_opened,
    SessionBegun: lambda peer, event: None,  # sessions need nothing of ours
    LinkAttached: attach_link,
    LinkFlowed: Peer._on_link_flowed,
    TransferReceived: Peer._on_received,
    Settled: Peer._on_settled,
    LinkDetached: lambda peer, event: peer.forget(event.link),
    SessionEnded: lambda peer, event: call_each([partial(peer.forget, link) for link in event.session.links]),
    Closed: Peer._on_closed,
}

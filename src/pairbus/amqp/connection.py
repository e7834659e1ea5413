"""An AMQP 1.0 connection without I/O: bytes in, events and bytes out.

Theory of operation

1. The machine never reads, writes, sleeps or asks for the time. `receive_data` and `tick` take what
   happened and return events; `data_to_send` takes out the bytes that wait. One class plays both roles.
2. A connection passes through its states from left to right and skips some, but never goes back:

       HANDSHAKE ──> OPEN ──> OPENED ──> CLOSE_SENT ──> CLOSED

   `_ALLOWED` says which performatives may come in which state. All else is an errant frame. Protocol
   headers and SASL are the handshake's business.
3. What the peer does wrong never raises out of the machine. Readers raise `ProtocolError`, and
   `receive_data` turns it into a close frame with that error and a `Closed` event. `SessionViolation`
   ends its session only.
4. After `Closed` all input is ignored, and all calls do nothing. There is exactly one `Closed`.
5. Open, begin, end, close, detach and echoes are answered here, because there is only one right answer.
   Whether a client may enter and a link may attach is the owner's to say (`sasl_outcome`, `Link.accept`).
6. Bytes of the peer are held in three places only: one unfinished frame (bounded by max-frame-size),
   unfinished messages (bounded by the limits), and what is left of a read that was too much work for one
   turn (`has_more`; the owner calls `receive_data` again before it reads on). Each incoming frame is answered
   with a bounded number of bytes. An owner that stops reading while its peer does not read holds no more.
   Of what a peer says of itself in open, begin and attach, nothing is kept that nobody asks for later.
7. Output is a list of byte strings that are joined once when they are taken out, so a payload is copied once.
8. Time-outs are compared with the `now` of the calls. We announce half of our idle time-out, as the
   standard advises, and send an empty frame when half of the peer's has passed with nothing to send.
9. A server may begin as one that does not trust its peer. Until `trust` it holds next to nothing for it.
"""

import enum
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from pairbus.conditions import (
    CONNECTION_FORCED,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
)

from . import frames
from .errors import DecodeError, ProtocolError, SessionViolation, UsageError
from .events import Closed, Opened, ProtocolEvent
from .fastattach import read_attach
from .fastframes import (
    DISPOSITION_LIST,
    FLOW_LIST,
    HEAD_SIZE,
    PLAIN_FRAME,
    TRANSFER_LIST,
    SettledRun,
    read_flow,
    read_head,
)
from .frames import AMQP_FRAME, HEADER_SIZE
from .handshake import Handshake, HandshakeState
from .inbox import Inbox
from .limits import MAX_PERFORMATIVE, MIN_IDLE_TIMEOUT, CodecLimits
from .link import Link
from .performatives import AmqpError, Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Transfer
from .sasl import SERVER_MECHANISMS, SaslClient
from .serials import NumberPool
from .session import Session, SessionState
from .types import Blob


class ConnectionState(enum.Enum):
    HANDSHAKE = "in its handshake"
    OPEN = "waiting for open"
    OPENED = "open"
    CLOSE_SENT = "closing"
    CLOSED = "closed"


# Names of a module: to find a member of an enumeration takes Python 3.11 ten times as long.
_HANDSHAKE: Final = ConnectionState.HANDSHAKE
_CLOSED: Final = ConnectionState.CLOSED
_IN_SESSIONS = frozenset({Begin, Attach, Flow, Transfer, Disposition, Detach, End})

_ALLOWED: dict[ConnectionState, frozenset[type]] = {
    ConnectionState.OPEN: frozenset({Open, Close}),
    ConnectionState.OPENED: _IN_SESSIONS | {Close},
    # What was on its way when we closed is passed over until the peer's close comes.
    ConnectionState.CLOSE_SENT: _IN_SESSIONS | {Open, Close},
}

# Every peer must take frames of this size, and none may announce less (part 2.4.1).
MIN_MAX_FRAME_SIZE = 512

# We write no larger frames whatever the peer would take: one frame should not hold up all others.
MAX_FRAME_WRITTEN = 1 << 20


class Connection:
    """One side of an AMQP connection."""

    def __init__(
        self,
        *,
        server: bool,
        container_id: str,
        hostname: str | None = None,
        sasl: bool = True,
        sasl_optional: bool = False,
        sasl_client: SaslClient | None = None,
        sasl_mechanisms: tuple[str, ...] = SERVER_MECHANISMS,
        max_frame_size: int = 65536,
        channel_max: int = 65535,
        idle_timeout: float | None = None,
        limits: CodecLimits | None = None,
        properties: dict[Any, Any] | None = None,
        trusted: bool = True,
        now: float = 0.0,
    ) -> None:
        self.server = server
        self.container_id = container_id
        self.hostname = hostname
        self.limits = limits or CodecLimits()
        self.max_frame_size = max(max_frame_size, MIN_MAX_FRAME_SIZE)
        self.channel_max = min(channel_max, self.limits.max_sessions - 1)
        self.idle_timeout = idle_timeout
        self.properties = properties
        self.context: Any = None
        self.state = _HANDSHAKE
        self.remote_open: Open | None = None
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.partial_bytes = 0
        self.link_count = 0
        self.named_links: dict[tuple[str, bool], Link] = {}  # those of the peer, by name and our role
        self.effort = 0  # spent on the present read
        self.has_more = False
        self.waiting_bytes = 0  # of messages that wait for windows, or to be written
        self.written = 0  # of messages of many frames, since bytes were taken out
        self._chunks: list[Blob] = []
        self.write: Callable[[Blob], None] = self._chunks.append
        self._held_up: dict[Session, None] = {}
        self.settled_run = SettledRun(self._chunks)
        self._handshake = Handshake(
            self.write,
            server=server,
            sasl=sasl,
            optional=sasl_optional,
            client=sasl_client or SaslClient.anonymous(),
            mechanisms=sasl_mechanisms,
            hostname=hostname,
            frame_limit=self.limits.max_sasl_frame,
        )
        self._open_wanted = False
        self._open_sent = False
        self._pending = bytearray()
        self._needed = 0
        self._events: list[ProtocolEvent] = []
        self._channels = NumberPool()
        self._sessions: dict[int, Session] = {}
        self._by_remote_channel: dict[int, Session] = {}
        # Channels whose session the peer has ended. The official Python client detaches links after that.
        self._ended_channels: set[int] = set()
        self._inboxes: dict[int, Inbox] = {}  # of mapped sessions, by remote channel
        self._now = now
        self._last_received = now
        self._last_sent = now
        self._close_deadline: float | None = None
        self._apply_limits(trusted)

    def _apply_limits(self, trusted: bool) -> None:
        limits, stranger = self.limits, self.limits.stranger
        self.trusted = trusted
        self.link_limit = limits.max_connection_links if trusted else stranger.max_links
        self.partial_limit = limits.max_partial_bytes if trusted else stranger.max_bytes
        self.frame_limit = self.max_frame_size if trusted else min(self.max_frame_size, stranger.max_bytes)
        self._session_limit = limits.max_sessions if trusted else stranger.max_sessions
        self._performative_limit = MAX_PERFORMATIVE if trusted else stranger.max_performative
        self._effort_limit = limits.max_read_effort if trusted else stranger.max_read_effort

    def __repr__(self) -> str:
        return f"<Connection {'server' if self.server else 'client'} {self.state.value}>"

    # -- for the owner

    @property
    def sessions(self) -> list[Session]:
        """Sessions that have not ended; after `Closed`, those that ended with it."""
        return list(self._sessions.values())

    @property
    def is_writable(self) -> bool:
        """Frames of sessions may be queued."""
        return self._open_sent and self.state in (ConnectionState.OPEN, ConnectionState.OPENED)

    def trust(self) -> None:
        """Server: the peer has shown who it is, and gets what the limits give."""
        if not self.trusted:
            self._apply_limits(True)

    @property
    def held_bytes(self) -> int:
        """Bytes of the peer that wait for more to come."""
        return len(self._pending) + self.partial_bytes

    def start(self) -> None:
        """Client: send the first protocol header."""
        self._handshake.start()

    def open(self) -> None:
        """Client: send open as soon as the handshake is over. `Opened` tells of the answer."""
        self._open_wanted = True
        if self.state is ConnectionState.OPEN:
            self._send_open()

    def begin(self) -> Session:
        """Begin a session; `SessionBegun` tells of the answer."""
        if not self.is_writable:
            raise UsageError(f"the connection is {self.state.value}; begin a session after Opened")
        remote_max = self.channel_max if self.remote_open is None else self.remote_open.channel_max
        if self._channels.peek() > min(self.channel_max, remote_max):
            raise UsageError("all channels are taken; end a session first")
        return self._add_session(None)

    def close(self, error: AmqpError | None = None) -> None:
        """Close; `Closed` follows when the peer has confirmed or its time is up."""
        if self.state is _HANDSHAKE:
            self._finish(error, local=True)  # no frame may be sent yet; the event comes with the next call
        elif self.state in (ConnectionState.OPEN, ConnectionState.OPENED):
            self._send_close(error)
            self.state = ConnectionState.CLOSE_SENT
            self._close_deadline = self._now + self.limits.close_timeout
            for session in self._sessions.values():
                session.kill()

    def sasl_outcome(self, accepted: bool) -> list[ProtocolEvent]:
        """Server: the answer to SaslInitReceived. Returns events of bytes that the client sent ahead."""
        if self.state is _HANDSHAKE and self._handshake.state is HandshakeState.DECISION:
            self._handshake.decide(accepted)
            if not accepted:
                self._finish(AmqpError(UNAUTHORIZED, "SASL authentication failed"), local=True)
        return self.receive_data(b"", self._now)

    @property
    def has_to_say(self) -> bool:
        """Whether anything waits to be written."""
        return bool(self._chunks)

    def data_to_send(self) -> bytes:
        """Take out everything that waits to be written."""
        chunks = self._chunks
        if not chunks:
            return b""
        data = b"".join(chunks)
        chunks.clear()
        self.written = 0
        self._last_sent = self._now
        return data

    @property
    def is_held_up(self) -> bool:
        """Frames wait until what is written has been taken out: call `write_more` then."""
        return bool(self._held_up)

    def write_more(self) -> list[Link]:
        """Go on with messages of many frames; the links that may send again after that, and could not."""
        held_up, self._held_up = self._held_up, {}
        return [link for session in held_up for link in session.write_waiting()]

    def has_written_enough(self, session: Session) -> bool:
        """Whether a session's frames have to wait until what is written has been taken out."""
        if self.written < self.limits.max_written:
            return False
        self._held_up[session] = None
        return True

    # -- time

    @property
    def next_deadline(self) -> float | None:
        """When `tick` has something to do, if nothing else happens."""
        if self.state is _CLOSED:
            return None
        candidates = (self._heartbeat_due(), self._idle_due(), self._close_deadline)
        return min((when for when in candidates if when is not None), default=None)

    def note_sign_of_life(self, now: float) -> None:
        """The peer has said something that has not been given to `receive_data`, or may have."""
        self._last_received = now

    def tick(self, now: float) -> list[ProtocolEvent]:
        """Heartbeats and time-outs."""
        self._now = now
        if self.state is not _CLOSED:
            idle, heartbeat = self._idle_due(), self._heartbeat_due()
            if self._close_deadline is not None and now >= self._close_deadline:
                self._finish(None, local=True)
            elif idle is not None and now >= idle:
                self._fail(ProtocolError(CONNECTION_FORCED, "nothing came within the idle time-out"))
            elif heartbeat is not None and now >= heartbeat and not self._chunks:
                self.write(frames.HEARTBEAT)
        return self._take_events()

    def _heartbeat_due(self) -> float | None:
        if self.remote_open is None or not self.remote_open.idle_time_out or not self.is_writable:
            return None
        return self._last_sent + max(self.remote_open.idle_time_out, MIN_IDLE_TIMEOUT) / 2000

    def _idle_due(self) -> float | None:
        if self.idle_timeout is None or self.state is ConnectionState.CLOSE_SENT:
            return None
        return self._last_received + self.idle_timeout

    # -- input

    def receive_data(self, data: bytes, now: float) -> list[ProtocolEvent]:
        """Take bytes of the peer and say what they mean."""
        self._now = now
        if self.state is _CLOSED:
            return self._take_events()
        if data:
            self._last_received = now
        if self._pending:
            self._pending += data
            if len(self._pending) < self._needed:
                return self._take_events()
            data = bytes(self._pending)
            self._pending = bytearray()
        try:
            self._read(data if type(data) is bytes else bytes(data))
        except ProtocolError as fault:
            self._fail(fault)
        return self._take_events()

    def take_acceptance(self, data: bytes, now: float) -> tuple[Link, int] | None:
        """The message that the peer has accepted and settled, if these bytes say that, as it was said before,
        and nothing else. If not, nothing has happened: `receive_data` reads them.
        """
        if self._pending or len(data) < HEAD_SIZE:
            return None
        inbox = self._inboxes.get(data[6] << 8 | data[7])
        found = None if inbox is None else inbox.take_acceptance(data)
        if found is not None:
            self._now = self._last_received = now
        return found

    def _read(self, data: bytes) -> None:
        at, size = 0, len(data)
        self._needed = self.effort = 0
        self.has_more = False
        if self.state is _HANDSHAKE:
            at = self._handshake.read(data, 0, self._events)
            self._needed = self._handshake.needed
            if self._handshake.is_done:
                self.state = ConnectionState.OPEN
                if self._open_wanted:
                    self._send_open()
        if self.state is not _HANDSHAKE:
            at = self._read_frames(data, at)
        if at < size and self.state is not _CLOSED:
            if not self.has_more and size - at > max(self.max_frame_size, self.limits.max_ahead):
                raise ProtocolError(FRAMING_ERROR, "too many bytes were sent ahead of the answer")
            self._pending += data[at:]

    def _take_events(self) -> list[ProtocolEvent]:
        events = self._events
        self._events = []
        return events

    def _read_frames(self, data: bytes, at: int) -> int:
        """Whole frames from `at` on, as far as the budget of one read goes. The hot loop: the usual frames go
        straight to their inbox.
        """
        size_of_data, limit, events, inboxes = len(data), self.frame_limit, self._events, self._inboxes
        most = self._effort_limit
        while self.effort < most:
            if size_of_data - at < HEAD_SIZE:
                return at if at == size_of_data else self._read_rest(data, at)
            size, shape, channel, performative, length, count, byte1, byte2 = read_head(data, at)
            end = at + size
            inbox = inboxes.get(channel)
            if inbox and shape == PLAIN_FRAME and HEAD_SIZE <= size <= limit and end <= size_of_data:
                try:
                    if performative == TRANSFER_LIST:
                        at = inbox.take_transfers(data, at, end, byte1, byte2, events)
                        continue
                    if performative == DISPOSITION_LIST:
                        at = inbox.take_dispositions(data, at, end, length, count, byte1, byte2, events)
                        continue
                    if performative == FLOW_LIST:
                        self.effort += 4
                        inbox.session.on_flow(read_flow(data, at, end), events)
                        at = end
                        continue
                except SessionViolation as fault:
                    inbox.session.violate(fault, events)
                    at = end
                    continue
            reached = self._read_frame(data, at)
            if reached == at:
                return at
            at = reached
        self.has_more = at < size_of_data
        return at

    def _read_rest(self, data: bytes, at: int) -> int:
        """Fewer bytes than the head of a usual frame, which may still be heartbeats."""
        while self.state is not _CLOSED:
            reached = self._read_frame(data, at)
            if reached == at:
                break
            at = reached
        return at

    def _read_frame(self, data: bytes, at: int) -> int:
        """Any one frame, through the general codec; the place behind it, or `at` if it is not all there."""
        if self.state is _CLOSED or len(data) - at < HEADER_SIZE:
            self._needed = HEADER_SIZE
            return at
        size, doff, kind, channel = frames.unpack_header(data, at)
        frames.check_header(size, doff, kind, limit=self.frame_limit, expected=AMQP_FRAME)
        start: int = at + doff * 4
        end: int = at + size
        if end > len(data):
            self._needed = size
            return at
        self.effort += 1
        if start < end:
            self.effort += 15 + (size >> 6)
            limit = self._performative_limit
            performative: Any = read_attach(data, start, end) if end - start <= limit else None
            reached = end
            if performative is None:
                performative, reached = frames.decode_performative(data, start, end, limit)
            if reached != end and not isinstance(performative, Transfer):
                raise DecodeError("bytes follow a performative that takes none")
            self._dispatch(channel, performative, data[reached:end])
        return end

    def _dispatch(self, channel: int, performative: Any, payload: bytes) -> None:
        if type(performative) not in _ALLOWED[self.state]:
            raise ProtocolError(ILLEGAL_STATE, f"{performative.NAME} came while {self.state.value}")
        if isinstance(performative, Close):
            self._on_close(performative)
        elif self.state is ConnectionState.CLOSE_SENT:
            return
        elif isinstance(performative, Open):
            if channel:
                raise ProtocolError(FRAMING_ERROR, f"open came on channel {channel}; it belongs on channel 0")
            self._on_open(performative)
        elif isinstance(performative, Begin):
            self._on_begin(channel, performative)
        else:
            session = self._by_remote_channel.get(channel)
            if session is None:
                if channel in self._ended_channels:
                    return
                raise ProtocolError(ILLEGAL_STATE, f"no session has begun on channel {channel}")
            if isinstance(performative, End):
                self._on_end(session, performative)
            elif session.state is SessionState.MAPPED:
                self._dispatch_to(session, performative, payload)

    def _dispatch_to(self, session: Session, performative: Any, payload: bytes) -> None:
        try:
            match performative:
                case Attach():
                    session.on_attach(performative, self._events)
                case Detach():
                    session.on_detach(performative, self._events)
                case Flow():
                    session.on_flow(performative, self._events)
                case Transfer():
                    session.inbox.on_transfer(performative, payload, self._events)
                case Disposition():
                    session.inbox.on_disposition(performative, self._events)
        except SessionViolation as fault:
            session.violate(fault, self._events)

    # -- performatives of the connection

    def _send_open(self) -> None:
        if self._open_sent:
            return
        self._open_sent = True
        opening = Open(
            self.container_id,
            None if self.server else self.hostname,
            self.max_frame_size,
            self.channel_max,
            None if self.idle_timeout is None else max(1, int(self.idle_timeout * 500)),
            properties=self.properties,
        )
        self.write(frames.encode_frame(0, opening))

    def _on_open(self, opening: Open) -> None:
        if opening.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ProtocolError(FRAMING_ERROR, f"max-frame-size is below {MIN_MAX_FRAME_SIZE}")
        self.remote_open = replace(
            opening,
            outgoing_locales=None,
            incoming_locales=None,
            offered_capabilities=None,
            desired_capabilities=None,
            properties=None,
        )
        self.remote_max_frame_size = min(opening.max_frame_size, MAX_FRAME_WRITTEN)
        self.state = ConnectionState.OPENED
        if self.server:
            self._send_open()
        self._events.append(Opened(opening))

    def _on_begin(self, channel: int, begin: Begin) -> None:
        if channel > self.channel_max:
            raise ProtocolError(FRAMING_ERROR, f"channel {channel} is above channel-max {self.channel_max}")
        if channel in self._by_remote_channel:
            raise ProtocolError(ILLEGAL_STATE, f"a session has begun on channel {channel} already")
        if begin.remote_channel is None:
            if len(self._sessions) >= self._session_limit:
                raise ProtocolError(RESOURCE_LIMIT, f"there are {self._session_limit} sessions already")
            if self.remote_open is not None and self._channels.peek() > self.remote_open.channel_max:
                raise ProtocolError(RESOURCE_LIMIT, "the peer's channel-max leaves no channel to answer on")
            session = self._add_session(channel)
        else:
            awaited = self._sessions.get(begin.remote_channel)
            if awaited is None or awaited.remote_channel is not None:
                raise ProtocolError(ILLEGAL_STATE, "a begin answers a session that we did not begin")
            session = awaited
        self._by_remote_channel[channel] = session
        self._ended_channels.discard(channel)
        session.on_begin(begin, channel, self._events)
        if session.state is SessionState.MAPPED:
            self._inboxes[channel] = session.inbox

    def _add_session(self, remote_channel: int | None) -> Session:
        channel = self._channels.take()
        session = self._sessions[channel] = Session(self, channel)
        session.remote_channel = remote_channel
        session.send_begin()
        return session

    def _on_end(self, session: Session, end: End) -> None:
        session.on_end(end, self._events)
        del self._sessions[session.channel]
        self._channels.give_back(session.channel)
        if session.remote_channel is not None:
            del self._by_remote_channel[session.remote_channel]
            self._ended_channels.add(session.remote_channel)

    def retire_inbox(self, session: Session) -> None:
        """A session is no longer mapped: its frames take the way through `_dispatch`."""
        if session.remote_channel is not None:
            self._inboxes.pop(session.remote_channel, None)

    # -- the end

    def _on_close(self, close: Close) -> None:
        local = self.state is ConnectionState.CLOSE_SENT
        if not local:
            self._send_close(None)
        self._finish(close.error, local=local)

    def _send_close(self, error: AmqpError | None) -> None:
        self._send_open()  # the standard has no close without an open before it
        self.write(frames.encode_within(self.remote_max_frame_size, 0, Close(error)))

    def _fail(self, fault: ProtocolError) -> None:
        """The peer broke the protocol: say so in the form that the state allows, and be done."""
        error = AmqpError(fault.condition, fault.description)
        if self.state is _HANDSHAKE:
            self._handshake.fail(fault.condition)
        elif self.state is not ConnectionState.CLOSE_SENT:
            self._send_close(error)
        self._finish(error, local=True)

    def _finish(self, error: AmqpError | None, *, local: bool) -> None:
        self.state = _CLOSED
        self._pending = bytearray()
        self._close_deadline = None
        for session in self._sessions.values():
            session.kill()
        self._events.append(Closed(error, local))

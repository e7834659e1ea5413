"""An AMQP 1.0 connection without I/O: bytes in, events and bytes out.

Theory of operation

1. The machine never reads, writes, sleeps or asks for the time. ``receive_data`` and ``tick`` take what happened
   and return events; ``data_to_send`` takes out the bytes that wait. One class plays both roles.
2. A connection passes through the states below from left to right, and through no other:

       HEADER ──> SASL ──> SASL_DECISION ──> HEADER ──> OPEN ──> OPENED ──> CLOSE_SENT ──> CLOSED

   Each state says which reader takes the next bytes (``_READERS``) and, for frames, which performatives may come
   (``_ALLOWED``). All else is an errant frame.
3. What the peer does wrong never raises out of the machine. Readers raise ``ProtocolError``; ``receive_data`` turns
   it into a close frame with that error and a ``Closed`` event. ``SessionViolation`` ends its session only.
4. After ``Closed`` all input is ignored, and all calls do nothing. There is exactly one ``Closed``.
5. Open, begin, end, close, detach and echoes are answered here, because there is only one right answer. Whether a
   link may attach and a client may enter is the owner's to say (``Link.accept``, ``sasl_outcome``).
6. Bytes of the peer are held in two places only: one unfinished frame (bounded by max-frame-size) and unfinished
   messages (bounded by the limits). Each incoming frame causes a bounded number of bytes in answer.
7. Output is a list of byte strings that are joined once when they are taken out, so a payload is copied once.
8. Time-outs are compared with the ``now`` of the calls. We announce half of our idle time-out, as the standard
   advises, and send an empty frame when half of the peer's has passed without anything to send.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from pairbus.amqp import fastframes, frames
from pairbus.amqp.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT,
    UNAUTHORIZED,
    DecodeError,
    ProtocolError,
    SessionViolation,
    UsageError,
)
from pairbus.amqp.events import Closed, Event, Opened, SaslInitReceived
from pairbus.amqp.frames import AMQP_FRAME, AMQP_HEADER, HEADER_SIZE, SASL_FRAME, SASL_HEADER
from pairbus.amqp.limits import Limits
from pairbus.amqp.performatives import (
    AmqpError,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Transfer,
)
from pairbus.amqp.sasl import AUTHENTICATION_FAILED, OK, SERVER_MECHANISMS, SYSTEM_FAILED, SaslClient
from pairbus.amqp.session import Session, SessionState


class ConnectionState(enum.Enum):
    HEADER = "waiting for a protocol header"
    SASL = "negotiating SASL"
    SASL_DECISION = "waiting for the owner's word on SASL"
    OPEN = "waiting for open"
    OPENED = "open"
    CLOSE_SENT = "closing"
    CLOSED = "closed"


# The standard's floor for max-frame-size (part 2.4.1): every peer must take frames of this size.
MIN_MAX_FRAME_SIZE = 512


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
        limits: Limits | None = None,
        properties: dict[Any, Any] | None = None,
        now: float = 0.0,
    ) -> None:
        self.server = server
        self.container_id = container_id
        self.hostname = hostname
        self.limits = limits or Limits()
        self.max_frame_size = max(max_frame_size, MIN_MAX_FRAME_SIZE)
        self.channel_max = min(channel_max, self.limits.max_sessions - 1)
        self.idle_timeout = idle_timeout
        self.properties = properties
        self.context: Any = None
        self.state = ConnectionState.HEADER
        self.remote_open: Open | None = None
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.partial_bytes = 0
        self._sasl_due = sasl
        self._sasl_optional = sasl_optional
        self._sasl_client = sasl_client or SaslClient.anonymous()
        self._sasl_mechanisms = sasl_mechanisms
        self._header_sent = False
        self._open_wanted = server
        self._open_sent = False
        self._chunks: list[bytes] = []
        self.write: Callable[[bytes], None] = self._chunks.append
        self._pending = bytearray()
        self._needed = 0
        self._events: list[Event] = []
        self._sessions: dict[int, Session] = {}
        self._by_remote_channel: dict[int, Session] = {}
        self._now = now
        self._last_received = now
        self._last_sent = now
        self._close_deadline: float | None = None

    def __repr__(self) -> str:
        return f"<Connection {'server' if self.server else 'client'} {self.state.value}>"

    # For the owner

    @property
    def sessions(self) -> list[Session]:
        """Sessions that have not ended."""
        return list(self._sessions.values())

    @property
    def is_writable(self) -> bool:
        """Frames may still be queued."""
        return self._open_sent and self.state in (ConnectionState.OPEN, ConnectionState.OPENED)

    def count_links(self) -> int:
        return sum(session.link_count for session in self._sessions.values())

    def start(self) -> None:
        """Client: send the first protocol header."""
        if not self._header_sent:
            self._header_sent = True
            self.write(SASL_HEADER if self._sasl_due else AMQP_HEADER)

    def open(self) -> None:
        """Client: send open, now or as soon as headers and SASL are through. ``Opened`` tells of the answer."""
        self._open_wanted = True
        if self.state is ConnectionState.OPEN:
            self._send_open()

    def begin(self) -> Session:
        """Begin a session; ``SessionBegun`` tells of the answer."""
        if not self.is_writable:
            raise UsageError(f"the connection is {self.state.value}; begin a session after Opened")
        limit = (
            self.channel_max
            if self.remote_open is None
            else min(self.channel_max, self.remote_open.channel_max)
        )
        channel = self._free_channel()
        if channel > limit:
            raise UsageError(f"all {limit + 1} channels are taken; end a session first")
        session = self._sessions[channel] = Session(self, channel)
        session.send_begin()
        return session

    def close(self, error: AmqpError | None = None) -> None:
        """Close; ``Closed`` follows when the peer has confirmed or its time is up."""
        if self.state in (ConnectionState.CLOSE_SENT, ConnectionState.CLOSED):
            return
        if self.state not in (ConnectionState.OPEN, ConnectionState.OPENED):
            self._finish(error, local=True)  # no frame may be sent yet; the event comes with the next call
            return
        self._send_close(error)
        self.state = ConnectionState.CLOSE_SENT
        self._close_deadline = self._now + self.limits.close_timeout

    def sasl_outcome(self, accepted: bool) -> list[Event]:
        """Server: the answer to SaslInitReceived. Returns events of bytes that the client sent ahead."""
        if self.state is not ConnectionState.SASL_DECISION:
            return []
        code = OK if accepted else AUTHENTICATION_FAILED
        self._send_sasl(SaslOutcome(code))
        if not accepted:
            self._finish(AmqpError(UNAUTHORIZED, "SASL authentication failed"), local=True)
        else:
            self._sasl_due = False
            self._header_sent = False
            self.state = ConnectionState.HEADER
        return self.receive_data(b"", self._now)

    def data_to_send(self) -> bytes:
        """Take out everything that waits to be written."""
        chunks = self._chunks
        if not chunks:
            return b""
        data = b"".join(chunks)
        chunks.clear()
        self._last_sent = self._now
        return data

    # Time

    @property
    def next_deadline(self) -> float | None:
        """When ``tick`` has something to do, if nothing else happens."""
        due = [
            when
            for when in (self._heartbeat_due(), self._idle_due(), self._close_deadline)
            if when is not None
        ]
        return min(due) if due and self.state is not ConnectionState.CLOSED else None

    def tick(self, now: float) -> list[Event]:
        """Heartbeats and time-outs."""
        self._now = now
        if self.state is not ConnectionState.CLOSED:
            idle, heartbeat = self._idle_due(), self._heartbeat_due()
            if self._close_deadline is not None and now >= self._close_deadline:
                self._finish(None, local=True)
            elif idle is not None and now >= idle:
                self._fail(ProtocolError(RESOURCE_LIMIT, "nothing came within the idle time-out"))
            elif heartbeat is not None and now >= heartbeat and not self._chunks:
                self.write(frames.HEARTBEAT)
        return self._take_events()

    def _heartbeat_due(self) -> float | None:
        if self.remote_open is None or not self.remote_open.idle_time_out or not self.is_writable:
            return None
        return self._last_sent + self.remote_open.idle_time_out / 2000

    def _idle_due(self) -> float | None:
        if not self.idle_timeout or self.state is ConnectionState.CLOSE_SENT:
            return None
        return self._last_received + self.idle_timeout

    # Input

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Take bytes of the peer and say what they mean."""
        self._now = now
        if self.state is ConnectionState.CLOSED:
            return self._take_events()
        if data:
            self._last_received = now
        if self._pending:
            self._pending += data
            if len(self._pending) < self._needed:
                return self._take_events()
            data = bytes(self._pending)
            self._pending = bytearray()
        elif type(data) is not bytes:
            data = bytes(data)
        try:
            self._read(data)
        except ProtocolError as fault:
            self._fail(fault)
        return self._take_events()

    def _read(self, data: bytes) -> None:
        at, size = 0, len(data)
        self._needed = 0
        while at < size:
            reader = _READERS.get(self.state)
            reached = at if reader is None else reader(self, data, at)
            if reached == at:
                break
            at = reached
        if self.state is ConnectionState.CLOSED:
            return
        if size - at > max(self.max_frame_size, self.limits.max_sasl_frame):
            raise ProtocolError(FRAMING_ERROR, "too many bytes were sent ahead")
        if at < size:
            self._pending += data[at:]

    def _take_events(self) -> list[Event]:
        events = self._events
        self._events = []
        return events

    def _read_header(self, data: bytes, at: int) -> int:
        """The protocol header that must come now. A wrong one is answered with the right one, and the end."""
        header = data[at : at + 8]
        if len(header) < 8 and header in (SASL_HEADER[: len(header)], AMQP_HEADER[: len(header)]):
            self._needed = 8
            return at
        if header == AMQP_HEADER and self._sasl_due and self.server and self._sasl_optional:
            self._sasl_due = False
        wanted = SASL_HEADER if self._sasl_due else AMQP_HEADER
        if not self._header_sent:
            self._header_sent = True
            self.write(wanted)
        if header != wanted:
            raise ProtocolError(NOT_ALLOWED, f"a protocol header other than {wanted!r} came")
        if self._sasl_due:
            self.state = ConnectionState.SASL
            if self.server:
                self._send_sasl(SaslMechanisms(self._sasl_mechanisms))
        else:
            self.state = ConnectionState.OPEN
            if self._open_wanted and not self.server:
                self._send_open()
        return at + 8

    # SASL

    def _send_sasl(self, performative: SaslMechanisms | SaslInit | SaslOutcome) -> None:
        self.write(frames.encode_frame(0, performative, kind=SASL_FRAME))

    def _read_sasl(self, data: bytes, at: int) -> int:
        if len(data) - at < HEADER_SIZE:
            self._needed = HEADER_SIZE
            return at
        size, doff, kind, _ = frames.unpack_header(data, at)
        frames.check_header(size, doff, kind, limit=self.limits.max_sasl_frame, expected=SASL_FRAME)
        end = at + size
        if end > len(data):
            self._needed = size
            return at
        if doff * 4 == size:
            raise DecodeError("a SASL frame is empty")
        performative, _ = frames.decode_performative(data, at + doff * 4, end)
        if self.server and isinstance(performative, SaslInit):
            self._on_sasl_init(performative)
        elif not self.server and isinstance(performative, SaslMechanisms):
            self._on_sasl_mechanisms(performative)
        elif not self.server and isinstance(performative, SaslOutcome):
            self._on_sasl_outcome(performative)
        else:
            raise ProtocolError(ILLEGAL_STATE, f"{type(performative).__name__} may not come during SASL")
        return end

    def _on_sasl_init(self, init: SaslInit) -> None:
        if init.mechanism not in self._sasl_mechanisms:
            raise ProtocolError(UNAUTHORIZED, "the SASL mechanism is not one of those offered")
        self.state = ConnectionState.SASL_DECISION
        self._events.append(SaslInitReceived(init.mechanism, init.initial_response, init.hostname))

    def _on_sasl_mechanisms(self, offered: SaslMechanisms) -> None:
        client = self._sasl_client
        if client.mechanism not in offered.sasl_server_mechanisms:
            raise ProtocolError(UNAUTHORIZED, f"the server does not offer {client.mechanism}")
        self._send_sasl(SaslInit(client.mechanism, client.initial_response, self.hostname))

    def _on_sasl_outcome(self, outcome: SaslOutcome) -> None:
        if outcome.code != OK:
            raise ProtocolError(UNAUTHORIZED, f"SASL authentication failed with code {outcome.code}")
        self._sasl_due = False
        self._header_sent = True
        self.write(AMQP_HEADER)
        self.state = ConnectionState.HEADER

    # Frames

    def _read_frames(self, data: bytes, at: int) -> int:
        """All whole frames from ``at`` on. The hot loop: transfers go straight to their session."""
        size_of_data, limit, events = len(data), self.max_frame_size, self._events
        sessions, unpack = self._by_remote_channel, frames.unpack_header
        while size_of_data - at >= HEADER_SIZE:
            size, doff, kind, channel = unpack(data, at)
            if size > limit or size < HEADER_SIZE or doff != 2 or kind != AMQP_FRAME:
                frames.check_header(size, doff, kind, limit=limit, expected=AMQP_FRAME)
            end = at + size
            if end > size_of_data:
                self._needed = size
                return at
            start = at + doff * 4
            at = end
            if data[start : start + 3] == fastframes.TRANSFER:
                session = sessions.get(channel)
                if session is not None and session.state is SessionState.MAPPED:
                    try:
                        session.on_transfer_frame(data, start, end, events)
                    except SessionViolation as fault:
                        session.violate(fault, events)
                    continue
            if start == end:
                continue
            self._read_frame(channel, data, start, end)
            if self.state is not ConnectionState.OPENED:
                return at
        self._needed = max(self._needed, HEADER_SIZE)
        return at

    def _read_frame(self, channel: int, data: bytes, start: int, end: int) -> None:
        kind = data[start : start + 3]
        session = self._by_remote_channel.get(channel)
        if session is not None and session.state is SessionState.MAPPED:
            if kind == fastframes.DISPOSITION:
                session.on_disposition(*fastframes.read_disposition(data, start, end), self._events)
                return
            if kind == fastframes.FLOW:
                self._guard(session, session.on_flow, fastframes.read_flow(data, start, end))
                return
        performative, payload = frames.decode_performative(data, start, end)
        if payload != end and not isinstance(performative, Transfer):
            raise ProtocolError(DECODE_ERROR, "bytes follow a performative that takes none")
        self._dispatch(channel, session, performative, data[payload:end])

    def _dispatch(self, channel: int, session: Session | None, performative: Any, payload: bytes) -> None:
        if type(performative) not in _ALLOWED[self.state]:
            name = type(performative).__name__.lower()
            raise ProtocolError(
                ILLEGAL_STATE, f"{name} may not come while the connection is {self.state.value}"
            )
        match performative:
            case Open():
                self._on_open(performative)
            case Close():
                self._on_close(performative)
            case Begin():
                self._on_begin(channel, performative)
            case _ if self.state is ConnectionState.CLOSE_SENT:
                return
            case _ if session is None:
                raise ProtocolError(ILLEGAL_STATE, f"no session has begun on channel {channel}")
            case End():
                self._on_end(session, performative)
            case _ if session.state is SessionState.END_SENT:
                return
            case _:
                self._dispatch_to(session, performative, payload)

    def _dispatch_to(self, session: Session, performative: Any, payload: bytes) -> None:
        match performative:
            case Attach():
                self._guard(session, session.on_attach, performative)
            case Detach():
                self._guard(session, session.on_detach, performative)
            case Flow():
                self._guard(session, session.on_flow, performative)
            case Transfer():
                self._guard(
                    session, lambda found, events: session.on_transfer(found, payload, events), performative
                )
            case Disposition(role, first, last, settled, state):
                session.on_disposition(
                    role, first, first if last is None else last, settled, state, self._events
                )

    def _guard(
        self, session: Session, handler: Callable[[Any, list[Event]], None], performative: Any
    ) -> None:
        try:
            handler(performative, self._events)
        except SessionViolation as fault:
            session.violate(fault, self._events)

    # Performatives of the connection

    def _send_open(self) -> None:
        if self._open_sent:
            return
        self._open_sent = True
        announced = None if self.idle_timeout is None else max(1, int(self.idle_timeout * 500))
        hostname = None if self.server else self.hostname
        properties = self.properties
        opening = Open(self.container_id, hostname, self.max_frame_size, self.channel_max, announced)
        opening.properties = properties
        self.write(frames.encode_frame(0, opening))

    def _on_open(self, opening: Open) -> None:
        if opening.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ProtocolError(NOT_ALLOWED, f"max-frame-size is below {MIN_MAX_FRAME_SIZE}")
        self.remote_open = opening
        # Our own limit bounds what we write as well: nobody gains from frames of four gigabytes.
        self.remote_max_frame_size = min(opening.max_frame_size, max(self.max_frame_size, 1 << 20))
        self.state = ConnectionState.OPENED
        if self.server:
            self._send_open()
        self._events.append(Opened(opening))

    def _on_begin(self, channel: int, begin: Begin) -> None:
        if channel > self.channel_max:
            raise ProtocolError(
                FRAMING_ERROR, f"channel {channel} is above our channel-max {self.channel_max}"
            )
        if channel in self._by_remote_channel:
            raise ProtocolError(ILLEGAL_STATE, f"a session has begun on channel {channel} already")
        if begin.remote_channel is None:
            session = self._answer_begin(channel)
        else:
            awaited = self._sessions.get(begin.remote_channel)
            if awaited is None or awaited.remote_channel is not None:
                raise ProtocolError(ILLEGAL_STATE, "a begin answers a session that we did not begin")
            session = awaited
        self._by_remote_channel[channel] = session
        session.on_begin(begin, channel, self._events)

    def _answer_begin(self, channel: int) -> Session:
        number = self._free_channel()
        if self.remote_open is not None and number > self.remote_open.channel_max:
            raise ProtocolError(RESOURCE_LIMIT, "the peer's channel-max leaves no channel to answer on")
        session = self._sessions[number] = Session(self, number)
        session.remote_channel = channel
        session.send_begin()
        return session

    def _free_channel(self) -> int:
        return next(number for number in range(len(self._sessions) + 1) if number not in self._sessions)

    def _on_end(self, session: Session, end: End) -> None:
        session.on_end(end, self._events)
        self._sessions.pop(session.channel, None)
        if session.remote_channel is not None:
            self._by_remote_channel.pop(session.remote_channel, None)

    def _on_close(self, close: Close) -> None:
        local = self.state is ConnectionState.CLOSE_SENT
        if not local:
            self._send_close(None)
        self._finish(close.error, local=local)

    # The end

    def _send_close(self, error: AmqpError | None) -> None:
        self._send_open()  # the standard has no close without an open before it
        self.write(frames.encode_frame(0, Close(error)))

    def _fail(self, fault: ProtocolError) -> None:
        """The peer broke the protocol: say so in the form that the state allows, and be done."""
        error = AmqpError(fault.condition, fault.description)
        if self.state in (ConnectionState.OPEN, ConnectionState.OPENED):
            self._send_close(error)
        elif self.state is ConnectionState.SASL and self.server:
            refused = fault.condition == UNAUTHORIZED
            self._send_sasl(SaslOutcome(AUTHENTICATION_FAILED if refused else SYSTEM_FAILED))
        self._finish(error, local=True)

    def _finish(self, error: AmqpError | None, *, local: bool) -> None:
        self.state = ConnectionState.CLOSED
        self._pending = bytearray()
        self._close_deadline = None
        for session in self.sessions:
            session.kill()
        self._events.append(Closed(error, local))


_Reader = Callable[[Connection, bytes, int], int]

_READERS: dict[ConnectionState, _Reader] = {
    ConnectionState.HEADER: Connection._read_header,
    ConnectionState.SASL: Connection._read_sasl,
    ConnectionState.OPEN: Connection._read_frames,
    ConnectionState.OPENED: Connection._read_frames,
    ConnectionState.CLOSE_SENT: Connection._read_frames,
}

_IN_SESSION = frozenset({Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close})

_ALLOWED: dict[ConnectionState, frozenset[type]] = {
    ConnectionState.OPEN: frozenset({Open, Close}),
    ConnectionState.OPENED: _IN_SESSION,
    ConnectionState.CLOSE_SENT: _IN_SESSION | {Open},
}

__all__ = ["Connection", "ConnectionState"]

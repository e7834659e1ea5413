"""What comes before the first AMQP frame: protocol headers and SASL.

    HEADER ──SASL header──> SASL ──init──> DECISION ──owner's word──> HEADER ──AMQP header──> DONE

A client stays in SASL until the outcome comes and never sees DECISION. Without SASL the AMQP header leads
straight to DONE. A wrong header is answered with the right one, and the connection is over (part 2.2 of the
standard). A mechanism that was not offered is refused with an outcome. What breaks the rules of SASL in any
other way is not answered at all: there is no frame for it.
"""

import enum
from collections.abc import Callable

from pairbus.conditions import ILLEGAL_STATE, NOT_ALLOWED, UNAUTHORIZED

from . import frames
from .composites import Composite
from .errors import DecodeError, ProtocolError
from .events import ProtocolEvent, SaslInitReceived
from .frames import AMQP_HEADER, HEADER_SIZE, SASL_FRAME, SASL_HEADER
from .performatives import SaslInit, SaslMechanisms, SaslOutcome
from .sasl import AUTHENTICATION_FAILED, OK, SaslClient


class HandshakeState(enum.Enum):
    HEADER = "waiting for a protocol header"
    SASL = "negotiating SASL"
    DECISION = "waiting for the owner's word on SASL"
    DONE = "done"


class Handshake:
    """The part of a connection that is over when AMQP frames may flow."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        *,
        server: bool,
        sasl: bool,
        optional: bool,
        client: SaslClient,
        mechanisms: tuple[str, ...],
        hostname: str | None,
        frame_limit: int,
    ) -> None:
        self.state = HandshakeState.HEADER
        self.needed = 0
        self._write = write
        self._server = server
        self._sasl_due = sasl
        self._optional = optional and server
        self._client = client
        self._mechanisms = mechanisms
        self._hostname = hostname
        self._frame_limit = frame_limit
        self._header_sent = False

    @property
    def is_done(self) -> bool:
        return self.state is HandshakeState.DONE

    def start(self) -> None:
        """Send the header that is due, once."""
        if not self._header_sent:
            self._header_sent = True
            self._write(SASL_HEADER if self._sasl_due else AMQP_HEADER)

    def read(self, data: bytes, at: int, events: list[ProtocolEvent]) -> int:
        """Take what can be taken and return the place behind it; `needed` says how much must come first."""
        self.needed = 0
        size = len(data)
        while at < size:
            if self.state is HandshakeState.HEADER:
                reached = self._read_header(data, at)
            elif self.state is HandshakeState.SASL:
                reached = self._read_frame(data, at, events)
            else:
                break
            if reached == at:
                break
            at = reached
        return at

    def _read_header(self, data: bytes, at: int) -> int:
        header = data[at : at + 8]
        if len(header) < 8 and header in (SASL_HEADER[: len(header)], AMQP_HEADER[: len(header)]):
            self.needed = 8
            return at
        if header == AMQP_HEADER and self._optional:
            self._sasl_due = False
        wanted = SASL_HEADER if self._sasl_due else AMQP_HEADER
        self.start()
        if header != wanted:
            raise ProtocolError(NOT_ALLOWED, f"a protocol header other than {wanted!r} came")
        if not self._sasl_due:
            self.state = HandshakeState.DONE
        else:
            self.state = HandshakeState.SASL
            if self._server:
                self._send(SaslMechanisms(self._mechanisms))
        return at + 8

    def _send(self, performative: Composite) -> None:
        self._write(frames.encode_frame(0, performative, kind=SASL_FRAME))

    def _read_frame(self, data: bytes, at: int, events: list[ProtocolEvent]) -> int:
        if len(data) - at < HEADER_SIZE:
            self.needed = HEADER_SIZE
            return at
        size, doff, kind, _ = frames.unpack_header(data, at)
        frames.check_header(size, doff, kind, limit=self._frame_limit, expected=SASL_FRAME)
        end: int = at + size
        if end > len(data):
            self.needed = size
            return at
        if doff * 4 == size:
            raise DecodeError("a SASL frame is empty")
        performative, reached = frames.decode_performative(data, at + doff * 4, end)
        if reached != end:
            raise DecodeError("bytes follow a SASL performative")
        self._dispatch(performative, events)
        return end

    def _dispatch(self, performative: Composite, events: list[ProtocolEvent]) -> None:
        if self._server and isinstance(performative, SaslInit):
            self._on_init(performative, events)
        elif not self._server and isinstance(performative, SaslMechanisms):
            self._on_mechanisms(performative)
        elif not self._server and isinstance(performative, SaslOutcome):
            self._on_outcome(performative)
        else:
            raise ProtocolError(ILLEGAL_STATE, f"{performative.NAME} may not come during SASL")

    def _on_init(self, init: SaslInit, events: list[ProtocolEvent]) -> None:
        if init.mechanism not in self._mechanisms:
            raise ProtocolError(UNAUTHORIZED, "the SASL mechanism is not one of those offered")
        self.state = HandshakeState.DECISION
        events.append(SaslInitReceived(init.mechanism, init.initial_response, init.hostname))

    def _on_mechanisms(self, offered: SaslMechanisms) -> None:
        client = self._client
        if client.mechanism not in offered.sasl_server_mechanisms:
            raise ProtocolError(UNAUTHORIZED, f"the server does not offer {client.mechanism}")
        self._send(SaslInit(client.mechanism, client.initial_response, self._hostname))

    def _on_outcome(self, outcome: SaslOutcome) -> None:
        if outcome.code != OK:
            raise ProtocolError(UNAUTHORIZED, f"SASL authentication failed with code {outcome.code}")
        self._expect_amqp()
        self.start()

    def decide(self, accepted: bool) -> None:
        """Server: the owner's word on the client's init."""
        self._send(SaslOutcome(OK if accepted else AUTHENTICATION_FAILED))
        self._expect_amqp()

    def _expect_amqp(self) -> None:
        self._sasl_due = False
        self._header_sent = False
        self.state = HandshakeState.HEADER

    def fail(self, condition: str) -> None:
        """The handshake is broken: say so where SASL has a word for it."""
        if self._server and condition == UNAUTHORIZED:
            self._send(SaslOutcome(AUTHENTICATION_FAILED))

"""AMQP 1.0 without I/O, for both roles: the embedded broker is its server, the pump its client."""

from __future__ import annotations

from .codec import decode, encode
from .connection import Connection, ConnectionState
from .errors import DecodeError, EncodeError, ProtocolError, UsageError
from .events import (
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
from .limits import CodecLimits
from .link import Link, LinkState
from .message import Header, MessageSections, Properties, scan
from .performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    AmqpError,
    Attach,
    Modified,
    Open,
    Rejected,
    Released,
    Source,
    Target,
)
from .sasl import SaslClient
from .session import Session, SessionState

__all__ = [
    "ACCEPTED",
    "RELEASED",
    "Accepted",
    "AmqpError",
    "Attach",
    "Closed",
    "CodecLimits",
    "Connection",
    "ConnectionState",
    "DecodeError",
    "EncodeError",
    "Header",
    "Link",
    "LinkAttached",
    "LinkDetached",
    "LinkFlowed",
    "LinkState",
    "MessageSections",
    "Modified",
    "Open",
    "Opened",
    "Properties",
    "ProtocolError",
    "ProtocolEvent",
    "Rejected",
    "Released",
    "SaslClient",
    "SaslInitReceived",
    "Session",
    "SessionBegun",
    "SessionEnded",
    "SessionState",
    "Settled",
    "Source",
    "Target",
    "TransferReceived",
    "UsageError",
    "decode",
    "encode",
    "scan",
]

"""AMQP 1.0 without I/O, for both roles: the embedded broker is its server, the pump its client."""

from __future__ import annotations

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.connection import Connection, ConnectionState
from pairbus.amqp.errors import DecodeError, EncodeError, ProtocolError, UsageError
from pairbus.amqp.events import (
    Closed,
    Event,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    Opened,
    Received,
    SaslInitReceived,
    SessionBegun,
    SessionEnded,
    Settled,
)
from pairbus.amqp.limits import Limits
from pairbus.amqp.link import Link, LinkState
from pairbus.amqp.message import Header, MessageSections, Properties, scan
from pairbus.amqp.performatives import (
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
from pairbus.amqp.sasl import PlainCredentials, SaslClient
from pairbus.amqp.session import Session, SessionState

__all__ = [
    "ACCEPTED",
    "RELEASED",
    "Accepted",
    "AmqpError",
    "Attach",
    "Closed",
    "Connection",
    "ConnectionState",
    "DecodeError",
    "EncodeError",
    "Event",
    "Header",
    "Limits",
    "Link",
    "LinkAttached",
    "LinkDetached",
    "LinkFlowed",
    "LinkState",
    "MessageSections",
    "Modified",
    "Open",
    "Opened",
    "PlainCredentials",
    "Properties",
    "ProtocolError",
    "Received",
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
    "UsageError",
    "decode",
    "encode",
    "scan",
]

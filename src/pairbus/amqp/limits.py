"""How much one peer may make us hold."""

from __future__ import annotations

from dataclasses import dataclass

MAX_DEPTH = 32
"""Nesting of values. Real messages stay below ten; Python's own stack ends at a thousand frames."""

MAX_ZERO_WIDTH = 16
"""Elements of an array whose elements take no bytes (null, true, list0 …).

Such an array may claim four thousand million elements in six bytes, so its count cannot be checked against
the bytes at hand. Nobody sends them; sixteen keeps the cost near that of the same bytes as a plain list.
"""


MAX_PERFORMATIVE = 65536
"""Bytes of a performative without its payload: an attach is kept as long as its link lives."""

MAX_SECTIONS = 32768
"""Sections of one message. A batch has one for each of its messages; the service takes 4,500."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecLimits:
    """Bounds for one connection. A peer that passes one loses the link, the session or the connection."""

    max_sessions: int = 4096
    """Sessions a connection; announced as channel-max. Node clients open one session per link pair."""

    max_links: int = 256
    """Links a session; announced as handle-max."""

    max_connection_links: int = 8192
    """Links a connection, over all its sessions; a further one is refused."""

    max_message_size: int = 1 << 20
    """Bytes of a message on a link that has not announced a size of its own."""

    message_allowance: int = 65536
    """Bytes that a message may take beyond its link's max-message-size before the link is detached.

    Between the two the owner sees the message and can refuse it alone, which keeps the sender's link.
    """

    max_partial_bytes: int = 64 << 20
    """Bytes of unfinished multi-frame messages, over all links of a connection."""

    max_held_bytes: int = 4 << 20
    """Payload that waits for a shut session window before `Link.sendable` says zero."""

    max_unsettled: int = 1 << 18
    """Deliveries a session remembers in each direction; beyond it the oldest are forgotten."""

    session_window: int = 65536
    """Transfer frames that the peer may send before it needs a new flow frame."""

    max_sasl_frame: int = 16384
    """Bytes of a SASL frame. The standard says 512; a long password is no reason to be turned away."""

    max_ahead: int = 1 << 18
    """Bytes that a client may send ahead while the owner makes up its mind on SASL: one large read."""

    close_timeout: float = 10.0
    """Seconds that the peer has to answer our close frame."""

"""How much one peer may make us hold."""

from dataclasses import dataclass

MAX_DEPTH = 32
"""Nesting of values. Real messages stay below ten; Python's own stack ends at a thousand frames."""

MAX_ZERO_WIDTH = 16
"""Elements of an array whose elements take no bytes (null, true, list0 …).

Such an array may claim four thousand million elements in six bytes, so its count cannot be checked against
the bytes at hand. Nobody sends them; sixteen keeps the cost near that of the same bytes as a plain list.
"""

MAX_ELEMENTS = 32768
"""Elements of one value, over all lists, maps and arrays in it. The largest that clients send, pages of
sessions and messages, have some ten thousand; this many take ten milliseconds.
"""

MAX_PERFORMATIVE = 65536
"""Bytes of a performative without its payload: an attach is kept as long as its link lives."""

MAX_SECTIONS = 8192
"""Sections of one message. A batch has one for each of its messages; the service takes 4,500. This many are
found in ten milliseconds.
"""


MAX_HEAD = 1 << 20
"""Bytes of all that comes before the body of a message whose body is not copied."""


MAX_TAG = 32
"""Bytes of a delivery tag (part 2.8.7)."""

UNLIMITED = 1 << 60

MIN_IDLE_TIMEOUT = 1000
"""Milliseconds. A peer that asks for heartbeats within less gets them as if it had asked for this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrangerLimits:
    """Bounds for a peer that has not shown who it is. They are for what comes before a token, and no more."""

    max_sessions: int = 8
    max_links: int = 16

    max_bytes: int = 16384
    """Bytes of unfinished frames and messages. A token has at most a few thousand."""

    max_performative: int = 4096
    max_read_effort: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecLimits:
    """Bounds for one connection. A peer that passes one loses the link, the session or the connection."""

    max_sessions: int = 4096
    """Sessions a connection; announced as channel-max. Node clients open one session per link pair."""

    max_links: int = 256
    """Links a session; announced as handle-max."""

    max_connection_links: int = 4096
    """Links a connection, over all its sessions; further ones are refused, and as many again end it."""

    max_link_name: int = 1024
    """Characters of a link's name, which is kept as long as the link lives."""

    max_message_size: int = 1 << 20
    """Bytes of a message on a link that has not announced a size of its own."""

    message_allowance: int = 65536
    """Bytes that a message may take beyond its link's max-message-size before the link is detached.

    Between the two the owner is told of the message and can refuse it alone, which keeps the sender's link;
    its bytes are dropped.
    """

    max_partial_bytes: int = 64 << 20
    """Bytes of unfinished multi-frame messages, over all links of a connection."""

    max_held_bytes: int = 4 << 20
    """Payload that waits for a shut session window before `Link.sendable` says zero."""

    max_written: int = UNLIMITED
    """Bytes of messages of many frames that are written before `data_to_send` takes them out; the rest waits
    for `write_more`.
    """

    largest_copied: int = UNLIMITED
    """A message of many frames that is larger is told as a view of what it was put together in."""

    max_unsettled: int = 1 << 18
    """Deliveries a session remembers in each direction; beyond it the oldest are forgotten."""

    session_window: int = 65536
    """Transfer frames that the peer may send before it needs a new flow frame."""

    max_sasl_frame: int = 16384
    """Bytes of a SASL frame. The standard says 512; a long password is no reason to be turned away."""

    max_ahead: int = 1 << 18
    """Bytes that a client may send ahead while the owner makes up its mind on SASL: one large read."""

    max_read_effort: int = UNLIMITED
    """Effort that is spent on one read; the rest waits until `receive_data` is called again. A usual message,
    a heartbeat or a settlement like the one before is 1, a flow 4, another settlement 4 and more by the
    deliveries that it makes us look at, a frame through the general codec 16 and more by its size. Sixty
    attaches are 1,024.
    """

    stranger: StrangerLimits = StrangerLimits()
    """What holds until the owner calls `Connection.trust`."""

    close_timeout: float = 10.0
    """Seconds that the peer has to answer our close frame."""

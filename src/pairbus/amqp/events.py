"""What a connection tells its owner, in the order in which it happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from .performatives import AmqpError, Attach, DeliveryState, Open

if TYPE_CHECKING:
    from .link import Link
    from .session import Session


@dataclass(slots=True)
class SaslInitReceived:
    """A client wants in; the owner answers with `Connection.sasl_outcome`."""

    mechanism: str
    initial_response: bytes | None = field(repr=False)
    hostname: str | None


@dataclass(slots=True)
class Opened:
    """The peer's open frame has come; a server has answered it."""

    open: Open


@dataclass(slots=True)
class SessionBegun:
    """Both sides have begun the session."""

    session: Session


@dataclass(slots=True)
class LinkAttached:
    """The peer's attach has come.

    `link.initiated` tells whether it answers ours. If not, the owner calls `accept` or `refuse`. An
    answer without source and target is a refusal: the peer's detach with the reason follows.
    """

    link: Link
    attach: Attach


@dataclass(slots=True)
class LinkFlowed:
    """The peer's flow for a link, or a session window that opened again with credit left.

    `credit` is what the sender may now send. An echo has been answered already. To `drain` on a link
    where we send: send what there is, then call `drained`. `is_grant` is false if only the window opened.
    """

    link: Link
    credit: int
    drain: bool
    echo: bool
    is_grant: bool = field(default=True, compare=False)


@dataclass(slots=True)
class TransferReceived:
    """A whole message. One that is far above its link's size has `dropped` bytes, and an empty payload. One
    that is above `largest_copied` has an empty payload too, and is in `view`. `state` is what the sender says
    of it: to which transaction it belongs.
    """

    link: Link
    delivery_id: int
    tag: bytes
    payload: bytes = field(repr=False)
    settled: bool
    message_format: int
    dropped: int = 0
    view: memoryview | None = field(default=None, repr=False)
    state: DeliveryState | None = None


@dataclass(slots=True)
class Settled:
    """The peer's word on deliveries of one link; with `settled` false it waits for ours. `is_range`: it was
    said in one frame for all of them, and not in one for each.
    """

    link: Link
    delivery_ids: list[int]
    state: DeliveryState | None
    settled: bool
    is_range: bool = field(default=False, compare=False)


@dataclass(slots=True)
class LinkDetached:
    """The link is over: the peer detached it, confirmed our detach, or broke it (then `error` is ours)."""

    link: Link
    closed: bool
    error: AmqpError | None


@dataclass(slots=True)
class SessionEnded:
    """The session and all its links are over; no LinkDetached comes for them."""

    session: Session
    error: AmqpError | None


@dataclass(slots=True)
class Closed:
    """The connection is over: write out what waits and hang up. `local`: it was our side that closed."""

    error: AmqpError | None
    local: bool


ProtocolEvent: TypeAlias = (
    SaslInitReceived
    | Opened
    | SessionBegun
    | LinkAttached
    | LinkFlowed
    | TransferReceived
    | Settled
    | LinkDetached
    | SessionEnded
    | Closed
)

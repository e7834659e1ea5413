"""A link: one direction of messages between two termini.

    ATTACH_SENT ──peer attaches──> ATTACHED ──either detaches──> DETACH_SENT ──the other detaches──> DETACHED
    ATTACH_RECEIVED ──accept or refuse──^

1. ``credit`` is what the receiving side granted and the sending side has not used. The sender's own count is
   the truth (part 2.6.7), so a grant is reckoned against ``delivery_count``.
2. A receiver does not punish messages beyond its credit: the Python SDK sends without looking at it. What is
   bounded is a message's size, by ``max_message_size`` and the allowance of the limits.
3. ``settle`` writes one frame a delivery. Ranges would be shorter, but each coroutine that waits for its own
   settlement in the Python SDK sits out a read time-out if it came in somebody else's frame.
4. Calls on a link that is over do nothing: its owner may learn of the end only a few events later.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from pairbus.amqp.errors import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, RESOURCE_LIMIT, ProtocolError
from pairbus.amqp.events import Event, LinkAttached, LinkDetached, LinkFlowed, Received
from pairbus.amqp.fastframes import (
    ACCEPTED_SUFFIX,
    RELEASED_SUFFIX,
    TransferShape,
    TransferTail,
    disposition_prefix,
    pack_disposition,
)
from pairbus.amqp.performatives import (
    Accepted,
    AmqpError,
    Attach,
    Coordinator,
    DeliveryState,
    Detach,
    Disposition,
    Flow,
    Released,
    Source,
    Target,
)
from pairbus.amqp.types import Described

if TYPE_CHECKING:
    from pairbus.amqp.session import Session

MASK = 0xFFFFFFFF
"""Counters and ids are serial numbers of 32 bits that wrap (RFC 1982)."""


def serial_gap(later: int, earlier: int) -> int:
    """How far ``later`` is ahead of ``earlier``; negative if it is behind."""
    gap = (later - earlier) & MASK
    return gap if gap < 0x80000000 else gap - 0x100000000


class LinkState(enum.Enum):
    ATTACH_SENT = "attach sent"
    ATTACH_RECEIVED = "attach received"
    ATTACHED = "attached"
    DETACH_SENT = "detach sent"
    DETACHED = "detached"


class Link:
    """One end of a link; made by ``Session.attach`` or by the peer's attach frame."""

    __slots__ = (
        "_alive",
        "_broken",
        "_drain",
        "_partial",
        "_prefix",
        "_remote_handle",
        "_shapes",
        "_size_limit",
        "_unsettled",
        "_write",
        "context",
        "credit",
        "delivery_count",
        "handle",
        "initiated",
        "is_sender",
        "local_attach",
        "name",
        "remote_attach",
        "session",
        "state",
    )

    def __init__(self, session: Session, name: str, *, is_sender: bool, initiated: bool, handle: int) -> None:
        self.session = session
        self.name = name
        self.is_sender = is_sender
        self.initiated = initiated
        self.state = LinkState.ATTACH_SENT if initiated else LinkState.ATTACH_RECEIVED
        self.credit = 0
        self.delivery_count = 0
        self.remote_attach: Attach | None = None
        self.local_attach: Attach | None = None
        self.context: Any = None
        self._alive = False
        self._broken = False
        self._drain = False
        self.handle = handle
        self._remote_handle: int | None = None
        self._partial: _Partial | None = None
        self._prefix = disposition_prefix(session.channel, receiver=not is_sender)
        self._shapes: dict[int, TransferShape] = {}
        self._size_limit = session.limits.max_message_size + session.limits.message_allowance
        self._unsettled = session.unsettled_sent if is_sender else session.unsettled_received
        self._write = session.write

    def __repr__(self) -> str:
        role = "sender" if self.is_sender else "receiver"
        return f"<Link {self.name!r} {role} {self.state.value} credit={self.credit}>"

    # Attaching

    def accept(
        self,
        *,
        source: Source | Described | None = None,
        target: Target | Coordinator | Described | None = None,
        properties: dict[Any, Any] | None = None,
        max_message_size: int | None = None,
        initial_credit: int = 0,
        offered_capabilities: tuple[str, ...] | None = None,
    ) -> None:
        """Answer the peer's attach; a terminus that is not given is the peer's own."""
        if self.state is not LinkState.ATTACH_RECEIVED or self.remote_attach is None:
            return
        remote = self.remote_attach
        self.send_attach(
            Attach(
                self.name,
                self.handle,
                not self.is_sender,
                remote.snd_settle_mode,
                remote.rcv_settle_mode,
                remote.source if source is None else source,
                remote.target if target is None else target,
                initial_delivery_count=self.delivery_count if self.is_sender else None,
                max_message_size=max_message_size,
                offered_capabilities=offered_capabilities,
                properties=properties,
            )
        )
        self.state = LinkState.ATTACHED
        self._alive = True
        if initial_credit:
            self.flow(initial_credit)

    def refuse(self, error: AmqpError) -> None:
        """Answer the peer's attach with null termini, then detach with the reason."""
        if self.state is LinkState.ATTACH_RECEIVED:
            self._send_null_attach()
            self._send_detach(True, error)

    def _send_null_attach(self) -> None:
        count = self.delivery_count if self.is_sender else None
        attach = Attach(self.name, self.handle, not self.is_sender, initial_delivery_count=count)
        if self.remote_attach is not None:
            attach.snd_settle_mode = self.remote_attach.snd_settle_mode
            attach.rcv_settle_mode = self.remote_attach.rcv_settle_mode
        self.send_attach(attach)

    def send_attach(self, attach: Attach) -> None:
        self.local_attach = attach
        if attach.max_message_size:
            self._size_limit = attach.max_message_size + self.session.limits.message_allowance
        self.session.send(attach)

    def on_attach(self, attach: Attach, events: list[Event], *, crowded: bool) -> None:
        """The peer's attach; ``crowded`` if the connection has all the links it may have."""
        self.remote_attach = attach
        self._remote_handle = attach.handle
        if not self.is_sender:
            self.delivery_count = attach.initial_delivery_count or 0
        if self.state is LinkState.DETACH_SENT:  # we gave up before the answer came
            return
        if self.state is LinkState.ATTACH_SENT:
            self.state = LinkState.ATTACHED
            self._alive = True
        if crowded:
            self.refuse(AmqpError(RESOURCE_LIMIT, "the connection has as many links as it may have"))
            self._broken = True
            return
        events.append(LinkAttached(self, attach))

    # Flow

    @property
    def sendable(self) -> int:
        """How many messages to send now: the credit, or zero while too much waits for the session's window.

        After a zero a LinkFlowed event tells when there is room again.
        """
        if not self._alive or self.credit <= 0 or self.session.is_clogged:
            return 0
        return self.credit

    def flow(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Receiving: grant exactly ``credit`` messages from now on."""
        if self._alive and not self.is_sender:
            self.credit = credit
            self._drain = drain
            self._send_flow(echo=echo)

    def drained(self) -> None:
        """Sending: nothing more to send; use up what credit is left."""
        if self._alive and self.is_sender:
            self.delivery_count = (self.delivery_count + max(self.credit, 0)) & MASK
            self.credit = 0
            self._drain = True
            self._send_flow()
            self._drain = False

    def _send_flow(self, *, echo: bool = False) -> None:
        session = self.session
        session.send(
            session.flow_state(
                handle=self.handle,
                delivery_count=self.delivery_count,
                link_credit=max(self.credit, 0),
                available=0 if self.is_sender else None,
                drain=self._drain,
                echo=echo,
            )
        )

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_RECEIVED):
            return
        if self.is_sender:
            # A receiver that has not yet seen our attach does not know the count (part 2.7.4).
            base = self.delivery_count if flow.delivery_count is None else flow.delivery_count
            self.credit = max(0, serial_gap(base, self.delivery_count) + (flow.link_credit or 0))
        elif flow.delivery_count is not None:
            used = serial_gap(flow.delivery_count, self.delivery_count)
            if used > 0:
                self.delivery_count = flow.delivery_count
                self.credit = max(0, self.credit - used)
        if flow.echo and self._alive:
            self._send_flow()
        events.append(LinkFlowed(self, self.credit, flow.drain, flow.echo))

    # Sending

    def send(self, payload: bytes, *, tag: bytes, settled: bool = False, message_format: int = 0) -> int:
        """Send one message and return its delivery id; -1 if the link is over.

        The owner minds ``sendable``; a message beyond the session's window is held until it opens.
        """
        if not self._alive:
            return -1
        session = self.session
        delivery_id = session.next_delivery_id
        session.next_delivery_id = (delivery_id + 1) & MASK
        self.delivery_count = (self.delivery_count + 1) & MASK
        self.credit -= 1
        if not settled:
            self._unsettled[delivery_id] = self
            if not delivery_id & 0xFFF:
                session.trim(self._unsettled)
        shape = self._shapes.get(len(tag) << 34 | message_format << 2 | settled << 1)
        if shape is None:
            shape = self.shape(len(tag), message_format, settled, False)
        size = shape.overhead + len(payload)
        if size > session.frame_limit or session.remote_window <= 0 or session.held:
            session.hold(self, delivery_id, tag, payload, settled, message_format)
            return delivery_id
        session.remote_window -= 1
        session.next_outgoing_id = (session.next_outgoing_id + 1) & MASK
        write = self._write
        write(shape.pack(size, shape.head, delivery_id, shape.mark, tag, shape.tail))
        write(payload)
        return delivery_id

    def shape(self, tag_size: int, message_format: int, settled: bool, more: bool) -> TransferShape:
        key = tag_size << 34 | message_format << 2 | settled << 1 | more
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = TransferShape(
                self.session.channel,
                self.handle,
                tag_size,
                format_=message_format,
                settled=settled,
                more=more,
            )
        return found

    # Receiving

    def on_transfer(
        self,
        delivery_id: int | None,
        tag: bytes | None,
        tail: TransferTail,
        payload: bytes,
        events: list[Event],
    ) -> None:
        """One transfer frame; those that cross our detach on the way are dropped."""
        if not self._alive and self.state is not LinkState.ATTACH_RECEIVED:
            return
        message_format, settled, more, aborted = tail
        if self._partial is not None or more or aborted:
            self._on_part(delivery_id, tag, tail, payload, events)
            return
        if delivery_id is None or tag is None:
            raise ProtocolError(INVALID_FIELD, "the first transfer of a delivery lacks its id or tag")
        if len(payload) > self._size_limit:
            self._break(
                AmqpError(MESSAGE_SIZE_EXCEEDED, "the message is larger than the link allows"), events
            )
            return
        self.delivery_count = (self.delivery_count + 1) & MASK
        self.credit -= 1
        if not settled:
            self._unsettled[delivery_id] = self
        events.append(Received(self, delivery_id, tag, payload, settled, message_format))

    def _on_part(
        self,
        delivery_id: int | None,
        tag: bytes | None,
        tail: TransferTail,
        payload: bytes,
        events: list[Event],
    ) -> None:
        message_format, settled, more, aborted = tail
        partial = self._partial
        if partial is None:
            if delivery_id is None or tag is None:
                raise ProtocolError(INVALID_FIELD, "the first transfer of a delivery lacks its id or tag")
            partial = self._partial = _Partial(delivery_id, tag, message_format)
        elif delivery_id is not None and delivery_id != partial.delivery_id:
            raise ProtocolError(INVALID_FIELD, "a delivery begins before the one before it has ended")
        partial.settled |= settled
        if aborted:
            self._drop_partial()
            self.delivery_count = (self.delivery_count + 1) & MASK
            self.credit -= 1
            return
        connection = self.session.connection
        partial.data += payload
        connection.partial_bytes += len(payload)
        if len(partial.data) > self._size_limit:
            self._break(
                AmqpError(MESSAGE_SIZE_EXCEEDED, "the message is larger than the link allows"), events
            )
            return
        if connection.partial_bytes > self.session.limits.max_partial_bytes:
            raise ProtocolError(RESOURCE_LIMIT, "too many bytes of unfinished messages")
        if not more:
            whole = (partial.message_format, partial.settled, False, False)
            data = bytes(partial.data)
            self._drop_partial()
            self.on_transfer(partial.delivery_id, partial.tag, whole, data, events)

    def _drop_partial(self) -> None:
        if self._partial is not None:
            self.session.connection.partial_bytes -= len(self._partial.data)
            self._partial = None

    # Settling

    def settle(self, delivery_id: int, state: DeliveryState | None, *, settled: bool = True) -> None:
        """Tell the peer the state of one delivery, in a frame of its own."""
        if not self._alive:
            return
        if settled:
            self._unsettled.pop(delivery_id, None)
            if type(state) is Accepted:
                self._write(pack_disposition(self._prefix, delivery_id, 0x70, delivery_id, ACCEPTED_SUFFIX))
                return
            if type(state) is Released:
                self._write(pack_disposition(self._prefix, delivery_id, 0x70, delivery_id, RELEASED_SUFFIX))
                return
        self.session.send(Disposition(not self.is_sender, delivery_id, delivery_id, settled, state))

    def settle_range(
        self, first: int, last: int, state: DeliveryState | None, *, settled: bool = True
    ) -> None:
        """Tell the peer the state of deliveries ``first`` to ``last`` in one frame."""
        if self._alive:
            if settled:
                self.session.forget(self._unsettled, first, last)
            self.session.send(Disposition(not self.is_sender, first, last, settled, state))

    # Detaching

    def detach(self, error: AmqpError | None = None, *, closed: bool = True) -> None:
        """Detach; LinkDetached follows when the peer has confirmed."""
        if self.state is LinkState.ATTACH_RECEIVED:
            self._send_null_attach()
        elif self.state not in (LinkState.ATTACH_SENT, LinkState.ATTACHED):
            return
        self._send_detach(closed, error)

    def _send_detach(self, closed: bool, error: AmqpError | None) -> None:
        self.state = LinkState.DETACH_SENT
        self._retire()
        self.session.send(Detach(self.handle, closed, error))

    def _break(self, error: AmqpError, events: list[Event]) -> None:
        """The peer went too far on this link: detach it and tell the owner at once."""
        self.detach(error)
        self._broken = True
        events.append(LinkDetached(self, True, error))

    def on_detach(self, detach: Detach, events: list[Event]) -> None:
        if self.state is LinkState.ATTACH_RECEIVED:
            self._send_null_attach()
        if self.state is not LinkState.DETACH_SENT:
            self.session.send(Detach(self.handle, detach.closed))
        self.state = LinkState.DETACHED
        self._retire()
        if not self._broken:
            events.append(LinkDetached(self, detach.closed, detach.error))

    def kill(self) -> None:
        """The session or the connection is over, and the link with it."""
        self.state = LinkState.DETACHED
        self._alive = False
        self._drop_partial()

    def _retire(self) -> None:
        """Let go of everything that a link which is over no longer needs."""
        self._alive = False
        self._drop_partial()
        self.session.forget_link(self)


class _Partial:
    """A message of which frames are still to come."""

    __slots__ = ("data", "delivery_id", "message_format", "settled", "tag")

    def __init__(self, delivery_id: int, tag: bytes, message_format: int) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = message_format
        self.settled = False
        self.data = bytearray()

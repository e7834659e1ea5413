"""A link: one direction of messages between two termini.

    ATTACH_SENT ──peer attaches──> ATTACHED ──either detaches──> DETACH_SENT ──the other detaches──> DETACHED
    ATTACH_RECEIVED ──accept or refuse──^

1. `credit` is what the receiving side granted and the sending side has not used. The sender's own count is
   the truth (part 2.6.7), so a grant is reckoned against `delivery_count`.
2. A receiver does not punish messages beyond its credit: the Python SDK sends without looking at it. What is
   bounded is a message's size, by `max_message_size` and the allowance of the limits.
3. `settle` writes one frame a delivery unless it is told that neighbours may share one. Ranges are shorter,
   but each coroutine that waits for its own settlement in the Python SDK sits out a read time-out if it came
   in somebody else's frame; so only peers that pipeline get them.
4. Calls on a link that is over do nothing: its owner may learn of the end only a few events later.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pairbus.conditions import INVALID_FIELD, LINK_STOLEN, MESSAGE_SIZE_EXCEEDED, RESOURCE_LIMIT
from pairbus.plumbing.ranges import ranges_of

from .errors import ProtocolError
from .events import LinkAttached, LinkDetached, LinkFlowed, ProtocolEvent, TransferReceived
from .fastattach import encode_attach
from .fastframes import (
    ECHOED_SUFFIXES,
    SHORT_SUFFIXES,
    TransferShape,
    disposition_prefix,
    pack_disposition,
    transfer_frame,
)
from .limits import MAX_TAG
from .outbox import Outgoing
from .performatives import (
    RECEIVER_SECOND,
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
    Transfer,
)
from .pieces import Pieces
from .serials import MASK, serial_gap
from .types import Described

if TYPE_CHECKING:
    from .session import Session

# How far a message may be above its link's size before its bytes are dropped: some clients reckon without
# headers, and who is a little above is refused with the words for what it has sent.
KEPT_ALLOWANCE = 65536


class LinkState(enum.Enum):
    ATTACH_SENT = "attach sent"
    ATTACH_RECEIVED = "attach received"
    ATTACHED = "attached"
    DETACH_SENT = "detach sent"
    DETACHED = "detached"


class Link:
    """One end of a link; made by `Session.attach` or by the peer's attach frame."""

    __slots__ = (
        "_drain",
        "_owner_told",
        "_partial",
        "_prefix",
        "_settled_run",
        "_shapes",
        "_unsettled",
        "_write",
        "announced_limit",
        "context",
        "credit",
        "delivery_count",
        "handle",
        "initiated",
        "is_alive",
        "is_plain",
        "is_sender",
        "kept_limit",
        "name",
        "remote_attach",
        "session",
        "size_limit",
        "state",
    )

    def __init__(self, session: Session, name: str, *, is_sender: bool, initiated: bool, handle: int) -> None:
        self.session = session
        self.name = name
        self.is_sender = is_sender
        self.initiated = initiated
        self.handle = handle
        self.state = LinkState.ATTACH_SENT if initiated else LinkState.ATTACH_RECEIVED
        self.credit = 0
        self.delivery_count = 0
        self.remote_attach: Attach | None = None
        self.context: Any = None
        self.is_plain = False  # receives, and no unfinished message: the inbox may take the short way
        self._limit_size(session.limits.max_message_size)
        self.is_alive = False
        self._owner_told = False
        self._drain = False
        self._partial: _Partial | None = None
        self._prefix = disposition_prefix(session.channel, receiver=not is_sender)
        self._settled_run = session.connection.settled_run
        self._shapes: dict[tuple[int, int, bool, bool], TransferShape] = {}
        self._unsettled = session.unsettled_sent if is_sender else session.unsettled_received
        self._write = session.write

    def __repr__(self) -> str:
        role = "sender" if self.is_sender else "receiver"
        return f"<Link {self.name!r} {role} {self.state.value} credit={self.credit}>"

    # -- attaching

    def accept(
        self,
        *,
        source: Source | Described | None = None,
        target: Target | Coordinator | Described | None = None,
        properties: dict[Any, Any] | None = None,
        max_message_size: int | None = None,
        initial_credit: int = 0,
    ) -> None:
        """Answer the peer's attach; a terminus that is not given is the peer's own."""
        if self.state is not LinkState.ATTACH_RECEIVED:
            return
        attach = self._answer()
        remote = self.remote_attach
        attach.source = remote.source if source is None and remote is not None else source
        attach.target = remote.target if target is None and remote is not None else target
        attach.max_message_size = max_message_size
        attach.properties = properties
        self.send_attach(attach)
        self._forget_attach()
        self.state = LinkState.ATTACHED
        self.is_alive = True
        if initial_credit:
            self.flow(initial_credit)

    def refuse(self, error: AmqpError) -> None:
        """Answer the peer's attach with null termini, then detach with the reason; no event follows."""
        if self.state is LinkState.ATTACH_RECEIVED:
            self._owner_told = True
            self.detach(error)
            self._forget_attach()

    def _forget_attach(self) -> None:
        """Keep of the peer's attach what is asked for later: maps take fifty times the bytes that they came
        in. A link that we have asked for keeps it all.
        """
        remote = self.remote_attach
        if remote is not None:
            target = remote.target
            self.remote_attach = Attach(
                self.name,
                remote.handle,
                remote.role,
                remote.snd_settle_mode,
                remote.rcv_settle_mode,
                target=Target(target.address) if isinstance(target, Target) else None,
                max_message_size=remote.max_message_size,
            )

    def _answer(self) -> Attach:
        """The part of our attach that follows from the peer's; its termini are null."""
        count = self.delivery_count if self.is_sender else None
        attach = Attach(self.name, self.handle, not self.is_sender, initial_delivery_count=count)
        if self.remote_attach is not None:
            attach.snd_settle_mode = self.remote_attach.snd_settle_mode
            attach.rcv_settle_mode = self.remote_attach.rcv_settle_mode
        return attach

    def send_attach(self, attach: Attach) -> None:
        if attach.max_message_size:
            self._limit_size(attach.max_message_size)
        self._write(encode_attach(self.session.channel, attach))

    def _limit_size(self, announced: int) -> None:
        allowance = self.session.limits.message_allowance
        self.announced_limit = announced
        self.size_limit = announced + allowance
        self.kept_limit = announced + min(allowance, KEPT_ALLOWANCE)

    def on_attach(self, attach: Attach, events: list[ProtocolEvent], *, crowded: bool) -> None:
        """The peer's attach; `crowded` if the connection has all the links it may have."""
        self.remote_attach = attach
        if not self.is_sender:
            self.delivery_count = attach.initial_delivery_count or 0
        if self.state is LinkState.DETACH_SENT:  # we gave up before the answer came
            return
        if self.state is LinkState.ATTACH_SENT:
            self.state = LinkState.ATTACHED
            self.is_alive = True
        if crowded:
            self.refuse(AmqpError(RESOURCE_LIMIT, "the connection has as many links as it may have"))
            return
        self.is_plain = not self.is_sender
        events.append(LinkAttached(self, attach))

    # -- flow

    @property
    def sendable(self) -> int:
        """How many messages to send now: the credit, or zero while too much waits for the session's window.

        After a zero with credit left, a LinkFlowed event tells when there is room again.
        """
        if not self.is_alive or self.credit <= 0 or self.session.outbox.is_clogged:
            return 0
        return self.credit

    def flow(self, credit: int, *, drain: bool = False, echo: bool = False) -> None:
        """Receiving: grant exactly `credit` messages from now on."""
        if self.is_alive and not self.is_sender:
            self.credit = credit
            self._drain = drain
            self._send_flow(echo=echo)

    def drained(self) -> None:
        """Sending: nothing more to send; use up what credit is left. It is said behind what was sent."""
        if self.is_alive and self.is_sender:
            self.delivery_count = (self.delivery_count + max(self.credit, 0)) & MASK
            self.credit = 0
            self.session.outbox.tell_drained(self)

    def say_drained(self, count: int) -> None:
        if self.is_alive:
            self.session.send_flow(
                handle=self.handle, delivery_count=count, link_credit=0, available=0, drain=True
            )

    def _send_flow(self, *, echo: bool = False) -> None:
        self.session.send_flow(
            handle=self.handle,
            delivery_count=self.delivery_count,
            link_credit=max(self.credit, 0),
            available=0 if self.is_sender else None,
            drain=self._drain,
            echo=echo,
        )

    def on_flow(self, flow: Flow, events: list[ProtocolEvent]) -> None:
        if self.state not in (LinkState.ATTACHED, LinkState.ATTACH_RECEIVED):
            return
        if self.is_sender:
            # A receiver that has not yet seen our attach does not know the count (part 2.7.4).
            ahead = 0 if flow.delivery_count is None else serial_gap(flow.delivery_count, self.delivery_count)
            self.credit = min(MASK, max(0, ahead + (flow.link_credit or 0)))
        elif flow.delivery_count is not None:
            used = serial_gap(flow.delivery_count, self.delivery_count)
            if used > 0:
                self.delivery_count = flow.delivery_count
                self.credit = max(0, self.credit - used)
        if flow.echo and self.is_alive:
            self._send_flow()
        events.append(LinkFlowed(self, self.credit, flow.drain, flow.echo))

    # -- sending

    def send(
        self,
        payload: bytes | Pieces,
        tag: bytes | None = None,
        message_format: int = 0,
        settled: bool = False,
    ) -> int:
        """Send one message and return its delivery id, which is its tag if none is given; -1 if the link is
        over.

        The owner minds `sendable`; what is beyond the session's window waits until it opens.
        """
        if not self.is_alive:
            return -1
        session = self.session
        delivery_id = session.next_delivery_id
        if tag is None:
            tag = delivery_id.to_bytes(4, "big")
        shape = self._shapes.get((len(tag), message_format, settled, False))
        if shape is None:
            shape = self.shape(len(tag), message_format, settled=settled, more=False)
        session.next_delivery_id = (delivery_id + 1) & MASK
        self.delivery_count = (self.delivery_count + 1) & MASK
        self.credit -= 1
        if not settled:
            self._unsettled[delivery_id] = self
            if not delivery_id & 0xFFF:  # now and then is often enough for a bound
                self._unsettled.trim(session.limits.max_unsettled)
        size = shape.overhead + len(payload)
        if (
            size > session.frame_limit
            or session.remote_window <= 0
            or session.outbox.items
            or isinstance(payload, Pieces)
        ):
            session.outbox.add(Outgoing(self, delivery_id, tag, payload, settled, message_format))
            return delivery_id
        session.remote_window -= 1
        session.next_outgoing_id = (session.next_outgoing_id + 1) & MASK
        self._write(shape.pack(size, shape.head, delivery_id, shape.mark, tag, shape.tail))
        self._write(payload)
        return delivery_id

    def send_all(self, payloads: Sequence[bytes | Pieces], tags: Sequence[bytes]) -> list[int]:
        """Send messages as `send` does, with tags of one length; their delivery ids."""
        session, count = self.session, len(payloads)
        shape = self.shape(len(tags[0]), 0, settled=False, more=False)
        room, overhead = session.frame_limit - shape.overhead, shape.overhead
        if (
            not self.is_alive
            or session.remote_window < count
            or session.outbox.items
            or set(map(type, payloads)) != {bytes}
            or max(map(len, payloads)) > room
        ):
            return [self.send(payload, tag) for payload, tag in zip(payloads, tags, strict=True)]
        first = session.next_delivery_id
        ids = [number & MASK for number in range(first, first + count)]
        session.next_delivery_id = (first + count) & MASK
        session.remote_window -= count
        session.next_outgoing_id = (session.next_outgoing_id + count) & MASK
        self.delivery_count = (self.delivery_count + count) & MASK
        self.credit -= count
        self._unsettled.update(dict.fromkeys(ids, self))
        if ((first - 1) ^ ids[-1]) & MASK > 0xFFF:  # a number is among them at which `send` does
            self._unsettled.trim(session.limits.max_unsettled)
        write, pack, head, mark, tail = self._write, shape.pack, shape.head, shape.mark, shape.tail
        for delivery_id, tag, payload in zip(ids, tags, payloads, strict=True):
            write(pack(overhead + len(payload), head, delivery_id, mark, tag, tail))
            write(payload)  # type: ignore[arg-type]  # all are bytes
        return ids

    def shape(self, tag_size: int, message_format: int, *, settled: bool, more: bool) -> TransferShape:
        """The frame of our transfers with a tag of that size; made once, then found by `send`."""
        key = tag_size, message_format, settled, more
        shape = self._shapes.get(key)
        if shape is None:
            frame = transfer_frame(self.handle, tag_size, message_format, settled, more)
            shape = self._shapes[key] = TransferShape(self.session.channel, frame, tag_size)
        return shape

    # -- receiving

    def on_transfer(self, transfer: Transfer, payload: bytes, events: list[ProtocolEvent]) -> None:
        """One transfer frame; those that cross our detach on the way are dropped."""
        if not self.is_alive and self.state is not LinkState.ATTACH_RECEIVED:
            return
        partial = self._partial
        fault = self._fault_of(transfer, partial)
        if fault is not None:
            self._break(AmqpError(INVALID_FIELD, fault), events)
            return
        if partial is None:
            if transfer.delivery_id is None or transfer.delivery_tag is None:
                raise ProtocolError(INVALID_FIELD, "the first transfer of a delivery lacks its id or tag")
            if len(transfer.delivery_tag) > MAX_TAG:
                raise ProtocolError(INVALID_FIELD, f"a delivery tag has more than {MAX_TAG} bytes")
            partial = self._partial = _Partial(transfer.delivery_id, transfer.delivery_tag)
            partial.message_format = transfer.message_format or 0
            self.is_plain = False
        elif transfer.delivery_id not in (None, partial.delivery_id):
            raise ProtocolError(INVALID_FIELD, "a delivery begins before the one before it has ended")
        partial.settled |= transfer.settled or False
        if transfer.state is not None:
            partial.state = transfer.state
        if transfer.aborted:
            self._count_delivery()
        elif self._grow(partial, payload, events):
            if transfer.more:
                self._refuse_early(partial, events)
                return
            self._count_delivery()
            if not partial.is_told:
                self._tell(partial, events)

    def _fault_of(self, transfer: Transfer, partial: _Partial | None) -> str | None:
        """What a transfer may not say on this link (part 2.7.5)."""
        remote = self.remote_attach
        if transfer.rcv_settle_mode == RECEIVER_SECOND and (
            remote is None or remote.rcv_settle_mode != RECEIVER_SECOND
        ):
            return "a transfer has rcv-settle-mode second on a link whose mode is first"
        if partial is not None and transfer.message_format not in (None, partial.message_format):
            return "a delivery goes on with another message format than it began with"
        return None

    def _tell(self, partial: _Partial, events: list[ProtocolEvent]) -> None:
        if not partial.settled:
            self._unsettled[partial.delivery_id] = self
        events.append(partial.finish(self))

    def _refuse_early(self, partial: _Partial, events: list[ProtocolEvent]) -> None:
        """Tell a server's owner of a message that is too large without waiting for its end. The envelope of a
        batch may be a little above the size.
        """
        limit = self.kept_limit if partial.message_format else self.announced_limit
        if partial.is_told or partial.size <= limit or not self.session.connection.server:
            return
        partial.is_told = True
        self.session.connection.partial_bytes -= len(partial.data)
        partial.data.clear()
        self._tell(partial, events)

    def _grow(self, partial: _Partial, payload: bytes, events: list[ProtocolEvent]) -> bool:
        """Add a frame's payload; false if that broke the link."""
        connection = self.session.connection
        partial.size += len(payload)
        if partial.is_told or partial.size > self.kept_limit:
            connection.partial_bytes -= len(partial.data)
            partial.data.clear()  # it will be refused, whatever is in it
        else:
            partial.data += payload
            connection.partial_bytes += len(payload)
        if partial.size > self.size_limit:
            self._break(
                AmqpError(MESSAGE_SIZE_EXCEEDED, "the message is larger than the link allows"), events
            )
            return False
        if connection.partial_bytes > connection.partial_limit:
            raise ProtocolError(RESOURCE_LIMIT, "too many bytes of unfinished messages")
        return True

    def give_up_name(self, events: list[ProtocolEvent]) -> None:
        """The peer attaches another link of the same name and role: this one is over (part 2.6.1)."""
        if self.state in (LinkState.ATTACHED, LinkState.ATTACH_RECEIVED):
            text = f"the link {self.name!r} has been attached again"
            self._break(AmqpError(LINK_STOLEN, text), events)

    def _break(self, error: AmqpError, events: list[ProtocolEvent]) -> None:
        """Detach for a fault of the peer, and tell the owner at once."""
        self.detach(error)
        self._owner_told = True
        events.append(LinkDetached(self, True, error))

    def _count_delivery(self) -> None:
        self._drop_partial()
        self.is_plain = True
        self.delivery_count = (self.delivery_count + 1) & MASK
        self.credit -= 1

    def _drop_partial(self) -> None:
        if self._partial is not None:
            self.session.connection.partial_bytes -= len(self._partial.data)
            self._partial = None

    # -- settling

    def settle(
        self, delivery_id: int, state: DeliveryState | None, *, settled: bool = True, joins: bool = False
    ) -> None:
        """Tell the peer the state of one delivery, in a frame of its own.

        With `joins` neighbours of the same outcome may share one, which suits a peer that pipelines. Some
        clients wait longer for an answer that they share.
        """
        if not self.is_alive:
            return
        if settled:
            self._unsettled.pop(delivery_id, None)
        suffix = (SHORT_SUFFIXES if settled else ECHOED_SUFFIXES).get(type(state))
        if suffix is None:
            self.session.send(Disposition(not self.is_sender, delivery_id, delivery_id, settled, state))
        elif joins:
            self._settled_run.add(self._prefix, delivery_id, delivery_id, suffix)
        else:
            self._write(pack_disposition(self._prefix, delivery_id, 0x70, delivery_id, suffix))

    def settle_all(self, delivery_ids: list[int], state: Accepted | Released, *, joins: bool) -> None:
        """Tell the peer the state of deliveries, as `settle` does."""
        if not self.is_alive:
            return
        forget, prefix, suffix = self._unsettled.pop, self._prefix, SHORT_SUFFIXES[type(state)]
        for delivery_id in delivery_ids:
            forget(delivery_id, None)
        if joins:
            for first, last in ranges_of(delivery_ids):
                self._settled_run.add(prefix, first, last, suffix)
        elif delivery_ids:
            frames = [pack_disposition(prefix, number, 0x70, number, suffix) for number in delivery_ids]
            self._write(b"".join(frames))

    def settle_range(
        self, first: int, last: int, state: DeliveryState | None, *, settled: bool = True
    ) -> None:
        """Tell the peer the state of deliveries `first` to `last` in one frame."""
        if self.is_alive:
            if settled:
                self._unsettled.forget(first, last)
            suffix = (SHORT_SUFFIXES if settled else ECHOED_SUFFIXES).get(type(state))
            if suffix is not None:
                self._write(pack_disposition(self._prefix, first, 0x70, last, suffix))
            else:
                self.session.send(Disposition(not self.is_sender, first, last, settled, state))

    # -- detaching

    def detach(self, error: AmqpError | None = None) -> None:
        """Detach; LinkDetached follows when the peer has confirmed."""
        if self.state is LinkState.ATTACH_RECEIVED:
            self.send_attach(self._answer())
        elif self.state not in (LinkState.ATTACH_SENT, LinkState.ATTACHED):
            return
        self.session.send(Detach(self.handle, True, error))
        self._retire(LinkState.DETACH_SENT)

    def on_detach(self, detach: Detach, events: list[ProtocolEvent]) -> None:
        if self.state is LinkState.ATTACH_RECEIVED:
            self.send_attach(self._answer())
        if self.state is not LinkState.DETACH_SENT:
            self.session.send(Detach(self.handle, detach.closed))
        self._retire(LinkState.DETACHED)
        if not self._owner_told:
            events.append(LinkDetached(self, detach.closed, detach.error))

    def _retire(self, state: LinkState) -> None:
        """Let go of everything that a link which is over no longer needs."""
        self.kill()
        self.state = state
        self._unsettled.note_end_of_link()

    def kill(self) -> None:
        """The session or the connection is over, and the link with it."""
        self.state = LinkState.DETACHED
        self.is_alive = False
        self.is_plain = False
        self._drop_partial()


class _Partial:
    """A message of which frames are still to come."""

    __slots__ = ("data", "delivery_id", "is_told", "message_format", "settled", "size", "state", "tag")

    def __init__(self, delivery_id: int, tag: bytes) -> None:
        self.delivery_id = delivery_id
        self.tag = tag
        self.message_format = 0
        self.settled = False
        self.state: DeliveryState | None = None
        self.data = bytearray()
        self.size = 0  # of what has come, whether it is kept or not
        self.is_told = False  # the owner knows of it already

    def finish(self, link: Link) -> TransferReceived:
        is_large = len(self.data) > link.session.limits.largest_copied
        return TransferReceived(
            link,
            self.delivery_id,
            self.tag,
            b"" if is_large else bytes(self.data),
            self.settled,
            self.message_format,
            self.size - len(self.data),
            memoryview(self.data).toreadonly() if is_large else None,
            self.state,
        )

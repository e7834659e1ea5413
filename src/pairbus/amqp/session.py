"""A session: windows of transfer frames in both directions, and the links that share them.

    BEGIN_SENT ──peer begins──> MAPPED ──either ends──> END_SENT ──the other ends──> ENDED

1. Ids count transfer frames, not messages, and wrap at 32 bits. Delivery ids count messages.
2. Outgoing: ``remote_window`` is how many frames the peer will still take. At zero, messages are held in the
   order of ``send`` and written when a flow opens the window; nothing overtakes a held message.
3. Incoming: our window is opened again when half of it is used. It bounds frames in flight, not the peer: one
   that overruns it is not punished, since the Python SDK counts a message of many frames as one.
4. A flow that asks for an echo is answered at once, for the session or for the link that it names.
5. A frame for a handle that is not attached ends the session, not the connection. What the peer sends until it
   has seen our end frame is dropped.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pairbus.amqp.composites import Composite
from pairbus.amqp.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    RESOURCE_LIMIT,
    UNATTACHED_HANDLE,
    ProtocolError,
    SessionViolation,
    UsageError,
)
from pairbus.amqp.events import Event, LinkFlowed, SessionBegun, SessionEnded, Settled
from pairbus.amqp.fastframes import TransferTail, read_transfer
from pairbus.amqp.frames import encode_frame
from pairbus.amqp.limits import Limits
from pairbus.amqp.link import MASK, Link, LinkState, serial_gap
from pairbus.amqp.performatives import (
    AmqpError,
    Attach,
    Begin,
    Coordinator,
    DeliveryState,
    Detach,
    End,
    Flow,
    Source,
    Target,
    Transfer,
)

if TYPE_CHECKING:
    from pairbus.amqp.connection import Connection


class SessionState(enum.Enum):
    BEGIN_SENT = "begin sent"
    MAPPED = "mapped"
    END_SENT = "end sent"
    ENDED = "ended"


class Session:
    """One session; made by ``Connection.begin`` or by the peer's begin frame."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.limits: Limits = connection.limits
        self.state = SessionState.BEGIN_SENT
        self.remote_begin: Begin | None = None
        self.remote_channel: int | None = None
        self.context: Any = None
        self.write: Callable[[bytes], None] = connection.write
        self.frame_limit = connection.remote_max_frame_size
        self.next_delivery_id = 0
        self.next_outgoing_id = 0
        self.remote_window = 0
        self.unsettled_sent: dict[int, Link] = {}
        self.unsettled_received: dict[int, Link] = {}
        self.held: deque[_Held] = deque()
        self._held_bytes = 0
        self._was_clogged = False
        self._told = False  # the owner knows of the end already
        self._next_incoming_id = 0
        self._window = self.limits.session_window
        self._low_water = self._window // 2
        self._by_remote_handle: dict[int, Link] = {}
        self._by_handle: dict[int, Link] = {}
        self._awaited: dict[tuple[str, bool], Link] = {}

    def __repr__(self) -> str:
        return f"<Session channel={self.channel} {self.state.value} links={len(self._by_handle)}>"

    @property
    def links(self) -> list[Link]:
        """Links that are attached or on their way."""
        return list(self._by_handle.values())

    # Beginning and ending

    def send(self, performative: Composite) -> None:
        """Queue one frame on our channel."""
        self.write(encode_frame(self.channel, performative))

    def send_begin(self) -> None:
        self.send(
            Begin(
                remote_channel=self.remote_channel,
                next_outgoing_id=self.next_outgoing_id,
                incoming_window=self._window,
                outgoing_window=self.limits.session_window,
                handle_max=self.limits.max_links - 1,
            )
        )

    def on_begin(self, begin: Begin, remote_channel: int, events: list[Event]) -> None:
        self.remote_begin = begin
        self.remote_channel = remote_channel
        self._next_incoming_id = begin.next_outgoing_id
        self.remote_window = begin.incoming_window
        if self.state is SessionState.BEGIN_SENT:
            self.state = SessionState.MAPPED
        events.append(SessionBegun(self))

    def end(self, error: AmqpError | None = None) -> None:
        """End the session; SessionEnded follows when the peer has confirmed."""
        if self.state in (SessionState.BEGIN_SENT, SessionState.MAPPED) and self.connection.is_writable:
            self.state = SessionState.END_SENT
            self.send(End(error))
            self._retire()

    def on_end(self, end: End, events: list[Event]) -> None:
        told = self.state is SessionState.END_SENT and self._told
        if self.state is not SessionState.END_SENT:
            self.send(End())
            self._retire()
        self.state = SessionState.ENDED
        if not told:
            events.append(SessionEnded(self, end.error))

    def violate(self, fault: SessionViolation, events: list[Event]) -> None:
        """The peer broke the session's rules: end it and tell the owner at once."""
        error = AmqpError(fault.condition, fault.description)
        self.end(error)
        self._told = True
        events.append(SessionEnded(self, error))

    def _retire(self) -> None:
        for link in self.links:
            link.kill()
        self.held.clear()
        self._held_bytes = 0

    def kill(self) -> None:
        """The connection is over, and the session with it."""
        self.state = SessionState.ENDED
        self._retire()

    @property
    def link_count(self) -> int:
        return len(self._by_handle)

    # Links

    def attach(
        self,
        *,
        name: str,
        role_sender: bool,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: int = 2,
        rcv_settle_mode: int = 0,
        initial_delivery_count: int = 0,
        max_message_size: int | None = None,
        properties: dict[Any, Any] | None = None,
        desired_capabilities: tuple[str, ...] | None = None,
    ) -> Link:
        """Ask the peer for a link; LinkAttached tells of its answer."""
        if self.state not in (SessionState.BEGIN_SENT, SessionState.MAPPED):
            raise UsageError(f"the session is {self.state.value}; attach links to a new one")
        if (name, role_sender) in self._awaited:
            raise UsageError(f"a link named {name!r} is being attached already; give links their own names")
        link = self._new_link(name, is_sender=role_sender, initiated=True)
        link.delivery_count = initial_delivery_count
        self._awaited[name, role_sender] = link
        link.send_attach(
            Attach(
                name,
                link.handle,
                not role_sender,
                snd_settle_mode,
                rcv_settle_mode,
                source,
                target,
                initial_delivery_count=initial_delivery_count if role_sender else None,
                max_message_size=max_message_size,
                desired_capabilities=desired_capabilities,
                properties=properties,
            )
        )
        return link

    def _new_link(self, name: str, *, is_sender: bool, initiated: bool) -> Link:
        handle = next(number for number in range(len(self._by_handle) + 1) if number not in self._by_handle)
        if self.remote_begin is not None and handle > self.remote_begin.handle_max:
            raise SessionViolation(RESOURCE_LIMIT, "the peer's handle-max leaves no handle to answer with")
        link = self._by_handle[handle] = Link(
            self, name, is_sender=is_sender, initiated=initiated, handle=handle
        )
        return link

    def on_attach(self, attach: Attach, events: list[Event]) -> None:
        if attach.handle >= self.limits.max_links:
            raise ProtocolError(FRAMING_ERROR, "a handle is above our handle-max")
        if attach.handle in self._by_remote_handle:
            raise SessionViolation(HANDLE_IN_USE, f"handle {attach.handle} is attached already")
        # The peer's role is the other one: its receiver (true) is our sender.
        link = self._awaited.pop((attach.name, attach.role), None)
        crowded = False
        if link is None:
            crowded = self.connection.count_links() >= self.limits.max_connection_links
            link = self._new_link(attach.name, is_sender=attach.role, initiated=False)
        self._by_remote_handle[attach.handle] = link
        link.on_attach(attach, events, crowded=crowded)

    def on_detach(self, detach: Detach, events: list[Event]) -> None:
        link = self._link(detach.handle)
        link.on_detach(detach, events)
        del self._by_remote_handle[detach.handle]
        self._by_handle.pop(link.handle, None)

    def _link(self, handle: int) -> Link:
        link = self._by_remote_handle.get(handle)
        if link is None:
            raise SessionViolation(UNATTACHED_HANDLE, f"handle {handle} is not attached")
        return link

    def forget_link(self, link: Link) -> None:
        """Drop what waits for a link that is over."""
        if self._awaited.get((link.name, link.is_sender)) is link and link.remote_attach is not None:
            del self._awaited[link.name, link.is_sender]
        unsettled = self.unsettled_sent if link.is_sender else self.unsettled_received
        for delivery_id in [key for key, owner in unsettled.items() if owner is link]:
            del unsettled[delivery_id]
        if self.held:
            self.held = deque(item for item in self.held if item.link is not link)
            self._held_bytes = sum(len(item.payload) for item in self.held)

    # Incoming frames

    def on_transfer_frame(self, data: bytes, at: int, end: int, events: list[Event]) -> None:
        """A transfer in its usual encoding; ``at`` is the place of its descriptor."""
        handle, delivery_id, tag, tail, start = read_transfer(data, at, end)
        self.take_transfer(handle, delivery_id, tag, tail, data[start:end], events)

    def on_transfer(self, transfer: Transfer, payload: bytes, events: list[Event]) -> None:
        """A transfer whose descriptor took an unusual form."""
        tail = (transfer.message_format or 0, transfer.settled or False, transfer.more, transfer.aborted)
        self.take_transfer(
            transfer.handle, transfer.delivery_id, transfer.delivery_tag, tail, payload, events
        )

    def take_transfer(
        self,
        handle: int,
        delivery_id: int | None,
        tag: bytes | None,
        tail: TransferTail,
        payload: bytes,
        events: list[Event],
    ) -> None:
        self._next_incoming_id = (self._next_incoming_id + 1) & MASK
        self._window -= 1
        if self._window <= self._low_water:
            self._window = self.limits.session_window
            self.trim(self.unsettled_received)
            self.send(self.flow_state())
        link = self._by_remote_handle.get(handle)
        if link is None or link.is_sender:
            raise SessionViolation(
                UNATTACHED_HANDLE, f"handle {handle} is not attached to a link that receives"
            )
        link.on_transfer(delivery_id, tag, tail, payload, events)

    def on_disposition(
        self,
        role: bool,
        first: int,
        last: int,
        settled: bool,
        state: DeliveryState | None,
        events: list[Event],
    ) -> None:
        """``role`` is the peer's: true when it received the deliveries, so that we sent them."""
        unsettled = self.unsettled_sent if role else self.unsettled_received
        if first == last:
            link = unsettled.get(first)
            if link is not None:
                if settled:
                    del unsettled[first]
                events.append(Settled(link, [first], state, settled))
            return
        by_link: dict[Link, list[int]] = {}
        for delivery_id in self._in_range(unsettled, first, last):
            by_link.setdefault(unsettled[delivery_id], []).append(delivery_id)
            if settled:
                del unsettled[delivery_id]
        events.extend(Settled(link, ids, state, settled) for link, ids in by_link.items())

    def _in_range(self, unsettled: dict[int, Link], first: int, last: int) -> list[int]:
        """Known ids from first to last; the work is bounded by what we know, not by what the peer names."""
        span = serial_gap(last, first)
        if span < 0:
            return []
        if span < len(unsettled):
            return [number & MASK for number in range(first, first + span + 1) if number & MASK in unsettled]
        return [number for number in unsettled if 0 <= serial_gap(number, first) <= span]

    def forget(self, unsettled: dict[int, Link], first: int, last: int) -> None:
        """Settle a range on our side."""
        for delivery_id in self._in_range(unsettled, first, last):
            del unsettled[delivery_id]

    def trim(self, unsettled: dict[int, Link]) -> None:
        """Forget the oldest deliveries beyond the limit: their peer has had its time."""
        surplus = len(unsettled) - self.limits.max_unsettled
        if surplus > 0:
            for delivery_id in list(unsettled)[:surplus]:
                del unsettled[delivery_id]

    # Windows

    def on_flow(self, flow: Flow, events: list[Event]) -> None:
        # Before the peer has seen our begin it names no id, and means the first (part 2.7.4).
        base = 0 if flow.next_incoming_id is None else flow.next_incoming_id
        gap = serial_gap((base + flow.incoming_window) & MASK, self.next_outgoing_id)
        if flow.incoming_window >= 0x80000000:
            gap = flow.incoming_window - serial_gap(self.next_outgoing_id, base)
        self.remote_window = max(0, gap)
        if flow.handle is not None:
            self._link(flow.handle).on_flow(flow, events)
        elif flow.echo:
            self.send(self.flow_state())
        if self.held:
            self._write_held(events)

    def flow_state(
        self,
        *,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        available: int | None = None,
        drain: bool = False,
        echo: bool = False,
    ) -> Flow:
        """A flow frame with the session's state, and perhaps a link's."""
        return Flow(
            next_incoming_id=self._next_incoming_id,
            incoming_window=self._window,
            next_outgoing_id=self.next_outgoing_id,
            outgoing_window=self.limits.session_window,
            handle=handle,
            delivery_count=delivery_count,
            link_credit=link_credit,
            available=available,
            drain=drain,
            echo=echo,
        )

    # Held messages

    @property
    def is_clogged(self) -> bool:
        """So much waits for the window that more should not be sent."""
        clogged = self._held_bytes > self.limits.max_held_bytes
        self._was_clogged |= clogged
        return clogged

    def hold(
        self, link: Link, delivery_id: int, tag: bytes, payload: bytes, settled: bool, message_format: int
    ) -> None:
        """Take over a message that needs more than one frame or an open window."""
        self.held.append(_Held(link, delivery_id, tag, payload, settled, message_format))
        self._held_bytes += len(payload)
        self._write_frames()

    def _write_held(self, events: list[Event]) -> None:
        self._write_frames()
        if self._was_clogged and not self.is_clogged:
            self._was_clogged = False
            for link in self.links:
                if link.is_sender and link.sendable:
                    events.append(LinkFlowed(link, link.credit, False, False))

    def _write_frames(self) -> None:
        while self.held and self.remote_window > 0:
            if self._write_frame(self.held[0]):
                self._held_bytes -= len(self.held.popleft().payload)

    def _write_frame(self, item: _Held) -> bool:
        """Write the next frame of a held message; true if it was the last."""
        link, left = item.link, len(item.payload) - item.written
        shape = link.shape(len(item.tag), item.message_format, item.settled, False)
        room = self.frame_limit - shape.overhead
        if left > room:
            shape = link.shape(len(item.tag), item.message_format, item.settled, True)
            left = room
        self.write(shape.write(item.delivery_id, item.tag, left))
        self.write(item.payload[item.written : item.written + left])
        item.written += left
        self.remote_window -= 1
        self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK
        return item.written == len(item.payload)


class _Held:
    """A message that waits for the session's window, perhaps with some frames written."""

    __slots__ = ("delivery_id", "link", "message_format", "payload", "settled", "tag", "written")

    def __init__(
        self, link: Link, delivery_id: int, tag: bytes, payload: bytes, settled: bool, message_format: int
    ) -> None:
        self.link = link
        self.delivery_id = delivery_id
        self.tag = tag
        self.payload = payload
        self.settled = settled
        self.message_format = message_format
        self.written = 0


__all__ = ["LinkState", "Session", "SessionState"]

"""A session: windows of transfer frames in both directions, and the links that share them.

    BEGIN_SENT ──peer begins──> MAPPED ──either ends──> END_SENT ──the other ends──> ENDED

1. Ids count transfer frames, not messages, and wrap at 32 bits. Delivery ids count messages.
2. Outgoing: `remote_window` is how many frames the peer will still take. At zero, messages wait in the
   outbox and are written when a flow opens the window. The inbox minds the window of the other direction.
3. A flow that asks for an echo is answered at once, for the session or for the link that it names.
4. A frame for a handle that is not attached ends the session, not the connection. What the peer sends until
   it has seen our end frame is dropped.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pairbus.conditions import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    RESOURCE_LIMIT,
    UNATTACHED_HANDLE,
)

from .composites import Composite
from .errors import ProtocolError, SessionViolation, UsageError
from .events import LinkFlowed, ProtocolEvent, SessionBegun, SessionEnded
from .fastframes import encode_flow
from .frames import encode_within
from .inbox import Inbox
from .limits import CodecLimits
from .link import Link
from .outbox import Outbox
from .performatives import (
    RECEIVER_FIRST,
    SENDER_MIXED,
    AmqpError,
    Attach,
    Begin,
    Coordinator,
    Detach,
    End,
    Flow,
    Source,
    Target,
)
from .serials import MASK, NumberPool, serial_gap
from .types import Blob
from .unsettled import Unsettled

if TYPE_CHECKING:
    from .connection import Connection


class SessionState(enum.Enum):
    BEGIN_SENT = "begin sent"
    MAPPED = "mapped"
    END_SENT = "end sent"
    ENDED = "ended"


class Session:
    """One session; made by `Connection.begin` or by the peer's begin frame."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.channel = channel
        self.limits: CodecLimits = connection.limits
        self.state = SessionState.BEGIN_SENT
        self.remote_handle_max: int | None = None
        self.remote_channel: int | None = None
        self.context: Any = None
        self.write: Callable[[Blob], None] = connection.write
        self.frame_limit = connection.remote_max_frame_size
        self.next_delivery_id = 0
        self.next_outgoing_id = 0
        self.remote_window = 0
        self.unsettled_sent = Unsettled[Link]()
        self.unsettled_received = Unsettled[Link]()
        self._owner_told = False
        self._handles = NumberPool()
        self._by_handle: dict[int, Link] = {}
        self._by_remote_handle: dict[int, Link] = {}
        self._awaited: dict[tuple[str, bool], Link] = {}
        self.inbox = Inbox(self, self._by_remote_handle)
        self.outbox = Outbox(self)

    def __repr__(self) -> str:
        return f"<Session channel={self.channel} {self.state.value} links={len(self._by_handle)}>"

    @property
    def links(self) -> list[Link]:
        """Links that are attached or on their way; of a session that is over, those that ended with it."""
        return list(self._by_handle.values())

    @property
    def link_count(self) -> int:
        """How many those are."""
        return len(self._by_handle)

    # -- beginning and ending

    def send(self, performative: Composite) -> None:
        """Queue one frame on our channel."""
        self.write(encode_within(self.frame_limit, self.channel, performative))

    def send_begin(self) -> None:
        self.send(
            Begin(
                remote_channel=self.remote_channel,
                next_outgoing_id=self.next_outgoing_id,
                incoming_window=self.inbox.window,
                outgoing_window=self.limits.session_window,
                handle_max=self.limits.max_links - 1,
            )
        )

    def on_begin(self, begin: Begin, remote_channel: int, events: list[ProtocolEvent]) -> None:
        self.remote_handle_max = begin.handle_max
        self.remote_channel = remote_channel
        self.remote_window = begin.incoming_window
        self.frame_limit = self.connection.remote_max_frame_size
        self.inbox.base = begin.next_outgoing_id
        if self.state is SessionState.BEGIN_SENT:
            self.state = SessionState.MAPPED
            events.append(SessionBegun(self))

    def end(self, error: AmqpError | None = None) -> None:
        """End the session; SessionEnded follows when the peer has confirmed."""
        if self.state in (SessionState.BEGIN_SENT, SessionState.MAPPED) and self.connection.is_writable:
            self.send(End(error))
            self._retire(SessionState.END_SENT)

    def on_end(self, end: End, events: list[ProtocolEvent]) -> None:
        if self.state is not SessionState.END_SENT:
            self.send(End())
        self._retire(SessionState.ENDED)
        if not self._owner_told:
            events.append(SessionEnded(self, end.error))

    def violate(self, fault: SessionViolation, events: list[ProtocolEvent]) -> None:
        """The peer broke the session's rules: end it and tell the owner at once."""
        error = AmqpError(fault.condition, fault.description)
        self.end(error)
        self._owner_told = True
        events.append(SessionEnded(self, error))

    def kill(self) -> None:
        """The connection is over, and the session with it."""
        self._retire(SessionState.ENDED)

    def _retire(self, state: SessionState) -> None:
        """The links stay to be seen by an owner who has to clean up after them."""
        over = self.state in (SessionState.END_SENT, SessionState.ENDED)
        self.state = state
        if over:
            return
        self.connection.retire_inbox(self)
        for link in self._by_handle.values():
            link.kill()
            self._forget_name(link)
        self.connection.link_count -= len(self._by_handle)
        self._by_remote_handle.clear()
        self._awaited.clear()
        self.outbox.clear()
        self.unsettled_sent.clear()
        self.unsettled_received.clear()

    # -- links

    def attach(
        self,
        *,
        name: str,
        role_sender: bool,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: int = SENDER_MIXED,
        rcv_settle_mode: int = RECEIVER_FIRST,
        initial_delivery_count: int = 0,
        max_message_size: int | None = None,
        properties: dict[Any, Any] | None = None,
        desired_capabilities: tuple[str, ...] | None = None,
    ) -> Link:
        """Ask the peer for a link; LinkAttached tells of its answer."""
        if self.state not in (SessionState.BEGIN_SENT, SessionState.MAPPED):
            raise UsageError(f"the session has state {self.state.value!r}; attach links to a new one")
        if (name, role_sender) in self._awaited:
            raise UsageError(f"a link named {name!r} is being attached already; give each its own name")
        if self.remote_handle_max is not None and self._handles.peek() > self.remote_handle_max:
            raise UsageError("the peer takes no more links on this session; begin another")
        link = self._add_link(name, is_sender=role_sender, initiated=True)
        self._awaited[name, role_sender] = link
        link.delivery_count = initial_delivery_count
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

    def _add_link(self, name: str, *, is_sender: bool, initiated: bool) -> Link:
        handle = self._handles.take()
        link = Link(self, name, is_sender=is_sender, initiated=initiated, handle=handle)
        self._by_handle[handle] = link
        self.connection.link_count += 1
        return link

    def on_attach(self, attach: Attach, events: list[ProtocolEvent]) -> None:
        if attach.handle >= self.limits.max_links:
            raise ProtocolError(FRAMING_ERROR, f"handle {attach.handle} is above our handle-max")
        if attach.handle in self._by_remote_handle:
            raise SessionViolation(HANDLE_IN_USE, f"handle {attach.handle} is attached already")
        if len(attach.name) > self.limits.max_link_name:
            raise SessionViolation(INVALID_FIELD, f"a link's name is above {self.limits.max_link_name}")
        # Roles are told from each side's own view: the peer's receiver (true) is our sender.
        link = self._awaited.pop((attach.name, attach.role), None)
        links, most = self.connection.link_count, self.connection.link_limit
        crowded = link is None and links >= most
        if link is None:
            if links >= 2 * most:  # those that were refused count as well until the peer has said so
                raise ProtocolError(RESOURCE_LIMIT, f"the connection has twice the {most} links it may have")
            if self.remote_handle_max is not None and self._handles.peek() > self.remote_handle_max:
                raise SessionViolation(
                    RESOURCE_LIMIT, "the peer's handle-max leaves no handle to answer with"
                )
            link = self._add_link(attach.name, is_sender=attach.role, initiated=False)
            named = self.connection.named_links
            if (older := named.get((attach.name, attach.role))) is not None:
                older.give_up_name(events)
            named[attach.name, attach.role] = link
        self._by_remote_handle[attach.handle] = link
        link.on_attach(attach, events, crowded=crowded)

    def on_detach(self, detach: Detach, events: list[ProtocolEvent]) -> None:
        link = self._find(detach.handle)
        link.on_detach(detach, events)
        del self._by_remote_handle[detach.handle]
        del self._by_handle[link.handle]
        self._forget_name(link)
        self._handles.give_back(link.handle)
        self.connection.link_count -= 1

    def _forget_name(self, link: Link) -> None:
        named, key = self.connection.named_links, (link.name, link.is_sender)
        if named.get(key) is link:
            del named[key]

    def _find(self, handle: int) -> Link:
        link = self._by_remote_handle.get(handle)
        if link is None:
            raise SessionViolation(UNATTACHED_HANDLE, f"handle {handle} is not attached")
        return link

    # -- windows

    def on_flow(self, flow: Flow, events: list[ProtocolEvent]) -> None:
        # Before the peer has seen our begin it names no id, and means the first, which is 0 (part 2.7.4).
        on_the_way = max(0, serial_gap(self.next_outgoing_id, flow.next_incoming_id or 0))
        self.remote_window = max(0, flow.incoming_window - on_the_way)
        if flow.handle is not None:
            self._find(flow.handle).on_flow(flow, events)
        elif flow.echo:
            self.send_flow()
        if self.outbox.items:
            events.extend(LinkFlowed(link, link.credit, False, False, False) for link in self.write_waiting())

    def write_waiting(self) -> list[Link]:
        """Write what waits, as far as that goes; links that may send again after that, and could not."""
        self.outbox.flush()
        if not self.outbox.take_relief():
            return []
        return [link for link in self._by_handle.values() if link.is_sender and link.sendable]

    def send_flow(
        self,
        *,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        available: int | None = None,
        drain: bool = False,
        echo: bool = False,
    ) -> None:
        """Tell the session's state, and perhaps a link's."""
        numbers = (
            self.inbox.next_incoming_id,
            self.inbox.window,
            self.next_outgoing_id,
            self.limits.session_window,
            handle,
            delivery_count,
            link_credit,
            available,
        )
        self.write(encode_flow(self.channel, numbers, drain=drain, echo=echo))

    def count_sent_frame(self) -> None:
        self.remote_window -= 1
        self.next_outgoing_id = (self.next_outgoing_id + 1) & MASK

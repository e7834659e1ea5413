"""What comes in on a session: transfers and dispositions.

1. The window is opened again when half of it is used. It bounds frames in flight, not the peer: one that
   overruns it is not punished, since the Python SDK counts a message of many frames as one.
2. A frame of the usual shape is read here; `fastframes` has the reasons. Every other one takes the way
   through the general codec, from which the usual shapes are learned.
3. A peer that is busy sends many frames that differ from the one before in an id, a tag and a payload. Those
   are compared with it, and not read field by field. Dispositions of this kind are told together. One that
   comes alone and accepts a message, all that is said to who sends one message and waits, is told as just
   that (`take_acceptance`): a quarter of what it takes to read it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from pairbus.conditions import UNATTACHED_HANDLE

from . import fastframes
from .errors import DecodeError, SessionViolation
from .events import ProtocolEvent, Settled, TransferReceived
from .frames import HEADER_SIZE, decode_performative
from .limits import UNLIMITED
from .performatives import Accepted, DeliveryState, Disposition, Transfer
from .serials import MASK
from .unsettled import Unsettled

if TYPE_CHECKING:
    from .link import Link
    from .session import Session


# How many frames that are alike are taken in one go: the budget of a read is looked at after them.
_MOST_ALIKE = 64
# How many kinds of first transfers are known: a peer that invents more pays with slow frames.
_MOST_KINDS = 16


class _TransferForm(NamedTuple):
    """What a transfer looked like, apart from its size, id, tag and payload, and what that meant."""

    unpack: Callable[[bytes, int], tuple[Any, ...]]
    head: bytes  # from behind the size to the id
    mark: bytes  # between the id and the tag
    tail: bytes
    overhead: int  # bytes of all but the payload
    link: Link | None
    settled: bool
    message_format: int


class _DispositionForm(NamedTuple):
    """What a disposition of one delivery looked like, apart from the delivery's id, once or twice."""

    unpack: Callable[[bytes, int], tuple[Any, ...]]
    prefix: bytes
    tail: bytes
    size: int
    unsettled: dict[int, Link]
    settled: bool
    state: DeliveryState | None


_unpack_nothing = struct.Struct("").unpack_from
_NO_FORM = _TransferForm(_unpack_nothing, b"", b"", b"", 0, None, False, 0)
_NO_DISPOSITION = _DispositionForm(_unpack_nothing, b"", b"", UNLIMITED, {}, False, None)


class Inbox:
    """The incoming half of a session."""

    __slots__ = (
        "_acceptances",
        "_dispositions",
        "_forms",
        "_kinds",
        "_links",
        "_low_water",
        "_received",
        "_sent",
        "base",
        "session",
        "window",
    )

    def __init__(self, session: Session, links: dict[int, Link]) -> None:
        self.session = session
        self.base = 0  # the id of the first frame in the present window
        self.window = session.limits.session_window
        self._low_water = self.window // 2
        self._links = links
        self._sent = session.unsettled_sent
        self._received = session.unsettled_received
        # By the first two bytes of a transfer's fields, which tell its link.
        self._forms: dict[int, _TransferForm] = {}
        # By what stands before that: of links with a handle of one byte, they differ in that byte alone.
        self._kinds: dict[bytes, _TransferForm] = {}
        self._dispositions = self._acceptances = _NO_DISPOSITION

    @property
    def next_incoming_id(self) -> int:
        return (self.base + self.session.limits.session_window - self.window) & MASK

    def _open_window(self) -> None:
        self.base = self.next_incoming_id
        self.window = self.session.limits.session_window
        self._received.trim(self.session.limits.max_unsettled)
        self.session.send_flow()

    def take_transfers(
        self, data: bytes, at: int, end: int, code: int, small: int, events: list[ProtocolEvent]
    ) -> int:
        """A transfer frame at `at` as `fastframes.read_head` saw it, and those behind it that differ from the
        one before in nothing but their size, id, tag and payload; the place behind them. The hottest lines of
        the package.
        """
        key = code << 8 | small
        form = self._forms.get(key, _NO_FORM)
        if form.link is None or not form.link.is_plain:
            form = self._adopt_form(data[at + 4 : at + 14], key)
        unpack, head, mark, tail, overhead, link, settled, message_format = form
        if link is None:
            return self._take_transfer_slowly(data, at, end, key, events)
        size_of_data, ids, begin = len(data), list[int](), at
        most = min(self.session.connection.frame_limit, overhead + link.size_limit)
        while at <= size_of_data - overhead and len(ids) < _MOST_ALIKE:
            size, this_head, delivery_id, this_mark, tag, this_tail = unpack(data, at)
            end_of_this = at + size
            if (
                this_head != head
                or this_tail != tail
                or this_mark != mark
                or not overhead <= size <= most
                or end_of_this > size_of_data
            ):
                break
            ids.append(delivery_id)
            payload = data[at + overhead : end_of_this]
            events.append(TransferReceived(link, delivery_id, tag, payload, settled, message_format))
            at = end_of_this
        if at == begin:
            return self._take_transfer_slowly(data, at, end, key, events)
        self._count_transfers(link, ids, settled)
        return at

    def _adopt_form(self, kind: bytes, key: int) -> _TransferForm:
        """The first transfer of a link looks like those of others."""
        form, link = self._kinds.get(kind), self._links.get(key & 0xFF) if key >> 8 == 0x52 else None
        if form is None or link is None or not link.is_plain:
            return _NO_FORM
        head = form.head[:11] + bytes((key & 0xFF,)) + form.head[12:]
        self._forms[key] = form = form._replace(head=head, link=link)
        return form

    def _count_transfers(self, link: Link, ids: list[int], settled: bool) -> None:
        count = len(ids)
        self.session.connection.effort += count
        self.window -= count
        if self.window <= self._low_water:
            self._open_window()
        link.delivery_count = (link.delivery_count + count) & MASK
        link.credit -= count
        if not settled:
            self._received.update(dict.fromkeys(ids, link))

    def _take_transfer_slowly(
        self, data: bytes, at: int, end: int, key: int, events: list[ProtocolEvent]
    ) -> int:
        self.session.connection.effort += 8
        transfer, start = decode_performative(data, at + HEADER_SIZE, end)
        self.on_transfer(transfer, data[start:end], events)
        link = self._links.get(transfer.handle)
        shape = fastframes.learn_transfer(data[at:start], transfer)
        if link is not None and shape is not None:
            settled, message_format = transfer.settled or False, transfer.message_format or 0
            form = self._forms[key] = _TransferForm(*shape, start - at, link, settled, message_format)
            if key >> 8 == 0x52 and len(self._kinds) < _MOST_KINDS:
                self._kinds[form.head[:10]] = form
        return end

    def on_transfer(self, transfer: Transfer, payload: bytes, events: list[ProtocolEvent]) -> None:
        """Any transfer, decoded by the general codec."""
        self.window -= 1
        if self.window <= self._low_water:
            self._open_window()
        link = self._links.get(transfer.handle)
        if link is None or link.is_sender:
            raise SessionViolation(UNATTACHED_HANDLE, f"handle {transfer.handle} has no link that receives")
        link.on_transfer(transfer, payload, events)

    def take_dispositions(
        self,
        data: bytes,
        at: int,
        end: int,
        length: int,
        count: int,
        byte1: int,
        byte2: int,
        events: list[ProtocolEvent],
    ) -> int:
        """A disposition frame at `at` as `fastframes.read_head` saw it, and those behind it that are like the
        one before; the place behind them.
        """
        reached = self._take_dispositions_alike(data, at, events)
        if reached > at:
            return reached
        try:
            role, first, last, rest = fastframes.read_disposition_ids(data, at, byte1, byte2)
        except (IndexError, struct.error):  # fewer fields than usual, at the end of the bytes at hand
            return self._take_disposition_slowly(data, at, end, 0, events)
        stop = at + 13 + length
        known = fastframes.disposition_tails.get(data[rest:stop])
        if known is None or known[0] != count or not 0 < rest <= stop == end:
            return self._take_disposition_slowly(data, at, end, rest, events)
        unsettled = self._sent if role else self._received
        _, settled, state = known
        self._settle(unsettled, first, last, settled, state, events)
        ids_at = at + (17 if byte1 == 0x56 else 16)
        if first == last and data[ids_at - 1] == 0x70 and (code := data[ids_at + 4]) in (0x40, 0x70):
            tail_at = rest - (code == 0x40)
            unpack = fastframes.disposition_reader(ids_at - at, end - tail_at, is_once=code == 0x40)
            self._dispositions = form = _DispositionForm(
                unpack, data[at:ids_at], data[tail_at:end], end - at, unsettled, settled, state
            )
            if role and settled and type(state) is Accepted:
                self._acceptances = form
        return end

    def take_acceptance(self, data: bytes) -> tuple[Link, int] | None:
        """The message that was accepted and settled, if all of `data` says that as it was said before."""
        unpack, prefix, tail, size, sent, _, _ = self._acceptances
        if len(data) != size:
            return None
        this_prefix, delivery_id, code, again, this_tail = unpack(data, 0)
        if this_prefix != prefix or this_tail != tail or delivery_id != again or code != 0x70:
            return None
        link = sent.pop(delivery_id, None)
        return None if link is None else (link, delivery_id)

    def _take_dispositions_alike(self, data: bytes, at: int, events: list[ProtocolEvent]) -> int:
        """Dispositions of one delivery each, of one link, from `at` on that differ from the one before in
        nothing but the id; the place behind them.
        """
        unpack, prefix, tail, size, unsettled, settled, state = self._dispositions
        link, ids, find = None, list[int](), unsettled.get
        for place in range(at, min(len(data) - size + 1, at + _MOST_ALIKE * size), size):
            this_prefix, delivery_id, code, again, this_tail = unpack(data, place)
            if this_prefix != prefix or this_tail != tail or delivery_id != again or code != 0x70:
                break
            owner = find(delivery_id)
            if link is None:
                link = owner
            if owner is None or owner is not link:
                break
            if settled:
                del unsettled[delivery_id]
            ids.append(delivery_id)
        if link is not None:
            self.session.connection.effort += len(ids)
            events.append(Settled(link, ids, state, settled))
        return at + len(ids) * size

    def _take_disposition_slowly(
        self, data: bytes, at: int, end: int, rest: int, events: list[ProtocolEvent]
    ) -> int:
        self.session.connection.effort += 16 + (end - at >> 6)
        disposition, reached = decode_performative(data, at + HEADER_SIZE, end)
        if reached != end:
            raise DecodeError("bytes follow a disposition")
        if 0 < rest <= end:
            fastframes.learn_disposition(data[rest:end], data[at + 13], disposition)
        self.on_disposition(disposition, events)
        return end

    def on_disposition(self, disposition: Disposition, events: list[ProtocolEvent]) -> None:
        """Any disposition, decoded by the general codec."""
        first, last = disposition.first, disposition.last
        unsettled = self._sent if disposition.role else self._received
        last = first if last is None else last
        self._settle(unsettled, first, last, disposition.settled, disposition.state, events)

    def _settle(
        self,
        unsettled: Unsettled[Link],
        first: int,
        last: int,
        settled: bool,
        state: DeliveryState | None,
        events: list[ProtocolEvent],
    ) -> None:
        """One event a link, however the peer packs its frames; ids that we do not know are passed over."""
        by_link: dict[Link, list[int]] = {}
        self.session.connection.effort += 4 + (unsettled.effort(first, last) >> 2)
        find = unsettled.pop if settled else unsettled.__getitem__
        for delivery_id in unsettled.pick(first, last):
            link = find(delivery_id)
            ids = by_link.get(link)
            if ids is None:
                ids = by_link[link] = []
            ids.append(delivery_id)
        is_range = first != last
        events.extend(Settled(link, ids, state, settled, is_range) for link, ids in by_link.items())

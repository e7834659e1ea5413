"""What comes in on a session: transfers and dispositions.

1. The window is opened again when half of it is used. It bounds frames in flight, not the peer: one that
   overruns it is not punished, since the Python SDK counts a message of many frames as one.
2. A frame of the usual shape is read here field by field; `fastframes` has the reasons. Every other one
   takes the way through the general codec, which also fills the memos.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pairbus.conditions import UNATTACHED_HANDLE

from . import fastframes
from .errors import DecodeError, SessionViolation
from .events import ProtocolEvent, Settled, TransferReceived
from .frames import HEADER_SIZE, decode_performative
from .limits import MAX_TAG
from .performatives import DeliveryState, Disposition, Transfer
from .serials import MASK
from .unsettled import Unsettled

if TYPE_CHECKING:
    from .link import Link
    from .session import Session


class Inbox:
    """The incoming half of a session."""

    __slots__ = ("_links", "_low_water", "_received", "_sent", "base", "session", "window")

    def __init__(self, session: Session, links: dict[int, Link]) -> None:
        self.session = session
        self.base = 0  # the id of the first frame in the present window
        self.window = session.limits.session_window
        self._low_water = self.window // 2
        self._links = links
        self._sent = session.unsettled_sent
        self._received = session.unsettled_received

    @property
    def next_incoming_id(self) -> int:
        return (self.base + self.session.limits.session_window - self.window) & MASK

    def _open_window(self) -> None:
        self.base = self.next_incoming_id
        self.window = self.session.limits.session_window
        self._received.trim(self.session.limits.max_unsettled)
        self.session.send_flow()

    def take_transfer(
        self,
        data: bytes,
        at: int,
        end: int,
        length: int,
        count: int,
        code: int,
        small: int,
        events: list[ProtocolEvent],
    ) -> bool:
        """A transfer frame at `at` as `fastframes.read_head` saw it; whether it was an effort. The hottest
        lines of the package.
        """
        try:
            if code == 0x52:
                handle, p = small, at + 16
            elif code == 0x43:
                handle, p = 0, at + 15
            else:
                return self._take_transfer_slowly(data, at, end, 0, 0, events)
            code = data[p]
            if code == 0x70:
                delivery_id, mark, width = fastframes.read_id_and_tag(data, p + 1)
                tag = p + 7
            elif code == 0x52:
                delivery_id, mark, width = data[p + 1], data[p + 2], data[p + 3]
                tag = p + 4
            elif code == 0x43:
                delivery_id, mark, width = 0, data[p + 1], data[p + 2]
                tag = p + 3
            else:
                return self._take_transfer_slowly(data, at, end, 0, 0, events)
        except (IndexError, struct.error):  # fewer fields than usual, at the end of the bytes at hand
            return self._take_transfer_slowly(data, at, end, 0, 0, events)
        stop = at + 13 + length
        rest = tag + width
        known = fastframes.transfer_tails.get(data[rest:stop])
        link = self._links.get(handle)
        if (
            known is None
            or link is None
            or known[0] != count
            or mark != 0xA0
            or width > MAX_TAG
            or not rest <= stop <= end
            or not link.is_plain
            or end - stop > link.size_limit
        ):
            return self._take_transfer_slowly(data, at, end, rest if mark == 0xA0 else 0, stop, events)
        self.window -= 1
        if self.window <= self._low_water:
            self._open_window()
        link.delivery_count = (link.delivery_count + 1) & MASK
        link.credit -= 1
        _, message_format, settled = known
        if not settled:
            self._received[delivery_id] = link
        events.append(
            TransferReceived(link, delivery_id, data[tag:rest], data[stop:end], settled, message_format)
        )
        return False

    def _take_transfer_slowly(
        self, data: bytes, at: int, end: int, rest: int, stop: int, events: list[ProtocolEvent]
    ) -> bool:
        self.session.connection.effort += 2
        transfer, start = decode_performative(data, at + HEADER_SIZE, end)
        if 0 < rest <= stop == start:
            fastframes.learn_transfer(data[rest:stop], data[at + 13], transfer)
        self.on_transfer(transfer, data[start:end], events)
        return True

    def on_transfer(self, transfer: Transfer, payload: bytes, events: list[ProtocolEvent]) -> None:
        """Any transfer, decoded by the general codec."""
        self.window -= 1
        if self.window <= self._low_water:
            self._open_window()
        link = self._links.get(transfer.handle)
        if link is None or link.is_sender:
            raise SessionViolation(UNATTACHED_HANDLE, f"handle {transfer.handle} has no link that receives")
        link.on_transfer(transfer, payload, events)

    def take_disposition(
        self,
        data: bytes,
        at: int,
        end: int,
        length: int,
        count: int,
        byte1: int,
        byte2: int,
        events: list[ProtocolEvent],
    ) -> bool:
        """A disposition frame at `at` as `fastframes.read_head` saw it; whether it was an effort."""
        try:
            role, first, last, rest = fastframes.read_disposition_ids(data, at, byte1, byte2)
        except (IndexError, struct.error):  # fewer fields than usual, at the end of the bytes at hand
            return self._take_disposition_slowly(data, at, end, 0, events)
        stop = at + 13 + length
        known = fastframes.disposition_tails.get(data[rest:stop])
        if known is None or known[0] != count or not 0 < rest <= stop == end:
            return self._take_disposition_slowly(data, at, end, rest, events)
        unsettled = self._sent if role else self._received
        link = unsettled.get(first)
        _, settled, state = known
        if first != last or link is None:
            self._settle(unsettled, first, last, settled, state, events)
            return True
        if settled:
            del unsettled[first]
        events.append(Settled(link, [first], state, settled))
        return False

    def _take_disposition_slowly(
        self, data: bytes, at: int, end: int, rest: int, events: list[ProtocolEvent]
    ) -> bool:
        self.session.connection.effort += 4 + (end - at >> 8)
        disposition, reached = decode_performative(data, at + HEADER_SIZE, end)
        if reached != end:
            raise DecodeError("bytes follow a disposition")
        if 0 < rest <= end:
            fastframes.learn_disposition(data[rest:end], data[at + 13], disposition)
        self.on_disposition(disposition, events)
        return True

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
        self.session.connection.effort += 1 + (unsettled.effort(first, last) >> 4)
        find = unsettled.pop if settled else unsettled.__getitem__
        for delivery_id in unsettled.pick(first, last):
            link = find(delivery_id)
            ids = by_link.get(link)
            if ids is None:
                ids = by_link[link] = []
            ids.append(delivery_id)
        events.extend(Settled(link, ids, state, settled) for link, ids in by_link.items())

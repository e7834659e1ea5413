"""Transfer, disposition and flow, read and written by hand.

Why by hand: these three are all the frames of a busy connection. Through the general codec a transfer costs
about ten times what is spent here, and a broker in pure Python has some fourteen microseconds for a whole message
if it is to take seventy thousand a second on a core.

How:
1. The fields that differ from frame to frame (handle, delivery id, tag) are picked out by their constructors.
2. The fields behind them hardly ever differ. Their raw bytes are looked up in a memo of what such bytes meant
   last time, so flags and outcomes are decoded once, not a million times.
3. Whatever has another shape goes through the general codec and means the same: the tests compare the two.
4. Frames are written by one ``struct`` call from a prefix and a suffix that are made once per link.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from pairbus.amqp.composites import encode_composite
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.frames import HEADER_SIZE, decode_performative, encode_frame
from pairbus.amqp.performatives import (
    Accepted,
    DeliveryState,
    Disposition,
    Flow,
    Modified,
    Rejected,
    Released,
    Transfer,
)

TRANSFER = b"\x00\x53\x14"
DISPOSITION = b"\x00\x53\x15"
FLOW = b"\x00\x53\x13"

_u32 = struct.Struct(">I").unpack_from

# Message format, settled, more, aborted.
TransferTail = tuple[int, bool, bool, bool]

_MEMO_SIZE = 512  # distinct tails; a peer that invents more of them pays with slow frames, we with nothing
_MEMO_BYTES = 40  # longer tails hold reasons and properties, which do not repeat
_transfer_tails: dict[bytes, tuple[int, TransferTail]] = {}
_disposition_tails: dict[bytes, tuple[int, tuple[bool, DeliveryState | None]]] = {}


def read_transfer(data: bytes, at: int, end: int) -> tuple[int, int | None, bytes | None, TransferTail, int]:
    """Handle, delivery id, tag, the rest, and where the payload begins; ``at`` is the descriptor's place."""
    try:
        if data[at + 3] == 0xC0:
            stop = at + 5 + data[at + 4]
            count = data[at + 5] - 3
            p = at + 6
            code = data[p]
            if code == 0x52:
                handle = data[p + 1]
                p += 2
            elif code == 0x43:
                handle = 0
                p += 1
            else:
                return _read_transfer_slowly(data, at, end, None)
            code = data[p]
            if code == 0x70:
                delivery_id = _u32(data, p + 1)[0]
                p += 5
            elif code == 0x52:
                delivery_id = data[p + 1]
                p += 2
            elif code == 0x43:
                delivery_id = 0
                p += 1
            else:
                return _read_transfer_slowly(data, at, end, None)
            if data[p] == 0xA0 and count >= 0:
                q = p + 2 + data[p + 1]
                tail = data[q:stop]
                known = _transfer_tails.get(tail)
                if known is None or known[0] != count or q > stop or stop > end:
                    return _read_transfer_slowly(data, at, end, tail if q <= stop <= end else None)
                return handle, delivery_id, data[p + 2 : q], known[1], stop
    except (IndexError, struct.error):
        raise DecodeError("a transfer ends before its fields do") from None
    return _read_transfer_slowly(data, at, end, None)


def _read_transfer_slowly(
    data: bytes, at: int, end: int, tail: bytes | None
) -> tuple[int, int | None, bytes | None, TransferTail, int]:
    transfer, start = decode_performative(data, at, end)
    meaning = (transfer.message_format or 0, transfer.settled or False, transfer.more, transfer.aborted)
    if tail is not None and len(tail) <= _MEMO_BYTES:
        if len(_transfer_tails) >= _MEMO_SIZE:
            _transfer_tails.clear()
        _transfer_tails[tail] = data[at + 5] - 3, meaning
    return transfer.handle, transfer.delivery_id, transfer.delivery_tag, meaning, start


def read_disposition(data: bytes, at: int, end: int) -> tuple[bool, int, int, bool, DeliveryState | None]:
    """Role, first, last, settled and state; ``at`` is the descriptor's place."""
    try:
        if data[at + 3] == 0xC0 and data[at + 6] in (0x41, 0x42):
            stop = at + 5 + data[at + 4]
            count = data[at + 5] - 3
            code = data[at + 7]
            p = at + 8
            if code == 0x70:
                first = _u32(data, p)[0]
                p += 4
            elif code == 0x52:
                first = data[p]
                p += 1
            elif code == 0x43:
                first = 0
            else:
                return _read_disposition_slowly(data, at, end, None)
            code = data[p]
            p += 1
            if code == 0x70:
                last = _u32(data, p)[0]
                p += 4
            elif code == 0x52:
                last = data[p]
                p += 1
            elif code == 0x43:
                last = 0
            elif code == 0x40:
                last = first
            else:
                return _read_disposition_slowly(data, at, end, None)
            tail = data[p:stop]
            known = _disposition_tails.get(tail)
            if known is None or known[0] != count or p > stop or stop != end:
                return _read_disposition_slowly(data, at, end, tail if p <= stop == end else None)
            settled, state = known[1]
            return data[at + 6] == 0x41, first, last, settled, state
    except (IndexError, struct.error):
        raise DecodeError("a disposition ends before its fields do") from None
    return _read_disposition_slowly(data, at, end, None)


def _read_disposition_slowly(
    data: bytes, at: int, end: int, tail: bytes | None
) -> tuple[bool, int, int, bool, DeliveryState | None]:
    found, _ = decode_performative(data, at, end)
    state = found.state
    if tail is not None and len(tail) <= _MEMO_BYTES and _is_constant(state):
        if len(_disposition_tails) >= _MEMO_SIZE:
            _disposition_tails.clear()
        _disposition_tails[tail] = data[at + 5] - 3, (found.settled, state)
    last = found.first if found.last is None else found.last
    return found.role, found.first, last, found.settled, state


def _is_constant(state: Any) -> bool:
    """Only what nobody can change may be handed out twice: no maps, no errors."""
    return (
        state is None
        or isinstance(state, (Accepted, Released))
        or (isinstance(state, Modified) and state.message_annotations is None)
        or (isinstance(state, Rejected) and state.error is None)
    )


def read_flow(data: bytes, at: int, end: int) -> Flow:
    """A flow frame. Its first eight fields are numbers or null, the next two are flags."""
    try:
        if data[at + 3] == 0xC0 and at + 5 + data[at + 4] == end:
            count = data[at + 5]
            p = at + 6
            fields: list[Any] = []
            for _ in range(count):
                code = data[p]
                p += 1
                if code == 0x40:
                    fields.append(None)
                elif code == 0x52:
                    fields.append(data[p])
                    p += 1
                elif code == 0x70:
                    fields.append(_u32(data, p)[0])
                    p += 4
                elif code == 0x43:
                    fields.append(0)
                elif code == 0x41 or code == 0x42:
                    fields.append(code == 0x41)
                else:
                    break
            else:
                flow = _flow_of(fields) if p == end else None
                if flow is not None:
                    return flow
    except (IndexError, struct.error):
        raise DecodeError("a flow ends before its fields do") from None
    found: Flow = decode_performative(data, at, end)[0]
    return found


def _flow_of(fields: list[Any]) -> Flow | None:
    """None sends the frame to the general codec, which says what is wrong with it."""
    count = len(fields)
    if not 4 <= count <= 11:
        return None
    fields += (None,) * (11 - count)
    if fields[10] is not None or None in fields[1:4]:
        return None
    if any(type(value) is bool for value in fields[:8]) or type(fields[8]) is int or type(fields[9]) is int:
        return None
    return Flow(
        next_incoming_id=fields[0],
        incoming_window=fields[1],
        next_outgoing_id=fields[2],
        outgoing_window=fields[3],
        handle=fields[4],
        delivery_count=fields[5],
        link_credit=fields[6],
        available=fields[7],
        drain=fields[8] or False,
        echo=fields[9] or False,
    )


class TransferShape:
    """A transfer frame of one link with everything fixed but size, delivery id, tag and payload."""

    __slots__ = ("head", "mark", "overhead", "pack", "tail")

    def __init__(
        self, channel: int, handle: int, tag_size: int, *, format_: int, settled: bool, more: bool
    ) -> None:
        # A delivery id above 255 takes its five byte form, whose place is then known.
        model = Transfer(handle, 0xFFFFFFFF, b"\xff" * tag_size, format_, settled, more)
        frame = encode_frame(channel, model)
        split = frame.index(b"\x70\xff\xff\xff\xff", HEADER_SIZE) + 1
        after = split + 4
        self.head = frame[4:split]
        self.mark = frame[after : after + (2 if tag_size < 256 else 5)]
        self.tail = frame[after + len(self.mark) + tag_size :]
        self.overhead = len(frame)
        self.pack: Callable[..., bytes] = struct.Struct(
            f">I{len(self.head)}sI{len(self.mark)}s{tag_size}s{len(self.tail)}s"
        ).pack

    def write(self, delivery_id: int, tag: bytes, size: int) -> bytes:
        """The frame up to its payload of ``size`` bytes."""
        return self.pack(self.overhead + size, self.head, delivery_id, self.mark, tag, self.tail)


pack_disposition = struct.Struct(">16sIBI6s").pack
"""Prefix, first, 0x70, last, suffix: a disposition whose outcome takes four bytes, as accepted does."""

ACCEPTED_SUFFIX = b"\x41" + encode_composite(Accepted()) + b"\x40"
RELEASED_SUFFIX = b"\x41" + encode_composite(Released()) + b"\x40"


def disposition_prefix(channel: int, *, receiver: bool) -> bytes:
    """What stands before ``first`` in a frame that ``pack_disposition`` finishes."""
    frame = encode_frame(channel, Disposition(receiver, 0xFFFFFFFF, 0xFFFFFFFF, True, Accepted()))
    # The general codec writes batchable=false; a null means the same and has the same width.
    return frame[:16]

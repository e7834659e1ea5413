"""What makes transfer, disposition and flow frames cheap to read and to write.

Why by hand: these three are all the frames of a busy connection. Through the general codec a transfer takes
some fifteen microseconds, and a broker in pure Python has fourteen for a whole message if it is to take
seventy thousand a second on a core.

How:
1. One `struct` call reads the frame header and the first bytes of the performative (`read_head`). They
   tell whether the frame has the usual shape: a described list of the 8 bit form.
2. Transfers of a link differ from each other in size, delivery id, tag and payload: one `struct` call picks
   these out and gives the rest as bytes, which are compared with those of the frame before.
3. The ids of a disposition are picked out by their constructors. The fields behind them hardly ever differ:
   their raw bytes are looked up in a memo of what such bytes meant last time, so flags and outcomes are
   decoded once, not a million times.
4. Whatever has another shape goes through the general codec, and means the same.
5. Frames are written by one `struct` call from a prefix and a suffix that are made once a link.
6. Settlements of neighbours may leave as one frame (`SettledRun`).
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from .composites import encode_composite
from .errors import DecodeError, UsageError
from .frames import AMQP_FRAME, HEADER_SIZE, decode_performative, encode_frame, pack_header
from .limits import MAX_TAG
from .performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    DeliveryState,
    Disposition,
    Flow,
    Modified,
    Rejected,
    Released,
    Transfer,
)
from .types import Blob

HEAD_SIZE = 16
read_head = struct.Struct(">IHHIBBBB").unpack_from
"""Size, data offset and type, channel, descriptor and list8, length, count, and two bytes of fields."""

PLAIN_FRAME = 0x0200  # data offset 2, type AMQP
TRANSFER_LIST = 0x005314C0
DISPOSITION_LIST = 0x005315C0
FLOW_LIST = 0x005313C0

read_uint = struct.Struct(">I").unpack_from
read_id_and_code = struct.Struct(">IB").unpack_from


_MEMO_SIZE = 512  # distinct tails; a peer that invents more of them pays with slow frames, we with nothing
_MEMO_BYTES = 40  # longer tails hold reasons and properties, which do not repeat

disposition_tails: dict[bytes, tuple[int, bool, DeliveryState | None]] = {}
"""Fields of a disposition behind `last`: count of all fields, settled, state."""


def learn_transfer(
    frame: bytes, transfer: Transfer
) -> tuple[Callable[[bytes, int], tuple[Any, ...]], bytes, bytes, bytes] | None:
    """How the next frame like this one, which is without its payload, is unpacked, and its head, mark and
    tail; None if it is no whole message of the usual shape.
    """
    is_usual = not (
        transfer.more or transfer.aborted or transfer.rcv_settle_mode or transfer.state is not None
    )
    at = {0x52: 16, 0x43: 15}.get(frame[14]) if len(frame) > HEAD_SIZE else None  # of the id
    width = None if at is None else {0x70: 4, 0x52: 1}.get(frame[at])
    if at is None or width is None or not is_usual or transfer.delivery_tag is None:
        return None
    marks_at, tag = at + 1 + width, len(transfer.delivery_tag)
    head, marks, tail = frame[4 : at + 1], frame[marks_at : marks_at + 2], frame[marks_at + 2 + tag :]
    if tag > MAX_TAG or marks != bytes((0xA0, tag)):
        return None
    form = transfer_struct(len(head), tag, len(tail), "I" if width == 4 else "B")
    return form.unpack_from, head, marks, tail


def learn_disposition(tail: bytes, count: int, disposition: Disposition) -> None:
    """Remember what the fields behind `last` mean."""
    if len(tail) <= _MEMO_BYTES and _is_constant(disposition.state):
        if len(disposition_tails) >= _MEMO_SIZE:
            disposition_tails.clear()
        disposition_tails[tail] = count, disposition.settled, disposition.state


def _is_constant(state: Any) -> bool:
    """Only what nobody can change may be handed out twice: no maps, no errors."""
    return (
        state is None
        or isinstance(state, (Accepted, Released))
        or (isinstance(state, Modified) and state.message_annotations is None)
        or (isinstance(state, Rejected) and state.error is None)
    )


def read_disposition_ids(data: bytes, at: int, byte1: int, byte2: int) -> tuple[bool, int, int, int]:
    """Role, first, last and the place behind them; that place is 0 if one of them has an unusual form."""
    if byte1 == 0x41 or byte1 == 0x42:
        role, code, p = byte1 == 0x41, byte2, at + 16
    elif byte1 == 0x56 and byte2 <= 1:  # the Python SDK writes booleans so
        role, code, p = byte2 == 1, data[at + 16], at + 17
    else:
        return False, 0, 0, 0
    if code == 0x70:
        first, code = read_id_and_code(data, p)
        p += 5
    elif code == 0x52:
        first, code = data[p], data[p + 1]
        p += 2
    elif code == 0x43:
        first, code = 0, data[p]
        p += 1
    else:
        return False, 0, 0, 0
    if code == 0x70:
        return role, first, read_uint(data, p)[0], p + 4
    if code == 0x52:
        return role, first, data[p], p + 1
    if code == 0x40 or code == 0x43:
        return role, first, first if code == 0x40 else 0, p
    return False, 0, 0, 0


def read_flow(data: bytes, at: int, end: int) -> Flow:
    """The flow in a frame at `at` whose head is that of FLOW_LIST."""
    try:
        fields = _read_plain_fields(data, at, end)
    except (IndexError, struct.error):
        fields = None
    flow = None if fields is None else _make_flow(fields)
    if flow is None:
        flow, reached = decode_performative(data, at + HEADER_SIZE, end)
        if reached != end:
            raise DecodeError("bytes follow a flow")
    return flow


def _read_plain_fields(data: bytes, at: int, end: int) -> list[Any] | None:
    """Fields that are numbers, flags and nulls; None if there are others."""
    fields: list[Any] = []
    p = at + 14
    for _ in range(data[at + 13]):
        code = data[p]
        p += 1
        if code == 0x40:
            fields.append(None)
        elif code == 0x52:
            fields.append(data[p])
            p += 1
        elif code == 0x70:
            fields.append(read_uint(data, p)[0])
            p += 4
        elif code == 0x43:
            fields.append(0)
        elif code == 0x41 or code == 0x42:
            fields.append(code == 0x41)
        elif code == 0x56 and data[p] <= 1:  # the Python SDK writes booleans so
            fields.append(data[p] == 1)
            p += 1
        else:
            return None
    return fields if p == end == at + 13 + data[at + 12] else None


def _make_flow(fields: list[Any]) -> Flow | None:
    """None sends the frame to the general codec, which says what is wrong with it."""
    count = len(fields)
    if not 4 <= count <= 11:
        return None
    if count < 11:
        fields += (None,) * (11 - count)
    if fields[10] is not None or None in fields[1:4]:
        return None
    if bool in map(type, fields[:8]) or int in map(type, fields[8:10]):
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


@lru_cache(maxsize=1024)
def transfer_frame(handle: int, tag_size: int, message_format: int, settled: bool, more: bool) -> bytes:
    """A transfer without payload on channel 0, with the largest delivery id, whose place is then known: that
    takes the five byte form.
    """
    if tag_size > MAX_TAG:
        raise UsageError(f"a delivery tag has at most {MAX_TAG} bytes")
    tag = b"\xff" * tag_size
    return encode_frame(0, Transfer(handle, 0xFFFFFFFF, tag, message_format, settled, more))


class TransferShape:
    """A transfer frame of one link with everything fixed but size, delivery id, tag and payload."""

    __slots__ = ("head", "mark", "overhead", "pack", "tail")

    def __init__(self, channel: int, frame: bytes, tag_size: int) -> None:
        """`frame` is one of `transfer_frame`."""
        split = frame.index(b"\x70\xff\xff\xff\xff", HEADER_SIZE) + 1
        after = split + 4
        self.head = frame[4:6] + channel.to_bytes(2, "big") + frame[HEADER_SIZE:split]
        self.mark = frame[after : after + 2]
        self.tail = frame[after + 2 + tag_size :]
        self.overhead = len(frame)
        self.pack: Callable[..., bytes] = transfer_struct(len(self.head), tag_size, len(self.tail)).pack

    def write(self, delivery_id: int, tag: bytes, size: int) -> bytes:
        """The frame up to its payload of `size` bytes."""
        return self.pack(self.overhead + size, self.head, delivery_id, self.mark, tag, self.tail)


@lru_cache(maxsize=1024)
def transfer_struct(head: int, tag: int, tail: int, number: str = "I") -> struct.Struct:
    """A transfer frame up to its payload: size, head, id, mark, tag, tail."""
    return struct.Struct(f">I{head}s{number}2s{tag}s{tail}s")


@lru_cache(maxsize=1024)
def disposition_reader(prefix: int, tail: int, *, is_once: bool) -> Callable[[bytes, int], tuple[Any, ...]]:
    """Reads a disposition frame: prefix, first, 0x70, last, tail; one that has the id once, as if twice."""
    if not is_once:
        return struct.Struct(f">{prefix}sIBI{tail}s").unpack_from
    unpack = struct.Struct(f">{prefix}sI{tail}s").unpack_from

    def read(data: bytes, at: int) -> tuple[Any, ...]:
        before, number, behind = unpack(data, at)
        return before, number, 0x70, number, behind

    return read


pack_disposition = struct.Struct(">16sIBI6s").pack
"""Prefix, first, 0x70, last, suffix: a disposition whose outcome takes four bytes, as accepted does."""

SHORT_SUFFIXES: dict[type, bytes] = {
    type(state): b"\x41" + encode_composite(state) + b"\x42" for state in (ACCEPTED, RELEASED)
}
"""Settled with an outcome that has no fields."""

ECHOED_SUFFIXES = {kind: b"\x42" + suffix[1:] for kind, suffix in SHORT_SUFFIXES.items()}
"""The same, and not settled before the peer has said so."""


class SettledRun:
    """Settlements of neighbours, one after the other, grow into one frame as long as it was not taken out.

    A peer that pipelines is then answered once for hundreds of messages. Ranges never pass over the wrap of
    the ids, which not every client reads.
    """

    __slots__ = ("_chunks", "_first", "_frame", "_last", "_prefix", "_suffix")

    def __init__(self, chunks: list[Blob]) -> None:
        self._chunks = chunks
        self._frame = self._prefix = self._suffix = b""
        self._first = self._last = -1

    def add(self, prefix: bytes, first: int, last: int, suffix: bytes) -> None:
        """Write settlements, or let the last frame, if it is a neighbour's, speak for these too."""
        chunks = self._chunks
        if (
            first == self._last + 1
            and chunks
            and chunks[-1] is self._frame
            and suffix is self._suffix
            and prefix is self._prefix  # the same link
        ):
            self._last = last
            chunks[-1] = self._frame = pack_disposition(prefix, self._first, 0x70, last, suffix)
            return
        self._prefix, self._suffix = prefix, suffix
        self._first, self._last = first, last
        self._frame = pack_disposition(prefix, first, 0x70, last, suffix)
        chunks.append(self._frame)


_PREFIXES = {
    receiver: encode_frame(0, Disposition(receiver, 0xFFFFFFFF, 0xFFFFFFFF, True, ACCEPTED))[:16]
    for receiver in (False, True)
}


def disposition_prefix(channel: int, *, receiver: bool) -> bytes:
    """What stands before `first` in a frame that `pack_disposition` finishes. Each link has one of its own,
    by which `SettledRun` knows it.
    """
    model = _PREFIXES[receiver]
    return model[:6] + channel.to_bytes(2, "big") + model[HEADER_SIZE:]


_FLOW_MARK = b"\x00\x53%c\xc0" % Flow.CODE
_pack_uint = struct.Struct(">BI").pack


def encode_flow(channel: int, numbers: tuple[int | None, ...], *, drain: bool, echo: bool) -> bytes:
    """A whole flow frame: the bytes that `encode_frame` writes. `numbers` are its first eight fields."""
    content = bytearray()
    for number in numbers:
        if number is None:
            content.append(0x40)
        elif number > 255:
            content += _pack_uint(0x70, number)
        elif number:
            content += b"\x52%c" % number
        else:
            content.append(0x43)
    size = len(content) + 4
    return b"%b%b%c\x0b%b%c%c\x40" % (
        pack_header(HEADER_SIZE + 5 + size, 2, AMQP_FRAME, channel),
        _FLOW_MARK,
        size,
        bytes(content),
        0x41 if drain else 0x42,
        0x41 if echo else 0x42,
    )

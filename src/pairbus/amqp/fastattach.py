"""The short way for attach frames, for those who open links by the thousand.

1. Of the 32 fields of an attach and its termini, links of one kind differ in four: name, handle, and the two
   addresses. The rest are the same bytes again and again.
2. Written: a terminus with nothing but an address is its address and a tail that never changes.
3. Read: the bytes between those four are looked up among what the general codec has read before, and mean
   what they meant then. Only what nobody can change is remembered, and only so much of it.
4. Whatever has another shape goes through the general codec, and means the same.
"""

import struct
from dataclasses import fields
from operator import attrgetter
from typing import Any

from .composites import encode_composite, put_any
from .encoding import put_boolean, put_fields, put_map, put_string, put_ubyte, put_uint, put_ulong
from .fastframes import read_uint
from .frames import AMQP_FRAME, HEADER_SIZE, decode_performative, encode_frame, pack_header
from .performatives import Attach, Source, Target

_MARK = b"\x00\x53%c"
_ATTACH_MARK = _MARK % Attach.CODE
# Fields before and with the termini, and behind them.
_BEFORE, _BEHIND = 7, 7
# How role and modes may be written: null, true, false; one byte behind their code.
_FLAG_WIDTHS = {0x40: 1, 0x41: 1, 0x42: 1, 0x50: 2, 0x56: 2}

_MEMO_SIZE = 512  # a peer that invents more shapes pays with slow frames, we with nothing
_MEMO_BYTES = 200
_MEMO_KINDS = (type(None), bool, int, str, tuple)

memo: dict[tuple[Any, ...], tuple[tuple[Any, ...], ...]] = {}
"""What is between the fields that differ, counts of fields and bytes; and its values."""


class _Terminus:
    """A source or a target, and how one is written that has nothing but an address."""

    __slots__ = ("_head", "_others", "_tail", "_usual", "kind", "mark")

    def __init__(self, kind: type[Source] | type[Target]) -> None:
        model = encode_composite(kind(""))  # mark, list8, length, count, str8, length of nothing, the rest
        self.kind = kind
        self.mark = _MARK % kind.CODE
        self._head = self.mark + b"\xc0%c" + model[5:7] + b"%c%b"
        self._tail = model[8:]
        self._others = attrgetter(*(field.name for field in fields(kind)[1:]))
        self._usual = self._others(kind(""))

    def put(self, out: bytearray, terminus: Any) -> None:
        """Write what an attach has in this place."""
        if terminus is None:
            out.append(0x40)
            return
        if type(terminus) is self.kind and terminus.address and self._others(terminus) == self._usual:
            address = terminus.address.encode()
            size = len(address) + len(self._tail) + 3
            if size < 256:
                out += self._head % (size, len(address), address)
                out += self._tail
                return
        put_any(out, terminus)

    def cut(self, data: bytes, p: int) -> tuple[str, int, bytes, int] | None:
        """Of the one at `p` the address, the count of fields, those behind the address, and the place behind
        it; None if it has another shape.
        """
        count, at, stop = _read_list(data, p + 3)
        if data[p : p + 3] != self.mark or not count or data[at] != 0xA1:
            return None
        rest = at + 2 + data[at + 1]
        return (data[at + 2 : rest].decode(), count, data[rest:stop], stop) if rest <= stop else None


_SOURCE, _TARGET = _Terminus(Source), _Terminus(Target)


def encode_attach(channel: int, attach: Attach) -> bytes:
    """A whole frame: the bytes that `encode_frame` writes."""
    if (attach.unsettled, attach.offered_capabilities, attach.desired_capabilities) != (None, None, None):
        return encode_frame(channel, attach)
    content = bytearray()
    put_string(content, attach.name)
    put_uint(content, attach.handle)
    put_boolean(content, attach.role)
    put_ubyte(content, attach.snd_settle_mode)
    put_ubyte(content, attach.rcv_settle_mode)
    _SOURCE.put(content, attach.source)
    _TARGET.put(content, attach.target)
    content += b"\x40\x41" if attach.incomplete_unsettled else b"\x40\x42"
    if attach.initial_delivery_count is None:
        content.append(0x40)
    else:
        put_uint(content, attach.initial_delivery_count)
    if attach.max_message_size is None:
        content.append(0x40)
    else:
        put_ulong(content, attach.max_message_size)
    content += b"\x40\x40"
    if attach.properties is None:
        content.append(0x40)
    else:
        put_map(content, attach.properties)
    body = bytearray(_ATTACH_MARK)
    put_fields(body, _BEFORE + _BEHIND, content)
    return pack_header(HEADER_SIZE + len(body), 2, AMQP_FRAME, channel) + body


def read_attach(data: bytes, start: int, end: int) -> Attach | None:
    """The attach that fills `data` from `start` to `end`; None sends the frame to the general codec, which
    says what is wrong with it, if anything is.
    """
    if data[start : start + 3] != _ATTACH_MARK:
        return None
    try:
        return _read(data, start, end)
    except (LookupError, struct.error, UnicodeDecodeError):
        return None


def _read(data: bytes, start: int, end: int) -> Attach | None:
    count, p, stop = _read_list(data, start + 3)
    if stop != end or count < _BEFORE or data[p] != 0xA1:
        return None
    q = p + 2 + data[p + 1]
    name, code = data[p + 2 : q].decode(), data[q]
    if code == 0x43:
        handle, p = 0, q + 1
    elif code == 0x52:
        handle, p = data[q + 1], q + 2
    elif code == 0x70:
        handle, p = read_uint(data, q + 1)[0], q + 5
    else:
        return None
    q = p
    for _ in range(3):  # role and modes
        q += _FLAG_WIDTHS[data[q]]
    source = _SOURCE.cut(data, q)
    target = _TARGET.cut(data, source[3]) if source is not None else None
    if source is None or target is None or target[3] > end:
        return None
    key = count, data[p:q], *source[1:3], *target[1:3], data[target[3] : end]
    known = memo.get(key)
    if known is None:
        attach, reached = decode_performative(data, start, end)
        if reached == end:
            _learn(key, attach)
        return attach if reached == end else None
    flags, of_source, of_target, rest = known
    termini = Source(source[0], *of_source), Target(target[0], *of_target)
    fields: tuple[Any, ...] = (name, handle, *flags, *termini, *rest)
    return Attach(*fields)


def _read_list(data: bytes, p: int) -> tuple[int, int, int]:
    """Count, first place and end of a list; a count of 0 if it is none, or empty."""
    if data[p] == 0xC0:
        return data[p + 2], p + 3, p + 2 + data[p + 1]
    if data[p] == 0xD0:
        return read_uint(data, p + 5)[0], p + 9, p + 5 + read_uint(data, p + 1)[0]
    return 0, p, 0


def _learn(key: tuple[Any, ...], attach: Attach) -> None:
    """Remember what these bytes mean, as far as nobody can change it."""
    fields = _values(attach)
    values = fields[2:5], _values(attach.source)[1:], _values(attach.target)[1:], fields[_BEFORE:]
    is_short = sum(len(part) for part in key if isinstance(part, bytes)) <= _MEMO_BYTES
    if is_short and all(isinstance(value, _MEMO_KINDS) for some in values for value in some):
        if len(memo) >= _MEMO_SIZE:
            memo.clear()
        memo[key] = values


def _values(composite: Any) -> tuple[Any, ...]:
    return tuple(getattr(composite, name) for name in composite.__slots__)

"""Messages of the usual form, read at a glance: that is done for every message that is sent to a broker.

1. Most have a header, properties, perhaps application properties, and one section of data, each in its short
   form, and nothing else. What has another form is left to `message.scan`, and so is what is broken, and what
   has decimals, which are not passed on as they are: nothing is refused here.
2. Messages of one sender differ in their id and their body. So a message is compared with the one before it,
   and only where that looked otherwise it is read field by field.
"""

import struct
from typing import Any, NamedTuple

from .decoding import decode_exactly
from .errors import DecodeError
from .limits import MAX_SECTIONS
from .message import NO_HEADER, Header, known_headers, read_properties, scan

# How the sections of a usual message begin: a list of the 8 bit form, a binary of either form.
_HEADER, _PROPERTIES = b"\x00\x53\x70\xc0", b"\x00\x53\x73\xc0"
_MAPS = b"\x00\x53\x74\xc1", b"\x00\x53\x74\xd1"
_DECIMAL = b"\x94"
_LONG_DATA, _SHORT_DATA = b"\x00\x53\x75\xb0", b"\x00\x53\x75\xa0"
_SHORT_TEXT = 0xA1
_u32 = struct.Struct(">I").unpack_from

#: Header, values of the properties, their section, where the body begins, and the application properties.
Plain = tuple[Header, list[Any], bytes, int, bytes]


class _Shape(NamedTuple):
    """What a message looked like, apart from its id, a short text, and its body, of 256 bytes or more."""

    before: bytes  # all up to the id, its length among it
    between: bytes  # all from the id to the length of the body
    id_at: int
    id_end: int
    length_at: int
    properties_at: int
    properties_end: int
    applied: bytes
    header: Header
    others: list[Any]  # the values of the properties behind the id


_latest = _Shape(b"no message begins so", b"", 0, 0, 0, 0, 0, b"", NO_HEADER, [])


def scan_plain(payload: bytes) -> Plain | None:
    """What a message has of these, if that is all. None says nothing: `scan` tells."""
    before, between, id_at, id_end, length_at, begin, end, applied, header, others = _latest
    if payload[:id_at] != before or payload[id_end:length_at] != between:
        return _scan_anew(payload)
    try:
        if length_at + 4 + _u32(payload, length_at)[0] != len(payload):
            return None
        values = [payload[id_at:id_end].decode(), *others]
    except (struct.error, UnicodeDecodeError):
        return None
    return header, values, payload[begin:end], length_at - 4, applied


def _scan_anew(payload: bytes) -> Plain | None:
    """The same for a message that does not look like the one before."""
    global _latest
    header, at = NO_HEADER, 0
    try:
        if payload[:4] == _HEADER:
            at = 5 + payload[4]
            found = known_headers.get(payload[:at])
            if found is None:
                return None
            header = found
        begin = at
        if payload[at : at + 4] == _PROPERTIES:
            at += 5 + payload[at + 4]
        stop, mark = at, payload[at : at + 4]
        if mark in _MAPS:
            at += 5 + payload[at + 4] if mark == _MAPS[0] else 8 + _u32(payload, at + 4)[0]
            mark = payload[at : at + 4]
        if mark == _LONG_DATA:
            end = at + 8 + _u32(payload, at + 4)[0]
        elif mark == _SHORT_DATA:
            end = at + 5 + payload[at + 4]
        else:
            return None
        if end != len(payload):
            return None
        applied = payload[stop:at]
        if applied and (_DECIMAL in applied or not isinstance(decode_exactly(payload, stop + 3, at), dict)):
            return None
    except (IndexError, struct.error, DecodeError):
        return None
    values = read_properties(payload, begin, stop) if begin < stop else []
    if values and payload[begin + 6] == _SHORT_TEXT and mark == _LONG_DATA:
        id_at, length_at = begin + 8, at + 4
        id_end = id_at + payload[begin + 7]
        before, between = payload[:id_at], payload[id_end:length_at]
        others = values[1:]
        _latest = _Shape(before, between, id_at, id_end, length_at, begin, stop, applied, header, others)
    return header, values, payload[begin:stop], at, applied


def split_batch(payload: bytes) -> list[bytes]:
    """The messages of a batch: the binaries of its data sections. Clients write these alone, or behind the
    properties of the first message; what is written otherwise is left to `scan`.
    """
    parts, at, size = list[bytes](), 0, len(payload)
    try:
        if payload[:4] == _PROPERTIES:
            at = 5 + payload[4]
        while at < size:
            mark = payload[at : at + 4]
            if mark == _LONG_DATA:
                begin = at + 8
                at = begin + _u32(payload, at + 4)[0]
            elif mark == _SHORT_DATA:
                begin = at + 5
                at = begin + payload[at + 4]
            else:
                break
            parts.append(payload[begin:at])
    except (IndexError, struct.error):
        at = 0
    return parts if at == size and len(parts) <= MAX_SECTIONS else scan(payload).data_sections()

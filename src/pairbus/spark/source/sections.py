"""The sections of many messages, cut quickly.

Nearly every message has its sections in order, short or long lists and maps, and one data section that
reaches to its end: such a one is cut by a look at a few bytes, and no object is made for it. Any other goes
through the scanner and is cut the same. So is a page whose messages have sections of the same lengths.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import repeat
from operator import ne
from typing import NamedTuple, TypeVar

from pairbus.amqp.message import scan

T = TypeVar("T")
#: Header, annotations, properties and application properties as they stand on the wire, and where the data
#: begins: 0 if the body is anything but one data section.
Cut = tuple[bytes, bytes, bytes, bytes, int]

_u32 = struct.Struct(">I").unpack_from
_IN_ORDER = tuple((b"\x00S%c%c" % (code, short), b"\x00S%c%c" % (code, short + 16)) for code, short in (
    (0x70, 0xC0), (0x72, 0xC1), (0x73, 0xC0), (0x74, 0xC1),
))  # fmt: skip
_SHORT = (b"\xc0", b"\xc1")
_LONG_DATA, _SHORT_DATA = b"\x00\x53\x75\xb0", b"\x00\x53\x75\xa0"


class PageSections(NamedTuple):
    """The sections of all messages of a page, kind by kind."""

    headers: Sequence[bytes]
    annotations: Sequence[bytes]
    properties: Sequence[bytes]
    application_properties: Sequence[bytes]
    data_at: Sequence[int]


def cut_page(payloads: Sequence[bytes]) -> PageSections:
    if not payloads:
        return PageSections((), (), (), (), ())
    found = _cut_alike(payloads, cut(payloads[0]))
    return PageSections._make(zip(*map(cut, payloads), strict=True)) if found is None else found


def _cut_alike(payloads: Sequence[bytes], first: Cut) -> PageSections | None:
    """Those of messages with sections as long as the first one's, without a line of Python for each."""
    *sections, data_at = first
    if not isinstance(data_at, int) or not data_at:
        return None
    lengths = [len(section) for section in sections]
    form = struct.Struct(">{}s{}s{}s{}s4s".format(*lengths) + ("I" if data_at - sum(lengths) == 8 else "B"))
    try:
        *columns, kinds, sizes = zip(*map(form.unpack_from, payloads), strict=True)
    except struct.error:
        return None
    for section, column in zip(sections, columns, strict=True):
        if not all(map(bytes.startswith, column, repeat(_opening(section)))):
            return None
    if kinds.count(kinds[0]) < len(kinds) or any(map(ne, map(data_at.__add__, sizes), map(len, payloads))):
        return None
    return PageSections._make([*columns, (data_at,) * len(payloads)])


def _opening(section: bytes) -> bytes:
    """The bytes of a section that say what it is, and its size."""
    return section[: 5 if section[3:4] in _SHORT else 8]


def cut(payload: bytes) -> Cut:
    found: list[bytes] = []
    at, size = 0, len(payload)
    head = payload[:4]
    try:
        for short, long in _IN_ORDER:
            if head == short:
                end = at + 5 + payload[at + 4]
            elif head == long:
                end = at + 8 + _u32(payload, at + 4)[0]
            else:
                found.append(b"")
                continue
            found.append(payload[at:end])
            at = end
            head = payload[at : at + 4]
        if head == _LONG_DATA and at + 8 + _u32(payload, at + 4)[0] == size:
            return found[0], found[1], found[2], found[3], at + 8
        if head == _SHORT_DATA and at + 5 + payload[at + 4] == size:
            return found[0], found[1], found[2], found[3], at + 5
    except (IndexError, struct.error):
        return _cut_slowly(payload)  # which says what is broken
    return _cut_slowly(payload)


def _cut_slowly(payload: bytes) -> Cut:
    one = scan(payload)
    return (
        one.header_bytes,
        one.annotations_bytes,
        one.properties_bytes,
        one.application_properties_bytes,
        0,
    )


def read_each(sections: Sequence[bytes], read: Callable[[bytes], T]) -> list[T]:
    """What each section says; those that are the same are read once, and say the same object."""
    known = {raw: read(raw) for raw in set(sections)}
    return [known[raw] for raw in sections]

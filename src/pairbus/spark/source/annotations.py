"""What an entity has written on a message, read quickly.

Messages of one entity have annotations of few layouts: the same keys in the same order, of which three or
four numbers change and nothing else. A layout is read entry by entry once; what has the same bytes around
the same places means the same, and its numbers are had by one call.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from pairbus import words
from pairbus.amqp.codec import decode, skip
from pairbus.amqp.errors import DecodeError

from .properties import TextMap, text_map

_NUMBERS = (
    words.SEQUENCE_NUMBER,
    words.ENQUEUED_SEQUENCE_NUMBER,
    words.ENQUEUED_TIME,
    words.SCHEDULED_TIME,
)
_STATES = {0: "active", 1: "deferred", 2: "scheduled"}
_LONG, _TIMESTAMP = 0x81, 0x83
# Not so many as to be a burden where each message has a layout of its own.
_MOST_LAYOUTS = 1024


class Marks(NamedTuple):
    """What stays the same in a layout."""

    state: str
    partition_key: str | None
    via_partition_key: str | None
    dead_letter_source: str | None
    others: TextMap


#: The four numbers, None where one is missing; times are milliseconds.
Numbers = tuple[int | None, int | None, int | None, int | None]


class _Layout:
    __slots__ = ("_constants", "_order", "_unpack", "marks")

    def __init__(self, data: bytes, places: dict[str, int], marks: Marks) -> None:
        form, at = ">", 0
        ordered = sorted(places, key=places.__getitem__)
        for name in ordered:
            form += f"{places[name] - at}sq"
            at = places[name] + 8
        self._unpack = struct.Struct(f"{form}{len(data) - at}s").unpack
        self._constants = self._unpack(data)[::2]
        self._order = [2 * ordered.index(name) + 1 if name in places else None for name in _NUMBERS]
        self.marks = marks

    def read(self, data: bytes) -> Numbers | None:
        values = self._unpack(data)
        if values[::2] != self._constants:
            return None
        one, two, three, four = self._order
        return (
            None if one is None else values[one],
            None if two is None else values[two],
            None if three is None else values[three],
            None if four is None else values[four],
        )


_layouts: dict[int, _Layout] = {}


def read_annotations(data: bytes) -> tuple[Numbers, Marks]:
    """The annotations of a message; `data` is the section as it stands on the wire."""
    layout = _layouts.get(len(data))
    numbers = layout.read(data) if layout is not None else None
    if layout is None or numbers is None:
        layout = _learn(data)
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        _layouts[len(data)] = layout
        numbers = layout.read(data)
        assert numbers is not None
    return numbers, layout.marks


def _learn(data: bytes) -> _Layout:
    places: dict[str, int] = {}
    found: dict[str, Any] = {}
    if data:
        at = 3 if data[1] == 0x53 else skip(data, 1)
        if data[at] not in (0xC1, 0xD1):
            raise DecodeError("a section that must be a map is none")
        at = at + 3 if data[at] == 0xC1 else at + 9
        while at < len(data):
            key, at = decode(data, at)
            value, end = decode(data, at)
            if key in _NUMBERS and data[at] in (_LONG, _TIMESTAMP):
                places[str(key)] = at + 1
            elif key not in _NUMBERS:
                found[str(key)] = value
            at = end
    return _Layout(data, places, _marks(found))


def _marks(found: dict[str, Any]) -> Marks:
    state = found.pop(words.MESSAGE_STATE, 0)
    found.pop(words.LOCKED_UNTIL, None)
    key, via_key, source = (
        None if value is None else str(value)
        for value in (
            found.pop(name, None)
            for name in (words.PARTITION_KEY, words.VIA_PARTITION_KEY, words.DEAD_LETTER_SOURCE)
        )
    )
    return Marks(_STATES.get(state, "active"), key, via_key, source, text_map(found))

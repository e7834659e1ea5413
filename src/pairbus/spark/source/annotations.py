"""What an entity has written on a message, read quickly.

Messages of one entity have annotations of few layouts: the same keys in the same order, of which three or
four numbers change and nothing else. A layout is read entry by entry once; what has the same bytes around
the same places means the same, and its numbers are had by one call.
"""

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from pairbus import words
from pairbus.amqp.decoding import decode
from pairbus.pump.unwrapping import find_entries

from .properties import TextMap, text_map

_NUMBERS = (
    words.SEQUENCE_NUMBER,
    words.ENQUEUED_SEQUENCE_NUMBER,
    words.ENQUEUED_TIME,
    words.SCHEDULED_TIME,
)
_STATES = {0: "active", 1: "deferred", 2: "scheduled"}
# What a number may be on the wire, by the byte before it: longs and moments, and shorter forms of small ones.
_FORMS = {0x81: "q", 0x83: "q", 0x55: "b", 0x80: "Q", 0x53: "B", 0x71: "i", 0x54: "b", 0x70: "I", 0x52: "B"}
# Few, since all of one length are tried: each message may have a layout of its own.
_MOST_LAYOUTS = 64


class Marks(NamedTuple):
    """What stays the same in a layout."""

    state: str
    partition_key: str | None
    via_partition_key: str | None
    dead_letter_source: str | None
    others: TextMap


class AnnotationColumns(NamedTuple):
    """The annotations of several messages by column; None where one is missing. Times are milliseconds."""

    sequence_number: Sequence[int | None]
    enqueued_sequence_number: Sequence[int | None]
    enqueued: Sequence[int | None]
    scheduled: Sequence[int | None]
    marks: Sequence[Marks]


class _Layout:
    __slots__ = ("_constants", "_order", "_struct", "marks")

    def __init__(self, data: bytes, places: dict[str, int], marks: Marks) -> None:
        form, at = ">", 0
        ordered = sorted(places, key=places.__getitem__)
        for name in ordered:
            of_number = _FORMS[data[places[name] - 1]]
            form += f"{places[name] - at}s{of_number}"
            at = places[name] + struct.calcsize(f">{of_number}")
        self._struct = struct.Struct(f"{form}{len(data) - at}s")
        self._constants = self._struct.unpack(data)[::2]
        self._order = [2 * ordered.index(name) + 1 if name in places else None for name in _NUMBERS]
        self.marks = marks

    def read(self, sections: Sequence[bytes]) -> AnnotationColumns | None:
        """The numbers of sections of its length; None if one of them has another layout."""
        count = len(sections)
        columns = list(zip(*map(self._struct.unpack, sections), strict=True))
        for constant, column in zip(self._constants, columns[::2], strict=True):
            if column.count(constant) < count:
                return None
        missing = (None,) * count
        numbers = [missing if place is None else columns[place] for place in self._order]
        return AnnotationColumns._make([*numbers, (self.marks,) * count])


# By the length of the section.
_layouts: dict[int, list[_Layout]] = {}


def read_annotations(sections: Sequence[bytes]) -> AnnotationColumns:
    """The annotations of messages; each section is as it stands on the wire."""
    if not sections:
        return AnnotationColumns((), (), (), (), ())
    found = _read_alike(sections)
    if found is None:
        singly = [_read_one(section) for section in sections]
        found = AnnotationColumns._make(list(chain.from_iterable(some)) for some in zip(*singly, strict=True))
    return found


def _read_alike(sections: Sequence[bytes]) -> AnnotationColumns | None:
    """Read sections of one layout, which nearly all pages have; None for others."""
    size, *others = set(map(len, sections))
    if others:
        return None
    for layout in _layouts.get(size, ()):
        found = layout.read(sections)
        if found is not None:
            return found
    return None


def _read_one(section: bytes) -> AnnotationColumns:
    found = _read_alike([section])
    if found is None:
        if sum(map(len, _layouts.values())) >= _MOST_LAYOUTS:
            _layouts.clear()
        layout = _learn(section)
        _layouts.setdefault(len(section), []).append(layout)
        found = layout.read([section])
        assert found is not None
    return found


def _learn(data: bytes) -> _Layout:
    places: dict[str, int] = {}
    found: dict[str, Any] = {}
    if data:
        at, _ = find_entries(data)
        while at < len(data):
            key, at = decode(data, at)
            value, end = decode(data, at)
            if key in _NUMBERS and data[at] in _FORMS:
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

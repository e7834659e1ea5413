"""Application properties as texts with the names of their types, read quickly.

Short texts, numbers and booleans, nearly all that there is, are read in place; the rest is decoded.
"""

import struct
from typing import Any

from pairbus.amqp.decoding import decode
from pairbus.amqp.errors import DecodeError
from pairbus.pump.unwrapping import find_entries

from .values import to_text

#: Keys, names of types and texts of values: what the column of a map is made of.
TextMap = tuple[tuple[str, ...], tuple[str, ...], tuple[str | None, ...]]
EMPTY_MAP: TextMap = ((), (), ())

_byte = struct.Struct(">b").unpack_from
_int = struct.Struct(">i").unpack_from
_long = struct.Struct(">q").unpack_from
_double = struct.Struct(">d").unpack_from
# By the constructor of a number: the name of its type, how it is read, and how many bytes both take.
_NUMBERS = {
    0x54: ("int", _byte, 2),
    0x71: ("int", _int, 5),
    0x55: ("long", _byte, 2),
    0x81: ("long", _long, 9),
    0x82: ("double", _double, 9),
}


def text_map(values: dict[Any, Any]) -> TextMap:
    """A map of AMQP values as texts."""
    if not values:
        return EMPTY_MAP
    texts = [to_text(value) for value in values.values()]
    return (
        tuple(map(str, values)),
        tuple(name for name, _ in texts),
        tuple(text for _, text in texts),
    )


def read_map(data: bytes) -> TextMap | None:
    """A section of application properties as it stands on the wire; None if it cannot be read."""
    try:
        return _read(data) if data else EMPTY_MAP
    except (DecodeError, IndexError, UnicodeDecodeError, struct.error, TypeError):
        return None


def _read(data: bytes) -> TextMap:
    at, count = find_entries(data)
    keys: list[str] = []
    names: list[str] = []
    texts: list[str | None] = []
    for _ in range(count // 2):
        if data[at] == 0xA1:
            end = at + 2 + data[at + 1]
            keys.append(data[at + 2 : end].decode())
        else:
            key, end = decode(data, at)
            keys.append(str(key))
        code = data[end]
        if code == 0xA1:
            at = end + 2 + data[end + 1]
            names.append("string")
            texts.append(data[end + 2 : at].decode())
            if at > len(data):
                raise DecodeError("a property is cut short")
        elif code in _NUMBERS:
            name, unpack, size = _NUMBERS[code]
            names.append(name)
            texts.append(str(unpack(data, end + 1)[0]))
            at = end + size
        elif code == 0x41 or code == 0x42:
            names.append("boolean")
            texts.append("true" if code == 0x41 else "false")
            at = end + 1
        else:
            value, at = decode(data, end)
            name, text = to_text(value)
            names.append(name)
            texts.append(text)
    if len(set(keys)) < len(keys):
        raise DecodeError("a property is there twice")
    return tuple(keys), tuple(names), tuple(texts)

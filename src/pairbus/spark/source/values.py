"""Values of AMQP as text with the name of their type, and back.

A property is a row of two strings: `type`, by the name that AMQP has for it, and `value`, which Spark's own
`cast` reads. Nothing is lost, so that what was read can be written again as it was. Spark's variant would be
shorter to ask, but knows neither unsigned numbers nor symbols, characters and ids, cannot be grouped by or
compared, and cannot be written as CSV or by Spark Connect's older clients.

| type | value |
| --- | --- |
| `boolean` | `true`, `false` |
| `byte`, `short`, `int`, `long`, `ubyte`, `ushort`, `uint`, `ulong` | the number |
| `float`, `double` | the shortest number that reads back as the same |
| `string`, `symbol`, `char`, `uuid`, `uri` | the text |
| `timestamp` | `2026-01-31T10:00:00.123Z`, or milliseconds where the year has not four digits |
| `binary` | Base64 |
| `timespan`, `datetime-offset` | .NET's ticks of 100 ns |
| `decimal32`, `decimal64`, `decimal128` | its bytes in hexadecimal digits |
| `null` | null |
| `list`, `map`, `array`, `described` | JSON, in which each value is `{"type": …, "value": …}` |
"""

import base64
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from pairbus import words
from pairbus.amqp import types
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import EncodeError
from pairbus.errors import ConfigurationError
from pairbus.plumbing.json_text import parse_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Text = str | None
# Descriptors of what AMQP has no type for, as the name of a type.
_DESCRIPTORS = {words.URI: "uri", words.TIMESPAN: "timespan", words.DATETIME_OFFSET: "datetime-offset"}


class UnreadableValue(ConfigurationError):
    """A text that is not a value of its type."""


def moment_of(milliseconds: int) -> str:
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return str(int(milliseconds))
    return (
        f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z" if moment.year > 999 else str(milliseconds)
    )


def _read_moment(text: str) -> types.Timestamp:
    if text.lstrip("-").isdigit():
        return types.Timestamp(text)
    moment = datetime.fromisoformat(text)
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return types.Timestamp((aware - _EPOCH) // timedelta(milliseconds=1))


def _read_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _read_char(text: str) -> types.Char:
    if len(text) != 1:
        raise ValueError
    return types.Char(text)


def _whole(made: type) -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    return int.__repr__, made


def _plain(made: type) -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    return str.__str__, made


def _hexadecimal(made: type) -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    return lambda value: bytes(value).hex(), lambda text: made(bytes.fromhex(text))


# By the Python type: the name, how it is written, how it is read.
_SCALARS: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    bool: ("boolean", lambda value: "true" if value else "false", _read_boolean),
    str: ("string", *_plain(str)),
    int: ("long", *_whole(int)),
    types.Int: ("int", *_whole(types.Int)),
    float: ("double", float.__repr__, float),
    types.Float: ("float", float.__repr__, types.Float),
    bytes: ("binary", lambda value: base64.b64encode(value).decode(), lambda text: base64.b64decode(text)),
    types.Timestamp: ("timestamp", moment_of, _read_moment),
    uuid.UUID: ("uuid", str, uuid.UUID),
    types.Symbol: ("symbol", *_plain(types.Symbol)),
    types.Char: ("char", str.__str__, _read_char),
    types.ULong: ("ulong", *_whole(types.ULong)),
    types.UInt: ("uint", *_whole(types.UInt)),
    types.UShort: ("ushort", *_whole(types.UShort)),
    types.UByte: ("ubyte", *_whole(types.UByte)),
    types.Short: ("short", *_whole(types.Short)),
    types.Byte: ("byte", *_whole(types.Byte)),
    types.Decimal32: ("decimal32", *_hexadecimal(types.Decimal32)),
    types.Decimal64: ("decimal64", *_hexadecimal(types.Decimal64)),
    types.Decimal128: ("decimal128", *_hexadecimal(types.Decimal128)),
}
_READERS = {name: (kind, read) for kind, (name, _, read) in _SCALARS.items()}
# What an array can be made of, by name.
_ELEMENTS: dict[str, type] = {
    **{name: kind for name, (kind, _) in _READERS.items()},
    "null": type(None),
    "list": list,
    "map": dict,
    "array": types.Array,
}
_ELEMENT_NAMES = {kind: name for name, kind in _ELEMENTS.items()}
#: The names of all types.
TYPE_NAMES = (*_READERS, *_DESCRIPTORS.values(), "null", "list", "map", "array", "described")


def to_text(value: Any) -> tuple[str, _Text]:
    """The name of a value's type, and its text."""
    found = _SCALARS.get(type(value))
    if found is not None:
        return found[0], found[1](value)
    if value is None:
        return "null", None
    if (
        isinstance(value, types.Described)
        and value.descriptor in _DESCRIPTORS
        and isinstance(value.value, str | int)
    ):
        return _DESCRIPTORS[value.descriptor], str(value.value)
    name, tree = _tree_of(value)
    return name, json.dumps(tree, ensure_ascii=False)


def _tree_of(value: Any) -> tuple[str, Any]:
    match value:
        case list():
            return "list", [_node(item) for item in value]
        case dict():
            return "map", [[_node(key), _node(item)] for key, item in value.items()]
        case types.Array():
            element = _ELEMENT_NAMES[value.element]
            described = None if value.descriptor is None else _node(value.descriptor)
            return "array", {"of": element, "descriptor": described, "items": [_node(one) for one in value]}
        case types.Described():
            return "described", {"descriptor": _node(value.descriptor), "value": _node(value.value)}
    raise TypeError(f"no AMQP value: {type(value).__name__}")


def _node(value: Any) -> dict[str, Any]:
    name, text = to_text(value)
    return {"type": name, "value": text}


def from_text(name: str, text: _Text) -> Any:
    """The inverse of `to_text`; UnreadableValue if the text has no such value."""
    if name == "null" or text is None:
        return None
    try:
        value = _from_text(name, text)
        encode(value)  # its range
    except (ValueError, KeyError, TypeError, OverflowError, EncodeError) as error:
        raise UnreadableValue(f"a property says that it is of the type {name}, and is none") from error
    return value


def _from_text(name: str, text: str) -> Any:
    if name in _READERS:
        return _READERS[name][1](text)
    for descriptor, known in _DESCRIPTORS.items():
        if known == name:
            return types.Described(types.Symbol(descriptor), text if name == "uri" else int(text))
    if name not in TYPE_NAMES:
        raise UnreadableValue(f"there is no type {name!r} of a property: {', '.join(TYPE_NAMES)}")
    return _grow(name, parse_json(text))


def _grow(name: str, tree: Any) -> Any:
    if name == "list":
        return [_leaf(node) for node in tree]
    if name == "map":
        return {_leaf(key): _leaf(item) for key, item in tree}
    if name == "array":
        of, items = tree["of"], [_leaf(node) for node in tree["items"]]
        return types.Array(
            items, _ELEMENTS[of], None if tree["descriptor"] is None else _leaf(tree["descriptor"])
        )
    return types.Described(_leaf(tree["descriptor"]), _leaf(tree["value"]))


def _leaf(node: dict[str, Any]) -> Any:
    return from_text(node["type"], node["value"])

"""Typed values of filters and actions: `<Value i:type="d6p1:int">1</Value>`.

Each XML Schema type has a Python value that goes back to the same type; types that AMQP knows and XML Schema
does not are written as their nearest neighbour, so that a rule that was made over AMQP can be listed.
"""

import base64
import binascii
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pairbus.amqp import types as amqp

from .duration import format_duration, format_instant, parse_duration, parse_instant
from .errors import AdminRefused
from .markup import XmlNode, branch, leaf
from .scalar import read_boolean

SCHEMA = "http://www.w3.org/2001/XMLSchema"
SERIALIZATION = "http://schemas.microsoft.com/2003/10/Serialization/"
_PAIR = "KeyValueOfstringanyType"
# The JavaScript client cuts five characters off the type's name, so the prefix must have four.
_PREFIX = "d6p1"

# Bounds of the integers, since Python has none. XML's "byte" is signed.
_INTEGERS: Final[dict[str, tuple[type[int], int, int]]] = {
    "byte": (amqp.Byte, -(2**7), 2**7 - 1),
    "unsignedByte": (amqp.UByte, 0, 2**8 - 1),
    "short": (amqp.Short, -(2**15), 2**15 - 1),
    "unsignedShort": (amqp.UShort, 0, 2**16 - 1),
    "int": (amqp.Int, -(2**31), 2**31 - 1),
    "unsignedInt": (amqp.UInt, 0, 2**32 - 1),
    "long": (int, -(2**63), 2**63 - 1),
    "unsignedLong": (amqp.ULong, 0, 2**64 - 1),
}
# The longest duration of .NET, which counts in 100 ns, rounded to what Python can hold.
_FOR_EVER: Final = timedelta(days=10_675_199, hours=2, minutes=48, seconds=5, microseconds=477_581)
# Types that XML Schema lacks, or that .NET puts elsewhere.
_FOREIGN: Final = frozenset({"char", "duration", "guid"})
_INTEGER_NAMES: Final = {python: name for name, (python, _, _) in _INTEGERS.items()}


def read_pairs(node: XmlNode | None) -> dict[str, Any]:
    """Keys and values below `Properties` or `Parameters`; raises `AdminRefused`."""
    if node is None:
        return {}
    pairs = {}
    for pair in node.find_all(_PAIR):
        key, value = pair.find("Key"), pair.find("Value")
        if key is None or not key.text or value is None:
            raise AdminRefused(400, f"Every {_PAIR} needs a Key and a Value.")
        pairs[key.text] = _read(value, key.text)
    return pairs


def write_pairs(name: str, pairs: Mapping[str, Any]) -> XmlNode:
    return branch(name, [branch(_PAIR, [leaf("Key", key), _write(value)]) for key, value in pairs.items()])


def _read(node: XmlNode, key: str) -> Any:
    if node.attributes.get("nil") == "true":
        return None
    kind = node.attributes.get("type", "string").rpartition(":")[2]
    reader = _READERS.get(kind)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise AdminRefused(400, f"The value of '{key}' has the unknown type '{kind}'; known are {known}.")
    try:
        return reader(node.text)
    except (ValueError, OverflowError) as error:
        raise AdminRefused(400, f"The value of '{key}' is not of type '{kind}': {error}.") from error


def _integer_reader(name: str) -> Callable[[str], int]:
    python, low, high = _INTEGERS[name]

    def read(text: str) -> int:
        number = int(text[:32])
        if len(text) > 32 or not low <= number <= high:
            # The Python client calls every small number an int, also those below the least of 32 bits.
            if name == "int" and -(2**63) <= number < low:
                return number
            raise ValueError(f"it must lie between {low} and {high}")
        return python(number)

    return read


def _read_double(text: str) -> float:
    return float(text.strip().replace("INF", "inf"))


def _read_duration(text: str) -> timedelta:
    sign = -1 if text.startswith("-") else 1
    seconds = parse_duration(text.strip().removeprefix("-"))
    return sign * (_FOR_EVER if seconds is None else timedelta(seconds=seconds))


def _read_binary(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    **{name: _integer_reader(name) for name in _INTEGERS},
    "string": str,
    "anyURI": str,
    "char": lambda text: amqp.Char(chr(int(text))),
    "boolean": read_boolean,
    "double": _read_double,
    "decimal": _read_double,
    "float": lambda text: amqp.Float(_read_double(text)),
    "dateTime": parse_instant,
    "duration": _read_duration,
    "guid": uuid.UUID,
    "base64Binary": _read_binary,
}


def _write(value: Any) -> XmlNode:
    if value is None:
        return leaf("Value", "", {"i:nil": "true"})
    kind, text = _name_and_text(value)
    space = SERIALIZATION if kind in _FOREIGN else SCHEMA
    return leaf("Value", text, {"i:type": f"{_PREFIX}:{kind}", f"xmlns:{_PREFIX}": space})


def _name_and_text(value: Any) -> tuple[str, str]:
    if isinstance(value, bool):
        return "boolean", str(value).lower()
    if isinstance(value, amqp.Timestamp):
        return "dateTime", format_instant(value / 1000)
    if isinstance(value, int):
        return _INTEGER_NAMES.get(type(value), "long"), str(int(value))
    if isinstance(value, float):
        name = "float" if isinstance(value, amqp.Float) else "double"
        return name, repr(float(value)).replace("inf", "INF").replace("nan", "NaN")
    if isinstance(value, amqp.Char):
        return "char", str(ord(value))
    if isinstance(value, datetime):
        return "dateTime", value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        sign = "-" if value < timedelta(0) else ""
        return "duration", sign + format_duration(abs(value).total_seconds())
    if isinstance(value, uuid.UUID):
        return "guid", str(value)
    if isinstance(value, bytes | bytearray):
        return "base64Binary", base64.b64encode(value).decode("ascii")
    return "string", str(value)

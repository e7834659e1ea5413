"""Values of message properties and rule parameters: how they compare, and how they are written down.

A value comes from AMQP (`pairbus.amqp.types`), from the administration API (`datetime`, `timedelta`) or
from an SQL constant, so one number has many types. For comparison each value has a *kind*; values of
different kinds do not compare at all. For the store a value becomes `{"type": …, "value": …}`, which is
plain JSON and gives back the very type.
"""

import base64
import datetime
import math
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from pairbus import words
from pairbus.amqp import types as amqp
from pairbus.amqp.decoding import decode
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import EncodeError

from .errors import bad_argument

# A kind and a value that compares with others of that kind.
Comparable: TypeAlias = tuple[str, Any]
PlainValue: TypeAlias = dict[str, Any]

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND: Final = datetime.timedelta(microseconds=1)
# .NET counts time in 100 ns from the year 1; clients send durations and offsets so, as described types.
TICKS_PER_MICROSECOND: Final = 10
EPOCH_TICKS: Final = 621_355_968_000_000_000
# AMQP's decimals are subclasses of bytes and nothing that compares.
_BINARIES: Final = (bytes, bytearray)

VALUE_TYPES: Final = (
    str,
    bool,
    int,
    float,
    uuid.UUID,
    bytes,
    datetime.datetime,
    datetime.timedelta,
    amqp.Described,
)
# AMQP has no wider integers, signed or not.
LOWEST_INTEGER: Final = -(2**63)
HIGHEST_INTEGER: Final = 2**64 - 1
#: JSON can name it, by an escape, and no message can carry it.
HALF_CHARACTER: Final = re.compile("[\ud800-\udfff]")


def check_values(values: Mapping[str, Any], *, what: str) -> dict[str, Any]:
    """Copy the parameters or properties of a rule; refuses names and values that no message can carry."""
    for name, value in values.items():
        if not isinstance(name, str) or not name.strip("@ "):
            raise bad_argument(f"{what} {name!r} has no usable name. Give it a name of letters.")
        if value is not None and not isinstance(value, VALUE_TYPES):
            raise bad_argument(
                f"{what} {name!r} is of type {type(value).__name__}. Use a string, a number, a boolean, "
                "a time, a duration, a uuid or bytes."
            )
        if any(HALF_CHARACTER.search(text) for text in (name, value) if isinstance(text, str)):
            raise bad_argument(f"{what} {name!a} holds half of a character. Write it whole, or leave it out.")
        if isinstance(value, int) and not LOWEST_INTEGER <= value <= HIGHEST_INTEGER:
            problem = f"{what} {name!r} does not fit into 64 bits. Use a float or a string."
            raise bad_argument(problem)
    return dict(values)


def comparable(value: Any) -> Comparable | None:
    """Give kind and comparable form of a value; None for null and for what cannot be compared."""
    if isinstance(value, str):
        return "string", value
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, amqp.Timestamp):
        return "time", int(value) * 1000
    if isinstance(value, (int, float)):
        return "number", value
    if isinstance(value, uuid.UUID):
        return "uuid", value
    if type(value) in _BINARIES:
        return "binary", value
    if isinstance(value, datetime.datetime):
        return "time", _microseconds(value)
    if isinstance(value, datetime.timedelta):
        return "duration", value // MICROSECOND
    if isinstance(value, amqp.Described):
        return _described(value)
    return None


def equal(left: object, right: object) -> bool | None:
    """Whether two values are the same; None (unknown) if either is null or their kinds differ."""
    a, b = comparable(left), comparable(right)
    if a is None or b is None or a[0] != b[0]:
        return None
    return bool(a[1] == b[1])


def as_amqp(value: Any) -> Any:
    """A value as a message can carry it; None if none can."""
    if isinstance(value, datetime.datetime):
        value = amqp.Timestamp(_microseconds(value) // 1000)
    elif isinstance(value, datetime.timedelta):
        value = amqp.Described(amqp.Symbol(words.TIMESPAN), value // MICROSECOND * TICKS_PER_MICROSECOND)
    try:
        encode(value)
    except (EncodeError, UnicodeEncodeError):
        return None
    return value


def _microseconds(moment: datetime.datetime) -> int:
    # A naive moment is UTC: the administration API writes no zone.
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
    return (aware - EPOCH) // MICROSECOND


def _described(value: amqp.Described) -> Comparable | None:
    """The three types that .NET clients describe, since AMQP lacks them."""
    descriptor, inner = value.descriptor, value.value
    if descriptor == words.URI and isinstance(inner, str):
        return "string", inner
    if descriptor == words.TIMESPAN and isinstance(inner, int):
        return "duration", inner // TICKS_PER_MICROSECOND
    if descriptor == words.DATETIME_OFFSET and isinstance(inner, int):
        return "time", (inner - EPOCH_TICKS) // TICKS_PER_MICROSECOND
    return None


_INTEGERS: Final[dict[str, type[int]]] = {
    "byte": amqp.Byte,
    "short": amqp.Short,
    "int": amqp.Int,
    "ubyte": amqp.UByte,
    "ushort": amqp.UShort,
    "uint": amqp.UInt,
    "ulong": amqp.ULong,
    "timestamp": amqp.Timestamp,
}
_INTEGER_NAMES: Final = {kind: name for name, kind in _INTEGERS.items()}
_STRINGS: Final[dict[str, type[str]]] = {"symbol": amqp.Symbol, "char": amqp.Char}
_STRING_NAMES: Final = {kind: name for name, kind in _STRINGS.items()}


def to_plain(value: Any) -> PlainValue:
    """Write a value down as JSON can carry it."""
    name, plain = _name_and_plain(value)
    return {"type": name, "value": plain}


def _name_and_plain(value: Any) -> tuple[str, Any]:
    if value is None or isinstance(value, bool):
        return ("null" if value is None else "boolean"), value
    if isinstance(value, str):
        return _STRING_NAMES.get(type(value), "string"), str(value)
    if isinstance(value, int):
        return _INTEGER_NAMES.get(type(value), "long"), int(value)
    if isinstance(value, float):
        # JSON has no infinities and no NaN.
        plain: float | str = float(value) if math.isfinite(value) else repr(float(value))
        return ("float" if isinstance(value, amqp.Float) else "double"), plain
    if isinstance(value, uuid.UUID):
        return "uuid", str(value)
    if type(value) in _BINARIES:
        return "binary", base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime.datetime):
        return "datetime", value.isoformat()
    if isinstance(value, datetime.timedelta):
        return "timedelta", value // MICROSECOND
    # Decimals, described values, lists, maps: rare, so their AMQP encoding will do.
    return "amqp", base64.b64encode(encode(value)).decode("ascii")


def from_plain(plain: Mapping[str, Any]) -> Any:
    """Give back the value that `to_plain` wrote down."""
    name, value = plain["type"], plain["value"]
    if name in _INTEGERS:
        return _INTEGERS[name](value)
    if name in _STRINGS:
        return _STRINGS[name](value)
    return _READERS[name](value)


def _as_it_is(value: Any) -> Any:
    return value


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "null": _as_it_is,
    "boolean": _as_it_is,
    "string": _as_it_is,
    "long": int,
    "double": float,
    "float": lambda value: amqp.Float(float(value)),
    "uuid": uuid.UUID,
    "binary": base64.b64decode,
    "datetime": datetime.datetime.fromisoformat,
    "timedelta": lambda value: datetime.timedelta(microseconds=value),
    "amqp": lambda value: decode(base64.b64decode(value))[0],
}

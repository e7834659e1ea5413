"""Described lists with named fields: how they are read and written.

A composite class is a slots dataclass with a descriptor and one `FieldKind` a field, in wire order. A
missing or null field reads as the dataclass's default, which is the standard's. Kinds are strict: a field of
a wrong type is the peer's fault and ends the connection with `amqp:invalid-field`.

Trailing nulls are written, not trimmed: older releases of the Python SDK index into the raw field list.
"""

import dataclasses
import uuid
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform

from pairbus.conditions import INVALID_FIELD

from . import encoding
from .errors import DecodeError
from .types import Array, Described, Symbol, Timestamp, ULong


class FieldKind:
    """How one field is written, and what a decoded value must be."""

    __slots__ = ("put", "take")

    def __init__(self, put: Callable[[bytearray, Any], None], take: Callable[[Any], Any]) -> None:
        self.put = put
        self.take = take


class Composite:
    """Base of all composite classes."""

    __slots__ = ()
    CODE: ClassVar[int]
    NAME: ClassVar[str]


C = TypeVar("C", bound=Composite)


class _Plan:
    """What reading and writing need to know of a class, looked up once."""

    __slots__ = ("defaults", "factories", "fields", "keyword_only", "mandatory", "names", "takes")

    def __init__(self, cls: type[Composite], kinds: tuple[FieldKind, ...]) -> None:
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        if len(fields) != len(kinds):
            raise TypeError(f"{cls.__name__} has {len(fields)} fields and {len(kinds)} kinds")
        self.names = tuple(field.name for field in fields)
        self.fields = tuple(zip(self.names, (kind.put for kind in kinds), strict=True))
        self.takes = tuple(kind.take for kind in kinds)
        self.defaults = tuple(field.default for field in fields)
        self.factories = tuple(
            (index, field.default_factory)
            for index, field in enumerate(fields)
            if field.default_factory is not dataclasses.MISSING
        )
        without = [index for index, field in enumerate(fields) if field.default is dataclasses.MISSING]
        self.mandatory = tuple(index for index in without if index not in dict(self.factories))
        self.keyword_only = any(field.kw_only for field in fields)


_CLASSES: dict[Any, type[Composite]] = {}
_PLANS: dict[type[Composite], _Plan] = {}


@dataclass_transform()
def composite(
    code: int, name: str, *kinds: FieldKind, frozen: bool = False, kw_only: bool = False
) -> Callable[[type[C]], type[C]]:
    """Class decorator: the descriptor's number and symbol, and the kinds of the fields of a data class."""

    def register(cls: type[C]) -> type[C]:
        made = dataclasses.dataclass(slots=True, frozen=frozen, kw_only=kw_only)(cls)
        made.CODE, made.NAME = code, name
        _CLASSES[code] = _CLASSES[name] = made
        _PLANS[made] = _Plan(made, kinds)
        return made

    return register


def encode_composite(value: Composite) -> bytes:
    """The described list of `value`."""
    out = bytearray()
    put_composite(out, value)
    return bytes(out)


def put_composite(out: bytearray, value: Composite) -> None:
    """Append the described list of `value`; one without fields is list0."""
    out += b"\x00\x53"
    out.append(value.CODE)
    content = bytearray()
    fields = _PLANS[type(value)].fields
    for name, put in fields:
        item = getattr(value, name)
        if item is None:
            content.append(0x40)
        else:
            put(content, item)
    if fields:
        encoding.put_fields(out, len(fields), content)
    else:
        out.append(0x45)


def class_of(descriptor: Any) -> type[Composite] | None:
    """The class that a descriptor names, by number or by symbol."""
    return _CLASSES.get(descriptor) if isinstance(descriptor, (ULong, Symbol)) else None


def from_described(value: Any) -> Any:
    """The composite that a decoded described value stands for; the value itself if its class is unknown."""
    if not isinstance(value, Described):
        return value
    cls = class_of(value.descriptor)
    return value if cls is None else from_fields(cls, value.value)


def from_fields(cls: type[Composite], values: Any) -> Composite:
    """An instance from a freshly decoded field list, which is used up."""
    plan = _PLANS[cls]
    defaults = plan.defaults
    if type(values) is not list or len(values) > len(defaults):
        raise DecodeError(f"{cls.NAME} is not a list of at most {len(defaults)} fields")
    for index, value in enumerate(values):
        if value is None:
            values[index] = defaults[index]
        else:
            values[index] = take_field(cls, index, value)
    values += defaults[len(values) :]
    for index, factory in plan.factories:
        if values[index] is dataclasses.MISSING:
            values[index] = factory()
    for index in plan.mandatory:
        if values[index] is dataclasses.MISSING:
            raise DecodeError(f"{cls.NAME}: {plan.names[index]} is missing", INVALID_FIELD)
    if plan.keyword_only:
        return cls(**dict(zip(plan.names, values, strict=True)))
    return cls(*values)


def take_field(cls: type[Composite], index: int, value: Any) -> Any:
    """One field's value, checked."""
    plan = _PLANS[cls]
    try:
        return plan.takes[index](value)
    except _WrongType:
        raise DecodeError(f"{cls.NAME}: {plan.names[index]} has a wrong type", INVALID_FIELD) from None


class _WrongType(Exception):
    pass


def _of(kind: type) -> Callable[[Any], Any]:
    def take(value: Any) -> Any:
        if type(value) is not kind:
            raise _WrongType
        return value

    return take


def _unsigned(limit: int) -> Callable[[Any], int]:
    """Any integer type in range will do, and a plain int comes out: the field knows its width."""

    def take(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limit:
            raise _WrongType
        return int(value)

    return take


def _take_symbols(value: Any) -> tuple[Symbol, ...]:
    """A field that may repeat: an array, or one value that stands for itself. Old peers write lists."""
    if isinstance(value, Symbol):
        return (value,)
    items = value.items if isinstance(value, Array) else value
    if not isinstance(items, (tuple, list)) or not all(isinstance(item, Symbol) for item in items):
        raise _WrongType
    return tuple(items)


def _take_text(value: Any) -> str:
    """Symbol or string, as peers are not of one mind."""
    if not isinstance(value, str):
        raise _WrongType
    return value


def _take_timestamp(value: Any) -> int:
    if not isinstance(value, Timestamp):
        raise _WrongType
    return int(value)


def _take_identifier(value: Any) -> Any:
    """message-id and correlation-id keep their type, which an answer must echo."""
    if type(value) not in (str, uuid.UUID, bytes, ULong, Symbol):
        raise _WrongType
    return value


def _put_name(out: bytearray, value: str) -> None:
    """A symbol; or the string that a peer has written there, with letters that no symbol has."""
    (encoding.put_symbol if value.isascii() else encoding.put_string)(out, value)


def put_any(out: bytearray, value: Any) -> None:
    """A composite, or any value of the type system."""
    if isinstance(value, Composite):
        put_composite(out, value)
    else:
        encoding.encode_into(out, value)


def nested(*classes: str) -> FieldKind:
    """A field that holds one of the named composites or a described value that we do not know."""

    def take(value: Any) -> Any:
        if not isinstance(value, Described):
            raise _WrongType
        inner = from_described(value)
        if not isinstance(inner, Described) and type(inner).__name__ not in classes:
            raise _WrongType
        return inner

    return FieldKind(put_any, take)


BOOLEAN = FieldKind(encoding.put_boolean, _of(bool))
UBYTE = FieldKind(encoding.put_ubyte, _unsigned(0xFF))
USHORT = FieldKind(encoding.put_ushort, _unsigned(0xFFFF))
UINT = FieldKind(encoding.put_uint, _unsigned(0xFFFFFFFF))
ULONG = FieldKind(encoding.put_ulong, _unsigned(0xFFFFFFFFFFFFFFFF))
BINARY = FieldKind(encoding.put_binary, _of(bytes))
STRING = FieldKind(encoding.put_string, _take_text)
SYMBOL = FieldKind(_put_name, _take_text)
SYMBOLS = FieldKind(
    lambda out, names: encoding.encode_into(out, Array(map(Symbol, names), Symbol)), _take_symbols
)
ADDRESS = FieldKind(encoding.put_string, _take_text)
MAP = FieldKind(encoding.put_map, _of(dict))
TIMESTAMP = FieldKind(encoding.put_timestamp, _take_timestamp)
ANY = FieldKind(put_any, lambda value: value)
IDENTIFIER = FieldKind(encoding.encode_into, _take_identifier)

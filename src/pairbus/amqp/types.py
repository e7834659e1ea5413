"""AMQP's types as Python values.

Python's own types stand for the AMQP type that people mean by them; the others are thin subclasses, so that a
decoded value encodes to the type that it came from.

    None null        bool boolean     int long         float double
    str string       bytes binary     uuid.UUID uuid   list list        dict map
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

# Bytes where they are: a view of a large message costs no copy.
Blob: TypeAlias = bytes | memoryview


class UByte(int):
    """0 to 2**8 - 1."""

    __slots__ = ()


class UShort(int):
    """0 to 2**16 - 1."""

    __slots__ = ()


class UInt(int):
    """0 to 2**32 - 1."""

    __slots__ = ()


class ULong(int):
    """0 to 2**64 - 1."""

    __slots__ = ()


class Byte(int):
    """-2**7 to 2**7 - 1."""

    __slots__ = ()


class Short(int):
    """-2**15 to 2**15 - 1."""

    __slots__ = ()


class Int(int):
    """-2**31 to 2**31 - 1."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the Unix epoch."""

    __slots__ = ()


class Float(float):
    """A 32 bit float."""

    __slots__ = ()


class Char(str):
    """One Unicode character."""

    __slots__ = ()


class Symbol(str):
    """A name from a constrained domain; ASCII."""

    __slots__ = ()


class Decimal32(bytes):
    """The four raw bytes of an IEEE 754 decimal32. We pass decimals on and never reckon with them."""


class Decimal64(bytes):
    """The eight raw bytes of an IEEE 754 decimal64."""


class Decimal128(bytes):
    """The sixteen raw bytes of an IEEE 754 decimal128."""


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor, usually a ULong or a Symbol."""

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True, init=False)
class Array:
    """Values of one type. `element` is their Python type; a `descriptor` describes each of them."""

    items: tuple[Any, ...]
    element: type
    descriptor: Any

    def __init__(self, items: Iterable[Any], element: type, descriptor: Any = None) -> None:
        object.__setattr__(self, "items", tuple(items))
        object.__setattr__(self, "element", element)
        object.__setattr__(self, "descriptor", descriptor)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


UUID = uuid.UUID
"""Given here so that all types of the standard come from one module."""

"""Hypothesis strategies for every AMQP type."""

import math
import uuid
from typing import Any

from hypothesis import strategies as st

from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)


def _integers(kind: type, bits: int, *, signed: bool) -> st.SearchStrategy[Any]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = st.sampled_from([low, high, 0, min(127, high), min(128, high), min(255, high)])
    return (edges | st.integers(low, high)).map(kind)


LONGS = _integers(int, 64, signed=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
SYMBOLS = st.text(st.characters(codec="ascii"), max_size=300).map(Symbol)

SCALARS: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    UByte: _integers(UByte, 8, signed=False),
    UShort: _integers(UShort, 16, signed=False),
    UInt: _integers(UInt, 32, signed=False),
    ULong: _integers(ULong, 64, signed=False),
    Byte: _integers(Byte, 8, signed=True),
    Short: _integers(Short, 16, signed=True),
    Int: _integers(Int, 32, signed=True),
    int: LONGS,
    Float: st.floats(width=32, allow_nan=False).map(Float),
    float: st.floats(allow_nan=False),
    Char: st.characters(exclude_categories=["Cs"]).map(Char),
    Timestamp: _integers(Timestamp, 64, signed=True),
    Decimal32: st.binary(min_size=4, max_size=4).map(Decimal32),
    Decimal64: st.binary(min_size=8, max_size=8).map(Decimal64),
    Decimal128: st.binary(min_size=16, max_size=16).map(Decimal128),
    bytes: st.binary(max_size=300),
    str: TEXT,
    Symbol: SYMBOLS,
    uuid.UUID: st.uuids(),
}


SCALAR = st.one_of(st.none(), *SCALARS.values())
DESCRIPTORS = SCALARS[ULong] | SYMBOLS
KEYS = TEXT | SYMBOLS.map(lambda name: Symbol("symbol-" + name))


def _arrays(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    scalars = st.sampled_from(sorted(SCALARS, key=str)).flatmap(
        lambda kind: st.builds(
            Array, st.lists(SCALARS[kind], max_size=5), st.just(kind), st.none() | SCALARS[ULong]
        )
    )
    lists = st.builds(Array, st.lists(st.lists(children, max_size=3), max_size=3), st.just(list))
    maps = st.builds(Array, st.lists(st.dictionaries(KEYS, children, max_size=3), max_size=3), st.just(dict))
    nulls = st.builds(Array, st.lists(st.none(), max_size=16), st.just(type(None)))
    nested = st.builds(Array, st.lists(scalars, max_size=3), st.just(Array))
    return scalars | lists | maps | nulls | nested


VALUES = st.recursive(
    SCALAR,
    lambda children: (
        st.lists(children, max_size=5)
        | st.dictionaries(KEYS, children, max_size=5)
        | _arrays(children)
        | st.builds(Described, DESCRIPTORS, children)
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal in value and in type, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            same(one, two) and same(left[one], right[two]) for one, two in zip(left, right, strict=True)
        )
    if isinstance(left, Described):
        return same(left.descriptor, right.descriptor) and same(left.value, right.value)
    if isinstance(left, Array):
        alike = left.element is right.element and same(left.descriptor, right.descriptor)
        return alike and same(list(left), list(right))
    if isinstance(left, float):
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return bool(left == right)

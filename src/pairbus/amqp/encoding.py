"""Values to bytes, in the smallest form that the type has."""

import struct
import uuid
from collections.abc import Callable
from typing import Any

from . import types
from .errors import EncodeError
from .limits import MAX_ZERO_WIDTH
from .types import Array, Described, Symbol

Encoder = Callable[[bytearray, Any], None]

_B = struct.Struct(">BB").pack
_b = struct.Struct(">Bb").pack
_H = struct.Struct(">BH").pack
_h = struct.Struct(">Bh").pack
_I = struct.Struct(">BI").pack
_i = struct.Struct(">Bi").pack
_Q = struct.Struct(">BQ").pack
_q = struct.Struct(">Bq").pack
_f = struct.Struct(">Bf").pack
_d = struct.Struct(">Bd").pack
_BBB = struct.Struct(">BBB").pack
_BII = struct.Struct(">BII").pack


def encode(value: Any) -> bytes:
    """The AMQP encoding of `value`."""
    out = bytearray()
    encode_into(out, value)
    return bytes(out)


def encode_into(out: bytearray, value: Any) -> None:
    """Append the encoding of `value` to `out`."""
    try:
        (_ENCODERS.get(type(value)) or _encoder_of(type(value)))(out, value)
    except (struct.error, ValueError, OverflowError) as fault:
        raise EncodeError(f"a {type(value).__name__} is out of its type's range: {fault}") from None


def _put(out: bytearray, value: Any) -> None:
    (_ENCODERS.get(type(value)) or _encoder_of(type(value)))(out, value)


def _encoder_of(kind: type) -> Encoder:
    for base in kind.__mro__:
        if base in _ENCODERS:
            return _ENCODERS[base]
    raise EncodeError(f"a {kind.__name__} has no AMQP type")


def put_null(out: bytearray, value: Any = None) -> None:
    out.append(0x40)


def put_boolean(out: bytearray, value: bool) -> None:
    out.append(0x41 if value else 0x42)


def _number(code: int, pack: Callable[[int, Any], bytes]) -> Encoder:
    """Of one width."""

    def put(out: bytearray, value: Any) -> None:
        out += pack(code, value)

    return put


def _unsigned(zero: int, small: int, code: int, pack: Callable[[int, Any], bytes]) -> Encoder:
    """Without a byte, with one, or with all of them."""

    def put(out: bytearray, value: int) -> None:
        if value == 0:
            out.append(zero)
        elif 0 < value < 256:
            out += _B(small, value)
        else:
            out += pack(code, value)

    return put


def _signed(small: int, code: int, pack: Callable[[int, Any], bytes]) -> Encoder:
    """With one byte, or with all of them."""

    def put(out: bytearray, value: int) -> None:
        out += _b(small, value) if -128 <= value < 128 else pack(code, value)

    return put


put_ubyte = _number(0x50, _B)
put_ushort = _number(0x60, _H)
put_uint = _unsigned(0x43, 0x52, 0x70, _I)
put_ulong = _unsigned(0x44, 0x53, 0x80, _Q)
put_timestamp = _number(0x83, _q)


def _put_char(out: bytearray, value: str) -> None:
    out += _I(0x73, _code_point(value))


def _code_point(value: str) -> int:
    if len(value) != 1 or "\ud800" <= value <= "\udfff":
        raise EncodeError("a char is exactly one Unicode character")
    return ord(value)


def _put_uuid(out: bytearray, value: uuid.UUID) -> None:
    out.append(0x98)
    out += value.bytes


def _fixed(code: int, width: int) -> Encoder:
    def put(out: bytearray, value: bytes) -> None:
        if len(value) != width:
            raise EncodeError(f"a decimal of this type has {width} bytes")
        out.append(code)
        out += value

    return put


def put_binary(out: bytearray, value: bytes) -> None:
    out += _B(0xA0, len(value)) if len(value) < 256 else _I(0xB0, len(value))
    out += value


def put_string(out: bytearray, value: str) -> None:
    raw = value.encode()
    out += _B(0xA1, len(raw)) if len(raw) < 256 else _I(0xB1, len(raw))
    out += raw


_MEMO_SIZE = 1024
_symbols: dict[str, bytes] = {}  # keys of annotations and capabilities: few, and written for every message


def put_symbol(out: bytearray, value: str) -> None:
    known = _symbols.get(value)
    if known is None:
        raw = value.encode("ascii")
        known = (_B(0xA3, len(raw)) if len(raw) < 256 else _I(0xB3, len(raw))) + raw
        if len(raw) <= 64:
            if len(_symbols) >= _MEMO_SIZE:
                _symbols.clear()
            _symbols[value] = known
    out += known


def _put_compound(out: bytearray, code: int, count: int, content: bytearray) -> None:
    """`code` is that of the 8 bit form; the 32 bit form's is 0x10 higher."""
    if count < 256 and len(content) < 255:
        out += _BBB(code, len(content) + 1, count)
    else:
        out += _BII(code + 0x10, len(content) + 4, count)
    out += content


def put_list(out: bytearray, value: list[Any] | tuple[Any, ...]) -> None:
    if not value:
        out.append(0x45)
        return
    content = bytearray()
    for item in value:
        _put(content, item)
    _put_compound(out, 0xC0, len(value), content)


def put_fields(out: bytearray, count: int, content: bytearray) -> None:
    """A list whose elements are encoded already."""
    _put_compound(out, 0xC0, count, content)


def put_entries(out: bytearray, count: int, content: bytearray) -> None:
    """A map whose keys and values are encoded already; `count` is that of both."""
    _put_compound(out, 0xC1, count, content)


def put_map(out: bytearray, value: dict[Any, Any]) -> None:
    content = bytearray()
    encoders = _ENCODERS
    for key, item in value.items():
        (encoders.get(type(key)) or _encoder_of(type(key)))(content, key)
        (encoders.get(type(item)) or _encoder_of(type(item)))(content, item)
    _put_compound(out, 0xC1, 2 * len(value), content)


def _put_described(out: bytearray, value: Described) -> None:
    if isinstance(value.descriptor, Described):
        raise EncodeError("a descriptor may not itself be described")
    out.append(0x00)
    _put(out, value.descriptor)
    _put(out, value.value)


def _put_array(out: bytearray, value: Array) -> None:
    content = bytearray()
    if value.descriptor is not None:
        content.append(0x00)
        _put(content, value.descriptor)
    _put_elements(content, value)
    _put_compound(out, 0xE0, len(value.items), content)


def _put_elements(out: bytearray, array: Array) -> None:
    """The one constructor of an array and its elements without theirs."""
    element = array.element
    if element is type(None):
        if len(array.items) > MAX_ZERO_WIDTH:
            raise EncodeError(f"an array of nulls may have {MAX_ZERO_WIDTH} elements")
        out.append(0x40)
    elif element in _FIXED:
        code, write = _FIXED[element]
        out.append(code)
        for item in array.items:
            out += write(item)
    elif element in _VARIABLE:
        _put_variable_elements(out, array)
    else:
        _put_compound_elements(out, array)


def _put_variable_elements(out: bytearray, array: Array) -> None:
    code, convert = _VARIABLE[array.element]
    raws = [convert(item) for item in array.items]
    narrow = all(len(raw) < 256 for raw in raws)
    out.append(code if narrow else code + 0x10)
    for raw in raws:
        out += len(raw).to_bytes(1 if narrow else 4, "big")
        out += raw


def _put_compound_elements(out: bytearray, array: Array) -> None:
    try:
        code = _COMPOUND[array.element]
    except KeyError:
        raise EncodeError(f"an array cannot have elements of {array.element.__name__}") from None
    out.append(code)
    for item in array.items:
        one = bytearray()
        _put(one, item)
        # Written alone an element takes list0 or the 8 bit form; in an array all share the 32 bit form.
        if one[0] == 0x45:
            out += b"\0\0\0\4\0\0\0\0"
        elif one[0] == code:
            out += one[1:]
        elif one[0] == code - 0x10:
            out += struct.pack(">II", one[1] + 3, one[2]) + one[3:]
        else:
            raise EncodeError("an element is not of its array's type")


def _wide(write: Callable[[int, Any], bytes]) -> Callable[[Any], bytes]:
    return lambda value: write(0, value)[1:]


_FIXED: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    bool: (0x56, lambda value: b"\1" if value else b"\0"),
    types.UByte: (0x50, _wide(_B)),
    types.Byte: (0x51, _wide(_b)),
    types.UShort: (0x60, _wide(_H)),
    types.Short: (0x61, _wide(_h)),
    types.UInt: (0x70, _wide(_I)),
    types.Int: (0x71, _wide(_i)),
    types.Float: (0x72, _wide(_f)),
    types.Char: (0x73, lambda value: _wide(_I)(_code_point(value))),
    types.Decimal32: (0x74, bytes),
    types.ULong: (0x80, _wide(_Q)),
    int: (0x81, _wide(_q)),
    float: (0x82, _wide(_d)),
    types.Timestamp: (0x83, _wide(_q)),
    types.Decimal64: (0x84, bytes),
    types.Decimal128: (0x94, bytes),
    uuid.UUID: (0x98, lambda value: value.bytes),
}
_VARIABLE: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    bytes: (0xA0, bytes),
    str: (0xA1, str.encode),
    Symbol: (0xA3, lambda value: value.encode("ascii")),
}
_COMPOUND: dict[type, int] = {list: 0xD0, dict: 0xD1, Array: 0xF0}

_ENCODERS: dict[type, Encoder] = {
    type(None): put_null,
    bool: put_boolean,
    types.UByte: put_ubyte,
    types.UShort: put_ushort,
    types.UInt: put_uint,
    types.ULong: put_ulong,
    types.Byte: _number(0x51, _b),
    types.Short: _number(0x61, _h),
    types.Int: _signed(0x54, 0x71, _i),
    int: _signed(0x55, 0x81, _q),
    types.Float: _number(0x72, _f),
    float: _number(0x82, _d),
    types.Char: _put_char,
    types.Timestamp: put_timestamp,
    uuid.UUID: _put_uuid,
    types.Decimal32: _fixed(0x74, 4),
    types.Decimal64: _fixed(0x84, 8),
    types.Decimal128: _fixed(0x94, 16),
    bytes: put_binary,
    bytearray: put_binary,
    memoryview: put_binary,
    str: put_string,
    Symbol: put_symbol,
    list: put_list,
    tuple: put_list,
    dict: put_map,
    Array: _put_array,
    Described: _put_described,
}

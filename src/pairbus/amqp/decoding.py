"""Bytes to values.

One function per constructor, found by table. A function gets the whole buffer and the place behind the
constructor, and returns the value and the place behind it: nothing is sliced but strings and binaries.

What the peer claims is never believed before the bytes are there, and what it asks for costs no more than in
proportion to them:
1. a compound cannot have more elements than it has bytes, and no memory is set aside by its count;
2. arrays of elements without width are cut short by `MAX_ZERO_WIDTH`;
3. nesting ends at `MAX_DEPTH`, and one value has at most `MAX_ELEMENTS` in all its compounds;
4. keys of maps are text, symbols, binaries and integers. Those are all that the standard has a use for, and
   all whose hashes a peer cannot make collide: a uuid's is its number modulo 2**61 - 1, and a few thousand
   that are chosen for it make a map cost seconds.
"""

import struct
import uuid
from collections.abc import Callable
from typing import Any

from . import types
from .errors import DecodeError
from .limits import MAX_DEPTH, MAX_ELEMENTS, MAX_ZERO_WIDTH, UNLIMITED
from .types import Array, Blob, Char, Described, Symbol

Decoder = Callable[[bytes, int, list[int]], tuple[Any, int]]
# What decoders hand on: how deep they are, and how many elements may still come.

_u16 = struct.Struct(">H").unpack_from
_u32 = struct.Struct(">I").unpack_from
_u32u32 = struct.Struct(">II").unpack_from
_u64 = struct.Struct(">Q").unpack_from
_i8 = struct.Struct(">b").unpack_from
_i16 = struct.Struct(">h").unpack_from
_i32 = struct.Struct(">i").unpack_from
_i64 = struct.Struct(">q").unpack_from
_f32 = struct.Struct(">f").unpack_from
_f64 = struct.Struct(">d").unpack_from


def decode(buffer: bytes, offset: int = 0) -> tuple[Any, int]:
    """The value at `offset` and the place behind it."""
    return _decode(buffer, offset, [0, MAX_ELEMENTS])


def decode_own(buffer: bytes) -> Any:
    """The value at the beginning of what this program itself has written: it may have any number of elements,
    and be as deep as what a peer may send is when it lies in something of ours.
    """
    return _decode(buffer, 0, [-MAX_DEPTH, UNLIMITED])[0]


def _decode(buffer: bytes, offset: int, state: list[int]) -> tuple[Any, int]:
    try:
        return _DECODERS[buffer[offset]](buffer, offset + 1, state)
    except (IndexError, struct.error):
        raise DecodeError("the value ends before its bytes do") from None
    except UnicodeDecodeError:
        raise DecodeError("a string is not valid UTF-8 or a symbol not ASCII") from None


def decode_exactly(buffer: bytes, offset: int, end: int) -> Any:
    """The value that fills `buffer` from `offset` to `end`."""
    value, reached = decode(buffer, offset)
    if reached != end:
        raise DecodeError("a value does not end where its bytes do")
    return value


def skip(buffer: Blob, offset: int = 0) -> int:
    """The place behind the value at `offset`, which is not looked into."""
    try:
        end = _skip(buffer, offset)
    except (IndexError, struct.error):
        raise DecodeError("the value ends before its bytes do") from None
    if end > len(buffer):
        raise DecodeError("the value ends before its bytes do")
    return end


# Width of a value by the upper half of its constructor; 8 and 32 bit lengths are told by a negative width.
_WIDTHS = (None, None, None, None, 0, 1, 2, 4, 8, 16, -1, -4, -1, -4, -1, -4)


def _skip(buffer: Blob, offset: int) -> int:
    for _ in range(MAX_DEPTH):
        code = buffer[offset]
        if code:
            break
        offset = _skip_descriptor(buffer, offset + 1)
    else:
        raise DecodeError("values are nested too deeply")
    width = _WIDTHS[code >> 4]
    if width is None:
        raise DecodeError(f"0x{code:02x} is no constructor")
    if width >= 0:
        return offset + 1 + width
    if width == -1:
        return offset + 2 + buffer[offset + 1]
    length: int = _u32(buffer, offset + 1)[0]
    return offset + 5 + length


def _skip_descriptor(buffer: Blob, offset: int) -> int:
    if buffer[offset] == 0:
        raise DecodeError("a descriptor may not itself be described")
    return _skip(buffer, offset)


def _constant(value: Any) -> Decoder:
    return lambda buffer, at, state: (value, at)


def _boolean(buffer: bytes, at: int, state: list[int]) -> tuple[Any, int]:
    value = buffer[at]
    if value > 1:
        raise DecodeError("a boolean is neither 0 nor 1")
    return value == 1, at + 1


def _small(kind: type) -> Decoder:
    return lambda buffer, at, state: (kind(buffer[at]), at + 1)


def _number(unpack: Callable[[bytes, int], tuple[Any, ...]], width: int, kind: type) -> Decoder:
    return lambda buffer, at, state: (kind(unpack(buffer, at)[0]), at + width)


def _plain(unpack: Callable[[bytes, int], tuple[Any, ...]], width: int) -> Decoder:
    return lambda buffer, at, state: (unpack(buffer, at)[0], at + width)


def _raw(kind: Callable[[bytes], Any], width: int) -> Decoder:
    def read(buffer: bytes, at: int, state: list[int]) -> tuple[Any, int]:
        end = at + width
        if end > len(buffer):
            raise DecodeError("the value ends before its bytes do")
        return kind(buffer[at:end]), end

    return read


def _char(buffer: bytes, at: int, state: list[int]) -> tuple[Any, int]:
    point = _u32(buffer, at)[0]
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError("a char is no Unicode character")
    return Char(chr(point)), at + 4


def _variable(wide: bool, convert: Callable[[bytes], Any]) -> Decoder:
    def read8(buffer: bytes, at: int, state: list[int]) -> tuple[Any, int]:
        end = at + 1 + buffer[at]
        if end > len(buffer):
            raise DecodeError("the value ends before its bytes do")
        return convert(buffer[at + 1 : end]), end

    def read32(buffer: bytes, at: int, state: list[int]) -> tuple[Any, int]:
        end = at + 4 + _u32(buffer, at)[0]
        if end > len(buffer):
            raise DecodeError("the value ends before its bytes do")
        return convert(buffer[at + 4 : end]), end

    return read32 if wide else read8


def _symbol(raw: bytes) -> Symbol:
    return Symbol(raw.decode("ascii"))


def _enter(state: list[int]) -> None:
    """One level deeper; who comes through goes back up by itself."""
    if state[0] >= MAX_DEPTH:
        raise DecodeError("values are nested too deeply")
    state[0] += 1


def _bounds(buffer: bytes, at: int, wide: bool, state: list[int]) -> tuple[int, int, int]:
    """Count, first place and end of a compound; its size is checked against what is there."""
    _enter(state)
    if wide:
        size, count = _u32u32(buffer, at)
        start, end = at + 8, at + 4 + size
    else:
        count = buffer[at + 1]
        start, end = at + 2, at + 1 + buffer[at]
    if end > len(buffer) or start > end:
        raise DecodeError("a compound value is larger than the bytes at hand")
    state[1] -= count
    if state[1] < 0:
        raise DecodeError(f"a value has more than {MAX_ELEMENTS} elements")
    return count, start, end


def _list(wide: bool) -> Decoder:
    def read(buffer: bytes, at: int, state: list[int]) -> tuple[Any, int]:
        count, at, end = _bounds(buffer, at, wide, state)
        if count > end - at:
            raise DecodeError("a list claims more elements than it has bytes")
        values: list[Any] = []
        decoders = _DECODERS
        for _ in range(count):
            code = buffer[at]
            at += 1
            if code == 0x40:  # most fields of most composites
                values.append(None)
            else:
                value, at = decoders[code](buffer, at, state)
                values.append(value)
        if at != end:
            raise DecodeError("the elements of a list do not fill it")
        state[0] -= 1
        return values, end

    return read


def _map(wide: bool) -> Decoder:
    def read(buffer: bytes, at: int, state: list[int]) -> tuple[Any, int]:
        count, at, end = _bounds(buffer, at, wide, state)
        if count > end - at or count & 1:
            raise DecodeError("a map claims more elements than it has bytes, or an odd number")
        values: dict[Any, Any] = {}
        decoders = _DECODERS
        for _ in range(count >> 1):
            code = buffer[at]
            if code not in _KEYS:
                raise DecodeError("the key of a map is neither text, symbol, binary nor integer")
            key, at = decoders[code](buffer, at + 1, state)
            values[key], at = decoders[buffer[at]](buffer, at + 1, state)
        if at != end:
            raise DecodeError("the elements of a map do not fill it")
        if len(values) != count >> 1:
            raise DecodeError("a map has the same key twice")
        state[0] -= 1
        return values, end

    return read


def _array(wide: bool) -> Decoder:
    def read(buffer: bytes, at: int, state: list[int]) -> tuple[Any, int]:
        count, at, end = _bounds(buffer, at, wide, state)
        if count == 0 and at == end:  # no constructor; some peers write empty arrays so
            state[0] -= 1
            return Array((), type(None)), end
        descriptor = None
        code = buffer[at]
        if code == 0:
            if buffer[at + 1] == 0:
                raise DecodeError("a descriptor may not itself be described")
            descriptor, at = _DECODERS[buffer[at + 1]](buffer, at + 2, state)
            code = buffer[at]
        at += 1
        element = _ELEMENTS.get(code)
        if element is None:
            raise DecodeError(f"0x{code:02x} is no constructor of array elements")
        if count > (MAX_ZERO_WIDTH if code >> 4 == 4 else end - at):
            raise DecodeError("an array claims more elements than it has bytes")
        one = _DECODERS[code]
        values = []
        for _ in range(count):
            value, at = one(buffer, at, state)
            values.append(value)
        if at != end:
            raise DecodeError("the elements of an array do not fill it")
        state[0] -= 1
        return Array(values, element, descriptor), end

    return read


def _described(buffer: bytes, at: int, state: list[int]) -> tuple[Any, int]:
    _enter(state)
    code = buffer[at]
    if code == 0:
        raise DecodeError("a descriptor may not itself be described")
    descriptor, at = _DECODERS[code](buffer, at + 1, state)
    value, at = _DECODERS[buffer[at]](buffer, at + 1, state)
    state[0] -= 1
    return Described(descriptor, value), at


def _unknown(buffer: bytes, at: int, state: list[int]) -> tuple[Any, int]:
    raise DecodeError(f"0x{buffer[at - 1]:02x} is no constructor")


# Constructor, what it gives, how it is read (part 1.6 of the standard).
_TABLE: tuple[tuple[int, type, Decoder], ...] = (
    (0x40, type(None), _constant(None)),
    (0x41, bool, _constant(True)),
    (0x42, bool, _constant(False)),
    (0x43, types.UInt, _constant(types.UInt(0))),
    (0x44, types.ULong, _constant(types.ULong(0))),
    (0x45, list, lambda buffer, at, state: ([], at)),
    (0x50, types.UByte, _small(types.UByte)),
    (0x51, types.Byte, _number(_i8, 1, types.Byte)),
    (0x52, types.UInt, _small(types.UInt)),
    (0x53, types.ULong, _small(types.ULong)),
    (0x54, types.Int, _number(_i8, 1, types.Int)),
    (0x55, int, _plain(_i8, 1)),
    (0x56, bool, _boolean),
    (0x60, types.UShort, _number(_u16, 2, types.UShort)),
    (0x61, types.Short, _number(_i16, 2, types.Short)),
    (0x70, types.UInt, _number(_u32, 4, types.UInt)),
    (0x71, types.Int, _number(_i32, 4, types.Int)),
    (0x72, types.Float, _number(_f32, 4, types.Float)),
    (0x73, Char, _char),
    (0x74, types.Decimal32, _raw(types.Decimal32, 4)),
    (0x80, types.ULong, _number(_u64, 8, types.ULong)),
    (0x81, int, _plain(_i64, 8)),
    (0x82, float, _plain(_f64, 8)),
    (0x83, types.Timestamp, _number(_i64, 8, types.Timestamp)),
    (0x84, types.Decimal64, _raw(types.Decimal64, 8)),
    (0x94, types.Decimal128, _raw(types.Decimal128, 16)),
    (0x98, uuid.UUID, _raw(lambda raw: uuid.UUID(bytes=raw), 16)),
    (0xA0, bytes, _variable(False, bytes)),
    (0xA1, str, _variable(False, bytes.decode)),
    (0xA3, Symbol, _variable(False, _symbol)),
    (0xB0, bytes, _variable(True, bytes)),
    (0xB1, str, _variable(True, bytes.decode)),
    (0xB3, Symbol, _variable(True, _symbol)),
    (0xC0, list, _list(False)),
    (0xC1, dict, _map(False)),
    (0xD0, list, _list(True)),
    (0xD1, dict, _map(True)),
    (0xE0, Array, _array(False)),
    (0xF0, Array, _array(True)),
)

_KEYS = frozenset(
    code
    for code, kind, _ in _TABLE
    if issubclass(kind, (str, bytes, int))
    and not issubclass(kind, (bool, Char, types.Decimal32, types.Decimal64, types.Decimal128))
)
_ELEMENTS: dict[int, type] = {code: element for code, element, _ in _TABLE}
_DECODERS: list[Decoder] = [_unknown] * 256
_DECODERS[0x00] = _described
for _code, _, _decoder in _TABLE:
    _DECODERS[_code] = _decoder

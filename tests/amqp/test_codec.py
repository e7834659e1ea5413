import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.decoding import decode, decode_exactly, skip
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import DecodeError, EncodeError
from pairbus.amqp.limits import MAX_DEPTH, MAX_ZERO_WIDTH
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.amqp.values import SCALARS, VALUES, same
from tests.examples import examples


@pytest.mark.parametrize("kind", sorted(SCALARS, key=str), ids=lambda kind: kind.__name__)
def test_every_scalar_type_comes_back_as_it_was(kind: type) -> None:
    @settings(max_examples=examples(40))
    @given(SCALARS[kind])
    def check(value: Any) -> None:
        raw = encode(value)
        assert same(decode(raw)[0], value)
        assert decode(raw)[1] == skip(raw) == len(raw)

    check()


@given(VALUES)
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    raw = encode(value)
    found, end = decode(raw)
    assert same(found, value)
    assert end == len(raw) == skip(raw)
    assert encode(found) == raw


@given(VALUES, st.binary(max_size=5), st.binary(max_size=5))
def test_what_stands_around_a_value_is_left_alone(value: Any, before: bytes, after: bytes) -> None:
    raw = encode(value)
    buffer = before + raw + after
    assert decode(buffer, len(before))[1] == len(before) + len(raw)
    assert skip(buffer, len(before)) == len(before) + len(raw)


@given(VALUES, st.data())
def test_a_value_that_is_cut_short_is_refused(value: Any, data: st.DataObject) -> None:
    raw = encode(value)
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(DecodeError):
        decode(raw[:cut])
    with pytest.raises(DecodeError):
        skip(raw[:cut])


@settings(max_examples=examples(200))
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_value_or_a_decode_error(raw: bytes) -> None:
    try:
        value, end = decode(raw)
    except DecodeError:
        return
    assert 0 < end <= len(raw)
    assert same(decode(encode(value))[0], value) or value != value or "nan" in repr(value)


# Written out from part 1.6 of the standard, so that encoder and decoder cannot be wrong together.
KNOWN: list[tuple[str, Any]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("43", UInt(0)),
    ("44", ULong(0)),
    ("45", []),
    ("5005", UByte(5)),
    ("51fb", Byte(-5)),
    ("5207", UInt(7)),
    ("5314", ULong(20)),
    ("54ff", Int(-1)),
    ("55ff", -1),
    ("600102", UShort(258)),
    ("7000010000", UInt(65536)),
    ("71fffeffff", Int(-65537)),
    ("723f800000", Float(1)),
    ("730001f600", Char("😀")),
    ("7400000001", Decimal32(b"\0\0\0\1")),
    ("81000000ffffffffff", (1 << 40) - 1),
    ("823ff0000000000000", 1.0),
    ("830000018bcfe56800", Timestamp(1700000000000)),
    ("9800112233445566778899aabbccddeeff", uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")),
    ("a0020102", b"\x01\x02"),
    ("a103c3a978", "éx"),
    ("a3026869", Symbol("hi")),
    ("c003015501", [1]),
    ("c10602a3016b5501", {Symbol("k"): 1}),
    ("e00602a301610162", Array((Symbol("a"), Symbol("b")), Symbol)),
    ("00532445", Described(ULong(0x24), [])),
]


@pytest.mark.parametrize(("raw", "value"), KNOWN, ids=[raw for raw, _ in KNOWN])
def test_encodings_are_those_of_the_standard(raw: str, value: Any) -> None:
    assert encode(value).hex() == raw
    assert same(decode(bytes.fromhex(raw))[0], value)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("5600", False),
        ("5601", True),
        ("7000000001", UInt(1)),
        ("800000000000000005", ULong(5)),
        ("7100000001", Int(1)),
        ("810000000000000001", 1),
        ("b0000000016b", b"k"),
        ("b1000000016b", "k"),
        ("b3000000016b", Symbol("k")),
        ("d00000000400000000", []),
        ("d10000000400000000", {}),
        ("e00100", Array((), type(None))),
        ("f000000006000000015005", Array([UByte(5)], UByte)),
    ],
)
def test_longer_forms_mean_the_same(raw: str, value: Any) -> None:
    assert same(decode(bytes.fromhex(raw))[0], value)


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "00",
        "0000",  # a descriptor that is described
        "3f",
        "ff",
        "5602",  # neither 0 nor 1
        "a101ff",  # no UTF-8
        "a301c3",  # no ASCII
        "7300110000",  # beyond Unicode
        "730000d800",  # half a surrogate
        "c00102",  # two elements in no bytes
        "c003025501",  # two elements in the bytes of one
        "c00401550155",  # one element, bytes left over
        "c0040155015501",
        "c1030155015501",  # an odd number of elements
        "c10502550155015501",
        "c10a0455015502550155035503",  # the same key twice, and too long
        "c1090455015502550155035503",
        "c1050245550145",  # a list as key
        "e0030200",
        "e00501000053014001"[:-2],  # a described element that ends too early
        "e0040100000140",  # a descriptor that is described
        "e003013f00",  # no constructor of elements
        "e00401500102",  # one element, bytes left over
        "740000",
        "940000",
        "980000",
    ],
)
def test_malformed_values_are_refused(raw: str) -> None:
    with pytest.raises(DecodeError):
        decode_exactly(bytes.fromhex(raw), 0, len(raw) // 2)


@pytest.mark.parametrize("raw", ["3f", "0000530140", "ff00"])
def test_what_is_no_value_cannot_be_skipped(raw: str) -> None:
    with pytest.raises(DecodeError):
        skip(bytes.fromhex(raw))


def test_large_elements_of_arrays() -> None:
    value = Array([["x" * 300], [], [1]], list)
    assert same(decode(encode(value))[0], value)


def test_symbols_are_remembered_but_not_for_ever() -> None:
    for number in range(2000):
        assert decode(encode(Symbol(f"name-{number}")))[0] == f"name-{number}"


def test_the_same_key_twice_is_refused() -> None:
    pair = encode("k") + encode(1)
    with pytest.raises(DecodeError, match="twice"):
        decode(bytes([0xC1, 1 + 2 * len(pair), 4]) + pair + pair)


@pytest.mark.parametrize("code", [0x40, 0x41, 0x42, 0x43, 0x44, 0x45])
def test_arrays_without_width_do_not_allocate_by_their_count(code: int) -> None:
    bomb = bytes([0xF0, 0, 0, 0, 5, 0xFF, 0xFF, 0xFF, 0xFF, code])
    tracemalloc.start()
    with pytest.raises(DecodeError):
        decode(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
    allowed = bytes([0xF0, 0, 0, 0, 5, 0, 0, 0, MAX_ZERO_WIDTH, code])
    assert len(decode(allowed)[0]) == MAX_ZERO_WIDTH


@pytest.mark.parametrize("code", [0xD0, 0xD1, 0xF0])
def test_counts_are_not_believed(code: int) -> None:
    with pytest.raises(DecodeError):
        decode(bytes([code, 0, 0, 0, 8, 0xFF, 0xFF, 0xFF, 0xFE, 0x50, 0, 0, 0]))
    with pytest.raises(DecodeError):
        decode(bytes([code, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 1, 0x50, 0]))


def _nest(depth: int) -> bytes:
    raw = b"\x40"
    for _ in range(depth):
        raw = b"\xd0" + (len(raw) + 4).to_bytes(4, "big") + b"\0\0\0\1" + raw
    return raw


def test_nesting_has_an_end() -> None:
    decode(_nest(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 5000):
        with pytest.raises(DecodeError, match="deep"):
            decode(_nest(depth))
    with pytest.raises(DecodeError):
        decode(b"\x00\x53\x01" * 5000 + b"\x40")
    with pytest.raises(DecodeError):
        skip(b"\x00\x53\x01" * 5000 + b"\x40")


@pytest.mark.parametrize(
    "value",
    [
        UByte(256),
        UInt(-1),
        ULong(1 << 64),
        1 << 63,
        Byte(128),
        Char("ab"),
        Char("\ud800"),
        Symbol("é"),
        "\ud800",
        Decimal32(b"123"),
        pytest.param(object(), id="object"),
        pytest.param([object()], id="object in a list"),
        {"k": {1, 2}},
        Described(Described(1, 2), 3),
        Array([1], object),
        Array([[1]], dict),
        Array([None] * (MAX_ZERO_WIDTH + 1), type(None)),
    ],
    ids=repr,
)
def test_values_that_amqp_cannot_carry_are_refused(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode(value)


def test_values_that_are_nearly_of_a_type_are_taken() -> None:
    class Name(str):
        __slots__ = ()

    assert encode(Name("x")) == encode("x")
    assert encode((1, 2)) == encode([1, 2])
    assert encode(bytearray(b"x")) == encode(memoryview(b"x")) == encode(b"x")

"""A line of an export gives back its message, whatever that holds."""

import itertools
import json
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus import words
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import EncodeError
from pairbus.amqp.message import (
    Header,
    Properties,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_header,
    encode_properties,
    encode_value,
    scan,
)
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
from pairbus.cli.message_form import as_it_was_sent, describe_message, read_line, write_line
from pairbus.errors import ConfigurationError
from pairbus.pairing.envelope import ACCOUNTED
from tests.amqp.values import SCALARS, VALUES
from tests.examples import examples

SEQUENCE = b"\x00\x53\x76"


VALUE = b"\x00\x53\x77"


FOOTER = b"\x00\x53\x78"


def bare(payload: bytes) -> tuple[object, ...]:
    """All of a message that is its sender's."""
    sections = scan(as_it_was_sent(scan(payload)))
    return (
        sections.header,
        sorted((str(key), encode(value)) for key, value in sections.annotations.items()),
        sections.properties_bytes,
        sections.application_properties_bytes,
        sections.body_kind,
        sections.body_bytes,
    )


def encodable(value: Any) -> bool:
    try:
        encode(value)
    except EncodeError:
        return False
    return True


bodies = st.one_of(
    st.lists(st.binary(max_size=50), min_size=1, max_size=3).map(
        lambda some: b"".join(map(encode_data, some))
    ),
    VALUES.filter(encodable).map(encode_value),
    st.lists(st.lists(st.sampled_from([1, "two", None, b"3", UInt(4)])), min_size=1, max_size=2).map(
        lambda some: b"".join(SEQUENCE + encode(one) for one in some)
    ),
)


properties = st.builds(
    Properties,
    message_id=st.one_of(st.text(min_size=1, max_size=20), st.uuids(), st.integers(0, 2**64 - 1).map(ULong)),
    user_id=st.none() | st.binary(max_size=5),
    subject=st.none() | st.text(max_size=5),
    content_type=st.none() | st.just(Symbol("text/plain")),
    reply_to_group_id=st.none() | st.text(max_size=5),
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
)


application_properties = st.dictionaries(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), st.one_of(*SCALARS.values()), max_size=4
)


own_annotations = st.dictionaries(
    st.sampled_from([Symbol("x-own"), Symbol("x-opt-partition-key")]), st.text(max_size=5), max_size=2
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    header = draw(
        st.builds(Header, durable=st.booleans(), priority=st.integers(0, 9), first_acquirer=st.booleans())
    )
    own, annotated = draw(application_properties), draw(own_annotations)
    return b"".join(
        (
            encode_header(header),
            encode_annotations(annotated) if annotated else b"",
            encode_properties(draw(properties)),
            encode_application_properties(own) if own else b"",
            draw(bodies),
            FOOTER + encode({Symbol("f"): 1}) if draw(st.booleans()) else b"",
        )
    )


@given(payload=messages())
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
def test_a_line_gives_back_the_message(payload: bytes) -> None:
    line = write_line(scan(payload)).encode()
    assert line.count(b"\n") == 1
    assert read_line(line, 1).payload == payload
    assert bare(payload) == bare(read_line(line, 1).payload)


def every_kind() -> list[bytes]:
    """A message for each type of value, as a property and as a body, and for each kind of body."""
    values = [
        None,
        True,
        *(kind(7) for kind in (UByte, UShort, UInt, ULong, Byte, Short, Int, int, Timestamp)),
        *(Float(0.5), 0.5, Char("x"), "text", Symbol("symbol"), b"\x00\xff", uuid.UUID(int=7)),
        *(Decimal32(b"abcd"), Decimal64(b"abcdefgh"), Decimal128(b"abcdefghijklmnop")),
    ]
    nested = [[1, UInt(2)], {"k": [None], Symbol("s"): b""}, Array([1, 2], Int), Described(Symbol("d"), "v")]
    some = [
        encode_properties(Properties(message_id=f"{number}")) + encode_application_properties({"p": value})
        for number, value in enumerate(values)
    ]
    bodies = [encode_value(value) for value in [*values, *nested]]
    bodies += [b"", encode_data(b""), encode_data(b"a") + encode_data(b"b"), SEQUENCE + encode([])]
    bodies += [SEQUENCE + encode([1, "two"]) + SEQUENCE + encode([Int(3)])]
    bodies += [encode_data(b"a") + FOOTER + encode({Symbol("f"): 1})]
    ids = itertools.cycle(["id", uuid.UUID(int=1), ULong(5), b"bytes"])
    plain = [encode_properties(Properties(message_id=next(ids), user_id=b"u")) + body for body in bodies]
    header = encode_header(Header(durable=True, priority=7, ttl=4_000_000))
    annotated = encode_annotations({Symbol("x-opt-partition-key"): "k", Symbol("x-own"): UByte(3)})
    return [*(one + encode_data(b"x") for one in some), *plain, header + annotated + plain[0]]


def test_an_import_carries_no_mark_of_a_pump_along() -> None:
    """By it the next pump would take deliveries of the copy for accounted for, and tell of no doubt."""
    told: dict[Any, Any] = {"x-ms-path": "orders", "size": UByte(7), ACCOUNTED: 2}
    marked = scan(encode_properties(Properties(message_id="m")) + encode_application_properties(told))
    exported = read_line(write_line(marked).encode(), 1)
    assert exported.payload == marked.payload
    sent = scan(as_it_was_sent(exported)).application_properties_bytes
    assert sent == encode_application_properties({"x-ms-path": "orders", "size": UByte(7)})


@pytest.mark.parametrize("line", [b"{}", b'{"amqp": "!"}', b'{"amqp": "eA=="}', b"[]", b'{"amqp": 3}'])
def test_what_is_no_export_is_refused(line: bytes) -> None:
    with pytest.raises(ConfigurationError, match="line 7 is no line of an export"):
        read_line(line, 7)


def test_what_is_described_is_json() -> None:
    payload = encode_application_properties({"n": float("nan"), "i": float("-inf")}) + encode_value(
        [1, {2: b"x"}]
    )
    described = describe_message(scan(payload))
    assert json.loads(json.dumps(described)) == described
    assert described["application_properties"] == {"n": "nan", "i": "-inf"}
    assert described["body_value"] == [1, {"2": "eA=="}]


ODD: dict[str, bytes] = {
    "a partition key of bytes": encode_annotations({Symbol(words.PARTITION_KEY): b"\xff"}) + encode_data(b""),
    "a source that is a uuid": encode_annotations({Symbol(words.DEAD_LETTER_SOURCE): uuid.UUID(int=5)}),
    "a state that is a list": encode_annotations({Symbol(words.MESSAGE_STATE): [1]}),
    "a value whose keys cannot be read": VALUE + b"\xc1\x04\x02\x41\xa1\x00",
}


@pytest.mark.parametrize("what", ODD)
def test_whatever_a_namespace_holds_can_be_exported(what: str) -> None:
    line = write_line(scan(ODD[what])).encode()
    assert read_line(line, 1).payload == ODD[what]

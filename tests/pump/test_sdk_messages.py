"""Messages between the SDK's form and ours: nothing is lost either way but what the SDK has no form for."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pairbus.amqp.decoding import decode
from pairbus.amqp.encoding import encode
from pairbus.amqp.message import (
    Header,
    Properties,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_footer,
    encode_header,
    encode_properties,
    encode_sequence,
    encode_value,
    scan,
)
from pairbus.amqp.types import Char, Decimal32, Decimal64, Decimal128, Int, Symbol
from pairbus.pump.sdk_messages import to_annotated, to_payload
from pairbus.sdk.privates import encode_by_sdk
from tests.amqp.values import SCALARS, SYMBOLS, TEXT
from tests.examples import examples

# The SDK cannot read these.
_UNREAD = (Char, Decimal32, Decimal64, Decimal128)
scalars = st.one_of(*(kinds for kind, kinds in SCALARS.items() if kind not in _UNREAD))
values = st.recursive(
    scalars | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
names = st.text("abcxyz-", min_size=1, max_size=12)
symbol_maps = st.dictionaries(names.map(Symbol), values, max_size=3)
ids = TEXT | st.uuids() | st.binary(max_size=40)
times = st.integers(1, 2**42)  # of no time and of 1970 the SDK makes the same
properties = st.builds(
    Properties,
    message_id=ids,
    user_id=st.none() | st.binary(max_size=20),
    correlation_id=st.none() | ids,
    absolute_expiry_time=st.none() | times,
    creation_time=st.none() | times,
    group_sequence=st.none() | st.integers(0, 2**32 - 1),
    content_type=st.none() | SYMBOLS,
    content_encoding=st.none() | SYMBOLS,
    **dict.fromkeys(
        ("to", "subject", "reply_to", "group_id", "reply_to_group_id"), st.none() | TEXT
    ),
)  # fmt: skip
headers = st.builds(
    Header, durable=st.none() | st.booleans(), priority=st.none() | st.integers(0, 255),
    first_acquirer=st.none() | st.booleans(),
)  # fmt: skip
bodies = st.one_of(
    st.lists(st.binary(max_size=300).map(encode_data), min_size=1, max_size=3).map(b"".join),
    # Alone, what is nothing to Python is no body to the SDK, and it writes no number of 64 bits.
    st.one_of(TEXT, st.binary(max_size=40), st.uuids(), SCALARS[Int]).filter(bool).map(encode_value),
    st.dictionaries(TEXT, values, min_size=1, max_size=3).map(encode_value),
    st.lists(st.lists(values, max_size=3).map(encode_sequence), min_size=1, max_size=3).map(b"".join),
)
messages = st.builds(
    lambda *parts: b"".join(parts),
    headers.map(encode_header),
    symbol_maps.map(encode_annotations),
    properties.map(encode_properties),
    st.dictionaries(names, values, max_size=4).map(encode_application_properties),
    bodies,
    st.just(b"") | symbol_maps.filter(bool).map(encode_footer),
)
BINARY = encode_application_properties({"raw": b"\x80", "text": b"text"})
FOOTER = encode_footer({Symbol("sum"): b"\x00\xff"})


def picture(payload: bytes) -> dict[str, Any]:
    """All that a message says, without the types that the SDK forgets."""
    sections = scan(payload)
    told = {one.name: getattr(sections.properties, one.name) for one in fields(Properties)}
    said = {one.name: getattr(sections.header, one.name) for one in fields(Header)}
    body, at, found = sections.body_bytes, 0, []
    while at < len(body):
        section, at = decode(body, at)
        found.append((int(section.descriptor), section.value))
    parts = sections.annotations, sections.application_properties, found
    return {
        **{name: untyped(value) for name, value in {**told, **said}.items()},
        **dict(zip(("annotations", "own", "body"), map(untyped, parts), strict=True)),
    }


def untyped(value: Any) -> Any:
    """A value by what is left of it: a truth, a number, a text, bytes that are none, and what holds them."""
    match value:
        case bool() | None:
            return value
        case int():
            return int(value)
        case float():
            return float(value).hex()
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value
        case str():
            return str(value)
        case Mapping():
            return {untyped(key): untyped(item) for key, item in value.items()}
        case list() | tuple():
            return [untyped(item) for item in value]
        case _:
            return value


@settings(max_examples=examples(400), deadline=None)
@given(messages)
def test_what_the_sdk_has_read_is_what_was_sent(payload: bytes) -> None:
    read = AmqpAnnotatedMessage(message=decode_payload(memoryview(payload)))
    assert picture(to_payload(read)) == picture(payload)


@settings(max_examples=examples(400), deadline=None)
@given(messages)
@example(BINARY + encode_data(b"x"))
@example(encode_value(b"\x80"))
@example(encode_data(b"x") + FOOTER)
def test_what_the_sdk_writes_is_what_it_was_given(payload: bytes) -> None:
    """Where it takes no bytes of ours."""
    written = encode_by_sdk(to_annotated(payload))
    assert picture(written) == picture(payload)


def test_what_the_sdk_writes_keeps_binary_apart_from_text() -> None:
    written = scan(encode_by_sdk(to_annotated(BINARY + encode_data(b"x"))))
    assert encode(written.application_properties) == encode({"raw": b"\x80", "text": b"text"})

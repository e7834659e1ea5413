"""Opening envelopes: what the primary gets is what was sent, to the byte."""

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import DecodeError
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
from pairbus.amqp.types import Byte, Described, Float, Int, Symbol, Timestamp, UByte, UInt, ULong, UShort
from pairbus.pairing.envelope import Long, Natives, TimestampMs, compress_body, wrap
from pairbus.pairing.errors import MalformedEnvelope
from pairbus.pump.unwrapping import OpenedEnvelope, open_envelope, read_address, read_postmark
from tests.examples import examples

NOW = 1_800_000_000_000
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.builds(Int, st.integers(-(2**31), 2**31 - 1)),
    st.builds(UInt, st.integers(0, 2**32 - 1)),
    st.builds(ULong, st.integers(0, 2**64 - 1)),
    st.builds(UShort, st.integers(0, 2**16 - 1)),
    st.builds(UByte, st.integers(0, 255)),
    st.builds(Byte, st.integers(-128, 127)),
    st.builds(Timestamp, st.integers(0, 2**50)),
    st.floats(allow_nan=False),
    st.just(Float(1.5)),
    st.text(max_size=300),
    st.binary(max_size=300),
    st.uuids(),
)
names = st.text(min_size=1, max_size=40).filter(lambda name: not name.lower().startswith("x-"))
bodies = st.one_of(
    st.binary(max_size=600).map(encode_data),
    st.lists(st.binary(max_size=20), min_size=2, max_size=4).map(
        lambda parts: b"".join(map(encode_data, parts))
    ),
    values.map(encode_value),
)


def _amqp(value: Any) -> Any:
    if isinstance(value, TimestampMs):
        return Timestamp(value)
    return int(value) if isinstance(value, Long) else value


def delivered(
    natives: Natives,
    own: dict[str, Any],
    body: bytes,
    *,
    properties: Properties | None = None,
    annotations: dict[Any, Any] | None = None,
    markers: dict[str, Any] | None = None,
) -> bytes:
    """A wrapped message as a backlog queue delivers it."""
    aliases = {**wrap("Orders/New", natives).aliases, **(markers or {})}
    stamps = {
        Symbol("x-opt-sequence-number"): 77,
        Symbol("x-opt-enqueued-time"): Timestamp(NOW - 5000),
        Symbol("x-opt-enqueue-sequence-number"): 0,
        Symbol("x-opt-locked-until"): Timestamp(NOW + 60_000),
    }
    return b"".join(
        (
            encode_header(Header(durable=True, priority=7, delivery_count=3)),
            encode(Described(ULong(0x71), {Symbol("x-opt-lock-token"): uuid.UUID(int=5)})),
            encode_annotations({**(annotations or {}), **stamps}),
            encode_properties(properties or Properties(message_id="id")),
            encode_application_properties({**own, **{name: _amqp(value) for name, value in aliases.items()}}),
            body,
        )
    )


def open_payload(payload: bytes, policy: Any = "pause", now_ms: int = NOW) -> OpenedEnvelope:
    sections = scan(payload)
    return open_envelope(sections, read_postmark(sections), policy_of=lambda path: policy, now_ms=now_ms)


@settings(max_examples=examples(200))
@given(
    own=st.dictionaries(names, values, max_size=6),
    body=bodies,
    session=st.none() | st.text(max_size=40),
    scheduled=st.none() | st.integers(0, 2**45),
    annotations=st.dictionaries(names.map(lambda name: Symbol(name.encode().hex())), values, max_size=3),
    subject=st.none() | st.text(max_size=40),
)
def test_everything_comes_back_as_it_was(
    own: dict[str, Any],
    body: bytes,
    session: str | None,
    scheduled: int | None,
    annotations: dict[Any, Any],
    subject: str | None,
) -> None:
    """I4."""
    properties = Properties(message_id="id", subject=subject, correlation_id=uuid.UUID(int=3))
    natives = Natives(session_id=session, scheduled_ms=scheduled)
    payload = delivered(natives, own, body, properties=properties, annotations=annotations)
    opened = open_payload(payload)
    found = scan(opened.payload)
    assert (opened.path, opened.session_id, opened.message_id) == ("Orders/New", session, "id")
    assert found.body_bytes == body
    expected = encode_application_properties(own) if own else b""
    assert scan(opened.payload).application_properties == own
    assert len(found.application_properties_bytes) <= len(expected) + 6
    assert [(name, type(value)) for name, value in found.application_properties.items()] == [
        (name, type(value)) for name, value in own.items()
    ]
    wanted = dict(annotations)
    if scheduled is not None:
        wanted[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(scheduled)
    assert found.annotations == wanted
    assert (found.properties.group_id, found.properties.subject) == (session, subject)
    assert found.properties.correlation_id == uuid.UUID(int=3)
    assert (found.header.durable, found.header.priority, found.header.delivery_count) == (True, 7, 0)
    assert found.delivery_annotations == {}
    assert found.header.ttl is None


@pytest.mark.parametrize(
    ("policy", "ttl_ms", "left", "expired"),
    [("pause", 8000, 8000, False), ("deduct", 8000, 3000, False), ("deduct", 4000, 0, True)],
)
def test_time_to_live_by_policy(policy: str, ttl_ms: int, left: int, expired: bool) -> None:
    sent = Properties(message_id="id", creation_time=NOW - 6000)
    payload = delivered(Natives(ttl_ms=ttl_ms), {}, encode_data(b""), properties=sent)
    opened = open_payload(payload, policy)
    found = scan(opened.payload)
    assert opened.expired is expired
    assert found.header.ttl == left
    # A namespace takes the time between these two for the life of the message.
    assert (found.properties.creation_time, found.properties.absolute_expiry_time) == (NOW, NOW + left)


def test_a_message_without_a_creation_time_gets_none() -> None:
    payload = delivered(Natives(ttl_ms=8000), {}, encode_data(b""))
    assert scan(open_payload(payload).payload).properties.creation_time is None


def test_without_a_time_to_live_the_creation_time_is_left_alone() -> None:
    sent = Properties(message_id="id", creation_time=NOW - 6000)
    opened = open_payload(delivered(Natives(session_id="s"), {}, encode_data(b""), properties=sent))
    assert scan(opened.payload).properties.creation_time == NOW - 6000


def test_an_absolute_expiry_of_the_users_own_is_left_alone() -> None:
    properties = Properties(message_id="id", absolute_expiry_time=NOW + 9)
    opened = open_payload(delivered(Natives(), {}, encode_data(b"x"), properties=properties))
    assert scan(opened.payload).properties.absolute_expiry_time == NOW + 9


def test_compressed_bodies_are_expanded() -> None:
    body = encode_data(b"again and " * 500) + encode_data(b"again")
    compressed = compress_body(body)
    payload = delivered(
        Natives(session_id="s"), {"a": 1}, encode_data(compressed.data), markers=compressed.markers
    )
    assert scan(open_payload(payload).payload).body_bytes == body


def test_the_postmark_and_address_are_read() -> None:
    sections = scan(delivered(Natives(session_id="s"), {}, encode_data(b"")))
    mark = read_postmark(sections)
    assert (mark.sequence_number, mark.enqueued_ms, mark.locked_until_ms) == (77, NOW - 5000, NOW + 60_000)
    assert read_address(sections) == ("Orders/New", "s")


@settings(max_examples=examples(200))
@given(st.data())
def test_damaged_messages_are_malformed_and_nothing_else(data: st.DataObject) -> None:
    payload = bytearray(delivered(Natives(session_id="s", ttl_ms=5), {"a": 1}, encode_data(b"x")))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        opened = open_payload(bytes(payload), "deduct")
    except (MalformedEnvelope, DecodeError):  # the latter from `scan`, which is the caller's to do
        return
    assert scan(opened.payload).body_kind in ("data", "value", "none", "sequence")

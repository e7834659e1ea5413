import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.composites import encode_composite, from_described
from pairbus.amqp.decoding import decode, decode_exactly
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import DecodeError, EncodeError
from pairbus.amqp.glance import scan_plain, split_batch
from pairbus.amqp.limits import MAX_SECTIONS
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
from pairbus.amqp.types import Decimal128, Described, Symbol, Timestamp, UInt, ULong
from tests.amqp.values import TEXT, VALUES, same
from tests.examples import examples

_IDENTIFIERS = st.none() | TEXT | st.uuids() | st.binary(max_size=20) | st.integers(0, 1 << 60).map(ULong)
_TEXTS = st.none() | TEXT
_NAMES = st.none() | st.text(st.characters(codec="ascii"), max_size=20)
_TIMES = st.none() | st.integers(0, 1 << 50)

HEADERS = st.builds(
    Header,
    st.none() | st.booleans(),
    st.none() | st.integers(0, 255),
    st.none() | st.integers(0, 0xFFFFFFFF),
    st.none() | st.booleans(),
    st.integers(0, 0xFFFFFFFF),
)
PROPERTIES = st.builds(
    Properties,
    message_id=_IDENTIFIERS,
    user_id=st.none() | st.binary(max_size=20),
    to=_TEXTS,
    subject=_TEXTS,
    reply_to=_TEXTS,
    correlation_id=_IDENTIFIERS,
    content_type=_NAMES,
    content_encoding=_NAMES,
    absolute_expiry_time=_TIMES,
    creation_time=_TIMES,
    group_id=_TEXTS,
    group_sequence=st.none() | st.integers(0, 0xFFFFFFFF),
    reply_to_group_id=_TEXTS,
)
ANNOTATIONS = st.dictionaries(
    st.text(st.characters(codec="ascii"), max_size=20).map(Symbol), VALUES, max_size=3
)


@given(HEADERS, ANNOTATIONS, ANNOTATIONS, PROPERTIES, st.dictionaries(TEXT, VALUES, max_size=3), st.binary())
def test_every_section_comes_back_as_it_was(
    header: Header,
    delivery: dict[Any, Any],
    annotations: dict[Any, Any],
    properties: Properties,
    application: dict[Any, Any],
    body: bytes,
) -> None:
    raw_properties = encode_properties(properties)
    raw_application = encode_application_properties(application)
    head = encode_header(header) + encode(Described(ULong(0x71), delivery)) + encode_annotations(annotations)
    found = scan(head + raw_properties + raw_application + encode_data(body))
    assert found.header == header
    assert same(found.delivery_annotations, delivery)
    assert same(found.annotations, annotations)
    assert found.properties == properties
    assert type(found.properties.message_id) is type(properties.message_id)
    assert same(found.application_properties, application)
    assert found.properties_bytes == raw_properties
    assert found.application_properties_bytes == raw_application
    assert found.body_bytes == encode_data(body)
    assert (found.body_kind, found.data_sections()) == ("data", [body])


@given(HEADERS)
def test_headers_written_by_hand_mean_what_the_codec_writes(header: Header) -> None:
    assert from_described(decode(encode_header(header))[0]) == header
    assert from_described(decode(encode_composite(header))[0]) == header


@given(PROPERTIES, st.integers(0, 13))
def test_properties_read_by_hand_mean_what_the_codec_reads(properties: Properties, kept: int) -> None:
    fields = decode(encode_properties(properties))[0].value[:kept]
    for raw in (
        encode(Described(ULong(0x73), fields)),
        encode(Described(Symbol("amqp:properties:list"), fields)),
    ):
        assert scan(raw).properties == from_described(decode(raw)[0])


def test_a_message_without_sections_has_defaults() -> None:
    found = scan(b"")
    assert found.header == Header(None, None, None, None, 0)
    assert found.properties == Properties()
    assert found.annotations == found.delivery_annotations == found.application_properties == {}
    assert found.properties_bytes == found.application_properties_bytes == found.body_bytes == b""
    assert (found.body_kind, found.data_sections()) == ("none", [])


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70000])
def test_bodies_of_all_sizes(size: int) -> None:
    body = encode_data(b"x" * size)
    found = scan(encode_header(Header()) + body)
    assert (found.body_kind, found.body_bytes, found.data_sections()) == ("data", body, [b"x" * size])


def test_headers_are_remembered_but_not_for_ever() -> None:
    for number in range(2000):
        assert scan(encode_header(Header(delivery_count=number))).header.delivery_count == number


def test_batches_are_lists_of_whole_messages() -> None:
    inner = [encode_data(b"a"), encode_data(b"b" * 300), b""]
    found = scan(encode_annotations({}) + b"".join(map(encode_data, inner)))
    assert found.data_sections() == inner


@given(VALUES)
def test_amqp_values(value: Any) -> None:
    found = scan(encode_header(Header()) + encode_value(value))
    assert found.body_kind == "value"
    assert same(found.value(), value)


def test_sequences_and_footers() -> None:
    sequence = encode(Described(ULong(0x76), [1, 2]))
    footer = encode(Described(ULong(0x78), {}))
    found = scan(sequence + sequence + footer)
    assert (found.body_kind, found.body_bytes) == ("sequence", sequence + sequence + footer)
    assert scan(footer).body_kind == "none"
    with_footer = scan(encode_data(b"x") + encode_data(b"y") + footer)
    assert with_footer.data_sections() == [b"x", b"y"]
    with pytest.raises(DecodeError, match="data"):
        with_footer.value()


BODIES = [
    encode_data(b""),
    encode_data(b"one") + encode_data(b"two"),
    encode(Described(ULong(0x76), [])),
    encode_value(None),
    encode_value([1]),
]


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_sections_that_clients_put_elsewhere(body: bytes) -> None:
    """The Python SDK writes delivery annotations behind the body, uamqp right before it; go-amqp a footer."""
    annotations = {Symbol("x-mine"): uuid.UUID(int=1)}
    behind = encode(Described(ULong(0x71), annotations))
    footer = encode(Described(ULong(0x78), {"crc": 7}))
    ahead = encode_properties(Properties(message_id="m"))
    kind = scan(body).body_kind
    for payload, wanted in (
        (body + behind, body),
        (body + footer + behind, body + footer),
        (footer + body + behind, body + footer),
        (behind + body, body),
        (behind + footer + body, body + footer),
    ):
        sections = scan(ahead + payload)
        assert (sections.body_kind, sections.body_bytes) == (kind, wanted)
        assert sections.delivery_annotations == annotations
        assert sections.properties.message_id == "m"
    assert scan(footer + body).body_bytes == body + footer
    assert scan(footer + body).data_sections() == scan(body).data_sections()


@pytest.mark.parametrize("body", BODIES, ids=repr)
def test_sections_that_nobody_puts_there(body: bytes) -> None:
    behind = encode(Described(ULong(0x71), {}))
    footer = encode(Described(ULong(0x78), {}))
    for payload in (
        footer + body + footer,
        footer + footer + body,
        body + behind + body,
        behind + behind + body,
    ):
        with pytest.raises(DecodeError):
            scan(payload)


def test_descriptors_may_take_their_long_forms() -> None:
    long = b"\x00\x80" + (0x70).to_bytes(8, "big") + encode([True])
    assert scan(long).header == Header(durable=True)
    named = encode(Described(Symbol("amqp:data:binary"), b"x"))
    assert scan(named).data_sections() == [b"x"]


def test_types_of_identifiers_are_kept() -> None:
    for identifier in ("x", uuid.uuid4(), b"x", ULong(7)):
        raw = encode_properties(Properties(message_id=identifier, correlation_id=identifier))
        found = scan(raw).properties
        assert same(found.message_id, identifier)
        assert same(found.correlation_id, identifier)


def test_a_string_where_a_symbol_belongs_stays_one() -> None:
    """Properties are written anew for a message that is given an id, and where a rule changes them."""
    properties = scan(encode(Described(ULong(0x73), [None] * 6 + ["grün", "x"]))).properties
    assert (properties.content_type, properties.content_encoding) == ("grün", "x")
    assert scan(encode_properties(properties)).properties == properties


_HEADER, _DATA, _VALUE = encode_header(Header()), encode_data(b"x"), encode_value(1)


@pytest.mark.parametrize(
    "raw",
    [
        b"x",
        b"\x00",
        b"\x00\x53",
        b"\x00\x53\x75",
        _HEADER + _HEADER,
        encode_properties(Properties()) + _HEADER,
        _DATA + _VALUE,
        _VALUE + _VALUE,
        _DATA + _HEADER,
        encode(Described(ULong(0x78), {})) * 2,
        encode(Described(ULong(0x75), "text")),
        encode(Described(ULong(0x70), "text")),
        encode(Described(ULong(0x6F), [])),
        encode(Described(ULong(0x79), [])),
        encode(Described(Symbol("amqp:nothing:list"), [])),
        encode(Described("text", [])),
        _HEADER[:-1],
        _DATA[:-1],
        encode_data(b"x" * 300)[:-1],
        encode_data(b"x" * 300) + b"\x00",
        _DATA + b"\x00",
    ],
)
def test_messages_that_are_broken_are_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        scan(raw)


@pytest.mark.parametrize(
    "fields",
    [
        [1.5],
        [None, "text"],
        [None, None, b"to"],
        [None] * 8 + [5],
        [None] * 10 + [b"group"],
        [None] * 11 + ["1"],
        [None] * 14,
    ],
)
def test_properties_of_a_wrong_type_are_refused(fields: list[Any]) -> None:
    for raw in (encode(Described(ULong(0x73), fields)), b"\x00\x53\x73\xd0" + _wide(fields)):
        with pytest.raises(DecodeError):
            _ = scan(raw).properties


def _wide(fields: list[Any]) -> bytes:
    content = b"".join(map(encode, fields))
    return (len(content) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + content


@settings(max_examples=examples(200))
@given(st.binary(max_size=60).map(lambda tail: b"\x00\x53\x73\xc0" + tail) | st.binary(max_size=80))
def test_arbitrary_bytes_are_a_message_or_a_decode_error(raw: bytes) -> None:
    try:
        found = scan(raw)
        _ = found.header, found.properties, found.annotations, found.application_properties
        _ = found.delivery_annotations, found.data_sections()
    except DecodeError:
        return


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\x53\x73\xc0\x02\x02\x40",  # two fields in the bytes of one
        b"\x00\x53\x73\xc0\x03\x01\x40\x40",  # one field, bytes left over
        b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff",  # no UTF-8
    ],
)
def test_broken_properties_are_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        _ = scan(raw).properties


def test_sections_are_bounded() -> None:
    assert len(scan(_DATA * MAX_SECTIONS).data_sections()) == MAX_SECTIONS
    with pytest.raises(DecodeError, match="too many"):
        scan(_DATA * (MAX_SECTIONS + 1))


def test_maps_that_are_none_are_refused() -> None:
    raw = encode(Described(ULong(0x72), [1]))
    with pytest.raises(DecodeError, match="map"):
        _ = scan(raw).annotations


def test_numbers_out_of_range_cannot_be_written() -> None:
    for header in (Header(priority=256), Header(ttl=-1), Header(delivery_count=1 << 32)):
        with pytest.raises(EncodeError):
            encode_header(header)


def test_annotations_keep_their_types() -> None:
    values = {Symbol("a"): 1, Symbol("b"): Timestamp(5), Symbol("c"): UInt(5), Symbol("d"): "s"}
    assert same(scan(encode_annotations(values)).annotations, values)


_NO_ID = encode_properties(Properties(subject="s"))
_plain_headers = st.sampled_from(
    [b"", *map(encode_header, (Header(durable=True), Header(priority=4, ttl=7)))]
)
_plain_ids = st.sampled_from(["1", "2", "", "\u00fc", "ids", "i" * 40]) | st.uuids() | st.binary(max_size=3)
_plain_properties = st.one_of(
    st.builds(Properties, message_id=_plain_ids).map(encode_properties),
    st.builds(
        Properties,
        message_id=_plain_ids,
        group_id=st.sampled_from([None, "s"]),
        content_type=st.sampled_from([None, Symbol("text/plain")]),
        creation_time=st.sampled_from([None, Timestamp(5)]),
    ).map(encode_properties),
    st.sampled_from([b"", _NO_ID]),
)
_plain_applied = st.sampled_from(
    [
        b"",
        encode_application_properties({"n": 1}),
        encode_application_properties({"n": 2}),
        encode_application_properties({"text": "x" * 300}),
        encode_application_properties({"d": Decimal128(b"\x30\x40" + bytes(13) + b"\x01")}),
        b"\x00\x53\x74\xc1\x03\x02\x43\x43",  # no key is a number
    ]
)
_plain_bodies = st.sampled_from([300, 301, 256, 255, 5, 0]).map(lambda size: encode_data(b"x" * size))
_changes = st.none() | st.tuples(st.integers(0, 400), st.binary(max_size=3), st.booleans())


@given(
    st.lists(
        st.tuples(_plain_headers, _plain_properties, _plain_applied, _plain_bodies, _changes), max_size=6
    )
)
def test_what_is_found_at_a_glance_is_what_a_scan_finds(
    messages: list[tuple[bytes, bytes, bytes, bytes, tuple[int, bytes, bool] | None]],
) -> None:
    """Whole messages, and such as have other bytes somewhere, each behind others: a glance tells the same, or
    nothing.
    """
    for header, properties, applied, body, change in messages:
        payload = header + properties + applied + body
        if header:
            assert scan(payload).header != Header()  # which is known from then on
        _check_glance(payload)
        if change is not None:
            at, others, is_cut = change
            at %= len(payload)
            _check_glance(payload[:at] + others + (b"" if is_cut else payload[at + len(others) :]))
        _check_glance(payload)


def _check_glance(payload: bytes) -> None:
    try:
        found = scan_plain(payload)
    except DecodeError:
        with pytest.raises(DecodeError):
            _ = scan(payload).property_values
        return
    if found is None:
        return
    scanned = scan(payload)
    raw = scanned.properties_bytes
    expected = from_described(decode_exactly(raw, 0, len(raw))) if raw else Properties()
    assert (found[0], Properties(*found[1])) == (scanned.header, expected)
    assert found[1] == scanned.property_values
    assert (found[2], payload[found[3] :]) == (raw, scanned.body_bytes)
    assert found[4] == scanned.application_properties_bytes
    assert isinstance(scanned.application_properties, dict)
    assert b"\x94" not in found[4], "the service writes decimals anew"
    assert not scanned.annotations_bytes
    assert not scanned.delivery_annotations


def test_no_byte_of_a_message_is_overlooked_that_looks_like_the_one_before() -> None:
    """Each of its bytes, one after the other, as one less, one more, and otherwise."""
    alone = b"\x00\x53\x73\xc0\x05\x01\xa1\x02id"
    among_others = Properties(message_id="id", subject="s", group_id="g")
    applied = encode_application_properties({"n": 1, "text": "x"})
    decimal = encode_application_properties({"d": Decimal128(b"\x30\x40" + bytes(13) + b"\x01")})
    long = encode_application_properties({"text": "x" * 300})
    for properties in (
        alone,
        encode_properties(among_others),
        alone + applied,
        alone + decimal,
        alone + long,
    ):
        for body in (b"x" * 300, b"short"):
            payload = encode_header(Header(ttl=7)) + properties + encode_data(body)
            assert scan(payload).header.ttl == 7  # which is known from then on
            for at in range(len(payload) - len(body)):
                for other in (-1, 1, 0x40, 0x80):
                    _check_glance(payload)
                    _check_glance(payload[:at] + bytes([(payload[at] + other) % 256]) + payload[at + 1 :])


def test_what_most_clients_send_is_found_at_a_glance() -> None:
    header, properties = encode_header(Header(durable=True)), encode_properties(Properties(message_id="1"))
    payload = header + properties + encode_data(b"x" * 300)
    assert scan(payload).header.durable  # which is known from then on
    assert scan_plain(payload) is not None
    next_one = header + encode_properties(Properties(message_id="2")) + encode_data(b"y" * 500)
    assert scan_plain(next_one) == (
        Header(durable=True),
        ["2"],
        encode_properties(Properties(message_id="2")),
        len(payload) - len(encode_data(b"x" * 300)),
        b"",
    )
    applied = encode_application_properties({"kind": "order", "number": 7})
    payload = payload[: -len(encode_data(b"x" * 300))] + applied + encode_data(b"x" * 300)
    for _ in range(2):  # at first field by field, and then as the one before
        assert scan_plain(payload) == (
            Header(durable=True),
            ["1"],
            properties,
            len(header + properties + applied),
            applied,
        )
    assert scan_plain(encode_data(b"x" * 300)) is not None
    assert scan_plain(properties + encode_data(b"short")) is not None


_batch_sections = st.lists(
    st.sampled_from(
        [
            encode_data(b"x" * 300),
            encode_data(b"short"),
            encode_data(b""),
            encode_properties(Properties(message_id="1")),
            encode_properties(Properties(message_id="1" * 300)),
            encode_header(Header(durable=True)),
            encode_value("x"),
        ]
    ),
    max_size=6,
)


@given(_batch_sections, st.integers(0, 700), st.binary(max_size=3))
def test_a_batch_is_split_at_a_glance_as_a_scan_would_split_it(
    sections: list[bytes], at: int, others: bytes
) -> None:
    payload = b"".join(sections)
    for given_ in (payload, payload[:at] + others + payload[at + len(others) :], payload[:at]):
        try:
            expected = scan(given_).data_sections()
        except DecodeError:
            with pytest.raises(DecodeError):
                split_batch(given_)
        else:
            assert split_batch(given_) == expected


def test_a_batch_of_too_many_sections_is_refused() -> None:
    with pytest.raises(DecodeError, match="too many"):
        split_batch(encode_data(b"") * (MAX_SECTIONS + 1))

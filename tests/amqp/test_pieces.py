"""Large messages: not copied on their way in, cut into frames on their way out, and the same bytes."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.connection import Connection
from pairbus.amqp.decoding import decode
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.events import LinkFlowed, TransferReceived
from pairbus.amqp.limits import MAX_HEAD, CodecLimits
from pairbus.amqp.message import (
    Header,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_header,
    encode_properties,
    encode_value,
    scan,
    scan_large,
)
from pairbus.amqp.pieces import Pieces, encode_in_pieces
from pairbus.amqp.types import Described, Symbol, ULong
from tests.amqp.test_message import ANNOTATIONS, HEADERS, PROPERTIES
from tests.amqp.values import TEXT, VALUES, same
from tests.amqp.wire import Wire
from tests.examples import examples

_PARTS = st.lists(st.binary(max_size=20), max_size=6)
_FOOTER = encode(Described(ULong(0x78), {}))
_DELIVERY = encode(Described(ULong(0x71), {Symbol("x"): 1}))
_BODIES = (
    encode_data(b"x" * 300),
    encode_data(b"a") + encode_data(b"b" * 300),
    encode_value("text"),
    encode(Described(ULong(0x76), [1, 2])) * 2 + _FOOTER,
    encode_data(b"x") + _DELIVERY,  # as the Python SDK writes it
    encode(Described(Symbol("amqp:data:binary"), b"named")),
    b"",
)


@given(_PARTS, st.integers(0, 130), st.integers(0, 130))
def test_a_cut_is_that_of_the_whole(parts: list[bytes], start: int, size: int) -> None:
    pieces, whole = Pieces(*parts), b"".join(parts)
    assert (len(pieces), bytes(pieces)) == (len(whole), whole)
    assert b"".join(pieces.cut(start, start + size)) == whole[start : start + size]


@settings(max_examples=examples(40))
@given(
    st.recursive(
        VALUES | _PARTS.map(lambda parts: Pieces(*parts)),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
        max_leaves=8,
    )
)
def test_what_holds_pieces_means_what_it_means_with_bytes(value: Any) -> None:
    def whole(one: Any) -> Any:
        if isinstance(one, dict):
            return {key: whole(each) for key, each in one.items()}
        if isinstance(one, list):
            return [whole(each) for each in one]
        return bytes(one) if isinstance(one, Pieces) else one

    encoded = b"".join(encode_in_pieces(value))
    found, reached = decode(encoded)
    assert reached == len(encoded)
    assert same(found, whole(value))


@settings(max_examples=examples(40))
@given(HEADERS, ANNOTATIONS, PROPERTIES, st.sampled_from(_BODIES))
def test_a_large_message_has_the_sections_of_any(
    header: Header, annotations: dict[Any, Any], properties: Any, body: bytes
) -> None:
    payload = b"".join(
        (
            encode_header(header),
            encode_annotations(annotations),
            encode_properties(properties),
            encode_application_properties({"a": 1}),
            body,
        )
    )
    usual, large = scan(payload), scan_large(memoryview(payload))
    assert large.header == usual.header
    assert large.properties == usual.properties
    assert same(large.annotations, usual.annotations)
    assert same(large.delivery_annotations, usual.delivery_annotations)
    assert large.application_properties == usual.application_properties
    assert large.properties_bytes == usual.properties_bytes
    assert large.application_properties_bytes == usual.application_properties_bytes
    assert (large.body_kind, large.body_bytes) == (usual.body_kind, usual.body_bytes)
    assert large.data_sections() == usual.data_sections()
    assert isinstance(large.body, memoryview)
    assert large.body.obj is payload, "it is a copy"


@given(st.binary(max_size=60))
def test_what_is_no_message_is_none_as_a_view_either(payload: bytes) -> None:
    def kind(find: Any) -> str:
        try:
            return str(find().body_kind)
        except DecodeError:
            return "none at all"

    assert kind(lambda: scan_large(memoryview(payload))) == kind(lambda: scan(payload))


@pytest.mark.parametrize(
    "payload",
    [
        encode_annotations({Symbol("x"): bytes(MAX_HEAD)}) + encode_data(b"x"),
        encode_data(b"x") + encode(Described(ULong(0x71), {Symbol("x"): bytes(MAX_HEAD)})),
        _FOOTER + encode_data(b"x"),
    ],
    ids=["head", "tail", "footer-first"],
)
def test_what_would_have_to_be_copied_is_refused(payload: bytes) -> None:
    scan(payload)
    with pytest.raises(DecodeError):
        scan_large(memoryview(payload))


# Frames


def _wire(**limits: Any) -> Wire:
    return Wire(
        client=Connection(server=False, container_id="client", max_frame_size=1000),
        server=Connection(
            server=True, container_id="server", max_frame_size=1000, limits=CodecLimits(**limits)
        ),
    ).open()


def test_a_large_message_is_told_as_a_view() -> None:
    wire = _wire(largest_copied=5000)
    sender, _ = wire.attach(wire.begin()[0], sender=True, credit=10)
    bodies = [bytes([size % 251]) * size for size in (5000, 5001, 20_000, 10)]
    for body in bodies:
        sender.send(body, tag=b"t")
    wire.pump()
    events = wire.server_all(TransferReceived)
    assert [event.payload or bytes(event.view or b"") for event in events] == bodies
    assert [event.view is not None for event in events] == [False, True, True, False]
    assert wire.server.partial_bytes == 0


@given(st.lists(st.integers(0, 30_000), min_size=1, max_size=5), st.integers(1, 9000))
def test_no_more_is_written_at_once_than_is_wanted(sizes: list[int], most: int) -> None:
    wire = _wire(max_written=most, max_held_bytes=10_000)
    session, _ = wire.begin()
    receiver, answer = wire.attach(session, sender=False)
    receiver.flow(100)
    wire.pump()
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    for body in bodies:
        half = len(body) // 2
        answer.send(Pieces(body[:half], memoryview(body)[half:]), tag=b"t")
    frames = []
    while True:
        data = wire.server.data_to_send()
        frames.append(len(data))
        wire.client_events += wire.client.receive_data(data, 0.0)
        if not wire.server.is_held_up:
            break
        wire.server.write_more()
    assert [event.payload for event in wire.client_all(TransferReceived)] == bodies
    assert max(frames) <= most + 1000 + 100 * len(bodies)


def test_who_could_not_send_is_told_when_the_rest_is_written() -> None:
    wire = _wire(max_written=2000, max_held_bytes=1000)
    session, _ = wire.begin()
    receiver, answer = wire.attach(session, sender=False)
    receiver.flow(100)
    wire.pump()
    answer.send(Pieces(bytes(9000)), tag=b"t")
    assert answer.sendable == 0
    relieved = []
    while wire.server.is_held_up:
        wire.server.data_to_send()
        relieved += wire.server.write_more()
    assert relieved == [answer]
    assert answer.sendable == 99
    assert not wire.server_all(LinkFlowed)[1:]

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp.encoding import encode
from pairbus.amqp.events import (
    Closed,
    LinkAttached,
    LinkDetached,
    ProtocolEvent,
    SessionBegun,
    Settled,
    TransferReceived,
)
from pairbus.amqp.frames import AMQP_HEADER, HEARTBEAT, encode_frame
from pairbus.amqp.performatives import ACCEPTED, Begin, Close, Open
from pairbus.amqp.types import Described, ULong
from pairbus.conditions import FRAMING_ERROR, NOT_IMPLEMENTED
from tests.amqp.peer import Peer
from tests.amqp.wire import Wire
from tests.examples import examples


def _converse(chunk: int) -> Wire:
    wire = Wire(chunk=chunk).open()
    session, _ = wire.begin()
    sender, answer = wire.attach(session, sender=True, credit=5)
    for number in range(3):
        sender.send(b"m%d" % number * 100, tag=b"%d" % number)
    wire.pump()
    for event in wire.server_all(TransferReceived):
        answer.settle(event.delivery_id, ACCEPTED)
    wire.pump()
    sender.detach()
    wire.pump()
    wire.client.close()
    wire.pump()
    return wire


@settings(max_examples=examples(30))
@given(st.integers(1, 200))
def test_frames_may_be_split_anywhere(chunk: int) -> None:
    wire, whole = _converse(chunk), _converse(0)
    assert _kinds(wire.server_events) == _kinds(whole.server_events)
    assert _kinds(wire.client_events) == _kinds(whole.client_events)
    assert [event.payload for event in wire.server_all(TransferReceived)] == [
        b"m%d" % n * 100 for n in range(3)
    ]


def test_a_conversation_byte_by_byte() -> None:
    wire = _converse(1)
    kinds = [
        SessionBegun,
        LinkAttached,
        TransferReceived,
        TransferReceived,
        TransferReceived,
        LinkDetached,
        Closed,
    ]
    assert [type(event) for event in wire.server_events][2:] == kinds
    assert len(wire.client_all(Settled)) == 3


def _kinds(events: list[ProtocolEvent]) -> list[type]:
    """Settlements one by one: those that come in one read are told together."""
    return [
        type(event)
        for event in events
        for _ in (event.delivery_ids if isinstance(event, Settled) else (event,))
    ]


@settings(max_examples=examples(50))
@given(st.data())
def test_pipelined_bytes_may_be_cut_at_any_places(data: st.DataObject) -> None:
    peer = Peer()
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    stream = AMQP_HEADER + encode_frame(0, Open("peer")) + HEARTBEAT + encode_frame(0, begin) + HEARTBEAT * 2
    stream += encode_frame(1, begin) + encode_frame(0, Close())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        peer.feed(stream[start:end])
    assert len(peer.all_events(SessionBegun)) == 2
    assert not peer.event(Closed).local


def test_extended_headers_are_skipped() -> None:
    frame = encode_frame(0, Open("peer"))
    size = int.from_bytes(frame[:4], "big") + 8
    extended = size.to_bytes(4, "big") + b"\x04" + frame[5:8] + b"extended" + frame[8:]
    peer = Peer()
    peer.feed(AMQP_HEADER + extended)
    assert peer.machine.remote_open == Open("peer")


def test_heartbeats_of_any_channel_are_taken() -> None:
    peer = Peer().open()
    peer.feed(b"\x00\x00\x00\x08\x02\x00\x00\x07" * 3)
    assert not peer.all_events(Closed)


@pytest.mark.parametrize(
    "frame",
    [
        b"\x00\x00\x00\x07\x02\x00\x00\x00",  # shorter than its own header
        b"\x00\x00\x00\x00\x02\x00\x00\x00",
        b"\x00\x00\x00\x08\x01\x00\x00\x00",  # data offset inside the header
        b"\x00\x00\x00\x08\x03\x00\x00\x00",  # data offset behind the end
        b"\x00\x01\x00\x01\x02\x00\x00\x00",  # longer than max-frame-size
        b"\xff\xff\xff\xff\x02\x00\x00\x00",
        b"\x00\x00\x00\x08\x02\x01\x00\x00",  # a SASL frame
        b"\x00\x00\x00\x08\x02\x07\x00\x00",
    ],
)
def test_broken_headers_close_the_connection(frame: bytes) -> None:
    peer = Peer().open()
    peer.feed(frame)
    peer.assert_closed_with(FRAMING_ERROR)


def test_an_unknown_performative_closes_the_connection() -> None:
    peer = Peer().open()
    body = encode(Described(ULong(0x7F), []))
    peer.feed((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
    peer.assert_closed_with(NOT_IMPLEMENTED)

"""The short ways through the machine mean what the general codec means.

A frame whose descriptor takes its eight byte form goes the general way, and is otherwise the same. So each
frame is sent in both forms, to two machines, and the events are compared.
"""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.amqp import fastframes
from pairbus.amqp.composites import Composite, encode_composite
from pairbus.amqp.decoding import decode
from pairbus.amqp.encoding import encode
from pairbus.amqp.events import Closed, LinkAttached, LinkFlowed, Settled, TransferReceived
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    Disposition,
    Flow,
    Modified,
    Rejected,
    Transfer,
)
from tests.amqp.peer import Peer
from tests.examples import examples

_UINTS = st.sampled_from([0, 1, 2, 3, 255, 256, 1 << 31, 0xFFFFFFFF])
_OPTIONAL = st.none() | _UINTS
_FLAGS = st.booleans()
_STATES = st.sampled_from(
    [
        None,
        ACCEPTED,
        RELEASED,
        Rejected(),
        Rejected(AmqpError("c", "d")),
        Modified(True),
        Modified(True, True, {"k": 1}),
    ]
)
TRANSFERS = st.builds(
    Transfer,
    st.sampled_from([0, 0, 0, 1, 2, 300]),
    _OPTIONAL,
    st.none() | st.binary(max_size=40),
    _OPTIONAL,
    st.none() | _FLAGS,
    _FLAGS,
    st.none() | st.integers(0, 1),
    _STATES,
    _FLAGS,
    _FLAGS,
    _FLAGS,
)
DISPOSITIONS = st.builds(Disposition, _FLAGS, _UINTS, _OPTIONAL, _FLAGS, _STATES, _FLAGS)
FLOWS = st.builds(
    Flow,
    next_incoming_id=_OPTIONAL,
    incoming_window=_UINTS,
    next_outgoing_id=_UINTS,
    outgoing_window=_UINTS,
    handle=st.sampled_from([None, 0, 1, 2]),
    delivery_count=_OPTIONAL,
    link_credit=_OPTIONAL,
    available=_OPTIONAL,
    drain=_FLAGS,
    echo=_FLAGS,
    properties=st.sampled_from([None, {"k": 1}]),
)


def _ready() -> Peer:
    """A server that receives on handle 0 and sends on handle 1, with deliveries under way on both."""
    peer = Peer().open().begin(window=100).attach()
    peer.attach(receiver=True, handle=1, name="out")
    for number in range(3):
        peer.transfer(delivery_id=number)
        peer.event(LinkAttached).link.send(b"m", tag=b"%d" % number)
    peer.collect()
    return peer


def _frames(list_bytes: bytes, code: int, payload: bytes) -> tuple[bytes, bytes]:
    short, long = b"\x00\x53" + bytes([code]), b"\x00\x80" + code.to_bytes(8, "big")
    bodies = (descriptor + list_bytes + payload for descriptor in (short, long))
    one, two = ((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body for body in bodies)
    return one, two


def _told(peer: Peer) -> list[Any]:
    """Events in terms that two machines share."""
    told: list[Any] = []
    for event in peer.events:
        match event:
            case TransferReceived(link, delivery_id, tag, payload, settled, message_format):
                told.append((link.name, delivery_id, tag, payload, settled, message_format))
            case Settled(link, ids, state, settled):
                # Frames that differ in their id alone may be told together.
                told += [(link.name, number, state, settled, event.is_range) for number in ids]
            case LinkFlowed(link, credit, drain, echo):
                told.append((link.name, credit, drain, echo))
            case Closed():
                told.append("closed")
            case _:
                told.append(type(event).__name__)
    return told


def _compare(list_bytes: bytes, code: int, payload: bytes = b"") -> None:
    short, long = _frames(list_bytes, code, payload)
    for times in (1, 2):  # the second time the memos know the frame
        fast, general = _ready(), _ready()
        fast.feed(short * times)
        general.feed(long * times)
        assert _told(fast) == _told(general)
        assert [type(answer) for _, answer, _ in fast.answers] == [
            type(answer) for _, answer, _ in general.answers
        ]
        if "closed" not in _told(fast):
            assert fast.answers == general.answers


@settings(max_examples=examples(60))
@given(TRANSFERS, st.binary(max_size=10))
def test_transfers(transfer: Transfer, payload: bytes) -> None:
    _compare(encode_composite(transfer)[3:], transfer.CODE, payload)


@settings(max_examples=examples(60))
@given(DISPOSITIONS)
def test_dispositions(disposition: Disposition) -> None:
    _compare(encode_composite(disposition)[3:], disposition.CODE)


@settings(max_examples=examples(60))
@given(FLOWS)
def test_flows(flow: Flow) -> None:
    _compare(encode_composite(flow)[3:], flow.CODE)


@settings(max_examples=examples(150))
@given(TRANSFERS | DISPOSITIONS | FLOWS, st.data())
def test_broken_frames(performative: Composite, data: st.DataObject) -> None:
    raw = bytearray(encode_composite(performative)[3:])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place] = data.draw(
            st.sampled_from([0x40, 0x41, 0x42, 0x43, 0x45, 0x52, 0x70, 0xA0, 0xC0, 0, 1, 11, 255])
        )
    cut = data.draw(st.integers(0, len(raw)) | st.just(len(raw)))
    _compare(bytes(raw[:cut]), performative.CODE, data.draw(st.sampled_from([b"", b"\x40", b"payload"])))


_MANY = 300  # the first of ids that take their long form
_SOME_IDS = st.integers(_MANY, _MANY + 5)
_BUSY = st.one_of(
    st.builds(
        Transfer,
        st.sampled_from([0, 0, 0, 2, 2, 3]),
        _SOME_IDS,
        st.sampled_from([b"one", b"two", b"three"]),
        st.sampled_from([0, 0, 0, 7]),
        st.sampled_from([False, False, True]),
        st.sampled_from([False] * 5 + [True]),
    ),
    st.builds(
        lambda first, width, settled, state: Disposition(False, first, first + width, settled, state),
        _SOME_IDS,
        st.sampled_from([0, 0, 0, 0, 1]),
        _FLAGS,
        st.sampled_from([ACCEPTED, ACCEPTED, RELEASED]),
    ),
)


@settings(max_examples=examples(200))
@given(st.lists(st.tuples(_BUSY, st.sampled_from([b"m", b"longer", b"x" * 5000])), max_size=30))
def test_frames_of_a_busy_peer(performatives: list[tuple[Transfer | Disposition, bytes]]) -> None:
    """Those that are like the one before are taken together, on several links, whatever comes between."""
    short, long = b"", b""
    for performative, payload in performatives:
        given_payload = payload if isinstance(performative, Transfer) else b""
        frames = _frames(encode_composite(performative)[3:], performative.CODE, given_payload)
        short, long = short + frames[0], long + frames[1]
    fast, general = _ready(), _ready()
    for peer, data in ((fast, short), (general, long)):
        peer.attach(handle=2, name="other")
        peer.attach(handle=3, name="third")
        peer.feed(data)
    assert _told(fast) == _told(general)
    assert fast.answers == general.answers
    for name in ("window", "next_incoming_id"):
        assert [getattr(one.inbox, name) for one in fast.machine.sessions] == [
            getattr(one.inbox, name) for one in general.machine.sessions
        ]
    states = [
        [
            (link.name, link.credit, link.delivery_count, sorted(session.unsettled_received))
            for session in peer.machine.sessions
            for link in session.links
        ]
        for peer in (fast, general)
    ]
    assert states[0] == states[1]


@settings(max_examples=examples(60))
@given(TRANSFERS | DISPOSITIONS | FLOWS)
def test_booleans_of_two_bytes(performative: Composite) -> None:
    """The Python SDK writes them so."""
    fields = decode(encode_composite(performative))[0].value
    content = b"".join(b"\x56" + bytes([item]) if isinstance(item, bool) else encode(item) for item in fields)
    if len(content) < 255:
        _compare(bytes([0xC0, len(content) + 1, len(fields)]) + content, performative.CODE)


@pytest.mark.parametrize(
    "raw",
    [
        b"\xc0\x0b\x03\x43\x43\xa0\x05short"[:-1],  # a tag that ends with the list, cut
        b"\xc0\x05\x03\x43\x43\xa0\x00",
        b"\xc0\x04\x02\x43\x43\x40",
        b"\xc0\x02\x01\x43",
        b"\xc0\x01\x00",
        b"\x45",
        b"\xd0\x00\x00\x00\x09\x00\x00\x00\x03\x43\x43\xa0\x01t",
    ],
)
def test_transfers_of_odd_shapes(raw: bytes) -> None:
    _compare(raw, Transfer.CODE, b"payload")


@pytest.mark.parametrize(
    "raw",
    [
        b"\xc0\x02\x01\x41",
        b"\xc0\x03\x02\x41\x43",
        b"\xc0\x04\x03\x41\x43\x40",
        b"\xc0\x05\x03\x41\x70\x00\x00",
        b"\xc0\x04\x02\x41\x52\x01surplus",
        b"\xc0\x05\x02\x56\x01\x52\x01",
        b"\xc0\x05\x02\x56\x02\x52\x01",
    ],
)
def test_dispositions_of_odd_shapes(raw: bytes) -> None:
    _compare(raw, Disposition.CODE)


@pytest.mark.parametrize(
    "fields",
    [
        b"\x43\x43\x43",
        b"\x43\x52\x05\x43\x43",
        b"\x43\x40\x43\x43",
        b"\x41\x43\x43\x43",
        b"\x43\x43\x43\x43\x40\x40\x40\x40\x43",
        b"\x43\x43\x43\x43" + b"\x40" * 8,
        b"\x43\x43\x43\x43\x40\x40\x40\x40\x56\x02",
        b"\x43\x43\x43\x70\x00",
    ],
)
def test_flows_of_odd_shapes(fields: bytes) -> None:
    _compare(bytes([0xC0, len(fields) + 1, _count(fields)]) + fields, Flow.CODE)


def _count(fields: bytes) -> int:
    """Constructors in a row of fields, told from their operands by hand."""
    return len(fields) - (1 if b"\x52" in fields or b"\x56" in fields or b"\x70" in fields else 0)


@pytest.mark.parametrize("size", [0, 32, 33, 255, 256])
def test_the_end_of_a_message_with_a_tag_of_any_size(size: int) -> None:
    """What follows its first frame need not repeat the tag, and nobody looks at one that is there."""
    peer = _ready()
    peer.send(Transfer(0, 300, b"tag", 0, more=True), b"begun, ")
    peer.send(Transfer(0, 300, b"t" * size), b"ended")
    assert peer.all_events(TransferReceived)[-1].payload == b"begun, ended"
    for number in (301, 302):
        peer.send(Transfer(0, number, b"tag", 0), b"next")
    assert [event.payload for event in peer.all_events(TransferReceived)[-2:]] == [b"next", b"next"]


def test_memos_do_not_grow() -> None:
    peer = _ready()
    for number in range(2000):
        peer.send(Transfer(0, number, b"t", number, settled=True), b"")
        peer.send(Disposition(True, 0, 0, False, Modified(True, bool(number % 2))))
    assert [len(session.inbox._forms) for session in peer.machine.sessions] == [2]
    assert len(fastframes.disposition_tails) <= 512


def test_states_that_could_be_changed_are_not_shared() -> None:
    peer = _ready()
    for _ in range(2):
        peer.send(Disposition(True, 0, 0, False, Rejected(AmqpError("c", "d", {}))))
    first, second = (event.state for event in peer.all_events(Settled))
    assert first == second
    assert first is not second

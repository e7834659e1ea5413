from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.amqp.errors import UsageError
from pairbus.amqp.events import Closed, LinkAttached, LinkDetached, LinkFlowed, Settled, TransferReceived
from pairbus.amqp.frames import encode_frame
from pairbus.amqp.limits import CodecLimits
from pairbus.amqp.link import Link, LinkState
from pairbus.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    SENDER_SETTLED,
    AmqpError,
    Attach,
    Detach,
    Disposition,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.pieces import Pieces
from pairbus.amqp.serials import MASK
from pairbus.amqp.types import Symbol, ULong
from pairbus.conditions import INVALID_FIELD, MESSAGE_SIZE_EXCEEDED, NOT_FOUND, RESOURCE_LIMIT
from tests.amqp.peer import Peer
from tests.amqp.wire import Wire


def _link(peer: Peer) -> Link:
    return peer.event(LinkAttached).link


def _flow(**fields: Any) -> Flow:
    """Of the first link, whose session has sent and received nothing."""
    return Flow(
        next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=0, **fields
    )


# Attaching


def test_accepting_echoes_the_peers_termini() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    link = session.attach(
        name="orders",
        role_sender=True,
        source=Source("here"),
        target=Target("amqps://host/orders"),
        snd_settle_mode=SENDER_SETTLED,
        rcv_settle_mode=1,
        properties={Symbol("k"): "v"},
    )
    wire.pump()
    event = wire.server_event(LinkAttached)
    assert (event.link.name, event.link.is_sender, event.link.initiated) == ("orders", False, False)
    assert event.attach.properties == {"k": "v"}
    assert event.link.remote_attach is event.attach
    event.link.accept(
        properties={Symbol("com.microsoft:max-message-batch-size"): ULong(262144)},
        max_message_size=262144,
        initial_credit=7,
    )
    wire.pump()
    answer = wire.client_event(LinkAttached)
    assert answer.link is link
    assert answer.link.initiated
    assert (answer.attach.source, answer.attach.target) == (Source("here"), Target("amqps://host/orders"))
    assert (answer.attach.snd_settle_mode, answer.attach.rcv_settle_mode) == (1, 1)
    assert answer.attach.max_message_size == 262144
    assert answer.attach.properties == {"com.microsoft:max-message-batch-size": 262144}
    assert link.credit == link.sendable == 7
    assert link.state is event.link.state is LinkState.ATTACHED


def test_accepting_may_change_a_terminus() -> None:
    peer = Peer().open().begin().attach(receiver=True, accept=False)
    _link(peer).accept(source=Source("q", filter={Symbol("f"): "id"}))
    peer.collect()
    attach = peer.answer(Attach)
    assert attach.source == Source("q", filter={Symbol("f"): "id"})
    assert attach.target == Target("q")
    assert attach.initial_delivery_count == 0


def test_refusing_attaches_without_termini_and_detaches_with_the_reason() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    link = session.attach(name="x", role_sender=True, source=Source("a"), target=Target("b"))
    wire.pump()
    answer = wire.server_event(LinkAttached).link
    answer.refuse(AmqpError(NOT_FOUND, "no such queue"))
    answer.accept()
    wire.pump()
    attach = wire.client_event(LinkAttached).attach
    assert (attach.source, attach.target) == (None, None)
    detached = wire.client_event(LinkDetached)
    assert (detached.link, detached.closed) == (link, True)
    assert detached.error == AmqpError(NOT_FOUND, "no such queue", {})
    assert not wire.server_all(LinkDetached)
    assert wire.client.link_count == wire.server.link_count == 0


def test_a_sender_link_is_refused_with_a_delivery_count() -> None:
    peer = Peer().open().begin().attach(receiver=True, accept=False)
    _link(peer).refuse(AmqpError(NOT_FOUND))
    peer.collect()
    assert peer.answer(Attach).initial_delivery_count == 0
    assert peer.answer(Attach).source is None


def test_the_server_may_attach_too() -> None:
    wire = Wire().open()
    _, session = wire.begin()
    link = session.attach(name="push", role_sender=True, source=Source("s"), target=Target("t"))
    wire.pump()
    answer = wire.client_event(LinkAttached).link
    answer.accept(initial_credit=1)
    wire.pump()
    link.send(b"pushed", tag=b"1", settled=True)
    wire.pump()
    assert wire.client_event(TransferReceived).payload == b"pushed"


# Credit


def test_credit_is_reckoned_against_the_senders_count() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    sender, receiver = wire.attach(session, sender=True, credit=5)
    for number in range(3):
        sender.send(b"m", tag=b"%d" % number)
    receiver.flow(5)  # granted before the three have arrived: two of it are new
    wire.pump()
    assert (sender.credit, sender.delivery_count) == (2, 3)
    assert (receiver.credit, receiver.delivery_count) == (2, 3)
    receiver.flow(10)
    wire.pump()
    assert wire.client_event(LinkFlowed).credit == sender.credit == 10


def test_a_grant_may_be_taken_back() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    sender, receiver = wire.attach(session, sender=True, credit=5)
    receiver.flow(0)
    wire.pump()
    assert sender.sendable == 0


def test_counts_wrap_at_32_bits() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    sender = session.attach(
        name="w", role_sender=True, source=Source(), target=Target(), initial_delivery_count=0xFFFFFFFE
    )
    wire.pump()
    receiver = wire.server_event(LinkAttached).link
    receiver.accept(initial_credit=5)
    wire.pump()
    session.next_delivery_id = session.next_outgoing_id = 0xFFFFFFFE
    receiver.session.inbox.base = 0xFFFFFFFE
    for number in range(4):
        sender.send(b"m", tag=b"%d" % number)
    wire.pump()
    assert (sender.delivery_count, receiver.delivery_count, sender.credit, receiver.credit) == (2, 2, 1, 1)
    assert [event.delivery_id for event in wire.server_all(TransferReceived)] == [
        0xFFFFFFFE,
        0xFFFFFFFF,
        0,
        1,
    ]
    assert receiver.session.inbox.next_incoming_id == session.next_outgoing_id == 2
    receiver.settle_range(0xFFFFFFFF, 1, ACCEPTED)
    wire.pump()
    assert wire.client_event(Settled).delivery_ids == [0xFFFFFFFF, 0, 1]


def test_draining_uses_up_the_credit() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    receiver, sender = wire.attach(session, sender=False)
    receiver.flow(10, drain=True)
    wire.pump()
    asked = wire.server_event(LinkFlowed)
    assert (asked.link, asked.credit, asked.drain) == (sender, 10, True)
    sender.send(b"last", tag=b"1")
    sender.drained()
    wire.pump()
    answer = wire.client_event(LinkFlowed)
    assert (answer.credit, answer.drain) == (0, True)
    assert (receiver.delivery_count, receiver.credit) == (sender.delivery_count, 0) == (10, 0)
    receiver.flow(2)
    wire.pump()
    assert (sender.credit, wire.server_event(LinkFlowed).drain) == (2, False)


def test_draining_without_credit_is_answered() -> None:
    peer = Peer().open().begin().attach(receiver=True)
    peer.send(_flow(delivery_count=0, link_credit=0, drain=True))
    _link(peer).drained()
    peer.collect()
    answer = peer.answer(Flow)
    assert (answer.handle, answer.delivery_count, answer.link_credit, answer.drain) == (0, 0, 0, True)


def test_a_link_echo_is_answered_with_the_links_state() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    receiver, _ = wire.attach(session, sender=False)
    receiver.flow(4, echo=True)
    wire.pump()
    assert wire.server_event(LinkFlowed).echo
    assert wire.client_event(LinkFlowed).link is receiver


# Messages


def test_a_delivery_is_told_whole() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    sender, receiver = wire.attach(session, sender=True, credit=5)
    assert sender.send(b"one", tag=b"t1", message_format=0x80013700) == 0
    assert sender.send(b"", tag=b"", settled=True) == 1
    wire.pump()
    first, second = wire.server_all(TransferReceived)
    assert first == TransferReceived(receiver, 0, b"t1", b"one", False, 0x80013700)
    assert second == TransferReceived(receiver, 1, b"", b"", True, 0)


def test_tags_are_bounded() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    sender, _ = wire.attach(session, sender=True, credit=5)
    sender.send(b"m", tag=b"t" * 32)
    with pytest.raises(UsageError):
        sender.send(b"m", tag=b"t" * 33)
    wire.pump()
    assert wire.server_event(TransferReceived).tag == b"t" * 32


def test_parts_of_two_links_may_alternate() -> None:
    peer = Peer().open().begin().attach()
    peer.attach(handle=1, name="other")
    peer.send(Transfer(0, 0, b"a", 0, more=True), b"a1")
    peer.send(Transfer(1, 1, b"b", 0, more=True), b"b1")
    peer.send(Transfer(0, more=True), b"a2")
    peer.send(Transfer(1), b"b2")
    peer.send(Transfer(0), b"a3")
    assert [(event.tag, event.payload) for event in peer.all_events(TransferReceived)] == [
        (b"b", b"b1b2"),
        (b"a", b"a1a2a3"),
    ]


def test_a_message_settled_in_its_last_part_is_settled() -> None:
    peer = Peer().open().begin().attach()
    peer.send(Transfer(0, 0, b"a", 5, more=True), b"a1")
    peer.send(Transfer(0, 0, settled=True), b"a2")
    event = peer.event(TransferReceived)
    assert (event.settled, event.message_format) == (True, 5)


def test_aborted_messages_are_dropped() -> None:
    peer = Peer().open().begin().attach()
    peer.send(Transfer(0, 0, b"a", 0, more=True), b"a1")
    peer.send(Transfer(0, aborted=True), b"a2")
    peer.send(Transfer(0, 1, b"b", 0, aborted=True), b"b")
    assert peer.machine.partial_bytes == 0
    assert not peer.all_events(TransferReceived)
    assert _link(peer).delivery_count == 2
    peer.transfer(b"whole", delivery_id=2)
    assert peer.event(TransferReceived).payload == b"whole"


def test_a_delivery_that_begins_too_early_or_without_id_is_errant() -> None:
    for second in (Transfer(0, 1, b"b"), None):
        peer = Peer().open().begin().attach()
        if second is None:
            peer.send(Transfer(0), b"x")
        else:
            peer.send(Transfer(0, 0, b"a", more=True), b"x")
            peer.send(second, b"y")
        peer.assert_closed_with(INVALID_FIELD)


@pytest.mark.parametrize("parts", [1, 40])
def test_a_message_beyond_the_size_detaches_the_link(parts: int) -> None:
    peer = Peer(limits=CodecLimits(message_allowance=100)).open().begin().attach()
    body = b"x" * 4097
    peer.transfer(body)
    assert peer.event(TransferReceived).payload == body
    huge = b"x" * (5000 // parts)
    for number in range(parts):
        peer.send(Transfer(0, 1, b"t", more=number < parts - 1), huge)
    error = peer.answer(Detach).error
    assert error is not None
    assert error.condition == MESSAGE_SIZE_EXCEEDED
    assert peer.event(LinkDetached) == LinkDetached(_link(peer), True, error)
    peer.transfer(b"late", delivery_id=2)
    peer.send(Detach(0, True))
    assert len(peer.all_events(LinkDetached)) == 1
    told = peer.all_events(TransferReceived)[1:]
    assert [event.dropped for event in told] == ([] if parts == 1 else [4125])
    assert peer.machine.partial_bytes == 0
    assert not peer.all_events(Closed)


def test_unfinished_messages_of_a_connection_are_bounded() -> None:
    peer = Peer(limits=CodecLimits(max_partial_bytes=9000)).open().begin()
    for handle in range(3):
        peer.attach(handle=handle, name=str(handle))
        peer.send(Transfer(handle, handle, b"t", more=True), b"x" * 4000)
    peer.assert_closed_with(RESOURCE_LIMIT)


def test_messages_may_come_before_the_owner_has_answered() -> None:
    peer = Peer().open().begin().attach(accept=False)
    peer.transfer(b"early")
    assert [type(event) for event in peer.events[-2:]] == [LinkAttached, TransferReceived]


# Settling


@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        RELEASED,
        Rejected(),
        Rejected(AmqpError("com.microsoft:message-lock-lost", "The lock supplied is invalid.")),
        Modified(True, False),
        Modified(True, True, {Symbol("k"): "v"}),
        None,
    ],
    ids=str,
)
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("by_sender", [True, False])
def test_every_state_arrives(state: Released | None, settled: bool, by_sender: bool) -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    sender, receiver = wire.attach(session, sender=True, credit=500)
    for number in range(300):
        sender.send(b"m", tag=b"%d" % number)
    wire.pump()
    for number in (0, 1, 255, 256, 299):
        (sender if by_sender else receiver).settle(number, state, settled=settled)
    wire.pump()
    events = wire.server_all(Settled) if by_sender else wire.client_all(Settled)
    told = [(number, event.state, event.settled) for event in events for number in event.delivery_ids]
    assert told == [(number, state, settled) for number in (0, 1, 255, 256, 299)]
    assert not any(event.is_range for event in events)


def test_each_settlement_has_a_frame_of_its_own() -> None:
    peer = Peer().open().begin().attach()
    for number in range(3):
        peer.transfer(delivery_id=number)
    for number in range(3):
        _link(peer).settle(number, ACCEPTED)
    peer.collect()
    found = [answer for _, answer, _ in peer.answers if isinstance(answer, Disposition)]
    assert found == [Disposition(True, number, number, True, ACCEPTED) for number in range(3)]


def test_settlements_that_join_share_a_frame_with_their_neighbours() -> None:
    peer = Peer().open().begin().attach()
    for number in range(8):
        peer.transfer(delivery_id=number)
    link = _link(peer)
    for number in (0, 1, 2, 4, 5):
        link.settle(number, ACCEPTED, joins=True)
    link.settle(6, RELEASED, joins=True)
    peer.collect()
    link.settle(7, RELEASED, joins=True)  # the frame before it has left already
    peer.collect()
    found = [answer for _, answer, _ in peer.answers if isinstance(answer, Disposition)]
    assert found == [
        Disposition(True, 0, 2, True, ACCEPTED),
        Disposition(True, 4, 5, True, ACCEPTED),
        Disposition(True, 6, 6, True, RELEASED),
        Disposition(True, 7, 7, True, RELEASED),
    ]
    assert not link.session.unsettled_received.keys() - {3}


def test_a_range_is_settled_in_one_frame() -> None:
    peer = Peer().open().begin().attach()
    for number in range(3):
        peer.transfer(delivery_id=number)
    _link(peer).settle_range(0, 2, ACCEPTED)
    peer.collect()
    assert peer.answer(Disposition) == Disposition(True, 0, 2, True, ACCEPTED)
    assert not _link(peer).session.unsettled_received


def test_settled_messages_are_not_remembered() -> None:
    wire = Wire().open()
    session, other = wire.begin()
    sender, _ = wire.attach(session, sender=True, credit=5, settled=True)
    sender.send(b"m", tag=b"1", settled=True)
    wire.pump()
    assert not session.unsettled_sent
    assert not other.unsettled_received


def test_a_credit_beyond_32_bits_is_as_much_as_can_be_told() -> None:
    """A receiver that says to have come further than we have, and asks to be told what we know."""
    peer = Peer().open().begin().attach(receiver=True)
    peer.send(_flow(delivery_count=7, link_credit=0xFFFFFFFF, echo=True))
    assert peer.answer(Flow).link_credit == _link(peer).credit == 0xFFFFFFFF


_FRAME = 512
# About as much as a frame holds beside its own fields, and what needs several frames; or comes in pieces.
_payloads = st.one_of(
    st.integers(0, 60).map(bytes),
    st.integers(_FRAME - 60, _FRAME + 10).map(bytes),
    st.integers(0, 4 * _FRAME).map(bytes),
    st.sampled_from([Pieces(b"in", b"pieces"), Pieces(bytes(2 * _FRAME))]),
)
_tag_sizes = st.sampled_from([1, 4, 16, 32])
_runs = st.lists(st.tuples(st.lists(_payloads, min_size=1, max_size=8), _tag_sizes, st.integers(0, 6)))


@given(
    _runs, st.integers(1, 12), st.sampled_from([0, 5, 4090, MASK - 3, MASK]), st.none() | st.integers(0, 3)
)
def test_messages_that_are_sent_together_leave_as_they_would_alone(
    runs: list[tuple[list[bytes | Pieces], int, int]], window: int, first: int, end: int | None
) -> None:
    """Whatever waits for a window or needs more than one frame, where the ids wrap, and when the link is
    over; `end` is the run before which it is.
    """
    seen = []
    for together in (True, False):
        peer = Peer().open(max_frame_size=_FRAME).begin(window=window).attach(receiver=True)
        link, ids, told = _link(peer), list[int](), list[bytes]()
        session = link.session
        session.next_delivery_id = session.next_outgoing_id = first
        for number, (payloads, tag_size, opened) in enumerate(runs):
            if number == end:
                link.detach()
            tags = [b"%0*d" % (tag_size, at) for at in range(len(payloads))]
            if together:
                ids += link.send_all(payloads, tags)
            else:
                ids += [link.send(payload, tag) for payload, tag in zip(payloads, tags, strict=True)]
            told.append(peer.machine.data_to_send())
            flow = Flow(
                next_incoming_id=session.next_outgoing_id,
                incoming_window=opened,
                next_outgoing_id=0,
                outgoing_window=9,
            )
            peer.machine.receive_data(encode_frame(0, flow), 0.0)
            told.append(peer.machine.data_to_send())
        counts = (link.credit, link.delivery_count, session.remote_window, len(session.outbox.items))
        numbers = (session.next_outgoing_id, session.next_delivery_id, list(session.unsettled_sent))
        seen.append((ids, told, counts, numbers))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("length", [1, 16, 100])
def test_runs_of_any_length_leave_a_bounded_number_of_deliveries_unsettled(length: int) -> None:
    """As single ones do: no run need have the border in its midst at which they are looked at."""
    peer = Peer(limits=CodecLimits(max_unsettled=500)).open().begin(window=100_000).attach(receiver=True)
    link = _link(peer)
    for _ in range(0, 3 * 4096, length):
        link.send_all([b"m"] * length, [b"%016d" % length] * length)
    assert len(link.session.unsettled_sent) <= 500 + 4096

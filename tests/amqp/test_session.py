import pytest

from pairbus.amqp.connection import Connection
from pairbus.amqp.errors import UsageError
from pairbus.amqp.events import Closed, LinkAttached, LinkFlowed, SessionEnded, Settled, TransferReceived
from pairbus.amqp.limits import CodecLimits
from pairbus.amqp.performatives import (
    ACCEPTED,
    Accepted,
    AmqpError,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.session import SessionState
from pairbus.conditions import FRAMING_ERROR, HANDLE_IN_USE, RESOURCE_LIMIT, UNATTACHED_HANDLE
from tests.amqp.peer import Peer
from tests.amqp.wire import Wire


def _flow(
    *,
    window: int = 1000,
    seen: int | None = 0,
    handle: int | None = None,
    link_credit: int | None = None,
    delivery_count: int | None = None,
    echo: bool = False,
) -> Flow:
    return Flow(
        next_incoming_id=seen,
        incoming_window=window,
        next_outgoing_id=0,
        outgoing_window=9,
        handle=handle,
        link_credit=link_credit,
        delivery_count=delivery_count,
        echo=echo,
    )


def test_ending_is_confirmed() -> None:
    wire = Wire().open()
    session, other = wire.begin()
    session.end(AmqpError("amqp:internal-error", "enough"))
    assert session.state is SessionState.END_SENT
    wire.pump()
    assert wire.server_all(SessionEnded) == [SessionEnded(other, AmqpError("amqp:internal-error", "enough"))]
    assert wire.client_all(SessionEnded) == [SessionEnded(session, None)]
    assert wire.client.sessions == wire.server.sessions == []


def test_a_session_that_is_over_still_shows_its_links() -> None:
    wire = Wire().open()
    session, other = wire.begin()
    link, answer = wire.attach(session, sender=True, credit=1)
    session.end()
    wire.pump()
    assert (session.links, other.links) == ([link], [answer])
    assert wire.server.link_count == wire.client.link_count == 0
    with pytest.raises(UsageError):
        session.attach(name="late", role_sender=True)


# Windows


def test_transfers_wait_for_the_window_and_are_written_when_it_opens() -> None:
    peer = Peer().open().begin(window=2).attach(receiver=True)
    link = peer.event(LinkAttached).link
    peer.send(_flow(window=2, handle=0, link_credit=10, delivery_count=0))
    for number in range(5):
        link.send(b"%d" % number, tag=b"%d" % number)
    peer.collect()
    assert _payloads(peer) == [b"0", b"1"]
    peer.send(_flow(window=1, seen=2))
    assert _payloads(peer) == [b"0", b"1", b"2"]
    peer.send(_flow(window=0, seen=3))
    assert len(_payloads(peer)) == 3
    peer.send(_flow(window=100, seen=3))
    assert _payloads(peer) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_flow_without_next_incoming_id_counts_from_the_beginning() -> None:
    peer = Peer().open().begin(window=0).attach(receiver=True)
    link = peer.event(LinkAttached).link
    peer.send(_flow(window=1, seen=None, handle=0, link_credit=10))
    link.send(b"a", tag=b"a")
    link.send(b"b", tag=b"b")
    peer.collect()
    assert _payloads(peer) == [b"a"]


def test_a_window_of_all_bits_is_open() -> None:
    peer = Peer().open().begin(window=0xFFFFFFFF).attach(receiver=True)
    peer.send(_flow(window=0xFFFFFFFF, handle=0, link_credit=0xFFFFFFFF, delivery_count=0))
    link = peer.event(LinkAttached).link
    assert link.sendable == 0xFFFFFFFF
    link.send(b"a", tag=b"a")
    peer.send(_flow(window=0xFFFFFFFF, seen=0))
    link.send(b"b", tag=b"b")
    peer.collect()
    assert _payloads(peer) == [b"a", b"b"]


def _payloads(peer: Peer) -> list[bytes]:
    return [payload for _, performative, payload in peer.answers if isinstance(performative, Transfer)]


def test_messages_of_many_frames_pass_small_windows_whole_and_in_order() -> None:
    limits = CodecLimits(session_window=3)
    wire = Wire(
        client=Connection(server=False, container_id="client", max_frame_size=512, limits=limits),
        server=Connection(server=True, container_id="server", max_frame_size=600, limits=limits),
    ).open()
    session, _ = wire.begin()
    sender, _ = wire.attach(session, sender=True, credit=10)
    bodies = [bytes([number]) * (3000 * number) for number in range(6)]
    for number, body in enumerate(bodies):
        sender.send(body, tag=b"%d" % number, settled=number % 2 == 0)
    wire.pump()
    received = wire.server_all(TransferReceived)
    assert [event.payload for event in received] == bodies
    assert [event.settled for event in received] == [True, False] * 3
    receiver, answer = wire.attach(session, sender=False, name="back")
    receiver.flow(10)
    wire.pump()
    for number, body in enumerate(bodies):
        answer.send(body, tag=b"%d" % number, message_format=0x80013700)
    wire.pump()
    assert [event.payload for event in wire.client_all(TransferReceived)] == bodies
    assert {event.message_format for event in wire.client_all(TransferReceived)} == {0x80013700}
    assert wire.client.partial_bytes == wire.server.partial_bytes == 0


def test_our_window_is_opened_again() -> None:
    peer = Peer(limits=CodecLimits(session_window=10)).open().begin().attach()
    for number in range(4):
        peer.transfer(delivery_id=number)
    assert not peer.has_answer(Flow)
    peer.transfer(delivery_id=4)
    flow = peer.answer(Flow)
    assert (flow.next_incoming_id, flow.incoming_window, flow.handle) == (5, 10, None)


def test_a_peer_that_overruns_window_and_credit_is_served() -> None:
    peer = Peer(limits=CodecLimits(session_window=10)).open().begin().attach()
    for number in range(50):
        peer.transfer(b"m", delivery_id=number)
    assert len(peer.all_events(TransferReceived)) == 50
    assert peer.event(LinkAttached).link.credit == -50
    assert not peer.has_answer(Detach)
    assert not peer.all_events(Closed)


def test_a_session_echo_is_answered() -> None:
    peer = Peer().open().begin()
    peer.send(_flow(echo=True))
    assert peer.answer(Flow).handle is None
    assert not peer.all_events(LinkFlowed)


def test_an_owner_learns_when_a_clogged_session_is_free_again() -> None:
    peer = Peer(limits=CodecLimits(max_held_bytes=1000)).open().begin(window=0).attach(receiver=True)
    link = peer.event(LinkAttached).link
    peer.send(_flow(window=0, handle=0, link_credit=100, delivery_count=0))
    sent = 0
    while link.sendable:
        link.send(b"x" * 300, tag=b"%d" % sent)
        sent += 1
    assert (sent, link.credit) == (4, 96)
    before = len(peer.all_events(LinkFlowed))
    peer.send(_flow(window=1, seen=0))
    assert peer.all_events(LinkFlowed)[before:] == [LinkFlowed(link, 96, False, False)]


def test_who_drains_over_and_over_while_its_window_is_shut_is_told_once() -> None:
    peer = Peer().open().begin(window=0).attach(receiver=True)
    link = peer.event(LinkAttached).link
    said = 0
    for count in (1, 2):
        peer.send(_flow(window=0, handle=0, link_credit=count, delivery_count=link.delivery_count))
        link.send(b"x", tag=b"t")
        for _ in range(100):
            peer.send(_flow(window=0, handle=0, link_credit=5, delivery_count=link.delivery_count))
            link.drained()
        said += 2  # the message, and behind it the word that there are no more
        assert len(link.session.outbox.items) == said
    peer.send(_flow(window=10, seen=0))
    told = [answer for _, answer, _ in peer.answers if isinstance(answer, Transfer | Flow)]
    assert [type(each) for each in told] == [Transfer, Flow] * 2
    assert [each.delivery_count for each in told if isinstance(each, Flow)] == [501, 1002]
    assert link.session.connection.waiting_bytes == 0


# Handles


def test_unattached_handles_end_the_session_and_not_the_connection() -> None:
    for performative, payload in (
        (Transfer(7, 0, b"t"), b"x"),
        (_flow(handle=7, link_credit=1), b""),
        (Detach(7), b""),
    ):
        peer = Peer().open().begin()
        peer.send(performative, payload)
        error = peer.answer(End).error
        assert error is not None
        assert error.condition == UNATTACHED_HANDLE
        assert peer.event(SessionEnded).error == error
        peer.send(performative, payload)
        assert len([1 for _, answer, _ in peer.answers if isinstance(answer, End)]) == 1
        peer.send(End())
        assert len(peer.all_events(SessionEnded)) == 1
        assert peer.machine.sessions == []
        peer.begin()
        assert not peer.all_events(Closed)


def test_a_transfer_on_a_link_that_we_send_on_ends_the_session() -> None:
    peer = Peer().open().begin().attach(receiver=True)
    peer.transfer()
    error = peer.event(SessionEnded).error
    assert error is not None
    assert error.condition == UNATTACHED_HANDLE


def test_a_handle_in_use_ends_the_session() -> None:
    peer = Peer().open().begin().attach()
    peer.send(Attach("other", 0, True))
    error = peer.answer(End).error
    assert error is not None
    assert error.condition == HANDLE_IN_USE


def test_handle_max_is_announced_and_enforced() -> None:
    peer = Peer(limits=CodecLimits(max_links=4)).open().begin()
    assert peer.answer(Begin).handle_max == 3
    peer.attach(handle=3)
    peer.attach(handle=4, name="more", accept=False)
    peer.assert_closed_with(FRAMING_ERROR)


def test_the_peers_handle_max_is_kept() -> None:
    peer = Peer().open().begin(handle_max=0).attach()
    session = peer.event(LinkAttached).link.session
    with pytest.raises(UsageError):
        session.attach(name="mine", role_sender=True)
    peer.send(Attach("more", 1, True))
    error = peer.answer(End).error
    assert error is not None
    assert error.condition == RESOURCE_LIMIT


def test_links_a_connection_are_bounded() -> None:
    peer = Peer(limits=CodecLimits(max_connection_links=2)).open().begin()
    for handle in range(2):
        peer.attach(handle=handle, name=str(handle))
    peer.attach(handle=2, name="2", accept=False)
    assert len(peer.all_events(LinkAttached)) == 2
    error = peer.answer(Detach).error
    assert error is not None
    assert error.condition == RESOURCE_LIMIT
    peer.send(Detach(2))
    peer.send(Detach(1))
    peer.attach(handle=1, name="again")
    assert len(peer.all_events(LinkAttached)) == 3


def test_one_name_may_be_used_in_both_directions() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    out, _ = wire.attach(session, sender=True, name="same", credit=1)
    back, _ = wire.attach(session, sender=False, name="same")
    assert out.is_sender
    assert not back.is_sender
    assert [event.link for event in wire.client_all(LinkAttached)] == [out, back]


def test_a_name_that_is_being_attached_is_taken() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    session.attach(name="same", role_sender=True, source=Source("a"), target=Target("a"))
    with pytest.raises(UsageError):
        session.attach(name="same", role_sender=True)


# Dispositions


def _unsettled_peer(count: int) -> Peer:
    peer = Peer().open().begin().attach(receiver=True)
    link = peer.event(LinkAttached).link
    for number in range(count):
        link.send(b"m", tag=b"%d" % number)
    peer.collect()
    return peer


@pytest.mark.parametrize("last", [None, 2])
def test_one_delivery_is_settled(last: int | None) -> None:
    peer = _unsettled_peer(4)
    peer.send(Disposition(True, 2, last, True, ACCEPTED))
    event = peer.event(Settled)
    assert (event.delivery_ids, event.state, event.settled) == ([2], Accepted(), True)
    peer.send(Disposition(True, 2, 2, True, ACCEPTED))
    assert len(peer.all_events(Settled)) == 1


@pytest.mark.parametrize("last", [3, 1000, 0x7FFFFFFF])
def test_ranges_are_settled_without_walking_through_them(last: int) -> None:
    peer = _unsettled_peer(4)
    peer.send(Disposition(True, 1, last, True, ACCEPTED))
    assert [event.delivery_ids for event in peer.all_events(Settled)] == [[1, 2, 3]]


def test_a_range_that_runs_backwards_settles_nothing() -> None:
    peer = _unsettled_peer(4)
    peer.send(Disposition(True, 3, 1, True, ACCEPTED))
    assert not peer.all_events(Settled)


def test_an_unsettled_state_waits_for_our_settlement() -> None:
    peer = _unsettled_peer(1)
    link = peer.event(LinkAttached).link
    for _ in range(2):
        peer.send(Disposition(True, 0, 0, False, ACCEPTED))
    assert [event.settled for event in peer.all_events(Settled)] == [False, False]
    link.settle(0, ACCEPTED)
    peer.collect()
    assert peer.answer(Disposition) == Disposition(False, 0, 0, True, ACCEPTED)
    peer.send(Disposition(True, 0, 0, False, ACCEPTED))
    assert len(peer.all_events(Settled)) == 2


def test_a_range_over_two_links_is_told_link_by_link() -> None:
    peer = Peer().open().begin().attach(receiver=True)
    peer.attach(receiver=True, handle=1, name="other")
    links = [event.link for event in peer.all_events(LinkAttached)]
    for number in range(6):
        links[number % 2].send(b"m", tag=b"%d" % number)
    peer.send(Disposition(True, 0, 5, True, ACCEPTED))
    told = [(event.link, event.delivery_ids) for event in peer.all_events(Settled)]
    assert told == [(links[0], [0, 2, 4]), (links[1], [1, 3, 5])]


def test_a_sender_may_settle_what_it_sent() -> None:
    peer = Peer().open().begin().attach()
    peer.transfer(delivery_id=9)
    peer.send(Disposition(False, 9, None, True))
    event = peer.event(Settled)
    assert (event.delivery_ids, event.state, event.settled) == ([9], None, True)


def test_unsettled_deliveries_are_bounded() -> None:
    limits = CodecLimits(max_unsettled=100, session_window=50)
    peer = Peer(limits=limits).open().begin(window=1 << 20).attach(receiver=True)
    peer.attach(handle=1, name="in")
    out, back = (event.link for event in peer.all_events(LinkAttached))
    for _ in range(10_000):
        out.send(b"", tag=b"t")
    assert len(out.session.unsettled_sent) <= 4096 + 100
    for number in range(1000):
        peer.send(Transfer(1, number, b"t"))
    assert len(back.session.unsettled_received) <= 100 + 25

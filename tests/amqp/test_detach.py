"""How links end: detached by either side, before their answer, for a reason that fits."""

import pytest

from pairbus.amqp.events import Closed, LinkAttached, LinkDetached, LinkFlowed, TransferReceived
from pairbus.amqp.frames import decode_performative
from pairbus.amqp.link import Link, LinkState
from pairbus.amqp.performatives import (
    AmqpError,
    Attach,
    Detach,
    Flow,
    Rejected,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.types import Symbol
from pairbus.conditions import DETACH_FORCED, NOT_FOUND
from tests.amqp.peer import Peer
from tests.amqp.wire import Wire


def _link(peer: Peer) -> Link:
    return peer.event(LinkAttached).link


def test_detaching_is_confirmed_once() -> None:
    wire = Wire().open()
    session, other = wire.begin()
    link, answer = wire.attach(session, sender=True, credit=5)
    link.send(b"m", tag=b"1")
    link.detach()
    link.detach()
    wire.pump()
    assert wire.client_all(LinkDetached) == [LinkDetached(link, True, None)]
    assert wire.server_all(LinkDetached) == [LinkDetached(answer, True, None)]
    assert link.state is answer.state is LinkState.DETACHED
    assert session.links == other.links == []
    assert not session.unsettled_sent
    assert not other.unsettled_received


def test_a_forced_detach_tells_its_reason() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    link, answer = wire.attach(session, sender=False)
    answer.detach(AmqpError(DETACH_FORCED, "the queue is gone", {Symbol("k"): 1}))
    wire.pump()
    assert wire.client_event(LinkDetached) == LinkDetached(
        link, True, AmqpError(DETACH_FORCED, "the queue is gone", {Symbol("k"): 1})
    )


def test_a_suspension_is_answered_with_one() -> None:
    peer = Peer().open().begin().attach()
    peer.send(Detach(0, False))
    assert peer.answer(Detach) == Detach(0, False)
    assert not peer.event(LinkDetached).closed


def test_flows_that_cross_our_detach_are_passed_over() -> None:
    peer = Peer().open().begin().attach(receiver=True)
    _link(peer).detach()
    flow = Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, handle=0)
    peer.send(flow)
    assert not peer.all_events(LinkFlowed)
    assert not peer.all_events(Closed)


def test_both_sides_may_detach_at_once() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    link, answer = wire.attach(session, sender=True)
    link.detach()
    answer.detach()
    wire.pump()
    assert len(wire.client_all(LinkDetached)) == len(wire.server_all(LinkDetached)) == 1
    assert not wire.client_all(Closed)


def test_a_peer_that_detaches_before_our_answer_gets_both() -> None:
    peer = Peer().open().begin().attach(accept=False)
    peer.send(Detach(0, True))
    assert [type(answer) for _, answer, _ in peer.answers[-2:]] == [Attach, Detach]
    assert peer.answer(Attach).target is None
    before = len(peer.answers)
    _link(peer).accept(initial_credit=5)
    _link(peer).refuse(AmqpError(NOT_FOUND))
    peer.collect()
    assert len(peer.answers) == before


def test_giving_up_before_the_answer() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    link = session.attach(name="x", role_sender=True, source=Source("a"), target=Target("b"))
    link.detach()
    wire.pump()
    assert not wire.client_all(LinkAttached)
    assert wire.client_all(LinkDetached) == [LinkDetached(link, True, None)]
    assert wire.client.link_count == wire.server.link_count == 0
    again, _ = wire.attach(session, sender=True, name="x", credit=1)
    assert again.sendable == 1


def test_messages_held_for_a_link_that_is_over_are_dropped() -> None:
    peer = Peer().open().begin(window=0).attach(receiver=True)
    peer.attach(receiver=True, handle=1, name="other")
    gone, stays = (event.link for event in peer.all_events(LinkAttached))
    gone.send(b"gone", tag=b"1")
    stays.send(b"stays", tag=b"2")
    gone.detach()
    peer.send(Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9))
    sent = [payload for _, answer, payload in peer.answers if isinstance(answer, Transfer)]
    assert sent == [b"stays"]


def test_a_handle_is_used_again() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    for number in range(10):
        link, _ = wire.attach(session, sender=True, name=str(number), credit=1)
        assert link.handle == 0
        link.send(b"m", tag=b"1")
        link.detach()
        wire.pump()
    assert len(wire.server_all(TransferReceived)) == 10


LONG_ERROR = AmqpError("amqp:not-allowed", "Wörter " * 200)


@pytest.mark.parametrize("of", ["delivery", "link", "session", "connection"])
def test_a_reason_is_cut_to_what_the_peers_frames_hold(of: str) -> None:
    peer = Peer().open(max_frame_size=512).begin().attach()
    peer.transfer()
    link = _link(peer)
    if of == "delivery":
        link.settle(0, Rejected(LONG_ERROR))
    elif of == "link":
        link.detach(LONG_ERROR)
    elif of == "session":
        link.session.end(LONG_ERROR)
    else:
        peer.machine.close(LONG_ERROR)
    frame = peer.machine.data_to_send()
    assert 500 < len(frame) <= 512
    answer, _ = decode_performative(frame, 8, len(frame))
    error = answer.state.error if of == "delivery" else answer.error
    assert error.condition == LONG_ERROR.condition
    assert LONG_ERROR.description.startswith(error.description)

import pytest

from pairbus.amqp.connection import Connection, ConnectionState
from pairbus.amqp.errors import UsageError
from pairbus.amqp.events import Closed, Opened, SessionBegun, SessionEnded
from pairbus.amqp.frames import AMQP_HEADER, HEARTBEAT, encode_frame
from pairbus.amqp.limits import CodecLimits
from pairbus.amqp.performatives import AmqpError, Attach, Begin, Close, Detach, End, Open
from pairbus.amqp.types import Symbol
from pairbus.conditions import (
    CONNECTION_FORCED,
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    RESOURCE_LIMIT,
)
from tests.amqp.peer import Peer
from tests.amqp.wire import Wire


def test_both_sides_open_and_close() -> None:
    wire = Wire().open()
    assert wire.client_event(Opened).open.container_id == "server"
    opened = wire.server_event(Opened).open
    assert (opened.container_id, opened.hostname) == ("client", "localhost")
    assert {wire.client.state, wire.server.state} == {ConnectionState.OPENED}
    wire.client.close(AmqpError("amqp:internal-error", "enough"))
    wire.pump()
    assert wire.client_all(Closed) == [Closed(None, True)]
    assert wire.server_all(Closed) == [Closed(AmqpError("amqp:internal-error", "enough", {}), False)]
    assert {wire.client.state, wire.server.state} == {ConnectionState.CLOSED}


def test_what_open_announces() -> None:
    server = Connection(
        server=True,
        container_id="server",
        idle_timeout=60.0,
        max_frame_size=70000,
        channel_max=7,
        properties={Symbol("product"): "test"},
    )
    opening = Wire(server=server).open().client_event(Opened).open
    assert opening == Open("server", None, 70000, 7, 30000, properties={Symbol("product"): "test"})


def test_an_open_with_all_limits_left_out() -> None:
    peer = Peer().open()
    assert peer.machine.remote_open == Open("peer")
    assert peer.machine.remote_max_frame_size == 1 << 20


def test_both_sides_may_close_at_once() -> None:
    wire = Wire().open()
    wire.client.close()
    wire.server.close()
    wire.pump()
    assert len(wire.client_all(Closed)) == len(wire.server_all(Closed)) == 1


def test_closing_twice_says_it_once() -> None:
    wire = Wire().open()
    wire.client.close()
    assert wire.client.data_to_send()
    wire.client.close()
    assert wire.client.data_to_send() == b""


def test_a_close_before_the_peers_open_opens_first() -> None:
    peer = Peer()
    peer.feed(AMQP_HEADER)
    peer.machine.close()
    peer.collect()
    assert [type(performative) for _, performative, _ in peer.answers] == [Open, Close]
    peer.send(Open("peer"))
    peer.send(Close())
    assert peer.event(Closed).local
    assert not peer.all_events(Opened)


def test_after_the_end_all_input_is_ignored_and_calls_do_nothing() -> None:
    wire = Wire().open()
    session, _ = wire.begin()
    link, _ = wire.attach(session, sender=True, credit=3)
    wire.server.close()
    wire.pump()
    for machine in (wire.client, wire.server):
        assert machine.receive_data(AMQP_HEADER + b"\xff" * 50, 5.0) == []
        assert machine.tick(1e9) == []
        assert machine.next_deadline is None
        machine.close()
        machine.open()
        with pytest.raises(UsageError):
            machine.begin()
    assert link.send(b"x", tag=b"t") == -1
    link.settle(0, None)
    link.settle_range(0, 5, None)
    link.drained()
    link.flow(3)
    link.detach()
    session.end()
    assert wire.client.data_to_send() == b""


def test_frames_that_cross_our_close_are_passed_over() -> None:
    peer = Peer().open().begin()
    peer.machine.close()
    peer.begin(channel=1)
    peer.send(Attach("a", 0, True))
    peer.send(End())
    assert peer.machine.state is ConnectionState.CLOSE_SENT
    assert not peer.all_events(SessionEnded)
    peer.send(Close())
    assert peer.all_events(Closed) == [Closed(None, True)]


def test_open_may_be_asked_for_late() -> None:
    wire = Wire()
    wire.client.start()
    wire.pump()
    assert not wire.server_all(Opened)
    assert repr(wire.client) == "<Connection client waiting for open>"
    wire.client.open()
    wire.pump()
    assert wire.client_event(Opened)


def test_a_client_may_not_begin_before_it_is_open() -> None:
    client = Connection(server=False, container_id="client")
    with pytest.raises(UsageError):
        client.begin()


@pytest.mark.parametrize(
    "performative", [Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), End()]
)
def test_nothing_comes_before_open(performative: Begin | End) -> None:
    peer = Peer()
    peer.feed(AMQP_HEADER)
    peer.send(performative)
    peer.assert_closed_with(ILLEGAL_STATE)
    assert isinstance(peer.answers[0][1], Open)


def test_a_second_open_is_errant() -> None:
    peer = Peer().open()
    peer.send(Open("again"))
    peer.assert_closed_with(ILLEGAL_STATE)


def test_a_frame_size_below_the_floor_is_refused() -> None:
    peer = Peer().open(max_frame_size=511)
    peer.assert_closed_with(FRAMING_ERROR)


def test_bytes_behind_a_performative_are_refused() -> None:
    peer = Peer().open()
    peer.send(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), b"surplus")
    peer.assert_closed_with(DECODE_ERROR)


def test_bytes_that_are_no_performative_are_refused() -> None:
    for body in (b"\x40", b"\xff\xff", b"\x00\x53\x10", b"\x00\x53\x10\x45", b"\x00\x40\x45"):
        peer = Peer().open()
        peer.feed((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
        assert peer.event(Closed).error is not None
        assert peer.answer(Close).error is not None


def test_a_missing_field_is_named() -> None:
    peer = Peer().open()
    peer.feed(b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x11\x45")
    peer.assert_closed_with(INVALID_FIELD)
    error = peer.answer(Close).error
    assert error is not None
    assert "next_outgoing_id" in error.description


def test_channel_max_is_enforced() -> None:
    peer = Peer(channel_max=3).open()
    peer.begin(channel=3)
    assert peer.all_events(SessionBegun)
    peer.begin(channel=4)
    peer.assert_closed_with(FRAMING_ERROR)


def test_sessions_a_connection_are_bounded_by_what_is_announced() -> None:
    peer = Peer(limits=CodecLimits(max_sessions=2)).open()
    assert peer.answer(Open).channel_max == 1
    peer.begin(channel=0).begin(channel=1).begin(channel=2)
    peer.assert_closed_with(FRAMING_ERROR)


def test_a_channel_is_begun_once_and_can_be_used_again() -> None:
    peer = Peer().open().begin(channel=5)
    peer.send(End(), channel=5)
    peer.begin(channel=5)
    assert len(peer.all_events(SessionBegun)) == 2
    peer.begin(channel=5)
    peer.assert_closed_with(ILLEGAL_STATE)


def test_the_peers_channel_max_is_kept() -> None:
    peer = Peer().open(channel_max=0).begin(channel=0)
    with pytest.raises(UsageError):
        peer.machine.begin()
    peer.begin(channel=1)
    peer.assert_closed_with(RESOURCE_LIMIT)


def test_frames_on_a_channel_without_session_are_errant() -> None:
    peer = Peer().open()
    peer.send(Attach("link", 0, False), channel=9)
    peer.assert_closed_with(ILLEGAL_STATE)


def test_frames_behind_the_end_of_a_session_are_passed_over() -> None:
    """The Python SDK ends its session first and detaches its links afterwards."""
    peer = Peer().open().begin(channel=2)
    peer.send(End(), channel=2)
    peer.send(Detach(0, True), channel=2)
    assert not peer.all_events(Closed)
    peer.begin(channel=2)
    assert len(peer.all_events(SessionBegun)) == 2


@pytest.mark.parametrize("remote_channel", [0, 9])
def test_a_begin_that_answers_nothing_is_errant(remote_channel: int) -> None:
    peer = Peer().open().begin(channel=0)
    answer = Begin(remote_channel=remote_channel, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    peer.send(answer, channel=1)
    peer.assert_closed_with(ILLEGAL_STATE)


def test_either_side_may_begin_sessions() -> None:
    wire = Wire().open()
    ours = wire.server.begin()
    theirs = wire.client.begin()
    wire.pump()
    assert ours in [event.session for event in wire.server_all(SessionBegun)]
    assert theirs in [event.session for event in wire.client_all(SessionBegun)]
    assert len(wire.client.sessions) == len(wire.server.sessions) == 2


def test_many_sessions_come_and_go() -> None:
    wire = Wire().open()
    sessions = [wire.client.begin() for _ in range(20)]
    wire.pump()
    for session in sessions[::2]:
        session.end()
    wire.pump()
    assert len(wire.client_all(SessionEnded)) == len(wire.server_all(SessionEnded)) == 10
    assert len(wire.client.sessions) == len(wire.server.sessions) == 10
    assert wire.client.begin().channel == 0


# Time


def test_heartbeats_go_out_at_half_the_peers_time_out() -> None:
    peer = Peer().open(idle_time_out=60000)
    machine = peer.machine
    assert machine.next_deadline == 30.0
    assert machine.tick(29.9) == []
    assert machine.data_to_send() == b""
    machine.tick(30.0)
    assert machine.data_to_send() == HEARTBEAT
    assert machine.next_deadline == 60.0


def test_other_output_stands_for_a_heartbeat() -> None:
    peer = Peer().open(idle_time_out=60000).begin()
    machine = peer.machine
    machine.tick(20.0)
    machine.begin()
    assert machine.data_to_send()
    assert machine.next_deadline == 50.0
    machine.tick(49.0)
    assert machine.data_to_send() == b""


def test_a_silent_peer_is_closed() -> None:
    server = Connection(server=True, container_id="server", sasl=False, idle_timeout=10.0, now=100.0)
    assert server.next_deadline == 110.0
    server.receive_data(AMQP_HEADER + encode_frame(0, Open("peer")), 105.0)
    assert server.next_deadline == 115.0
    server.receive_data(HEARTBEAT, 114.0)
    assert server.tick(115.0) == []
    assert server.tick(123.9) == []
    server.data_to_send()
    (closed,) = server.tick(124.0)
    assert isinstance(closed, Closed)
    assert closed.error is not None
    assert closed.error.condition == CONNECTION_FORCED
    assert b"amqp:connection:forced" in server.data_to_send()
    assert server.tick(500.0) == []


def test_two_machines_keep_each_other_alive() -> None:
    wire = Wire(
        client=Connection(server=False, container_id="client", idle_timeout=20.0),
        server=Connection(server=True, container_id="server", idle_timeout=8.0),
    ).open()
    while wire.now < 100.0:
        due = [machine.next_deadline for machine in (wire.client, wire.server)]
        wire.now = min(when for when in due if when is not None)
        wire.client_events += wire.client.tick(wire.now)
        wire.server_events += wire.server.tick(wire.now)
        wire.pump()
    assert not wire.client_all(Closed)
    assert not wire.server_all(Closed)


def test_a_peer_that_does_not_confirm_our_close_is_left() -> None:
    peer = Peer().open()
    peer.machine.tick(50.0)
    peer.machine.close()
    assert peer.machine.next_deadline == 60.0
    assert peer.machine.tick(59.0) == []
    assert peer.machine.tick(60.0) == [Closed(None, True)]


def test_without_time_outs_there_is_no_deadline() -> None:
    assert Peer().open().machine.next_deadline is None

"""What one peer can make the machine hold, or do at a time, whatever it sends."""

import tracemalloc
import uuid

import pytest

from pairbus.amqp.connection import Connection
from pairbus.amqp.decoding import decode
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.events import Closed, LinkAttached, TransferReceived
from pairbus.amqp.frames import AMQP_HEADER, HEARTBEAT, encode_frame
from pairbus.amqp.limits import MAX_ELEMENTS, CodecLimits, StrangerLimits
from pairbus.amqp.performatives import (
    ACCEPTED,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    Flow,
    Open,
    Rejected,
    Source,
    Target,
    Transfer,
)
from pairbus.amqp.types import Array, Described, Float, Symbol, Timestamp, UInt
from pairbus.conditions import FRAMING_ERROR, INVALID_FIELD, RESOURCE_LIMIT
from tests.amqp.peer import Peer


def _map(key: object, value: object = None) -> bytes:
    content = encode(key) + encode(value)
    return b"\xd1" + (len(content) + 4).to_bytes(4, "big") + b"\0\0\0\2" + content


@pytest.mark.parametrize("key", ["text", Symbol("symbol"), b"tag", 1, UInt(1), Timestamp(1)])
def test_keys_of_maps(key: object) -> None:
    assert decode(_map(key))[0] == {key: None}


@pytest.mark.parametrize(
    "key",
    [uuid.UUID(int=1), 1.0, Float(1.0), True, None, Described(1, uuid.UUID(int=1)), Array([1], int), [1], {}],
    ids=repr,
)
def test_keys_that_nobody_needs_are_refused(key: object) -> None:
    """Among them are all whose hashes a peer can make collide."""
    with pytest.raises(DecodeError, match="key of a map"):
        decode(_map(key))


@pytest.mark.parametrize("depth", [1, 3])
def test_the_elements_of_a_value_are_counted_over_all_its_parts(depth: int) -> None:
    inner = b"\xd0\0\0\x10\x04\0\0\x10\0" + b"\x40" * 4096

    def wrapped(lists: int) -> bytes:
        raw = inner * lists
        count = lists
        for _ in range(depth):
            raw = b"\xd0" + (len(raw) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + raw
            count = 1
        return raw

    fitting = (MAX_ELEMENTS - 100) // 4096
    decode(wrapped(fitting))
    with pytest.raises(DecodeError, match="elements"):
        decode(wrapped(fitting + 1))


# Strangers

STRANGER = CodecLimits(stranger=StrangerLimits(max_links=3, max_sessions=2, max_bytes=2000))


class Stranger(Peer):
    """A peer that the machine does not trust yet."""

    def __init__(self, limits: CodecLimits = STRANGER) -> None:
        super().__init__()
        self.machine = Connection(
            server=True, container_id="server", sasl=False, limits=limits, trusted=False
        )


def test_a_stranger_has_few_sessions_and_links() -> None:
    peer = Stranger().open().begin()
    for handle in range(3):
        peer.attach(handle=handle, name=str(handle))
    peer.attach(handle=3, name="3", accept=False)
    error = peer.answer(Detach).error
    assert error is not None
    assert error.condition == RESOURCE_LIMIT
    peer.begin(channel=1)
    assert not peer.all_events(Closed)
    peer.begin(channel=2)
    peer.assert_closed_with(RESOURCE_LIMIT)


def test_refused_links_that_are_never_taken_back_end_the_connection() -> None:
    peer = Stranger().open().begin()
    for handle in range(7):
        peer.attach(handle=handle, name=str(handle), accept=False)
    peer.assert_closed_with(RESOURCE_LIMIT)


@pytest.mark.parametrize("parts", [1, 30])
def test_a_stranger_is_held_few_bytes_for(parts: int) -> None:
    peer = Stranger().open().begin().attach()
    if parts == 1:  # the head of a frame says how long it will be
        peer.feed(encode_frame(0, Transfer(0, 0, b"t"), b"x" * 3000)[:100])
        peer.assert_closed_with(FRAMING_ERROR)
    else:
        for _ in range(parts):
            peer.send(Transfer(0, 0, b"t", more=True), b"x" * 100)
        peer.assert_closed_with(RESOURCE_LIMIT)
    assert peer.machine.held_bytes == 0


def test_whoever_is_trusted_gets_what_the_limits_give() -> None:
    peer = Stranger().open().begin()
    peer.machine.trust()
    for handle in range(10):
        peer.attach(handle=handle, name=str(handle))
    peer.begin(channel=1).begin(channel=2)
    for number in range(30):
        peer.send(Transfer(0, 0, b"t", more=number < 29), b"x" * 130)
    assert len(peer.event(TransferReceived).payload) == 3900


def test_what_a_peer_says_of_itself_is_not_kept() -> None:
    """Maps of small things take fifty times their bytes."""
    many: dict[object, object] = {Symbol(str(number)): [] for number in range(400)}
    peer = Stranger(CodecLimits()).open(properties=many, offered_capabilities=(Symbol("x") * 300,))
    tracemalloc.start()
    peer.begin()
    for handle in range(10):
        attach = Attach(
            f"link-{handle}",
            handle,
            False,
            source=Source("q", filter=many),
            target=Target("q"),
            initial_delivery_count=0,
        )
        peer.send(attach)
        link = peer.event(LinkAttached).link
        peer.events.clear()
        link.accept()
        peer.machine.data_to_send()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 100_000
    assert peer.machine.remote_open == Open("peer")


def test_names_of_links_have_an_end() -> None:
    peer = Peer().open().begin().attach(name="n" * 1025, accept=False)
    assert peer.machine.sessions
    assert not peer.all_events(LinkAttached)
    errors = [performative for _, performative, _ in peer.answers if hasattr(performative, "error")]
    assert errors[-1].error.condition == INVALID_FIELD


# One read

BUDGET = CodecLimits(max_read_effort=80)


def _begun() -> bytes:
    begin = Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)
    return AMQP_HEADER + encode_frame(0, Open("peer")) + encode_frame(0, begin)


def _reads(peer: Peer, data: bytes) -> int:
    """Feed bytes, and call again as long as there is more; how often that was."""
    peer.feed(data)
    for number in range(1, 10_000):
        if not peer.machine.has_more:
            return number
        peer.feed(b"")
    raise AssertionError("it never ends")


def test_a_read_that_is_much_work_is_done_in_pieces() -> None:
    attaches = b"".join(
        encode_frame(0, Attach(str(number), number, False, source=Source("q"), initial_delivery_count=0))
        for number in range(100)
    )
    whole, pieces = Peer(), Peer(limits=BUDGET)
    assert _reads(whole, _begun() + attaches) == 1
    assert _reads(pieces, _begun() + attaches) >= 20
    names = [[event.attach.name for event in peer.all_events(LinkAttached)] for peer in (whole, pieces)]
    assert names[0] == names[1] == [str(number) for number in range(100)]


def test_flows_and_transfers_are_counted_as_well() -> None:
    flow = encode_frame(0, Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, echo=True))
    peer = Peer(limits=BUDGET).open().begin().attach()
    assert _reads(peer, flow * 100) == 5
    transfers = b"".join(encode_frame(0, Transfer(0, number, b"tag", 0, True), b"m") for number in range(201))
    assert _reads(peer, transfers) >= 3
    assert [event.delivery_id for event in peer.all_events(TransferReceived)] == list(range(201))


def test_frames_without_a_performative_are_counted_as_well() -> None:
    peer = Peer(limits=BUDGET).open().begin()
    assert _reads(peer, HEARTBEAT * 401) == 6


def test_settlements_are_counted_by_what_they_make_us_look_at() -> None:
    """A range that names what we do not know makes us look through all that we do."""
    peer = Peer(limits=BUDGET).open().begin(window=10_000).attach(receiver=True)
    link = peer.event(LinkAttached).link
    peer.send(Flow(incoming_window=10_000, next_outgoing_id=0, outgoing_window=1, handle=0, link_credit=5000))
    for _ in range(3000):
        link.send(b"m", tag=b"t")
    unknown = encode_frame(0, Disposition(True, 1_000_000, 2_000_000_000, True, ACCEPTED))
    assert _reads(peer, unknown * 50) == 50
    unlike = [
        encode_frame(0, Disposition(True, number, number + number % 2, False, ACCEPTED))
        for number in (*range(50), *range(1_000_000, 1_000_050))
    ]
    assert _reads(peer, b"".join(unlike)) >= 5


def test_a_read_cut_anywhere_means_the_same() -> None:
    attaches = b"".join(
        encode_frame(0, Attach(str(number), number, False, source=Source("q"), initial_delivery_count=0))
        for number in range(20)
    )
    data = _begun() + attaches
    for cut in range(0, len(data), 7):
        peer = Peer(limits=BUDGET)
        _reads(peer, data[:cut])
        _reads(peer, data[cut:])
        assert len(peer.all_events(LinkAttached)) == 20


# Deliveries that nobody settles


def test_links_that_are_over_are_forgotten_together() -> None:
    limits = CodecLimits(session_window=100_000)
    peer = Peer(limits=limits).open().begin(window=100_000)
    for handle in range(100):
        peer.attach(receiver=True, handle=handle, name=str(handle))
    links = [event.link for event in peer.all_events(LinkAttached)]
    unsettled = links[0].session.unsettled_sent
    walks = 0
    for link in links:
        for _ in range(50):
            link.send(b"m", tag=b"t")
    peer.collect()
    for handle in range(100):
        before = len(unsettled)
        peer.send(Detach(handle))
        walks += len(unsettled) < before
    assert 0 < walks < 10
    for _ in range(100):
        peer.attach(receiver=True, handle=0, name="again").send(Detach(0))
    assert not unsettled


BATCH = 0x80013700


def test_a_message_above_the_size_is_told_before_its_end() -> None:
    """Once, and the link goes on; what is still on its way is swallowed. Batches may be a little above."""
    peer = Peer(limits=CodecLimits(message_allowance=1 << 20)).open().begin().attach()
    peer.send(Transfer(0, 0, b"t", more=True), b"x" * 4096)
    assert peer.all_events(TransferReceived) == []
    peer.send(Transfer(0, more=True), b"x")
    (event,) = peer.all_events(TransferReceived)
    assert (event.payload, event.dropped, event.settled) == (b"", 4097, False)
    event.link.settle(0, Rejected(None))
    peer.send(Transfer(0, more=True), b"x" * 9000)
    peer.send(Transfer(0), b"x")
    peer.send(Transfer(0, 1, b"u", BATCH, more=True), b"x" * 5000)
    peer.send(Transfer(0), b"x" * 100)
    _, batch = peer.all_events(TransferReceived)
    assert (len(batch.payload), batch.delivery_id) == (5100, 1)
    assert peer.machine.held_bytes == 0


@pytest.mark.parametrize(
    "transfers",
    [
        [Transfer(0, 0, b"t", 0, more=True), Transfer(0, message_format=7)],
        [Transfer(0, 0, b"t", BATCH, more=True), Transfer(0, message_format=0)],
        [Transfer(0, 0, b"t", rcv_settle_mode=1)],
        [Transfer(0, 0, b"t", more=True), Transfer(0, rcv_settle_mode=1)],
    ],
)
def test_transfers_that_break_the_rules_of_their_link(transfers: list[Transfer]) -> None:
    peer = Peer().open().begin().attach()
    for transfer in transfers:
        peer.send(transfer, b"x")
    error = peer.answer(Detach).error
    assert error is not None
    assert error.condition == INVALID_FIELD
    assert peer.all_events(TransferReceived) == []
    assert peer.machine.held_bytes == 0


def test_modes_and_formats_that_are_fine() -> None:
    peer = Peer().open().begin().attach()
    for number in range(3):  # also the second time, from memory
        peer.send(Transfer(0, number, b"t", 0, rcv_settle_mode=0), b"x")
    peer.send(Transfer(0, 3, b"t", BATCH, more=True), b"x")
    peer.send(Transfer(0, 3, message_format=BATCH), b"x")
    assert len(peer.all_events(TransferReceived)) == 4


def test_an_open_belongs_on_channel_0() -> None:
    peer = Peer()
    peer.feed(AMQP_HEADER)
    peer.send(Open("peer"), channel=1)
    error = peer.answer(Close).error
    assert error is not None
    assert error.condition == FRAMING_ERROR


def test_a_message_far_above_the_size_is_told_and_not_kept() -> None:
    peer = Peer(limits=CodecLimits(message_allowance=1 << 20)).open().begin().attach()
    most = 0
    for number in range(20):
        peer.send(Transfer(0, 0, b"t", BATCH, more=number < 19), b"x" * 40_000)
        most = max(most, peer.machine.held_bytes)
    (event,) = peer.all_events(TransferReceived)
    assert (event.payload, event.dropped) == (b"", 80_000)
    assert most <= 4096 + 65536
    assert peer.machine.held_bytes == 0


@pytest.mark.parametrize(("asked", "due"), [(1, 0.5), (999, 0.5), (1000, 0.5), (4000, 2.0)])
def test_heartbeats_are_not_sent_more_often_than_twice_a_second(asked: int, due: float) -> None:
    peer = Peer().open(idle_time_out=asked)
    assert peer.machine.next_deadline == due

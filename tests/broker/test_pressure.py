"""A client that asks for more than it reads, or for more than its share, is held up and not the others."""

import asyncio
import math
import time

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus import conditions
from pairbus.amqp.events import LinkDetached, LinkFlowed, Opened, Settled, TransferReceived
from pairbus.amqp.frames import AMQP_HEADER, HEARTBEAT, encode_frame
from pairbus.amqp.link import Link
from pairbus.amqp.message import (
    Properties,
    encode_application_properties,
    encode_data,
    encode_properties,
    encode_value,
)
from pairbus.amqp.performatives import ACCEPTED, Attach, Begin, Detach, Open, Rejected, Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import Int, ULong
from pairbus.broker import QueueSettings
from pairbus.broker.access.grants import Grant
from pairbus.broker.links import consumers
from pairbus.broker.links.machine import Heartbeat
from pairbus.broker.links.pace import MOST_OUTPUT, Allowance
from pairbus.broker.links.peer import Peer
from pairbus.broker.links.sending_endpoint import SendingEndpoint
from tests.waiting import wait_until

from .bus import Bus, bodies, receive
from .keys import key_of
from .raw import RawClient

# What may be on its way at a time, whatever is asked for: a turn's worth, and one slice above it, twice.
MOST_HELD = 4 * MOST_OUTPUT


def fill(client: RawClient, messages: int, size: int) -> None:
    sender = client.attach("orders", sends=True)
    payload = b"\x00\x53\x75\xb0" + size.to_bytes(4, "big") + bytes(size)
    for _ in range(messages):
        client.send(sender, payload)


def peer_of(bus: Bus) -> Peer:
    (peer,) = bus.broker._hosts["contoso"].peers
    return peer


def held(peer: Peer) -> int:
    """Bytes that wait to be written to a client."""
    transport = peer._transport
    waiting = 0 if transport is None else transport.get_write_buffer_size()
    return waiting + sum(map(len, peer.machine._chunks))


def is_cut_after(bus: Bus, seconds: float) -> bool:
    """Whether nobody is connected any more. It may have read something into its kernel's buffers just now."""
    bus.pass_time(seconds)
    return not bus.broker._hosts["contoso"].peers


def ask_to_peek(client: RawClient, requests: Link, times: int) -> None:
    for number in range(times):
        body = {"from-sequence-number": 0, "message-count": Int(100)}
        requests.send(
            encode_properties(Properties(message_id=ULong(number)))
            + encode_application_properties({"operation": "com.microsoft:peek-message"})
            + encode_value(body),
            tag=b"t",
            settled=True,
        )


def ask_for_much(client: RawClient, kind: str) -> tuple[Link, int]:
    """Ask for some thirty megabytes, and read none of them; the link on which they come, and how many."""
    fill(client, 60, 200_000)
    if kind == "deliveries":
        link, count = client.attach("orders", sends=False), 60
        link.flow(1000)
    else:
        link, count = client.attach("orders/$management", sends=False), 30
        link.flow(1000)
        requests = client.attach("orders/$management", sends=True)
        ask_to_peek(client, requests, count)
    client.flush()
    return link, count


@pytest.mark.parametrize("kind", ["deliveries", "answers"])
def test_what_is_not_read_is_not_made(bus_without_client: Bus, client: RawClient, kind: str) -> None:
    peer = peer_of(bus_without_client)
    _, count = ask_for_much(client, kind)
    wait_until(lambda: peer._is_clogged)
    assert held(peer) < MOST_HELD
    received = 0
    most = 0
    while received < count:
        client.await_event(TransferReceived)
        received += 1
        most = max(most, held(peer))
    assert most < MOST_HELD


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize("kind", ["deliveries", "answers"])
def test_who_does_not_read_is_cut(bus_without_client: Bus, client: RawClient, kind: str) -> None:
    peer = peer_of(bus_without_client)
    ask_for_much(client, kind)
    wait_until(lambda: peer._is_clogged)
    bus_without_client.pass_time(29)
    assert peer._transport is not None
    wait_until(lambda: is_cut_after(bus_without_client, 30))


def test_heartbeats_do_not_pile_up_for_one_who_does_not_read(
    bus_without_client: Bus, client: RawClient
) -> None:
    peer = peer_of(bus_without_client)
    assert peer.machine.remote_open is not None
    peer.machine.remote_open.idle_time_out = 1000
    ask_for_much(client, "deliveries")
    wait_until(lambda: peer._is_clogged)
    now = time.monotonic()

    def tick() -> int:
        """In one go, between which no delivery comes."""
        before = held(peer)
        for seconds in range(1, 200):
            peer._beat(peer.machine.tick(now + seconds))
            peer.host.touch(peer)
        return held(peer) - before

    assert bus_without_client.broker.call(tick) <= len(HEARTBEAT)


class Socket(asyncio.Transport):
    """A transport whose buffer a test fills and empties."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.is_cut = False

    def get_write_buffer_size(self) -> int:
        return self.size

    def is_closing(self) -> bool:
        return self.is_cut

    def pause_reading(self) -> None:
        """Nothing is read anyway."""

    resume_reading = pause_reading

    def write(self, data: object) -> None:
        """Nobody is there."""

    def abort(self) -> None:
        self.is_cut = True


@pytest.mark.usefixtures("noisy")
def test_who_reads_slowly_is_not_cut(bus_without_client: Bus) -> None:
    bus, line = bus_without_client, Socket()
    host = bus.broker._hosts["contoso"]

    def connect() -> Peer:
        assert host._listener is not None
        peer = Peer(host, "slow", host._listener.gate.enter(lambda _: None))
        peer.connection_made(line)
        peer.take_grant(Grant(frozenset(), math.inf, "", "slow"), "")
        return peer

    peer = bus.broker.call(connect)
    for clog in range(3):
        for size in (100_000, 90_000, 80_000):
            line.size = size
            if size == 100_000:
                bus.broker.call(peer.pause_writing)
            bus.pass_time(30 if size < 100_000 else 29)
            assert not line.is_cut, (clog, size)
        bus.broker.call(peer.resume_writing)
        bus.pass_time(100)
        assert not line.is_cut
    bus.broker.call(peer.pause_writing)
    bus.pass_time(30)
    assert line.is_cut
    bus.broker.call(lambda: peer.connection_lost(None))


@pytest.mark.usefixtures("noisy")
def test_the_last_word_waits_for_a_reader_no_longer_than_others(
    bus_without_client: Bus, client: RawClient
) -> None:
    peer = peer_of(bus_without_client)
    ask_for_much(client, "deliveries")
    wait_until(lambda: peer._is_clogged)
    bus_without_client.broker.call(lambda: peer.close(None))
    wait_until(lambda: is_cut_after(bus_without_client, 30))


async def test_a_drain_waits_for_what_there_is(bus_without_client: Bus, client: RawClient) -> None:
    def drain() -> int:
        fill(client, 60, 200_000)
        link = client.attach("orders", sends=False)
        link.flow(100, drain=True)
        client.flush()
        while link.credit:
            client._events += client.machine.receive_data(client.socket.recv(65536), 0.0)
        return sum(isinstance(event, TransferReceived) for event in client._events)

    assert await asyncio.to_thread(drain) == 60


async def test_who_was_not_served_in_time_is_served_in_the_next_turn(
    bus_without_client: Bus, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shortest of times: one receiver a turn."""
    monkeypatch.setattr(consumers, "SERVING_SLICE", 0.0)

    def exchange() -> None:
        fill(client, 90, 100)
        links = [client.attach("orders", sends=False) for _ in range(4)]
        for link in links[:3]:
            link.flow(20)
        client.flush()
        for _ in range(60):
            client.await_event(TransferReceived)
        links[3].flow(100, drain=True)
        client.flush()
        for _ in range(30):
            client.await_event(TransferReceived)
        while links[3].credit:
            client.await_event(LinkFlowed)

    await asyncio.to_thread(exchange)


# One share of a turn


def _loops(count: int) -> bytes:
    """A client without a token that attaches and detaches over and over, in one piece."""
    begin = Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)
    attach = Attach("again", 0, False, source=Source("q"), target=Target("q"), initial_delivery_count=0)
    loop = encode_frame(0, attach) + encode_frame(0, Detach(0, True))
    return AMQP_HEADER + encode_frame(0, Open("loop")) + encode_frame(0, begin) + loop * count


async def test_an_endless_loop_is_done_in_shares(
    bus_without_client: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    shares: list[Peer] = []
    work = Peer.work

    def count_work(peer: Peer) -> None:
        shares.append(peer)
        work(peer)

    monkeypatch.setattr(Peer, "work", count_work)
    bus, count = bus_without_client, 2000
    bus.namespace.create_queue("orders")
    reader, writer = await asyncio.open_connection("127.0.0.1", bus.namespace.port)
    writer.write(_loops(count))
    answered, detach = b"", b"\x00\x53\x16"
    while answered.count(detach) < count:
        answered += await reader.read(65536)
        assert not reader.at_eof()
    assert len(shares) > count // 10
    writer.close()
    client = bus.connect()
    async with client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("undisturbed"))
        async with client.get_queue_receiver("orders") as receiver:
            assert bodies(await receive(receiver)) == ["undisturbed"]


def test_strangers_share_their_time() -> None:
    allowance = Allowance()
    assert allowance.wait(100.0) == 0
    allowance.spend(0.015)
    assert allowance.wait(100.0) == pytest.approx(0.02)
    assert allowance.wait(100.01) == pytest.approx(0.01)
    assert allowance.wait(100.03) == 0
    allowance.wait(1000.0)
    allowance.spend(0.006)
    assert allowance.wait(1000.0) > 0


def test_heartbeats_are_each_ones_own(bus_without_client: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that wants them every millisecond makes nobody else look at the clock."""
    ticked: list[Heartbeat] = []
    beat = Heartbeat._beat

    def count_beat(heartbeat: Heartbeat) -> None:
        ticked.append(heartbeat)
        beat(heartbeat)

    monkeypatch.setattr(Heartbeat, "_beat", count_beat)
    namespace = bus_without_client.namespace
    key = SaslClient.plain(*key_of(namespace))
    with RawClient.connected(namespace.port, key):
        quiet = peer_of(bus_without_client)
        hasty = RawClient(namespace.port, key)
        hasty.machine.idle_timeout = 0.002  # half of it is announced
        hasty.await_event(Opened)
        wait_until(lambda: len(ticked) >= 2)
        hasty.socket.close()
    assert quiet._heartbeat not in ticked


def test_unanswered_requests_are_not_kept_for_ever(bus_without_client: Bus, client: RawClient) -> None:
    """No credit for answers: the oldest are dropped."""
    fill(client, 10, 100_000)
    client.attach("orders/$management", sends=False)
    requests = client.attach("orders/$management", sends=True)
    peer = peer_of(bus_without_client)
    for _ in range(5):
        ask_to_peek(client, requests, 10)
        client.flush()
    (answers,) = peer.answers
    wait_until(lambda: len(answers._waiting) > 0)
    requests.detach()
    client.flush()
    client.await_event(LinkDetached)
    assert len(answers._waiting) == 1


def test_answers_without_credit_count_as_unread(bus_without_client: Bus, client: RawClient) -> None:
    """However many links they wait on; and no longer when they have left, or their link has."""
    fill(client, 1, 100_000)
    unread = bus_without_client.broker._hosts["contoso"].burdens.unread
    requests, links = client.attach("orders/$management", sends=True), list[Link]()
    for _ in range(2):  # the newest link is answered on
        links.append(client.attach("orders/$management", sends=False))
        ask_to_peek(client, requests, 1)
        client.flush()
        wait_until(lambda: unread._total >= len(links) * 100_000)
    links[0].detach()
    client.flush()
    client.await_event(LinkDetached)
    wait_until(lambda: 100_000 <= unread._total < 200_000)
    links[1].flow(1)
    client.flush()
    client.await_event(TransferReceived)
    wait_until(lambda: unread._total == 0)


def test_a_connection_has_few_answers_that_wait_for_credit(
    bus_without_client: Bus, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.broker.links.requests.MOST_OF_CONNECTION", 250_000)
    fill(client, 1, 100_000)
    requests = client.attach("orders/$management", sends=True)
    for _ in range(6):  # the newest link is answered on
        client.attach("orders/$management", sends=False)
        ask_to_peek(client, requests, 1)
        client.flush()
    requests.detach()
    client.flush()
    client.await_event(LinkDetached)
    answers = peer_of(bus_without_client).answers
    wait_until(lambda: answers.waiting_bytes >= 300_000)
    assert answers.waiting_bytes < 400_000


def test_one_answer_waits_for_a_stranger_on_each_link(bus_without_client: Bus) -> None:
    with RawClient.connected(bus_without_client.namespace.port, SaslClient.anonymous()) as stranger:
        stranger.attach("$cbs", sends=False)
        requests = stranger.attach("$cbs", sends=True)
        for _ in range(20):
            stranger.send(requests, encode_properties(Properties(message_id="x" * 3000)) + encode_value(""))
        (answers,) = peer_of(bus_without_client).answers
        assert len(answers._waiting) == 1
        assert peer_of(bus_without_client).answers.waiting_bytes < 4000


def test_deliveries_that_are_never_settled_are_forgotten_when_their_locks_are_over(
    bus_without_client: Bus, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = bus_without_client
    monkeypatch.setattr("pairbus.broker.links.sending_endpoint._MANY_UNSETTLED", 10)
    bus.namespace.create_queue("again", QueueSettings(lock_duration=5.0, max_delivery_count=1000))
    sender, receiver = client.attach("again", sends=True), client.attach("again", sends=False)
    for number in range(6):
        client.send(sender, encode_data(b"%d" % number))
    found: list[TransferReceived] = []
    for _ in range(10):
        receiver.flow(6)
        client.flush()
        found += [client.await_event(TransferReceived) for _ in range(6)]
        bus.pass_time(6)
    (outbox,) = [each for each in peer_of(bus).endpoints.values() if isinstance(each, SendingEndpoint)]
    assert len(outbox._unsettled) <= 16
    for delivery in (found[0], found[-1]):  # forgotten, and not: both are too late
        receiver.settle(delivery.delivery_id, ACCEPTED, settled=False)
        client.flush()
        outcome = client.await_event(Settled).state
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == conditions.MESSAGE_LOCK_LOST
    receiver.flow(1)
    client.flush()
    last = client.await_event(TransferReceived)
    for _ in range(3):  # in one go, though once is enough
        receiver.settle(last.delivery_id, ACCEPTED, settled=False)
    client.flush()
    assert client.await_event(Settled).state == ACCEPTED
    assert bus.namespace.message_count("again") == 5

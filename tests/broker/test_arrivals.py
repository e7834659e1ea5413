"""All connections that are ready are read before anything is done for one of them.

A test that has to come between a read and the share that follows gives the bytes of a client to its peer by
hand, in one call on the broker's loop.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from pairbus import conditions
from pairbus.amqp.events import Closed, LinkDetached, LinkFlowed, Settled
from pairbus.amqp.message import encode_data
from pairbus.amqp.performatives import ACCEPTED, Rejected
from pairbus.amqp.sasl import SaslClient
from pairbus.broker import Broker
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.host import NamespaceHost
from pairbus.broker.links import arrivals, machine
from pairbus.broker.links.machine import IDLE_TIMEOUT
from pairbus.broker.links.pace import LITTLE, MOST_IN_RUN
from pairbus.broker.links.peer import Peer
from tests.logs import our_records
from tests.waiting import wait_until

from .bus import Bus, held
from .keys import key_of
from .raw import RawClient

MANY = 8


class Sender:
    """A connection with a link to `orders`, and credit for it."""

    def __init__(self, stack: ExitStack, broker: Broker, tls: ssl.SSLContext | None = None) -> None:
        namespace, host = broker["contoso"], broker._hosts["contoso"]
        others = set(host.peers)
        sasl = SaslClient.plain(*key_of(namespace))
        self.client = stack.enter_context(RawClient.connected(namespace.port, sasl, tls=tls))
        self.link = self.client.attach("orders", sends=True)
        self.client.await_event(LinkFlowed)
        [self.peer] = host.peers - others

    def say(self, count: int = 1, *, settled: bool = False) -> bytes:
        """What the client says to send messages."""
        for _ in range(count):
            self.link.send(encode_data(b"x"), tag=b"t", settled=settled)
        return self.client.machine.data_to_send()

    def outcome(self) -> object:
        return self.client.await_event(Settled).state


class Crowd:
    """Some of them at one namespace."""

    def __init__(self, stack: ExitStack, broker: Broker) -> None:
        broker["contoso"].create_queue("orders")
        self.host: NamespaceHost = broker._hosts["contoso"]
        self.senders = [Sender(stack, broker) for _ in range(MANY)]
        self._broker = broker

    def read_all(
        self, count: int = 1, *, before: Callable[[], object] | None = None, then: Callable[[], object]
    ) -> None:
        """Have all of them read, each with messages, and let something happen before their shares."""
        said = [sender.say(count) for sender in self.senders]

        def act() -> None:
            if before is not None:
                before()
            for sender, data in zip(self.senders, said, strict=True):
                sender.peer.data_received(data)
            then()

        self._broker.call(act)

    def count(self) -> int:
        """How many messages there are; no turn comes of it."""
        return self.host.engine.node("orders").counts().total

    def outcomes(self) -> list[object]:
        return [sender.outcome() for sender in self.senders]


@pytest.fixture
def crowd(bus_without_client: Bus) -> Iterator[Crowd]:
    with ExitStack() as stack:
        yield Crowd(stack, bus_without_client.broker)


@pytest.fixture
def turns(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events were committed in each turn that had any."""
    found: list[int] = []
    take = Namespace.take_events

    def note(engine: Namespace) -> object:
        events = take(engine)
        found.extend([len(events)] if events and engine is crowd.host.engine else [])
        return events

    monkeypatch.setattr(Namespace, "take_events", note)
    return found


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> list[Peer]:
    """Who has had a share, in order."""
    found: list[Peer] = []
    work = Peer.work

    def note(peer: Peer) -> None:
        found.append(peer)
        work(peer)

    monkeypatch.setattr(Peer, "work", note)
    return found


def test_all_that_are_ready_share_a_turn(
    crowd: Crowd, bus_without_client: Bus, turns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    read, work = Peer.data_received, Peer.work

    def note_read(peer: Peer, data: bytes) -> None:
        done.append("read")
        read(peer, data)

    def note_work(peer: Peer) -> None:
        done.append("work")
        work(peer)

    monkeypatch.setattr(Peer, "data_received", note_read)
    monkeypatch.setattr(Peer, "work", note_work)
    with held(bus_without_client.broker):
        for sender in crowd.senders:
            sender.client.socket.sendall(sender.say())
    assert crowd.outcomes() == [ACCEPTED] * MANY
    assert done == ["read"] * MANY + ["work"] * MANY
    assert len(turns) == 1


def test_a_turn_that_is_due_waits_for_them(crowd: Crowd, turns: list[int]) -> None:
    def send() -> None:
        """As a connection does that goes on with what it had to leave."""
        crowd.host.engine.send("orders", [Incoming.parse(encode_data(b"x"))], crowd.host.now())
        crowd.host.touch(crowd.senders[0].peer)

    crowd.read_all(before=send, then=lambda: None)
    assert crowd.outcomes() == [ACCEPTED] * MANY
    assert crowd.count() == MANY + 1
    assert len(turns) == 1


def test_a_read_that_means_nothing_yet_ends_no_turn(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, ended = crowd.senders[0], list[NamespaceHost]()
    end = NamespaceHost.end_turn

    def note(host: NamespaceHost) -> None:
        ended.append(host)
        end(host)

    monkeypatch.setattr(NamespaceHost, "end_turn", note)
    said = sender.say()
    crowd._broker.call(lambda: sender.peer.data_received(said[:10]))
    wait_until(lambda: not crowd.host._turn_is_awaited)
    assert ended == []
    sender.client.socket.sendall(said[10:])
    assert sender.outcome() == ACCEPTED


def test_one_that_is_read_twice_has_one_share(crowd: Crowd, shares: list[Peer]) -> None:
    first, second = crowd.senders[:2]
    said, more, other = first.say(), first.say(), second.say()

    def act() -> None:
        first.peer.data_received(said[:7])
        second.peer.data_received(other)
        first.peer.data_received(said[7:] + more)

    crowd._broker.call(act)
    assert second.outcome() == ACCEPTED
    assert len(first.client.await_event(Settled).delivery_ids) == 2
    assert crowd.count() == 3
    assert shares == [first.peer, second.peer]


# A slice of a turn of the event loop, which other namespaces share


class Slices:
    """How many shares there have been in each turn of the event loop. A slice is as short as can be."""

    def __init__(self, crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host, self.shares, self._turn, work = crowd.host, Counter[int](), 0, Peer.work

        def note(peer: Peer) -> None:
            self.shares[self._turn] += 1
            work(peer)

        monkeypatch.setattr(Peer, "work", note)
        monkeypatch.setattr(arrivals, "ARRIVALS_SLICE", 0.0)
        monkeypatch.setattr("pairbus.broker.links.peer.MEMBER_SLICE", 0.0)

    def begin(self) -> None:
        """Count turns from now on."""
        self._turn += 1
        if self.host.loop is not None:
            self.host.loop.call_soon(self.begin)

    @property
    def are_kept(self) -> bool:
        return set(self.shares.values()) == {1}


@pytest.fixture
def slices(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> Slices:
    return Slices(crowd, monkeypatch)


def test_who_was_read_together_is_served_in_slices_and_committed_once(
    crowd: Crowd, turns: list[int], slices: Slices
) -> None:
    crowd.read_all(then=slices.begin)
    assert crowd.outcomes() == [ACCEPTED] * MANY
    assert slices.are_kept
    assert len(turns) == 1


def test_what_is_left_of_many_is_done_in_slices(crowd: Crowd, slices: Slices) -> None:
    crowd.read_all(5 * MOST_IN_RUN, then=slices.begin)
    wait_until(lambda: crowd.count() == 5 * MOST_IN_RUN * MANY)
    assert slices.are_kept
    assert slices.shares.total() >= 5 * MANY


def test_what_many_lost_lines_have_said_is_heard_in_slices(crowd: Crowd, slices: Slices) -> None:
    def vanish() -> None:
        for sender in crowd.senders:
            sender.client.vanish()
        slices.begin()

    crowd.read_all(5 * MOST_IN_RUN, then=vanish)
    wait_until(lambda: not any(sender.peer.endpoints for sender in crowd.senders))
    assert crowd.count() == 5 * MOST_IN_RUN * MANY
    assert slices.are_kept


def test_many_who_have_waited_for_a_decision_are_served_in_slices(crowd: Crowd, slices: Slices) -> None:
    decisions = crowd.host.decisions

    def let_in() -> None:
        assert crowd.count() == 0
        decisions.are_made = False
        decisions._let_in()

    decisions.are_made = True
    crowd.read_all(then=slices.begin)
    crowd._broker.call(lambda: None)
    crowd._broker.call(let_in)
    assert crowd.outcomes() == [ACCEPTED] * MANY
    assert slices.are_kept


def test_who_waits_for_its_share_is_not_read_on_and_on(crowd: Crowd) -> None:
    sender, peer = crowd.senders[0], crowd.senders[0].peer
    said = [sender.say()]
    while sum(map(len, said)) <= LITTLE:
        said.append(sender.say())

    def read() -> tuple[bool, bool]:
        peer.data_received(b"".join(said[:-1]))
        goes_on = peer._reads
        peer.data_received(said[-1])
        return goes_on, peer._reads

    assert crowd._broker.call(read) == (True, False)
    wait_until(lambda: peer._reads)
    assert crowd.count() == len(said)


# What happens between the read and the share


def test_who_is_reset_meanwhile_is_not_heard(crowd: Crowd) -> None:
    gone, *others = crowd.senders
    crowd.read_all(then=gone.peer.reset)
    assert [sender.outcome() for sender in others] == [ACCEPTED] * len(others)
    assert crowd.count() == len(others)
    with pytest.raises(ConnectionError):
        gone.outcome()


def test_who_is_told_goodbye_meanwhile_is_not_heard(crowd: Crowd) -> None:
    gone, *others = crowd.senders
    crowd.read_all(then=lambda: gone.peer.close(None))
    assert [sender.outcome() for sender in others] == [ACCEPTED] * len(others)
    assert crowd.count() == len(others)
    gone.client.await_event(Closed)


def test_whose_line_is_lost_meanwhile_is_heard_before(crowd: Crowd) -> None:
    """The loop tells of the loss after it: what was said before the end counts."""
    gone = crowd.senders[0]
    crowd.read_all(then=gone.client.vanish)
    assert [sender.outcome() for sender in crowd.senders[1:]] == [ACCEPTED] * (MANY - 1)
    wait_until(lambda: gone.peer not in crowd.host.peers)
    assert crowd.count() == MANY


@pytest.mark.usefixtures("noisy")
def test_who_has_been_read_is_not_idle(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped for minutes finds both when it goes on: what was said, and its timers."""
    speaking, unread, silent = (sender.peer for sender in crowd.senders[:3])
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 2 * IDLE_TIMEOUT)
    monkeypatch.setattr(machine, "time", later)

    def act() -> None:
        speaking.data_received(said)
        unread._go_on_later()
        for peer in (speaking, unread, silent):
            peer._heartbeat._beat()

    said = crowd.senders[0].say()
    crowd._broker.call(act)
    assert crowd.senders[0].outcome() == ACCEPTED
    crowd.senders[1].client.socket.sendall(crowd.senders[1].say())
    assert crowd.senders[1].outcome() == ACCEPTED
    closed = crowd.senders[2].client.await_event(Closed)
    assert closed.error is not None
    assert closed.error.condition == conditions.CONNECTION_FORCED


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize("kind", ["reset", "refuse", "silence"])
def test_a_line_that_fails_meanwhile_lets_nobody_be_heard(
    crowd: Crowd, bus_without_client: Bus, kind: str
) -> None:
    faults = bus_without_client.namespace.faults
    crowd.read_all(then=lambda: faults.set(kind))
    wait_until(lambda: not crowd.host._turn_is_awaited)
    faults.clear()
    for sender in crowd.senders:
        with pytest.raises(ConnectionError):
            sender.outcome()
    assert crowd.count() == 0


@pytest.mark.usefixtures("noisy")
def test_a_silent_line_takes_the_bytes_of_one_that_was_not_read_for_a_while(
    crowd: Crowd, bus_without_client: Bus
) -> None:
    peer = crowd.senders[0].peer

    def act() -> None:
        peer._go_on_later()
        bus_without_client.namespace.faults.set("silence")

    crowd._broker.call(act)
    assert isinstance(peer._transport, asyncio.ReadTransport)
    wait_until(peer._transport.is_reading)
    crowd.senders[0].client.socket.close()
    wait_until(lambda: peer not in crowd.host.peers)


@pytest.mark.usefixtures("noisy")
def test_who_was_read_before_a_black_hole_is_heard_after_it(crowd: Crowd, bus_without_client: Bus) -> None:
    faults = bus_without_client.namespace.faults
    crowd.read_all(then=lambda: faults.set("blackhole"))
    wait_until(lambda: not crowd.host._turn_is_awaited)
    assert crowd.count() == 0
    faults.clear()
    assert crowd.outcomes() == [ACCEPTED] * MANY
    assert crowd.count() == MANY


def test_a_fault_that_is_set_meanwhile_is_felt(crowd: Crowd, bus_without_client: Bus) -> None:
    crowd.read_all(then=lambda: bus_without_client.namespace.faults.set("busy", entity="orders"))
    for outcome in crowd.outcomes():
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        assert outcome.error.condition == conditions.SERVER_BUSY
    assert crowd.count() == 0


def test_a_queue_that_is_deleted_meanwhile(crowd: Crowd, bus_without_client: Bus) -> None:
    crowd.read_all(then=lambda: bus_without_client.namespace.delete_queue("orders"))
    for sender in crowd.senders:
        detached = sender.client.await_event(LinkDetached)
        assert detached.error is not None
        assert detached.error.condition == conditions.NOT_FOUND
    bus_without_client.namespace.create_queue("orders")
    assert crowd.count() == 0


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
async def test_a_namespace_that_ends_meanwhile_decides_nothing_more(is_killed: bool) -> None:
    with ExitStack() as stack:
        async with Broker({"contoso": 0}) as broker:
            crowd = await asyncio.to_thread(Crowd, stack, broker)
            crowd.read_all(then=broker.kill if is_killed else crowd.host.stop)
        for sender in crowd.senders:
            with (
                pytest.raises(ConnectionError) if is_killed else pytest.raises(AssertionError, match="forced")
            ):
                await asyncio.to_thread(sender.outcome)
        assert crowd.count() == 0


# One alone


@pytest.mark.usefixtures("noisy")
def test_an_error_that_nobody_foresaw_ends_one_alone(
    crowd: Crowd, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, failing, *others = crowd.senders

    def fail() -> None:
        monkeypatch.undo()
        raise RuntimeError("an error that nobody foresaw")

    monkeypatch.setattr(failing.peer, "work", fail)
    crowd.read_all(then=lambda: None)
    assert [sender.outcome() for sender in (first, *others)] == [ACCEPTED] * (MANY - 1)
    with pytest.raises(ConnectionError):
        failing.outcome()
    [record] = our_records(caplog)
    assert record.getMessage() == "a connection cannot be served"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "an error that nobody foresaw"
    assert record.__dict__["fields"]["connection"] == failing.peer.name


@pytest.mark.usefixtures("noisy")
def test_a_protocol_error_ends_one_alone(crowd: Crowd) -> None:
    wrong, *others = crowd.senders
    crowd.read_all(before=lambda: wrong.peer.data_received(b"\x00\x00\x00\x01"), then=lambda: None)
    assert [sender.outcome() for sender in others] == [ACCEPTED] * len(others)
    assert wrong.client.await_event(Closed).error is not None
    assert crowd.count() == len(others)


# The ways by which bytes come


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
def test_what_was_said_before_the_end_of_a_line_is_heard(
    crowd: Crowd, bus_without_client: Bus, has_tls: bool
) -> None:
    broker = bus_without_client.broker
    tls = ssl.create_default_context(cafile=str(broker.certificate)) if has_tls else None
    with ExitStack() as stack:
        leaving = Sender(stack, broker, tls)
        with held(broker):
            leaving.client.socket.sendall(leaving.say(settled=True))
            leaving.client.socket.close()
        wait_until(lambda: leaving.peer not in crowd.host.peers)
    assert crowd.count() == 1

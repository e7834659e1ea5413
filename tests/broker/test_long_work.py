"""What takes long for one namespace is done a little at a time, whole, and stops no other namespace."""

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from pairbus import words
from pairbus.amqp.events import LinkAttached, LinkFlowed, Settled, TransferReceived
from pairbus.amqp.message import (
    Properties,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_properties,
    encode_value,
)
from pairbus.amqp.performatives import Accepted, Modified, Source, Target
from pairbus.amqp.types import Int, Symbol, Timestamp
from pairbus.broker import Broker
from pairbus.broker.counters import OperationKind
from pairbus.broker.decisions import Decisions
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.errors import StoreError
from pairbus.broker.handle import NamespaceHandle
from pairbus.broker.host import NamespaceHost
from pairbus.broker.links.pace import LITTLE, MOST_IN_RUN
from pairbus.broker.links.receiving_endpoint import BATCH_FORMAT
from pairbus.clock import ManualClock
from tests.logs import our_lines
from tests.waiting import PATIENCE, wait_until

from .raw import RawClient

# Messages of a batch, so that it takes long.
MANY = {"orders": 600, "news": 20}
COPIES = 12


class Held:
    """Lets work of one namespace stand where it has first stopped, for as long as a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
        self.decisions = broker._hosts["busy"].decisions
        self.stands = self.goes_on = False
        real = Decisions._go_on

        def go_on(decisions: Decisions) -> None:
            if decisions is self.decisions and not self.goes_on:
                self.stands = True
                decisions._next = asyncio.get_running_loop().call_later(0.01, decisions._go_on)
            else:
                real(decisions)

        monkeypatch.setattr(Decisions, "_go_on", go_on)


@pytest.fixture(params=["memory", "file"])
def broker(
    request: pytest.FixtureRequest, breathless: None, tmp_path: Path, certificate: tuple[Path, Path]
) -> Iterator[Broker]:
    data_dir = tmp_path if request.param == "file" else None
    with Broker({"busy": 0, "other": 0}, data_dir=data_dir, certificate=certificate) as broker:
        for namespace in ("busy", "other"):
            broker[namespace].create_queue("orders")
            broker[namespace].create_topic("news")
            for number in range(COPIES):
                broker[namespace].create_subscription("news", f"s{number}")
        yield broker


def connect(namespace: NamespaceHandle) -> AbstractContextManager[RawClient]:
    return RawClient.of_owner(namespace)


def begin_batch(client: RawClient, address: str) -> None:
    """Send a batch, and wait for nothing."""
    link = client.attach(address, sends=True)
    client.await_event(LinkFlowed)
    messages = b"".join(encode_data(encode_data(b"%d" % number)) for number in range(MANY[address]))
    link.send(messages, tag=b"all", message_format=BATCH_FORMAT)
    client.flush()


def counts(namespace: NamespaceHandle, address: str) -> list[int]:
    """How many messages each queue behind an address holds."""
    if address == "orders":
        return [namespace.message_count("orders")]
    return [namespace.message_count(f"news/Subscriptions/s{number}") for number in range(COPIES)]


def is_accepted(client: RawClient, address: str) -> bool:
    """Whether a message of another client is taken."""
    return isinstance(client.send(client.attach(address, sends=True), encode_data(b"x")).state, Accepted)


@pytest.mark.parametrize("address", ["orders", "news"])
def test_a_batch_stops_no_other_namespace_and_is_taken_whole(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    held, busy = Held(monkeypatch, broker), broker["busy"]
    with connect(busy) as client, connect(broker["other"]) as other:
        begin_batch(client, address)
        wait_until(lambda: held.stands)
        assert is_accepted(other, address)
        held.goes_on = True
        assert isinstance(client.await_event(Settled).state, Accepted)
        assert set(counts(busy, address)) == {MANY[address]}


@pytest.mark.parametrize(("size", "changes"), [(30_000, 1), (1, 100)], ids=["large", "much changes"])
def test_few_messages_whose_properties_change_stop_no_other_namespace(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, size: int, changes: int
) -> None:
    held, busy = Held(monkeypatch, broker), broker["busy"]
    with connect(busy) as client, connect(broker["other"]) as other:
        sender, receiver = client.attach("orders", sends=True), client.attach("orders", sends=False)
        for _ in range(3):
            client.send(sender, encode_data(bytes(size)))
        receiver.flow(3)
        client.flush()
        first, _, last = [client.await_event(TransferReceived).delivery_id for _ in range(3)]
        outcome = Modified(True, False, {Symbol(f"note {number}"): 1 for number in range(changes)})
        receiver.settle_range(first, last, outcome, settled=False)
        client.flush()
        wait_until(lambda: held.stands)
        assert is_accepted(other, "orders")
        held.goes_on = True
        assert isinstance(client.await_event(Settled).state, Modified)


def test_whoever_comes_meanwhile_waits_and_is_served(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    held, busy = Held(monkeypatch, broker), broker["busy"]
    with connect(busy) as client, connect(busy) as second:
        link = second.attach("orders", sends=True)
        second.await_event(LinkFlowed)
        begin_batch(client, "orders")
        wait_until(lambda: held.stands)
        link.send(encode_data(b"second"), tag=b"one")
        second.flush()
        wait_until(lambda: held.decisions._waiting)
        held.goes_on = True
        assert isinstance(second.await_event(Settled).state, Accepted)
        assert isinstance(client.await_event(Settled).state, Accepted)
    assert counts(busy, "orders") == [MANY["orders"] + 1]


def test_who_says_little_meanwhile_is_told_to_stop_when_much_comes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To stop a socket and to let it go on are two calls of the system, for each of a hundred connections."""
    held, busy = Held(monkeypatch, broker), broker["busy"]
    with connect(busy) as second, connect(busy) as client:
        link = second.attach("orders", sends=True)
        second.await_event(LinkFlowed)
        (peer,) = (one for one in broker._hosts["busy"].peers if one.endpoints)
        begin_batch(client, "orders")
        wait_until(lambda: held.stands)

        def send(size: int = 1) -> None:
            link.send(encode_data(bytes(size)), tag=b"one")
            second.flush()

        send()
        wait_until(lambda: peer._is_busy)
        assert peer._reads
        send(LITTLE)
        wait_until(lambda: not peer._reads)
        send()  # which is left in the kernel
        held.goes_on = True
        answered = 0
        while answered < 3:
            answered += len(second.await_event(Settled).delivery_ids)
        wait_until(lambda: peer._reads)
    assert counts(busy, "orders") == [MANY["orders"] + 3]


@pytest.mark.parametrize("end", ["closed", "reset", "cut"])
def test_what_was_said_before_the_end_of_a_line_is_heard(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """As when the SDK completes a message, for which it awaits no answer, and closes. What a line had to say
    that the namespace itself has cut is not heard.
    """
    held, busy, host = Held(monkeypatch, broker), broker["busy"], broker._hosts["busy"]
    with connect(busy) as second, connect(busy) as client:
        second.send(second.attach("orders", sends=True), encode_data(b"x"))
        link = second.attach("news", sends=True)
        received = second.receive(second.attach("orders", sends=False))
        (peer,) = (one for one in host.peers if one.endpoints)
        begin_batch(client, "orders")
        wait_until(lambda: held.stands)
        # The second takes long itself, and what comes after it is heard too.
        batch = b"".join(encode_data(encode_data(b"%d" % number)) for number in range(MANY["news"]))
        link.send(batch, tag=b"all", message_format=BATCH_FORMAT, settled=True)
        received.link.settle_range(received.delivery_id, received.delivery_id, Accepted(), settled=True)
        second.flush()
        wait_until(lambda: peer._is_busy)
        if end == "cut":
            broker.call(peer.reset)
        else:
            (second.vanish if end == "reset" else second.socket.close)()
        wait_until(lambda: peer._has_said_all or peer not in host.peers)
        held.goes_on = True
        assert isinstance(client.await_event(Settled).state, Accepted)
        wait_until(lambda: not peer.endpoints)
    is_heard = end != "cut"
    assert set(counts(busy, "news")) == {MANY["news"] * is_heard}
    assert counts(busy, "orders") == [MANY["orders"] + (not is_heard)]


def test_who_has_gone_is_answered_no_requests(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may hold a thousand of them, each of which takes long; the namespace was busy for minutes."""
    held, busy, host = Held(monkeypatch, broker), broker["busy"], broker._hosts["busy"]
    with connect(busy) as second, connect(busy) as client:
        second.attach("orders/$management", sends=False)
        requests = second.attach("orders/$management", sends=True)
        (peer,) = (one for one in host.peers if one.endpoints)
        begin_batch(client, "orders")
        wait_until(lambda: held.stands)
        peek = encode_properties(Properties(message_id="id")) + encode_application_properties(
            {"operation": words.OPERATION_PREFIX + "peek-message"}
        )
        body = encode_value({"from-sequence-number": 0, "message-count": Int(MANY["orders"])})
        for _ in range(20):
            requests.send(peek + body, tag=b"t", settled=True)
        second.flush()
        wait_until(lambda: peer._is_busy)
        second.vanish()
        wait_until(lambda: peer not in host.peers)
        held.goes_on = True
        assert isinstance(client.await_event(Settled).state, Accepted)
        wait_until(lambda: not peer.endpoints)
    assert busy.count(OperationKind.MANAGEMENT) == 0


def test_the_last_words_of_a_line_take_no_more_than_their_share(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or many clients that go at once would stop all namespaces, until the last of them is heard out."""
    held, busy, host = Held(monkeypatch, broker), broker["busy"], broker._hosts["busy"]
    passed, runs, many = 0, list[int](), 10 * MOST_IN_RUN

    def pass_by() -> None:
        nonlocal passed
        passed += 1
        if host.loop is not None:
            host.loop.call_soon(pass_by)

    def note(engine: Namespace, *arguments: Any) -> bool:
        runs.append(passed)
        return send_run(engine, *arguments)

    send_run = Namespace.send_run
    with connect(busy) as second, connect(busy) as client:
        second.send(link := second.attach("orders", sends=True), encode_data(b"x"))
        (peer,) = (one for one in host.peers if one.endpoints)
        begin_batch(client, "orders")
        wait_until(lambda: held.stands)
        monkeypatch.setattr("pairbus.broker.links.peer.MEMBER_SLICE", 0.0)
        for _ in range(many):
            link.send(encode_data(b"x"), tag=b"t", settled=True)
        second.flush()
        wait_until(lambda: peer._is_busy)
        second.socket.close()
        wait_until(lambda: peer._has_said_all)
        monkeypatch.setattr(Namespace, "send_run", note)
        broker.call(pass_by)
        held.goes_on = True
        wait_until(lambda: not peer.endpoints)
    assert counts(busy, "orders") == [MANY["orders"] + 1 + many]
    assert len(runs) >= 10
    assert len(set(runs)) == len(runs), "one in a turn"


def test_a_heartbeat_meanwhile_lets_nothing_else_be_done(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, busy = Held(monkeypatch, broker), broker["busy"]
    with connect(busy) as second, connect(busy) as client:
        second.attach("orders", sends=True)
        second.await_event(LinkFlowed)
        (peer,) = (one for one in broker._hosts["busy"].peers if one.endpoints)
        begin_batch(client, "orders")
        wait_until(lambda: held.stands)
        (link,) = peer.endpoints

        def beat() -> int:
            """With a message before it, as one is that waits until answers have been written."""
            peer._todo.append(TransferReceived(link, 0, b"one", encode_data(b"second"), True, 0))
            peer._beat([])
            return len(peer._todo)

        assert broker.call(beat) == 1
        held.goes_on = True
        assert isinstance(client.await_event(Settled).state, Accepted)


def test_a_client_that_goes_meanwhile_leaves_its_batch_whole(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, busy = Held(monkeypatch, broker), broker["busy"]
    with connect(busy) as client:
        begin_batch(client, "news")
        wait_until(lambda: held.stands)
        (peer,) = broker._hosts["busy"].peers
        broker.call(peer.reset)
        wait_until(lambda: not broker._hosts["busy"].peers)
        held.goes_on = True
        wait_until(lambda: set(counts(busy, "news")) == {MANY["news"]})
    with connect(busy) as again:
        assert is_accepted(again, "orders")


def hold_session(busy: NamespaceHandle, reader: RawClient) -> None:
    """Have a session with so many locked messages that to give them back takes long."""
    busy.create_queue("sessions", QueueSettings(requires_session=True))
    sender = reader.attach("sessions", sends=True)
    reader.await_event(LinkFlowed)
    message = encode_data(encode_properties(Properties(group_id="one")) + encode_data(b"x"))
    sender.send(message * 100, tag=b"all", message_format=BATCH_FORMAT)
    reader.flush()
    reader.await_event(Settled)
    session = {Symbol(words.SESSION_FILTER): "one"}
    link = reader.machine.begin().attach(
        name="one", role_sender=False, source=Source("sessions", filter=session), target=Target("here")
    )
    reader.flush()
    reader.await_event(LinkAttached)
    link.flow(100)
    reader.flush()
    for _ in range(100):
        reader.await_event(TransferReceived)


@pytest.mark.usefixtures("noisy")
def test_a_refused_turn_ends_links_that_have_to_wait_for_that(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """For a receiver of a session, which gives back what it held."""
    busy, host = broker["busy"], broker._hosts["busy"]
    with ExitStack() as lines:
        reader, *others = (lines.enter_context(connect(busy)) for _ in range(6))
        hold_session(busy, reader)
        for other in others:
            other.attach("orders", sends=True)
            other.attach("news", sends=True)
        broker.call(lambda: host.refuse_turn(StoreError("the store was told to fail.")))
    wait_until(lambda: not host.peers)
    with connect(busy) as again:
        assert is_accepted(again, "orders")
    assert our_lines(caplog, level=logging.ERROR) == ["turn refused"]


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_an_end_in_between_leaves_all_or_nothing(
    is_killed: bool,
    breathless: None,
    tmp_path: Path,
    certificate: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker({"busy": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        broker["busy"].create_queue("orders")
        held = Held(monkeypatch, broker)
        with connect(broker["busy"]) as client:
            begin_batch(client, "orders")
            wait_until(lambda: held.stands)
            if is_killed:
                broker.call(broker._hosts["busy"].kill)
    with Broker({"busy": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        assert counts(broker["busy"], "orders") == [0 if is_killed else MANY["orders"]]


def test_nothing_is_decided_after_a_kill(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Lines that are cut then give nothing back, and begin no work that nobody would end."""
    host = broker._hosts["busy"]
    with connect(broker["busy"]) as reader:
        hold_session(broker["busy"], reader)
        (peer,) = host.peers
        broker.call(host.kill)
        wait_until(lambda: not host.peers)
    broker.call(lambda: None)
    assert "pairbus-decides-busy" not in [thread.name for thread in threading.enumerate()]
    assert peer.endpoints
    assert not our_lines(caplog)


@pytest.mark.usefixtures("noisy")
def test_a_clock_that_is_set_amid_the_work_is_followed_after_it(
    breathless: None, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in between, where locks may be walked through that would be moved; and before anything else."""
    clock = ManualClock(time.time())
    with Broker({"busy": 0}, certificate=certificate, clock=clock) as broker:
        held, busy, host = Held(monkeypatch, broker), broker["busy"], broker._hosts["busy"]
        busy.create_queue("orders", QueueSettings(lock_duration=60.0))
        with connect(busy) as client, connect(busy) as other:
            other.send(other.attach("orders", sends=True), encode_data(b"locked"))
            locked = other.receive(other.attach("orders", sends=False))
            begin_batch(client, "orders")
            wait_until(lambda: held.stands)
            queue = host.engine.get_queue("orders")
            before = broker.call(lambda: [message.locked_until for message in queue._locks])
            clock.set_forward(3600.0)
            broker.call(host.now)
            assert broker.call(lambda: [message.locked_until for message in queue._locks]) == before
            held.goes_on = True
            assert isinstance(client.await_event(Settled).state, Accepted)
            assert broker.call(lambda: [message.locked_until for message in queue._locks]) == [
                pytest.approx(each + 3600.0) for each in before
            ]
            locked.link.settle(locked.delivery_id, Accepted(), settled=False)
            other.flush()
            assert isinstance(other.await_event(Settled).state, Accepted)


def test_many_that_come_due_at_once_stop_no_other_namespace(
    breathless: None, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(time.time())
    with Broker({"busy": 0, "other": 0}, certificate=certificate, clock=clock) as broker:
        held, busy = Held(monkeypatch, broker), broker["busy"]
        for name in ("busy", "other"):
            broker[name].create_queue("orders")
        due = Timestamp(int(clock.now() * 1000) + 10_000)
        message = encode_annotations({Symbol(words.SCHEDULED_TIME): due}) + encode_data(b"x")
        with connect(busy) as client, connect(broker["other"]) as other:
            link = client.attach("orders", sends=True)
            for _ in range(3):
                client.send(link, message)
            clock.advance(11)
            broker.call(broker._hosts["busy"].time.pass_by)
            wait_until(lambda: held.stands)
            assert is_accepted(other, "orders")
            held.goes_on = True
            receiver = client.attach("orders", sends=False)
            for _ in range(3):
                assert client.receive(receiver).payload


def test_a_program_that_holds_the_broker_waits_for_its_turn_and_no_longer(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it asks for is done as soon as the work that is under way has ended, before any other."""
    held, busy = Held(monkeypatch, broker), broker["busy"]
    story: list[str] = []
    with connect(busy) as client:
        begin_batch(client, "orders")
        wait_until(lambda: held.stands)
        thread = threading.Thread(target=lambda: story.append(f"{busy.message_count('orders')} there"))
        making = threading.Thread(target=lambda: busy.create_queue("new"))
        making.start()
        wait_until(lambda: NamespaceHost.perform.__qualname__ in str(held.decisions._waiting))
        broker.call(
            lambda: held.decisions.make(lambda: story.append(f"{'new' in queues(broker)}"), lambda _: None)
        )
        held.goes_on = True
        making.join(PATIENCE)
        thread.start()
        thread.join(PATIENCE)
    assert story == ["True", f"{MANY['orders']} there"]


def queues(broker: Broker) -> list[str]:
    return [queue.path for queue in broker._hosts["busy"].engine.list_queues()]

"""Large messages on the disk: written and read bit by bit, and whatever touches one is done on the thread."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.message import (
    Properties,
    encode_application_properties,
    encode_data,
    encode_properties,
    encode_value,
    scan,
)
from pairbus.amqp.performatives import Modified
from pairbus.amqp.types import Array, Int, ULong
from pairbus.broker import Broker, host
from pairbus.broker.contents import Contents
from pairbus.broker.engine.message import MessageState
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.engine.tiers import PREMIUM
from pairbus.broker.errors import StoreDamaged
from pairbus.broker.store.rows import LARGE_BODY
from pairbus.broker.store.salvage import salvage_store
from pairbus.broker.store.sqlite import SqliteStore
from tests.broker.raw import RawClient
from tests.engine.samples import START, message
from tests.waiting import PATIENCE, wait_until

from .files import store_path
from .test_neighbours import SlowStore

BODY = bytes(range(256)) * (3 * LARGE_BODY // 256)


def large_queue() -> Namespace:
    space = Namespace("contoso", limits=PREMIUM)
    space.create_queue("orders", QueueSettings(max_message_size_in_kilobytes=8192), START)
    return space


def bodies(space: Namespace) -> list[bytes]:
    found = space.get_queue("orders").table.since(0)
    return [one.body_bytes for one in found]


def test_a_large_body_comes_back_as_it_was(tmp_path: Path) -> None:
    space, path = large_queue(), store_path(tmp_path)
    space.send("orders", [message(BODY), message(b"small")], START)
    sent = bodies(space)
    with closing(SqliteStore(path)) as store:
        store.commit(space.take_events())
        store.verify()
    with closing(SqliteStore(path)) as store:
        space = Namespace("contoso", limits=PREMIUM)
        space.replay(store.load(), now=START)
        large, small = space.get_queue("orders").table.since(0)
        assert isinstance(large.content.body, memoryview)
        assert isinstance(small.content.body, bytes)
        assert bodies(space) == sent


def test_what_touches_a_large_message_is_heavy(tmp_path: Path) -> None:
    space = large_queue()
    with closing(SqliteStore(store_path(tmp_path))) as store:

        def commit() -> bool:
            events = space.take_events()
            is_heavy = store.is_heavy(events)
            store.commit(events)
            return is_heavy

        assert not commit()
        queue = space.get_queue("orders")
        space.send("orders", [message(b"small")], START)
        assert not commit()
        space.send("orders", [message(BODY)], START)
        assert commit()
        small, large = queue.receive(2, START)
        assert small.lock_token
        assert large.lock_token
        commit()
        queue.complete(small.lock_token, START)
        assert not commit()
        queue.defer(large.lock_token, START)
        assert commit()
        assert large.message.state is MessageState.DEFERRED
        [again] = queue.receive_deferred([large.message.sequence_number], START)
        assert again.lock_token
        commit()
        queue.complete(again.lock_token, START)
        assert commit()
        for most in (4095, 4096):
            space.send("orders", [message(b"x") for _ in range(most)], START)
            events = space.take_events()[:most]
            assert store.is_heavy(events) is (most == 4096)
        space.delete_queue("orders", START)
        assert commit(), "it may hold a million messages"


def test_a_flipped_bit_in_a_large_body_is_found_and_the_rest_is_saved(tmp_path: Path) -> None:
    space, path = large_queue(), store_path(tmp_path)
    space.send("orders", [message(BODY), message(b"small")], START)
    with closing(SqliteStore(path)) as store:
        store.commit(space.take_events())
    data = bytearray(path.read_bytes())
    at = data.find(BODY[:4096], len(data) // 2)
    data[at + 100] ^= 1
    path.write_bytes(data)
    with closing(SqliteStore(path)) as store, pytest.raises(StoreDamaged):
        store.verify()
    salvage = salvage_store(path)
    assert salvage is not None
    assert (salvage.saved, salvage.missing) == (1, 1)


# Over sockets


@pytest.fixture
def broker(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Broker]:
    """Two namespaces that keep no content once it is committed."""
    monkeypatch.setattr("pairbus.broker.broker.SqliteStore", SlowStore)
    monkeypatch.setattr(Contents.__init__, "__kwdefaults__", {"budget": 0})
    SlowStore.made.clear()
    namespaces = {"contoso": 0, "other": 0}
    with Broker(namespaces, data_dir=tmp_path, certificate=certificate, limits=PREMIUM) as broker:
        broker["contoso"].create_queue("orders", QueueSettings(max_message_size_in_kilobytes=8192))
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[RawClient]:
    namespace = broker["contoso"]
    with RawClient.of_owner(namespace) as client:
        yield client


def ask(client: RawClient, links: tuple[Link, Link], operation: str, **body: object) -> list[bytes]:
    """The messages that an answer of the management node holds."""
    requests, answers = links
    answers.flow(1)
    asked = {name.replace("_", "-"): value for name, value in body.items()}
    requests.send(
        encode_properties(Properties(message_id=ULong(1)))
        + encode_application_properties({"operation": f"com.microsoft:{operation}"})
        + encode_value(asked),
        tag=b"t",
        settled=True,
    )
    client.flush()
    answer = scan(client.await_event(TransferReceived).payload)
    return [scan(one["message"]).data() for one in answer.value()["messages"]]


def test_a_large_message_goes_its_way_through_the_disk_and_is_never_written_whole(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes, take = [], Connection.data_to_send

    def taken(machine: Connection) -> bytes:
        data = take(machine)
        if machine.server:
            sizes.append(len(data))
        return data

    monkeypatch.setattr(Connection, "data_to_send", taken)
    sender = client.attach("orders", sends=True)
    client.send(sender, encode_data(BODY))
    receiver = client.attach("orders", sends=False, largest=2 * len(BODY))
    management = (
        client.attach("orders/$management", sends=True),
        client.attach("orders/$management", sends=False, largest=2 * len(BODY)),
    )
    peeked = ask(client, management, "peek-message", from_sequence_number=0, message_count=Int(10))
    assert peeked == [BODY]
    receiver.flow(1)
    client.flush()
    received = client.await_event(TransferReceived)
    assert scan(received.payload).data() == BODY
    receiver.settle(received.delivery_id, Modified(undeliverable_here=True))
    client.flush()
    numbers = Array([1], int)
    found = ask(
        client,
        management,
        "receive-by-sequence-number",
        sequence_numbers=numbers,
        receiver_settle_mode=Int(0),
    )
    assert found == [BODY]
    assert sum(sizes) > 3 * len(BODY)
    assert max(sizes) < 2 * LARGE_BODY


def test_no_more_comes_in_than_may_wait_for_a_disk(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender in a hurry, and a disk that stands still."""
    monkeypatch.setattr(host, "MOST_UNCOMMITTED", LARGE_BODY)
    namespace, store = broker._hosts["contoso"], SlowStore.made["contoso"]
    sender = client.attach("orders", sends=True)
    client.send(sender, encode_data(b"first"))
    client.socket.settimeout(PATIENCE)
    is_over = Event()

    def send_on() -> None:
        for number in range(1000):
            if is_over.is_set():
                return
            sender.send(encode_data(bytes(100_000)), tag=b"%d" % number)
            client.flush()

    with ThreadPoolExecutor(1) as pool, store.standing():
        sending = pool.submit(send_on)
        try:
            wait_until(lambda: namespace.uncommitted > LARGE_BODY)
            with pytest.raises(TimeoutError):
                sending.result(0.5)
            assert namespace.uncommitted < 3 * LARGE_BODY
        finally:
            is_over.set()
    sending.result()

"""Contents of messages lie on the disk: whoever asks for one gets it as it was sent, and stops nobody."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError

from pairbus.amqp.events import Settled, TransferReceived
from pairbus.amqp.message import encode_data, encode_value
from pairbus.amqp.performatives import Modified
from pairbus.amqp.types import Array, UInt
from pairbus.broker import Broker
from pairbus.broker.contents import MOST_KEPT, MOST_NEEDED, OVERHEAD, Contents, NotAtHand
from pairbus.broker.engine.message import Content, StoredMessage
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.flights import Flight, StoreThread
from pairbus.broker.links.sending_endpoint import SendingEndpoint
from pairbus.broker.store.salvage import salvage_store
from pairbus.broker.store.sqlite import SqliteStore
from tests.broker.raw import RawClient
from tests.broker.test_wrong_requests import Requests
from tests.engine.samples import START, application_properties, body_of, message, namespace
from tests.store.files import load, store_path, write
from tests.store.test_neighbours import SlowStore, client_of, receive, send, until_it_stands
from tests.waiting import wait_until

MANY = 600


class SlowReads(SlowStore):
    """Stands still where contents are read."""

    def read(self, place: int, sequence_numbers: Sequence[int]) -> list[Content | None]:
        self._stand()
        return super().read(place, sequence_numbers)

    def finish(self) -> None:
        SqliteStore.finish(self)


@pytest.fixture
def broker(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Broker]:
    """Two namespaces that keep no content once it is committed."""
    monkeypatch.setattr("pairbus.broker.broker.SqliteStore", SlowReads)
    monkeypatch.setattr(Contents.__init__, "__kwdefaults__", {"budget": 0})
    SlowReads.made.clear()
    with Broker({"slow": 0, "other": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        for name in broker:
            broker[name].create_queue("orders")
        yield broker


def at_hand(broker: Broker, queue: str = "orders") -> int:
    """How many messages of the slow namespace are in memory with their contents."""

    def count(engine: Namespace, now: float) -> int:
        return sum(each.is_at_hand for each in engine.get_queue(queue).table.since(0))

    host = broker._hosts["slow"]
    return broker.call(lambda: host.run(count))


# -- through the SDK


async def test_everything_is_received_from_the_disk_in_order(broker: Broker) -> None:
    async with client_of(broker, "slow") as client:
        for first in range(0, MANY, 100):
            await send(client, *(str(number) for number in range(first, first + 100)))
        await send(client, "the last")  # with it goes what was kept of the turn before
        await asyncio.to_thread(at_hand, broker)
        assert await receive(client, MANY + 1) == [*map(str, range(MANY)), "the last"]


async def test_peeks_deferred_messages_and_dead_letters_come_from_the_disk(broker: Broker) -> None:
    async with client_of(broker, "slow") as client:
        await send(client, *(str(number) for number in range(20)))
        async with client.get_queue_receiver("orders") as receiver:
            found = await receiver.receive_messages(max_message_count=20, max_wait_time=20)
            while len(found) < 20:
                found += await receiver.receive_messages(max_message_count=20 - len(found), max_wait_time=20)
            await receiver.defer_message(found[0])
            await receiver.dead_letter_message(found[1], reason="r", error_description="d")
            await receiver.abandon_message(found[2])
            await send(client, "more")
            numbers = [found[0].sequence_number]
            assert None not in numbers
            (deferred,) = await receiver.receive_deferred_messages([number for number in numbers if number])
            assert str(deferred) == "0"
            await receiver.complete_message(deferred)
            peeked = await receiver.peek_messages(max_message_count=50, sequence_number=1)
            assert [str(each) for each in peeked] == [*map(str, range(2, 20)), "more"]
        async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (letter,) = await dead.receive_messages(max_wait_time=20)
            assert (str(letter), letter.dead_letter_reason) == ("1", "r")


async def test_sessions_are_received_from_the_disk(broker: Broker) -> None:
    settings = QueueSettings(requires_session=True)
    await asyncio.to_thread(broker["slow"].create_queue, "sessions", settings)
    async with client_of(broker, "slow") as client:
        async with client.get_queue_sender("sessions") as sender:
            for name in ("a", "b"):
                batch = [ServiceBusMessage(f"{name}{number}", session_id=name) for number in range(10)]
                await sender.send_messages(batch)
        for name in ("a", "b"):
            async with client.get_queue_receiver("sessions", session_id=name) as receiver:
                found: list[str] = []
                while len(found) < 10:
                    batch_found = await receiver.receive_messages(max_message_count=10, max_wait_time=20)
                    assert batch_found
                    found += [str(each) for each in batch_found]
                assert found == [f"{name}{number}" for number in range(10)]


def test_who_goes_while_its_words_wait_for_the_disk_is_heard_all_the_same(broker: Broker) -> None:
    """As when a message is dead-lettered, and the line is lost at once."""
    store, host = SlowReads.made["slow"], broker._hosts["slow"]
    with RawClient.of_owner(broker["slow"]) as other, RawClient.of_owner(broker["slow"]) as client:
        sender = other.attach("orders", sends=True)
        other.send(sender, encode_data(b"one"))
        found = client.receive(client.attach("orders", sends=False))
        other.send(sender, encode_data(b"with it goes what was kept"))
        assert at_hand(broker) == 1
        peer = max(host.peers, key=lambda one: int(one.name))
        with store.standing():
            found.link.settle(found.delivery_id, Modified(True, True), settled=True)
            client.flush()
            wait_until(store.stands.is_set)
            assert peer._transport is not None
            broker.call(peer._transport.abort)
            wait_until(lambda: peer not in host.peers)
        wait_until(lambda: not peer.endpoints)
    assert broker.call(lambda: host.engine.get_queue("orders").counts().deferred) == 1


def test_small_messages_that_are_settled_together_fit_into_a_generation(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else some would be let go for the others, over and over: what each takes beside its bytes counts."""
    monkeypatch.setattr("pairbus.broker.links.sending_endpoint.MOST_NEEDED", 3 * OVERHEAD)
    settled = list[int]()
    settle = SendingEndpoint.on_settled

    def note(endpoint: SendingEndpoint, event: Settled) -> None:
        settled.append(len(event.delivery_ids))
        settle(endpoint, event)

    monkeypatch.setattr(SendingEndpoint, "on_settled", note)
    with RawClient.of_owner(broker["slow"]) as client:
        sender, receiver = client.attach("orders", sends=True), client.attach("orders", sends=False)
        for _ in range(5):
            client.send(sender, encode_data(b"x"))
        receiver.flow(5)
        client.flush()
        first, *_, last = [client.await_event(TransferReceived).delivery_id for _ in range(5)]
        receiver.settle_range(first, last, Modified(True, False), settled=False)
        client.flush()
        left = 5
        while left:
            left -= len(client.await_event(Settled).delivery_ids)
    assert max(settled) == 2


@pytest.mark.usefixtures("little")
def test_no_request_for_small_messages_needs_more_than_is_kept(broker: Broker) -> None:
    with RawClient.of_owner(broker["slow"]) as client:
        sender, receiver = client.attach("orders", sends=True), client.attach("orders", sends=False)
        for _ in range(4):
            client.send(sender, encode_data(b"x"))
        for _ in range(4):
            receiver.settle(client.receive(receiver).delivery_id, Modified(True, True, None), settled=True)
        node = Requests(client, "orders/$management")
        asked = {"operation": "com.microsoft:receive-by-sequence-number"}
        for numbers, status in (([1, 2, 3, 4], 403), ([1, 2, 3], 200)):
            body = {"sequence-numbers": Array(numbers, int), "receiver-settle-mode": UInt(1)}
            assert node.ask(asked, encode_value(body))["statusCode"] == status


async def test_a_read_stops_nobody_else(broker: Broker) -> None:
    store = SlowReads.made["slow"]
    async with client_of(broker, "slow") as slow, client_of(broker, "other") as other:
        await send(slow, "one")
        await send(slow, "two")
        with store.standing():
            waiting = asyncio.create_task(receive(slow, 2))
            await until_it_stands(store)
            await send(other, "meanwhile")
            await send(slow, "three")  # nor this namespace, but for who waits
            assert not waiting.done()
        assert await waiting == ["one", "two"]


@pytest.mark.parametrize("way", ["on its link", "by a request"])
async def test_a_dead_letter_is_read_before_it_is_moved_and_stops_nobody_else(
    broker: Broker, way: str
) -> None:
    store = SlowReads.made["slow"]
    async with client_of(broker, "slow") as slow, client_of(broker, "other") as other:
        await send(slow, "one")
        async with slow.get_queue_receiver("orders") as receiver:
            (found,) = await receiver.receive_messages(max_wait_time=20)
            if way == "by a request":  # as what was deferred is settled
                await receiver.defer_message(found)
                assert found.sequence_number is not None
                (found,) = await receiver.receive_deferred_messages([found.sequence_number])
            for body in ("two", "three"):  # with them goes what was kept
                await send(slow, body)
            with store.standing():
                moving = asyncio.create_task(receiver.dead_letter_message(found, reason="r"))
                await until_it_stands(store)
                await send(other, "meanwhile")
                assert not moving.done()
            await moving
        async with slow.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (letter,) = await dead.receive_messages(max_wait_time=20)
            assert (str(letter), letter.dead_letter_reason) == ("one", "r")


@pytest.mark.parametrize("kind", ["expired", "scheduled"])
def test_what_moves_by_itself_is_read_many_at_a_time(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, path = namespace(), store_path(tmp_path)
    settings = QueueSettings(dead_lettering_on_message_expiration=True)
    space.create_queue("orders", settings, START)
    fields = {"ttl": 10.0} if kind == "expired" else {"at": START + 10}
    names = {str(number).encode() for number in range(MANY)}
    space.send("orders", [message(name, **fields) for name in names], START)
    write(path, space.take_events())
    with closing(SqliteStore(path)) as store:
        space = namespace()
        space.replay(store.load(), now=START)
        reads: list[int] = []
        read = store.read

        def counted(place: int, numbers: Sequence[int]) -> list[Content | None]:
            reads.append(len(numbers))
            return read(place, numbers)

        monkeypatch.setattr(store, "read", counted)
        space.tick(START + 20)
        assert sum(reads) >= MANY
        assert len(reads) <= MANY // 50
        orders = space.get_queue("orders")
        room = orders.dead_letters if kind == "expired" else orders
        assert room is not None
        assert {body_of(each) for each in room.table.since(0)} == names


# -- damage


def flip(path: Path, column: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        ((key, body),) = database.execute(f"SELECT key, {column} FROM message LIMIT 1").fetchall()
        database.execute(
            f"UPDATE message SET {column} = ? WHERE key = ?", (bytes([body[0] ^ 1]) + body[1:], key)
        )
        database.commit()


@pytest.mark.parametrize("column", ["body", "envelope", "application_properties"])
async def test_a_damaged_content_is_not_delivered_but_told(
    column: str, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    space = namespace()
    space.create_queue("orders", None, START)
    space.send("orders", [message(b"whole", properties={"n": 1}), message(b"other")], START)
    path = tmp_path / "slow" / "store.db"
    path.parent.mkdir()
    write(path, space.take_events())
    flip(path, column)
    with Broker({"slow": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        async with client_of(broker, "slow") as client:
            for _ in range(2):  # and again: nothing of the store is believed any more
                with pytest.raises(ServiceBusError):
                    await receive(client, 1)
    result = salvage_store(path)
    assert result is not None
    assert (result.saved, len(result.lost)) == (1, 1)


def test_a_change_is_not_written_over_damage(tmp_path: Path) -> None:
    """A settlement writes a new checksum; what was damaged before it is not made whole by that."""
    space, path = namespace(), store_path(tmp_path)
    orders = space.create_queue("orders", None, START)
    space.send("orders", [message(b"whole")], START)
    with closing(SqliteStore(path)) as store:
        store.commit(space.take_events())
        store._database.execute("UPDATE message SET expires_at = 1")
        (handout,) = orders.receive(1, START)
        assert handout.lock_token is not None
        orders.abandon(handout.lock_token, START)
        with pytest.raises(Exception, match="checksum"):
            store.commit(space.take_events())
        with pytest.raises(Exception, match="damaged"):
            list(store.load())


# -- changes


def fail(error: Exception) -> None:
    raise error


def kept_of(queue: MessageQueue) -> list[int]:
    return [each.sequence_number for each in queue.table.since(0) if each.is_at_hand]


def test_the_properties_of_the_first_of_two_changes_are_written(tmp_path: Path) -> None:
    space, path = namespace(), store_path(tmp_path)
    orders = space.create_queue("orders", None, START)
    space.send("orders", [message(b"b", properties={"n": 1})], START)
    write(path, space.take_events())
    for properties in ({"n": 2}, None):
        (handout,) = orders.receive(1, START)
        assert handout.lock_token is not None
        orders.abandon(handout.lock_token, START, properties=properties)
    write(path, space.take_events())
    (found,) = load(path).get_queue("orders").table.since(0)
    assert application_properties(found) == {"n": 2}
    assert (found.delivery_count, body_of(found)) == (2, b"b")


def test_a_content_that_is_not_committed_is_never_let_go(tmp_path: Path) -> None:
    space = namespace()
    orders = space.create_queue("orders", None, START)
    with closing(SqliteStore(store_path(tmp_path))) as store:
        contents = Contents(store, StoreThread(store, "test"), fail=fail, budget=0)

        def commit(*, changes: bool = False) -> None:
            events = space.take_events()
            contents.note(events)
            if changes:  # by the next turn, while this one is being committed
                _abandon(orders, {"n": 2})
            store.commit(events)
            contents.settle()
            contents.settle()

        space.send("orders", [message(b"a", properties={"n": 1})], START)
        commit(changes=True)
        (found,) = orders.table.since(0)
        assert kept_of(orders) == [1], "its properties are others than those that were committed"
        commit()
        assert kept_of(orders) == []
        assert application_properties(found) == {"n": 2}


def _abandon(queue: MessageQueue, properties: dict[str, int]) -> StoredMessage:
    (handout,) = queue.receive(1, START)
    assert handout.lock_token is not None
    queue.abandon(handout.lock_token, START, properties=properties)
    return handout.message


def test_what_was_stored_last_is_kept_and_no_more_than_may_be(tmp_path: Path) -> None:
    space = namespace()
    orders = space.create_queue("orders", QueueSettings(), START)
    with closing(SqliteStore(store_path(tmp_path))) as store:
        contents = Contents(store, StoreThread(store, "test"), fail=fail, budget=100_000)
        for _ in range(50):
            space.send("orders", [message(b"x" * 1000) for _ in range(10)], START)
            events = space.take_events()
            contents.note(events)
            store.commit(events)
            contents.settle()
        kept = kept_of(orders)
        assert 20 <= len(kept) <= 100
        assert kept == list(range(501 - len(kept), 501))


class AwaitedReads(StoreThread):
    """Reads at once, and lands when it is told to."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store, "test")
        self.landings: list[Callable[[], None]] = []

    def read(self, messages: Sequence[StoredMessage], land: Callable[[Flight], None]) -> Flight:
        source, flight = messages[0].held, Flight(is_load=False)
        assert not isinstance(source, Content)
        flight.result = source.read([message.sequence_number for message in messages])
        self.landings.append(lambda: land(flight))
        return flight


def test_what_was_read_before_a_change_is_not_taken_for_what_is_there_after_it(tmp_path: Path) -> None:
    """Two ask for the same message. The first gets it, changes it, and what it has made of it is committed
    and let go before the second one's read lands.
    """
    space = namespace()
    orders = space.create_queue("orders", None, START)
    with closing(SqliteStore(store_path(tmp_path))) as store:
        thread = AwaitedReads(store)
        contents = Contents(store, thread, fail=fail, budget=0)

        def commit() -> None:
            events = space.take_events()
            contents.note(events)
            store.commit(events)
            contents.settle()
            contents.settle()

        space.send("orders", [message(b"a", properties={"n": 1})], START)
        commit()
        (found,) = orders.table.since(0)
        for _ in range(2):
            contents.bring_absent(NotAtHand({"orders": [1]}), space, lambda: None)
        first, second = thread.landings
        first()
        _abandon(orders, {"n": 2})
        commit()
        second()
        assert application_properties(found) == {"n": 2}


# -- much at once


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """One request may need a thousand bytes, in two messages."""
    for module in ("contents", "links.sending_endpoint"):
        monkeypatch.setattr(f"pairbus.broker.{module}.MOST_NEEDED", 1000 + 2 * OVERHEAD)


@pytest.mark.usefixtures("little")
def test_no_request_needs_more_than_is_kept(broker: Broker) -> None:
    assert 2 * MOST_NEEDED <= MOST_KEPT
    namespace = broker["slow"]
    with RawClient.of_owner(namespace) as client:
        sender, receiver = client.attach("orders", sends=True), client.attach("orders", sends=False)
        for _ in range(5):
            client.send(sender, encode_data(bytes(400)))
        receiver.flow(5)
        client.flush()
        found = [client.await_event(TransferReceived) for _ in range(5)]
        client.send(sender, encode_data(b"with it goes what was kept"))
        # All at once: they are settled two by two.
        first, last = found[0].delivery_id, found[-1].delivery_id
        receiver.settle_range(first, last, Modified(True, True, None), settled=False)
        client.flush()
        settled: list[int] = []
        while len(settled) < 5:
            event = client.await_event(Settled)
            assert isinstance(event.state, Modified)
            settled += event.delivery_ids
        node = Requests(client, "orders/$management")
        asked = {"operation": "com.microsoft:receive-by-sequence-number"}
        for numbers, status in (([1, 2, 3], 403), ([1], 200), ([2, 3], 200)):
            body = {"sequence-numbers": Array(numbers, int), "receiver-settle-mode": UInt(1)}
            assert node.ask(asked, encode_value(body))["statusCode"] == status

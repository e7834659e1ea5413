"""Receiving and settling: what each way of ending a lock does to a message."""

import pickle
import tracemalloc
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from pairbus import conditions
from pairbus.amqp.message import scan
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.message import MOST_PROPERTIES, MessageState
from pairbus.broker.engine.queue import MessageQueue
from tests.engine.observing import check_books
from tests.engine.samples import START, application_properties, bodies, message, queue, refused

Settle = Callable[[MessageQueue, uuid.UUID, float], Any]


def test_a_message_is_received_once_and_in_order() -> None:
    space, orders = queue()
    space.send("orders", [message(b"1"), message(b"2")], START)
    space.send("ORDERS", [message(b"3")], START)
    assert bodies(orders.receive(2, START)) == [b"1", b"2"]
    assert bodies(orders.receive(10, START)) == [b"3"]
    assert orders.receive(10, START) == []


def test_numbers_start_at_one_and_the_count_at_zero() -> None:
    space, orders = queue()
    space.send("orders", [message(), message()], START)
    first, second = orders.receive(2, START + 1)
    assert (first.message.sequence_number, second.message.sequence_number) == (1, 2)
    assert first.message.delivery_count == 0
    assert first.message.enqueued_sequence_number == 0
    assert first.message.enqueued_at == START
    assert first.locked_until == START + 61


def test_receive_and_delete_leaves_nothing() -> None:
    space, orders = queue()
    space.send("orders", [message(b"1")], START)
    (delivery,) = orders.receive(5, START, delete=True)
    assert delivery.lock_token is None
    assert orders.counts().total == 0
    assert orders.size_bytes == 0
    assert orders.peek(0, 10, START) == []


SETTLE: dict[str, Settle] = {
    "abandon": lambda orders, token, now: orders.abandon(token, now),
    "release": lambda orders, token, now: orders.release(token, now),
    "lock ends": lambda orders, token, now: orders.tick(now + 10),
}


@pytest.mark.parametrize(
    ("way", "again", "count"),
    [("abandon", [b"1", b"3"], 1), ("release", [b"1", b"3"], 0), ("lock ends", [b"1", b"2", b"3"], 1)],
)
def test_what_comes_back_stands_at_its_number(way: str, again: list[bytes], count: int) -> None:
    space, orders = queue(lock_duration=10.0)
    space.send("orders", [message(b"1"), message(b"2"), message(b"3")], START)
    first, _ = orders.receive(2, START)
    assert first.lock_token is not None
    SETTLE[way](orders, first.lock_token, START)
    deliveries = orders.receive(3, START + 1)
    assert bodies(deliveries) == again
    assert deliveries[0].message.delivery_count == count


def test_complete_removes_for_good() -> None:
    space, orders = queue()
    space.send("orders", [message()], START)
    (delivery,) = orders.receive(1, START)
    assert delivery.lock_token is not None
    orders.complete(delivery.lock_token, START)
    assert orders.counts().total == 0
    with refused(
        conditions.MESSAGE_LOCK_LOST, text="The lock supplied is invalid. Either the lock expired, or the"
    ):
        orders.complete(delivery.lock_token, START)


@pytest.mark.parametrize("operation", ["complete", "abandon", "defer", "dead_letter", "release", "renew"])
def test_a_lock_that_is_over_settles_nothing(operation: str) -> None:
    space, orders = queue(lock_duration=5.0)
    space.send("orders", [message(b"1")], START)
    (delivery,) = orders.receive(1, START)
    lost = "has already been removed from the queue"
    with refused(conditions.MESSAGE_LOCK_LOST, text=lost):
        getattr(orders, operation)(delivery.lock_token, START + 5)
    assert bodies(orders.receive(1, START + 5)) == [b"1"]
    with refused(conditions.MESSAGE_LOCK_LOST, text=lost):
        getattr(orders, operation)(uuid.uuid4(), START + 5)


def test_renewal_holds_a_lock_and_the_old_end_means_nothing() -> None:
    space, orders = queue(lock_duration=5.0)
    space.send("orders", [message()], START)
    (delivery,) = orders.receive(1, START)
    assert delivery.lock_token is not None
    assert orders.renew(delivery.lock_token, START + 3) == START + 8
    space.tick(START + 6)
    assert orders.receive(1, START + 6) == []
    orders.complete(delivery.lock_token, START + 7.9)


def test_a_relocked_message_is_not_freed_by_its_first_lock() -> None:
    space, orders = queue(lock_duration=5.0)
    space.send("orders", [message()], START)
    (first,) = orders.receive(1, START)
    assert first.lock_token is not None
    orders.abandon(first.lock_token, START + 2)
    (second,) = orders.receive(1, START + 2)
    space.tick(START + 5)
    assert len(orders._locks) == 1
    space.tick(START + 7)
    assert len(orders._locks) == 0
    with refused(conditions.MESSAGE_LOCK_LOST):
        orders.complete(first.lock_token, START + 7)
    assert second.message.delivery_count == 2


@pytest.mark.parametrize("way", ["abandon", "lock ends", "defer"])
def test_the_last_delivery_leads_to_the_dead_letters(way: str) -> None:
    space, orders = queue(max_delivery_count=2, lock_duration=10.0)
    space.send("orders", [message(b"1", properties={"own": 7})], START)
    assert orders.dead_letters is not None
    for attempt in range(2):
        now = START + 20 * attempt
        (delivery,) = orders.receive(1, now)
        assert delivery.message.delivery_count == attempt
        assert delivery.lock_token is not None
        if way == "defer" and attempt == 1:
            orders.defer(delivery.lock_token, now)
        elif way == "lock ends":
            orders.tick(now + 10)
        else:
            orders.abandon(delivery.lock_token, now)
    assert orders.receive(1, START + 40) == []
    assert orders.counts()[:2] == (0, 1)
    (letter,) = orders.dead_letters.receive(1, START + 40)
    assert application_properties(letter.message) == {
        "own": 7,
        "DeadLetterReason": "MaxDeliveryCountExceeded",
        "DeadLetterErrorDescription": "Message could not be consumed after 2 delivery attempts.",
    }
    assert letter.message.dead_letter_source == "orders"
    assert letter.message.delivery_count == 2


def test_dead_letters_keep_number_and_time_and_fail_as_often_as_they_like() -> None:
    space, orders = queue(max_delivery_count=1)
    space.send("orders", [message(b"0"), message(b"1")], START)
    dead = space.node("Orders/$deadletterqueue")
    assert dead is orders.dead_letters
    assert isinstance(dead, MessageQueue)
    _, second = orders.receive(2, START)
    assert second.lock_token is not None
    orders.dead_letter(
        second.lock_token, START + 9, reason="odd", description="very odd", properties={"seen": True}
    )
    for _ in range(5):
        (letter,) = dead.receive(1, START + 10)
        assert letter.lock_token is not None
        assert (letter.message.sequence_number, letter.message.enqueued_at) == (2, START)
        assert letter.message.delivery_count == 0
        dead.abandon(letter.lock_token, START + 10)
    assert application_properties(dead.peek(0, 1, START + 10)[0]) == {
        "DeadLetterReason": "odd",
        "DeadLetterErrorDescription": "very odd",
        "seen": True,
    }
    (letter,) = dead.receive(1, START + 10)
    assert letter.lock_token is not None
    with refused(conditions.NOT_ALLOWED):
        dead.dead_letter(letter.lock_token, START + 10)
    dead.complete(letter.lock_token, START + 10)
    assert orders.counts().dead_letter == 0


def test_dead_lettering_without_a_reason_adds_no_property() -> None:
    space, orders = queue()
    space.send("orders", [message()], START)
    (delivery,) = orders.receive(1, START)
    assert delivery.lock_token is not None
    orders.dead_letter(delivery.lock_token, START)
    assert orders.dead_letters is not None
    assert application_properties(orders.dead_letters.peek(0, 1, START)[0]) == {}


@pytest.mark.parametrize("operation", ["abandon", "defer", "dead_letter"])
def test_settling_makes_no_message_grow_for_ever(operation: str) -> None:
    """Dead letters, and what nobody buries, may be settled as often as anybody likes."""
    space, orders = queue(max_delivery_count=1_000_000)
    space.send("orders", [message(b"1")], START)
    (delivery,) = orders.receive(1, START)
    for number in range(4):
        assert delivery.lock_token is not None
        orders.abandon(delivery.lock_token, START, properties={f"p{number}": "x" * 32_000})
        (delivery,) = orders.receive(1, START)
    before = delivery.message.size
    assert before == orders.size_bytes < MOST_PROPERTIES
    assert delivery.lock_token is not None
    with refused(conditions.MESSAGE_SIZE_EXCEEDED, text="fewer or shorter properties"):
        getattr(orders, operation)(delivery.lock_token, START, properties={"more": "x" * 32_000})
    assert (delivery.message.size, orders.size_bytes) == (before, before)
    orders.dead_letter(delivery.lock_token, START, reason="x" * 20_000, description="its lock is still there")
    assert orders.counts().dead_letter == 1


def test_a_deferred_message_comes_by_its_number_alone() -> None:
    space, orders = queue()
    space.send("orders", [message(b"1"), message(b"2")], START)
    (first,) = orders.receive(1, START)
    assert first.lock_token is not None
    orders.defer(first.lock_token, START, properties={"why": "later"})
    assert bodies(orders.receive(10, START)) == [b"2"]
    assert orders.counts().active == 2
    assert orders.counts().deferred == 1
    with refused(conditions.MESSAGE_NOT_FOUND):
        orders.receive_deferred([1, 2], START)
    (again,) = orders.receive_deferred([1], START)
    assert again.message.state is MessageState.DEFERRED
    assert again.message.delivery_count == 1
    assert application_properties(again.message) == {"why": "later"}
    with refused(conditions.MESSAGE_NOT_FOUND):
        orders.receive_deferred([1], START)
    assert again.lock_token is not None
    orders.abandon(again.lock_token, START)
    assert orders.receive(1, START) == []
    assert bodies(orders.receive_deferred([1], START, delete=True)) == [b"1"]
    assert orders.counts().deferred == 0
    with refused(conditions.MESSAGE_NOT_FOUND, text="sequence number 1."):
        orders.receive_deferred([1], START)


def test_a_deferred_message_whose_lock_ends_is_deferred_again() -> None:
    space, orders = queue(lock_duration=5.0)
    space.send("orders", [message(b"1")], START)
    (first,) = orders.receive(1, START)
    assert first.lock_token is not None
    orders.defer(first.lock_token, START)
    orders.receive_deferred([1], START)
    space.tick(START + 5)
    assert orders.receive(1, START + 5) == []
    (again,) = orders.receive_deferred([1], START + 5)
    assert again.message.delivery_count == 2


@pytest.mark.parametrize("operation", ["abandon", "defer"])
def test_properties_are_merged_and_the_size_follows(operation: str) -> None:
    space, orders = queue()
    space.send("orders", [message(properties={"a": 1, "b": 2})], START)
    before = orders.size_bytes
    (delivery,) = orders.receive(1, START)
    getattr(orders, operation)(delivery.lock_token, START, properties={"b": "two", "c": None})
    (seen,) = orders.peek(0, 1, START)
    assert application_properties(seen) == {"a": 1, "b": "two", "c": None}
    assert orders.size_bytes > before
    assert orders.size_bytes == seen.size


def test_peek_shows_everything_and_changes_nothing() -> None:
    space, orders = queue()
    space.send("orders", [message(b"locked"), message(b"deferred"), message(b"waits")], START)
    space.send("orders", [message(b"later", at=START + 100)], START)
    _, second = orders.receive(2, START)
    assert second.lock_token is not None
    orders.defer(second.lock_token, START)
    seen = orders.peek(0, 100, START)
    assert bodies(seen) == [b"locked", b"deferred", b"waits", b"later"]
    assert [each.state.value for each in seen] == [0, 1, 0, 2]
    assert bodies(orders.peek(2, 2, START)) == [b"deferred", b"waits"]
    assert orders.peek(5, 10, START) == []
    assert orders.peek(0, 0, START) == []
    assert bodies(orders.receive(9, START)) == [b"waits"]


def test_a_message_without_an_id_gets_one() -> None:
    space, orders = queue()
    space.send("orders", [message(message_id=None)], START)
    (stored,) = orders.peek(0, 1, START)
    assert uuid.UUID(stored.message_id)
    assert scan(stored.properties_bytes).properties.message_id == stored.message_id


@pytest.mark.parametrize(
    ("given", "kept"),
    [("text", "text"), (uuid.UUID(int=5), str(uuid.UUID(int=5))), (b"\x01\xff", "01ff")],
)
def test_an_id_of_any_type_is_known_as_text_and_kept_as_it_was(given: Any, kept: str) -> None:
    space, orders = queue()
    space.send("orders", [message(message_id=given)], START)
    (stored,) = orders.peek(0, 1, START)
    assert stored.message_id == kept
    assert scan(stored.properties_bytes).properties.message_id == given


def test_what_only_the_broker_says_is_not_taken_from_a_sender() -> None:
    space, orders = queue()
    marks = {"x-opt-sequence-number": 77, "x-opt-deadletter-source": "lie", "x-opt-own": "kept"}
    space.send("orders", [message(annotations=marks)], START)
    (stored,) = orders.peek(0, 1, START)
    assert stored.annotations == {"x-opt-own": "kept"}
    assert stored.sequence_number == 1


@pytest.mark.parametrize("odd", [5, b"key", None, ["list"], {"a": 1}])
def test_odd_annotations_are_passed_on_and_mean_nothing(odd: Any) -> None:
    space, orders = queue()
    marks = {"x-opt-partition-key": odd, "x-opt-scheduled-enqueue-time": None if odd == 5 else odd}
    space.send("orders", [message(annotations=marks)], START)
    (stored,) = orders.peek(0, 1, START)
    assert stored.annotations == marks
    assert (stored.partition_key, stored.scheduled_for, stored.state) == (None, None, MessageState.ACTIVE)


def test_a_refusal_says_what_some_clients_look_for_and_survives_pickle() -> None:
    _, orders = queue()
    with pytest.raises(Refused) as caught:
        orders.complete(uuid.uuid4(), START)
    copied = pickle.loads(pickle.dumps(caught.value))
    assert copied.condition == conditions.MESSAGE_LOCK_LOST
    assert copied.description.startswith(
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from "
        "the queue"
    )


def test_counts_and_ready() -> None:
    space, orders = queue()
    assert space.take_ready() == set()
    space.send("orders", [message(), message()], START)
    assert space.take_ready() == {orders}
    (first, second) = orders.receive(2, START)
    assert space.take_ready() == set()
    assert orders.counts().active == 2
    assert first.lock_token is not None
    assert second.lock_token is not None
    orders.release(first.lock_token, START)
    orders.dead_letter(second.lock_token, START)
    assert space.take_ready() == {orders, orders.dead_letters}
    assert orders.counts() == (1, 1, 0, 0, 0, 0)
    assert orders.counts().total == 2


def test_annotations_are_kept_as_the_bytes_that_they_take() -> None:
    """Decoded they would take a hundred times as much: ten megabytes of them were a gigabyte."""
    marks: dict[str, Any] = {f"x-{number}": [] for number in range(2000)}
    space, orders = queue()
    space.send("orders", [message(annotations=marks)], START)
    tracemalloc.start()
    for _ in range(20):
        space.send("orders", [message(annotations=marks)], START)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    (stored,) = orders.peek(0, 1, START)
    assert held < 3 * 20 * len(stored.annotations_bytes)
    assert stored.annotations == marks


@pytest.mark.parametrize("delete", [False, True], ids=["locked", "deleted"])
def test_a_deferred_message_that_is_named_twice_is_one(delete: bool) -> None:
    space, orders = queue()
    space.send("orders", [message(b"1"), message(b"2")], START)
    for delivery in orders.receive(2, START):
        assert delivery.lock_token is not None
        orders.defer(delivery.lock_token, START)
    found = orders.receive_deferred([2, 1, 2], START, delete=delete)
    assert bodies(found) == [b"2", b"1"]
    check_books(space)
    assert orders.counts().deferred == (0 if delete else 2)

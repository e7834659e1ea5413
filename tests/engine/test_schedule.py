"""Messages that wait for their time."""

import pytest

from pairbus import conditions
from pairbus.broker.engine.message import MessageState
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.topic import Topic
from tests.engine.samples import START, bodies, message, namespace, ping, queue, refused


def test_a_scheduled_message_is_there_but_not_given_out_before_its_time() -> None:
    space, orders = queue()
    assert space.schedule("orders", [message(b"1", at=START + 10)], START) == [1]
    assert orders.counts() == (0, 0, 1, 0, 0, 0)
    assert orders.receive(1, START + 9.9) == []
    assert space.next_deadline() == START + 10
    (held,) = orders.peek(0, 1, START)
    assert held.state is MessageState.SCHEDULED
    assert held.scheduled_for == START + 10


def test_activation_gives_a_new_number_and_a_new_time() -> None:
    space, orders = queue()
    space.schedule("orders", [message(b"later", at=START + 10)], START)
    space.send("orders", [message(b"now")], START + 1)
    space.take_ready()
    space.tick(START + 11)
    assert space.take_ready() == {orders}
    now, later = orders.receive(5, START + 11)
    assert bodies([now, later]) == [b"now", b"later"]
    assert later.message.sequence_number == 3
    assert later.message.enqueued_at == START + 11
    assert later.message.state is MessageState.ACTIVE
    assert orders.counts().scheduled == 0


def test_an_operation_finds_what_is_due_without_a_tick() -> None:
    space, orders = queue()
    space.send("orders", [message(b"1", at=START + 10)], START)
    assert bodies(orders.receive(1, START + 10)) == [b"1"]


def test_many_are_activated_by_time_not_by_number() -> None:
    space, orders = queue()
    times = [30, 10, 20]
    space.send("orders", [message(str(t).encode(), at=START + t) for t in times], START)
    space.tick(START + 60)
    assert bodies(orders.receive(5, START + 60)) == [b"10", b"20", b"30"]


def test_an_ordinary_send_with_a_past_time_is_enqueued_at_once() -> None:
    space, orders = queue()
    space.send("orders", [message(b"1", at=START - 10)], START)
    assert [each.message.sequence_number for each in orders.receive(1, START)] == [1]


@pytest.mark.parametrize("at", [START - 5, None])
def test_scheduling_for_the_past_activates_at_once(at: float | None) -> None:
    space, orders = queue()
    assert space.schedule("orders", [message(b"1", at=at)], START) == [1]
    assert [each.message.sequence_number for each in orders.receive(1, START)] == [2]


def test_cancel_takes_all_or_none() -> None:
    space, orders = queue()
    numbers = space.schedule("orders", [message(at=START + 10) for _ in range(3)], START)
    with refused(conditions.MESSAGE_NOT_FOUND, text="99"):
        space.cancel_scheduled("orders", [numbers[0], 99], START)
    assert orders.counts().scheduled == 3
    space.cancel_scheduled("orders", numbers[:2], START)
    assert orders.counts().scheduled == 1
    space.tick(START + 10)
    assert len(orders.receive(5, START + 10)) == 1
    with refused(conditions.MESSAGE_NOT_FOUND):
        space.cancel_scheduled("orders", [numbers[2]], START + 10)
    assert space.next_deadline() is not None


def test_an_active_message_cannot_be_cancelled() -> None:
    space, orders = queue()
    space.send("orders", [message()], START)
    with refused(conditions.MESSAGE_NOT_FOUND):
        space.cancel_scheduled("orders", [1], START)
    assert len(orders.receive(1, START)) == 1


def test_a_topic_holds_its_messages_and_then_fans_out() -> None:
    space = namespace()
    topic = space.create_topic("news", None, START)
    space.create_subscription("news", "early", None, START)
    (first, second) = space.schedule(
        "news", [message(b"1", at=START + 10), message(b"2", at=START + 10)], START
    )
    space.create_subscription("news", "late", None, START)
    assert isinstance(space.node("news"), Topic)
    assert topic.counts().scheduled == 2
    space.cancel_scheduled("news", [second], START)
    space.tick(START + 10)
    for name in ("early", "late"):
        found = space.get_subscription("news", name).receive(5, START + 10)
        assert bodies(found) == [b"1"]
        assert found[0].message.enqueued_sequence_number > first
    assert topic.counts().scheduled == 0
    assert topic.table.count == 0


def test_a_cancelled_message_takes_no_room() -> None:
    space, orders = queue()
    numbers = space.schedule("orders", [message(at=START + 10)], START)
    assert orders.size_bytes > 0
    space.cancel_scheduled("orders", numbers, START)
    assert orders.size_bytes == 0


def test_a_ping_is_given_a_number_and_dropped() -> None:
    space, orders = queue()
    assert space.schedule("orders", [ping()], START) == [1]
    assert orders.counts().total == 0


def test_a_scheduled_message_in_a_session_waits_in_its_session() -> None:
    space, orders = queue(requires_session=True)
    space.send("orders", [message(b"1", session_id="a", at=START + 10)], START)
    assert orders.accept_session(None, START) is None
    lock = orders.accept_session(None, START + 10)
    assert lock is not None
    assert bodies(orders.receive(1, START + 10, session=lock)) == [b"1"]


def test_the_life_of_a_scheduled_message_begins_with_its_activation() -> None:
    space, orders = queue()
    space.send("orders", [message(b"1", at=START + 100, ttl=5.0)], START)
    space.tick(START + 103)
    (seen,) = orders.peek(0, 1, START + 103)
    assert seen.expires_at == START + 108
    assert isinstance(orders, MessageQueue)
    assert orders.receive(1, START + 108) == []

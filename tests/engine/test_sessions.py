"""Sessions: who holds one, what waits in it, and how it ends."""

import uuid

import pytest

from pairbus import conditions
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.sessions import SessionLock
from tests.engine.observing import check_books
from tests.engine.samples import START, bodies, message, ping, queue, refused


def sessions(*pairs: tuple[str, bytes], **settings: object) -> tuple[Namespace, MessageQueue]:
    space, orders = queue(requires_session=True, lock_duration=10.0, **settings)
    space.send("orders", [message(body, session_id=session) for session, body in pairs], START)
    return space, orders


def accept(orders: MessageQueue, session_id: str | None, now: float) -> SessionLock:
    lock = orders.accept_session(session_id, now)
    assert lock is not None
    return lock


def test_a_session_is_received_in_order_and_alone() -> None:
    _, orders = sessions(("a", b"a1"), ("b", b"b1"), ("a", b"a2"))
    lock = accept(orders, "a", START)
    assert lock.locked_until == START + 10
    assert bodies(orders.receive(10, START, session=lock)) == [b"a1", b"a2"]
    with refused(conditions.SESSION_CANNOT_BE_LOCKED, text="'a'"):
        orders.accept_session("a", START)


def test_the_next_free_session_is_the_one_that_waits_longest() -> None:
    space, orders = sessions(("a", b"a1"), ("b", b"b1"), ("c", b"c1"))
    assert accept(orders, None, START).session_id == "a"
    second = accept(orders, None, START)
    assert second.session_id == "b"
    assert accept(orders, None, START).session_id == "c"
    assert orders.accept_session(None, START) is None
    space.take_ready()
    orders.release_session(second, START)
    assert space.take_ready() == {orders}
    assert accept(orders, None, START).session_id == "b"


def test_a_named_session_may_be_empty_and_gets_what_comes() -> None:
    space, orders = sessions()
    lock = accept(orders, "new", START)
    assert orders.receive(1, START, session=lock) == []
    space.send("orders", [message(b"1", session_id="new")], START)
    assert orders in space.take_ready()
    assert orders.accept_session(None, START) is None
    assert bodies(orders.receive(1, START, session=lock)) == [b"1"]


def test_released_messages_are_not_counted_and_expired_ones_are() -> None:
    _, orders = sessions(("a", b"a1"), ("a", b"a2"))
    first = accept(orders, None, START)
    orders.receive(1, START, session=first)
    orders.release_session(first, START)
    second = accept(orders, None, START)
    deliveries = orders.receive(2, START, session=second)
    assert [each.message.delivery_count for each in deliveries] == [0, 0]
    assert bodies(deliveries) == [b"a1", b"a2"]
    third = accept(orders, None, START + 10)
    deliveries = orders.receive(2, START + 10, session=third)
    assert [each.message.delivery_count for each in deliveries] == [1, 1]
    assert bodies(deliveries) == [b"a1", b"a2"]


def test_an_expired_session_lock_settles_and_receives_nothing() -> None:
    _, orders = sessions(("a", b"a1"))
    lock = accept(orders, "a", START)
    (delivery,) = orders.receive(1, START, session=lock)
    assert delivery.lock_token is not None
    later = START + 10
    orders.tick(later)
    assert orders.session_lock("a") is None
    with refused(conditions.SESSION_LOCK_LOST):
        orders.complete(delivery.lock_token, later)
    with refused(conditions.SESSION_LOCK_LOST, text="'a'"):
        orders.receive(1, later, session=lock)
    with refused(conditions.SESSION_LOCK_LOST):
        orders.renew_session(lock, later)
    orders.release_session(lock, later)
    assert accept(orders, "a", later).session_id == "a"


def test_renewal_keeps_the_session_and_its_messages() -> None:
    space, orders = sessions(("a", b"a1"))
    lock = accept(orders, "a", START)
    (delivery,) = orders.receive(1, START, session=lock)
    assert delivery.lock_token is not None
    assert orders.renew_session(lock, START + 6) == START + 16
    space.tick(START + 12)
    assert orders.session_lock("a") is lock
    with refused(conditions.NOT_ALLOWED, text="session's lock"):
        orders.renew(delivery.lock_token, START + 12)
    orders.complete(delivery.lock_token, START + 15)
    assert orders.counts().total == 0


def test_abandoned_in_a_session_comes_back_first() -> None:
    _, orders = sessions(("a", b"a1"), ("a", b"a2"), ("a", b"a3"))
    lock = accept(orders, "a", START)
    first, _ = orders.receive(2, START, session=lock)
    assert first.lock_token is not None
    orders.abandon(first.lock_token, START)
    assert bodies(orders.receive(5, START, session=lock)) == [b"a1", b"a3"]


def test_deferred_messages_belong_to_their_session() -> None:
    _, orders = sessions(("a", b"a1"), ("b", b"b1"))
    lock, other = accept(orders, "a", START), accept(orders, "b", START)
    (delivery,) = orders.receive(1, START, session=lock)
    assert delivery.lock_token is not None
    orders.defer(delivery.lock_token, START)
    with refused(conditions.NOT_ALLOWED):
        orders.receive_deferred([1], START)
    with refused(conditions.MESSAGE_NOT_FOUND):
        orders.receive_deferred([1], START, session=other)
    (again,) = orders.receive_deferred([1], START, session=lock)
    orders.release_session(lock, START)
    assert orders.accept_session(None, START) is None, "a deferred message makes no session available"
    lock = accept(orders, "a", START)
    (again,) = orders.receive_deferred([1], START, session=lock, delete=True)
    assert bodies([again]) == [b"a1"]


@pytest.mark.parametrize("requires_session", [True, False])
def test_receivers_of_the_wrong_kind_are_refused(requires_session: bool) -> None:
    _, orders = queue(requires_session=requires_session)
    orders.check_receiver(with_session=requires_session)
    with refused(conditions.NOT_ALLOWED):
        orders.check_receiver(with_session=not requires_session)
    stale = SessionLock("a", uuid.uuid4(), START + 60)
    with refused(conditions.NOT_ALLOWED):
        orders.receive(1, START, session=None if requires_session else stale)
    if not requires_session:
        with refused(conditions.NOT_ALLOWED):
            orders.accept_session(None, START)
        with refused(conditions.NOT_ALLOWED):
            orders.get_session_state("a")
        with refused(conditions.NOT_ALLOWED):
            orders.set_session_state("a", b"", START)
        with refused(conditions.NOT_ALLOWED):
            orders.list_sessions()


def test_messages_without_a_session_are_refused_whole_batches_too() -> None:
    space, orders = sessions()
    with refused(conditions.NOT_ALLOWED, text="session id"):
        space.send("orders", [message(session_id="a"), message()], START)
    assert orders.counts().total == 0
    space.send("orders", [ping(session_id="random")], START)
    assert orders.list_sessions() == []


def test_state_outlives_messages_and_locks() -> None:
    _, orders = sessions()
    assert orders.get_session_state("a") is None
    lock = accept(orders, "a", START)
    orders.set_session_state("a", b"step 1", START)
    orders.release_session(lock, START)
    assert orders.get_session_state("a") == b"step 1"
    assert orders.size_bytes == 6
    orders.set_session_state("a", None, START)
    assert orders.get_session_state("a") is None
    assert orders.size_bytes == 0
    with refused(conditions.ARGUMENT_ERROR):
        orders.set_session_state("a", b"x" * 262_145, START)


def test_states_need_room_as_messages_do() -> None:
    space, orders = queue(requires_session=True)
    orders.space.limit = 1000
    orders.set_session_state("a", bytes(900), START)
    orders.set_session_state("a", bytes(999), START)
    with refused(conditions.RESOURCE_LIMIT):
        orders.set_session_state("b", bytes(2), START)
    assert (orders.get_session_state("b"), orders.size_bytes) == (None, 999)
    orders.space.limit = 10  # it may have become less
    orders.set_session_state("a", bytes(998), START)
    check_books(space)


def test_listing() -> None:
    _, orders = sessions(("b", b"1"), ("a", b"2"), ("c", b"3"))
    orders.set_session_state("z", b"s", START + 5)
    assert orders.list_sessions() == ["a", "b", "c", "z"]
    assert orders.list_sessions(skip=1, top=1) == ["b"]
    assert orders.list_sessions(updated_after=START) == ["z"]
    assert orders.list_sessions(updated_after=START + 5) == []


def test_peek_of_one_session() -> None:
    space, orders = sessions(("a", b"a1"), ("b", b"b1"), ("a", b"a2"))
    space.send("orders", [message(b"a3", session_id="a", at=START + 100)], START)
    lock = accept(orders, "a", START)
    orders.receive(1, START, session=lock)
    assert bodies(orders.peek(0, 10, START, session_id="a")) == [b"a1", b"a2", b"a3"]
    assert bodies(orders.peek(2, 1, START, session_id="a")) == [b"a2"]
    assert orders.peek(0, 10, START, session_id="nobody") == []
    assert len(orders.peek(0, 10, START)) == 4


def test_peek_by_session_without_sessions_looks_at_the_id() -> None:
    space, orders = queue()
    space.send("orders", [message(b"1", session_id="a"), message(b"2"), message(b"3", session_id="a")], START)
    assert bodies(orders.peek(0, 10, START, session_id="a")) == [b"1", b"3"]


def test_dead_letters_of_a_session_queue_know_no_sessions() -> None:
    _, orders = sessions(("a", b"a1"))
    lock = accept(orders, "a", START)
    (delivery,) = orders.receive(1, START, session=lock)
    assert delivery.lock_token is not None
    orders.dead_letter(delivery.lock_token, START)
    assert orders.dead_letters is not None
    assert not orders.dead_letters.requires_session
    assert bodies(orders.dead_letters.receive(1, START)) == [b"a1"]


def test_expiry_empties_a_session() -> None:
    space, orders = sessions(("a", b"a1"))
    space.send("orders", [message(b"b1", session_id="b", ttl=2.0)], START)
    space.tick(START + 2)
    assert orders.list_sessions() == ["a"]
    assert accept(orders, None, START + 2).session_id == "a"
    assert orders.accept_session(None, START + 2) is None


def test_max_delivery_count_by_lost_sessions() -> None:
    _, orders = sessions(("a", b"a1"), ("a", b"a2"), max_delivery_count=1)
    lock = accept(orders, "a", START)
    orders.receive(1, START, session=lock)
    orders.tick(START + 10)
    assert orders.counts()[:2] == (1, 1)
    lock = accept(orders, None, START + 10)
    assert bodies(orders.receive(5, START + 10, session=lock)) == [b"a2"]

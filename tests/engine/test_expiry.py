"""Time to live."""

import pytest

from pairbus import conditions
from pairbus.broker.engine.settings import QueueSettings
from tests.engine.samples import START, application_properties, bodies, message, queue, refused


@pytest.mark.parametrize(
    ("own", "default", "life"),
    [(None, None, None), (5.0, None, 5.0), (None, 7.0, 7.0), (5.0, 7.0, 5.0), (9.0, 7.0, 7.0)],
)
def test_the_shorter_life_counts(own: float | None, default: float | None, life: float | None) -> None:
    space, orders = queue(default_message_time_to_live=default)
    space.send("orders", [message(b"1", ttl=own)], START)
    (stored,) = orders.peek(0, 1, START)
    assert stored.expires_at == (None if life is None else START + life)
    if life is not None:
        assert bodies(orders.peek(0, 1, START + life - 0.1)) == [b"1"]
        assert orders.receive(1, START + life) == []
        assert orders.counts().total == 0
        assert orders.size_bytes == 0


def test_a_life_beyond_the_header_is_read_from_the_properties_whatever_the_clock() -> None:
    space, orders = queue()
    space.send("orders", [message(ttl=100.0, created=5_000.0, expires=5_000.0 + 6_000_000)], START)
    assert orders.peek(0, 1, START)[0].expires_at == START + 6_000_000


def test_expired_messages_go_to_the_dead_letters_if_the_queue_says_so() -> None:
    space, orders = queue(dead_lettering_on_message_expiration=True)
    space.send("orders", [message(b"1", ttl=2.0), message(b"2")], START)
    assert space.next_deadline() == START + 2
    space.tick(START + 2)
    assert bodies(orders.receive(5, START + 2)) == [b"2"]
    assert orders.dead_letters is not None
    (letter,) = orders.dead_letters.receive(5, START + 1_000_000)
    assert letter.message.expires_at is None, "dead letters live for ever"
    assert application_properties(letter.message) == {
        "DeadLetterReason": "TTLExpiredException",
        "DeadLetterErrorDescription": "The message expired and was dead lettered.",
    }


def test_a_locked_message_outlives_its_expiry_until_the_lock_ends() -> None:
    space, orders = queue(lock_duration=10.0)
    space.send("orders", [message(b"1", ttl=2.0), message(b"2", ttl=2.0), message(b"3", ttl=2.0)], START)
    first, second, _ = orders.receive(3, START + 1)
    space.tick(START + 5)
    assert orders.counts().active == 3
    assert first.lock_token is not None
    assert second.lock_token is not None
    orders.complete(first.lock_token, START + 5)
    orders.abandon(second.lock_token, START + 5)
    assert orders.counts().active == 1
    assert orders.receive(1, START + 6) == []
    space.tick(START + 11)
    assert orders.counts().active == 0


def test_a_deferred_message_expires_when_it_is_asked_for() -> None:
    space, orders = queue(dead_lettering_on_message_expiration=True)
    space.send("orders", [message(b"1", ttl=2.0)], START)
    (delivery,) = orders.receive(1, START)
    assert delivery.lock_token is not None
    orders.defer(delivery.lock_token, START)
    space.tick(START + 50)
    assert orders.counts().deferred == 1
    with refused(conditions.MESSAGE_NOT_FOUND):
        orders.receive_deferred([1], START + 50)
    assert orders.counts() == (0, 1, 0, 0, 0, 0)


def test_many_expired_messages_leave_no_trace() -> None:
    space, orders = queue()
    space.send("orders", [message(b"stays")], START)
    for start in range(0, 1000, 100):
        space.send("orders", [message(ttl=1.0 + start) for _ in range(100)], START)
    space.tick(START + 2000)
    assert orders.counts().active == 1
    assert len(orders._stock.line) <= 2 + 64
    assert len(orders._stock._expiries) == 0
    assert space.next_deadline() is None


def test_a_new_default_is_for_new_messages() -> None:
    space, orders = queue()
    space.send("orders", [message(b"old")], START)
    space.update_queue("orders", QueueSettings(default_message_time_to_live=5.0), START)
    space.send("orders", [message(b"new")], START)
    assert bodies(orders.peek(0, 5, START + 5)) == [b"old"]

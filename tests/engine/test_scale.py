"""A long queue is as quick as a short one.

Counted, not timed: what is looked at for one operation, and what is kept for things that are gone.
"""

from collections.abc import Callable
from typing import Any

import pytest

from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.table import MessageTable
from tests.engine.samples import START, message, namespace, queue

LENGTH = 50_000


@pytest.fixture(scope="module")
def long_queue() -> MessageQueue:
    """Fifty thousand messages, the first three quarters of them received and completed."""
    space, orders = queue(max_size_in_megabytes=80_000)
    batch = [message(b"x", message_id="m", ttl=1000.0)] * 100
    for _ in range(LENGTH // 100):
        space.send("orders", batch, START)
    for delivery in orders.receive(LENGTH * 3 // 4, START):
        assert delivery.lock_token is not None
        orders.complete(delivery.lock_token, START)
    space.take_events()
    return orders


def looks(operation: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the table is asked for a message during an operation."""
    count = 0
    get, since = MessageTable.get, MessageTable.since

    def counted_get(self: MessageTable, number: int) -> Any:
        nonlocal count
        count += 1
        return get(self, number)

    def counted_since(self: MessageTable, number: int) -> Any:
        nonlocal count
        for found in since(self, number):
            count += 1
            yield found

    with monkeypatch.context() as patched:
        patched.setattr(MessageTable, "get", counted_get)
        patched.setattr(MessageTable, "since", counted_since)
        operation()
    return count


OPERATIONS: dict[str, Callable[[MessageQueue], Any]] = {
    "peek at the front": lambda orders: orders.peek(0, 10, START),
    "peek in the middle": lambda orders: orders.peek(LENGTH - 100, 10, START),
    "peek behind the end": lambda orders: orders.peek(LENGTH + 1, 10, START),
    "send": lambda orders: orders.send([message(ttl=50.0)], START),
    "receive": lambda orders: orders.receive(10, START),
    "receive and delete": lambda orders: orders.receive(10, START, delete=True),
    "count": lambda orders: orders.counts(),
    "lock and give back": lambda orders: give_back(orders),
}


def give_back(orders: MessageQueue) -> None:
    for each in orders.receive(5, START):
        assert each.lock_token is not None
        orders.release(each.lock_token, START)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_looks_at_few_messages(
    name: str, long_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looks(lambda: OPERATIONS[name](long_queue), monkeypatch) <= 40


def test_what_is_gone_takes_little_room(long_queue: MessageQueue) -> None:
    assert len(long_queue._locks._ends) == len(long_queue._locks)
    assert len(long_queue._stock._expiries) == long_queue._stock.active_count
    assert len(long_queue._stock.line) == long_queue._stock.active_count - len(long_queue._locks)


def test_locks_that_were_settled_do_not_pile_up() -> None:
    space, orders = queue(lock_duration=300.0)
    for _ in range(3000):
        space.send("orders", [message(b"x", message_id="m", ttl=500.0)], START)
        (delivery,) = orders.receive(1, START)
        assert delivery.lock_token is not None
        orders.renew(delivery.lock_token, START)
        orders.complete(delivery.lock_token, START)
    assert len(orders._locks._ends) == 0
    assert len(orders._stock._expiries) == 0
    assert len(space._context.alarms._heap) <= 70


def test_many_idle_queues_cost_a_tick_nothing() -> None:
    space = namespace()
    for n in range(500):
        space.create_queue(f"q{n}", None, START)
    space.send("q7", [message(ttl=5.0)], START)
    ticked: list[str] = []
    original = MessageQueue._work_off

    def work_off(self: MessageQueue, now: float) -> None:
        ticked.append(self.path)
        original(self, now)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(MessageQueue, "_work_off", work_off)
        space.tick(START + 4)
        space.tick(START + 5)
    assert ticked == ["q7"]

"""Duplicate detection."""

from typing import Any

import pytest

from pairbus import conditions
from pairbus.broker.engine.context import Space
from pairbus.broker.engine.duplicates import ID_OVERHEAD, DuplicateHistory
from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.events import DuplicateForgotten, DuplicateSeen
from pairbus.broker.engine.settings import QueueSettings, TopicSettings
from tests.engine.samples import START, bodies, message, namespace, ping, queue

WINDOW: dict[str, Any] = {
    "requires_duplicate_detection": True,
    "duplicate_detection_history_time_window": 60.0,
}


def test_a_duplicate_is_accepted_and_dropped_within_the_window() -> None:
    space, orders = queue(**WINDOW)
    space.send("orders", [message(b"1", message_id="x")], START)
    space.send("orders", [message(b"2", message_id="x"), message(b"3", message_id="y")], START + 59.9)
    assert bodies(orders.receive(9, START + 59.9)) == [b"1", b"3"]
    space.send("orders", [message(b"4", message_id="x")], START + 60)
    assert bodies(orders.receive(9, START + 60)) == [b"4"]


def test_a_completed_message_is_still_known() -> None:
    space, orders = queue(**WINDOW)
    space.send("orders", [message(message_id="x")], START)
    orders.receive(1, START, delete=True)
    space.send("orders", [message(message_id="x")], START + 1)
    assert orders.receive(1, START + 1) == []


def test_twins_in_one_batch() -> None:
    space, orders = queue(**WINDOW)
    space.send("orders", [message(b"1", message_id="x"), message(b"2", message_id="x")], START)
    assert bodies(orders.receive(9, START)) == [b"1"]


def test_without_detection_twins_live() -> None:
    space, orders = queue()
    space.send("orders", [message(message_id="x"), message(message_id="x")], START)
    assert len(orders.receive(9, START)) == 2


def test_a_topic_sorts_out_duplicates_before_it_fans_out() -> None:
    space = namespace()
    space.create_topic("news", TopicSettings(**WINDOW), START)
    subscription = space.create_subscription("news", "all", None, START)
    space.send("news", [message(b"1", message_id="x")], START)
    space.send("news", [message(b"2", message_id="x")], START + 1)
    assert bodies(subscription.receive(9, START + 1)) == [b"1"]


def test_scheduled_messages_count() -> None:
    space, orders = queue(**WINDOW)
    space.schedule("orders", [message(b"1", message_id="x", at=START + 10)], START)
    (number,) = space.schedule("orders", [message(b"2", message_id="x", at=START + 5)], START + 1)
    assert number == 2
    space.send("orders", [message(b"3", message_id="x")], START + 2)
    assert bodies(orders.receive(9, START + 20)) == [b"1"]


def test_pings_are_not_remembered_and_never_duplicates() -> None:
    space, orders = queue(**WINDOW)
    space.send("orders", [ping()], START)
    assert orders.duplicates is not None
    assert len(orders.duplicates) == 0


@pytest.mark.parametrize(("partitioned", "kept"), [(True, 2), (False, 1)])
def test_a_partition_knows_only_its_own_ids(partitioned: bool, kept: int) -> None:
    space, orders = queue(enable_partitioning=partitioned, **WINDOW)
    marks = [{"x-opt-partition-key": key} for key in ("p", "q")]
    space.send("orders", [message(message_id="x", annotations=each) for each in marks], START)
    assert len(orders.receive(9, START)) == kept


def test_ids_are_forgotten_together_and_told_once() -> None:
    space, orders = queue(**WINDOW)
    space.send("orders", [message(message_id=str(n)) for n in range(100)], START)
    seen = [event for event in space.take_events() if isinstance(event, DuplicateSeen)]
    assert [event.message_id for event in seen] == [str(n) for n in range(100)]
    deadline = space.next_deadline()
    assert deadline is not None
    assert START + 60 <= deadline <= START + 62
    space.tick(deadline)
    assert [event for event in space.take_events() if isinstance(event, DuplicateForgotten)] == [
        DuplicateForgotten("orders", deadline)
    ]
    assert orders.duplicates is not None
    assert len(orders.duplicates) == 0
    assert space.next_deadline() is None


@pytest.mark.parametrize(
    ("window", "again_at", "kept"),
    [(5.0, 4, 2), (5.0, 6, 4), (120.0, 61, 2), (120.0, 119, 2), (120.0, 121, 4)],
)
def test_a_new_window_holds_for_all_ids(window: float, again_at: float, kept: int) -> None:
    """Whether the id was seen before the change or after it, and also for who begins anew from the store."""
    space, _ = queue(**WINDOW)
    space.send("orders", [message(message_id="old")], START)
    changed = QueueSettings(requires_duplicate_detection=True, duplicate_detection_history_time_window=window)
    space.update_queue("orders", changed, START)
    space.send("orders", [message(message_id="new")], START)
    again = namespace()
    again.replay(space.take_events())
    for each in (space, again):
        each.send("orders", [message(message_id="old"), message(message_id="new")], START + again_at)
        assert each.get_queue("orders").counts().active == kept


def test_a_history_does_not_outgrow_what_it_knows() -> None:
    history = DuplicateHistory(10.0, Space())
    for turn in range(10_000):
        history.keep("same", float(turn))
    assert len(history) == 1
    assert len(history._ends) == 1


def test_ids_that_are_remembered_need_room() -> None:
    """A receiver that keeps up leaves no message behind, and an id for each until its window closes."""
    space, orders = queue(**WINDOW)
    room = orders.space.limit = 4 * (ID_OVERHEAD + 1)
    for name in "abcd":
        space.send("orders", [message(message_id=name)], START)
        orders.receive(1, START, delete=True)
    assert (orders.space.remembered, orders.size_bytes) == (room, 0)
    for send in (space.send, space.schedule):
        with pytest.raises(Refused, match="remembers") as refused:
            send("orders", [message(message_id="e")], START + 1)
        assert refused.value.condition == conditions.RESOURCE_LIMIT
    space.tick(START + 62)
    assert orders.space.remembered == 0
    space.send("orders", [message(message_id="e")], START + 62)
    assert orders.space.remembered == ID_OVERHEAD + 1


def test_an_id_that_is_seen_anew_needs_its_room_once() -> None:
    space = Space()
    history = DuplicateHistory(10.0, space)
    for until in (10.0, 11.0):
        history.keep("x", until)
    assert space.remembered == ID_OVERHEAD + 1
    history.forget(12.0)
    assert (space.remembered, len(history)) == (0, 0)

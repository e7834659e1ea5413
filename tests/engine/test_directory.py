"""Entities come, are found, change and go."""

from collections.abc import Callable
from typing import Any

import pytest

from pairbus import conditions
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings, TopicSettings
from tests.engine.samples import START, message, namespace, queue, refused


def test_every_spelling_of_a_path_finds_its_node() -> None:
    space = namespace()
    backlog = "Contoso/x-servicebus-transfer/0"
    space.create_queue(backlog, None, START)
    space.create_topic("deep/News", None, START)
    space.create_subscription("deep/news", "Mine", None, START)
    paths = {
        "contoso/X-SERVICEBUS-transfer/0": backlog,
        "/contoso/x-servicebus-transfer/0/": backlog,
        "contoso/x-servicebus-transfer/0/$deadletterqueue": f"{backlog}/$DeadLetterQueue",
        "contoso/x-servicebus-transfer/0/$Transfer/$DeadLetterQueue": f"{backlog}/$Transfer/$DeadLetterQueue",
        "DEEP/NEWS": "deep/News",
        "deep/news/subscriptions/MINE": "deep/News/Subscriptions/Mine",
        "deep/news/Subscriptions/mine/$DEADLETTERQUEUE": "deep/News/Subscriptions/Mine/$DeadLetterQueue",
    }
    for spelling, canonical in paths.items():
        assert space.node(spelling).path == canonical
        assert space.node(spelling) is space.node(canonical)
    for nothing in ("contoso", "deep", "deep/news/subscriptions", "deep/news/$deadletterqueue", ""):
        with refused(conditions.NOT_FOUND):
            space.node(nothing)


def test_listings_are_sorted_by_name() -> None:
    space = namespace()
    for name in ("b", "C", "a"):
        space.create_queue(name, None, START)
        space.create_topic(f"t-{name}", None, START)
    for name in ("y", "Z", "x"):
        space.create_subscription("t-b", name, None, START)
    assert [each.path for each in space.list_queues()] == ["a", "b", "C"]
    assert [each.path for each in space.list_topics()] == ["t-a", "t-b", "t-C"]
    assert [each.name for each in space.get_topic("t-b").subscriptions] == ["x", "y", "Z"]


def test_a_name_is_taken_once_whatever_it_names() -> None:
    space = namespace()
    space.create_queue("orders", None, START)
    space.create_topic("news", None, START)
    space.create_subscription("news", "s", None, START)
    creations: list[Callable[[], Any]] = [
        lambda: space.create_queue("ORDERS", None, START),
        lambda: space.create_topic("orders", None, START),
        lambda: space.create_queue("News", None, START),
        lambda: space.create_subscription("news", "S", None, START),
        lambda: space.create_queue("news/subscriptions/s", None, START),
    ]
    for creation in creations:
        with refused(conditions.ENTITY_ALREADY_EXISTS):
            creation()


def test_kinds_are_not_mixed_up() -> None:
    space = namespace()
    space.create_queue("orders", None, START)
    space.create_topic("news", None, START)
    for mistake in (
        lambda: space.get_topic("orders"),
        lambda: space.get_queue("news"),
        lambda: space.get_subscription("orders", "s"),
        lambda: space.get_subscription("news", "s"),
        lambda: space.create_subscription("orders", "s", None, START),
        lambda: space.delete_queue("news", START),
        lambda: space.update_topic("orders", TopicSettings(), START),
    ):
        with refused(conditions.NOT_FOUND):
            mistake()


def test_times_are_kept() -> None:
    space, orders = queue()
    assert (orders.created_at, orders.updated_at, orders.accessed_at) == (START, START, 0.0)
    space.update_queue("orders", QueueSettings(lock_duration=30.0), START + 5)
    assert (orders.created_at, orders.updated_at, orders.accessed_at) == (START, START + 5, 0.0)
    space.send("orders", [message()], START + 7)
    assert orders.accessed_at == START + 7
    orders.receive(1, START + 8)
    assert orders.accessed_at == START + 8


def test_a_deleted_queue_refuses_whoever_still_holds_it() -> None:
    space, orders = queue()
    space.send("orders", [message(), message(at=START + 50)], START)
    (delivery,) = orders.receive(1, START)
    token = delivery.lock_token
    assert token is not None
    dead = orders.dead_letters
    assert dead is not None
    space.delete_queue("Orders", START)
    space.take_events()
    operations: list[Callable[[], Any]] = [
        lambda: space.node("orders"),
        lambda: space.node("orders/$DeadLetterQueue"),
        lambda: orders.send([message()], START),
        lambda: orders.schedule([message()], START),
        lambda: orders.cancel_scheduled([2], START),
        lambda: orders.receive(1, START),
        lambda: orders.complete(token, START),
        lambda: orders.renew(token, START),
        lambda: orders.receive_deferred([1], START),
        lambda: orders.peek(0, 1, START),
        lambda: orders.accept_session(None, START),
        lambda: orders.get_session_state("a"),
        lambda: dead.receive(1, START),
        orders.check_send,
        orders.check_receive,
    ]
    for operation in operations:
        with refused(conditions.NOT_FOUND):
            operation()
    assert space.take_events() == []
    assert space.next_deadline() is None
    space.tick(START + 1000)
    space.create_queue("orders", None, START + 1000)
    assert space.node("orders").last_sequence == 0


def test_a_deleted_session_queue_has_lost_its_sessions() -> None:
    space, orders = queue(requires_session=True)
    lock = orders.accept_session("a", START)
    assert lock is not None
    space.delete_queue("orders", START)
    with refused(conditions.SESSION_LOCK_LOST):
        orders.renew_session(lock, START)
    orders.release_session(lock, START)
    assert orders.session_lock(lock.session_id) is None


def test_a_deleted_topic_takes_its_subscriptions_with_it() -> None:
    space = namespace()
    topic = space.create_topic("news", None, START)
    subscription = space.create_subscription("news", "s", None, START)
    space.delete_topic("news", START)
    assert topic.removed
    assert subscription.removed
    with refused(conditions.NOT_FOUND):
        space.node("news/Subscriptions/s")


def idle_namespace() -> Namespace:
    space = namespace()
    space.create_queue("orders", QueueSettings(auto_delete_on_idle=100.0), START)
    space.create_topic("news", TopicSettings(auto_delete_on_idle=100.0), START)
    space.create_subscription("news", "s", SubscriptionSettings(auto_delete_on_idle=50.0), START)
    return space


def test_what_idles_is_deleted() -> None:
    space = idle_namespace()
    assert space.next_deadline() == START + 50
    space.tick(START + 50)
    with refused(conditions.NOT_FOUND):
        space.get_subscription("news", "s")
    space.tick(START + 100)
    assert space.list_queues() == []
    assert space.list_topics() == []
    assert space.next_deadline() is None


@pytest.mark.parametrize("use", ["send", "receive", "peek", "dead letters", "receiver", "update"])
def test_what_is_used_is_not_deleted(use: str) -> None:
    space = idle_namespace()
    orders = space.get_queue("orders")
    dead = orders.dead_letters
    assert dead is not None
    if use == "receiver":
        orders.attend()
    uses: dict[str, Callable[[], Any]] = {
        "send": lambda: space.send("orders", [message()], START + 60),
        "receive": lambda: orders.receive(1, START + 60),
        "peek": lambda: orders.peek(0, 1, START + 60),
        "dead letters": lambda: dead.receive(1, START + 60),
        "receiver": lambda: orders.leave(START + 60),
        "update": lambda: space.update_queue("orders", QueueSettings(auto_delete_on_idle=100.0), START + 60),
    }
    uses[use]()
    space.tick(START + 159)
    assert [each.path for each in space.list_queues()] == ["orders"]
    space.tick(START + 160)
    assert space.list_queues() == []


def test_a_topic_is_in_use_while_its_subscriptions_are_and_a_send_does_not_feed_them() -> None:
    space = idle_namespace()
    subscription = space.get_subscription("news", "s")
    space.send("news", [message()], START + 40)
    subscription.receive(1, START + 45)
    space.tick(START + 94)
    space.send("news", [message()], START + 94)
    assert space.get_topic("news").subscriptions == [subscription]
    space.tick(START + 95)
    assert space.get_topic("news").subscriptions == []
    assert subscription.removed


def test_a_queue_with_scheduled_messages_does_not_idle() -> None:
    space = idle_namespace()
    orders = space.get_queue("orders")
    space.send("orders", [message(at=START + 150)], START)
    space.tick(START + 120)
    assert not orders.removed
    space.tick(START + 150)
    assert orders.counts().active == 1

"""Application properties that cannot be read: refused when they come, and carried where a store has them."""

import datetime
from collections.abc import Callable

import pytest

from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import Properties, encode_data, encode_properties
from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.filters import SqlFilter, TrueFilter
from pairbus.broker.engine.message import Incoming, StoredMessage
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.store.rows import message_rows

from .samples import START
from .samples import message as incoming

# A map of one pair whose value is a string that is no UTF-8.
UNREADABLE = b"\x00\x53\x74\xc1\x08\x02\xa1\x01k\xa1\x02\xff\xfe"
CHANGES = {"why": "because"}
LATER = START + 1000.0


def names(namespace: Namespace, *paths: str) -> list[str]:
    """The ids of all messages in these places."""
    places = [namespace.node(path) for path in paths]
    return sorted(message.message_id for place in places for message in place.table.since(0))


def poison(message: StoredMessage) -> None:
    message.application_properties_bytes = UNREADABLE


def settle(act: Callable[..., None]) -> Callable[[MessageQueue], None]:
    def settle_all(queue: MessageQueue) -> None:
        for handout in queue.receive(10, START):
            act(queue, handout.lock_token, START)

    return settle_all


def lock_and_wait(queue: MessageQueue) -> None:
    assert len(queue.receive(10, START)) == 3
    queue.tick(LATER)


WAYS: dict[str, tuple[QueueSettings, Callable[[MessageQueue], None]]] = {
    "dead-letter": (
        QueueSettings(),
        settle(lambda queue, token, now: queue.dead_letter(token, now, reason="r", properties=CHANGES)),
    ),
    "abandon": (
        QueueSettings(),
        settle(lambda queue, token, now: queue.abandon(token, now, properties=CHANGES)),
    ),
    "defer": (QueueSettings(), settle(lambda queue, token, now: queue.defer(token, now, properties=CHANGES))),
    "too many deliveries": (
        QueueSettings(max_delivery_count=1),
        settle(lambda queue, token, now: queue.abandon(token, now)),
    ),
    "locks end": (
        QueueSettings(max_delivery_count=1),
        lock_and_wait,
    ),
    "expire": (
        QueueSettings(default_message_time_to_live=10.0, dead_lettering_on_message_expiration=True),
        lambda queue: queue.tick(LATER),
    ),
    "expire and forward": (
        QueueSettings(
            default_message_time_to_live=10.0,
            dead_lettering_on_message_expiration=True,
            forward_dead_lettered_messages_to="other",
        ),
        lambda queue: queue.tick(LATER),
    ),
    "dead letters that cannot be forwarded": (
        QueueSettings(max_delivery_count=1, forward_dead_lettered_messages_to="gone"),
        settle(lambda queue, token, now: queue.abandon(token, now)),
    ),
}
PLACES = ("orders", "orders/$DeadLetterQueue", "orders/$Transfer/$DeadLetterQueue", "other")


@pytest.mark.parametrize("way", WAYS)
def test_one_that_is_stored_already_goes_all_ways_and_holds_up_nobody(way: str) -> None:
    settings, go = WAYS[way]
    namespace = Namespace("contoso")
    for name in ("other", "gone"):
        namespace.create_queue(name, None, START)
    queue = namespace.create_queue("orders", settings, START)
    namespace.delete_queue("gone", START)
    namespace.send("orders", [incoming(message_id=name) for name in "abc"], START)
    bodies = {message.message_id: message.body_bytes for message in queue.table.since(0)}
    for message in queue.table.since(0):
        if message.message_id == "b":
            poison(message)
    namespace.take_events()
    go(queue)
    assert names(namespace, *PLACES) == ["a", "b", "c"]
    found = [message for path in PLACES for message in namespace.node(path).table.since(0)]
    (carried,) = [message for message in found if message.message_id == "b"]
    assert carried.application_properties_bytes == UNREADABLE
    assert {message.message_id: message.body_bytes for message in found} == bodies
    assert queue.space.used + namespace.node("other").space.used == sum(message.size for message in found)
    assert list(message_rows(dict(enumerate(found)), 1, 1))


def test_a_scheduled_one_reaches_queues_and_subscriptions_when_its_time_comes() -> None:
    namespace = Namespace("contoso")
    namespace.create_topic("news", None, START)
    rules = {
        "all": Rule(filter=TrueFilter()),
        "sql": Rule(filter=SqlFilter("k = 'v' OR sys.MessageId = 'b'")),
        "action": Rule(filter=TrueFilter(), action=SqlAction("SET k = 1")),
    }
    for name, rule in rules.items():
        namespace.create_subscription("news", name, None, START, rule)
    numbers = namespace.schedule("news", [incoming(message_id=name, at=START + 5) for name in "abc"], START)
    held = namespace.node("news").table.get(numbers[1])
    assert held is not None
    poison(held)
    namespace.tick(START + 6)
    counts = {name: names(namespace, f"news/Subscriptions/{name}") for name in rules}
    assert counts == {"all": ["a", "b", "c"], "sql": ["b"], "action": ["a", "b", "c"]}


def test_a_message_that_cannot_be_read_is_refused_before_anything_is_done() -> None:
    with pytest.raises(DecodeError):
        Incoming.parse(encode_properties(Properties(message_id="x")) + UNREADABLE + encode_data(b"body"))


def test_an_action_makes_nothing_that_a_message_cannot_carry() -> None:
    namespace = Namespace("contoso")
    namespace.create_topic("news", None, START)
    texts = ["SET k = sys.TimeToLive", "SET k = @when", "SET k = @long", "SET sys.ContentType = 'é'"]
    values = {"@when": datetime.datetime(2026, 1, 1), "@long": datetime.timedelta.max}
    for index, text in enumerate(texts):
        rule = Rule(filter=TrueFilter(), action=SqlAction(text, values))
        namespace.create_subscription("news", f"s{index}", None, START, rule)
    namespace.send("news", [incoming(message_id="a", created=START, expires=START + 60)], START)
    for index in range(len(texts)):
        assert names(namespace, f"news/Subscriptions/s{index}") == ["a"]

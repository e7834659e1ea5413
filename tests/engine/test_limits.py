"""What is refused: sizes, quotas, statuses, names and settings."""

from collections.abc import Callable
from typing import Any

import pytest

from pairbus import conditions
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import (
    EntityStatus,
    NamespaceLimits,
    QueueSettings,
    SubscriptionSettings,
    TopicSettings,
)
from pairbus.broker.engine.tiers import PREMIUM, RELAXED, STANDARD
from tests.engine.samples import (
    START,
    application_properties,
    message,
    namespace,
    payload,
    ping,
    queue,
    refused,
)

OVERHEAD = len(payload(b"x" * 1000, message_id="m")) - 1000


def of_size(size: int, **fields: Any) -> Any:
    made = message(b"x" * (size - OVERHEAD), message_id="m", **fields)
    assert made.size == size
    return made


def test_a_message_may_have_256_kilobytes_and_no_more() -> None:
    space, orders = queue()
    space.send("orders", [of_size(262_144)], START)
    with refused(conditions.MESSAGE_SIZE_EXCEEDED, text="262145"):
        space.send("orders", [of_size(262_145)], START)
    assert orders.counts().active == 1


def test_a_batch_may_not_be_larger_than_a_message_and_is_taken_whole_or_not() -> None:
    space, orders = queue()
    with refused(conditions.MESSAGE_SIZE_EXCEEDED, text="batch"):
        space.send("orders", [of_size(100_000) for _ in range(3)], START)
    with refused(conditions.MESSAGE_SIZE_EXCEEDED):
        space.send("orders", [message(b"small"), of_size(262_145)], START)
    with refused(conditions.MESSAGE_SIZE_EXCEEDED):
        space.schedule("orders", [message(b"small", at=START + 9), of_size(262_145)], START)
    assert orders.counts().total == 0
    assert [type(event).__name__ for event in space.take_events()] == ["EntityPut"]


def test_premium_lets_an_entity_take_more() -> None:
    space = Namespace("contoso", limits=PREMIUM)
    space.create_queue("large", QueueSettings(max_message_size_in_kilobytes=2048), START)
    space.send("large", [of_size(2_000_000)], START)
    with refused(conditions.ARGUMENT_ERROR, text="max_message_size_in_kilobytes"):
        Namespace("contoso").create_queue("large", QueueSettings(max_message_size_in_kilobytes=2048), START)


def test_a_full_queue_takes_nothing_until_there_is_room() -> None:
    space, orders = queue(max_size_in_megabytes=1)
    for _ in range(4):
        space.send("orders", [of_size(262_144)], START)
    for refusable in ([message()], [ping()]):
        with refused(conditions.RESOURCE_LIMIT, text="maximum size"):
            space.send("orders", refusable, START)
    with refused(conditions.RESOURCE_LIMIT):
        space.schedule("orders", [message(at=START + 5)], START)
    (delivery,) = orders.receive(1, START)
    assert delivery.lock_token is not None
    orders.dead_letter(delivery.lock_token, START)
    with refused(conditions.RESOURCE_LIMIT):
        space.send("orders", [message()], START)
    assert orders.dead_letters is not None
    orders.dead_letters.receive(1, START, delete=True)
    space.send("orders", [message()], START)


WAYS_IN: dict[str, Callable[[Namespace, list[Incoming]], object]] = {
    "send": lambda space, messages: space.send("orders", messages, START),
    "schedule": lambda space, messages: space.schedule("orders", messages, START),
    "transaction": lambda space, messages: space.node("orders").check_arrival(messages, START, before=0),
    "topic": lambda space, messages: space.send("news", messages, START),
}
LONG_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "one property": ("32769", {"properties": {"stack": "x" * 32_769}}),
    "one of several bytes a character": ("32770", {"properties": {"stack": "ä" * 16_385}}),
    "one of bytes": ("32769", {"properties": {"stack": b"x" * 32_769}}),
    "a subject": ("32769", {"subject": "x" * 32_769}),
    "all properties": ("65536", {"properties": {str(number): "x" * 22_000 for number in range(3)}}),
    "annotations too": ("65536", {"annotations": {f"x-{number}": "x" * 30_000 for number in range(3)}}),
}


@pytest.mark.parametrize("headers", LONG_HEADERS)
@pytest.mark.parametrize("way", WAYS_IN)
def test_a_property_has_32_kilobytes_and_all_headers_64(way: str, headers: str) -> None:
    """In the service's words, as users report them: it calls this an error of its own."""
    space, orders = queue()
    space.create_topic("news", None, START)
    text, fields = LONG_HEADERS[headers]
    space.take_events()
    for messages in ([message(**fields)], [message(), message(**fields)]):
        with refused(conditions.INTERNAL_ERROR, text="The service was unable to process the request"):
            WAYS_IN[way](space, messages)
        with refused(conditions.INTERNAL_ERROR, text=text):
            WAYS_IN[way](space, messages)
    assert not space.node("orders").send_run([message(), message(**fields)], START)
    assert orders.counts().total == 0
    assert space.take_events() == []


@pytest.mark.parametrize("way", WAYS_IN)
def test_long_headers_that_fit(way: str) -> None:
    space, _ = queue()
    space.create_topic("news", None, START)
    longest = {"a": "x" * 32_768, "b": "x" * 32_000}
    WAYS_IN[way](space, [message(b"x" * 150_000, properties=longest)])
    WAYS_IN[way](space, [message(b"x" * 200_000), message(b"x", subject="x" * 32_768)])


SEND, RECEIVE = "sending", "receiving"


@pytest.mark.parametrize(
    ("status", "forbidden"),
    [
        (EntityStatus.ACTIVE, ()),
        (EntityStatus.DISABLED, (SEND, RECEIVE)),
        (EntityStatus.SEND_DISABLED, (SEND,)),
        (EntityStatus.RECEIVE_DISABLED, (RECEIVE,)),
    ],
)
def test_a_status_forbids_and_allows_again(status: EntityStatus, forbidden: tuple[str, ...]) -> None:
    space, orders = queue()
    space.send("orders", [message()], START)
    space.update_queue("orders", QueueSettings(status=status), START)
    dead = orders.dead_letters
    assert dead is not None
    sends = (
        orders.check_send,
        lambda: space.send("orders", [message()], START),
        lambda: space.send("orders", [ping()], START),
        lambda: space.schedule("orders", [message(at=START + 9)], START),
    )
    receives = (orders.check_receive, lambda: orders.receive(1, START), dead.check_receive)
    for operations, word in ((sends, SEND), (receives, RECEIVE)):
        for operation in operations:
            if word in forbidden:
                with refused(conditions.ENTITY_DISABLED, text=word):
                    operation()
            else:
                operation()
    space.take_ready()
    space.update_queue("orders", QueueSettings(), START)
    assert orders in space.take_ready(), "receivers that were held off are told"
    space.send("orders", [message()], START)
    assert orders.receive(1, START)


def test_a_disabled_topic_takes_nothing_and_its_subscriptions_go_on() -> None:
    space = namespace()
    space.create_topic("news", None, START)
    subscription = space.create_subscription("news", "s", None, START)
    space.send("news", [message()], START)
    space.update_topic("news", TopicSettings(status=EntityStatus.SEND_DISABLED), START)
    with refused(conditions.ENTITY_DISABLED):
        space.send("news", [message()], START)
    assert len(subscription.receive(1, START)) == 1
    space.update_subscription("news", "s", SubscriptionSettings(status=EntityStatus.RECEIVE_DISABLED), START)
    with refused(conditions.ENTITY_DISABLED):
        subscription.receive(1, START)


def test_a_ping_meets_every_check_and_leaves_nothing() -> None:
    space, orders = queue()
    space.send("orders", [ping()], START)
    assert orders.peek(0, 10, START) == []
    assert orders.size_bytes == 0
    assert orders.last_sequence == 0
    with refused(conditions.NOT_FOUND):
        space.send("nowhere", [ping()], START)


@pytest.mark.parametrize("field", ["message_id", "session_id"])
def test_identifiers_may_have_128_characters(field: str) -> None:
    space, _ = queue()
    longest: dict[str, Any] = {field: "x" * 128}
    longer: dict[str, Any] = {field: "x" * 129}
    space.send("orders", [message(**longest)], START)
    with refused(conditions.ARGUMENT_ERROR, text="129"):
        space.send("orders", [message(**longer)], START)


GOOD_PATHS = ["a", "A1", "contoso/x-servicebus-transfer/0", "a.b-c_d/e~f", "x" * 260, "a/b/c/d"]
BAD_PATHS = ["", "x" * 261, "-a", "a-", "a//b", "a b", "a?b", "a/$DeadLetterQueue", "$management", "ä", "a\n"]


@pytest.mark.parametrize("path", GOOD_PATHS)
def test_good_names(path: str) -> None:
    space = namespace()
    space.create_queue(path, None, START)
    assert space.node(path.upper()).path == path
    assert space.node(f"{path}/$DEADLETTERQUEUE").path == f"{path}/$DeadLetterQueue"


@pytest.mark.parametrize("path", BAD_PATHS)
def test_bad_names(path: str) -> None:
    space = namespace()
    with refused(conditions.ARGUMENT_ERROR):
        space.create_queue(path, None, START)
    with refused(conditions.ARGUMENT_ERROR):
        space.create_topic(path, None, START)


@pytest.mark.parametrize("name", ["", "x" * 51, "a/b", "-a", "a b", "$a"])
def test_bad_subscription_names(name: str) -> None:
    space = namespace()
    space.create_topic("news", None, START)
    with refused(conditions.ARGUMENT_ERROR):
        space.create_subscription("news", name, None, START)


@pytest.mark.parametrize(
    "settings",
    [
        {"lock_duration": 4.9},
        {"lock_duration": 300.1},
        {"max_delivery_count": 0},
        {"default_message_time_to_live": 0.5},
        {"auto_delete_on_idle": 299.0},
        {"max_size_in_megabytes": 0},
        {"max_size_in_megabytes": 90_000},
        {"user_metadata": "x" * 1025},
        {"duplicate_detection_history_time_window": 2_160_000.0},
        {"requires_duplicate_detection": True, "duplicate_detection_history_time_window": 19.0},
        {"requires_duplicate_detection": True, "duplicate_detection_history_time_window": 604_801.0},
        {"forward_to": "nowhere"},
    ],
)
def test_settings_that_azure_refuses(settings: dict[str, Any]) -> None:
    space = Namespace("contoso", limits=STANDARD)
    space.create_queue("sink", None, START)
    with refused(conditions.ARGUMENT_ERROR):
        space.create_queue("orders", QueueSettings(**settings), START)
    orders = space.create_queue("orders", None, START)
    with refused(conditions.ARGUMENT_ERROR):
        space.update_queue("orders", QueueSettings(**settings), START)
    assert orders.settings == QueueSettings()


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (
            "requires_session",
            "The value for the RequiresSession property of an existing Queue cannot be chan",
        ),
        ("requires_duplicate_detection", "The value for the RequiresDuplicateDetection property of an exis"),
        ("enable_partitioning", "Partitioning cannot be changed for Queue. "),
    ],
)
def test_settings_that_cannot_change(field: str, text: str) -> None:
    space, _ = queue()
    with refused(conditions.ARGUMENT_ERROR, text=text):
        changed: dict[str, Any] = {field: True}
        space.update_queue("orders", QueueSettings(**changed), START)


def test_what_the_service_lets_be_set() -> None:
    """A queue may forward to itself once it is there, and need sessions that nobody receives."""
    space, _ = queue()
    loop = QueueSettings(forward_to="orders", forward_dead_lettered_messages_to="sb://contoso/Orders")
    space.update_queue("orders", loop, START)
    space.send("orders", [message()], START)
    (letter,) = space.node("orders/$Transfer/$DeadLetterQueue").receive(1, START)  # type: ignore[union-attr]
    assert application_properties(letter.message)["DeadLetterReason"] == "MaxTransferHopCountExceeded"
    space.create_queue("lines", QueueSettings(requires_session=True, forward_to="orders"), START)


@pytest.mark.parametrize(
    ("size", "is_fine"), [(1023, False), (1024, True), (102_400, True), (102_401, False)]
)
def test_message_sizes_of_premium(size: int, is_fine: bool) -> None:
    space = Namespace("contoso", limits=PREMIUM)
    settings = QueueSettings(max_message_size_in_kilobytes=size)
    if is_fine:
        space.create_queue("orders", settings, START)
        return
    with refused(conditions.ARGUMENT_ERROR, text="MaxMessageSizeInKilobytes"):
        space.create_queue("orders", settings, START)


def test_relaxed_limits_let_tests_be_quick() -> None:
    space = Namespace("contoso", limits=RELAXED)
    space.create_queue("orders", QueueSettings(lock_duration=0.1, auto_delete_on_idle=1.0), START)


def test_numbers_of_entities() -> None:
    space = Namespace("contoso", limits=NamespaceLimits(max_entities=2, max_subscriptions=1, max_rules=1))
    space.create_queue("a", None, START)
    space.create_topic("b", None, START)
    with refused(conditions.RESOURCE_LIMIT, text="2 entities"):
        space.create_queue("c", None, START)
    space.create_subscription("b", "s", None, START)
    with refused(conditions.RESOURCE_LIMIT):
        space.create_subscription("b", "t", None, START)
    with refused(conditions.RESOURCE_LIMIT):
        space.create_rule("b", "s", Rule("second"), START)

"""Topics, filters and rules through the npm client."""

from typing import Any

SCRIPT = "topics.js"
EVERYTHING = {"name": "$Default", "filter": {"sqlExpression": "1=1"}, "action": None}


def test_copies_for_every_subscription(seen: Any) -> None:
    assert seen == {"one": ["b"], "two": ["a", "b"]}


def test_topic_without_subscriptions(seen: Any) -> None:
    assert seen == 0


def test_sql_filters(seen: Any) -> None:
    assert seen == {"big": [2, 3], "eu": [1], "named": [2]}


def test_correlation_filters(seen: Any) -> None:
    assert seen == {"subject": [1, 2], "several": [1], "properties": [2]}


def test_batch_to_a_topic(seen: Any) -> None:
    assert seen == {"odd": [1, 3, 5], "all": [0, 1, 2, 3, 4, 5]}


def test_schedule_to_a_topic_and_cancel(seen: Any) -> None:
    assert seen == {"before": 1, "after": 0, "received": ["soon"]}


def test_dead_letters_of_a_subscription(seen: Any) -> None:
    assert seen == ["bad", "malformed", 0]


def test_default_rule(seen: Any) -> None:
    assert seen == [EVERYTHING]


def test_rules_made_and_listed(seen: Any) -> None:
    correlation = {
        "correlationId": "c-1",
        "messageId": "m-1",
        "to": "somebody",
        "replyTo": "me",
        "subject": "order",
        "sessionId": "s",
        "replyToSessionId": "r",
        "contentType": "text/plain",
        "applicationProperties": {"region": "de", "count": 3, "urgent": True},
    }
    assert seen == [
        EVERYTHING,
        {"name": "a-sql", "filter": {"sqlExpression": "amount > 100"}, "action": None},
        {"name": "b-action", "filter": {"sqlExpression": "1=1"}, "action": "SET marked = TRUE"},
        {"name": "c-correlation", "filter": correlation, "action": None},
    ]


def test_rules_decide(seen: Any) -> None:
    """Only what a rule lets through arrives, and the rule's action has been done to it."""
    assert seen == [["big", "big"], ["order", None]]


def test_rules_seen_from_both_sides(seen: Any) -> None:
    names = ["$Default", "by-amqp", "by-http"]
    assert seen == {"overAmqp": names, "overHttp": names, "left": ["$Default", "by-http"]}


def test_rule_that_is_there_already(seen: Any) -> None:
    assert seen == {"name": "ServiceBusError", "code": "MessagingEntityAlreadyExists", "retryable": False}


def test_rule_that_is_not_there(seen: Any) -> None:
    assert seen == {"name": "ServiceBusError", "code": "MessagingEntityNotFound", "retryable": False}


def test_rule_that_cannot_be_read(seen: Any) -> None:
    assert seen == {"name": "ServiceBusError", "code": "GeneralError", "retryable": False}

"""Administration with the npm client, by TLS on the port of the connection string."""

from datetime import UTC, datetime
from typing import Any

import pytest

SCRIPT = "administration.js"
FOR_EVER = "P10675199DT2H48M5.4775807S"


def test_namespace_properties(seen: Any) -> None:
    assert 0 <= seen.pop("age") < 60_000
    assert seen == {"name": "contoso", "messagingSku": "Standard"}


def test_queue_with_defaults(seen: Any) -> None:
    assert seen == {
        "name": "defaults",
        "status": "Active",
        "availabilityStatus": "Available",
        "lockDuration": "PT1M",
        "maxDeliveryCount": 10,
        "maxSizeInMegabytes": 1024,
        "maxMessageSizeInKilobytes": 256,
        "defaultMessageTimeToLive": FOR_EVER,
        "autoDeleteOnIdle": FOR_EVER,
        "requiresSession": False,
        "requiresDuplicateDetection": False,
        "duplicateDetectionHistoryTimeWindow": "PT10M",
        "deadLetteringOnMessageExpiration": False,
        "enableBatchedOperations": True,
        "enablePartitioning": False,
        "enableExpress": False,
    }


def test_queue_with_settings(seen: Any) -> None:
    assert seen.pop("forwardDeadLetteredMessagesTo").endswith("/defaults")
    assert seen == {
        "name": "settings",
        "status": "SendDisabled",
        "availabilityStatus": "Available",
        "lockDuration": "PT45S",
        "maxDeliveryCount": 5,
        "maxSizeInMegabytes": 2048,
        "maxMessageSizeInKilobytes": 256,
        "defaultMessageTimeToLive": "P2D",
        "autoDeleteOnIdle": "PT1H",
        "requiresSession": True,
        "requiresDuplicateDetection": True,
        "duplicateDetectionHistoryTimeWindow": "PT2M30S",
        "deadLetteringOnMessageExpiration": True,
        "enableBatchedOperations": False,
        "enablePartitioning": False,
        "enableExpress": False,
        "userMetadata": "<näme> & more",
    }


def test_queue_updated(seen: Any) -> None:
    assert seen == {
        "lockDuration": "PT10S",
        "maxDeliveryCount": 3,
        "userMetadata": "changed",
        "status": "ReceiveDisabled",
    }


def test_queue_deleted(seen: Any) -> None:
    assert seen == [True, False]


def test_queues_listed(seen: Any) -> None:
    assert seen == {
        "names": [f"listed-{number}" for number in range(7)],
        "pagesHoldAll": True,
        "largestPage": 3,
        "sameInRuntime": True,
    }


def test_queue_runtime_properties(seen: Any) -> None:
    """One message is active and one deferred, which counts as active."""
    assert seen["counts"] == {
        "name": "counted",
        "totalMessageCount": 4,
        "activeMessageCount": 2,
        "deadLetterMessageCount": 1,
        "scheduledMessageCount": 1,
        "transferMessageCount": 0,
        "transferDeadLetterMessageCount": 0,
    }
    assert seen["sizeIsPositive"]
    created, modified, accessed = map(datetime.fromisoformat, seen["dates"])
    assert created <= modified
    assert created < accessed
    assert (datetime.now(UTC) - created).total_seconds() == pytest.approx(0, abs=60)


def test_topic_with_defaults(seen: Any) -> None:
    assert seen == {
        "name": "topic",
        "status": "Active",
        "availabilityStatus": "Available",
        "maxSizeInMegabytes": 1024,
        "maxMessageSizeInKilobytes": 256,
        "defaultMessageTimeToLive": FOR_EVER,
        "autoDeleteOnIdle": FOR_EVER,
        "requiresDuplicateDetection": False,
        "duplicateDetectionHistoryTimeWindow": "PT10M",
        "supportOrdering": True,
        "enableBatchedOperations": True,
        "enablePartitioning": False,
        "enableExpress": False,
    }


def test_topic_updated(seen: Any) -> None:
    assert seen == {"defaultMessageTimeToLive": "PT12H", "userMetadata": "second"}


def test_topics_listed_and_deleted(seen: Any) -> None:
    assert seen == {"listed": True, "exists": [True, False]}


def test_subscription_with_defaults(seen: Any) -> None:
    assert seen == {
        "topicName": "topic",
        "subscriptionName": "defaults",
        "status": "Active",
        "availabilityStatus": "Available",
        "lockDuration": "PT1M",
        "maxDeliveryCount": 10,
        "defaultMessageTimeToLive": FOR_EVER,
        "autoDeleteOnIdle": FOR_EVER,
        "requiresSession": False,
        "deadLetteringOnMessageExpiration": False,
        "deadLetteringOnFilterEvaluationExceptions": True,
        "enableBatchedOperations": True,
    }


def test_subscription_updated(seen: Any) -> None:
    assert seen == {
        "lockDuration": "PT20S",
        "requiresSession": True,
        "maxDeliveryCount": 7,
        "onExpiration": True,
        "onFilter": False,
    }


def test_subscriptions_listed_and_deleted(seen: Any) -> None:
    assert seen == {"listed": ["a", "b", "c"], "exists": [True, False], "count": 2}


def test_subscription_runtime_properties(seen: Any) -> None:
    assert seen["counts"] == {
        "topicName": "counted-topic",
        "subscriptionName": "one",
        "totalMessageCount": 3,
        "activeMessageCount": 2,
        "deadLetterMessageCount": 1,
        "transferMessageCount": 0,
        "transferDeadLetterMessageCount": 0,
    }
    assert seen["listed"] == 3


def test_rules(seen: Any) -> None:
    assert seen["byDefault"] == {"filter": {"sqlExpression": "1=1"}, "action": {}}
    assert seen["sql"] == {
        "filter": {"sqlExpression": "amount > @least", "sqlParameters": {"@least": 100}},
        "action": {"sqlExpression": "SET size = 'big'"},
    }
    assert seen["correlation"]["filter"] == {
        "correlationId": "c-1",
        "subject": "order & <more>",
        "applicationProperties": {
            "region": "de",
            "count": 3,
            "urgent": True,
            "since": "1970-01-01T00:00:00.000Z",
        },
    }


def test_rules_updated_listed_and_deleted(seen: Any) -> None:
    assert seen == {
        "updated": "amount > 500",
        "listed": ["$Default", "correlation", "sql"],
        "exists": False,
    }


def test_entity_that_is_not_there(seen: Any) -> None:
    assert [refusal["code"] for refusal in seen] == ["MessageEntityNotFoundError"] * 4


def test_entity_that_is_there_already(seen: Any) -> None:
    refusal = {"name": "RestError", "code": "MessageEntityAlreadyExistsError", "statusCode": 409}
    assert seen == [refusal, refusal]


def test_settings_that_cannot_be(seen: Any) -> None:
    assert [refusal["statusCode"] for refusal in seen] == [400, 400]


def test_administration_without_the_right(seen: Any) -> None:
    assert seen == {"name": "RestError", "code": "UnauthorizedRequestError", "statusCode": 401}

"""Queues through the npm client: send, receive, settle, peek, schedule, dead letters."""

from typing import Any

import pytest

SCRIPT = "messages.js"


def test_one_message(seen: Any) -> None:
    assert seen.pop("secondsSinceEnqueued") == pytest.approx(0, abs=15)
    assert seen.pop("secondsLocked") == pytest.approx(60, abs=15)
    assert seen == {
        "body": "hello",
        "messageId": "m-1",
        "subject": "greeting",
        "contentType": "text/plain",
        "deliveryCount": 0,
        "state": "active",
        "sequenceNumber": 1,
        "lockTokenIsUuid": True,
    }


def test_message_without_an_id(seen: Any) -> None:
    """The client cannot settle a message that has none, so it is given one."""
    assert seen == {"idKind": "string", "left": 0}


def test_list_of_messages(seen: Any) -> None:
    assert seen == list(range(20))


def test_batch(seen: Any) -> None:
    assert seen == {
        "maxSizeInBytes": 262_144,
        "count": 50,
        "bodies": list(range(50)),
        "properties": list(range(50)),
    }


def test_batch_that_is_full(seen: Any) -> None:
    assert seen == {"added": 4, "sizes": [60_000] * 4}


def test_message_over_many_frames(seen: Any) -> None:
    assert seen == {"size": 250_000, "intact": True, "left": 0}


def test_many_sends_at_once(seen: Any) -> None:
    assert seen == list(range(100))


def test_receive_and_delete(seen: Any) -> None:
    assert seen == {"bodies": ["a", "b"], "lockTokens": [None, None], "left": 0}


def test_receive_from_an_empty_queue(seen: Any) -> None:
    assert seen == []


def test_receive_again_after_an_empty_receive(seen: Any) -> None:
    assert seen == [0, "late"]


def test_fewer_messages_than_asked_for(seen: Any) -> None:
    assert seen == {"bodies": [1, 2], "left": 0}


def test_subscribe(seen: Any) -> None:
    assert seen == {"bodies": list(range(10)), "errors": []}


def test_subscribe_before_there_is_a_message(seen: Any) -> None:
    assert seen == {"bodies": ["a", "b"], "errors": []}


def test_subscribe_with_a_handler_that_fails(seen: Any) -> None:
    """The client abandons the message, and it comes again."""
    assert seen["deliveryCounts"] == [0, 1]
    assert seen["errors"] == [{"message": "handler failed", "errorSource": "processMessageCallback"}]


def test_iterate(seen: Any) -> None:
    assert seen == [1, 2, 3]


def test_complete(seen: Any) -> None:
    assert seen == 0


def test_abandon(seen: Any) -> None:
    assert seen == {"body": "again", "deliveryCount": 1, "properties": {"tries": 1, "why": "busy"}}


def test_abandon_too_often(seen: Any) -> None:
    assert seen == {"body": "poison", "reason": "MaxDeliveryCountExceeded"}


def test_defer(seen: Any) -> None:
    assert seen == {
        "now": "now",
        "peekedStates": ["deferred"],
        "deferred": "later",
        "properties": {"put": "aside"},
        "sameNumber": True,
        "left": 0,
    }


def test_deferred_messages_by_a_list(seen: Any) -> None:
    """They are settled through the management link; one that is abandoned stays deferred."""
    assert seen == {
        "bodies": [1, 2, 3],
        "left": [{"body": 1, "state": "deferred"}],
        "dead": {"body": 2, "reason": "second"},
    }


def test_deferred_message_received_and_deleted(seen: Any) -> None:
    assert seen == {"bodies": ["later"], "left": 0}


def test_dead_letter_with_a_reason(seen: Any) -> None:
    assert seen == {
        "body": "bad",
        "reason": "malformed",
        "description": "no customer",
        "properties": {
            "own": True,
            "checkedBy": "node",
            "DeadLetterReason": "malformed",
            "DeadLetterErrorDescription": "no customer",
        },
        "left": [0, 0],
    }


def test_renew_a_lock(seen: Any) -> None:
    assert seen["later"]
    assert seen["seconds"] == pytest.approx(30, abs=15)


def test_peek(seen: Any) -> None:
    assert seen == {"pages": [[0, 1], [2, 3, 4], [1]], "afterTheEnd": [], "locked": None, "left": 5}


def test_peek_at_an_empty_queue(seen: Any) -> None:
    assert seen == []


def test_schedule_and_cancel(seen: Any) -> None:
    assert seen == {
        "count": 2,
        "peeked": [
            {"body": "a", "state": "scheduled", "onTime": True},
            {"body": "b", "state": "scheduled", "onTime": True},
        ],
        "left": ["b"],
    }


def test_scheduled_message_arrives(seen: Any) -> None:
    assert seen == {"body": "soon", "notBefore": True, "state": "scheduled"}

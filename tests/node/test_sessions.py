"""Sessions through the npm client."""

from typing import Any

import pytest

SCRIPT = "sessions.js"


def test_named_session(seen: Any) -> None:
    assert seen.pop("secondsLocked") == pytest.approx(60, abs=15)
    assert seen == {"sessionId": "b", "bodies": ["b1", "b2"], "sessionIds": ["b", "b"], "left": 2}


def test_next_free_session(seen: Any) -> None:
    assert seen == [["x", 1], ["y", 2]]


def test_wait_for_the_next_session(seen: Any) -> None:
    assert seen == ["fresh", "late"]


def test_order_within_a_session(seen: Any) -> None:
    assert seen == list(range(1, 30, 3))


def test_state(seen: Any) -> None:
    """Before and after it is set, after the session was accepted again, and cleared."""
    state = {"step": 3, "names": ["a", "b"]}
    assert seen == [None, state, state, None]


def test_renew_a_session(seen: Any) -> None:
    assert seen["later"]
    assert seen["seconds"] == pytest.approx(60, abs=15)


def test_settle_in_a_session(seen: Any) -> None:
    assert seen == {
        "again": ["abandon", 1],
        "deferred": "defer",
        "counts": {"activeMessageCount": 0, "deadLetterMessageCount": 1, "totalMessageCount": 1},
    }


def test_dead_letters_of_a_session_queue(seen: Any) -> None:
    assert seen == ["bad", "s", "malformed"]


def test_peek_in_a_session(seen: Any) -> None:
    assert seen == ["a", "b"]


def test_subscribe_to_a_session(seen: Any) -> None:
    assert seen == {"seen": [1, 2, 3], "errors": []}


def test_receive_and_delete_in_a_session(seen: Any) -> None:
    assert seen == [["gone"], 0]


def test_schedule_in_a_session(seen: Any) -> None:
    assert seen == ["s", "soon"]


def test_session_of_a_subscription(seen: Any) -> None:
    assert seen == [1, 2]


def test_session_that_another_one_holds(seen: Any) -> None:
    assert seen == {"name": "ServiceBusError", "code": "SessionCannotBeLocked", "retryable": False}


def test_session_that_is_free_again(seen: Any) -> None:
    """A session that is given back counts no delivery."""
    assert seen == ["x", 0]


def test_session_of_a_queue_without_sessions(seen: Any) -> None:
    assert seen == {"name": "ServiceBusError", "code": "SessionCannotBeLocked", "retryable": False}


def test_receiver_without_a_session(seen: Any) -> None:
    assert seen == {"name": "ServiceBusError", "code": "GeneralError", "retryable": False}


def test_message_without_a_session(seen: Any) -> None:
    assert seen == {"name": "ServiceBusError", "code": "GeneralError", "retryable": False}

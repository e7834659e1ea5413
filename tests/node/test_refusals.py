"""Refusals as the npm client tells them to a program: a ServiceBusError with a code."""

from typing import Any

SCRIPT = "refusals.js"


def refused(code: str, *, retryable: bool = False) -> dict[str, Any]:
    return {"name": "ServiceBusError", "code": code, "retryable": retryable}


NOT_FOUND = refused("MessagingEntityNotFound")
DISABLED = refused("MessagingEntityDisabled")
# The client takes every refusal for want of a right for one that a new token may mend.
UNAUTHORIZED = refused("UnauthorizedAccess", retryable=True)


def test_send_to_a_missing_entity(seen: Any) -> None:
    assert seen == NOT_FOUND


def test_receive_from_a_missing_queue(seen: Any) -> None:
    assert seen == NOT_FOUND


def test_receive_from_a_missing_subscription(seen: Any) -> None:
    assert seen == NOT_FOUND


def test_peek_at_a_missing_queue(seen: Any) -> None:
    assert seen == NOT_FOUND


def test_subscribe_to_a_missing_queue(seen: Any) -> None:
    assert seen == {"code": "MessagingEntityNotFound", "errorSource": "receive"}


def test_receive_from_a_topic(seen: Any) -> None:
    assert seen == refused("GeneralError")


def test_send_to_a_disabled_queue(seen: Any) -> None:
    assert seen == DISABLED


def test_receive_from_a_disabled_queue(seen: Any) -> None:
    assert seen == DISABLED


def test_queue_deleted_under_a_sender(seen: Any) -> None:
    assert seen == NOT_FOUND


def test_wrong_key(seen: Any) -> None:
    assert seen == [UNAUTHORIZED, UNAUTHORIZED]


def test_unknown_policy(seen: Any) -> None:
    assert seen == UNAUTHORIZED


def test_signature_instead_of_a_key(seen: Any) -> None:
    """The client speaks no SASL then, and puts the very same token for whatever it attaches to."""
    code = "UnauthorizedAccess"
    assert seen == {"good": "signed", "refused": {"expired": code, "forged": code, "elsewhere": code}}


def test_listen_only(seen: Any) -> None:
    assert seen == [UNAUTHORIZED, "x"]


def test_send_only(seen: Any) -> None:
    assert seen == [UNAUTHORIZED, UNAUTHORIZED]


def test_message_that_is_too_large(seen: Any) -> None:
    assert seen == refused("MessageSizeExceeded")


def test_lock_that_is_lost(seen: Any) -> None:
    assert seen == refused("MessageLockLost")


def test_deferred_message_settled_twice(seen: Any) -> None:
    assert seen == refused("MessageLockLost")


def test_deferred_message_that_is_not_there(seen: Any) -> None:
    assert seen == refused("MessageNotFound")


def test_cancel_what_is_not_scheduled(seen: Any) -> None:
    assert seen == refused("MessageNotFound")


def test_no_session_in_time(seen: Any) -> None:
    assert seen == refused("ServiceTimeout", retryable=True)

"""The table of failures, row by row, with exceptions built as the SDK builds them."""

import pickle
import socket
import ssl
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.servicebus import exceptions as sdk

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.failures import (
    DECISIONS,
    ROWS,
    Action,
    Failure,
    FailureKind,
    Ruling,
    classify,
    find_idle_closure,
    judge,
    judge_backlog,
)
from pairbus.sdk.failures import describe

OPTIONS = SendAvailabilityOptions()


class AMQPConnectionError(Exception):
    """Stands in for the error of the same name in the SDK's transport, which is not public."""

    def __init__(self, condition: bytes, inner_error: BaseException | None = None) -> None:
        super().__init__(condition)
        self.condition = condition
        self.inner_error = inner_error


class MessageSendFailed(AMQPConnectionError):
    """The broker's answer to one message."""


class TokenAuthFailure(Exception):
    """The answer to a token."""

    def __init__(self, status_code: int) -> None:
        super().__init__(f"CBS Token authentication failed. Status code: {status_code}")
        self.status_code = status_code
        self.condition = b"amqp:client-error"


def connection(condition: bytes, inner: BaseException | None = None) -> Exception:
    return sdk.ServiceBusConnectionError(error=AMQPConnectionError(condition, inner))


def bare(condition: bytes) -> Exception:
    return sdk.ServiceBusError("It failed.", error=MessageSendFailed(condition))


def management(condition: bytes, status: int) -> Exception:
    """As for schedule_messages: nothing is wrapped, and the text is all there is in public."""
    return sdk.ServiceBusError("Refused.", condition=condition, status_code=status)


def token(status: int) -> Exception:
    return sdk.ServiceBusAuthenticationError(error=TokenAuthFailure(status))


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


CASES: list[tuple[FailureKind, Exception]] = [
    (FailureKind.CONNECTION, sdk.ServiceBusConnectionError()),
    (FailureKind.CONNECTION, sdk.ServiceBusCommunicationError()),
    (FailureKind.CONNECTION, sdk.ServiceBusCommunicationError(error=AMQPConnectionError(b"amqp:not-found"))),
    (FailureKind.CONNECTION, connection(b"amqp:socket-error", ConnectionRefusedError(111, "refused"))),
    (FailureKind.CONNECTION, connection(b"amqp:socket-error", socket.gaierror(-2, "unknown host"))),
    (FailureKind.CONNECTION, connection(b"amqp:socket-error", ConnectionResetError(104, "reset"))),
    (FailureKind.CONNECTION, connection(b"amqp:socket-error", TimeoutError())),
    (FailureKind.CONNECTION, connection(b"amqp:socket-error", ssl.SSLError("handshake cut"))),
    (FailureKind.CONNECTION, connection(b"amqp:link:detach-forced")),
    (FailureKind.CONNECTION, bare(b"amqp:client-error")),
    (FailureKind.CONNECTION, ConnectionResetError()),
    (FailureKind.CONNECTION, sdk.ServiceBusError("Handler failed.", error=OSError(5, "broken"))),
    (
        FailureKind.CONNECTION,
        sdk.ServiceBusError("Handler failed.", error=ServiceRequestError("no token host")),
    ),
    (FailureKind.CONNECTION, caused(sdk.ServiceBusAuthenticationError(), ConnectionResetError())),
    (FailureKind.TIMEOUT, sdk.OperationTimeoutError()),
    (FailureKind.TIMEOUT, TimeoutError()),
    (FailureKind.TIMEOUT, bare(b"com.microsoft:timeout")),
    (FailureKind.TIMEOUT, sdk.ServiceBusError("Handler failed.", error=TimeoutError())),
    (FailureKind.SERVICE, bare(b"amqp:internal-error")),
    (FailureKind.SERVICE, connection(b"amqp:connection:forced")),
    (FailureKind.SERVICE, bare(b"com.microsoft:container-close")),
    (FailureKind.SERVICE, bare(b"com.microsoft:operation-cancelled")),
    (FailureKind.SERVICE, management(b"amqp:internal-error", 500)),
    (FailureKind.SERVICE, token(503)),
    (FailureKind.SERVICE, token(0)),
    (FailureKind.UNRECOGNISED, sdk.ServiceBusError("Handler failed.", error=AttributeError("'NoneType'"))),
    (
        FailureKind.UNRECOGNISED,
        sdk.ServiceBusError("Handler failed.", error=ValueError("invalid frame type")),
    ),
    (FailureKind.UNRECOGNISED, bare(b"com.example:something-new")),
    (FailureKind.THROTTLED, sdk.ServiceBusServerBusyError()),
    (FailureKind.THROTTLED, connection(b"com.microsoft:server-busy")),
    (FailureKind.THROTTLED, token(429)),
    (FailureKind.CALLER, sdk.MessageSizeExceededError()),
    (FailureKind.CALLER, ValueError("no")),
    (FailureKind.CALLER, TypeError("no")),
    (FailureKind.CALLER, KeyError("of the caller's credential")),
    (FailureKind.CALLER, bare(b"com.microsoft:argument-error")),
    (FailureKind.CALLER, bare(b"com.microsoft:argument-out-of-range")),
    (FailureKind.CALLER, bare(b"amqp:precondition-failed")),
    (FailureKind.CALLER, connection(b"amqp:not-allowed")),
    (FailureKind.CALLER, management(b"amqp:not-implemented", 400)),
    (FailureKind.CALLER, sdk.SessionLockLostError()),
    (FailureKind.CALLER, sdk.MessageAlreadySettled()),
    (FailureKind.UNAUTHORIZED, sdk.ServiceBusAuthorizationError()),
    (FailureKind.UNAUTHORIZED, sdk.ServiceBusAuthenticationError()),
    (FailureKind.UNAUTHORIZED, connection(b"amqp:unauthorized-access")),
    (FailureKind.UNAUTHORIZED, bare(b"com.microsoft:auth-failed")),
    (FailureKind.UNAUTHORIZED, token(401)),
    (FailureKind.UNAUTHORIZED, management(b"amqp:client-error", 401)),
    (FailureKind.UNAUTHORIZED, sdk.ServiceBusError("x", error=ClientAuthenticationError("no identity"))),
    (FailureKind.CERTIFICATE, connection(b"amqp:socket-error", ssl.SSLCertVerificationError("self-signed"))),
    (
        FailureKind.CERTIFICATE,
        caused(sdk.ServiceBusConnectionError(), ssl.SSLCertVerificationError("expired")),
    ),
    (FailureKind.MISSING, sdk.MessagingEntityNotFoundError()),
    (FailureKind.MISSING, token(404)),
    (FailureKind.MISSING, bare(b"amqp:resource-deleted")),
    (FailureKind.DISABLED, sdk.MessagingEntityDisabledError()),
    (FailureKind.DISABLED, management(b"com.microsoft:entity-disabled", 400)),
    (FailureKind.FULL, sdk.ServiceBusQuotaExceededError()),
    (FailureKind.FULL, connection(b"amqp:resource-limit-exceeded")),
]


@pytest.mark.parametrize(("kind", "error"), CASES, ids=lambda value: getattr(value, "name", None))
def test_an_error_is_of_its_kind(kind: FailureKind, error: Exception) -> None:
    assert classify(describe(error)) is kind


def test_every_kind_has_a_row_a_decision_and_a_case() -> None:
    assert {row.kind for row in ROWS} == set(DECISIONS) == {kind for kind, _ in CASES} == set(FailureKind)


def test_every_row_is_the_first_that_fits_something() -> None:
    """A row below another one that swallows it would be dead."""
    for index, row in enumerate(ROWS):
        failure = Failure(
            classes=tuple(row.classes) or ("Unheard",),
            causes=row.causes | row.classes,
            condition=next(iter(row.conditions), None),
            status=next(iter(row.statuses), None),
            is_encoding=row.encoding,
        )
        assert ROWS.index(next(other for other in ROWS if other.fits(failure))) == index, row


ACTIONS: dict[FailureKind, Action] = {
    FailureKind.CONNECTION: Action.COUNT_UNKNOWN,
    FailureKind.TIMEOUT: Action.COUNT_UNKNOWN,
    FailureKind.SERVICE: Action.COUNT,
    FailureKind.UNRECOGNISED: Action.COUNT_UNKNOWN,
    FailureKind.THROTTLED: Action.THROTTLED,
    FailureKind.CALLER: Action.RAISE,
    FailureKind.UNAUTHORIZED: Action.PERMANENT,
    FailureKind.CERTIFICATE: Action.PERMANENT,
    FailureKind.MISSING: Action.PERMANENT,
    FailureKind.DISABLED: Action.PERMANENT,
    FailureKind.FULL: Action.RAISE,
}


@pytest.mark.parametrize("kind", list(FailureKind), ids=lambda kind: kind.name)
def test_a_kind_leads_to_its_action(kind: FailureKind) -> None:
    error = next(error for of, error in CASES if of is kind)
    verdict = judge(describe(error), OPTIONS, had_success=True)
    assert verdict.action is ACTIONS[kind]
    assert verdict.is_answer is (
        kind in (FailureKind.UNAUTHORIZED, FailureKind.MISSING, FailureKind.DISABLED, FailureKind.FULL)
    )


def test_only_a_refusal_of_the_primary_that_does_not_count_is_an_answer() -> None:
    no_token = describe(sdk.ServiceBusError("x", error=ClientAuthenticationError("no identity")))
    assert not judge(no_token, OPTIONS, had_success=True).is_answer
    counting = SendAvailabilityOptions(count_disabled=True)
    assert not judge(describe(sdk.MessagingEntityDisabledError()), counting, had_success=True).is_answer


@pytest.mark.parametrize(
    ("option", "error", "action"),
    [
        ("count_unauthorized", sdk.ServiceBusAuthorizationError(), Action.COUNT_UNKNOWN),
        ("count_unauthorized", token(401), Action.COUNT),
        ("count_disabled", sdk.MessagingEntityDisabledError(), Action.COUNT_UNKNOWN),
        ("spill_when_full", sdk.ServiceBusQuotaExceededError(), Action.SPILL),
    ],
)
def test_an_option_changes_the_action(option: str, error: Exception, action: Action) -> None:
    changed: dict[str, Any] = {option: True}
    verdict = judge(describe(error), SendAvailabilityOptions(**changed), had_success=True)
    assert verdict.action is action
    assert not judge(describe(error), OPTIONS, had_success=True).is_counted


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (connection(b"amqp:socket-error", ConnectionRefusedError()), True),
        (connection(b"amqp:socket-error", socket.gaierror()), True),
        (bare(b"amqp:internal-error"), True),  # the broker's answer to this message
        (sdk.ServiceBusError("x", error=AMQPConnectionError(b"amqp:internal-error")), False),
        (bare(b"amqp:client-error"), False),  # the link went away under it
        (connection(b"amqp:socket-error", ConnectionResetError()), False),
        (sdk.OperationTimeoutError(), False),
    ],
)
def test_an_outcome_is_known_only_if_nothing_was_taken(error: Exception, known: bool) -> None:
    expected = Action.COUNT if known else Action.COUNT_UNKNOWN
    assert judge(describe(error), OPTIONS, had_success=True).action is expected


def test_before_the_first_success_a_connection_error_asks_the_backlog() -> None:
    failure = describe(connection(b"amqp:socket-error", socket.gaierror()))
    assert judge(failure, OPTIONS, had_success=False).action is Action.ASK_BACKLOG
    assert judge(failure, OPTIONS, had_success=False, backlog_opened=True).action is Action.COUNT
    assert judge(failure, OPTIONS, had_success=False, backlog_opened=False).action is Action.RAISE
    assert judge(failure, OPTIONS, had_success=True, backlog_opened=False).action is Action.COUNT


@pytest.mark.parametrize("error", [sdk.OperationTimeoutError(), bare(b"amqp:internal-error")])
def test_what_shows_that_the_host_is_right_counts_from_the_start(error: Exception) -> None:
    assert judge(describe(error), OPTIONS, had_success=False).is_counted


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("The namespace is being throttled. Error code : 50009. Please wait 4 seconds and try again.", 4.0),
        ("Throttled. Error code 50009.", 2.0),
        ("Please wait for 1.5s.", 1.5),
        ("Please wait 100000 seconds.", 300.0),
        ("Busy.", 10.0),
    ],
)
def test_a_throttled_send_waits_as_asked(text: str, wait: float) -> None:
    failure = describe(sdk.ServiceBusServerBusyError(message=text))
    assert judge(failure, OPTIONS, had_success=True) == Ruling(Action.THROTTLED, FailureKind.THROTTLED, wait)
    assert judge_backlog(failure, OPTIONS).wait == wait


@pytest.mark.parametrize("kind", list(FailureKind), ids=lambda kind: kind.name)
def test_a_backlog_queue_that_fails_leaves_unless_it_is_the_caller_or_throttling(kind: FailureKind) -> None:
    error = next(error for of, error in CASES if of is kind)
    expected = {FailureKind.THROTTLED: Action.THROTTLED, FailureKind.CALLER: Action.RAISE}.get(
        kind, Action.REMOVE
    )
    assert judge_backlog(describe(error), OPTIONS).action is expected


def test_only_a_link_that_has_idled_is_opened_again_at_once() -> None:
    detached = describe(connection(b"amqp:link:detach-forced"))
    assert find_idle_closure(detached, OPTIONS, idle_for=600) == detached.fate
    for failure, idle_for in (
        (detached, 59),
        (describe(sdk.OperationTimeoutError()), 600),
        (describe(sdk.ServiceBusAuthorizationError()), 600),
    ):
        assert find_idle_closure(failure, OPTIONS, idle_for=idle_for) is None


@pytest.mark.parametrize(("kind", "error"), CASES)
def test_an_answer_after_an_idle_spell_is_an_answer(kind: FailureKind, error: Exception) -> None:
    failure = describe(error)
    if failure.fate == "refused":
        assert find_idle_closure(failure, OPTIONS, idle_for=600) is None


def test_what_cannot_be_encoded_is_the_callers() -> None:
    namespace: dict[str, Any] = {"__name__": "azure.servicebus._pyamqp._encode"}
    exec("def encode(value):\n    raise TypeError('Unable to encode unknown value')", namespace)
    try:
        namespace["encode"](object())
    except TypeError as error:
        wrapped = sdk.ServiceBusError("Handler failed.", error=error)
    assert classify(describe(wrapped)) is FailureKind.CALLER


def test_a_description_is_short_keeps_no_secret_and_travels() -> None:
    secret = (
        "Endpoint=sb://c;SharedAccessKey=c2VjcmV0\nSharedAccessSignature sr=x&sig=abcdef&se=1 " + "x" * 500
    )
    failure = describe(sdk.ServiceBusConnectionError(message=secret))
    assert "c2VjcmV0" not in failure.summary
    assert "abcdef" not in failure.summary
    assert "\n" not in failure.summary
    assert len(failure.text) == 300
    assert pickle.loads(pickle.dumps(failure)) == failure


def test_a_summary_names_class_and_condition() -> None:
    assert describe(TimeoutError()).summary == "TimeoutError"
    summary = describe(connection(b"amqp:connection:forced")).summary
    assert (
        summary == "ServiceBusConnectionError (amqp:connection:forced): An error occurred in the connection."
    )


def test_a_chain_of_causes_may_be_circular() -> None:
    one, other = OSError("one"), OSError("other")
    one.__cause__, other.__cause__ = other, one
    assert classify(describe(one)) is FailureKind.CONNECTION

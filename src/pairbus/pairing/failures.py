"""Which failures count: the one table that says what becomes of a send that failed.

Theory of operation
-------------------

1. Outages count towards a failover, mistakes of the caller do not, throttling is a case of its own. The class
   of an SDK exception alone does not tell them apart: an unauthorised connection, a bad certificate and a
   refused port are all `ServiceBusConnectionError`. So an exception is first *described*, by
   `pairbus.sdk.failures`: the names of its classes, the AMQP condition and the status code found in it or in
   what it wraps, the classes of its causes. The rules see the description alone, which keeps them importable
   without the SDK and testable without a network.
2. `ROWS` is read from top to bottom; the first row of which every criterion fits gives the *kind*. Specific
   rows stand above general ones: a certificate that cannot be verified is found before the connection error
   that it hides in.
3. `DECISIONS` says what each kind leads to, and which option changes that.
4. A failure with an unknown outcome may have been delivered all the same. The message then keeps its id, for
   duplicate detection, and the ledger counts it. The outcome is known only if the failure proves that nothing
   was taken: the connection was never made, or the broker answered with a refusal.
5. Before the first success of a client, a connection error may be a mistyped host as well as an outage. The
   verdict is then `ASK_BACKLOG`: if a link to one of the pair's backlog queues opens, somebody has paired
   before us, the names are right and it is an outage. Otherwise it is raised.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple

from pairbus import conditions
from pairbus.options import SendAvailabilityOptions

#: What became of what was sent, as a bill sees it. Refused: the broker answered, so it has counted.
Fate = Literal["taken", "refused", "unsent", "unknown"]


class FailureKind(Enum):
    """What a failure is, in the words of whoever operates the pair."""

    CONNECTION = "connection refused, lost, forced to detach, unknown host, TLS cut"
    TIMEOUT = "timed out, by the SDK or by our deadline"
    SERVICE = "internal error, connection forced, container closed"
    UNRECOGNISED = "an error of the SDK that tells nothing"
    THROTTLED = "throttled"
    CALLER = "too large, bad argument, failed precondition"
    UNAUTHORIZED = "not authorised"
    CERTIFICATE = "bad certificate"
    MISSING = "entity missing"
    DISABLED = "entity disabled"
    FULL = "entity full, too many connections"


class Action(Enum):
    """What is done about a failed send."""

    COUNT = "count"  # towards the failover; the message was certainly not taken
    COUNT_UNKNOWN = "count, outcome unknown"
    ASK_BACKLOG = "count if a backlog link opens, else raise"
    THROTTLED = "wait, do not count"
    RAISE = "raise"
    PERMANENT = "raise; a ping that meets it three times faults the entity"
    SPILL = "send this message to the backlog, do not count"
    REMOVE = "take the backlog queue out of the rotation"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed send, described without the exception: plain values that can be kept, compared and pickled."""

    classes: tuple[str, ...]
    causes: frozenset[str] = frozenset()
    condition: str | None = None
    status: int | None = None
    is_encoding: bool = False  # what the caller gave could not be encoded
    wait: float | None = None  # what a throttled answer asks for
    text: str = ""
    is_opening: bool = False  # it was raised while a link was being opened

    @property
    def name(self) -> str:
        """The class of the exception."""
        return self.classes[0]

    @property
    def summary(self) -> str:
        """One line for logs, reasons and errors."""
        condition = f" ({self.condition})" if self.condition and self.condition not in self.text else ""
        return f"{self.name}{condition}: {self.text}" if self.text else f"{self.name}{condition}"

    @property
    def is_outcome_known(self) -> bool:
        """Whether it is certain that the message was not taken."""
        if self._never_left:
            return True
        return bool(self.causes & _REFUSALS) and self.condition not in _CLIENT_SIDE

    @property
    def _never_left(self) -> bool:
        return self.is_encoding or bool(self.causes & _NEVER_CONNECTED)

    @property
    def fate(self) -> Fate:
        """Whether the broker has answered, has never seen it, or nobody knows."""
        if self.is_opening or self._never_left:
            return "unsent"
        if self.is_outcome_known or (self.status is not None and "HttpResponseError" not in self.causes):
            return "refused"  # a status comes with the answer to a request
        return "unsent" if not self.causes & _ON_THE_LINE else "unknown"


class Ruling(NamedTuple):
    """What to do, why, and for how long to wait if throttled. `is_answer`: it does not count, and shows that
    the primary is there: it has looked at the entity and refused.
    """

    action: Action
    kind: FailureKind
    wait: float = 0.0
    is_answer: bool = False

    @property
    def is_counted(self) -> bool:
        return self.action in (Action.COUNT, Action.COUNT_UNKNOWN)


#: What an attempt without an answer is taken for.
SILENCE = Ruling(Action.COUNT_UNKNOWN, FailureKind.TIMEOUT)


class FailureRow(NamedTuple):
    """One row of the table: it fits if each criterion that it has shares something with the failure."""

    kind: FailureKind
    classes: frozenset[str] = frozenset()
    conditions: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    causes: frozenset[str] = frozenset()
    encoding: bool = False

    def fits(self, failure: Failure) -> bool:
        return (
            (not self.classes or not self.classes.isdisjoint(failure.classes))
            and (not self.conditions or failure.condition in self.conditions)
            and (not self.statuses or failure.status in self.statuses)
            and (not self.causes or not self.causes.isdisjoint(failure.causes))
            and (not self.encoding or failure.is_encoding)
        )


class Decision(NamedTuple):
    """What a kind leads to, and what instead if an option is on."""

    action: Action
    option: str | None = None
    with_option: Action = Action.COUNT


def _any(*names: str) -> frozenset[str]:
    return frozenset(names)


_SERVER_TROUBLE = frozenset({0, 408, *range(500, 600)})  # 0: the SDK's word for a rejected token request
_AUTHENTICATION = _any("ServiceBusAuthenticationError")

ROWS: tuple[FailureRow, ...] = (
    # What cannot be encoded is the caller's, whatever was raised: an OSError too, by a property's own code.
    # The same classes raised while decoding are the peer's doing.
    FailureRow(FailureKind.CALLER, encoding=True),
    FailureRow(
        FailureKind.CERTIFICATE, causes=_any("SSLCertVerificationError", "ClientConnectorCertificateError")
    ),
    FailureRow(FailureKind.TIMEOUT, classes=_any("OperationTimeoutError")),
    FailureRow(FailureKind.THROTTLED, classes=_any("ServiceBusServerBusyError")),
    FailureRow(FailureKind.THROTTLED, conditions=_any(conditions.SERVER_BUSY)),
    FailureRow(FailureKind.THROTTLED, statuses=frozenset({429})),
    FailureRow(FailureKind.CALLER, classes=_any("MessageSizeExceededError")),
    FailureRow(FailureKind.FULL, classes=_any("ServiceBusQuotaExceededError")),
    FailureRow(FailureKind.FULL, conditions=_any(conditions.RESOURCE_LIMIT)),
    FailureRow(FailureKind.MISSING, classes=_any("MessagingEntityNotFoundError")),
    FailureRow(FailureKind.MISSING, classes=_AUTHENTICATION, statuses=frozenset({404, 410})),
    FailureRow(FailureKind.MISSING, conditions=_any(conditions.RESOURCE_DELETED)),
    FailureRow(FailureKind.DISABLED, classes=_any("MessagingEntityDisabledError")),
    FailureRow(FailureKind.DISABLED, conditions=_any(conditions.ENTITY_DISABLED)),
    FailureRow(FailureKind.UNAUTHORIZED, classes=_any("ServiceBusAuthorizationError")),
    FailureRow(FailureKind.UNAUTHORIZED, conditions=_any(conditions.UNAUTHORIZED, conditions.AUTH_FAILED)),
    FailureRow(FailureKind.UNAUTHORIZED, statuses=frozenset({401, 403})),
    # A handshake that is cut behind a web-socket layer shows as a failed authentication.
    FailureRow(FailureKind.CONNECTION, classes=_AUTHENTICATION, causes=_any("OSError")),
    FailureRow(FailureKind.SERVICE, classes=_AUTHENTICATION, statuses=_SERVER_TROUBLE),
    FailureRow(FailureKind.SERVICE, classes=_AUTHENTICATION, conditions=_any(conditions.INTERNAL_ERROR)),
    FailureRow(FailureKind.UNAUTHORIZED, classes=_AUTHENTICATION),
    FailureRow(
        FailureKind.UNAUTHORIZED, causes=_any("ClientAuthenticationError")
    ),  # azure-identity got no token
    FailureRow(
        FailureKind.CALLER,
        conditions=_any(
            conditions.DECODE_ERROR,
            conditions.FRAME_SIZE_TOO_SMALL,
            conditions.INVALID_FIELD,
            conditions.MESSAGE_SIZE_EXCEEDED,
            conditions.NOT_ALLOWED,
            conditions.NOT_IMPLEMENTED,
            conditions.PRECONDITION_FAILED,
            conditions.ARGUMENT_ERROR,
            conditions.ARGUMENT_OUT_OF_RANGE,
            conditions.PRECONDITION,
        ),
    ),
    FailureRow(FailureKind.TIMEOUT, conditions=_any(conditions.TIMEOUT)),
    FailureRow(
        FailureKind.SERVICE,
        conditions=_any(
            conditions.CONNECTION_FORCED,
            conditions.INTERNAL_ERROR,
            conditions.CONTAINER_CLOSE,
            conditions.OPERATION_CANCELLED,
        ),
    ),
    # A connection that is not made in time was not made.
    FailureRow(
        FailureKind.CONNECTION, classes=_any("ServiceBusConnectionError", "ServiceBusCommunicationError")
    ),
    FailureRow(FailureKind.TIMEOUT, classes=_any("TimeoutError")),  # our own deadline
    FailureRow(FailureKind.TIMEOUT, classes=_any("ServiceBusError"), causes=_any("TimeoutError")),
    FailureRow(
        FailureKind.CONNECTION,
        conditions=_any(
            conditions.CLIENT_ERROR,
            conditions.FRAMING_ERROR,
            conditions.CONNECTION_REDIRECT,
            conditions.ILLEGAL_STATE,
            conditions.DETACH_FORCED,
            conditions.LINK_REDIRECT,
            conditions.LINK_STOLEN,
            conditions.ERRANT_LINK,
            conditions.HANDLE_IN_USE,
            conditions.UNATTACHED_HANDLE,
            conditions.WINDOW_VIOLATION,
            conditions.SOCKET_ERROR,
            conditions.UNKNOWN_ERROR,
        ),
    ),
    FailureRow(FailureKind.CONNECTION, causes=_any("OSError", "ServiceRequestError", "ServiceResponseError")),
    FailureRow(FailureKind.SERVICE, causes=_any("HttpResponseError"), statuses=_SERVER_TROUBLE),
    FailureRow(
        FailureKind.CALLER,
        classes=_any(
            "AutoLockRenewFailed",
            "AutoLockRenewTimeout",
            "MessageLockLostError",
            "MessageNotFoundError",
            "MessagingEntityAlreadyExistsError",
            "SessionCannotBeLockedError",
            "SessionLockLostError",
        ),
    ),
    FailureRow(FailureKind.UNRECOGNISED, classes=_any("ServiceBusError")),
    # Not an error of the SDK's: ValueError, TypeError, and what a credential or message of the caller raises.
    FailureRow(FailureKind.CALLER),
)

DECISIONS: dict[FailureKind, Decision] = {
    FailureKind.CONNECTION: Decision(Action.COUNT),
    FailureKind.TIMEOUT: Decision(Action.COUNT_UNKNOWN),
    FailureKind.SERVICE: Decision(Action.COUNT),
    FailureKind.UNRECOGNISED: Decision(Action.COUNT_UNKNOWN),
    FailureKind.THROTTLED: Decision(Action.THROTTLED),
    FailureKind.CALLER: Decision(Action.RAISE),
    FailureKind.UNAUTHORIZED: Decision(Action.PERMANENT, "count_unauthorized", Action.COUNT),
    FailureKind.CERTIFICATE: Decision(Action.PERMANENT),
    FailureKind.MISSING: Decision(Action.PERMANENT),
    FailureKind.DISABLED: Decision(Action.PERMANENT, "count_disabled", Action.COUNT),
    FailureKind.FULL: Decision(Action.RAISE, "spill_when_full", Action.SPILL),
}

# The primary must be there to say this of an entity. What the caller did wrong may have been found without
# it, and a wrong certificate is shown by somebody else.
_ANSWERS = frozenset({FailureKind.UNAUTHORIZED, FailureKind.MISSING, FailureKind.DISABLED, FailureKind.FULL})
# The token service has refused, not the primary.
_NO_TOKEN = _any("ClientAuthenticationError")
# Proof that nothing was sent: no connection, or no token for one.
_NEVER_CONNECTED = _any("ConnectionRefusedError", "gaierror", "TokenAuthFailure", "ClientAuthenticationError")
# The broker's answer to this very message. The SDK uses the same classes for a link that went away under it,
# with conditions of its own making.
_REFUSALS = _any("MessageException", "MessageSendFailed")
_CLIENT_SIDE = _any(conditions.CLIENT_ERROR, conditions.UNKNOWN_ERROR)
# Without one of these in it, an error was raised before anything was sent.
_ON_THE_LINE = _any("AMQPException", "OSError", "ServiceBusConnectionError", "OperationTimeoutError")


def classify(failure: Failure) -> FailureKind:
    """The kind of the first row that fits; the last row fits everything."""
    return next(row.kind for row in ROWS if row.fits(failure))


def judge(
    failure: Failure,
    options: SendAvailabilityOptions,
    *,
    had_success: bool,
    backlog_opened: bool | None = None,
) -> Ruling:
    """What to do about a failed send to the primary.

    `had_success`: whether anything has succeeded on the primary with this client. `backlog_opened`: the
    answer to an earlier `ASK_BACKLOG`; None as long as nobody has asked.
    """
    kind = classify(failure)
    decision = DECISIONS[kind]
    action = decision.action
    if decision.option is not None and getattr(options, decision.option):
        action = decision.with_option
    if action is Action.THROTTLED:
        return _throttled(failure, options)
    if kind is FailureKind.CONNECTION and not had_success and not backlog_opened:
        return Ruling(Action.ASK_BACKLOG if backlog_opened is None else Action.RAISE, kind)
    if action is Action.COUNT and not failure.is_outcome_known:
        action = Action.COUNT_UNKNOWN
    verdict = Ruling(action, kind)
    is_answer = kind in _ANSWERS and not verdict.is_counted and failure.causes.isdisjoint(_NO_TOKEN)
    return verdict._replace(is_answer=is_answer)


def judge_backlog(failure: Failure, options: SendAvailabilityOptions) -> Ruling:
    """What to do about a failed send to a backlog queue: take it out of the rotation, wait, or raise."""
    kind = classify(failure)
    if kind is FailureKind.THROTTLED:
        # The whole secondary is throttled, so another of its queues would be no better.
        return _throttled(failure, options)
    return Ruling(Action.RAISE if kind is FailureKind.CALLER else Action.REMOVE, kind)


def _throttled(failure: Failure, options: SendAvailabilityOptions) -> Ruling:
    wait = options.throttle_wait if failure.wait is None else failure.wait
    return Ruling(Action.THROTTLED, FailureKind.THROTTLED, wait)


def find_idle_closure(failure: Failure, options: SendAvailabilityOptions, *, idle_for: float) -> Fate | None:
    """What became of a send on a link that was closed while nobody used it, to be opened again once, at once.
    None if it is no such failure: an answer is an answer, also after an idle spell.

    The service closes links after ten idle minutes and firewalls drop connections sooner. `idle_for` is the
    time between the last success on this very link and the beginning of the failed attempt; a link that was
    opened for the attempt has none, so a second failure in a row is never taken for an idle closure.
    """
    is_closure = classify(failure) in (FailureKind.CONNECTION, FailureKind.SERVICE)
    if idle_for < options.idle_spell or not is_closure or failure.fate == "refused":
        return None
    return failure.fate

"""Faults of the AMQP layer, and the names under which faults travel.

PairbusError
 ├── ProtocolError         the peer broke AMQP 1.0; `condition` and `description` go into our close frame
 │    ├── DecodeError      its bytes are no AMQP value
 │    └── SessionViolation its fault ends one session, not the connection
 ├── EncodeError           a value of our own cannot be written as AMQP
 └── UsageError            our own caller asked for something that the machine's state does not allow
"""

from __future__ import annotations

from typing import Final

from pairbus.errors import PairbusError

# Conditions of the standard (part 2.8.15 - 2.8.18).
INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
RESOURCE_LIMIT: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
ILLEGAL_STATE: Final = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"

CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
CONNECTION_REDIRECT: Final = "amqp:connection:redirect"

WINDOW_VIOLATION: Final = "amqp:session:window-violation"
ERRANT_LINK: Final = "amqp:session:errant-link"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"

DETACH_FORCED: Final = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
LINK_REDIRECT: Final = "amqp:link:redirect"
LINK_STOLEN: Final = "amqp:link:stolen"

# Conditions of Service Bus.
SERVER_BUSY: Final = "com.microsoft:server-busy"
TIMEOUT: Final = "com.microsoft:timeout"
OPERATION_CANCELLED: Final = "com.microsoft:operation-cancelled"
ENTITY_DISABLED: Final = "com.microsoft:entity-disabled"
ENTITY_ALREADY_EXISTS: Final = "com.microsoft:entity-already-exists"
SESSION_CANNOT_BE_LOCKED: Final = "com.microsoft:session-cannot-be-locked"
SESSION_LOCK_LOST: Final = "com.microsoft:session-lock-lost"
MESSAGE_LOCK_LOST: Final = "com.microsoft:message-lock-lost"
MESSAGE_NOT_FOUND: Final = "com.microsoft:message-not-found"
ARGUMENT_ERROR: Final = "com.microsoft:argument-error"
ARGUMENT_OUT_OF_RANGE: Final = "com.microsoft:argument-out-of-range"
AUTH_FAILED: Final = "com.microsoft:auth-failed"
DEAD_LETTER: Final = "com.microsoft:dead-letter"
PARTITION_NOT_OWNED: Final = "com.microsoft:partition-not-owned"
STORE_LOCK_LOST: Final = "com.microsoft:store-lock-lost"
PUBLISHER_REVOKED: Final = "com.microsoft:publisher-revoked"


class ProtocolError(PairbusError):
    """The peer broke AMQP 1.0."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description


class DecodeError(ProtocolError):
    """Bytes of the peer that are no well-formed AMQP value."""

    def __init__(self, description: str, condition: str = DECODE_ERROR) -> None:
        super().__init__(condition, description)


class SessionViolation(ProtocolError):
    """A fault of the peer that the standard answers by ending the session."""


class EncodeError(PairbusError):
    """A value of our own that AMQP cannot carry."""


class UsageError(PairbusError):
    """An operation that the machine's state does not allow; the caller's fault, not the peer's."""

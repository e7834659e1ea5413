"""The conditions by which AMQP and Service Bus say what went wrong: error codes of both sides, each once."""

# Conditions of the standard (part 2.8.15 - 2.8.18).
INTERNAL_ERROR = "amqp:internal-error"
NOT_FOUND = "amqp:not-found"
UNAUTHORIZED = "amqp:unauthorized-access"
DECODE_ERROR = "amqp:decode-error"
RESOURCE_LIMIT = "amqp:resource-limit-exceeded"
NOT_ALLOWED = "amqp:not-allowed"
INVALID_FIELD = "amqp:invalid-field"
NOT_IMPLEMENTED = "amqp:not-implemented"
PRECONDITION_FAILED = "amqp:precondition-failed"
RESOURCE_DELETED = "amqp:resource-deleted"
ILLEGAL_STATE = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small"

CONNECTION_FORCED = "amqp:connection:forced"
FRAMING_ERROR = "amqp:connection:framing-error"
CONNECTION_REDIRECT = "amqp:connection:redirect"

WINDOW_VIOLATION = "amqp:session:window-violation"
ERRANT_LINK = "amqp:session:errant-link"
HANDLE_IN_USE = "amqp:session:handle-in-use"
UNATTACHED_HANDLE = "amqp:session:unattached-handle"

DETACH_FORCED = "amqp:link:detach-forced"
MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
LINK_REDIRECT = "amqp:link:redirect"
LINK_STOLEN = "amqp:link:stolen"

# Those of transactions (part 4.5.8).
TRANSACTION_UNKNOWN = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK = "amqp:transaction:rollback"

# Conditions of Service Bus.
SERVER_BUSY = "com.microsoft:server-busy"
TIMEOUT = "com.microsoft:timeout"
OPERATION_CANCELLED = "com.microsoft:operation-cancelled"
ENTITY_DISABLED = "com.microsoft:entity-disabled"
ENTITY_ALREADY_EXISTS = "com.microsoft:entity-already-exists"
SESSION_CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"
SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"
MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
MESSAGE_NOT_FOUND = "com.microsoft:message-not-found"
ARGUMENT_ERROR = "com.microsoft:argument-error"
ARGUMENT_OUT_OF_RANGE = "com.microsoft:argument-out-of-range"
AUTH_FAILED = "com.microsoft:auth-failed"
DEAD_LETTER = "com.microsoft:dead-letter"
PRECONDITION = "com.microsoft:precondition-failed"
CONTAINER_CLOSE = "com.microsoft:container-close"

# Conditions of the SDK's own making, which say no more than that something failed on its side.
CLIENT_ERROR = "amqp:client-error"
UNKNOWN_ERROR = "amqp:unknown-error"
SOCKET_ERROR = "amqp:socket-error"

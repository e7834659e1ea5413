"""Errors of our own AMQP as the SDK's exceptions: the one place that knows both vocabularies."""

from __future__ import annotations

from azure.servicebus.exceptions import ServiceBusError

from pairbus import conditions
from pairbus.sdk.privates import ErrorLevel, sdk_error, sdk_token_error
from pairbus.wire.errors import (
    CONNECTION_LOST,
    SUSPECTED,
    UNANSWERED,
    TokenMissing,
    TokenRefused,
    TransportError,
)

# The SDK's words for what has no name in AMQP.
_WORDS = {
    CONNECTION_LOST: conditions.SOCKET_ERROR,
    UNANSWERED: conditions.SOCKET_ERROR,
    # Which of several messages it was that made the peer detach the link is not known.
    SUSPECTED: conditions.DETACH_FORCED,
}


def as_sdk_error(error: TransportError, level: ErrorLevel) -> ServiceBusError:
    """The exception of the SDK, with ours and its causes behind it."""
    if isinstance(error, TokenRefused):
        raised = sdk_token_error(error.status, error.description)
    elif isinstance(error, TokenMissing) and isinstance(error.__cause__, Exception):
        cause = error.__cause__
        raised = ServiceBusError(message=f"Handler failed: {cause}.", error=cause)
    else:
        word = _WORDS.get(error.condition)
        where: ErrorLevel = "connection" if word == conditions.SOCKET_ERROR else level
        raised = sdk_error(where, word or error.condition, error.description)
    raised.__cause__ = error
    return raised

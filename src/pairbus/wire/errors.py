"""What can go wrong on the way to a namespace.

PairbusError
  TransportError        a peer refused something, or cannot be reached; `condition` says what it was
    TokenRefused        `$cbs` did not take a token
    TokenMissing        the credential gave none
"""

from copy import copy
from typing import Self

from pairbus import conditions
from pairbus.errors import PairbusError

# Conditions of our own beside those of AMQP: the line broke, nothing came back in time, or one of several
# messages on the way was refused, and nobody knows which.
CONNECTION_LOST = "pairbus:connection-lost"
UNANSWERED = "pairbus:unanswered"
SUSPECTED = "pairbus:suspected"
_DENIALS = {conditions.UNAUTHORIZED, conditions.AUTH_FAILED}
# What a peer says of what is in a message, and of nothing else, with a word for it.
OF_A_MESSAGE = {
    conditions.MESSAGE_SIZE_EXCEEDED: "MessageTooLarge",
    conditions.NOT_ALLOWED: "NotAllowed",
    conditions.DECODE_ERROR: "Malformed",
    conditions.INVALID_FIELD: "Malformed",
    conditions.PRECONDITION_FAILED: "NotAllowed",
    conditions.NOT_IMPLEMENTED: "NotAllowed",
    conditions.ARGUMENT_ERROR: "Malformed",
    conditions.ARGUMENT_OUT_OF_RANGE: "Malformed",
}


class TransportError(PairbusError):
    """A peer refused something, or cannot be reached."""

    #: Of a send: nothing of it has left, so that the peer cannot have it.
    is_unsent = False

    def __init__(self, condition: str, description: str) -> None:
        self.condition = condition
        self.description = description
        super().__init__(f"{condition}: {description}" if description else condition)

    @property
    def words(self) -> str:
        """The same for people: conditions of our own say nothing that the description does not."""
        is_ours = self.condition in (CONNECTION_LOST, UNANSWERED)
        return self.description if is_ours and self.description else str(self)

    def unsent(self) -> Self:
        """The same, of a send that had not begun."""
        told = copy(self)
        told.is_unsent = True
        return told


class TokenRefused(TransportError):
    """`$cbs` did not take a token; `status` is its status code, 0 if there was none."""

    def __init__(self, condition: str, description: str, status: int) -> None:
        self.status = status
        super().__init__(condition, description)


#: How the text of a `TokenMissing` begins.
NO_TOKEN = "the credential gave no token"


class TokenMissing(TransportError):
    """The credential gave no token; what it raised is the cause."""


def is_denial(error: BaseException | None) -> bool:
    """Whether a token is missing, has ended, or does not have the claim."""
    return isinstance(error, TransportError) and error.condition in _DENIALS

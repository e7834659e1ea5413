"""Faults of the AMQP layer.

PairbusError
 ├── ProtocolError         the peer broke AMQP 1.0; `condition` and `description` go into our close frame
 │    ├── DecodeError      its bytes are no AMQP value
 │    └── SessionViolation its fault ends one session, not the connection
 ├── EncodeError           a value of our own cannot be written as AMQP
 └── UsageError            our own caller asked for something that the machine's state does not allow
"""

from pairbus.conditions import DECODE_ERROR
from pairbus.errors import PairbusError


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

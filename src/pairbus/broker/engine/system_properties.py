"""The properties that SQL calls `sys.…`: where each stands in a message, and which an action may set.

Names are those of the service's message class, in any case. A message is filtered when it arrives at the
topic, so what only a delivery has (lock token, locked until) is not among them.
"""

import datetime
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pairbus import words
from pairbus.amqp.message import Properties
from pairbus.amqp.types import Timestamp


class Filterable(Protocol):
    """What a filter looks at. Annotations are keyed by their AMQP names (`x-opt-…`)."""

    @property
    def properties(self) -> Properties: ...
    @property
    def application_properties(self) -> Mapping[str, Any]: ...
    @property
    def annotations(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """One system property. `field` is the field of the AMQP properties that an action may set, if any."""

    name: str
    read: Callable[[Filterable], Any]
    field: str | None = None


class _FoldedNames:
    """The names of the properties that were looked at last, in lower case: a message may have thousands, and
    a rule ask for a hundred that it does not have. What is added or removed is looked up before, so that
    their number tells whether they are the same.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = properties
        self._count = len(properties)
        # Of names that differ in case alone the first counts.
        self.names = {key.lower(): key for key in reversed(list(properties)) if isinstance(key, str)}

    def are_of(self, properties: Mapping[str, Any]) -> bool:
        return self._properties is properties and self._count == len(properties)


_looked_at = _FoldedNames({})


def lookup(properties: Mapping[str, Any], name: str) -> str | None:
    """Find the key under which a user property stands; names are compared without regard to case."""
    global _looked_at
    if name in properties:
        return name
    folded = _looked_at
    if not folded.are_of(properties):
        folded = _looked_at = _FoldedNames(properties)
    return folded.names.get(name.lower())


def identifier_text(value: object) -> str | None:
    """Message and correlation ids as text: AMQP lets them be uuid, ulong or binary as well."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (uuid.UUID, int)):
        return str(value)
    return bytes(value).hex() if isinstance(value, (bytes, bytearray)) else None


def _text(name: str, field: str) -> SystemProperty:
    return SystemProperty(name, lambda message: getattr(message.properties, field), field)


def _identifier(name: str, field: str) -> SystemProperty:
    return SystemProperty(name, lambda message: identifier_text(getattr(message.properties, field)), field)


def _annotation(name: str, key: str) -> SystemProperty:
    return SystemProperty(name, lambda message: message.annotations.get(key))


def _moment(name: str, key: str) -> SystemProperty:
    return SystemProperty(name, lambda message: _timestamp(message.annotations.get(key)))


def _timestamp(value: object) -> Timestamp | None:
    """Milliseconds, of whatever integer type, as a moment: a bare number would not compare with times."""
    return Timestamp(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _read_time_to_live(message: Filterable) -> datetime.timedelta | None:
    expiry, creation = message.properties.absolute_expiry_time, message.properties.creation_time
    if expiry is None or creation is None:
        return None
    milliseconds = int(expiry) - int(creation)
    # A timedelta ends at a billion days; a longer life is as good as none.
    return datetime.timedelta(milliseconds=milliseconds) if abs(milliseconds) < 10**16 else None


_ALL: Final = (
    _identifier("MessageId", "message_id"),
    _identifier("CorrelationId", "correlation_id"),
    _text("ContentType", "content_type"),
    _text("Label", "subject"),
    _text("Subject", "subject"),
    _text("To", "to"),
    _text("ReplyTo", "reply_to"),
    _text("SessionId", "group_id"),
    _text("ReplyToSessionId", "reply_to_group_id"),
    SystemProperty("ExpiresAtUtc", lambda message: _timestamp(message.properties.absolute_expiry_time)),
    SystemProperty("TimeToLive", _read_time_to_live),
    SystemProperty("DeliveryCount", lambda _: 0),
    _moment("EnqueuedTimeUtc", words.ENQUEUED_TIME),
    _moment("ScheduledEnqueueTimeUtc", words.SCHEDULED_TIME),
    _annotation("SequenceNumber", words.SEQUENCE_NUMBER),
    _annotation("EnqueuedSequenceNumber", words.ENQUEUED_SEQUENCE_NUMBER),
    _annotation("PartitionKey", words.PARTITION_KEY),
    _annotation("ViaPartitionKey", words.VIA_PARTITION_KEY),
    _annotation("DeadLetterSource", words.DEAD_LETTER_SOURCE),
)
SYSTEM_PROPERTIES: Final[Mapping[str, SystemProperty]] = {each.name.lower(): each for each in _ALL}

"""The SDK's messages at the edge of the rules: read, given an id, wrapped for the backlog.

1. A message of the caller's is never changed. One that has no id is copied and the copy gets one, so that the
   same object sent twice is two messages.
2. A copy shares the body and rebuilds the rest from the public attributes of `AmqpAnnotatedMessage`.
3. The SDK writes a plain int with 32 bits. The types that the envelope asks for are written as the SDK's own
   description of a typed value: a mapping with TYPE and VALUE.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from ..pairing.envelope import CompressedBody, Long, Natives, TimestampMs, Wrapped, check_properties

__all__ = [
    "Message",
    "Outgoing",
    "PairedMessageBatch",
    "body_bytes",
    "measure",
    "natives_of",
    "prepare",
    "wrapped_copy",
]

Message = ServiceBusMessage | AmqpAnnotatedMessage
_SCHEDULED = b"x-opt-scheduled-enqueue-time"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What a batch with one message takes besides the message: its envelope, and the section around it.
_MEASURING_LIMIT = 1 << 30


class PairedMessageBatch(ServiceBusMessageBatch):
    """A batch that remembers its messages, so that in an outage each can be wrapped by itself."""

    def __init__(self, max_size_in_bytes: int | None = None) -> None:
        super().__init__(max_size_in_bytes)
        self.messages: list[Message] = []

    def add_message(self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]) -> None:
        """Try to add a message; MessageSizeExceededError if it does not fit any more."""
        prepared = _prepare_one(message)
        super().add_message(prepared)
        self.messages.append(prepared)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The messages of one call. `native` is what the SDK is given: one message, a list or a batch."""

    native: Any
    messages: list[Message]

    @property
    def count(self) -> int:
        return len(self.messages)


def prepare(given: Any) -> Outgoing:
    """Check and copy what a caller wants to send; ReservedPropertyError, TypeError or ValueError if it cannot
    be sent.
    """
    if isinstance(given, ServiceBusMessage | AmqpAnnotatedMessage):
        message = _prepare_one(given)
        return Outgoing(message, [message])
    if isinstance(given, PairedMessageBatch):
        return Outgoing(given, list(given.messages))
    if isinstance(given, ServiceBusMessageBatch):
        raise TypeError(
            "This batch was not made by this client, so that its messages could not be wrapped in an outage. "
            "Make it with create_message_batch() of the sender that sends it."
        )
    if isinstance(given, Mapping):
        message = _prepare_one(given)
        return Outgoing(message, [message])
    if isinstance(given, Iterable):
        messages = [_prepare_one(item) for item in given]
        return Outgoing(messages, messages)
    raise TypeError(f"Only messages, lists of messages and batches can be sent, not {type(given).__name__}.")


def _prepare_one(given: Any) -> Message:
    if isinstance(given, Mapping):
        given = ServiceBusMessage(**given)
    if isinstance(given, ServiceBusMessage):
        raw = given.raw_amqp_message
    elif isinstance(given, AmqpAnnotatedMessage):
        raw = given
    else:
        raise TypeError(
            f"Messages are ServiceBusMessage, AmqpAnnotatedMessage or dict, not {type(given).__name__}."
        )
    if raw.application_properties:
        check_properties(raw.application_properties)
    properties = raw.properties
    if properties is not None and properties.message_id:
        return given if isinstance(given, ServiceBusMessage) else raw
    named = _properties(properties)
    named.message_id = uuid.uuid4().hex
    return _copy(raw, properties=named)


def message_id_of(message: Message) -> str:
    """The id, as text."""
    properties = _raw(message).properties
    return _text(properties.message_id) or "" if properties is not None else ""


def _raw(message: Message) -> AmqpAnnotatedMessage:
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


def _properties(given: AmqpMessageProperties | None) -> AmqpMessageProperties:
    return AmqpMessageProperties() if given is None else AmqpMessageProperties(**dict(given.items()))


def _header(given: AmqpMessageHeader | None) -> AmqpMessageHeader:
    return AmqpMessageHeader() if given is None else AmqpMessageHeader(**dict(given.items()))


def _copy(raw: AmqpAnnotatedMessage, *, properties: AmqpMessageProperties) -> AmqpAnnotatedMessage:
    copy = _with_body_of(raw)
    if raw.header is not None:
        copy.header = raw.header
    copy.properties = properties
    copy.application_properties = (
        None if raw.application_properties is None else dict(raw.application_properties)
    )
    copy.annotations = raw.annotations
    copy.delivery_annotations = raw.delivery_annotations
    copy.footer = raw.footer
    return copy


def _with_body_of(raw: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    if raw.body_type == AmqpMessageBodyType.DATA:
        return AmqpAnnotatedMessage(data_body=list(raw.body))
    if raw.body_type == AmqpMessageBodyType.SEQUENCE:
        return AmqpAnnotatedMessage(sequence_body=list(raw.body))
    return AmqpAnnotatedMessage(value_body=raw.body)


# --------------------------------------------------------------------------- the envelope


def natives_of(message: Message, scheduled_for: datetime | None = None) -> Natives:
    """The native properties that the envelope deals with."""
    raw = _raw(message)
    header, properties, annotations = raw.header, raw.properties, raw.annotations or {}
    scheduled: Any = annotations.get(_SCHEDULED, annotations.get(_SCHEDULED.decode()))
    return Natives(
        session_id=_text(properties.group_id) if properties is not None else None,
        ttl_ms=None if header is None or header.time_to_live is None else int(header.time_to_live),
        expires_ms=_milliseconds(properties.absolute_expiry_time) if properties is not None else None,
        scheduled_ms=_milliseconds(scheduled if scheduled_for is None else scheduled_for),
    )


def wrapped_copy(
    message: Message, wrapped: Wrapped, *, body: CompressedBody | None = None
) -> AmqpAnnotatedMessage:
    """The message as it waits in a backlog queue."""
    raw = _raw(message)
    properties = _properties(raw.properties)
    properties.group_id = wrapped.natives.session_id
    properties.absolute_expiry_time = wrapped.natives.expires_ms
    copy = _copy(raw, properties=properties)
    if body is not None:
        copy = _copy_with_body(copy, body.data)
    header = _header(raw.header)
    header.time_to_live = wrapped.natives.ttl_ms
    copy.header = header
    added = {**wrapped.aliases, **(body.markers if body is not None else {})}
    properties_with_aliases = dict(copy.application_properties or {})
    properties_with_aliases.update((name, _typed(value)) for name, value in added.items())
    copy.application_properties = properties_with_aliases
    if raw.annotations:
        gone = (_SCHEDULED, _SCHEDULED.decode())
        copy.annotations = {key: value for key, value in raw.annotations.items() if key not in gone}
    return copy


def _copy_with_body(message: AmqpAnnotatedMessage, data: bytes) -> AmqpAnnotatedMessage:
    compressed = AmqpAnnotatedMessage(data_body=data)
    if message.properties is not None:
        compressed.properties = message.properties
    compressed.application_properties = message.application_properties
    compressed.annotations = message.annotations
    compressed.delivery_annotations = message.delivery_annotations
    return compressed


def _typed(value: str | Long | TimestampMs) -> Any:
    if isinstance(value, Long):
        return {"TYPE": "LONG", "VALUE": int(value)}
    if isinstance(value, TimestampMs):
        return {"TYPE": "TIMESTAMP", "VALUE": int(value)}
    return value


# --------------------------------------------------------------------------- sizes


def measure(message: Message) -> int:
    """The size of a message on the wire, as the SDK encodes it."""
    batch = ServiceBusMessageBatch(_MEASURING_LIMIT)
    empty = batch.size_in_bytes
    batch.add_message(message)
    grown = batch.size_in_bytes - empty
    return grown - (5 if grown < 256 + 5 else 8)


def body_bytes(message: Message) -> int:
    """The size of the body where that costs nothing to know: of data; 0 for values and sequences."""
    raw = _raw(message)
    return sum(map(len, raw.body)) if raw.body_type == AmqpMessageBodyType.DATA else 0


def data_of(message: Message) -> list[bytes] | None:
    """The data sections of a message; None if its body is of another kind."""
    raw = _raw(message)
    return list(raw.body) if raw.body_type == AmqpMessageBodyType.DATA and not raw.footer else None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return None if value is None else str(value)


def _milliseconds(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return int((aware - _EPOCH).total_seconds() * 1000)
    return int(value)

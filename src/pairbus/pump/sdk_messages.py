"""Messages between the SDK's form and ours.

The SDK decodes what it receives and forgets the types: strings and binaries are both bytes, every whole
number is an int. What comes in through it is therefore written anew with the types that people usually mean:
text if the bytes are text, a long for a number. What goes out keeps the types that our bytes have. The bodies
of data sections are the same to the byte both ways.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.message import (
    Header,
    MessageSections,
    Properties,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_header,
    encode_properties,
    encode_value,
    scan,
)
from pairbus.amqp.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

_TEXT_FIELDS = (
    "to",
    "subject",
    "reply_to",
    "content_type",
    "content_encoding",
    "group_id",
    "reply_to_group_id",
)
_TYPES: dict[type, str] = {
    int: "LONG",
    Int: "INT",
    Short: "SHORT",
    Byte: "BYTE",
    ULong: "ULONG",
    UInt: "UINT",
    UShort: "USHORT",
    UByte: "UBYTE",
    Float: "FLOAT",
    float: "DOUBLE",
    Timestamp: "TIMESTAMP",
    Symbol: "SYMBOL",
}
_SEQUENCE_SECTION = b"\x00\x53\x76"


def to_payload(raw: AmqpAnnotatedMessage) -> bytes:
    """The bytes of a message that the SDK has received."""
    header = raw.header
    parts = [
        encode_header(
            Header(
                durable=bool(header and header.durable),
                priority=4 if header is None or header.priority is None else int(header.priority),
                ttl=None if header is None or header.time_to_live is None else int(header.time_to_live),
            )
        ),
        encode_annotations(
            {Symbol(_text(key)): _value(item) for key, item in (raw.annotations or {}).items()}
        ),
        encode_properties(_properties_in(raw.properties)),
    ]
    if raw.application_properties:
        own = {_text(key): _value(item) for key, item in raw.application_properties.items()}
        parts.append(encode_application_properties(own))
    return b"".join((*parts, *_body_in(raw)))


def _body_in(raw: AmqpAnnotatedMessage) -> list[bytes]:
    if raw.body_type == AmqpMessageBodyType.DATA:
        return [encode_data(bytes(part)) for part in raw.body]
    if raw.body_type == AmqpMessageBodyType.SEQUENCE:
        return [_SEQUENCE_SECTION + encode(_value(list(part))) for part in raw.body]
    return [encode_value(_value(raw.body))]


def _properties_in(given: AmqpMessageProperties | None) -> Properties:
    if given is None:
        return Properties()
    found = Properties(
        message_id=_value(given.message_id),
        user_id=given.user_id if isinstance(given.user_id, bytes) else None,
        correlation_id=_value(given.correlation_id),
        absolute_expiry_time=_milliseconds(given.absolute_expiry_time),
        creation_time=_milliseconds(given.creation_time),
        group_sequence=given.group_sequence,
    )
    for name in _TEXT_FIELDS:
        value = getattr(given, name)
        setattr(found, name, None if value is None else _text(value))
    return found


def _text(value: Any) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _milliseconds(value: Any) -> int | None:
    if isinstance(value, datetime):
        return int(value.replace(tzinfo=value.tzinfo or UTC).timestamp() * 1000)
    return None if value is None else int(value)


def _value(value: Any) -> Any:
    match value:
        case bytes() | bytearray():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return bytes(value)
        case datetime():
            return Timestamp(_milliseconds(value) or 0)
        case dict():
            return {_value(key): _value(item) for key, item in value.items()}
        case list() | tuple():
            return [_value(item) for item in value]
        case _:
            return value


def to_annotated(payload: bytes) -> AmqpAnnotatedMessage:
    """A message of ours for the SDK to send."""
    sections = scan(payload)
    message = _body_out(sections)
    header, properties = sections.header, sections.properties
    message.header = AmqpMessageHeader(
        durable=header.durable, priority=header.priority, time_to_live=header.ttl
    )
    message.properties = AmqpMessageProperties(
        message_id=properties.message_id,
        user_id=properties.user_id,
        to=properties.to,
        subject=properties.subject,
        reply_to=properties.reply_to,
        correlation_id=properties.correlation_id,
        content_type=properties.content_type,
        content_encoding=properties.content_encoding,
        absolute_expiry_time=properties.absolute_expiry_time,
        creation_time=properties.creation_time,
        group_id=properties.group_id,
        group_sequence=properties.group_sequence,
        reply_to_group_id=properties.reply_to_group_id,
    )
    message.annotations = {str(key): _typed(item) for key, item in sections.annotations.items()}
    own: dict[str | bytes, Any] = {
        str(key): _typed(item) for key, item in sections.application_properties.items()
    }
    message.application_properties = own or None
    return message


def _body_out(sections: MessageSections) -> AmqpAnnotatedMessage:
    if sections.body_kind == "value":
        return AmqpAnnotatedMessage(value_body=_typed(sections.value()))
    if sections.body_kind == "sequence":
        return AmqpAnnotatedMessage(sequence_body=_sequences(sections.body_bytes))
    return AmqpAnnotatedMessage(data_body=sections.data_sections() or [b""])


def _sequences(body: bytes) -> list[Any]:
    found, at = [], 0
    while at < len(body) and body[at : at + 3] == _SEQUENCE_SECTION:
        items, at = decode(body, at + 3)
        found.append([_typed(item) for item in items])
    return found


def _typed(value: Any) -> Any:
    """A value as the SDK's encoder takes it with its type."""
    match value:
        case None | bool() | uuid.UUID() | bytes():
            return value
        case Decimal32() | Decimal64() | Decimal128():
            return bytes(value)
        case Described():
            return _typed(value.value)
        case Array():
            return [_typed(item) for item in value]
        case list():
            return [_typed(item) for item in value]
        case dict():
            return {_typed(key): _typed(item) for key, item in value.items()}
        case Char():
            return str(value)
    name = _TYPES.get(type(value))
    if name is None:
        return value
    plain = float(value) if isinstance(value, float) else str(value) if isinstance(value, str) else int(value)
    return {"TYPE": name, "VALUE": plain}

"""Messages between the SDK's form and ours.

The SDK decodes what it receives and forgets the types: strings and binaries are both bytes, every whole
number is an int. What comes in through it is therefore written anew with the types that people usually mean:
text if the bytes are text, a long for a number. What goes out is our bytes; only to an SDK that does not take
them messages are given, with the types that our bytes have as far as the SDK can write them. The bodies of
data sections are the same to the byte both ways.
"""

import uuid
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, get_type_hints

from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from pairbus.amqp import types
from pairbus.amqp.message import (
    Header,
    MessageSections,
    Properties,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_footer,
    encode_header,
    encode_properties,
    encode_sequence,
    encode_value,
    scan,
)
from pairbus.sdk.privates import decimal_bytes
from pairbus.words import PARTITION_KEY

_ABOVE_LONG = 1 << 63
# What the SDK repeats outside of a batch, and finds by no other form of its name.
_SDK_KEYS: dict[str, str | bytes] = {PARTITION_KEY: PARTITION_KEY.encode()}
_PROPERTIES = [one.name for one in fields(Properties)]
_TEXT_FIELDS = [name for name, kind in get_type_hints(Properties).items() if kind == str | None]
# What the SDK calls them.
_OF_ONE_NAME = (types.Int, types.Short, types.Byte, types.ULong, types.UInt, types.UShort, types.UByte)
_TYPES: dict[type, str] = {
    int: "LONG",
    float: "DOUBLE",
    bytes: "BINARY",  # else it is text to the SDK, as a property
    **{kind: kind.__name__.upper() for kind in (*_OF_ONE_NAME, types.Float, types.Timestamp, types.Symbol)},
}


def to_payload(raw: AmqpAnnotatedMessage) -> bytes:
    """The bytes of a message that the SDK has received."""
    header = raw.header or AmqpMessageHeader()
    parts = [
        encode_header(
            Header(
                durable=header.durable,
                priority=header.priority,
                ttl=header.time_to_live,
                first_acquirer=header.first_acquirer,
            )
        ),
        encode_annotations(
            {types.Symbol(_text(key)): _value(item) for key, item in (raw.annotations or {}).items()}
        ),
        encode_properties(_properties_in(raw.properties)),
    ]
    if raw.application_properties:
        own = {_text(key): _value(item) for key, item in raw.application_properties.items()}
        parts.append(encode_application_properties(own))
    parts += _body_in(raw)
    if raw.footer:
        parts.append(
            encode_footer({types.Symbol(_text(key)): _value(item) for key, item in raw.footer.items()})
        )
    return b"".join(parts)


def _body_in(raw: AmqpAnnotatedMessage) -> list[bytes]:
    if raw.body_type == AmqpMessageBodyType.DATA:
        return [encode_data(bytes(part)) for part in raw.body]
    if raw.body_type == AmqpMessageBodyType.SEQUENCE:
        return [encode_sequence(_value(list(part))) for part in raw.body]
    return [encode_value(_value(raw.body))]


def _properties_in(given: AmqpMessageProperties | None) -> Properties:
    if given is None:
        return Properties()
    found = Properties(
        message_id=_identifier(given.message_id),
        user_id=given.user_id if isinstance(given.user_id, bytes) else None,
        correlation_id=_identifier(given.correlation_id),
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


def _identifier(value: Any) -> Any:
    return types.ULong(value) if isinstance(value, int) else _value(value)


def _value(value: Any) -> Any:
    match value:
        case int() if value >= _ABOVE_LONG:
            return types.ULong(value)
        case Decimal():
            return types.Decimal128(decimal_bytes(value))
        case bytes() | bytearray():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return bytes(value)
        case datetime():
            return types.Timestamp(_milliseconds(value) or 0)
        case dict():
            return {_value(key): _value(item) for key, item in value.items()}
        case list() | tuple():
            return [_value(item) for item in value]
        case _:
            return value


def to_batch(payloads: Sequence[bytes]) -> bytes:
    """Messages of ours as one: what the service routes it by is repeated of the first, and each is data."""
    first = scan(payloads[0])
    key = first.annotations.get(types.Symbol(PARTITION_KEY))
    told = Properties(message_id=first.properties.message_id, group_id=first.properties.group_id)
    return b"".join(
        (
            encode_annotations({types.Symbol(PARTITION_KEY): key}) if key else b"",
            encode_properties(told),
            *map(encode_data, payloads),
        )
    )


def to_annotated(payload: bytes) -> AmqpAnnotatedMessage:
    """A message of ours for the SDK to send."""
    sections = scan(payload)
    message = _body_out(sections)
    header, properties = sections.header, sections.properties
    message.header = AmqpMessageHeader(
        durable=header.durable,
        priority=header.priority,
        time_to_live=header.ttl,
        first_acquirer=header.first_acquirer,
    )
    message.properties = AmqpMessageProperties(**{name: getattr(properties, name) for name in _PROPERTIES})
    message.annotations = {
        _SDK_KEYS.get(str(key), str(key)): _typed(item) for key, item in sections.annotations.items()
    }
    own: dict[str | bytes, Any] = {
        str(key): _typed(item) for key, item in sections.application_properties.items()
    }
    message.application_properties = own or None
    message.footer = {str(key): _typed(item) for key, item in sections.footer().items()} or None
    return message


def _body_out(sections: MessageSections) -> AmqpAnnotatedMessage:
    if sections.body_kind == "value":
        value = sections.value()
        # A described value is a map to the SDK where it is the whole body.
        return AmqpAnnotatedMessage(value_body=_plain(value) if type(value) in _TYPES else _typed(value))
    if sections.body_kind == "sequence":
        return AmqpAnnotatedMessage(sequence_body=[_typed(items) for items in sections.sequences()])
    return AmqpAnnotatedMessage(data_body=sections.data_sections())


def _typed(value: Any) -> Any:
    """A value as the SDK's encoder takes it with its type."""
    match value:
        case None | bool() | uuid.UUID():
            return value
        case types.Decimal32() | types.Decimal64() | types.Decimal128():
            return bytes(value)
        case types.Described():
            return _typed(value.value)
        case types.Array() | list():
            return [_typed(item) for item in value]
        case dict():
            return {_plain(key): _typed(item) for key, item in value.items()}
        case types.Char():
            return str(value)
    name = _TYPES.get(type(value))
    return value if name is None else {"TYPE": name, "VALUE": _plain(value)}


def _plain(value: Any) -> Any:
    """A value of one of AMQP's own types as Python's own."""
    for kind in (float, str, int):
        if isinstance(value, kind):
            return kind(value)
    return value

"""Messages as bytes and back, for the spool: what comes back is to the SDK what went in.

The bytes are one AMQP value: a map of the parts of the message. Python's types stand for themselves; those
that AMQP does not have, and that the SDK takes, are described values.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from pairbus.amqp.codec import decode, encode
from pairbus.amqp.types import Described, Symbol
from pairbus.client.sending.message import Message, raw_of
from pairbus.errors import PairbusError

_TUPLE, _DATETIME, _DECIMAL = Symbol("tuple"), Symbol("datetime"), Symbol("decimal")
_PLAIN = {str, bytes, int, bool, float, type(None)}
_SECTIONS = ("application_properties", "annotations", "delivery_annotations", "footer")


class UnreadableMessages(PairbusError):
    """Bytes that are no messages, or not as this version packs them."""


def pack(messages: Sequence[Message], **about: Any) -> bytes:
    """Messages, and what else is to be kept with them, as bytes."""
    return encode(_packed({"messages": [_parts(raw_of(message)) for message in messages], **about}))


def unpack(data: bytes) -> tuple[list[Message], dict[str, Any]]:
    """The messages, and what was kept with them; UnreadableMessages if these are none."""
    try:
        about: dict[str, Any] = _unpacked(decode(data)[0])
        return [_message(parts) for parts in about.pop("messages")], about
    except Exception as error:  # whatever is wrong with the bytes
        raise UnreadableMessages(f"these bytes are no messages: {error!r}") from error


def _parts(raw: AmqpAnnotatedMessage) -> dict[str, Any]:
    is_value = raw.body_type is AmqpMessageBodyType.VALUE
    return {
        "kind": raw.body_type.value,
        "body": raw.body if is_value else list(raw.body),
        "header": None if raw.header is None else _given(raw.header),
        "properties": None if raw.properties is None else _given(raw.properties),
        **{name: getattr(raw, name) for name in _SECTIONS},
    }


def _given(section: AmqpMessageHeader | AmqpMessageProperties) -> dict[str, Any]:
    """What is set of a section: most of the two dozen fields are not, and are not what takes the time."""
    return {name: value for name, value in section.items() if value is not None}


def _message(parts: dict[str, Any]) -> AmqpAnnotatedMessage:
    kind = AmqpMessageBodyType(parts["kind"])
    name = {
        AmqpMessageBodyType.DATA: "data_body",
        AmqpMessageBodyType.SEQUENCE: "sequence_body",
        AmqpMessageBodyType.VALUE: "value_body",
    }[kind]
    message = AmqpAnnotatedMessage(**{name: parts["body"]})
    if parts["header"] is not None:
        message.header = header = AmqpMessageHeader()
        header.update(parts["header"])
    if parts["properties"] is not None:
        message.properties = properties = AmqpMessageProperties()
        properties.update(parts["properties"])
    for section in _SECTIONS:
        setattr(message, section, parts[section])
    return message


def _packed(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    match value:
        case dict():
            return {_packed(key): _packed(item) for key, item in value.items()}
        case list():
            return [_packed(item) for item in value]
        case tuple():
            return Described(_TUPLE, [_packed(item) for item in value])
        case datetime():
            return Described(_DATETIME, value.isoformat())
        case Decimal():
            return Described(_DECIMAL, str(value))
        case bytearray() | memoryview():
            return bytes(value)
        case _:
            return value


def _unpacked(value: Any) -> Any:
    match value:
        case dict():
            return {_unpacked(key): _unpacked(item) for key, item in value.items()}
        case list():
            return [_unpacked(item) for item in value]
        case Described(descriptor=descriptor, value=inner):
            if descriptor == _TUPLE:
                return tuple(_unpacked(item) for item in inner)
            return Decimal(inner) if descriptor == _DECIMAL else datetime.fromisoformat(inner)
        case _:
            return value

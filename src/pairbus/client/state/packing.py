"""Messages as bytes and back, for the spool: what comes back is to the SDK what went in.

The bytes are one AMQP value: a map of the parts of the message. Python's types stand for themselves; those
that AMQP does not have, and that the SDK takes, are described values. Whoever spools waits for this, so the
maps of a message are written as they are read, only what is unusual is looked into first, and what nearly
every message is like (one piece of data, an id, nothing else) is seen by comparing whole sections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from pairbus.amqp.decoding import decode_own
from pairbus.amqp.encoding import encode, encode_into, put_binary, put_entries, put_fields, put_string
from pairbus.amqp.types import Described, Symbol, ULong
from pairbus.client.sending.message import Message, raw_of
from pairbus.errors import PairbusError
from pairbus.sdk.privates import message_parts

_TUPLE, _DATETIME, _DECIMAL = Symbol("tuple"), Symbol("datetime"), Symbol("decimal")
_BYTEARRAY, _PAIRS = Symbol("bytearray"), Symbol("pairs")
# What the keys of a map may be to be read again; all others the SDK writes as well.
_KEYS = {str, bytes, int}
_PLAIN = {str, bytes, int, bool, float, type(None)}
_BYTES = {bytes}
# A number is written as one of 64 bits with a sign. Ids, and what the caller gave that type, may be larger.
_ABOVE_LONG = 1 << 63
_ID = "message_id"
# The keys of the maps, written once.
_MESSAGES, _HEADER, _PROPERTIES = map(encode, ("messages", "header", "properties"))
_NULL, _NO_ENTRIES, _TRUE, _FALSE = map(encode, (None, {}, True, False))
_KINDS = {kind: encode("kind") + encode(kind.value) + encode("body") for kind in AmqpMessageBodyType}
_SECTIONS = {
    name: encode(name) for name in ("application_properties", "annotations", "delivery_annotations", "footer")
}
_DATA = AmqpMessageBodyType.DATA
# A section of which nothing is set.
_UNSET = {kind: vars(kind()) for kind in (AmqpMessageHeader, AmqpMessageProperties)}


class UnreadableMessages(PairbusError):
    """Bytes that are no messages, or not as this version packs them."""


def pack(messages: Sequence[Message], **about: Any) -> bytes:
    """Messages, and what else is to be kept with them, as bytes."""
    packed = bytearray()
    for message in messages:
        _put_message(packed, raw_of(message))
    content = bytearray(_MESSAGES)
    put_fields(content, len(messages), packed)
    for name, value in about.items():
        content += _key(name)
        _put(content, value)
    out = bytearray()
    put_entries(out, 2 + 2 * len(about), content)
    return bytes(out)


def unpack(data: bytes) -> tuple[list[Message], dict[str, Any]]:
    """The messages, and what was kept with them; UnreadableMessages if these are none."""
    try:
        about: dict[str, Any] = _unpacked(decode_own(data))
        return [_message(parts) for parts in about.pop("messages")], about
    except Exception as error:  # whatever is wrong with the bytes
        raise UnreadableMessages(f"these bytes are no messages: {error!r}") from error


def _put_message(out: bytearray, raw: AmqpAnnotatedMessage) -> None:
    kind, data, header, annotations, properties, added, for_a_hop, footer = message_parts(raw)
    content = bytearray(_KINDS[kind])
    if kind is _DATA:
        _put_data(content, list(data))
    else:
        _put(content, raw.body if kind is AmqpMessageBodyType.VALUE else list(raw.body))
    content += _HEADER
    _put_given(content, header)
    content += _PROPERTIES
    _put_given(content, properties)
    for key, value in zip(_SECTIONS.values(), (added, annotations, for_a_hop, footer), strict=True):
        content += key
        _put(content, value)
    put_entries(out, 2 * (4 + len(_SECTIONS)), content)


def _put_data(out: bytearray, sections: list[Any]) -> None:
    """The sections of a body, which nearly always are bytes."""
    if not sections or not _BYTES.issuperset(map(type, sections)):
        _put(out, sections)
        return
    content = bytearray()
    for section in sections:
        put_binary(content, section)
    put_fields(out, len(sections), content)


def _put_given(out: bytearray, section: AmqpMessageHeader | AmqpMessageProperties | None) -> None:
    """What is set of a section: most of the two dozen fields are not, and are not what takes the time."""
    if section is None:
        out += _NULL
        return
    given, unset = vars(section), _UNSET.get(type(section))
    if given == unset:
        out += _NO_ENTRIES
        return
    if {**given, _ID: None} == unset:
        given = {_ID: given[_ID]}
    content, count = bytearray(), 0
    for name, value in given.items():
        if value is not None and name[:1] != "_":
            content += _key(name)
            _put(content, value)
            count += 2
    put_entries(out, count, content)


@lru_cache(maxsize=256)
def _key(name: str) -> bytes:
    return encode(name)


def _put(out: bytearray, value: Any) -> None:
    kind = type(value)
    if value is None:
        out += _NULL
    elif kind is str:
        put_string(out, value)
    elif kind is bool:
        out += _TRUE if value else _FALSE
    elif kind is dict and not value:
        out += _NO_ENTRIES
    else:
        encode_into(out, _packed(value))


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
        return ULong(value) if type(value) is int and value >= _ABOVE_LONG else value
    match value:
        case dict():
            pairs: list[Any] = [[_packed(key), _packed(item)] for key, item in value.items()]
            return dict(pairs) if _KEYS.issuperset(map(type, value)) else Described(_PAIRS, pairs)
        case list():
            return [_packed(item) for item in value]
        case tuple():
            return Described(_TUPLE, [_packed(item) for item in value])
        case datetime():
            return Described(_DATETIME, value.isoformat())
        case Decimal():
            return Described(_DECIMAL, str(value))
        case bytearray():
            return Described(_BYTEARRAY, bytes(value))  # bytes are text to the SDK, as a property
        case memoryview():
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
            return _READERS[descriptor](inner)
        case ULong():
            return int(value)
        case _:
            return value


_READERS: dict[Any, Callable[[Any], Any]] = {
    _TUPLE: lambda inner: tuple(map(_unpacked, inner)),
    _DATETIME: datetime.fromisoformat,
    _DECIMAL: Decimal,
    _BYTEARRAY: bytearray,
    _PAIRS: lambda inner: {_unpacked(key): _unpacked(item) for key, item in inner},
}

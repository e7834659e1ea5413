"""Messages as bytes and back, for the spool: what comes back is to the SDK what went in.

The bytes are one AMQP value: a map of the parts of the message. Python's types stand for themselves; those
that AMQP does not have, and that the SDK takes, are described values. Whoever spools waits for this, so the
maps of a message are written as they are read, only what is unusual is looked into first, and a message like
nearly every one (a piece of data, an id, nothing else) is written in one step.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache, lru_cache
from itertools import chain
from struct import Struct
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
# How many keys and values a message has.
_ENTRIES = 2 * (4 + len(_SECTIONS))
# What of a plain message is always the same, up to its data and from there to its id; between are its sizes,
# of 32 bits each. Then how much of it the size of the message counts.
_A, _B, _C, _E = b"\xd1", _MESSAGES + b"\xd0", b"\0\0\0\1\xd1", b"\0\0\0\1\xb0"
_D = _ENTRIES.to_bytes(4, "big") + _KINDS[_DATA] + b"\xd0"
_F, _G = _HEADER + _NO_ENTRIES + _PROPERTIES + b"\xd1", b"\0\0\0\2" + encode(_ID) + b"\xb1"
_HEAD = Struct(f">sII{len(_B)}sI{len(_C)}sI{len(_D)}sI{len(_E)}sI").pack
_MIDDLE = Struct(f">{len(_F)}sI{len(_G)}sI").pack
_PLAIN_SIZE = len(_D) + len(_E) + len(_F) + len(_G) + 12


class UnreadableMessages(PairbusError):
    """Bytes that are no messages, or not as this version packs them."""


def pack(messages: Sequence[Message], **about: Any) -> bytes:
    """Messages, and what else is to be kept with them, as bytes."""
    said = bytearray()
    for name, value in about.items():
        said += _key(name)
        _put(said, value)
    if (
        len(messages) == 1
        and (plain := _pack_plain(raw_of(messages[0]), len(about), bytes(said))) is not None
    ):
        return plain
    packed = bytearray()
    for message in messages:
        _put_message(packed, raw_of(message))
    content = bytearray(_MESSAGES)
    put_fields(content, len(messages), packed)
    content += said
    out = bytearray()
    put_entries(out, 2 + 2 * len(about), content)
    return bytes(out)


def _pack_plain(raw: AmqpAnnotatedMessage, count: int, said: bytes) -> bytes | None:
    """The same in one step for a message like nearly every one: a piece of data, an id, nothing else."""
    kind, data, header, annotations, properties, added, for_a_hop, footer = message_parts(raw)
    if kind is not _DATA or type(data) is not list or len(data) != 1 or header is None or properties is None:
        return None
    body, unset, given = data[0], [*vars(header).values()], vars(properties)
    identity = given.get(_ID)
    if type(body) is not bytes or type(identity) is not str or annotations or added or for_a_hop or footer:
        return None
    if unset.count(None) < len(unset) or [*given.values()].count(None) < len(given) - 1:
        return None
    named = identity.encode()
    sections = _no_sections(added is None, annotations is None, for_a_hop is None, footer is None)
    size = _PLAIN_SIZE + len(body) + len(named) + len(sections)
    all_of_it, messages, message, data_list = 32 + size + len(said), 13 + size, 4 + size, 9 + len(body)
    head = _HEAD(_A, all_of_it, 2 + 2 * count, _B, messages, _C, message, _D, data_list, _E, len(body))
    middle = _MIDDLE(_F, len(_G) + 4 + len(named), _G, len(named))
    return b"%b%b%b%b%b%b" % (head, body, middle, named, sections, said)


@cache
def _no_sections(*are_none: bool) -> bytes:
    """Sections that hold nothing; each may be None, or an empty map."""
    written = (_NULL if is_none else _NO_ENTRIES for is_none in are_none)
    return b"".join(chain.from_iterable(zip(_SECTIONS.values(), written, strict=True)))


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
    put_entries(out, _ENTRIES, content)


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
    """What is set of a section: most of the two dozen fields are not."""
    if section is None:
        out += _NULL
        return
    given = vars(section)
    if [*given.values()].count(None) == len(given):
        out += _NO_ENTRIES
        return
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

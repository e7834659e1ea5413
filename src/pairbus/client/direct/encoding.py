"""The SDK's messages as bytes, ten times as fast as the SDK writes them, and the same bytes.

1. What nearly every message is made of is written here: text, numbers, times, ids, data. Anything else, and
   anything that may be an error, is left to the SDK's own encoder, which writes it or says what is wrong
   with it. So there is nothing that one of the two takes and the other does not.
2. Only exact types are written here: what is derived from one may have its own idea of itself.
3. A time to live brings a creation time and an expiry with it, as with the SDK.
4. While the SDK is told to trace, by `azure.core.settings`, it writes all: each message has a span.
"""

from __future__ import annotations

import struct
import time
from calendar import timegm
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageProperties

from pairbus.amqp.message import encode_data
from pairbus.client.sending.message import (
    Message,
    body_bytes,
    hides_nothing,
    measure_if_writable,
    raw_of,
)
from pairbus.metering import UNIT_BYTES
from pairbus.pairing.envelope import Aliases
from pairbus.sdk.privates import encode_by_sdk, message_parts
from pairbus.sdk.side import is_tracing
from pairbus.words import ENQUEUED_TIME, LOCKED_UNTIL, PARTITION_KEY

_DATA = AmqpMessageBodyType.DATA
_NULL = b"\x40"
_u32 = struct.Struct(">I").pack
_i8 = struct.Struct(">b").pack
_i32 = struct.Struct(">i").pack
_i64 = struct.Struct(">q").pack
_f64 = struct.Struct(">d").pack
_TWELVE_NULLS = 12 * _NULL
# What a batch adds to a message, at most.
_BATCHED = 8
# Longer ones, with the rest of the properties, need another form of list.
_SHORT_ID = 128
# Properties of which only an id is set, and such a message with one piece of data, short or long.
_NAMED = b"\x00\x53\x73\xc0%c\x0d\xa1%c%b%b"
_PLAIN_SHORT, _PLAIN_LONG = _NAMED + b"\x00\x53\x75\xa0%c%b", _NAMED + b"\x00\x53\x75\xb0%b%b"
_LONG_BINARY = 0xB0
# The SDK's longest life means none, and no expiry is later than this.
_NO_LIFE = 922337203685477
_LAST_EXPIRY = 253402243199000
# Of these the SDK writes a plain number as a long one.
_LONG_ANNOTATIONS = frozenset((ENQUEUED_TIME.encode(), LOCKED_UNTIL.encode()))
_PARTITION_KEY = PARTITION_KEY.encode()


class _Unusual(Exception):
    """Something that is left to the SDK."""


# Whether it is an error is for the SDK to say.
_FOR_THE_SDK = (_Unusual, struct.error, ArithmeticError, ValueError, TypeError, AttributeError)


@lru_cache(maxsize=1)
def _traces(second: int) -> bool:
    return is_tracing()


def was_tracing() -> bool:
    """Whether the SDK traces, asked once a second, for it costs as much as to write a message."""
    return _traces(int(time.monotonic()))


def encode_message(message: Message, *, alone: bool = False) -> bytes:
    """A message as it goes on the wire, `alone` or not; what the SDK raises if it cannot be written."""
    raw = raw_of(message)
    payload = None if was_tracing() else _encode_if_usual(raw)
    return encode_by_sdk(raw, alone=alone) if payload is None else payload


def _encode_if_usual(raw: AmqpAnnotatedMessage) -> bytes | None:
    """Its bytes; None if the SDK has to write it, or to say what is wrong with it."""
    try:
        return _encode(raw)
    except _FOR_THE_SDK:
        return None


def encode_to_enclose(message: Message, limit: int) -> bytes | None:
    """A message as a batch has it, if it is not above a limit; None while the SDK traces, which would miss
    it. Raises what the SDK raises if a message cannot be written.
    """
    if was_tracing() or body_bytes(message) > limit:
        return None
    raw = raw_of(message)
    payload = _encode_if_usual(raw) or encode_by_sdk(raw, alone=True)
    return payload if len(payload) <= limit else None


def encode_all(messages: Sequence[Message]) -> list[bytes] | None:
    """Messages as the SDK would write them; None if it has to write one of them itself, or to say what is
    wrong with it.
    """
    payloads: list[bytes] = []
    for message in messages:
        payload = _encode_if_usual(raw_of(message))
        if payload is None:
            return None
        payloads.append(payload)
    return payloads


def encode_plainly(given: Any) -> Sequence[bytes] | None:
    """The same of a message, or a list of them, that have an id, one piece of data and nothing else, as most
    have; None for any other, which is looked at more closely.
    """
    payloads: list[bytes] = []
    try:
        for message in given if type(given) is list else (given,):
            payload = _encode_plain(message_parts(raw_of(message)))
            if payload is None:
                return None
            payloads.append(payload)
    except _FOR_THE_SDK:
        return None
    return payloads


def fit(payloads: Sequence[bytes], limit: int) -> bool:
    """Whether a batch of so many bytes holds them, for sure."""
    return sum(map(len, payloads)) + _BATCHED * len(payloads) <= limit


class PlainEnvelope(NamedTuple):
    """The envelope of messages that have nothing which one hides."""

    #: What it adds to the application properties, and that as bytes, for a message that has no others.
    aliases: Aliases
    section: bytes

    @classmethod
    def of(cls, aliases: Aliases) -> PlainEnvelope:
        """One with these."""
        return cls(aliases, _application_properties(aliases))


def encode_in_envelope(message: Message, envelope: PlainEnvelope) -> tuple[str, bytes] | None:
    """The id of a message, and what a batch has of it in this envelope; None for one that has anything which
    an envelope hides, or that the SDK has to write, or to say what is wrong with it.
    """
    kind, body, header, annotations, properties, added, _, footer = message_parts(raw_of(message))
    if not hides_nothing(header, annotations, properties) or type(properties.message_id) is not str:
        return None
    if kind is not _DATA or footer or was_tracing():
        return None
    try:
        section = _application_properties({**added, **envelope.aliases}) if added else envelope.section
        return properties.message_id, _write(header, None, properties, section, body)
    except _FOR_THE_SDK:
        return None


def enclose_plain(written: bytes, envelope: PlainEnvelope) -> tuple[str, int, bytes]:
    """Of a message that `encode_plainly` has written: the id, the size of the body, it in this envelope."""
    data_at = 5 + written[4]
    body_at = data_at + (8 if written[data_at + 3] == _LONG_BINARY else 5)
    enclosed = b"%b%b%b" % (written[:data_at], envelope.section, written[data_at:])
    return written[8 : 8 + written[7]].decode(), len(written) - body_at, enclosed


#: Bytes on the wire: of all messages together, and of each that is above a billing unit.
Weight = tuple[int, tuple[int, ...]]


def weigh_payloads(payloads: Sequence[bytes]) -> Weight:
    """The same of messages that are encoded."""
    if len(payloads) == 1:
        size = len(payloads[0])
        return size, (size,) if size > UNIT_BYTES else ()
    sizes = [*map(len, payloads)]
    return sum(sizes), tuple(size for size in sizes if size > UNIT_BYTES) if max(sizes) > UNIT_BYTES else ()


def weigh(messages: Sequence[Message], *, when: Any = None) -> Weight:
    """The bytes of messages on the wire, to the byte. `when` is the time for which they are scheduled."""
    total = 0
    large: tuple[int, ...] = ()
    for message in messages:
        raw = raw_of(message) if when is None else scheduled_copy(message, when)
        payload = _encode_if_usual(raw)
        size = measure_if_writable(raw) if payload is None else len(payload)
        total += size
        if size > UNIT_BYTES:
            large += (size,)
    return total, large


def encode_envelope(first: Routing, payloads: Sequence[bytes]) -> bytes:
    """A batch: what the service routes it by is repeated of its first message, and each message is data."""
    number, session, key = first
    try:
        head = _routing(number, session, key)
    except _FOR_THE_SDK:
        told = AmqpAnnotatedMessage(data_body=[], annotations={PARTITION_KEY: key} if key else None)
        told.properties = AmqpMessageProperties(message_id=number, group_id=session)
        head = encode_by_sdk(told)
    return b"".join((head, *map(encode_data, payloads)))


def _routing(number: Any, session: Any, key: Any) -> bytes:
    head = b""
    if key:
        head = _section(b"\x00\x53\x72", [_symbol(_PARTITION_KEY), _value(key)], is_map=True)
    if number or session:
        fields = [_NULL] * 13
        fields[0] = _identifier(number)
        fields[10] = _string(session)
        head += _section(b"\x00\x53\x73", fields)
    return head


def scheduled_copy(message: Message, when: Any) -> AmqpAnnotatedMessage:
    """The message with the time at which it is to be enqueued."""
    copy = object.__new__(AmqpAnnotatedMessage)
    copy.__dict__.update(raw_of(message).__dict__)
    stamped = ServiceBusMessage(b"", scheduled_enqueue_time_utc=when).raw_amqp_message.annotations
    copy.annotations = {**(copy.annotations or {}), **(stamped or {})}
    return copy


class Routing(NamedTuple):
    """What the service routes a message by."""

    message_id: Any
    session_id: Any
    partition_key: Any


def routing_of(message: Message) -> Routing:
    """What a batch and a request repeat of a message on the outside."""
    raw = raw_of(message)
    named, annotations = raw.properties, raw.annotations
    key = _text_if(annotations.get(_PARTITION_KEY)) if annotations else None
    if named is None:
        return Routing(None, None, key)
    return Routing(_text_if(named.message_id), _text_if(named.group_id), key)


def _text_if(value: Any) -> Any:
    """Bytes as text, where they are text."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value


def _encode_plain(parts: tuple[Any, ...]) -> bytes | None:
    """A message that has an id, one piece of data and nothing else; None for any other."""
    kind, body, header, annotations, properties, added, for_a_hop, footer = parts
    if annotations or added or for_a_hop or footer or kind is not _DATA or properties is None:
        return None
    number, *others = _property_values(properties)
    if type(number) is not str or others != _NO_OTHER or len(body) != 1 or type(data := body[0]) is not bytes:
        return None
    written, size = number.encode(), len(data)
    if not 0 < len(written) <= _SHORT_ID or (header is not None and _header_values(header) != _NO_HEADER):
        return None
    count = len(written)
    if size > 255:
        return _PLAIN_LONG % (count + 15, count, written, _TWELVE_NULLS, _u32(size), data)
    return _PLAIN_SHORT % (count + 15, count, written, _TWELVE_NULLS, size, data)


def _encode(raw: AmqpAnnotatedMessage) -> bytes:
    parts = message_parts(raw)
    plain = _encode_plain(parts)
    if plain is not None:
        return plain
    kind, body, header, annotations, properties, added, for_a_hop, footer = parts
    if kind is not _DATA or for_a_hop or footer:
        raise _Unusual
    return _write(header, annotations, properties, _application_properties(added) if added else b"", body)


def _write(header: Any, annotations: Any, properties: Any, added: bytes, body: Sequence[Any]) -> bytes:
    parts: list[bytes] = []
    born = expiry = None
    if header is not None:
        values = _header_values(header)
        if values != _NO_HEADER:
            parts.append(_section(b"\x00\x53\x70", list(map(_put, _HEADER, values))))
            ttl = header.time_to_live
            if ttl and ttl != _NO_LIFE:
                born = _seconds_by_sdk() * 1000
                expiry = min(_LAST_EXPIRY, born + ttl)
    if annotations:
        parts.append(_annotations(annotations))
    if properties is not None or born is not None:
        found = _properties(properties, born, expiry)
        if found is not None:
            parts.append(found)
    parts.append(added)
    for item in body:
        if type(item) is not bytes:
            raise _Unusual
        parts.append(encode_data(item))
    return b"".join(parts)


def _seconds_by_sdk() -> int:
    """The time as the SDK writes it: it takes the hour of UTC for that of the local time zone."""
    return int(time.mktime((*time.gmtime()[:8], -1)))


def _put(write: Callable[[Any], bytes], value: Any) -> bytes:
    return _NULL if value is None else write(value)


def _properties(named: Any, born: int | None, expiry: int | None) -> bytes | None:
    if named is None:
        fields = [_NULL] * 13
        fields[8], fields[9] = _time(expiry), _time(born)
        return _section(b"\x00\x53\x73", fields)
    values = _property_values(named)
    number = values[0]
    if born is None and type(number) is str and values[1:] == _NOTHING[1:]:
        # What most messages have: an id and nothing else.
        written = number.encode()
        size = len(written)
        if size <= _SHORT_ID:
            return _NAMED % (size + 15, size, written, _TWELVE_NULLS)
    fields = [
        _NULL if value is None else write(value)
        for write, value in zip(_property_writers, values, strict=True)
    ]
    if born is not None:
        fields[8], fields[9] = _time(expiry), _time(born)
    elif values == _NOTHING:
        return None
    return _section(b"\x00\x53\x73", fields)


def _annotations(annotations: Mapping[Any, Any]) -> bytes:
    fields: list[bytes] = []
    for key, value in annotations.items():
        if key in _LONG_ANNOTATIONS:
            raise _Unusual
        fields += (_symbol(key), _value(value))
    return _section(b"\x00\x53\x72", fields, is_map=True)


def _application_properties(properties: Mapping[Any, Any]) -> bytes:
    fields: list[bytes] = []
    for key, value in properties.items():
        if type(value) is bytes:
            value = value.decode()  # as the SDK does
        fields += (_string(key), _value(value))
    return _section(b"\x00\x53\x74", fields, is_map=True)


def _section(descriptor: bytes, fields: list[bytes], *, is_map: bool = False) -> bytes:
    content, count = b"".join(fields), len(fields)
    size = len(content)
    if size < 255 and count <= 255:
        return b"%b%c%c%c%b" % (descriptor, 0xC1 if is_map else 0xC0, size + 1, count, content)
    return b"%b%c%b%b%b" % (descriptor, 0xD1 if is_map else 0xD0, _u32(size + 4), _u32(count), content)


# -- values, with their constructors


def _string(value: Any) -> bytes:
    if type(value) is str:
        value = value.encode()
    elif type(value) is not bytes:
        return _nothing(value)
    else:
        value.decode()  # what nobody could read again is left to the SDK
    if len(value) <= 255:
        return b"\xa1%c%b" % (len(value), value)
    return b"\xb1%b%b" % (_u32(len(value)), value)


def _symbol(value: Any) -> bytes:
    if type(value) is str:
        value = value.encode()
    if type(value) is not bytes or not value.isascii():
        raise _Unusual
    if len(value) <= 255:
        return b"\xa3%c%b" % (len(value), value)
    return b"\xb3%b%b" % (_u32(len(value)), value)


def _binary(value: Any) -> bytes:
    if type(value) is not bytes:
        raise _Unusual
    if len(value) <= 255:
        return b"\xa0%c%b" % (len(value), value)
    return b"\xb0%b%b" % (_u32(len(value)), value)


def _nothing(value: Any) -> bytes:
    if value is not None:
        raise _Unusual
    return _NULL


def _boolean(value: Any) -> bytes:
    if type(value) is not bool:
        raise _Unusual
    return b"\x56\x01" if value else b"\x56\x00"


def _ubyte(value: Any) -> bytes:
    if type(value) is not int:
        raise _Unusual
    return b"\x50%c" % value


def _uint(value: Any) -> bytes:
    if type(value) is not int or value < 0:
        raise _Unusual
    if value <= 255:
        return b"\x52%c" % value if value else b"\x43"
    return b"\x70" + _u32(value) if value < 1 << 32 else _nothing(value)


def _int(value: int) -> bytes:
    if -128 <= value <= 127:
        return b"\x54" + _i8(value)
    return b"\x71" + _i32(value) if -(1 << 31) <= value < 1 << 31 else _nothing(value)


def _time(value: Any) -> bytes:
    if not value:
        return _NULL  # as the SDK does
    return b"\x83" + _i64(value) if type(value) is int else _nothing(value)


def _moment(value: datetime) -> bytes:
    return b"\x83" + _i64(int(timegm(value.utctimetuple()) * 1000 + value.microsecond / 1000))


def _double(value: float) -> bytes:
    return b"\x82" + _f64(value)


def _uuid(value: UUID) -> bytes:
    return b"\x98" + value.bytes


def _described(value: Mapping[Any, Any]) -> bytes:
    """A number with its type, as envelopes have them."""
    kind, number = value.get("TYPE"), value.get("VALUE")
    if type(number) is not int or len(value) != 2:
        raise _Unusual
    if kind == "TIMESTAMP":
        return b"\x83" + _i64(number)
    if kind != "LONG":
        raise _Unusual
    return b"\x55" + _i8(number) if -128 <= number <= 127 else b"\x81" + _i64(number)


_WRITERS: dict[type, Callable[[Any], bytes]] = {
    type(None): _nothing,
    bool: _boolean,
    str: _string,
    int: _int,
    float: _double,
    bytes: _binary,
    datetime: _moment,
    UUID: _uuid,
    dict: _described,
}


def _value(value: Any) -> bytes:
    write = _WRITERS.get(type(value))
    if write is None:
        raise _Unusual
    return write(value)


def _identifier(value: Any) -> bytes:
    if type(value) is str:
        return _string(value)
    if type(value) is bytes:
        return _binary(value)
    if type(value) is UUID:
        return _uuid(value)
    return _nothing(value)


# A delivery count, which only received messages have, is left to the SDK: we read none as nought.
_HEADER = (_boolean, _ubyte, _uint, _boolean, _nothing)
_header_values = attrgetter("durable", "priority", "time_to_live", "first_acquirer", "delivery_count")
_NO_HEADER = (None,) * 5
# What each property is written with; the names are the SDK's, in the order of AMQP.
_PROPERTIES: dict[str, Callable[[Any], bytes]] = {
    "message_id": _identifier,
    "user_id": _binary,
    "to": _string,
    "subject": _string,
    "reply_to": _string,
    "correlation_id": _identifier,
    "content_type": _symbol,
    "content_encoding": _symbol,
    "absolute_expiry_time": _time,
    "creation_time": _time,
    "group_id": _string,
    "group_sequence": _uint,
    "reply_to_group_id": _string,
}
_property_writers = tuple(_PROPERTIES.values())
_property_values = attrgetter(*_PROPERTIES)
_NOTHING = (None,) * 13
_NO_OTHER = [None] * 12

"""Turns a message of the engine into the bytes of a delivery.

The bare message (properties, application properties, body) is passed on as the bytes that came in. Only what
the broker itself has to say is written anew: the header with its delivery count, the lock token, and the
annotations. The usual case, a message that carries no annotations of its own, is put together from prepared
pieces, because this runs once a delivery.
"""

import struct
from functools import lru_cache

from pairbus import words
from pairbus.amqp.codec import encode
from pairbus.amqp.message import Header, encode_header
from pairbus.amqp.types import Symbol
from pairbus.broker.engine.message import MessageState, StoredMessage
from pairbus.broker.engine.results import Handout

# .NET counts 100 ns ticks from the year 1; this is where the Unix epoch lies on that scale.
DOTNET_EPOCH_TICKS = 621_355_968_000_000_000
MOST_DELIVERIES = (1 << 32) - 1

_NO_LOCK_ANNOTATIONS = b"\x00\x53\x71\xc1\x01\x00"  # an empty map: receive-and-delete has no lock token
_LOCK_KEY = encode(Symbol(words.LOCK_TOKEN)) + b"\x98"
_LOCK_ANNOTATIONS = b"\x00\x53\x71\xc1" + bytes([1 + len(_LOCK_KEY) + 16, 2]) + _LOCK_KEY
_SEQUENCE = encode(Symbol(words.SEQUENCE_NUMBER)) + b"\x81"
_ENQUEUED = encode(Symbol(words.ENQUEUED_TIME)) + b"\x83"
_LOCKED = encode(Symbol(words.LOCKED_UNTIL)) + b"\x83"
_ENQUEUED_SEQUENCE = encode(Symbol(words.ENQUEUED_SEQUENCE_NUMBER)) + b"\x81"
_STATE = encode(Symbol(words.MESSAGE_STATE))
_SOURCE = encode(Symbol(words.DEAD_LETTER_SOURCE))
_long = struct.Struct(">q").pack
_map32 = struct.Struct(">II").pack
_read_map32 = struct.Struct(">II").unpack_from
_STATE_NUMBERS = {MessageState.ACTIVE: 0, MessageState.DEFERRED: 1, MessageState.SCHEDULED: 2}


def milliseconds(seconds: float) -> int:
    """Unix seconds as the milliseconds of an AMQP timestamp."""
    return int(seconds * 1000)


def dotnet_ticks(seconds: float) -> int:
    """Unix seconds as .NET ticks."""
    return DOTNET_EPOCH_TICKS + int(seconds * 10_000_000)


def render_delivery(delivery: Handout) -> bytes:
    """The bytes of a delivery; with a lock token unless it was deleted on receipt."""
    message, token = delivery.message, delivery.lock_token
    if token is None:
        lock, locked_until = _NO_LOCK_ANNOTATIONS, None
    else:
        lock, locked_until = _LOCK_ANNOTATIONS + token.bytes, delivery.locked_until
    return _render(message, lock, _annotations(message, locked_until, with_state=False))


def render_peeked(message: StoredMessage) -> bytes:
    """The bytes of a message that is only looked at."""
    return _render(message, b"", _annotations(message, None, with_state=True))


def _render(message: StoredMessage, lock: bytes, annotations: bytes) -> bytes:
    header = _header(message.durable, message.priority, message.ttl_ms, message.delivery_count)
    return b"".join(
        (
            header,
            lock,
            annotations,
            message.properties_bytes,
            message.application_properties_bytes,
            message.body_bytes,
        )
    )


@lru_cache(maxsize=4096)
def _header(durable: bool | None, priority: int | None, ttl_ms: int | None, delivery_count: int) -> bytes:
    return encode_header(
        Header(
            durable=durable or False,
            priority=4 if priority is None else priority,
            ttl=ttl_ms,
            # 32 bits on the wire. Nobody buries a dead letter, however often it is abandoned.
            delivery_count=min(delivery_count, MOST_DELIVERIES),
        )
    )


def _annotations(message: StoredMessage, locked_until: float | None, *, with_state: bool) -> bytes:
    pairs = [
        _SEQUENCE + _long(message.sequence_number),
        _ENQUEUED + _long(milliseconds(message.enqueued_at)),
        # Azure writes it always: 0 in a queue, the topic's own number in a subscription.
        _ENQUEUED_SEQUENCE + _long(message.enqueued_sequence_number),
    ]
    if locked_until is not None:
        pairs.append(_LOCKED + _long(milliseconds(locked_until)))
    if with_state:
        pairs.append(_STATE + encode_int(_STATE_NUMBERS[message.state]))
    if message.dead_letter_source:
        pairs.append(_SOURCE + encode(message.dead_letter_source))
    count = 2 * len(pairs)
    if message.annotations_bytes:
        own, raw = _own(message.annotations_bytes)
        pairs.append(raw)
        count += own
    body = b"".join(pairs)
    if len(body) < 255:
        return b"\x00\x53\x72\xc1" + bytes((len(body) + 1, count)) + body
    return b"\x00\x53\x72\xd1" + _map32(len(body) + 4, count) + body


def encode_int(value: int) -> bytes:
    """An AMQP int in its one-byte form; message states are small numbers."""
    return b"\x54" + bytes((value,))


def _own(annotations: bytes) -> tuple[int, bytes]:
    """How many keys and values there are in an encoded map, and the bytes of them all."""
    if annotations[0] == 0xC1:
        return annotations[2], annotations[3:]
    return _read_map32(annotations, 1)[1], annotations[9:]

"""Turns a message of the engine into the bytes of a delivery.

The bare message (properties, application properties, body) is passed on as the bytes that came in. Only what
the broker itself has to say is written anew: the header with its delivery count, the lock token, and the
annotations, to which those of the sender are added. The body of a large message is not even copied. The usual
case, a message that carries no annotations of its own, is put together from prepared pieces, because this
runs once a delivery.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from pairbus import words
from pairbus.amqp.decoding import skip
from pairbus.amqp.encoding import encode
from pairbus.amqp.message import Header, encode_header
from pairbus.amqp.pieces import Pieces
from pairbus.amqp.types import Symbol
from pairbus.broker.engine.message import Content, MessageState, StoredMessage
from pairbus.broker.engine.results import Handout

# A name of a module: to find a member of an enumeration takes Python 3.11 ten times as long.
_ACTIVE: Final = MessageState.ACTIVE
# .NET counts 100 ns ticks from the year 1; this is where the Unix epoch lies on that scale.
DOTNET_EPOCH_TICKS = 621_355_968_000_000_000
MOST_DELIVERIES = (1 << 32) - 1

_DELIVERY_ANNOTATIONS, _ANNOTATIONS = b"\x00\x53\x71", b"\x00\x53\x72"
# An empty map: receive-and-delete has no lock token.
_NO_LOCK_ANNOTATIONS = _DELIVERY_ANNOTATIONS + b"\xc1\x01\x00"
_LOCK_KEY = encode(Symbol(words.LOCK_TOKEN)) + b"\x98"
_LOCK_ANNOTATIONS = _DELIVERY_ANNOTATIONS + b"\xc1" + bytes([1 + len(_LOCK_KEY) + 16, 2]) + _LOCK_KEY
_SEQUENCE = encode(Symbol(words.SEQUENCE_NUMBER)) + b"\x81"
_ENQUEUED = encode(Symbol(words.ENQUEUED_TIME)) + b"\x83"
_LOCKED = encode(Symbol(words.LOCKED_UNTIL)) + b"\x83"
_ENQUEUED_SEQUENCE = encode(Symbol(words.ENQUEUED_SEQUENCE_NUMBER)) + b"\x81"
# The lock token and these three alone are what nearly every delivery has.
_USUAL_LENGTH = len(_SEQUENCE) + len(_ENQUEUED) + len(_LOCKED) + 24
_USUAL_ANNOTATIONS = _ANNOTATIONS + b"\xc1" + bytes((_USUAL_LENGTH + 1, 6)) + _SEQUENCE
_usual_annotations = struct.Struct(
    f">{len(_LOCK_ANNOTATIONS)}s16s{len(_USUAL_ANNOTATIONS)}sq{len(_ENQUEUED)}sq{len(_LOCKED)}sq"
).pack
_STATE = encode(Symbol(words.MESSAGE_STATE))
_DEFERRED, _SCHEDULED = _STATE + b"\x54\x01", _STATE + b"\x54\x02"
_PARTITION_KEY = encode(Symbol(words.PARTITION_KEY))
_SOURCE = encode(Symbol(words.DEAD_LETTER_SOURCE))
_long = struct.Struct(">q").pack
_map32 = struct.Struct(">II").pack
_read_map32 = struct.Struct(">II").unpack_from


def delivery_tags(tokens: Sequence[UUID]) -> list[bytes]:
    """Lock tokens as the service writes them into the tags of deliveries: as `bytes_le`, all in one go."""
    read_big, write_little = _swaps(len(tokens))
    swapped = write_little(*read_big(b"".join([token.int.to_bytes(16, "big") for token in tokens])))
    return [swapped[at : at + 16] for at in range(0, len(swapped), 16)]


@lru_cache(maxsize=128)
def _swaps(count: int) -> tuple[Callable[[bytes], tuple[Any, ...]], Callable[..., bytes]]:
    return struct.Struct(">" + "IHH8s" * count).unpack, struct.Struct("<" + "IHH8s" * count).pack


def milliseconds(seconds: float) -> int:
    """Unix seconds as the milliseconds of an AMQP timestamp."""
    return int(seconds * 1000)


def dotnet_ticks(seconds: float) -> int:
    """Unix seconds as .NET ticks."""
    return DOTNET_EPOCH_TICKS + int(seconds * 10_000_000)


def render_delivery(delivery: Handout) -> bytes | Pieces:
    """The bytes of a delivery; with a lock token unless it was deleted on receipt."""
    message, token, locked_until = delivery
    if token is None:
        return _render(message, _NO_LOCK_ANNOTATIONS, None)
    content, lock = message.content, token.int.to_bytes(16, "big")
    if (
        message.state is not _ACTIVE
        or message.scheduled_for is not None
        or message.session_id is not None
        or type(content.whole) is not bytes
        or not (content.as_it_came or _has_usual_annotations(content))
    ):
        return _render(message, _LOCK_ANNOTATIONS + lock, locked_until)
    return b"".join(
        (
            _header(
                content.durable,
                content.priority,
                content.ttl_ms,
                content.first_acquirer,
                message.delivery_count,
            ),
            _usual_annotations(
                _LOCK_ANNOTATIONS,
                lock,
                _USUAL_ANNOTATIONS,
                message.sequence_number,
                _ENQUEUED,
                int(message.enqueued_at * 1000),
                _LOCKED,
                int(locked_until * 1000),
            ),
            *content.bare,
        )
    )


def _has_usual_annotations(content: Content) -> bool:
    return not (content.annotations_bytes or content.enqueued_sequence_number or content.dead_letter_source)


def render_peeked(message: StoredMessage, *, with_body: bool = True) -> bytes | Pieces:
    """The bytes of a message that is only looked at."""
    return _render(message, b"", None, with_body=with_body)


def _render(
    message: StoredMessage, lock: bytes, locked_until: float | None, *, with_body: bool = True
) -> bytes | Pieces:
    content = message.content
    annotations = content.annotations_bytes
    own, for_delivery = _split(annotations) if annotations else (b"", b"")
    if for_delivery:
        lock = _join(_DELIVERY_ANNOTATIONS, [lock[6:]] if lock else [], len(lock) > 6, for_delivery)
    body = content.body if with_body else b""
    is_large = isinstance(body, memoryview)
    rendered = b"".join(
        (
            _header(
                content.durable,
                content.priority,
                content.ttl_ms,
                content.first_acquirer,
                message.delivery_count,
            ),
            lock,
            _annotations(message, content, own, locked_until),
            content.properties_bytes,
            content.application_properties_bytes,
            b"" if is_large else body,
        )
    )
    return Pieces(rendered, body) if is_large else rendered


@lru_cache(maxsize=4096)
def _header(
    durable: bool | None,
    priority: int | None,
    ttl_ms: int | None,
    first_acquirer: bool | None,
    delivery_count: int,
) -> bytes:
    """As the service writes it: what the sender has said; nobody is the first after somebody else."""
    return encode_header(
        Header(
            durable,
            priority,
            ttl_ms,
            first_acquirer and not delivery_count,
            # 32 bits on the wire. Nobody buries a dead letter, however often it is abandoned.
            min(delivery_count, MOST_DELIVERIES),
        )
    )


def _annotations(message: StoredMessage, content: Content, own: bytes, locked_until: float | None) -> bytes:
    """What the service says, and no more: clients that are tried against it count the annotations."""
    pairs = [
        _SEQUENCE + _long(message.sequence_number),
        _ENQUEUED + _long(milliseconds(message.enqueued_at)),
    ]
    if content.enqueued_sequence_number:  # it was forwarded, or has come from a topic
        pairs.append(_ENQUEUED_SEQUENCE + _long(content.enqueued_sequence_number))
    if locked_until is not None:
        pairs.append(_LOCKED + _long(milliseconds(locked_until)))
    if message.state is MessageState.DEFERRED:
        pairs.append(_DEFERRED)
    elif message.scheduled_for is not None:  # also when its time has come
        pairs.append(_SCHEDULED)
    if content.dead_letter_source:
        pairs.append(_SOURCE + encode(content.dead_letter_source))
    if message.session_id is not None and content.partition_key is None:
        pairs.append(_PARTITION_KEY + encode(message.session_id))
    return _join(_ANNOTATIONS, pairs, len(pairs), own)


def _join(descriptor: bytes, pairs: list[bytes], count: int, own: bytes) -> bytes:
    """A section with `count` pairs of ours and those of an encoded map."""
    count *= 2
    if own:
        more, raw = _content(own)
        pairs.append(raw)
        count += more
    body = b"".join(pairs)
    if len(body) < 255:
        return descriptor + b"\xc1" + bytes((len(body) + 1, count)) + body
    return descriptor + b"\xd1" + _map32(len(body) + 4, count) + body


def _split(annotations: bytes) -> tuple[bytes, bytes]:
    """The sender's maps for the message and for the delivery."""
    end = skip(annotations, 0)
    return annotations[:end], annotations[end:]


def _content(encoded: bytes) -> tuple[int, bytes]:
    """How many keys and values there are in an encoded map, and the bytes of them all."""
    if encoded[0] == 0xC1:
        return encoded[2], encoded[3:]
    return _read_map32(encoded, 1)[1], encoded[9:]

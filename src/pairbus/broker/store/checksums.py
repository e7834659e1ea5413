"""Checksums of rows: whether a row is, bit for bit, what was written, and under its own key.

They are CRC-32: any flipped bit is found, and any run of up to 32 wrong ones. They do not keep out whoever
can write to the file.

A message has two. One is for what never changes, body and all; the other for what a settlement changes, so
that it is written anew without reading, or trusting, the rest.

Stores keep these numbers: what is summed, and how, may only change together with the shape of the store.
"""

from struct import Struct
from zlib import crc32

_pack_fixed = Struct("<qqqqdddqqqqqqq").pack
_pack_changing = Struct("<qqqq").pack


def message_checksum(
    key: int,
    turn: int,
    total: int,
    enqueued_sequence_number: int,
    enqueued_at: float,
    expires_at: float,
    scheduled_for: float,
    message_id: str,
    session_id: str | None,
    partition_key: str | None,
    durable: int,
    priority: int,
    ttl_ms: int,
    annotations: bytes | bytearray,
    properties: bytes | bytearray,
    body: bytes | bytearray,
    dead_letter_source: str,
    hops: int,
) -> int:
    """Of what never changes of a message. Called for every message: one call to pack all the numbers."""
    numbers = _pack_fixed(
        key,
        turn,
        total,
        enqueued_sequence_number,
        enqueued_at,
        expires_at,
        scheduled_for,
        durable,
        priority,
        ttl_ms,
        hops,
        len(annotations),
        len(properties),
        len(body),
    )
    texts = f"{message_id}\0{session_id}\0{partition_key}\0{dead_letter_source}".encode()
    return crc32(body, crc32(b"".join((numbers, texts, annotations, properties))))


def change_checksum(
    key: int, state: int, delivery_count: int, size: int, application_properties: bytes | bytearray
) -> int:
    """Of what settlement changes of a message."""
    return crc32(application_properties, crc32(_pack_changing(key, state, delivery_count, size)))


def row_checksum(*values: object) -> int:
    """Of the values of any other row. A number is the same whether SQLite keeps it as an integer or not."""
    checksum = 0
    for value in values:
        if isinstance(value, bytes | bytearray):
            data = b"b" + value
        elif isinstance(value, float) and not value.is_integer():
            data = b"n" + repr(value).encode()
        elif isinstance(value, float | int):
            data = b"n%d" % int(value)
        else:
            data = f"t{value}".encode()
        checksum = crc32(data, crc32(b"%d:" % len(data), checksum))
    return checksum

"""Checksums of rows: whether a row is, bit for bit, what was written, and under its own key.

They are CRC-32: any flipped bit is found, and any run of up to 32 wrong ones. They do not keep out whoever
can write to the file.

A message has three. Those of its content and of its application properties are of the bytes alone. The third
is of all that is short, these two among them: so it can be told of a record that it is whole without reading
what it is the record of, and a content belongs to its record. A settlement writes it anew, if the one before
is right: what is damaged is not made whole by that.

Stores keep these numbers: what is summed, and how, may only change together with the shape of the store.
"""

from struct import Struct
from struct import error as StructError
from typing import Any
from zlib import crc32

#: The values of a record, as they are summed where there is no session.
pack_record = Struct("<qqqqqqqqddd").pack
# What comes of values of other types than were written.
UNSUMMABLE = (TypeError, ValueError, AttributeError, StructError)


def content_checksum(envelope: bytes | bytearray, body: bytes | bytearray | memoryview) -> int:
    """Of what never changes of a message and only receivers want."""
    return crc32(body, crc32(envelope))


def properties_checksum(application_properties: bytes | bytearray) -> int:
    """Of the application properties, which settlement can change."""
    return crc32(application_properties)


def record_checksum(
    key: int,
    turn: int,
    total: int,
    content: int,
    properties: int,
    state: int,
    delivery_count: int,
    size: int,
    enqueued_at: float,
    expires_at: float,
    scheduled_for: float,
    session_id: str | None,
) -> int:
    """Of all that is short of a message, the two other checksums among it. Called for every message."""
    checksum = crc32(
        pack_record(
            key,
            turn,
            total,
            content,
            properties,
            state,
            delivery_count,
            size,
            enqueued_at,
            expires_at,
            scheduled_for,
        )
    )
    return checksum if session_id is None else crc32(session_id.encode(), checksum ^ 1)


def changed_checksum(checksum: int, *values: Any) -> int | None:
    """That of a record, whose values come as `record_checksum` has them, with the four that a settlement
    changes after them: properties, state, delivery count, size. None if the record is not as it was written.
    """
    before, (properties, state, delivery_count, size) = list(values[:-4]), values[-4:]
    try:
        if checksum != record_checksum(*before):
            return None
        before[4:8] = (before[4] if properties is None else properties), state, delivery_count, size
        return record_checksum(*before)
    except UNSUMMABLE:
        return None


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

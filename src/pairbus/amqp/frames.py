"""Frames: eight bytes of header, a performative, perhaps a payload.

size (4)   doff (1)   type (1)   channel (2)   …extended header…   performative   payload
"""

import struct
from typing import Any

from pairbus.conditions import FRAMING_ERROR, NOT_IMPLEMENTED

from .composites import Composite, class_of, encode_composite, from_fields
from .decoding import decode
from .errors import DecodeError, ProtocolError
from .limits import MAX_PERFORMATIVE
from .performatives import with_shorter_error
from .types import Described

AMQP_FRAME, SASL_FRAME = 0, 1
HEADER_SIZE = 8

AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"

HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"

unpack_header = struct.Struct(">IBBH").unpack_from
pack_header = struct.Struct(">IBBH").pack


def encode_frame(
    channel: int, performative: Composite, payload: bytes = b"", *, kind: int = AMQP_FRAME
) -> bytes:
    """One whole frame."""
    body = encode_composite(performative)
    return pack_header(HEADER_SIZE + len(body) + len(payload), 2, kind, channel) + body + payload


def encode_within(limit: int, channel: int, performative: Composite) -> bytes:
    """One whole frame. If it is above the limit, the text of its error, which is for people, is cut."""
    frame = encode_frame(channel, performative)
    if len(frame) <= limit:
        return frame
    return encode_frame(channel, with_shorter_error(performative, len(frame) - limit))


def check_header(size: int, doff: int, kind: int, *, limit: int, expected: int) -> None:
    """Say what is wrong with a frame's header, if anything is."""
    if size < HEADER_SIZE or doff < 2 or doff * 4 > size:
        raise ProtocolError(FRAMING_ERROR, "a frame's size and data offset do not fit each other")
    if size > limit:
        raise ProtocolError(FRAMING_ERROR, f"a frame of {size} bytes is longer than the {limit} agreed on")
    if kind != expected:
        raise ProtocolError(FRAMING_ERROR, f"a frame of type {kind} where type {expected} belongs")


def decode_performative(data: bytes, offset: int, end: int, limit: int = MAX_PERFORMATIVE) -> tuple[Any, int]:
    """The performative at `offset`, of at most `limit` bytes, and the place where its payload begins."""
    window = data[offset : min(end, offset + limit)]
    value, reached = decode(window)
    if not isinstance(value, Described):
        raise DecodeError("a frame does not begin with a performative")
    cls = class_of(value.descriptor)
    if cls is None:
        raise ProtocolError(NOT_IMPLEMENTED, "a frame holds an unknown performative")
    return from_fields(cls, value.value), offset + reached

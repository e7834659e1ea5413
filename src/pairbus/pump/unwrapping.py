"""Unwrapping at the level of message sections: what a backlog message was, as bytes to send.

1. Sections are found, not decoded. The body's bytes, and the user's properties entry by entry, are passed on
   as they came, so that types stay what they were and nothing is rebuilt that need not be.
2. Written anew are: the header (the time to live; deliveries at the primary start at nought), the annotations
   (without those that the backlog queue added), the properties if session or expiry change, and the map of
   application properties without the aliases.
3. Envelopes repeat. A sender's messages for one path differ in ids and bodies; the section with the aliases,
   and the properties behind the message id, are the same to the byte, and a queue's annotations differ in
   their numbers only. What was read once is kept for the next message; whatever has another shape is read
   entry by entry and means the same.
4. Whatever cannot be read is `MalformedEnvelope`, never another exception: its place is the dead letters.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from pairbus import words
from pairbus.amqp.decoding import decode, skip
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import DecodeError, EncodeError
from pairbus.amqp.message import MessageSections, encode_header, encode_properties, scan
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.options import TtlPolicy
from pairbus.pairing.envelope import ACCOUNTED, RESERVED_NAMES, Unwrapped, expand_body, unwrap
from pairbus.pairing.errors import MalformedEnvelope
from pairbus.pairing.names import id_text, path_key

_SCHEDULED = words.SCHEDULED_TIME.encode()
# What a queue writes on a message. The partition key and the rest are the sender's and go on.
_POSTMARKS = {name.encode() for name in words.POSTMARKS}
_SEQUENCE_NUMBER = words.SEQUENCE_NUMBER.encode()
_ENQUEUED_TIME = words.ENQUEUED_TIME.encode()
_LOCKED_UNTIL = words.LOCKED_UNTIL.encode()
_MESSAGE_STATE = words.MESSAGE_STATE.encode()
DEFERRED, SCHEDULED = 1, 2
_RESERVED = {name.encode() for name in RESERVED_NAMES}
_ALIASES_WITH_TIME = (b"x-ms-timetolive",)
_MEMO_SIZE = 4096
_MEMO_BYTES = 1024
_long = struct.Struct(">q").unpack_from
_u32 = struct.Struct(">I").unpack_from
_map32 = struct.Struct(">II").pack


class Postmark(NamedTuple):
    """What the backlog queue says of a message; times are Unix milliseconds."""

    sequence_number: int
    enqueued_ms: int
    locked_until_ms: int
    own: bytes  # the sender's annotations, entry by entry
    own_count: int
    state: int = 0  # told of peeked messages only


@dataclass(slots=True)
class OpenedEnvelope:
    """A message as the primary is to get it; `key` is the path's canonical form."""

    path: str
    key: str
    session_id: str | None
    message_id: str
    payload: bytes = field(repr=False)
    expired: bool = False


class _Letter(NamedTuple):
    """What a section of application properties says: the aliases, and the section without them."""

    aliases: dict[str, Any]
    own: bytes
    plain: Unwrapped | None  # the whole answer, if it does not depend on the time
    key: str  # of the plain answer's path


class _Identity(NamedTuple):
    """What a message's properties say that concerns us."""

    message_id: str
    group_id: str | None
    expires_ms: int | None


PolicyOf = Callable[[str], TtlPolicy]


def read_postmark(sections: MessageSections) -> Postmark:
    """The annotations of a delivery or of a peeked message."""
    try:
        return _read_postmark(sections)
    except (DecodeError, IndexError, struct.error) as error:
        raise MalformedEnvelope(f"its annotations cannot be read ({error})") from error


def open_envelope(
    sections: MessageSections, mark: Postmark, *, policy_of: PolicyOf, now_ms: int
) -> OpenedEnvelope:
    """Unwrap one message; MalformedEnvelope if that cannot be done."""
    try:
        letter = _read_letter(sections.application_properties_bytes)
        identity = _read_identity(sections)
        found, key = letter.plain, letter.key
        if found is None or identity.expires_ms is not None:
            found = _unwrap(letter, policy_of, now_ms=now_ms, mark=mark, expires=identity.expires_ms)
            key = path_key(found.path)
        return OpenedEnvelope(
            found.path,
            key,
            found.natives.session_id,
            identity.message_id,
            _write(sections, mark, letter, found, identity),
            found.expired,
        )
    except (DecodeError, EncodeError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedEnvelope(f"it cannot be read ({error})") from error


def read_address(sections: MessageSections) -> tuple[str, str | None]:
    """Path and session of a message, without opening it; MalformedEnvelope if it has none."""
    try:
        letter = _read_letter(sections.application_properties_bytes)
    except (DecodeError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise MalformedEnvelope(f"it cannot be read ({error})") from error
    found = letter.plain or unwrap(letter.aliases, policy="pause", now_ms=0, enqueued_ms=0)
    return found.path, found.natives.session_id


def _unwrap(
    letter: _Letter, policy_of: PolicyOf, *, now_ms: int, mark: Postmark, expires: int | None
) -> Unwrapped:
    path = letter.aliases.get("x-ms-path")
    return unwrap(
        letter.aliases,
        policy=policy_of(path) if isinstance(path, str) else "pause",
        now_ms=now_ms,
        enqueued_ms=mark.enqueued_ms,
        expires_ms=expires,
    )


def find_entries(data: bytes) -> tuple[int, int]:
    """Where the entries of a section begin that is a map, and how many keys and values there are."""
    start = 3 if data[1] == 0x53 else skip(data, 1)
    code = data[start]
    if code == 0xC1:
        return start + 3, data[start + 2]
    if code == 0xD1:
        return start + 9, _u32(data, start + 5)[0]
    raise DecodeError("a section that must be a map is none")


class _StampShape:
    """Annotations of one length, of which all but two or three numbers stay the same: read by one call."""

    __slots__ = ("_constants", "_order", "_unpack")

    def __init__(self, data: bytes, places: dict[str, int]) -> None:
        """`places` says where the eight bytes of each number are."""
        form, at = ">", 0
        ordered = sorted(places.items(), key=lambda item: item[1])
        for _, place in ordered:
            form += f"{place - at}sq"
            at = place + 8
        form += f"{len(data) - at}s"
        self._unpack = struct.Struct(form).unpack
        self._constants = self._unpack(data)[::2]
        names = [name for name, _ in ordered]
        self._order = [2 * names.index(name) + 1 if name in names else -1 for name in _STAMPS]

    def read(self, data: bytes) -> Postmark | None:
        """None if the annotations are others than those that were seen before."""
        values = self._unpack(data)
        if values[::2] != self._constants:
            return None
        number, enqueued, locked = self._order
        return Postmark(values[number], values[enqueued], values[locked] if locked > 0 else 0, b"", 0)


_STAMPS = (words.SEQUENCE_NUMBER, words.ENQUEUED_TIME, words.LOCKED_UNTIL)
_shapes: dict[int, _StampShape] = {}


def _read_postmark(sections: MessageSections) -> Postmark:
    data = sections.annotations_bytes
    shape = _shapes.get(len(data))
    mark = shape.read(data) if shape is not None else None
    return mark if mark is not None else _read_entries(data)


def _read_entries(data: bytes) -> Postmark:
    number = enqueued = locked = state = 0
    own: list[bytes] = []
    places: dict[str, int] = {}
    if data:
        at, count = find_entries(data)
        for _ in range(count // 2):
            begin = at
            width = data[at + 1]
            key = data[at + 2 : at + 2 + width] if data[at] in (0xA3, 0xA1) else b""
            at = at + 2 + width if key else skip(data, at)
            code = data[at]
            if code in (0x81, 0x83):
                places[key.decode("latin-1")] = at + 1
                value, at = _long(data, at + 1)[0], at + 9
            elif code in (0x55, 0x54):  # a small long or int
                value, at = data[at + 1], at + 2
            else:
                value, at = 0, skip(data, at)
            if key == _SEQUENCE_NUMBER:
                number = value
            elif key == _ENQUEUED_TIME:
                enqueued = value
            elif key == _LOCKED_UNTIL:
                locked = value
            elif key == _MESSAGE_STATE:
                state = value
            elif key not in _POSTMARKS and key != _SCHEDULED:
                own.append(data[begin:at])
        if not own and not state and at == len(data):
            _learn_shape(data, places)
    return Postmark(number, enqueued, locked, b"".join(own), len(own), state)


def _learn_shape(data: bytes, places: dict[str, int]) -> None:
    """Annotations that are all the queue's own: the next ones are alike. Only deliveries have a lock."""
    found = {name: places[name] for name in _STAMPS if name in places}
    if len(data) <= _MEMO_BYTES and found.keys() >= set(_STAMPS[:2]):
        _shapes[len(data)] = _StampShape(data, found)


def read_accounted(sections: MessageSections) -> int | None:
    """Deliveries that the last pump has accounted for, if it said so. For messages that were opened."""
    found = _read_letter(sections.application_properties_bytes).aliases.get(ACCOUNTED)
    return found if isinstance(found, int) else None


_tails: dict[bytes, tuple[str | None, int | None]] = {}


def _read_identity(sections: MessageSections) -> _Identity:
    """Of most properties only the message id is new; what stands behind it was read before."""
    data = sections.properties_bytes
    if data[:4] == b"\x00\x53\x73\xc0" and data[6:7] == b"\xa1" and data[5] and len(data) == data[4] + 5:
        end = 8 + data[7]
        tail = data[end:] + data[5:6]  # the count of fields tells what the tail means
        known = _tails.get(tail)
        if known is not None:
            return _Identity(data[8:end].decode(), *known)
        properties = sections.properties
        if len(tail) <= _MEMO_BYTES:
            if len(_tails) >= _MEMO_SIZE:
                _tails.clear()
            _tails[tail] = properties.group_id, properties.absolute_expiry_time
    properties = sections.properties
    return _Identity(id_text(properties.message_id), properties.group_id, properties.absolute_expiry_time)


def _read_letter(data: bytes) -> _Letter:
    return _known_letter(data) if len(data) <= _MEMO_BYTES else _decode_letter(data)


def _decode_letter(data: bytes) -> _Letter:
    aliases: dict[str, Any] = {}
    own: list[bytes] = []
    if data:
        at, count = find_entries(data)
        for _ in range(count // 2):
            begin = at
            key = data[at + 2 : at + 2 + data[at + 1]] if data[at] == 0xA1 else b""
            at = skip(data, at)
            if key in _RESERVED:
                aliases[key.decode()], at = decode(data, at)
            else:
                at = skip(data, at)
                own.append(data[begin:at])
    plain = _plain(aliases)
    rest = _map(b"\x00\x53\x74", b"".join(own), len(own)) if own else b""
    return _Letter(aliases, rest, plain, path_key(plain.path) if plain is not None else "")


_known_letter = lru_cache(_MEMO_SIZE)(_decode_letter)


def _plain(aliases: dict[str, Any]) -> Unwrapped | None:
    """What the envelope says if it says it at any time; None if it must be asked anew, or is malformed."""
    if any(name.decode() in aliases for name in _ALIASES_WITH_TIME):
        return None
    try:
        return unwrap(aliases, policy="pause", now_ms=0, enqueued_ms=0)
    except MalformedEnvelope:
        return None  # it is raised for each message anew, with its reason


def _write(
    sections: MessageSections, mark: Postmark, letter: _Letter, found: Unwrapped, identity: _Identity
) -> bytes:
    natives = found.natives
    body = sections.body_bytes
    if found.body_size is not None:
        body = _expand(sections, found.body_size)
    annotations = b""
    if mark.own_count or natives.scheduled_ms is not None:
        annotations = _annotations(mark, natives.scheduled_ms)
    properties = sections.properties_bytes
    if natives.session_id != identity.group_id or natives.expires_ms != identity.expires_ms:
        told = sections.properties
        born = told.creation_time if told.creation_time is None or found.born_ms is None else found.born_ms
        properties = encode_properties(
            replace(
                told,
                group_id=natives.session_id,
                absolute_expiry_time=natives.expires_ms,
                creation_time=born,
            )
        )
    header = _write_header(sections.header_bytes, natives.ttl_ms)
    return b"".join((header, annotations, properties, letter.own, body))


@lru_cache(_MEMO_SIZE)
def _write_header(raw: bytes, ttl_ms: int | None) -> bytes:
    return encode_header(replace(scan(raw).header, ttl=ttl_ms, delivery_count=0))


def _annotations(mark: Postmark, scheduled_ms: int | None) -> bytes:
    own, count = mark.own, mark.own_count
    if scheduled_ms is not None:
        own += encode(Symbol(_SCHEDULED.decode())) + encode(Timestamp(scheduled_ms))
        count += 1
    return _map(b"\x00\x53\x72", own, count)


def _map(descriptor: bytes, entries: bytes, count: int) -> bytes:
    if len(entries) < 255 and count < 128:
        return b"%b\xc1%c%c%b" % (descriptor, len(entries) + 1, 2 * count, entries)
    return b"%b\xd1%b%b" % (descriptor, _map32(len(entries) + 4, 2 * count), entries)


def _expand(sections: MessageSections, size: int) -> bytes:
    data = sections.data_sections()
    if len(data) != 1:
        raise MalformedEnvelope("a compressed body stands in one data section, and this message has another")
    return expand_body(data[0], size)

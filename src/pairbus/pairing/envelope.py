"""The envelope: what a message carries through the backlog, and how it gets back to what it was.

Theory of operation
-------------------

1. Three native properties would take effect on a backlog queue: it would group by session, expire by time to
   live and hide until the scheduled time. They are cleared for the stay and kept as application properties,
   the *aliases*, next to the path of the entity that the message is for. Everything else stays as it is.

   | native property | alias | form |
   | --- | --- | --- |
   | path | `x-ms-path` | string, always |
   | session id | `x-ms-sessionid` | string, if set |
   | time to live | `x-ms-timetolive` | AMQP long, 100 ns ticks, if set |
   | scheduled enqueue time | `x-ms-scheduledenqueuetimeutc` | AMQP timestamp, if set |

2. The rules know neither the SDK's messages nor AMQP sections. They read and give `Natives`, five plain
   values, and application properties as a mapping; the client and the pump each translate at their edge.
   Times are milliseconds here, not seconds: they are what stands on the wire, and must come back to the bit.
3. A time to live brings an absolute expiry with it (the SDK sets both), so both are cleared and both are set
   anew. An absolute expiry without a time to live is a moment of the caller's choice and is left alone. With
   a time to live the creation time is set anew, too: a namespace, and whoever receives, takes the time from
   there to the expiry for the life of a message.
4. Numbers among the aliases have a certain AMQP type: `Long` must be encoded as a long (the SDK writes a
   plain int with 32 bits, which hold 214 seconds of ticks), `TimestampMs` as a timestamp.
5. Unwrapping checks types, for anybody may send to a queue. What cannot be unwrapped raises
   `MalformedEnvelope`, and its place is the dead letters.
6. A body that would not fit a backlog queue may be compressed for the stay. Then the message has one data
   section with the compressed bytes of its whole body as they stood on the wire (every body section and the
   footer), and two more properties: `x-pairbus-body-encoding`, always `deflate`, and
   `x-pairbus-body-size`, an AMQP long, the size before.
7. A pump that gives a message back writes on it how many of its deliveries are accounted for, if the service
   counts that as one more: `x-pairbus-accounted`, a number. Nobody else reads it.
8. A user's property with one of these names is refused always, in any spelling of upper and lower case.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pairbus import words
from pairbus.options import TtlPolicy

from .errors import MalformedEnvelope, ReservedPropertyError

ALIAS_PATH = "x-ms-path"
ALIAS_SESSION = "x-ms-sessionid"
ALIAS_TTL = "x-ms-timetolive"
ALIAS_SCHEDULED = "x-ms-scheduledenqueuetimeutc"
BODY_ENCODING = "x-pairbus-body-encoding"
BODY_SIZE = "x-pairbus-body-size"
ACCOUNTED = "x-pairbus-accounted"

RESERVED_NAMES = frozenset(
    {ALIAS_PATH, ALIAS_SESSION, ALIAS_TTL, ALIAS_SCHEDULED, BODY_ENCODING, BODY_SIZE, ACCOUNTED}
)

_DEFLATE = "deflate"
_TICKS_PER_MS = 10_000
# What .NET writes for "no limit", and Service Bus with it.
_UNLIMITED_TICKS = 2**63 - 1
# The header's time to live is 32 bits of milliseconds: 49.7 days. A longer one shows in the absolute expiry.
_MAX_TTL_MS = 2**32 - 1
# The last instant that the service takes for an expiry: 9999-12-31T07:59:59Z.
_MAX_EXPIRY_MS = 253_402_243_199_000
_PATH_LIMIT = 260
#: How many characters the ids of messages and sessions may have.
ID_LIMIT = 128
# A decompressed body can be as large as the largest message of any tier, and no larger.
_BODY_LIMIT = 100 * 1024 * 1024


class Long(int):
    """A number that is an AMQP long on the wire."""


class TimestampMs(int):
    """Milliseconds since 1970; on the wire an AMQP timestamp."""


Aliases = dict[str, str | Long | TimestampMs]


class Natives(NamedTuple):
    """The native properties that the envelope deals with, in the units of the wire."""

    session_id: str | None = None
    ttl_ms: int | None = None
    expires_ms: int | None = None
    scheduled_ms: int | None = None


class Wrapped(NamedTuple):
    """What a message has while it waits: the natives to set, and the properties to add."""

    natives: Natives
    aliases: Aliases


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwrapped:
    """What a message is to have at the primary.

    `application_properties` are the user's own, untouched. `body_size` is set if the body has to be
    expanded with `expand_body`. What is `expired` under the policy is dead-lettered, not delivered stale.
    `born_ms` is set if its life is: what its creation time has to be, if it has one.
    """

    path: str
    natives: Natives
    application_properties: dict[Any, Any]
    body_size: int | None = None
    expired: bool = False
    born_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedBody:
    """A compressed body, for one data section, and the properties that say so."""

    data: bytes
    markers: Aliases


def check_properties(application_properties: Mapping[Any, Any] | None) -> None:
    """Refuse a user's property with a reserved name; called for every send, outage or not."""
    if not application_properties:
        return
    for key in application_properties:
        name = _text(key)
        # Almost every name ends here: all reserved ones begin alike.
        if name is not None and name[:2] in ("x-", "X-") and name.lower() in RESERVED_NAMES:
            raise ReservedPropertyError(name)


def wrap(path: str, natives: Natives) -> Wrapped:
    """The envelope of a message for the entity `path`."""
    aliases: Aliases = {ALIAS_PATH: path}
    if natives.session_id is not None:
        aliases[ALIAS_SESSION] = natives.session_id
    if natives.ttl_ms is not None:
        aliases[ALIAS_TTL] = Long(natives.ttl_ms * _TICKS_PER_MS)
    if natives.scheduled_ms is not None:
        aliases[ALIAS_SCHEDULED] = TimestampMs(natives.scheduled_ms)
    # Rule 3: only an expiry that belongs to a time to live goes with it.
    expires_ms = natives.expires_ms if natives.ttl_ms is None else None
    return Wrapped(natives=Natives(expires_ms=expires_ms), aliases=aliases)


def unwrap(
    application_properties: Mapping[Any, Any] | None,
    *,
    policy: TtlPolicy,
    now_ms: int,
    enqueued_ms: int,
    expires_ms: int | None = None,
) -> Unwrapped:
    """What a message of a backlog queue was, with its time to live by the policy.

    Keys and strings may be bytes, as the SDK gives them. `enqueued_ms` is when the backlog queue took the
    message; `expires_ms` the absolute expiry that it has there, if any.
    """
    own, found = _sort_out(application_properties or {})
    path = _read_path(found)
    session_id = _read_string(found, ALIAS_SESSION, ID_LIMIT) if ALIAS_SESSION in found else None
    natives = Natives(session_id=session_id, expires_ms=expires_ms, scheduled_ms=_read_timestamp(found))
    ttl_ms = _read_ttl(found)
    expired, born_ms = False, None
    if ttl_ms is not None:
        # The service counts a scheduled message's time from its scheduled time.
        begins = max(enqueued_ms, natives.scheduled_ms or 0)
        left = ttl_ms if policy == "pause" else ttl_ms - max(0, now_ms - begins)
        expired = policy == "deduct" and left <= 0
        born_ms = max(now_ms, natives.scheduled_ms or 0)
        natives = _with_ttl(natives, left=max(left, 0), born_ms=born_ms)
    body_size = _read_body_size(found)
    return Unwrapped(
        path=path,
        natives=natives,
        application_properties=own,
        body_size=body_size,
        expired=expired,
        born_ms=born_ms,
    )


def _sort_out(properties: Mapping[Any, Any]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """The user's own properties, and those of the envelope."""
    own: dict[Any, Any] = {}
    found: dict[str, Any] = {}
    for key, value in properties.items():
        name = _text(key)
        if name in RESERVED_NAMES:
            found[name] = value
        else:
            own[key] = value
    return own, found


def _with_ttl(natives: Natives, *, left: int, born_ms: int) -> Natives:
    return Natives(
        session_id=natives.session_id,
        ttl_ms=min(left, _MAX_TTL_MS),
        expires_ms=min(born_ms + left, _MAX_EXPIRY_MS),
        scheduled_ms=natives.scheduled_ms,
    )


def _read_path(found: dict[str, Any]) -> str:
    if ALIAS_PATH not in found:
        raise MalformedEnvelope(f"it has no property {ALIAS_PATH}")
    path = _read_string(found, ALIAS_PATH, _PATH_LIMIT)
    segments = path.strip("/").split("/")
    if not all(segments) or any(segment.startswith("$") for segment in segments) or not path.isprintable():
        # Addresses with $ are the service's own (management, tokens, dead letters) and take no sends.
        raise MalformedEnvelope(f"{ALIAS_PATH} is {path!r}, which is not the path of a queue or topic")
    return path


def _read_string(found: dict[str, Any], name: str, limit: int) -> str:
    text = _text(found[name])
    if text is None:
        raise MalformedEnvelope(f"{name} must be a string, not {_type_of(found[name])}")
    if len(text) > limit:
        raise MalformedEnvelope(f"{name} has {len(text)} characters, and at most {limit} are allowed")
    return text


def _read_ttl(found: dict[str, Any]) -> int | None:
    """The time to live in milliseconds; None for none and for no limit."""
    if ALIAS_TTL not in found:
        return None
    value = found[ALIAS_TTL]
    # Senders of the original feature wrote a described type, which some codecs hand on as it is.
    if _text(getattr(value, "descriptor", None)) == words.TIMESPAN:
        value = getattr(value, "value", None)
    ticks = _read_whole(value, ALIAS_TTL, "a count of 100 ns ticks")
    # Rounded up: a lifetime below a millisecond must not become none at all.
    return None if ticks >= _UNLIMITED_TICKS else -(-ticks // _TICKS_PER_MS)


def _read_timestamp(found: dict[str, Any]) -> int | None:
    if ALIAS_SCHEDULED not in found:
        return None
    value = found[ALIAS_SCHEDULED]
    if isinstance(value, datetime):
        value = _milliseconds(value)
    # Also one before 1970: whatever is past is enqueued at once.
    return _read_int(value, ALIAS_SCHEDULED, "an AMQP timestamp")


def _read_whole(value: Any, name: str, what: str) -> int:
    number = _read_int(value, name, what)
    if number < 0:
        raise MalformedEnvelope(f"{name} must be {what}, and {number} is below 0")
    return number


def _read_int(value: Any, name: str, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedEnvelope(f"{name} must be {what}, not {_type_of(value)}")
    return int(value)


def _milliseconds(value: datetime) -> int:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000


def _text(value: Any) -> str | None:
    """The value as text, or None if it is none."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    return None


def _type_of(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def compress_body(body: bytes) -> CompressedBody:
    """Compress the body sections of a message as they stand on the wire."""
    # The level trades CPU for size; 6 is zlib's own middle, and 256 KB take it a few milliseconds.
    return CompressedBody(
        data=zlib.compress(body, 6), markers={BODY_ENCODING: _DEFLATE, BODY_SIZE: Long(len(body))}
    )


def expand_body(data: bytes, body_size: int) -> bytes:
    """The body sections that `compress_body` was given; `body_size` is what `unwrap` found."""
    inflater = zlib.decompressobj()
    try:
        # One byte more than promised shows that there is more, without unpacking a bomb.
        body = inflater.decompress(data, body_size + 1)
    except zlib.error as error:
        raise MalformedEnvelope(f"its compressed body cannot be expanded ({error})") from error
    if len(body) != body_size or not inflater.eof:
        raise MalformedEnvelope(f"its compressed body does not have the {body_size} bytes of {BODY_SIZE}")
    return body


def _read_body_size(found: dict[str, Any]) -> int | None:
    if BODY_ENCODING not in found and BODY_SIZE not in found:
        return None
    encoding = _text(found.get(BODY_ENCODING))
    if encoding != _DEFLATE:
        raise MalformedEnvelope(f"{BODY_ENCODING} must be {_DEFLATE!r}, not {encoding!r}")
    size = _read_whole(found.get(BODY_SIZE), BODY_SIZE, "a number of bytes")
    if size > _BODY_LIMIT:
        raise MalformedEnvelope(f"{BODY_SIZE} is {size}, and no message is larger than {_BODY_LIMIT} bytes")
    return size

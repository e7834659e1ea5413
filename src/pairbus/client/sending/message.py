"""The SDK's messages at the edge of the rules: read, given an id, wrapped for the backlog.

1. A message of the caller's is never changed. One that has no id is copied and the copy gets one, so that the
   same object sent twice is two messages.
2. A copy shares all parts that are not changed, the body above all.
3. The SDK writes a plain int with 32 bits. The types that the envelope asks for are written as the SDK's own
   description of a typed value: a mapping with TYPE and VALUE.
4. With a time to live the SDK writes a creation time as well, that of the send. The SDK does not see the time
   to live of a wrapped message, so it is done here.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from os import urandom
from typing import Any, TypeVar
from uuid import UUID

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageProperties,
)
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import scan
from pairbus.conditions import ARGUMENT_ERROR
from pairbus.pairing.envelope import (
    ID_LIMIT,
    Aliases,
    CompressedBody,
    Long,
    Natives,
    TimestampMs,
    Wrapped,
    check_properties,
)
from pairbus.pairing.headroom import CERTAIN_ROOM
from pairbus.pairing.names import id_text
from pairbus.sdk.privates import LinkLimits, encode_by_sdk, message_parts, sdk_error
from pairbus.words import SCHEDULED_TIME

Message = ServiceBusMessage | AmqpAnnotatedMessage
_SCHEDULED, _SCHEDULED_TEXT = SCHEDULED_TIME.encode(), SCHEDULED_TIME
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Larger than any message, so that a batch measures and never refuses.
_MEASURING_LIMIT = 1 << 30
# What 32 bits hold.
_LONGEST_LIFE_MS = 2**32 - 1

# The sections that a namespace reads of a message.
_READ = ("header", "annotations", "properties", "application_properties")

_DATA = AmqpMessageBodyType.DATA
_SINGLE = (ServiceBusMessage, AmqpAnnotatedMessage, Mapping)
# Types of what an envelope has in another form, where nothing is wrong with it for sure.
_USUAL_SESSIONS = frozenset({str, type(None)})
_USUAL_LIVES = frozenset({int, type(None)})
_USUAL_SCHEDULES = frozenset({datetime, type(None)})
# Types of nearly all values of properties and annotations.
_BYTES = frozenset({bytes})
_UNCHANGING = frozenset({str, bytes, int, float, bool, type(None), datetime, UUID})

T = TypeVar("T")


class PairedMessageBatch(ServiceBusMessageBatch):
    """A batch that remembers its messages, so that in an outage each can be wrapped by itself.

    A message without an id gets one when it is added. What becomes of the caller's object after that changes
    nothing, as with the SDK's batch: one object may be filled and added again and again.
    """

    def __init__(self, max_size_in_bytes: int | None = None, **keywords: Any) -> None:
        """`keywords` are the SDK's own: its transport, and what its traces say."""
        super().__init__(max_size_in_bytes, **keywords)
        self.messages: list[Message] = []

    def add_message(self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]) -> None:
        """Try to add a message; MessageSizeExceededError if it does not fit any more."""
        prepared = _prepare_one(message)
        super().add_message(prepared)
        self.messages.append(as_it_is_now(prepared))


def prepare(given: Any, batches: type[PairedMessageBatch] = PairedMessageBatch) -> tuple[Any, list[Message]]:
    """Check and copy what a caller wants to send: what the SDK is to be given, and the messages in it.

    A batch is given as it is if it is one of `batches`; one that a client of another transport has made holds
    nothing that this one's senders could send, so that its messages are given as a list.
    ReservedPropertyError, TypeError or ValueError if it cannot be sent.
    """
    if isinstance(given, _SINGLE):
        message = _prepare_one(given)
        return message, [message]
    if isinstance(given, PairedMessageBatch):
        messages = list(given.messages)
        return (given if type(given) is batches else messages), messages
    if isinstance(given, ServiceBusMessageBatch):
        raise TypeError(
            "This batch was not made by this client, so that its messages could not be wrapped in an outage. "
            "Make it with create_message_batch() of the sender that sends it."
        )
    if isinstance(given, Iterable):
        messages = [_prepare_one(item) for item in given]
        return messages, messages
    raise TypeError(f"Only messages, lists of messages and batches can be sent, not {type(given).__name__}.")


def _prepare_one(given: Any) -> Message:
    if isinstance(given, ServiceBusMessage):
        raw = given.raw_amqp_message
    elif isinstance(given, AmqpAnnotatedMessage):
        raw = given
    elif isinstance(given, Mapping):
        given = ServiceBusMessage(**given)
        raw = given.raw_amqp_message
    else:
        raise TypeError(
            f"Messages are ServiceBusMessage, AmqpAnnotatedMessage or dict, not {type(given).__name__}."
        )
    if raw.application_properties:
        check_properties(raw.application_properties)
    properties = raw.properties
    if properties is None:
        named = AmqpMessageProperties()
    elif properties.message_id is None or properties.message_id == "":
        named = _copy(properties)
    else:
        return given  # type: ignore[no-any-return]
    named.message_id = new_id()
    copy = _copy(raw)
    copy.properties = named
    return copy


def new_id() -> str:
    """A random message id: as many random digits as a UUID has, several times cheaper."""
    return urandom(16).hex()


def message_id_of(message: Message) -> str:
    """The id, as text."""
    properties = raw_of(message).properties
    return id_text(None if properties is None else properties.message_id)


def session_of(message: Message) -> str | None:
    """The session id, as text."""
    properties = raw_of(message).properties
    return None if properties is None else _text(properties.group_id)


def raw_of(message: Message) -> AmqpAnnotatedMessage:
    """The message with all that AMQP has."""
    return message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message


def _copy(thing: T) -> T:
    """A copy that shares the parts. `copy.copy` does the same, in ten times the time."""
    copy = object.__new__(type(thing))
    copy.__dict__.update(thing.__dict__)
    return copy


def as_it_is_now(message: Message) -> AmqpAnnotatedMessage:
    """A copy that shares nothing with it that its owner can change."""
    raw = raw_of(message)
    kind, data, header, annotations, properties, added, for_a_hop, footer = message_parts(raw)
    if kind is not _DATA or for_a_hop or footer or not _BYTES.issuperset(map(type, data)):
        return _deep_copy(raw)
    copy = object.__new__(AmqpAnnotatedMessage)
    copy.__dict__.update(raw.__dict__)
    if properties is not None:
        copy.properties = _copy(properties)
    if header is not None:
        copy.header = _copy(header)
    if annotations is not None:
        copy.annotations = _copy_entries(annotations)
    if added is not None:
        copy.application_properties = _copy_entries(added)
    return copy


def _copy_entries(entries: Any) -> Any:
    if type(entries) is dict and _UNCHANGING.issuperset(map(type, entries.values())):
        return entries.copy()  # to copy every value would take many times as long
    return _deep_copy(entries)


def _deep_copy(thing: T) -> T:
    try:
        return deepcopy(thing)
    except Exception:  # noqa: BLE001 - what cannot be copied cannot be written either, which the SDK says
        return thing


def natives_of(message: Message, scheduled_for: datetime | None = None) -> Natives:
    """The native properties that the envelope deals with."""
    raw = raw_of(message)
    header, properties, annotations = raw.header, raw.properties, raw.annotations
    expiry = None if properties is None else properties.absolute_expiry_time
    scheduled: Any = scheduled_for
    if scheduled is None and annotations:
        scheduled = _schedule_in(annotations)
    return Natives(
        session_id=_text(properties.group_id) if properties is not None else None,
        ttl_ms=None if header is None or header.time_to_live is None else int(header.time_to_live),
        expires_ms=None if expiry is None else int(expiry),
        scheduled_ms=_scheduled_ms(scheduled),
    )


def wrapped_copy(
    message: Message, wrapped: Wrapped, *, created_ms: int, body: CompressedBody | None = None
) -> AmqpAnnotatedMessage:
    """The message as it waits in a backlog queue. `created_ms`: when it is sent."""
    raw = raw_of(message)
    copy = _copy(raw) if body is None else AmqpAnnotatedMessage(data_body=body.data)
    natives, header, properties = wrapped.natives, raw.header, raw.properties
    life = None if header is None else header.time_to_live
    # Its owner may change what is its own while this waits in line.
    copy.properties = named = AmqpMessageProperties() if properties is None else _copy(properties)
    named.group_id = natives.session_id
    named.absolute_expiry_time = natives.expires_ms
    if life:
        named.creation_time = created_ms
    if header is not None:
        copy.header = header = _copy(header)
        header.time_to_live = natives.ttl_ms
    copy.application_properties = added = {**(raw.application_properties or {})}
    for aliases in (wrapped.aliases, {} if body is None else body.markers):
        for name, value in aliases.items():
            added[name] = value if type(value) is str else _typed(value)
    # They are for one hop. A message that was received has some, and the SDK writes them behind the body.
    copy.delivery_annotations = None
    copy.annotations = raw.annotations
    if raw.annotations:
        gone = (_SCHEDULED, _SCHEDULED_TEXT)
        copy.annotations = {key: value for key, value in raw.annotations.items() if key not in gone}
    return copy


def hides_nothing(header: Any, annotations: Any, properties: Any) -> bool:
    """Whether a message with these parts, as nearly every one, has nothing which an envelope hides."""
    if annotations or properties is None or (header is not None and header.time_to_live is not None):
        return False
    return properties.group_id is None and properties.absolute_expiry_time is None


def wrapped_plainly(message: Message, aliases: Aliases) -> AmqpAnnotatedMessage | None:
    """The same for one that has nothing which an envelope hides, in a third of the time. `aliases` are all
    that the envelope of such a message has; None for any other.
    """
    raw = raw_of(message)
    _, _, header, annotations, properties, found, _, _ = message_parts(raw)
    if not hides_nothing(header, annotations, properties):
        return None
    copy = _copy(raw)
    copy.properties = _copy(properties)
    if header is not None:
        copy.header = _copy(header)
    copy.application_properties = added = {**(found or {})}
    added.update(aliases)
    copy.delivery_annotations = None
    return copy


def _typed(value: str | Long | TimestampMs) -> Any:
    if isinstance(value, Long):
        return {"TYPE": "LONG", "VALUE": int(value)}
    if isinstance(value, TimestampMs):
        return {"TYPE": "TIMESTAMP", "VALUE": int(value)}
    return value


def measure(message: Message, *, alone: bool = False) -> int:
    """The size of a message on the wire, as the SDK encodes it. If it cannot: what its encoder raises, or its
    sender for a message that is sent `alone`.
    """
    batch = ServiceBusMessageBatch(_MEASURING_LIMIT)
    empty = batch.size_in_bytes
    try:
        batch.add_message(message)
    except Exception as error:
        if not alone:
            raise
        raise ServiceBusError(message=f"Handler failed: {error}.", error=error) from error
    grown = batch.size_in_bytes - empty
    return grown - (5 if grown < 256 + 5 else 8)


def check_written(message: Message, *, alone: bool = True) -> None:
    """Raise what the SDK's sender raises for a message that it cannot write, or that no namespace can read:
    the SDK writes some wrong types as they are. `alone`: no other is sent with it.
    """
    try:
        sections = scan(encode_by_sdk(raw_of(message), alone=alone))
        for name in _READ:
            getattr(sections, name)  # which decodes it
    except DecodeError as error:
        raise sdk_error("message", error.condition, error.description) from None


def measure_if_writable(message: Message) -> int:
    """The same; 0 if it cannot be encoded."""
    try:
        return measure(message)
    except Exception:  # noqa: BLE001 - whatever the encoder raises
        return 0


def check_for_primary(native: Any, messages: Sequence[Message], limits: LinkLimits | None) -> None:
    """Raise what the healthy primary, or the SDK on the way to it, would refuse, and the backlog would not.

    The backlog takes a time to live, a session or a schedule that cannot be written or read, since the
    envelope has them in another form, bodies that only fit when they are compressed, and lists that only fit
    when they are split. What cannot be encoded at all fails there as well, and so does a message id that is
    too long, but not in the spool. Limits that were never seen refuse nothing.
    """
    for message in messages:
        raw = raw_of(message)
        if _hides_the_unusual(raw):
            check_written(message, alone=type(native) is not list)
        if raw.properties is not None:
            number = raw.properties.message_id  # a namespace names one of bytes by their digits
            _check_id("message", number.hex() if isinstance(number, bytes) else number)
            _check_id("session", _text(raw.properties.group_id))
        header = raw.header
        if header is not None and not 0 <= (header.time_to_live or 0) <= _LONGEST_LIFE_MS:
            measure(message, alone=type(native) is not list)
    if limits is None:
        return
    if type(native) is list:
        batch = ServiceBusMessageBatch(limits.batch)
        for message in messages:
            batch.add_message(message)
    elif not isinstance(native, ServiceBusMessageBatch):
        _check_size(messages[0], limits.message)


def _hides_the_unusual(raw: AmqpAnnotatedMessage) -> bool:
    """Whether anything that an envelope has in another form is of a type that is not written every day."""
    properties, header, annotations = raw.properties, raw.header, raw.annotations
    return (
        (properties is not None and type(properties.group_id) not in _USUAL_SESSIONS)
        or (properties is not None and properties.absolute_expiry_time is not None)
        or (header is not None and type(header.time_to_live) not in _USUAL_LIVES)
        or bool(annotations and type(_schedule_in(annotations)) not in _USUAL_SCHEDULES)
    )


def _check_id(what: str, found: Any) -> None:
    if isinstance(found, str) and len(found) > ID_LIMIT:
        text = f"The {what} id has {len(found)} characters; it may have {ID_LIMIT} at most."
        raise ServiceBusError(message=f"{text} Error condition: {ARGUMENT_ERROR}.")


def _check_size(message: Message, limit: int) -> None:
    if body_bytes(message) > limit - CERTAIN_ROOM and (size := measure(message, alone=True)) > limit:
        text = f"The message has {size} bytes, more than the {limit} bytes that the entity takes."
        raise MessageSizeExceededError(message=text)


def body_bytes(message: Message) -> int:
    """The size of the body: of data to the byte, which costs nothing to know, else with all around it."""
    kind, data, *_ = message_parts(raw_of(message))
    try:
        if kind is _DATA:
            return sum(map(len, data))
    except TypeError:  # it is no data
        pass
    return measure_if_writable(message)


def data_of(message: Message) -> list[bytes] | None:
    """The data sections of a message; None if its body is of another kind, or a footer follows it."""
    raw = raw_of(message)
    return list(raw.body) if raw.body_type is _DATA and not raw.footer else None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return None if value is None else str(value)


def _schedule_in(annotations: Mapping[Any, Any]) -> Any:
    return annotations.get(_SCHEDULED, annotations.get(_SCHEDULED_TEXT))


def _scheduled_ms(value: Any) -> int | None:
    """When a message is to be enqueued, as the SDK would write it. What is neither a time nor a number is no
    schedule to a namespace.
    """
    if isinstance(value, Mapping):  # a value with its AMQP type
        value = value.get("VALUE")
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        delta = aware - _EPOCH
        return (delta.days * 86_400 + delta.seconds) * 1000 + delta.microseconds // 1000
    return int(value) if isinstance(value, int) else None

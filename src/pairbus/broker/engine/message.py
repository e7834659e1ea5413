"""A message as it comes in, and a message as it is kept.

Theory:
1. The bare message (properties, application properties, body) stays the bytes that came in. Copies for
   several subscriptions share them. What may have to be written anew, the application properties, is decoded
   once when it comes, and a message whose properties cannot be read is refused. Decimals among them are
   written in the service's form, which has the same length. (An older store may hold
   one: it is carried as it is, and no reason can be written into it.)
2. A stored message is two things. The record is what decisions are made by (number, state, times, session,
   size, lock); it is always in memory and takes some hundred bytes. The content is what a receiver gets. It
   is in memory for as long as no store has it, and then for as long as somebody cares to keep it: in its
   place stands the source that it can be read from again. A caller gets the content either way;
   whoever cannot wait for a disk asks first whether it is at hand (`is_at_hand`).
3. A record changes only in: state, delivery count, size, lock. Its number never changes: a message that
   moves to another queue, or is activated, is a new record there. A content never changes once it is stored;
   a message whose application properties change gets another one.
4. So an event may hold the record itself. Read later, it shows the newest state, which is what a store
   wants.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeVar

from pairbus import words
from pairbus.amqp.decoding import decode
from pairbus.amqp.encoding import encode
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.glance import scan_plain
from pairbus.amqp.message import (
    Header,
    MessageSections,
    Properties,
    encode_application_properties,
    encode_properties,
    scan,
    scan_large,
)
from pairbus.amqp.types import Blob, Symbol
from pairbus.words import PING_CONTENT_TYPE, POSTMARKS

from .decimals import rewrite_decimals
from .errors import too_many_properties

T = TypeVar("T")
SCHEDULED_TIME: Final = Symbol(words.SCHEDULED_TIME)
PARTITION_KEY: Final = Symbol(words.PARTITION_KEY)
# The lock of the hop before. The Python SDK writes the keys of annotations that it has received as binaries.
_LOCK_TOKENS: Final = (Symbol(words.LOCK_TOKEN), words.LOCK_TOKEN.encode())
# Where the properties have what is decided by.
_MESSAGE_ID, _CONTENT_TYPE, _EXPIRY_TIME, _CREATION_TIME, _GROUP_ID = (
    [field.name for field in fields(Properties)].index(name)
    for name in ("message_id", "content_type", "absolute_expiry_time", "creation_time", "group_id")
)
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
#: Bytes of application properties that settlements can make of a message, which may be settled again and
#: again. Twice what the service takes of all headers, so that a reason finds room in any message.
MOST_PROPERTIES: Final = 131_072


class MessageState(enum.IntEnum):
    """The numbers are those of `x-opt-message-state`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


_ACTIVE: Final = MessageState.ACTIVE  # see `stock.py`


@dataclass(slots=True, eq=False, repr=False)
class Content:
    """What a receiver gets of a message, and what is decided by it when it moves."""

    # The number that the message had where it was first submitted; 0 if that is here.
    enqueued_sequence_number: int
    message_id: str
    partition_key: str | None
    durable: bool | None
    priority: int | None
    ttl_ms: int | None
    first_acquirer: bool | None
    # What the sender has annotated: the map for the message and, behind it, that for the delivery if there is
    # one; empty if there are neither. Decoded they would take a hundred times as much memory.
    annotations_bytes: bytes
    properties_bytes: bytes
    application_properties_bytes: bytes
    # The body, behind what else came with it if it was not cut out. Of a large message it is a view.
    whole: Blob
    dead_letter_source: str | None = None
    hops: int = 0
    body_at: int = 0
    # Whether all the rest says the same as `whole` does: then a store writes that alone.
    as_it_came: bool = False

    @property
    def body(self) -> Blob:
        """The body; a copy, if it stands behind what else came with it."""
        return self.whole[self.body_at :] if self.body_at else self.whole

    @property
    def bare(self) -> tuple[Blob, ...]:
        """The properties, the application properties and the body, in one piece if they came so."""
        if self.as_it_came:
            return (self.whole[self.body_at - len(self.properties_bytes) :],)
        return self.properties_bytes, self.application_properties_bytes, self.body

    def copy(self) -> Content:
        """A content of its own, to be changed; the bytes are shared."""
        return Content(
            self.enqueued_sequence_number,
            self.message_id,
            self.partition_key,
            self.durable,
            self.priority,
            self.ttl_ms,
            self.first_acquirer,
            self.annotations_bytes,
            self.properties_bytes,
            self.application_properties_bytes,
            self.whole,
            self.dead_letter_source,
            self.hops,
            self.body_at,
        )


class ContentSource(Protocol):
    """Where the contents of a queue's messages can be read."""

    def read(self, sequence_numbers: Sequence[int]) -> list[Content | None]:
        """The contents of these messages; None for one that is not there."""


class _Told(Generic[T]):
    """An attribute of the content, as one of the message. It is set only before the message is stored."""

    __slots__ = ("_name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, message: StoredMessage, owner: type) -> T:
        value: T = getattr(message.content, self._name)
        return value

    def __set__(self, message: StoredMessage, value: T) -> None:
        assert isinstance(message.held, Content)
        message.held.as_it_came = False
        setattr(message.held, self._name, value)


class StoredMessage:
    """A message in a queue, or one that a topic holds until its time."""

    __slots__ = (
        "delivery_count",
        "enqueued_at",
        "expires_at",
        "held",
        "lock_token",
        "locked_until",
        "scheduled_for",
        "sequence_number",
        "session_id",
        "size",
        "state",
    )

    enqueued_sequence_number = _Told[int]()
    message_id = _Told[str]()
    partition_key = _Told[str | None]()
    durable = _Told[bool | None]()
    priority = _Told[int | None]()
    ttl_ms = _Told[int | None]()
    first_acquirer = _Told[bool | None]()
    annotations_bytes = _Told[bytes]()
    properties_bytes = _Told[bytes]()
    application_properties_bytes = _Told[bytes]()
    body = _Told[Blob]()
    dead_letter_source = _Told[str | None]()
    hops = _Told[int]()

    def __init__(
        self,
        sequence_number: int,
        state: MessageState,
        delivery_count: int,
        size: int,
        enqueued_at: float,
        expires_at: float | None,
        scheduled_for: float | None,
        session_id: str | None,
        held: Content | ContentSource,
    ) -> None:
        self.sequence_number = sequence_number
        self.state = state
        self.delivery_count = delivery_count
        self.size = size
        self.enqueued_at = enqueued_at
        self.expires_at = expires_at
        self.scheduled_for = scheduled_for
        self.session_id = session_id
        #: The content, or where it can be read.
        self.held = held
        # Locks end with the process: these two are no part of what a store keeps.
        self.lock_token: uuid.UUID | None = None
        self.locked_until = 0.0

    def __repr__(self) -> str:
        return f"<StoredMessage {self.sequence_number} {self.state.name} {self.size} bytes>"

    @property
    def is_at_hand(self) -> bool:
        """Whether the content is in memory."""
        return isinstance(self.held, Content)

    @property
    def content(self) -> Content:
        """The content; if it is not at hand it is read, and not kept."""
        held = self.held
        if isinstance(held, Content):
            return held
        (content,) = held.read((self.sequence_number,))
        if content is None:
            raise LookupError(f"the content of message {self.sequence_number} is gone")
        return content

    def copy(self, sequence_number: int) -> StoredMessage:
        """A record of its own with another number, unlocked; the bytes are shared."""
        return StoredMessage(
            sequence_number,
            self.state,
            self.delivery_count,
            self.size,
            self.enqueued_at,
            self.expires_at,
            self.scheduled_for,
            self.session_id,
            self.content.copy(),
        )

    @property
    def body_bytes(self) -> bytes:
        """The body, copied if it is large."""
        return bytes(self.content.body)

    @property
    def annotations(self) -> Mapping[Any, Any]:
        """What the sender has annotated for the message, decoded anew each time."""
        encoded = self.annotations_bytes
        return decode(encoded)[0] if encoded else {}

    def change_application_properties(self, changes: Mapping[str, Any], *, is_bounded: bool = False) -> None:
        """Merge properties into those of the message, as abandon, defer and dead-letter do. Where it is
        `is_bounded`, Refused if that makes too much of them.
        """
        try:
            merged = dict(View(self).sections.application_properties)
        except DecodeError:
            return
        merged.update(changes)
        if is_bounded:
            size = len(encode_application_properties(merged))
            if size > max(MOST_PROPERTIES, len(self.content.application_properties_bytes)):
                raise too_many_properties(size, MOST_PROPERTIES)
        self.set_application_properties(merged)

    def set_application_properties(self, properties: Mapping[str, Any]) -> None:
        """Replace the application properties."""
        encoded = encode_application_properties(dict(properties)) if properties else b""
        content = self.content.copy()
        self.size += len(encoded) - len(content.application_properties_bytes)
        content.application_properties_bytes = encoded
        self.held = content

    def set_properties(self, properties: Properties) -> None:
        """Replace the properties of a message that is not stored yet, and what is known from them."""
        if properties.message_id is None:
            properties = replace(properties, message_id=self.message_id)
        encoded = encode_properties(properties)
        self.size += len(encoded) - len(self.properties_bytes)
        self.properties_bytes = encoded
        self.message_id = identifier(properties.message_id) or self.message_id
        self.session_id = properties.group_id


class View:
    """A stored message as filters want to see it, decoded when they look, once."""

    __slots__ = ("_annotations", "_applied", "_message", "_sections")

    def __init__(self, message: StoredMessage) -> None:
        self._message = message
        self._sections: MessageSections | None = None
        self._annotations: Mapping[str, Any] | None = None
        self._applied: Mapping[str, Any] | None = None

    @property
    def annotations(self) -> Mapping[str, Any]:
        if self._annotations is None:
            self._annotations = self._message.annotations
        return self._annotations

    @property
    def properties(self) -> Properties:
        return self.sections.properties

    @property
    def application_properties(self) -> Mapping[str, Any]:
        if self._applied is None:
            try:
                self._applied = self.sections.application_properties
            except DecodeError:
                self._applied = _NOTHING
        return self._applied

    @property
    def sections(self) -> MessageSections:
        if self._sections is None:
            content = self._message.content
            self._sections = scan(content.properties_bytes + content.application_properties_bytes)
        return self._sections


class Incoming:
    """A message that a client sends: what is decided by, and the content that is stored if it is taken."""

    __slots__ = (
        "_annotations",
        "_applied",
        "_payload",
        "_sections",
        "content",
        "is_ping",
        "message_id",
        "scheduled_for",
        "session_id",
        "size",
        "time_to_live",
    )

    def __init__(
        self,
        payload: Blob,
        header: Header,
        values: Sequence[Any],
        properties: bytes,
        body_at: int,
        applied: bytes = b"",
        body: Blob | None = None,
    ) -> None:
        """`values` are those of the properties. The body is what begins at `body_at`, with nothing before it
        but header, properties and those that are `applied`, or it is `body`. What other maps say is not known
        yet.
        """
        count, ttl_ms = len(values), header.ttl
        self._payload = payload
        self._sections: MessageSections | None = None
        self._annotations: Mapping[Any, Any] | None = None
        self._applied: Mapping[str, Any] | None = None
        self.size = len(payload)
        self.message_id = message_id = identifier(values[_MESSAGE_ID]) if count else None
        self.session_id: str | None = None
        self.is_ping = False
        self.scheduled_for: float | None = None
        self.time_to_live = None if ttl_ms is None else ttl_ms / 1000.0
        if count > _CONTENT_TYPE:  # many have an id alone
            self.is_ping = values[_CONTENT_TYPE] == PING_CONTENT_TYPE
            self.session_id = values[_GROUP_ID] if count > _GROUP_ID else None
            if count > _CREATION_TIME:
                self.time_to_live = _longer_life(values, self.time_to_live)
        self.content = Content(
            0,
            message_id or "",
            None,
            header.durable,
            header.priority,
            ttl_ms,
            header.first_acquirer,
            b"",
            properties,
            applied,
            payload if body is None else body,
            None,
            0,
            body_at,
            body is None and message_id is not None and not applied,
        )

    @classmethod
    def parse(cls, payload: Blob) -> Incoming:
        """What the broker must know of a message; DecodeError. The body of a view stays where it is."""
        if isinstance(payload, memoryview):
            sections = scan_large(payload)
        elif (plain := scan_plain(payload)) is not None:
            return cls(payload, *plain)
        else:
            sections = scan(payload)
        properties = sections.properties_bytes
        incoming = cls(payload, sections.header, sections.property_values, properties, 0, b"", sections.body)
        incoming._sections = sections
        if sections.has_maps:
            incoming._read_maps(sections)
        return incoming

    @property
    def sections(self) -> MessageSections:
        """Its sections, for whoever wants more of it."""
        if self._sections is None:
            payload = self._payload
            self._sections = scan_large(payload) if isinstance(payload, memoryview) else scan(payload)
        return self._sections

    @property
    def annotations(self) -> Mapping[Any, Any]:
        """What the sender has annotated for the message, as far as it is kept."""
        if self._annotations is None:
            encoded = self.content.annotations_bytes
            self._annotations = decode(encoded)[0] if encoded else _NOTHING
        return self._annotations

    def pack(self) -> None:
        """Hold bytes alone until somebody looks again: decoded they take a hundred times as much memory."""
        self._sections = self._annotations = self._applied = None

    def _read_maps(self, sections: MessageSections) -> None:
        """Stored as they came, decimals apart; but whoever filters by them must be able to read them."""
        content = self.content
        content.application_properties_bytes = rewrite_decimals(
            sections.application_properties_bytes, sections.application_properties
        )
        content.partition_key, content.annotations_bytes = self._read_annotations()

    def _read_annotations(self) -> tuple[str | None, bytes]:
        """The partition key, and what is kept of both kinds of annotations."""
        sections, partition_key, annotated = self.sections, None, b""
        if annotations := sections.annotations:
            annotations = {key: annotations[key] for key in annotations if key not in POSTMARKS}
            self.scheduled_for, partition_key = _scheduled(annotations), _partition_key(annotations)
            if partition_key is None and self.session_id is not None:
                # The session is the key then.
                annotations.pop(PARTITION_KEY, None)
            self._annotations = annotations
            annotated = encode(annotations) if annotations else b""
        if delivery := sections.delivery_annotations:
            delivery = {key: delivery[key] for key in delivery if key not in _LOCK_TOKENS}
            annotated = (annotated or encode({})) + encode(delivery) if delivery else annotated
        return partition_key, annotated

    @property
    def properties(self) -> Properties:
        return self.sections.properties

    @property
    def application_properties(self) -> Mapping[str, Any]:
        if self._applied is None:
            self._applied = self.sections.application_properties
        return self._applied

    @property
    def partition_key(self) -> str | None:
        return self.content.partition_key

    @property
    def header_size(self) -> int:
        """Bytes of all that came before the body."""
        return self.content.body_at or self.size - len(self.content.whole)

    def name(self, message_id: str) -> None:
        """Give an id to a message that came without one: the JavaScript client cannot settle it otherwise."""
        self.content.as_it_came = False
        self.message_id = self.content.message_id = message_id
        named = replace(self.sections.properties, message_id=message_id)
        self.content.properties_bytes = encode_properties(named)

    def store(self, sequence_number: int, now: float, expires_at: float | None) -> StoredMessage:
        """The record of this message, enqueued now."""
        return StoredMessage(
            sequence_number,
            _ACTIVE,
            0,
            self.size,
            now,
            expires_at,
            self.scheduled_for,
            self.session_id,
            self.content,
        )


def identifier(value: object) -> str | None:
    """A message id as text; AMQP lets it be a uuid, a ulong or binary as well."""
    if value is None or isinstance(value, str):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def size_of(properties: Mapping[str, Any] | None) -> int:
    """Bytes of application properties."""
    return len(encode_application_properties(dict(properties))) if properties else 0


def _partition_key(annotations: Mapping[Any, Any]) -> str | None:
    value = annotations.get(PARTITION_KEY)
    return str(value) if isinstance(value, str) else None


def _scheduled(annotations: Mapping[Any, Any]) -> float | None:
    value = annotations.get(SCHEDULED_TIME)
    return value / 1000.0 if isinstance(value, int) else None


def _longer_life(properties: Sequence[Any], time_to_live: float | None) -> float | None:
    # A header's ttl ends at 49 days. For a longer life clients write creation and expiry into the properties;
    # their difference is taken, not the expiry itself, because the clocks of client and broker differ.
    created, expires = properties[_CREATION_TIME], properties[_EXPIRY_TIME]
    if created is None or expires is None or expires < created:
        return time_to_live
    return float(expires - created) / 1000.0

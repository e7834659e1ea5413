"""A message as it comes in, and a message as it is kept.

Theory:
1. The bare message (properties, application properties, body) stays the bytes that came in. Copies for
   several subscriptions share them. What may have to be written anew, the application properties, is decoded
   once when it comes, and a message whose properties cannot be read is refused. (An older store may hold
   one: it is carried as it is, and no reason can be written into it.)
2. A stored message changes only in: state, delivery count, application properties (and with them its size),
   lock. Its number never changes: a message that moves to another queue, or is activated, is a new record
   there.
3. So an event may hold the record itself. Who reads it later sees the newest state, which is what a store
   wants.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pairbus import words
from pairbus.amqp.codec import decode, encode
from pairbus.amqp.errors import DecodeError
from pairbus.amqp.message import (
    MessageSections,
    Properties,
    encode_application_properties,
    encode_properties,
    scan,
)
from pairbus.amqp.types import Symbol
from pairbus.words import PING_CONTENT_TYPE, POSTMARKS

SCHEDULED_TIME: Final = Symbol(words.SCHEDULED_TIME)
PARTITION_KEY: Final = Symbol(words.PARTITION_KEY)
# The lock of the hop before. The Python SDK writes the keys of annotations that it has received as binaries.
_LOCK_TOKENS: Final = (Symbol(words.LOCK_TOKEN), words.LOCK_TOKEN.encode())


class MessageState(enum.IntEnum):
    """The numbers are those of `x-opt-message-state`."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(slots=True, eq=False, repr=False)
class StoredMessage:
    """A message in a queue, or one that a topic holds until its time."""

    sequence_number: int
    # The number that the message had where it was first submitted; 0 if that is here.
    enqueued_sequence_number: int
    enqueued_at: float
    expires_at: float | None
    scheduled_for: float | None
    state: MessageState
    delivery_count: int
    message_id: str
    session_id: str | None
    partition_key: str | None
    durable: bool | None
    priority: int | None
    ttl_ms: int | None
    # What the sender has annotated: the map for the message and, behind it, that for the delivery if there is
    # one; empty if there are neither. Decoded they would take a hundred times as much memory.
    annotations_bytes: bytes
    properties_bytes: bytes
    application_properties_bytes: bytes
    body_bytes: bytes
    size: int
    dead_letter_source: str | None = None
    hops: int = 0
    # Locks end with the process: these two are no part of what a store keeps.
    lock_token: uuid.UUID | None = None
    locked_until: float = 0.0

    def __repr__(self) -> str:
        return (
            f"<StoredMessage {self.sequence_number} {self.state.name} {self.message_id!r} {self.size} bytes>"
        )

    def copy(self, sequence_number: int) -> StoredMessage:
        """A record of its own with another number, unlocked; the bytes are shared."""
        return StoredMessage(
            sequence_number,
            self.enqueued_sequence_number,
            self.enqueued_at,
            self.expires_at,
            self.scheduled_for,
            self.state,
            self.delivery_count,
            self.message_id,
            self.session_id,
            self.partition_key,
            self.durable,
            self.priority,
            self.ttl_ms,
            self.annotations_bytes,
            self.properties_bytes,
            self.application_properties_bytes,
            self.body_bytes,
            self.size,
            self.dead_letter_source,
            self.hops,
        )

    @property
    def annotations(self) -> Mapping[Any, Any]:
        """What the sender has annotated for the message, decoded anew each time."""
        return decode(self.annotations_bytes)[0] if self.annotations_bytes else {}

    def change_application_properties(self, changes: Mapping[str, Any]) -> None:
        """Merge properties into those of the message, as abandon, defer and dead-letter do."""
        try:
            merged = dict(View(self).sections.application_properties)
        except DecodeError:
            return
        merged.update(changes)
        self.set_application_properties(merged)

    def set_application_properties(self, properties: Mapping[str, Any]) -> None:
        """Replace the application properties."""
        encoded = encode_application_properties(dict(properties)) if properties else b""
        self.size += len(encoded) - len(self.application_properties_bytes)
        self.application_properties_bytes = encoded

    def set_properties(self, properties: Properties) -> None:
        """Replace the properties, as an action of a rule does, and what is known from them."""
        if properties.message_id is None:
            properties = replace(properties, message_id=self.message_id)
        encoded = encode_properties(properties)
        self.size += len(encoded) - len(self.properties_bytes)
        self.properties_bytes = encoded
        self.message_id = identifier(properties.message_id) or self.message_id
        self.session_id = properties.group_id


class View:
    """A stored message as filters want to see it, decoded when they look."""

    __slots__ = ("_message", "_sections")

    def __init__(self, message: StoredMessage) -> None:
        self._message = message
        self._sections: MessageSections | None = None

    @property
    def annotations(self) -> Mapping[str, Any]:
        return self._message.annotations

    @property
    def properties(self) -> Properties:
        return self.sections.properties

    @property
    def application_properties(self) -> Mapping[str, Any]:
        try:
            return self.sections.application_properties
        except DecodeError:
            return {}

    @property
    def sections(self) -> MessageSections:
        if self._sections is None:
            self._sections = scan(self._message.properties_bytes + self._message.application_properties_bytes)
        return self._sections


@dataclass(slots=True, eq=False, repr=False)
class Incoming:
    """A message that a client sends."""

    sections: MessageSections
    size: int
    message_id: str | None
    session_id: str | None
    partition_key: str | None
    scheduled_for: float | None
    time_to_live: float | None
    is_ping: bool
    durable: bool | None
    priority: int | None
    ttl_ms: int | None
    annotations: dict[Any, Any]
    annotations_bytes: bytes
    properties_bytes: bytes
    application_properties: Mapping[str, Any]

    @classmethod
    def parse(cls, payload: bytes) -> Incoming:
        """Read what the broker must know of a message; raises DecodeError on bytes that are none."""
        sections = scan(payload)
        header, properties, annotations = sections.header, sections.properties, sections.annotations
        scheduled: float | None = None
        partition_key: str | None = None
        if annotations:
            annotations = {key: annotations[key] for key in annotations if key not in POSTMARKS}
            scheduled, partition_key = _scheduled(annotations), _partition_key(annotations)
            if partition_key is None and properties.group_id is not None:
                # The session is the key then.
                annotations.pop(PARTITION_KEY, None)
        annotated = encode(annotations) if annotations else b""
        if delivery := sections.delivery_annotations:
            delivery = {key: delivery[key] for key in delivery if key not in _LOCK_TOKENS}
            annotated = (annotated or encode({})) + encode(delivery) if delivery else annotated
        ttl_ms = header.ttl
        return cls(
            sections,
            len(payload),
            identifier(properties.message_id),
            properties.group_id,
            partition_key,
            scheduled,
            _time_to_live(ttl_ms, properties),
            properties.content_type == PING_CONTENT_TYPE,
            header.durable,
            header.priority,
            ttl_ms,
            annotations,
            annotated,
            sections.properties_bytes,
            sections.application_properties,
        )

    @property
    def properties(self) -> Properties:
        return self.sections.properties

    def name(self, message_id: str) -> None:
        """Give an id to a message that came without one: the JavaScript client cannot settle it otherwise."""
        self.message_id = message_id
        self.properties_bytes = encode_properties(replace(self.sections.properties, message_id=message_id))

    def store(self, sequence_number: int, now: float, expires_at: float | None) -> StoredMessage:
        """The record of this message, enqueued now."""
        sections = self.sections
        return StoredMessage(
            sequence_number,
            0,
            now,
            expires_at,
            self.scheduled_for,
            MessageState.ACTIVE,
            0,
            self.message_id or "",
            self.session_id,
            self.partition_key,
            self.durable,
            self.priority,
            self.ttl_ms,
            self.annotations_bytes,
            self.properties_bytes,
            sections.application_properties_bytes,
            sections.body_bytes,
            self.size,
        )


def identifier(value: object) -> str | None:
    """A message id as text; AMQP lets it be a uuid, a ulong or binary as well."""
    if value is None or isinstance(value, str):
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def _partition_key(annotations: Mapping[Any, Any]) -> str | None:
    value = annotations.get(PARTITION_KEY)
    return str(value) if isinstance(value, str) else None


def _scheduled(annotations: Mapping[Any, Any]) -> float | None:
    value = annotations.get(SCHEDULED_TIME)
    return value / 1000.0 if isinstance(value, int) else None


def _time_to_live(ttl_ms: int | None, properties: Properties) -> float | None:
    # A header's ttl ends at 49 days. For a longer life clients write creation and expiry into the properties;
    # their difference is taken, not the expiry itself, because the clocks of client and broker differ.
    created, expires = properties.creation_time, properties.absolute_expiry_time
    if created is not None and expires is not None and expires >= created:
        return (expires - created) / 1000.0
    return None if ttl_ms is None else ttl_ms / 1000.0

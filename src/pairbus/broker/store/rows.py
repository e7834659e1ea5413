"""Rows of a store, and the records of the engine that they stand for. A row has a checksum: whoever reads it
finds out whether it is as it was written.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from struct import Struct
from typing import Any
from zlib import crc32

from pairbus.amqp.types import Blob
from pairbus.broker.engine.breath import slices
from pairbus.broker.engine.events import (
    DuplicateSeen,
    EntityKind,
    EntityPut,
    MessageChanged,
    RulePut,
    SequenceAdvanced,
    SessionStateSet,
)
from pairbus.broker.engine.message import Content, ContentSource, Incoming, MessageState, StoredMessage
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.errors import PairbusError
from pairbus.plumbing.json_text import parse_json

from .checksums import (
    UNSUMMABLE,
    content_checksum,
    pack_record,
    properties_checksum,
    record_checksum,
    row_checksum,
)

# The numbers of places are this far apart. A message's key is its place's number and its sequence number in
# one: 17 million million messages a place, half a million places.
PLACE_STEP = 1 << 44
# The keys of all their messages are within the 63 bits of SQLite. The first place has the number of one step.
MOST_PLACES = (1 << 63) // PLACE_STEP - 1
# Python looks for an adapter for every `bytes` that it binds, and for no `bytearray`; up to about this length
# a copy is quicker than the search.
_COPY_LIMIT = 8192
#: Bytes of a body from which on it is not bound or fetched in one piece, for which Python stands still.
LARGE_BODY = 1 << 20
_NEVER = math.inf
_NOT_SCHEDULED = -math.inf
_SETTINGS = {
    EntityKind.QUEUE: QueueSettings,
    EntityKind.TOPIC: TopicSettings,
    EntityKind.SUBSCRIPTION: SubscriptionSettings,
}


#: How many values a row of a message has.
MESSAGE_COLUMNS = 16
_STATES = tuple(MessageState)
# Of the content: the enqueued number, the header as it came, hops, and how long what follows is: the
# message id, the partition key (-1: none), where it was dead-lettered, annotations, properties, and the body.
_ENVELOPE = Struct("<qbqqqqqqqqq")
_pack_envelope = _ENVELOPE.pack
_join = bytearray().join
# What a message as it came has instead of an envelope, and of application properties.
_NOTHING = bytearray()
# Rows that are made in a moment.
_FEW = 4


class RowDamaged(PairbusError):
    """A row is not as it was written. The text says which one, as far as that can be told."""


def message_rows(
    messages: Mapping[int, StoredMessage], turn: int, total: int, no_session: int | None = None
) -> Iterator[tuple[Any, ...]]:
    """The rows of messages by their keys, in the order of `put_message`; `no_session` stands where there is
    none. One loop, since each call would cost as much as a part of a row.
    """
    for few in slices(list(messages), _FEW):
        for key in few:
            message = messages[key]
            content, session_id = message.content, message.session_id
            expires_at, scheduled_for = message.expires_at, message.scheduled_for
            if content.as_it_came:
                applied, envelope, body = b"", _NOTHING, content.whole
                content_sum, properties_sum = crc32(body), 0
            else:
                applied, envelope, body = (
                    content.application_properties_bytes,
                    _envelope(content),
                    content.body,
                )
                content_sum, properties_sum = crc32(body, crc32(envelope)), crc32(applied)
            cells = (
                key,
                turn,
                total,
                content_sum,
                properties_sum,
                message.state + 0,  # a plain number, in a third of the time that `int` takes
                message.delivery_count,
                message.size,
                message.enqueued_at,
                _NEVER if expires_at is None else expires_at,
                _NOT_SCHEDULED if scheduled_for is None else scheduled_for,
            )
            yield (
                *cells,
                no_session if session_id is None else session_id,
                crc32(pack_record(*cells)) if session_id is None else record_checksum(*cells, session_id),
                bytearray(applied) if applied else _NOTHING,
                envelope,
                bytearray(body) if len(body) <= _COPY_LIMIT else body,
            )


def _envelope(content: Content) -> bytearray:
    priority, ttl_ms = content.priority, content.ttl_ms
    return pack_envelope(
        content.enqueued_sequence_number,
        _FLAGS[content.durable, content.first_acquirer],
        -1 if priority is None else priority,
        -1 if ttl_ms is None else ttl_ms,
        content.hops,
        content.message_id,
        content.partition_key,
        content.dead_letter_source,
        content.annotations_bytes,
        content.properties_bytes,
        len(content.whole) - content.body_at,
    )


def pack_envelope(
    enqueued_sequence_number: int,
    flags: int,
    priority: int,
    ttl_ms: int,
    hops: int,
    message_id: str,
    partition_key: str | None,
    dead_letter_source: str | None,
    annotations: bytes,
    properties: bytes,
    body_length: int,
) -> bytearray:
    """What is short of a content, in one."""
    name = message_id.encode()
    partition = b"" if partition_key is None else partition_key.encode()
    source = dead_letter_source.encode() if dead_letter_source else b""
    numbers = _pack_envelope(
        enqueued_sequence_number,
        flags,
        priority,
        ttl_ms,
        hops,
        len(name),
        -1 if partition_key is None else len(partition),
        len(source),
        len(annotations),
        len(properties),
        body_length,
    )
    return _join((numbers, name, partition, source, annotations, properties))


def change_row(key: int, event: MessageChanged) -> tuple[Any, ...]:
    """What has changed of a message, in the order of `change_message`."""
    applied = event.application_properties_bytes
    properties = None if applied is None else properties_checksum(applied)
    return (
        properties,
        int(event.state),
        event.delivery_count,
        event.size,
        None if applied is None else bytearray(applied),
        key,
    )


def read_record(row: tuple[Any, ...], source: Content | ContentSource) -> StoredMessage:
    """The message of a row of `read_records`; its content is read from `source`. Called for every message."""
    key, _, _, _, _, state, delivery_count, size, *times, session_id, checksum = row
    _check(checksum, record_checksum, row[:12], key)
    enqueued_at, expires_at, scheduled_for = times
    return StoredMessage(
        key % PLACE_STEP,
        _STATES[state],
        delivery_count,
        size,
        enqueued_at,
        None if expires_at == _NEVER else expires_at,
        None if scheduled_for == _NOT_SCHEDULED else scheduled_for,
        session_id,
        source,
    )


def read_content(row: tuple[Any, ...]) -> Content:
    """The content of a row of `read_messages`."""
    applied, envelope, body = row[13:]
    _check(row[12], record_checksum, row[:12], row[0])
    _check(row[3], content_checksum, (envelope, body), row[0])
    _check(row[4], properties_checksum, (applied,), row[0])
    return _unpack_content(applied, envelope, body)


def read_message(row: tuple[Any, ...]) -> StoredMessage:
    """The message of a row of `read_messages`, with its content."""
    return read_record(row[:13], read_content(row))


def _check(written: int, sum_up: Callable[..., int], values: tuple[Any, ...], key: int) -> None:
    """Raise RowDamaged unless a checksum is that of these values."""
    try:
        is_sound = sum_up(*values) == written
    except UNSUMMABLE:
        is_sound = False
    if not is_sound:
        raise RowDamaged(f"the message {key % PLACE_STEP}")


def _unpack_content(applied: bytes, envelope: bytes, body: Blob) -> Content:
    if not envelope:
        content = Incoming.parse(body).content
        if applied:
            content.application_properties_bytes, content.as_it_came = applied, False
        return content
    (number, flags, priority, ttl_ms, hops, *lengths, _) = _ENVELOPE.unpack_from(envelope)
    parts, at = [], _ENVELOPE.size
    for length in lengths:
        end = at + max(0, length)
        parts.append(envelope[at:end])
        at = end
    name, partition, source, annotations, properties = parts
    durable, first_acquirer = _unpack_flags(flags)
    return Content(
        number,
        name.decode(),
        None if lengths[1] < 0 else partition.decode(),
        durable,
        None if priority < 0 else priority,
        None if ttl_ms < 0 else ttl_ms,
        first_acquirer,
        annotations,
        properties,
        applied,
        body,
        source.decode() or None,
        hops,
    )


def _unpack_flags(flags: int) -> tuple[bool | None, bool | None]:
    second, first = divmod(flags + 1, 3)
    return (None, False, True)[first], (None, False, True)[second]


# Two fields of a header, durable and first acquirer, in a byte. Without the second it is -1, 0 or 1, as in
# stores that knew the first alone.
_FLAGS = {_unpack_flags(flags): flags for flags in range(-1, 8)}


def sealed(*values: Any) -> tuple[Any, ...]:
    """The values of a row that is no message's, and their checksum."""
    return *values, row_checksum(*values)


def unsealed(row: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    """The values of a row without their checksum, or RowDamaged."""
    if row[-1] != row_checksum(*row[:-1]):
        raise RowDamaged(f"{what} {row[:-1]!r:.200}")
    return row[:-1]


def entity_row(event: EntityPut) -> tuple[Any, ...]:
    """The row of an entity, in the order of `put_entity`."""
    settings = json.dumps(asdict(event.settings) | {"status": event.settings.status.value})
    times = event.created_at, event.updated_at, event.accessed_at
    return sealed(event.path, event.kind.value, settings, *times)


def read_entity(row: tuple[Any, ...]) -> EntityPut:
    """The event that would write a row of `read_entities`."""
    path, kind_name, settings_text, *times = unsealed(row, "the entity")
    kind, plain = EntityKind(kind_name), parse_json(settings_text)
    settings = _SETTINGS[kind](**{**plain, "status": EntityStatus(plain["status"])})
    return EntityPut(kind, path, settings, *times)


def rule_row(event: RulePut) -> tuple[Any, ...]:
    """The row of a rule, in the order of `put_rule`."""
    return sealed(event.path, event.rule.name.lower(), json.dumps(event.rule.to_dict()))


def read_rule(row: tuple[Any, ...]) -> RulePut:
    """The event that would write a row of `read_rules`."""
    path, _, plain = unsealed(row, "the rule")
    return RulePut(path, Rule.from_dict(parse_json(plain)))


def read_place(row: tuple[Any, ...]) -> tuple[int, SequenceAdvanced]:
    """The number of a place, and the event that would write its row."""
    number, path, sequence_number = unsealed(row, "the place")
    return number, SequenceAdvanced(path, sequence_number)


def read_duplicate(row: tuple[Any, ...], paths: Mapping[int, str]) -> DuplicateSeen:
    """The event that would write a row of `read_duplicates`."""
    place, message_id, until = unsealed(row, "the seen message id")
    return DuplicateSeen(paths[place], message_id, until)


def read_session_state(row: tuple[Any, ...], paths: Mapping[int, str]) -> SessionStateSet:
    """The event that would write a row of `read_session_states`."""
    place, session_id, state, updated_at = unsealed(row, "the session state")
    return SessionStateSet(paths[place], session_id, state, updated_at)

"""Rows of a store, and the records of the engine that they stand for. A row has a checksum: whoever reads it
finds out whether it is as it was written.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from struct import error as StructError
from typing import Any

from pairbus.broker.engine.events import (
    DuplicateSeen,
    EntityKind,
    EntityPut,
    MessageChanged,
    RulePut,
    SequenceAdvanced,
    SessionStateSet,
)
from pairbus.broker.engine.message import MessageState, StoredMessage
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.errors import PairbusError
from pairbus.plumbing.json_text import parse_json

from .checksums import change_checksum, message_checksum, row_checksum

# The numbers of places are this far apart. A message's key is its place's number and its sequence number in
# one: 17 million million messages a place, half a million places.
PLACE_STEP = 1 << 44
# The keys of all their messages are within the 63 bits of SQLite. The first place has the number of one step.
MOST_PLACES = (1 << 63) // PLACE_STEP - 1
# Python looks for an adapter for every `bytes` that it binds, and for no `bytearray`; up to about this length
# a copy is quicker than the search.
_COPY_LIMIT = 8192
_NEVER = math.inf
_NOT_SCHEDULED = -math.inf
_SETTINGS = {
    EntityKind.QUEUE: QueueSettings,
    EntityKind.TOPIC: TopicSettings,
    EntityKind.SUBSCRIPTION: SubscriptionSettings,
}


#: How many values a row of a message has.
MESSAGE_COLUMNS = 24


class RowDamaged(PairbusError):
    """A row is not as it was written. The text says which one, as far as that can be told."""


def message_row(key: int, message: StoredMessage, turn: int, total: int) -> tuple[Any, ...]:
    """The row of a message, in the order of `put_message`."""
    body = message.body_bytes
    expires_at, scheduled_for = message.expires_at, message.scheduled_for
    durable, priority, ttl_ms = message.durable, message.priority, message.ttl_ms
    ends = _NEVER if expires_at is None else expires_at
    begins = _NOT_SCHEDULED if scheduled_for is None else scheduled_for
    lasting = -1 if durable is None else int(durable)
    urgent = -1 if priority is None else int(priority)
    life = -1 if ttl_ms is None else int(ttl_ms)
    annotations = bytearray(message.annotations_bytes)
    properties = bytearray(message.properties_bytes)
    source = message.dead_letter_source or ""
    state, applied = int(message.state), bytearray(message.application_properties_bytes)
    checksum = message_checksum(
        key,
        turn,
        total,
        message.enqueued_sequence_number,
        message.enqueued_at,
        ends,
        begins,
        message.message_id,
        message.session_id,
        message.partition_key,
        lasting,
        urgent,
        life,
        annotations,
        properties,
        body,
        source,
        message.hops,
    )
    return (
        key,
        turn,
        total,
        checksum,
        change_checksum(key, state, message.delivery_count, message.size, applied),
        state,
        message.delivery_count,
        message.size,
        message.enqueued_sequence_number,
        message.enqueued_at,
        ends,
        begins,
        message.message_id,
        message.session_id,
        message.partition_key,
        lasting,
        urgent,
        life,
        message.hops,
        source,
        annotations,
        properties,
        applied,
        bytearray(body) if len(body) <= _COPY_LIMIT else body,
    )


def change_row(key: int, event: MessageChanged) -> tuple[Any, ...]:
    """What has changed of a message, in the order of `change_message`."""
    state, properties = int(event.state), bytearray(event.application_properties_bytes)
    checksum = change_checksum(key, state, event.delivery_count, event.size, properties)
    return state, event.delivery_count, properties, event.size, checksum, key


def read_message(row: tuple[Any, ...]) -> StoredMessage:
    """The message of a row of `read_messages`."""
    (
        key,
        turn,
        total,
        checksum,
        changed,
        state,
        delivery_count,
        size,
        enqueued,
        enqueued_at,
        expires_at,
        scheduled_for,
        message_id,
        session_id,
        partition_key,
        durable,
        priority,
        ttl_ms,
        hops,
        source,
        annotations,
        properties,
        applied,
        body,
    ) = row
    try:
        is_whole = changed == change_checksum(key, state, delivery_count, size, applied) and (
            checksum
            == message_checksum(
                key,
                turn,
                total,
                enqueued,
                enqueued_at,
                expires_at,
                scheduled_for,
                message_id,
                session_id,
                partition_key,
                durable,
                priority,
                ttl_ms,
                annotations,
                properties,
                body,
                source,
                hops,
            )
        )
    except (TypeError, ValueError, StructError):  # values of other types than were written
        is_whole = False
    if not is_whole:
        raise RowDamaged(f"the message with the id {message_id!r}")
    return StoredMessage(
        key % PLACE_STEP,
        enqueued,
        enqueued_at,
        None if expires_at == _NEVER else expires_at,
        None if scheduled_for == _NOT_SCHEDULED else scheduled_for,
        MessageState(state),
        delivery_count,
        message_id,
        session_id,
        partition_key,
        None if durable < 0 else bool(durable),
        None if priority < 0 else priority,
        None if ttl_ms < 0 else ttl_ms,
        annotations,
        properties,
        applied,
        body,
        size,
        source or None,
        hops,
    )


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

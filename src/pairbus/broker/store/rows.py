"""Rows of a store, and the records of the engine that they stand for."""

import json
import math
from dataclasses import asdict
from typing import Any

from pairbus.amqp.codec import decode, encode
from pairbus.broker.engine.events import EntityKind, EntityPut, MessageChanged, RulePut
from pairbus.broker.engine.message import MessageState, StoredMessage
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings, TopicSettings

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
_EMPTY = bytearray()
_SETTINGS = {
    EntityKind.QUEUE: QueueSettings,
    EntityKind.TOPIC: TopicSettings,
    EntityKind.SUBSCRIPTION: SubscriptionSettings,
}


def message_row(key: int, message: StoredMessage) -> tuple[Any, ...]:
    """The row of a message, in the order of `put_message`."""
    body = message.body_bytes
    expires_at, scheduled_for = message.expires_at, message.scheduled_for
    durable, priority, ttl_ms = message.durable, message.priority, message.ttl_ms
    return (
        key,
        int(message.state),
        message.delivery_count,
        message.enqueued_sequence_number,
        message.enqueued_at,
        _NEVER if expires_at is None else expires_at,
        _NOT_SCHEDULED if scheduled_for is None else scheduled_for,
        message.message_id,
        message.session_id,
        message.partition_key,
        -1 if durable is None else int(durable),
        -1 if priority is None else int(priority),
        -1 if ttl_ms is None else int(ttl_ms),
        bytearray(encode(message.annotations)) if message.annotations else _EMPTY,
        bytearray(message.properties_bytes),
        bytearray(message.application_properties_bytes),
        bytearray(body) if len(body) <= _COPY_LIMIT else body,
        message.size,
        message.dead_letter_source or "",
        message.hops,
    )


def change_row(key: int, event: MessageChanged) -> tuple[Any, ...]:
    """What has changed of a message, in the order of `change_message`."""
    properties = bytearray(event.application_properties_bytes)
    return int(event.state), event.delivery_count, properties, event.size, key


def read_message(sequence_number: int, row: tuple[Any, ...]) -> StoredMessage:
    """The message of a row of `read_messages`."""
    _, state, delivery_count, enqueued, enqueued_at, expires_at, scheduled_for, message_id, *rest = row
    session_id, partition_key, durable, priority, ttl_ms, annotations, properties, applied, *tail = rest
    body, size, source, hops = tail
    return StoredMessage(
        sequence_number,
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
        decode(annotations)[0] if annotations else {},
        properties,
        applied,
        body,
        size,
        source or None,
        hops,
    )


def entity_row(event: EntityPut) -> tuple[Any, ...]:
    """The row of an entity, in the order of `put_entity`."""
    settings = json.dumps(asdict(event.settings) | {"status": event.settings.status.value})
    return event.path, event.kind.value, settings, event.created_at, event.updated_at, event.accessed_at


def read_entity(row: tuple[Any, ...]) -> EntityPut:
    """The event that would write a row of `read_entities`."""
    kind, plain = EntityKind(row[0]), json.loads(row[2])
    settings = _SETTINGS[kind](**{**plain, "status": EntityStatus(plain["status"])})
    return EntityPut(kind, row[1], settings, *row[3:])


def rule_row(event: RulePut) -> tuple[str, str, str]:
    """The row of a rule, in the order of `put_rule`."""
    return event.path, event.rule.name.lower(), json.dumps(event.rule.to_dict())


def read_rule(row: tuple[Any, ...]) -> RulePut:
    """The event that would write a row of `read_rules`."""
    path, plain = row
    return RulePut(path, Rule.from_dict(json.loads(plain)))

"""What happened, for a store to write down.

1. An event names its entity by canonical path. Sub-queues have paths of their own
   (`orders/$DeadLetterQueue`).
2. Every event but the removals says the whole new value of one row: writing it twice does no harm.
3. `MessageStored` holds the live record. A store that reads it at the end of a turn sees the record as it
   is then, and the later events of the same turn say the same again.
4. `EntityRemoved` takes with it everything under its path: messages, sub-queues, rules, session states,
   duplicate history, numbers. A topic's subscriptions are removed by events of their own before it.
5. Locks are not written: they end with the process.
6. `MessagesLoaded` tells nothing new, and is written nowhere: it is how a store gives back what it has.

They are named tuples and not data classes because one or two are made for every message, and a frozen data
class takes three times as long to make.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from .message import MessageState, StoredMessage
from .rules import Rule
from .settings import QueueSettings, SubscriptionSettings, TopicSettings


class EntityKind(enum.Enum):
    """What an entity is."""

    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


class EntityPut(NamedTuple):
    """An entity was created or updated. A subscription's path is `topic/Subscriptions/name`."""

    kind: EntityKind
    path: str
    settings: QueueSettings | TopicSettings | SubscriptionSettings
    created_at: float
    updated_at: float
    accessed_at: float


class EntityRemoved(NamedTuple):
    """An entity is gone with all that is under its path."""

    path: str


class RulePut(NamedTuple):
    """A rule of a subscription was created or updated."""

    path: str
    rule: Rule


class RuleRemoved(NamedTuple):
    """A rule of a subscription is gone."""

    path: str
    name: str


class MessageStored(NamedTuple):
    """A message is in a queue, or waits in a topic for its time."""

    queue: str
    message: StoredMessage


class MessagesLoaded(NamedTuple):
    """Messages that a store has of a queue, and nobody else, in the order of their numbers."""

    queue: str
    messages: Sequence[StoredMessage]


class MessageChanged(NamedTuple):
    """What can change of a message, as it is now: its application properties only if it has others."""

    queue: str
    sequence_number: int
    state: MessageState
    delivery_count: int
    application_properties_bytes: bytes | None
    size: int
    #: The live record, if its content is another one.
    changed: StoredMessage | None = None

    @classmethod
    def of(cls, queue: str, message: StoredMessage, *, changed: bool) -> MessageChanged:
        """The event that tells of a message as it is; `changed`: its properties are others than before."""
        number, state, count, size = (
            message.sequence_number,
            message.state,
            message.delivery_count,
            message.size,
        )
        if not changed:
            return cls(queue, number, state, count, None, size)
        return cls(queue, number, state, count, message.application_properties_bytes, size, message)


class MessageRemoved(NamedTuple):
    """A message has left a queue."""

    queue: str
    sequence_number: int


class SessionStateSet(NamedTuple):
    """The state of a session; None clears it."""

    queue: str
    session_id: str
    state: bytes | None
    updated_at: float = 0.0


class DuplicateSeen(NamedTuple):
    """A message id that is a duplicate until then."""

    queue: str
    message_id: str
    until: float


class DuplicateForgotten(NamedTuple):
    """The ids whose time was over by then are forgotten, all of them."""

    queue: str
    until: float


class SequenceAdvanced(NamedTuple):
    """The last number that an entity has given out."""

    queue: str
    sequence_number: int


EngineEvent: TypeAlias = (
    EntityPut
    | EntityRemoved
    | RulePut
    | RuleRemoved
    | MessageStored
    | MessagesLoaded
    | MessageChanged
    | MessageRemoved
    | SessionStateSet
    | DuplicateSeen
    | DuplicateForgotten
    | SequenceAdvanced
)

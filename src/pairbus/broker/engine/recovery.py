"""From events back to entities.

1. `Recovery.apply` does what an event says and tells nobody: no checks, no events. Events of a log and
   rows of a store are the same to it.
2. A message comes back unlocked. The record of an event is copied, since its owner may live on; but not those
   that a store has loaded for this.
"""

from collections.abc import Callable
from typing import Any

from . import events
from .directory import Directory
from .queue import MessageQueue
from .settings import QueueSettings, SubscriptionSettings, TopicSettings
from .subscription import Subscription
from .topic import Topic


class Recovery:
    """Applies events to a namespace. `build` makes an entity from its event and `drop` removes one."""

    def __init__(
        self,
        directory: Directory,
        *,
        build: Callable[[events.EntityPut], MessageQueue | Topic],
        drop: Callable[[MessageQueue | Topic], None],
    ) -> None:
        self._directory = directory
        self._build = build
        self._drop = drop
        self._ways: dict[type, Callable[[Any], None]] = {
            events.EntityPut: self._put_entity,
            events.EntityRemoved: self._remove_entity,
            events.RulePut: self._put_rule,
            events.RuleRemoved: self._remove_rule,
            events.MessageStored: self._store_message,
            events.MessagesLoaded: self._load_messages,
            events.MessageChanged: self._change_message,
            events.MessageRemoved: self._remove_message,
            events.SessionStateSet: self._set_session_state,
            events.DuplicateSeen: self._see_duplicate,
            events.DuplicateForgotten: self._forget_duplicates,
            events.SequenceAdvanced: self._advance,
        }

    def apply(self, event: events.EngineEvent) -> None:
        """Do what the event says."""
        self._ways[type(event)](event)

    def _put_entity(self, event: events.EntityPut) -> None:
        entity = self._directory.find(event.path)
        if entity is None:
            entity = self._build(event)
        entity.configure(event.settings, event.updated_at)
        entity.created_at = event.created_at
        entity.accessed_at = max(event.accessed_at, entity.accessed_at)

    def _remove_entity(self, event: events.EntityRemoved) -> None:
        entity = self._directory.find(event.path)
        if entity is not None:
            self._drop(entity)

    def _put_rule(self, event: events.RulePut) -> None:
        self._subscription(event.path).put_rule(event.rule)

    def _remove_rule(self, event: events.RuleRemoved) -> None:
        subscription = self._subscription(event.path)
        if subscription.find_rule(event.name) is not None:
            subscription.remove_rule(event.name)

    def _store_message(self, event: events.MessageStored) -> None:
        entity, message = self._directory.node(event.queue), event.message
        if entity.table.get(message.sequence_number) is not None:
            entity.forget(message.sequence_number)
        entity.restore(message.copy(message.sequence_number))

    def _load_messages(self, event: events.MessagesLoaded) -> None:
        self._directory.node(event.queue).restore_all(event.messages)

    def _change_message(self, event: events.MessageChanged) -> None:
        entity = self._directory.node(event.queue)
        message = entity.table.get(event.sequence_number)
        if message is None:
            return
        entity.forget(event.sequence_number)
        message.state = event.state
        message.delivery_count = event.delivery_count
        message.size = event.size
        if event.application_properties_bytes is not None:
            message.held = message.content.copy()
            message.application_properties_bytes = event.application_properties_bytes
        entity.restore(message)

    def _remove_message(self, event: events.MessageRemoved) -> None:
        self._directory.node(event.queue).forget(event.sequence_number)

    def _set_session_state(self, event: events.SessionStateSet) -> None:
        queue = self._directory.node(event.queue)
        if isinstance(queue, MessageQueue):
            queue.restore_session_state(event.session_id, event.state, event.updated_at)

    def _see_duplicate(self, event: events.DuplicateSeen) -> None:
        history = self._directory.node(event.queue).duplicates
        if history is not None:
            history.keep(event.message_id, event.until)

    def _forget_duplicates(self, event: events.DuplicateForgotten) -> None:
        history = self._directory.node(event.queue).duplicates
        if history is not None:
            history.forget(event.until)

    def _advance(self, event: events.SequenceAdvanced) -> None:
        entity = self._directory.node(event.queue)
        entity.last_sequence = max(entity.last_sequence, event.sequence_number)

    def _subscription(self, path: str) -> Subscription:
        node = self._directory.node(path)
        assert isinstance(node, Subscription)
        return node


def describe(entity: MessageQueue | Topic) -> events.EntityPut:
    """The event that tells of an entity as it is."""
    kind = events.EntityKind.QUEUE
    if isinstance(entity, Topic):
        kind = events.EntityKind.TOPIC
    elif isinstance(entity, Subscription):
        kind = events.EntityKind.SUBSCRIPTION
    settings = entity.settings
    assert isinstance(settings, QueueSettings | TopicSettings | SubscriptionSettings)
    return events.EntityPut(
        kind, entity.path, settings, entity.created_at, entity.updated_at, entity.accessed_at
    )

"""The rows that a complete store would hold of a namespace: what `replay` has to make the same of."""

from collections.abc import Iterator

from pairbus.broker.engine.entity import Entity
from pairbus.broker.engine.events import (
    DuplicateSeen,
    EngineEvent,
    MessageStored,
    RulePut,
    SequenceAdvanced,
    SessionStateSet,
)
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.recovery import describe


def snapshot(space: Namespace) -> Iterator[EngineEvent]:
    """The events that make everything as it is now, locks aside: an entity before what is in it."""
    for queue in space.list_queues():
        yield describe(queue)
        yield from _contents(queue)
    for topic in space.list_topics():
        yield describe(topic)
        yield from _contents(topic)
        for subscription in topic.subscriptions:
            yield describe(subscription)
            for rule in subscription.rules:
                yield RulePut(subscription.path, rule)
            yield from _contents(subscription)


def _contents(entity: Entity) -> Iterator[EngineEvent]:
    if entity.last_sequence:
        yield SequenceAdvanced(entity.path, entity.last_sequence)
    if entity.duplicates is not None:
        for message_id, until in entity.duplicates.entries():
            yield DuplicateSeen(entity.path, message_id, until)
    for message in entity.table.since(0):
        yield MessageStored(entity.path, message)
    if isinstance(entity, MessageQueue):
        for session in entity.sessions or ():
            if session.state is not None:
                yield SessionStateSet(entity.path, session.session_id, session.state, session.updated_at)
        for queue in entity.sub_queues():
            yield from _contents(queue)

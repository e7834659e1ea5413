"""Everything of a namespace that a client could see, as plain values to compare."""

from typing import Any

from pairbus.broker.engine.deadlines import NEVER, Deadlines
from pairbus.broker.engine.entity import Entity
from pairbus.broker.engine.message import Content, MessageState, StoredMessage
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.sessions import MessageSession
from pairbus.broker.engine.subscription import Subscription

UNSEEN = {"held", "lock_token", "locked_until"}
#: What a content tells, however it holds the body.
TOLD = sorted({*Content.__slots__, "body"} - {"whole", "body_at", "as_it_came"})


def observe(space: Namespace) -> dict[str, Any]:
    """All entities with their settings, rules, messages, sessions and histories; locks aside."""
    seen: dict[str, Any] = {}
    for queue in space.list_queues():
        _observe_queue(seen, queue)
    for topic in space.list_topics():
        seen[topic.path] = _observe_entity(topic)
        for subscription in topic.subscriptions:
            _observe_queue(seen, subscription)
    return seen


def _observe_queue(seen: dict[str, Any], queue: MessageQueue) -> None:
    for each in (queue, *queue.sub_queues()):
        seen[each.path] = _observe_entity(each)
        seen[each.path]["counts"] = each.counts()
    sessions = queue.sessions or ()
    seen[queue.path]["states"] = {each.session_id: each.state for each in sessions if each.state is not None}
    seen[queue.path]["waiting"] = sorted(each.session_id for each in sessions if each.table.count)
    if isinstance(queue, Subscription):
        seen[queue.path]["rules"] = queue.rules


def _observe_entity(entity: Entity) -> dict[str, Any]:
    return {
        "settings": entity.settings,
        "times": (entity.created_at, entity.updated_at),
        "size": entity.size_bytes,
        "remembered": entity.space.remembered,
        "last": entity.last_sequence,
        "messages": [_observe_message(each) for each in entity.table.since(0)],
        "duplicates": None if entity.duplicates is None else sorted(entity.duplicates.entries()),
    }


def _observe_message(message: StoredMessage) -> dict[str, Any]:
    content = message.content
    seen = {name: getattr(message, name) for name in StoredMessage.__slots__ if name not in UNSEEN}
    return seen | {name: getattr(content, name) for name in TOLD}


def check_books(space: Namespace) -> None:
    """The engine's counters say what its tables hold."""
    for queue in space.list_queues():
        _check_queue(queue)
        assert queue.size_bytes == queue.stored_bytes()
    for topic in space.list_topics():
        _check_schedule(topic)
        parts = sum(each.stored_bytes() for each in topic.subscriptions)
        assert topic.size_bytes == parts + sum(each.size for each in topic.table.since(0))
        assert topic.scheduled_count == len(topic.table)
        for subscription in topic.subscriptions:
            _check_queue(subscription)


def _check_queue(queue: MessageQueue) -> None:
    for each in (queue, *queue.sub_queues()):
        states = [message.state for message in each.table.since(0)]
        assert each._stock.active_count == states.count(MessageState.ACTIVE)
        assert each._stock.deferred_count == states.count(MessageState.DEFERRED)
        assert each.scheduled_count == states.count(MessageState.SCHEDULED)
        assert len(each._locks) == sum(message.lock_token is not None for message in each.table.since(0))
        _check_schedule(each)
        _check_deadlines(each)
    if queue.sessions is not None:
        assert sum(session.table.count for session in queue.sessions) == queue.table.count
        for session in queue.sessions:
            _check_session(queue, session)


def _check_schedule(entity: Entity) -> None:
    held = [each for each in entity.table.since(0) if each.state is MessageState.SCHEDULED]
    due = {each.sequence_number: each.scheduled_for for each in held}
    assert _noted(entity._schedule._deadlines) == due
    assert entity.alarm.at <= min((when for when in due.values() if when is not None), default=NEVER)


def _check_deadlines(queue: MessageQueue) -> None:
    """What waits is in line, once, and will expire; whoever is to be woken for it will be."""
    messages = {each.sequence_number: each for each in queue.table.since(0)}
    waiting = [number for number in messages if queue._stock.is_waiting(number)]
    ends = {number: each.expires_at for number, each in messages.items() if each.expires_at is not None}
    noted = _noted(queue._stock._expiries)
    assert noted.items() <= ends.items()
    assert {number for number in waiting if number in ends} <= noted.keys()
    locks: dict[Any, float] = {}
    if queue.sessions is None:
        assert [number for number in queue._stock.line.ahead() if number in set(waiting)] == waiting
        locks = {
            number: each.locked_until for number, each in messages.items() if each.lock_token is not None
        }
        assert _noted(queue._locks._ends) == locks
    else:
        locks = {each.session_id: each.lock.locked_until for each in queue.sessions if each.lock is not None}
        assert _noted(queue.sessions._ends) == locks
    assert queue.alarm.at <= min([*noted.values(), *locks.values()], default=NEVER)


def _noted(deadlines: Deadlines[Any]) -> dict[Any, float]:
    """What is due when."""
    found = dict(deadlines._opened)
    for second, bucket in deadlines._buckets.items():
        assert second in deadlines._seconds
        assert not found.keys() & bucket.keys()
        found |= bucket
    assert {(when, key) for key, when in deadlines._opened.items()} <= set(deadlines._heap)
    return found


def _check_session(queue: MessageQueue, session: MessageSession) -> None:
    assert queue.sessions is not None
    messages = list(session.table.since(0))
    waiting = [each for each in messages if each.state is MessageState.ACTIVE and each.lock_token is None]
    assert session.waiting == len(waiting)
    numbers = [each.sequence_number for each in waiting]
    assert [number for number in session.line.ahead() if number in set(numbers)] == numbers
    assert (session.session_id in queue.sessions._available) is bool(waiting and session.lock is None)
    assert list(session.held.values()) == [
        each for each in session.held.values() if each.lock_token is not None
    ]
    assert len(session.held) == sum(each.lock_token is not None for each in messages)
    assert messages or session.lock is not None or session.state is not None

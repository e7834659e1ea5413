"""Queues and topics, which share one space of names."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from pairbus.broker.engine.errors import EntityMissing, Refused
from pairbus.broker.engine.filters import CorrelationFilter
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.settings import EntitySettings, QueueSettings, TopicSettings
from pairbus.broker.engine.topic import Topic
from pairbus.conditions import NOT_FOUND

from .atom import AtomEntry
from .authorization import describe_authorization, read_authorization
from .call import AdminCall
from .description import describe_queue, describe_topic
from .errors import AdminRefused
from .exchange import Response
from .markup import XmlNode
from .settings import read_settings, size_of_one_partition

SendableSettings = TypeVar("SendableSettings", QueueSettings, TopicSettings)
# The first version that tells of filters.
_FILTER_COUNTS_SINCE = "2024-05"


def get_entity(call: AdminCall) -> Response:
    found = _find(call)
    return call.reply_nothing() if found is None else call.reply(_entry(call, found))


def put_entity(call: AdminCall) -> Response:
    description = call.description("QueueDescription", "TopicDescription")
    found = _find(call)
    if call.is_update:
        return call.reply(_entry(call, _update(call, found, description)))
    if found is not None:
        name = call.address.entity
        raise AdminRefused(409, f"The messaging entity '{name}' already exists; update it with If-Match: *.")
    return call.reply(_entry(call, _create(call, description)), created=True)


def delete_entity(call: AdminCall) -> Response:
    found = _find(call)
    if isinstance(found, Topic):
        call.namespace.delete_topic(found.path, call.now)
    else:
        call.namespace.delete_queue(call.address.entity, call.now)
    return Response(200)


def list_queues(call: AdminCall) -> Response:
    return _list(call, call.namespace.list_queues(), "Queues")


def list_topics(call: AdminCall) -> Response:
    return _list(call, call.namespace.list_topics(), "Topics")


def _list(call: AdminCall, found: Sequence[MessageQueue | Topic], title: str) -> Response:
    path = f"$Resources/{title.lower()}"
    return call.reply_page(found, lambda each: _entry(call, each), path=path, title=title)


def _find(call: AdminCall) -> MessageQueue | Topic | None:
    for look in (call.namespace.get_queue, call.namespace.get_topic):
        try:
            return look(call.address.entity)
        except Refused as refused:
            if refused.condition != NOT_FOUND:
                raise
    return None


def _create(call: AdminCall, description: XmlNode) -> MessageQueue | Topic:
    name = call.address.entity
    if description.name == "TopicDescription":
        return call.namespace.create_topic(name, _settings(call, TopicSettings, description), call.now)
    settings = _settings(call, QueueSettings, description)
    call.check_forwarding(settings)
    return call.namespace.create_queue(name, settings, call.now)


def _update(
    call: AdminCall, found: MessageQueue | Topic | None, description: XmlNode
) -> MessageQueue | Topic:
    name = call.address.entity
    if found is None:
        raise EntityMissing(name)
    wanted = "TopicDescription" if isinstance(found, Topic) else "QueueDescription"
    if description.name != wanted:
        kind = wanted.removesuffix("Description").lower()
        raise AdminRefused(400, f"'{name}' is a {kind}; send a {wanted}.")
    if isinstance(found, Topic):
        settings = _settings(call, TopicSettings, description, found.settings)
        return call.namespace.update_topic(found.path, settings, call.now)
    changed = _settings(call, QueueSettings, description, found.settings)
    call.check_forwarding(changed, found.settings)
    return call.namespace.update_queue(found.path, changed, call.now)


def _entry(call: AdminCall, entity: MessageQueue | Topic) -> AtomEntry:
    settings, limits = entity.settings, call.namespace.limits
    assert isinstance(settings, QueueSettings | TopicSettings)
    rules = describe_authorization(settings.authorization_rules)
    if isinstance(entity, Topic):
        filters = _filter_counts(call, entity)
        described = describe_topic(entity, limits=limits, filters=filters, authorization=rules)
    else:
        described = describe_queue(entity, limits=limits, authorization=rules)
    return AtomEntry(entity.path, entity.path, described, entity.created_at, entity.updated_at)


def _filter_counts(call: AdminCall, topic: Topic) -> dict[str, int]:
    if call.origin.api_version < _FILTER_COUNTS_SINCE:
        return {}
    filters = [rule.filter for subscription in topic.subscriptions for rule in subscription.rules]
    correlation = sum(isinstance(each, CorrelationFilter) for each in filters)
    return {"SqlFilterCount": len(filters) - correlation, "CorrelationFilterCount": correlation}


def _settings(
    call: AdminCall,
    kind: type[SendableSettings],
    description: XmlNode,
    current: EntitySettings | None = None,
) -> SendableSettings:
    settings = size_of_one_partition(read_settings(kind, description, current), call.namespace.limits)
    return replace(settings, authorization_rules=read_authorization(description))

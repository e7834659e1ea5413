"""Queues and topics, which share one space of names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from pairbus.broker.engine.errors import Refused, not_found
from pairbus.broker.engine.filters import CorrelationFilter
from pairbus.broker.engine.namespace import Namespace
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


class Entities:
    """What can be done with queues and topics."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def get(self, call: AdminCall) -> Response:
        found = self._find(call.address.entity)
        return call.reply_nothing() if found is None else call.reply(self._entry(found, call))

    def put(self, call: AdminCall) -> Response:
        description = call.description("QueueDescription", "TopicDescription")
        name = call.address.entity
        found = self._find(name)
        if not call.is_update and found is not None:
            raise AdminRefused(
                409, f"The messaging entity '{name}' already exists; update it with If-Match: *."
            )
        if call.is_update:
            entity = self._update(name, found, description, call)
        else:
            entity = self._create(name, description, call)
        return call.reply(self._entry(entity, call), created=not call.is_update)

    def delete(self, call: AdminCall) -> Response:
        found = self._find(call.address.entity)
        if isinstance(found, Topic):
            self._namespace.delete_topic(found.path, call.now)
        else:
            self._namespace.delete_queue(call.address.entity, call.now)
        return Response(200)

    def list_queues(self, call: AdminCall) -> Response:
        return self._list(self._namespace.list_queues(), "Queues", call)

    def list_topics(self, call: AdminCall) -> Response:
        return self._list(self._namespace.list_topics(), "Topics", call)

    def _list(self, found: Sequence[MessageQueue | Topic], title: str, call: AdminCall) -> Response:
        path = f"$Resources/{title.lower()}"
        return call.reply_page(found, lambda each: self._entry(each, call), path=path, title=title)

    def _find(self, name: str) -> MessageQueue | Topic | None:
        for look in (self._namespace.get_queue, self._namespace.get_topic):
            try:
                return look(name)
            except Refused as refused:
                if refused.condition != NOT_FOUND:
                    raise
        return None

    def _create(self, name: str, description: XmlNode, call: AdminCall) -> MessageQueue | Topic:
        if description.name == "QueueDescription":
            settings = self._settings(QueueSettings, description)
            call.check_forwarding(settings)
            return self._namespace.create_queue(name, settings, call.now)
        return self._namespace.create_topic(name, self._settings(TopicSettings, description), call.now)

    def _update(
        self, name: str, found: MessageQueue | Topic | None, description: XmlNode, call: AdminCall
    ) -> MessageQueue | Topic:
        if found is None:
            raise not_found(name)
        wanted = "TopicDescription" if isinstance(found, Topic) else "QueueDescription"
        if description.name != wanted:
            raise AdminRefused(
                400, f"'{name}' is a {wanted.removesuffix('Description').lower()}; send a {wanted}."
            )
        if isinstance(found, Topic):
            settings = self._settings(TopicSettings, description, found.settings)
            return self._namespace.update_topic(found.path, settings, call.now)
        changed = self._settings(QueueSettings, description, found.settings)
        call.check_forwarding(changed, found.settings)
        return self._namespace.update_queue(found.path, changed, call.now)

    def _entry(self, entity: MessageQueue | Topic, call: AdminCall) -> AtomEntry:
        settings, limits = entity.settings, self._namespace.limits
        assert isinstance(settings, QueueSettings | TopicSettings)
        rules = describe_authorization(settings.authorization_rules)
        if isinstance(entity, Topic):
            filters = self._filter_counts(entity, call)
            described = describe_topic(entity, limits=limits, filters=filters, authorization=rules)
        else:
            described = describe_queue(entity, limits=limits, authorization=rules)
        return AtomEntry(
            path=entity.path,
            title=entity.path,
            description=described,
            created_at=entity.created_at,
            updated_at=entity.updated_at,
        )

    @staticmethod
    def _filter_counts(topic: Topic, call: AdminCall) -> dict[str, int]:
        if call.origin.api_version < _FILTER_COUNTS_SINCE:
            return {}
        filters = [rule.filter for subscription in topic.subscriptions for rule in subscription.rules]
        correlation = sum(isinstance(each, CorrelationFilter) for each in filters)
        return {"SqlFilterCount": len(filters) - correlation, "CorrelationFilterCount": correlation}

    def _settings(
        self, kind: type[SendableSettings], description: XmlNode, current: EntitySettings | None = None
    ) -> SendableSettings:
        settings = size_of_one_partition(read_settings(kind, description, current), self._namespace.limits)
        return replace(settings, authorization_rules=read_authorization(description))

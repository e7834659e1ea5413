"""Subscriptions of a topic, and their rules."""

from __future__ import annotations

from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import SubscriptionSettings
from pairbus.broker.engine.subscription import Subscription

from .atom import AtomEntry
from .call import AdminCall
from .description import describe_subscription
from .exchange import Response
from .rules import describe_rule, read_rule
from .settings import read_settings


class Subscriptions:
    """What can be done with subscriptions."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def get(self, call: AdminCall) -> Response:
        found = self._namespace.get_subscription(call.address.entity, call.address.subscription)
        return call.reply(self._entry(found, call))

    def put(self, call: AdminCall) -> Response:
        description = call.description("SubscriptionDescription")
        topic, name = call.address.entity, call.address.subscription
        if call.is_update:
            current = self._namespace.get_subscription(topic, name).settings
            settings = read_settings(SubscriptionSettings, description, current)
            call.check_forwarding(settings, current)
            return call.reply(
                self._entry(self._namespace.update_subscription(topic, name, settings, call.now), call)
            )
        settings = read_settings(SubscriptionSettings, description)
        call.check_forwarding(settings)
        given = description.find("DefaultRuleDescription")
        rule = Rule(created_at=call.now) if given is None else read_rule(given, created_at=call.now)
        created = self._namespace.create_subscription(topic, name, settings, call.now, rule=rule)
        return call.reply(self._entry(created, call), created=True)

    def delete(self, call: AdminCall) -> Response:
        self._namespace.delete_subscription(call.address.entity, call.address.subscription, call.now)
        return Response(200)

    def list(self, call: AdminCall) -> Response:
        topic = self._namespace.get_topic(call.address.entity)
        path = f"{topic.path}/Subscriptions"
        return call.reply_page(
            topic.subscriptions, lambda each: self._entry(each, call), path=path, title="Subscriptions"
        )

    def _entry(self, subscription: Subscription, call: AdminCall) -> AtomEntry:
        return AtomEntry(
            path=subscription.path,
            title=subscription.name,
            description=describe_subscription(subscription),
            created_at=subscription.created_at,
            updated_at=subscription.updated_at,
        )


class Rules:
    """What can be done with the rules of a subscription."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def get(self, call: AdminCall) -> Response:
        subscription = self._subscription(call)
        return call.reply(self._entry(subscription, subscription.get_rule(call.address.rule)))

    def put(self, call: AdminCall) -> Response:
        description = call.description("RuleDescription")
        subscription = self._subscription(call)
        at = call.address
        if call.is_update:
            current = subscription.get_rule(at.rule)
            rule = read_rule(description, name=current.name, created_at=current.created_at)
            self._namespace.update_rule(at.entity, at.subscription, rule, call.now)
        else:
            rule = read_rule(description, name=at.rule, created_at=call.now)
            self._namespace.create_rule(at.entity, at.subscription, rule, call.now)
        return call.reply(self._entry(subscription, rule), created=not call.is_update)

    def delete(self, call: AdminCall) -> Response:
        at = call.address
        self._namespace.delete_rule(at.entity, at.subscription, at.rule, call.now)
        return Response(200)

    def list(self, call: AdminCall) -> Response:
        found = self._subscription(call)
        path = f"{found.path}/Rules"
        return call.reply_page(found.rules, lambda rule: self._entry(found, rule), path=path, title="Rules")

    def _subscription(self, call: AdminCall) -> Subscription:
        return self._namespace.get_subscription(call.address.entity, call.address.subscription)

    def _entry(self, subscription: Subscription, rule: Rule) -> AtomEntry:
        return AtomEntry(
            path=f"{subscription.path}/Rules/{rule.name}",
            title=rule.name,
            description=describe_rule(rule),
            created_at=rule.created_at,
            updated_at=rule.created_at,
        )

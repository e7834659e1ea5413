"""Subscriptions of a topic, and their rules."""

from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import SubscriptionSettings
from pairbus.broker.engine.subscription import Subscription

from .atom import AtomEntry
from .call import AdminCall
from .description import describe_subscription
from .exchange import Response
from .rules import describe_rule, read_rule
from .settings import read_settings


def get_subscription(call: AdminCall) -> Response:
    return call.reply(_entry(_subscription(call)))


def put_subscription(call: AdminCall) -> Response:
    description = call.description("SubscriptionDescription")
    topic, name = call.address.entity, call.address.subscription
    current = _subscription(call).settings if call.is_update else None
    settings = read_settings(SubscriptionSettings, description, current)
    call.check_forwarding(settings, current)
    if call.is_update:
        return call.reply(_entry(call.namespace.update_subscription(topic, name, settings, call.now)))
    given = description.find("DefaultRuleDescription")
    rule = Rule(created_at=call.now) if given is None else read_rule(given, created_at=call.now)
    created = call.namespace.create_subscription(topic, name, settings, call.now, rule=rule)
    return call.reply(_entry(created), created=True)


def delete_subscription(call: AdminCall) -> Response:
    call.namespace.delete_subscription(call.address.entity, call.address.subscription, call.now)
    return Response(200)


def list_subscriptions(call: AdminCall) -> Response:
    topic = call.namespace.get_topic(call.address.entity)
    path = f"{topic.path}/Subscriptions"
    return call.reply_page(topic.subscriptions, _entry, path=path, title="Subscriptions")


def get_rule(call: AdminCall) -> Response:
    subscription = _subscription(call)
    return call.reply(_rule_entry(subscription, subscription.get_rule(call.address.rule)))


def put_rule(call: AdminCall) -> Response:
    description = call.description("RuleDescription")
    subscription, at = _subscription(call), call.address
    if call.is_update:
        current = subscription.get_rule(at.rule)
        rule = read_rule(description, name=current.name, created_at=current.created_at)
        call.namespace.update_rule(at.entity, at.subscription, rule, call.now)
    else:
        rule = read_rule(description, name=at.rule, created_at=call.now)
        call.namespace.create_rule(at.entity, at.subscription, rule, call.now)
    return call.reply(_rule_entry(subscription, rule), created=not call.is_update)


def delete_rule(call: AdminCall) -> Response:
    at = call.address
    call.namespace.delete_rule(at.entity, at.subscription, at.rule, call.now)
    return Response(200)


def list_rules(call: AdminCall) -> Response:
    found = _subscription(call)
    path = f"{found.path}/Rules"
    return call.reply_page(found.rules, lambda rule: _rule_entry(found, rule), path=path, title="Rules")


def _subscription(call: AdminCall) -> Subscription:
    return call.namespace.get_subscription(call.address.entity, call.address.subscription)


def _entry(one: Subscription) -> AtomEntry:
    return AtomEntry(one.path, one.name, describe_subscription(one), one.created_at, one.updated_at)


def _rule_entry(subscription: Subscription, rule: Rule) -> AtomEntry:
    path = f"{subscription.path}/Rules/{rule.name}"
    return AtomEntry(path, rule.name, describe_rule(rule), rule.created_at, rule.created_at)

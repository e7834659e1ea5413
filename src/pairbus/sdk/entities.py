"""Entities through the official administration client, as plain values; its errors say what to mend."""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import SqlRuleAction, SqlRuleFilter

from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.plumbing.toml_tables import name_nearest, parse_value
from pairbus.words import DEFAULT_RULE

from .administration import TROUBLES, Trouble, describe_trouble, judge_trouble, with_advice
from .side import SdkSide

T = TypeVar("T")
_SUBSCRIPTION = re.compile(r"(.+)/subscriptions/([^/]+)(?:/rules/([^/]+))?", re.IGNORECASE)
# The longest duration that .NET knows stands for no end.
_FOR_EVER = timedelta(days=10_675_199)
# As the SDK writes one; weeks, months and years it does not know.
_DURATION = re.compile(r"P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
# What the rule of a subscription is called that was made with a filter.
_ONLY_RULE = "filter"
# What the SDK raises where there is no queue; where there is a topic it looks for a queue in its description.
_NO_QUEUE = (ResourceNotFoundError, AttributeError)
# Keywords of the SDK that are no settings of an entity.
_NO_SETTINGS = {"authorization_rules", "size_in_bytes"}


class EntityAddress:
    """What a path names: a queue or topic, a subscription, or a rule."""

    def __init__(self, path: str) -> None:
        self.path = path.strip("/")
        if not self.path:
            raise ConfigurationError(
                "the path is empty: write the name of a queue or topic, TOPIC/Subscriptions/NAME, or "
                "TOPIC/Subscriptions/NAME/Rules/RULE"
            )
        found = _SUBSCRIPTION.fullmatch(self.path)
        self.entity: str = found[1] if found else self.path
        self.subscription: str | None = found[2] if found else None
        self.rule: str | None = found[3] if found else None


async def administer(
    side: SdkSide,
    work: Callable[[ServiceBusAdministrationClient], Awaitable[T]],
    *,
    name: str,
    path: str = "",
) -> T:
    """Do something with an administration client of the namespace `name`, to the entity at `path`."""
    try:
        async with side.open_administration() as admin:
            return await work(admin)
    except ResourceNotFoundError:
        mend = "`pairbus entity ls` shows what there is"
        raise ConfigurationError(f"{name} has no entity {path!r}; {mend}") from None
    except ResourceExistsError:
        mend = "delete it first, or say --if-missing"
        raise ConfigurationError(f"{path} of {name} is there already; {mend}") from None
    except TROUBLES as error:
        trouble, told = judge_trouble(error), describe_trouble(error)
        if trouble is Trouble.REFUSED:
            raise ConfigurationError(f"{name} refuses: {told}") from None
        if trouble is Trouble.NOT_PERMITTED:
            mend = "is its key right, and has its policy the Manage claim?"
            raise UnreachableError(f"{name}: {told.rstrip('.')}; {mend}") from None
        raise UnreachableError(f"{name} does not answer: {with_advice(told)}") from None


async def list_entities(admin: ServiceBusAdministrationClient) -> list[dict[str, Any]]:
    """Queues, and topics each with its subscriptions, with their counts."""
    rows: list[dict[str, Any]] = []
    counts = {one.name: one async for one in admin.list_queues_runtime_properties()}
    async for queue in admin.list_queues():
        rows.append(_row("queue", queue.name, queue, counts.get(queue.name)))
    topics = {one.name: one async for one in admin.list_topics_runtime_properties()}
    async for topic in admin.list_topics():
        rows.append(_row("topic", topic.name, topic, topics.get(topic.name)))
        inner = {one.name: one async for one in admin.list_subscriptions_runtime_properties(topic.name)}
        async for subscription in admin.list_subscriptions(topic.name):
            path = f"{topic.name}/Subscriptions/{subscription.name}"
            rows.append(_row("subscription", path, subscription, inner.get(subscription.name)))
    return rows


def _row(kind: str, path: str, properties: Any, counts: Any) -> dict[str, Any]:
    return {"kind": kind, "path": path, "status": _plain(properties.status), **_counts(counts)}


def _counts(runtime: Any) -> dict[str, int]:
    names = ("active", "dead_letter", "scheduled", "transfer", "transfer_dead_letter", "total")
    found = {name: getattr(runtime, f"{name}_message_count", None) for name in names}
    return {name: int(count) for name, count in found.items() if count is not None}


async def show_entity(admin: ServiceBusAdministrationClient, address: EntityAddress) -> dict[str, Any]:
    """Settings and counts of an entity; durations in seconds, None for one without an end."""
    if address.subscription is not None:
        if address.rule is not None:
            rule = await admin.get_rule(address.entity, address.subscription, address.rule)
            return {"kind": "rule", "path": address.path, **_rule(rule)}
        found: Any = await admin.get_subscription(address.entity, address.subscription)
        counts: Any = await admin.get_subscription_runtime_properties(address.entity, address.subscription)
        rules = [_rule(rule) async for rule in admin.list_rules(address.entity, address.subscription)]
        return {**_described("subscription", address.path, found, counts), "rules": rules}
    try:
        found = await admin.get_queue(address.entity)
        counts = await admin.get_queue_runtime_properties(address.entity)
        return _described("queue", found.name, found, counts)
    except _NO_QUEUE:
        found = await admin.get_topic(address.entity)
        counts = await admin.get_topic_runtime_properties(address.entity)
        return _described("topic", found.name, found, counts)


def _described(kind: str, path: str, properties: Any, runtime: Any) -> dict[str, Any]:
    settings = {name: _plain(value) for name, value in _public(properties) if name != "authorization_rules"}
    times = ("created_at_utc", "updated_at_utc", "accessed_at_utc", "size_in_bytes", "subscription_count")
    state = {name: _plain(getattr(runtime, name, None)) for name in times}
    return {
        "kind": kind,
        "path": path,
        **{name: value for name, value in settings.items() if name != "name"},
        **{name: value for name, value in state.items() if value is not None},
        "messages": _counts(runtime),
    }


def _public(properties: Any) -> Iterable[tuple[str, Any]]:
    return [(name, value) for name, value in vars(properties).items() if not name.startswith("_")]


def _rule(rule: Any) -> dict[str, Any]:
    chosen = rule.filter
    text = getattr(chosen, "sql_expression", None)
    if text is None:
        text = ", ".join(f"{name}={value!r}" for name, value in _public(chosen) if value)
    return {"name": rule.name, "filter": text, "action": getattr(rule.action, "sql_expression", None)}


def _plain(value: Any) -> Any:
    """A value of the SDK as JSON can carry it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, timedelta):
        return None if value >= _FOR_EVER else value.total_seconds()
    return value.isoformat() if isinstance(value, datetime) else value


async def create_entity(
    admin: ServiceBusAdministrationClient,
    address: EntityAddress,
    *,
    is_topic: bool = False,
    settings: Sequence[str] = (),
    sql: str | None = None,
    action: str | None = None,
    if_missing: bool = False,
) -> bool:
    """Create what the address names, with settings written as `NAME=VALUE`; whether it is new."""
    make: Callable[..., Any] = admin.create_topic if is_topic else admin.create_queue
    names = [address.entity]
    if address.subscription is not None:
        make, names = admin.create_subscription, [address.entity, address.subscription]
    keywords = _parse_settings(make, settings)
    try:
        if address.rule is None:
            await make(*names, **keywords)
        if address.subscription is not None and (sql is not None or address.rule is not None):
            await _create_rule(admin, address, sql if sql is not None else "1=1", action)
    except ResourceExistsError:
        if not if_missing:
            raise
        return False
    return True


async def _create_rule(
    admin: ServiceBusAdministrationClient, address: EntityAddress, sql: str, action: str | None
) -> None:
    """The rule that the address names, or the only one of a subscription that has just been made."""
    entity, subscription = address.entity, address.subscription
    assert subscription is not None
    try:
        await admin.create_rule(
            entity,
            subscription,
            address.rule or _ONLY_RULE,
            filter=SqlRuleFilter(sql),
            action=None if action is None else SqlRuleAction(action),
        )
    except TROUBLES:
        if address.rule is None:  # it would take every message
            await admin.delete_subscription(entity, subscription)
        raise
    if address.rule is None:
        # In this order a message that comes meanwhile is taken once too often, and not lost.
        await admin.delete_rule(entity, subscription, DEFAULT_RULE)


async def delete_entity(
    admin: ServiceBusAdministrationClient, address: EntityAddress, *, if_exists: bool = False
) -> bool:
    """Delete what the address names; whether it was there."""
    try:
        if address.subscription is None:
            await _delete_owner(admin, address.entity)
        elif address.rule is None:
            await admin.delete_subscription(address.entity, address.subscription)
        else:
            await admin.delete_rule(address.entity, address.subscription, address.rule)
    except ResourceNotFoundError:
        if not if_exists:
            raise
        return False
    return True


async def _delete_owner(admin: ServiceBusAdministrationClient, name: str) -> None:
    try:
        await admin.get_queue(name)
    except _NO_QUEUE:
        await admin.delete_topic(name)
    else:
        await admin.delete_queue(name)


def _parse_settings(create: Callable[..., Any], given: Sequence[str]) -> dict[str, Any]:
    """Settings as keywords of the SDK, whose signature says which there are, and of what kind."""
    parameters = inspect.signature(create, eval_str=True).parameters
    kinds = {
        name: str(one.annotation)
        for name, one in parameters.items()
        if one.kind is one.KEYWORD_ONLY and name not in _NO_SETTINGS
    }
    values: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ConfigurationError(f"--set {text}: write NAME=VALUE, such as lock_duration=30")
        if name not in kinds:
            raise ConfigurationError(f"--set {text}: there is no setting {name!r}{name_nearest(name, kinds)}")
        values[name] = _parse_setting(text, kinds[name], value)
    return values


def _parse_setting(text: str, kind: str, value: str) -> Any:
    parsed = parse_value(value)
    is_flag = isinstance(parsed, bool)
    if "timedelta" in kind:
        return _parse_duration(text, value, parsed)
    if "str" in kind:
        return value
    if is_flag != ("bool" in kind) or not isinstance(parsed, int):
        raise ConfigurationError(
            f"--set {text}: write {'true or false' if 'bool' in kind else 'a whole number'}"
        )
    return parsed


def _parse_duration(text: str, value: str, parsed: Any) -> Any:
    if isinstance(parsed, int | float) and not isinstance(parsed, bool):
        try:
            return timedelta(seconds=parsed)
        except (ValueError, OverflowError):
            raise ConfigurationError(f"--set {text}: there is no such duration; write seconds") from None
    if not _DURATION.fullmatch(value):
        raise ConfigurationError(f"--set {text}: write seconds, or a duration such as PT1M or P14D")
    return value

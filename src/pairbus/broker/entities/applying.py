"""Entities made as they are declared, in the engine.

1. What is missing is made; what is there gets the settings that are declared, all of them: one that the file
   does not name has its default. Nothing is deleted, for messages would go with it.
2. A subscription with declared rules has these and no others. Without any it keeps those it has.
3. All that is missing is made before anything forwards, so the order in a file does not matter.
4. What the namespace refuses is told with its reason, and everything else is done all the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import EntitySettings, QueueSettings, ReceivableSettings, TopicSettings
from pairbus.broker.engine.subscription import Subscription, subscription_path
from pairbus.broker.handle import NamespaceHandle
from pairbus.conditions import NOT_FOUND

from .declaration import DeclaredEntities


@dataclass(slots=True)
class AppliedEntities:
    """What was done, by path, and what was refused, with the reason."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One entity as it is to be: its names, its settings, and how it is found, made and changed, each by the
    names; settings differ by kind: `Any`.
    """

    names: tuple[str, ...]
    settings: EntitySettings
    find: Callable[..., Any]
    create: Callable[..., Any]
    update: Callable[..., Any]
    rules: tuple[Rule, ...] = ()

    @property
    def path(self) -> str:
        return self.names[0] if len(self.names) == 1 else subscription_path(*self.names)


def declare_entities(namespace: NamespaceHandle, declared: DeclaredEntities) -> AppliedEntities:
    """Let a namespace of a running broker have what is declared."""
    return namespace._run(lambda engine, now: apply_entities(engine, declared, now))


def apply_entities(engine: Namespace, declared: DeclaredEntities, now: float) -> AppliedEntities:
    """Let a namespace have what is declared."""
    done = AppliedEntities()
    wanted = list(_wanted(engine, declared))
    for act in (_make, partial(_configure, engine)):
        for one in wanted:
            if one.path in done.refused:
                continue
            try:
                act(one, now, done)
            except Refused as refused:
                done.refused[one.path] = refused.description
    done.updated = [path for path in dict.fromkeys(done.updated) if path not in done.created]
    return done


def _wanted(engine: Namespace, declared: DeclaredEntities) -> Iterator[_Wanted]:
    for name, queue in declared.queues.items():
        yield _Wanted((name,), queue, engine.get_queue, engine.create_queue, engine.update_queue)
    for name, topic in declared.topics.items():
        yield _Wanted((name,), topic.settings, engine.get_topic, engine.create_topic, engine.update_topic)
        for inner, one in topic.subscriptions.items():
            create = partial(engine.create_subscription, rule=one.rules[0] if one.rules else None)
            find, update = engine.get_subscription, engine.update_subscription
            yield _Wanted((name, inner), one.settings, find, create, update, one.rules)


def _make(one: _Wanted, now: float, done: AppliedEntities) -> None:
    """Make what is missing; it does not forward yet."""
    try:
        one.find(*one.names)
    except Refused as refused:
        if refused.condition != NOT_FOUND:
            raise
        settings = one.settings
        if isinstance(settings, ReceivableSettings):
            settings = replace(settings, forward_to=None, forward_dead_lettered_messages_to=None)
        one.create(*one.names, settings, now)
        done.created.append(one.path)


def _configure(engine: Namespace, one: _Wanted, now: float, done: AppliedEntities) -> None:
    """Give an entity its settings and rules."""
    entity, settings = one.find(*one.names), one.settings
    if isinstance(settings, QueueSettings | TopicSettings):  # no file declares its rules of access
        settings = replace(settings, authorization_rules=entity.settings.authorization_rules)
    if entity.settings != settings:
        one.update(*one.names, settings, now)
        done.updated.append(one.path)
    if isinstance(entity, Subscription) and one.rules:
        _set_rules(engine, entity, one.rules, now, done)


def _set_rules(
    engine: Namespace, entity: Subscription, rules: tuple[Rule, ...], now: float, done: AppliedEntities
) -> None:
    topic, name = entity.topic_path, entity.name
    there = {rule.name.lower(): rule for rule in entity.rules}
    for rule in rules:
        known = there.pop(rule.name.lower(), None)
        if known is None:
            engine.create_rule(topic, name, replace(rule, created_at=now), now)
        elif (known.filter, known.action) != (rule.filter, rule.action):
            engine.update_rule(topic, name, replace(rule, created_at=known.created_at), now)
        else:
            continue
        done.updated.append(entity.path)
    for left in there.values():
        engine.delete_rule(topic, name, left.name, now)
        done.updated.append(entity.path)

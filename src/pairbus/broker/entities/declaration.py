"""What a file says that a namespace has: queues, and topics with their subscriptions and rules."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from pairbus.broker.engine.names import fold
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings, TopicSettings

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeclaredSubscription:
    """A subscription. Without rules it keeps those that it has; a new one takes everything."""

    settings: SubscriptionSettings
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class DeclaredTopic:
    """A topic with its subscriptions, by name."""

    settings: TopicSettings
    subscriptions: Mapping[str, DeclaredSubscription] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeclaredEntities:
    """The entities of one namespace, by name."""

    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    topics: Mapping[str, DeclaredTopic] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Queues and topics, which share one space of names."""
        return [*self.queues, *self.topics]

    def together_with(self, other: DeclaredEntities) -> DeclaredEntities:
        """Both; of what both name, as it is in `other`. A topic of both has the subscriptions of both."""
        taken = {fold(name) for name in other.names()}
        known = {fold(name): topic for name, topic in self.topics.items()}
        joined = {name: _join(known.get(fold(name)), topic) for name, topic in other.topics.items()}
        return DeclaredEntities(
            _without(taken, self.queues) | dict(other.queues), _without(taken, self.topics) | joined
        )


def _join(one: DeclaredTopic | None, other: DeclaredTopic) -> DeclaredTopic:
    """Both. A topic that is named for its subscriptions alone says nothing of its settings."""
    if one is None:
        return other
    taken = {fold(name) for name in other.subscriptions}
    return DeclaredTopic(
        one.settings if other.settings == TopicSettings() else other.settings,
        _without(taken, one.subscriptions) | dict(other.subscriptions),
    )


def _without(taken: Container[str], ones: Mapping[str, T]) -> dict[str, T]:
    return {name: one for name, one in ones.items() if fold(name) not in taken}


@dataclass(frozen=True, slots=True)
class EntityFile:
    """What a file has for every namespace, for single ones, and what was passed over."""

    everywhere: DeclaredEntities
    namespaces: Mapping[str, DeclaredEntities]
    passed_over: tuple[str, ...] = ()

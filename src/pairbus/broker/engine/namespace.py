"""A namespace: its entities, what is done to them, and the account of it.

Theory of operation:
1. The engine is a value that changes by method calls. It does no I/O, starts nothing and asks no clock:
   `now` is an argument, in Unix seconds, and should not go back.
2. An operation returns its result or raises Refused, and then nothing has changed but what was due by its
   `now` anyway.
3. What must be kept is said by events. `take_events` gives those since the last call; a server takes them
   once a turn, and lets nothing of the turn out before its store has written them.
4. `take_ready` names the queues in which something became available since the last call. It may name one
   where there is nothing any more.
5. `tick` does what is due, and `next_deadline` says when there may be something due next: never too
   late, sometimes too early.
6. `replay` makes a fresh namespace from a store's rows or from a log of events. Locks are gone after it.
7. An entity kept across turns may be deleted meanwhile: it then refuses everything as not found.
"""

import random
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from pairbus import conditions

from .context import Context, Space
from .directory import Directory
from .entity import Entity
from .errors import Refused, bad_argument
from .events import EngineEvent, EntityKind, EntityPut, EntityRemoved, RulePut, RuleRemoved
from .message import Incoming
from .names import SEGMENT, check_path, check_rule_name, check_subscription_name, entity_of, entity_path, fold
from .queue import MessageQueue
from .recovery import Recovery, describe
from .rules import Rule
from .sessions import SessionLock
from .settings import (
    EntitySettings,
    NamespaceLimits,
    QueueSettings,
    ReceivableSettings,
    SubscriptionSettings,
    TopicSettings,
)
from .subscription import Subscription, subscription_path
from .tiers import STANDARD
from .topic import Topic
from .validity import check_settings, check_update, fit_settings

AnyEntity = TypeVar("AnyEntity", bound=MessageQueue | Topic)
# The bits that make a random number a uuid of version 4 (RFC 9562, section 5.4).
KEPT: Final = ~((0xF << 76) | (0x3 << 62)) & ((1 << 128) - 1)
FIXED: Final = (0x4 << 76) | (0x2 << 62)

_bits = random.Random().getrandbits
_new = uuid.UUID.__new__
_set = object.__setattr__
_SAFETY = uuid.SafeUUID.unknown


def new_token() -> uuid.UUID:
    """A random uuid that names a lock, and is no secret. `uuid.uuid4` takes longer than a whole delivery."""
    token = _new(uuid.UUID)
    _set(token, "int", _bits(128) & KEPT | FIXED)
    _set(token, "is_safe", _SAFETY)
    return token


class Namespace:
    """One namespace with all its entities."""

    def __init__(
        self,
        name: str,
        *,
        limits: NamespaceLimits = STANDARD,
        next_token: Callable[[], uuid.UUID] = new_token,
        created_at: float = 0.0,
    ) -> None:
        self.name = name
        self.limits = limits
        self.created_at = created_at
        directory = self._directory = Directory()
        context = self._context = Context(limits, next_token, find=directory.find, retire=self._retire)
        #: What is at a path, in any case, and the queue or topic of a name: or Refused.
        self.node, self.get_queue, self.get_topic = directory.node, directory.queue, directory.topic
        #: All of them, sorted by name.
        self.list_queues, self.list_topics = directory.queues, directory.topics
        #: The queues where messages or sessions became available since the last call.
        self.take_ready = context.take_ready
        #: Have no store told of the operations since the last call.
        self.drop_events = context.drop_events
        #: When there may be something due next; None if nothing ever will be as things are.
        self.next_deadline = context.alarms.next

    # -- messages

    def is_wide(self, path: str) -> bool:
        """Whether a single message that is sent there may cause much to be done."""
        node = self._directory.find(path)
        return node is not None and node.is_wide

    def lines_up(self, path: str) -> bool:
        """Whether messages that are sent there just join a line."""
        node = self._directory.find(path)
        return node is not None and node.lines_up

    def send(self, path: str, messages: Sequence[Incoming], now: float) -> None:
        """Take all messages, or none and raise Refused. Pings are checked and dropped."""
        self._directory.node(path).send(messages, now)

    def send_run(self, path: str, messages: Sequence[Incoming], now: float) -> bool:
        """Take messages as `send` would one by one; False, and nothing is done, if that is not all."""
        node = self._directory.find(path)
        return node is not None and node.send_run(messages, now)

    def schedule(self, path: str, messages: Sequence[Incoming], now: float) -> list[int]:
        """Hold all messages until their time, or none; the numbers that name them until then."""
        return self._directory.node(path).schedule(messages, now)

    def cancel_scheduled(self, path: str, sequence_numbers: Sequence[int], now: float) -> None:
        """Drop scheduled messages: all of them, or none and raise Refused."""
        self._directory.node(path).cancel_scheduled(sequence_numbers, now)

    # -- time and account

    def tick(self, now: float) -> None:
        """Do everything that is due."""
        self._context.alarms.ring(now)

    def shift_durations(self, seconds: float) -> None:
        """The clock was set: locks and idleness last as long; expiry, schedules and windows do not move."""
        for entity in self._entities():
            entity.shift_durations(seconds)

    @property
    def noted(self) -> int:
        """How many events there are since the last `take_events`: more of them later tell of a change."""
        return len(self._context.events)

    def changed_since(self, noted: int) -> set[str]:
        """The queues and topics, folded, that were made, changed or removed since so many were noted."""
        events = self._context.events[noted:]
        return {
            entity_of(fold(event.path)) for event in events if isinstance(event, EntityPut | EntityRemoved)
        }

    def take_events(self) -> list[EngineEvent]:
        """What a store must write for the operations since the last call."""
        return self._context.take_events()

    def take_lost_sessions(self) -> list[SessionLock]:
        """The locks on sessions that have ended by their time since the last call."""
        lost = self._context.lost_sessions.copy()
        self._context.lost_sessions.clear()
        return lost

    def replay(self, events: Iterable[EngineEvent], *, now: float = 0.0) -> None:
        """Build from events. With `now`, no entity counts as idle for the time before."""
        recovery = Recovery(self._directory, build=self._build, drop=self._drop)
        for event in events:
            recovery.apply(event)
        for entity in self._entities():
            entity.spare(max(now, entity.created_at))
            entity.wind_alarm()

    def note_uses(self) -> None:
        """Tell when entities were last accessed, which would be too much to tell each time."""
        for entity in self._entities():
            if entity.has_been_used:
                self._context.events.append(describe(entity))

    # -- queues

    def create_queue(self, name: str, settings: QueueSettings | None, now: float) -> MessageQueue:
        """Make a queue, or raise Refused."""
        queue = self._create(EntityKind.QUEUE, name, settings or QueueSettings(), now)
        assert isinstance(queue, MessageQueue)
        return queue

    def update_queue(self, name: str, settings: QueueSettings, now: float) -> MessageQueue:
        """Change the settings of a queue, or raise Refused."""
        return self._update(self._directory.queue(name), settings, now)

    def delete_queue(self, name: str, now: float) -> None:
        """Delete a queue with all its messages, or raise Refused."""
        del now
        self._retire(self._directory.queue(name))

    # -- topics

    def create_topic(self, name: str, settings: TopicSettings | None, now: float) -> Topic:
        """Make a topic, or raise Refused."""
        topic = self._create(EntityKind.TOPIC, name, settings or TopicSettings(), now)
        assert isinstance(topic, Topic)
        return topic

    def update_topic(self, name: str, settings: TopicSettings, now: float) -> Topic:
        """Change the settings of a topic, or raise Refused."""
        return self._update(self._directory.topic(name), settings, now)

    def delete_topic(self, name: str, now: float) -> None:
        """Delete a topic with its subscriptions, or raise Refused."""
        del now
        self._retire(self._directory.topic(name))

    # -- subscriptions

    def create_subscription(
        self,
        topic: str,
        name: str,
        settings: SubscriptionSettings | None,
        now: float,
        rule: Rule | None = None,
    ) -> Subscription:
        """Make a subscription with one rule, by default one that takes everything, or raise Refused."""
        settings = settings or SubscriptionSettings()
        parent = self._directory.topic(topic)
        check_subscription_name(name, self.limits)
        path = subscription_path(parent.path, name)
        self._directory.check_free(path)
        self._check_settings(path, settings)
        if len(parent.subscriptions) >= self.limits.max_subscriptions:
            raise self._full("subscriptions", self.limits.max_subscriptions)
        rule = rule or Rule(created_at=now)
        check_rule_name(rule.name, self.limits)
        subscription = self._build(EntityPut(EntityKind.SUBSCRIPTION, path, settings, now, now, now))
        assert isinstance(subscription, Subscription)
        self._start(subscription, settings, now)
        subscription.add_rule(rule)
        self._context.events.append(RulePut(subscription.path, rule))
        return subscription

    def update_subscription(
        self, topic: str, name: str, settings: SubscriptionSettings, now: float
    ) -> Subscription:
        """Change the settings of a subscription, or raise Refused."""
        return self._update(self.get_subscription(topic, name), settings, now)

    def delete_subscription(self, topic: str, name: str, now: float) -> None:
        """Delete a subscription with its messages and rules, or raise Refused."""
        del now
        self._retire(self.get_subscription(topic, name))

    def get_subscription(self, topic: str, name: str) -> Subscription:
        """The subscription of this name, or Refused."""
        return self._directory.topic(topic).get_subscription(name)

    # -- rules

    def create_rule(self, topic: str, subscription: str, rule: Rule, now: float) -> Rule:
        """Add a rule to a subscription, or raise Refused."""
        node = self.get_subscription(topic, subscription)
        check_rule_name(rule.name, self.limits)
        if len(node.rules) >= self.limits.max_rules:
            raise self._full("rules", self.limits.max_rules)
        node.add_rule(rule)
        return self._note(node, rule, now)

    def update_rule(self, topic: str, subscription: str, rule: Rule, now: float) -> Rule:
        """Replace the rule of the same name, or raise Refused."""
        node = self.get_subscription(topic, subscription)
        node.get_rule(rule.name)
        node.put_rule(rule)
        return self._note(node, rule, now)

    def delete_rule(self, topic: str, subscription: str, name: str, now: float) -> None:
        """Remove a rule, or raise Refused."""
        node = self.get_subscription(topic, subscription)
        rule = node.get_rule(name)
        node.remove_rule(name)
        node.spare(now)
        self._context.events.append(RuleRemoved(node.path, rule.name))

    # -- inside

    def _note(self, node: Subscription, rule: Rule, now: float) -> Rule:
        node.spare(now)
        self._context.events.append(RulePut(node.path, rule))
        return rule

    def _create(
        self, kind: EntityKind, name: str, settings: QueueSettings | TopicSettings, now: float
    ) -> MessageQueue | Topic:
        path = name.strip("/")
        settings = fit_settings(settings, self.limits)
        self._directory.check_free(path)
        check_path(path, self.limits)
        self._check_settings(path, settings)
        if len(self._directory) >= self.limits.max_entities:
            raise self._full("entities", self.limits.max_entities)
        entity = self._build(EntityPut(kind, path, settings, now, now, now))
        self._start(entity, settings, now)
        return entity

    def _check_settings(self, path: str, settings: EntitySettings) -> None:
        check_settings(settings, self.limits)
        if not isinstance(settings, ReceivableSettings):
            return
        for target in (settings.forward_to, settings.forward_dead_lettered_messages_to):
            if target is None:
                continue
            node = self._directory.find(entity_path(target))
            if node is None or isinstance(node, Subscription):
                raise bad_argument(f"'{path}' cannot forward to '{target}': there is no such queue or topic.")

    def _full(self, what: str, limit: int) -> Refused:
        return Refused(
            conditions.RESOURCE_LIMIT,
            f"There can be {limit} {what} at most. Delete one to make room for another.",
        )

    def _build(self, event: EntityPut) -> MessageQueue | Topic:
        entity: MessageQueue | Topic
        now, space = event.created_at, Space()
        if event.kind is EntityKind.TOPIC:
            entity = Topic(self._context, event.path, space=space, now=now)
        elif event.kind is EntityKind.QUEUE:
            entity = MessageQueue(self._context, event.path, space=space, now=now)
        else:
            at = event.path.lower().rindex(f"/{SEGMENT.lower()}/")
            topic, name = self._directory.topic(event.path[:at]), event.path[at + len(SEGMENT) + 2 :]
            entity = Subscription(self._context, topic.path, name, space=topic.space, now=now)
            topic.add_subscription(entity)
        self._directory.add(entity)
        return entity

    def _start(self, entity: MessageQueue | Topic, settings: EntitySettings, now: float) -> None:
        entity.configure(settings, now)
        self._context.events.append(describe(entity))

    def _update(self, entity: AnyEntity, settings: EntitySettings, now: float) -> AnyEntity:
        settings = fit_settings(settings, self.limits)
        check_update(entity.settings, settings)
        self._check_settings(entity.path, settings)
        entity.spare(now)
        window = entity.duplicates and entity.duplicates.window
        entity.configure(settings, now)
        self._context.events.append(describe(entity))
        if entity.duplicates is not None and entity.duplicates.window != window:
            entity.retell_duplicates()
        return entity

    def _retire(self, entity: Entity) -> None:
        if isinstance(entity, Topic):
            for subscription in entity.subscriptions:
                self._retire(subscription)
        if isinstance(entity, Topic | MessageQueue):
            self._drop(entity)
            self._context.events.append(EntityRemoved(entity.path))

    def _drop(self, entity: MessageQueue | Topic) -> None:
        if isinstance(entity, Subscription):
            topic = self._directory.topic(entity.topic_path)
            topic.drop_subscription(entity)
            topic.space.used -= entity.stored_bytes()
        self._directory.drop(entity)
        entity.remove()

    def _entities(self) -> Iterator[MessageQueue | Topic]:
        yield from self._directory.queues()
        for topic in self._directory.topics():
            yield topic
            yield from topic.subscriptions

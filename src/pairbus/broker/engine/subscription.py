"""A subscription: a queue that a topic fills through rules.

A message gets in if any rule matches. All matching rules without an action make one copy together; each
matching rule with an action makes a copy of its own, changed by the action.
"""

from .breath import breathe
from .context import Context, Space
from .errors import EntityMissing, already_exists, not_allowed
from .filters import CorrelationFilter, Filter, TrueFilter
from .message import Incoming, StoredMessage, View
from .names import SEGMENT
from .queue import MessageQueue
from .rules import Rule
from .settings import SubscriptionSettings

#: Rules, or subscriptions, that a message has soon gone through.
FEW = 8
# Characters of SQL that a message has soon gone through, a hundredth of a millisecond; how many of them take
# as long as a property that a filter compares.
_SHORT, _PROPERTY = 512, 32


def subscription_path(topic: str, name: str) -> str:
    """The path of a subscription as clients write it."""
    return f"{topic}/{SEGMENT}/{name}"


class Subscription(MessageQueue):
    """The queue of one subscriber of a topic."""

    __slots__ = ("_is_thorough", "_rules", "_takes_all", "name", "topic_path")
    settings: SubscriptionSettings

    def __init__(self, context: Context, topic: str, name: str, *, space: Space, now: float) -> None:
        super().__init__(context, subscription_path(topic, name), space=space, now=now)
        self.topic_path = topic
        self.name = name
        self._rules: dict[str, Rule] = {}
        self._takes_all = False
        self._is_thorough = False

    @property
    def rules(self) -> list[Rule]:
        """The rules, sorted by name."""
        return [self._rules[key] for key in sorted(self._rules)]

    @property
    def is_wide(self) -> bool:
        return self._is_thorough or len(self._rules) > FEW or super().is_wide

    def find_rule(self, name: str) -> Rule | None:
        return self._rules.get(name.lower())

    def get_rule(self, name: str) -> Rule:
        """The rule of this name, or Refused."""
        rule = self.find_rule(name)
        if rule is None:
            raise EntityMissing(f"{self.path}/Rules/{name}")
        return rule

    def add_rule(self, rule: Rule) -> None:
        """Add a rule of a new name, or raise Refused."""
        if self.find_rule(rule.name) is not None:
            raise already_exists(f"{self.path}/Rules/{rule.name}")
        self.put_rule(rule)

    def put_rule(self, rule: Rule) -> None:
        """Add a rule, or replace the one of its name."""
        self._rules[rule.name.lower()] = rule
        self._review()

    def remove_rule(self, name: str) -> None:
        """Remove a rule, or raise Refused."""
        del self._rules[self.get_rule(name).name.lower()]
        self._review()

    def check_send(self) -> None:
        raise not_allowed(
            f"Nothing can be sent to the subscription '{self.path}'. Send to '{self.topic_path}'."
        )

    def offer(self, original: StoredMessage, view: Incoming | View, now: float) -> None:
        """Take the copies of a topic's message that the rules ask for."""
        if self._takes_all:
            self._admit(original, now)
            return
        plain = False
        for rule in self._rules.values():
            if rule.action is None and plain:
                continue
            breathe()
            if rule.matches(view):
                if rule.action is None:
                    plain = True
                    self._admit(original, now)
                else:
                    self._admit_changed(original, rule, view, now)

    def _admit(self, original: StoredMessage, now: float) -> None:
        copy = original.copy(self._advance())
        copy.enqueued_sequence_number = original.enqueued_sequence_number or original.sequence_number
        copy.expires_at = self._admission.earlier_expiry(original.expires_at, now)
        self._enqueue(copy, now)

    def _admit_changed(self, original: StoredMessage, rule: Rule, view: Incoming | View, now: float) -> None:
        changed = rule.apply(view)
        assert changed is not None
        copy = original.copy(original.sequence_number)
        copy.set_properties(changed.properties)
        copy.set_application_properties(changed.application_properties)
        self._admit(copy, now)

    def _review(self) -> None:
        rules = list(self._rules.values())
        lengths = [_length(rule.filter) for rule in rules]
        self._is_thorough = any(rule.is_thorough for rule in rules) or sum(lengths) > _SHORT
        self._takes_all = (
            len(rules) == 1 and isinstance(rules[0].filter, TrueFilter) and rules[0].action is None
        )


def _length(given: Filter) -> int:
    """Characters of SQL that take as long with a message."""
    if isinstance(given, CorrelationFilter):
        return _PROPERTY * len(given.properties)
    return len(given.expression)

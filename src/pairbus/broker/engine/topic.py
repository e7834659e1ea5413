"""A topic: takes messages, and gives each of its subscriptions the copies that its rules ask for.

The topic numbers its messages; a subscription numbers its copies anew and keeps the topic's number as the
enqueued one. Only messages that wait for their time stay in the topic. All copies count against the topic's
size.
"""

from collections.abc import Sequence

from .breath import breathe
from .context import Context, Space
from .entity import Entity
from .errors import EntityMissing
from .message import Incoming, StoredMessage, View
from .results import Counts
from .settings import TopicSettings
from .subscription import FEW, Subscription, subscription_path


class Topic(Entity):
    """Something to send to that has subscribers."""

    __slots__ = ("_subscriptions",)
    settings: TopicSettings

    def __init__(self, context: Context, path: str, *, space: Space, now: float) -> None:
        super().__init__(context, path, space=space, now=now)
        self._subscriptions: dict[str, Subscription] = {}

    @property
    def subscriptions(self) -> list[Subscription]:
        """The subscriptions, sorted by name."""
        return [self._subscriptions[key] for key in sorted(self._subscriptions)]

    @property
    def parts(self) -> Sequence[Entity]:
        return list(self._subscriptions.values())

    @property
    def is_wide(self) -> bool:
        return len(self._subscriptions) > FEW or any(each.is_wide for each in self._subscriptions.values())

    def find_subscription(self, name: str) -> Subscription | None:
        return self._subscriptions.get(name.lower())

    def get_subscription(self, name: str) -> Subscription:
        """The subscription of this name, or Refused."""
        found = self.find_subscription(name)
        if found is None:
            raise EntityMissing(subscription_path(self.path, name))
        return found

    def add_subscription(self, subscription: Subscription) -> None:
        self._subscriptions[subscription.name.lower()] = subscription

    def drop_subscription(self, subscription: Subscription) -> None:
        """The subscription is gone; what it held takes no room any more."""
        del self._subscriptions[subscription.name.lower()]

    def counts(self) -> Counts:
        """A topic itself has only the messages that wait for their time."""
        return Counts(scheduled=self.scheduled_count)

    def _enqueue(self, message: StoredMessage, now: float, view: Incoming | None = None) -> None:
        seen = View(message) if view is None else view
        for subscription in self._subscriptions.values():
            subscription.offer(message, seen, now)
            breathe()

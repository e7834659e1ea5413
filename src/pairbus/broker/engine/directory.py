"""The entities of a namespace by path: queues, topics, subscriptions and their sub-queues.

Every path that a client may name is a key, so that finding one is one look, however deep its name is nested
and whatever suffix it has.
"""

from typing import TypeVar

from .entity import Entity
from .errors import EntityMissing, already_exists
from .names import fold
from .queue import MessageQueue
from .subscription import Subscription
from .topic import Topic

T = TypeVar("T")
# More spellings than any honest client writes; this only bounds what the others do.
MANY = 100_000


class Directory:
    """Finds entities."""

    __slots__ = ("_nodes", "_queues", "_spellings", "_topics")

    def __init__(self) -> None:
        self._nodes: dict[str, MessageQueue | Topic] = {}
        self._spellings: dict[str, MessageQueue | Topic] = {}
        self._queues: dict[str, MessageQueue] = {}
        self._topics: dict[str, Topic] = {}

    def __len__(self) -> int:
        return len(self._queues) + len(self._topics)

    def find(self, path: str) -> MessageQueue | Topic | None:
        """What is at a path, in any spelling."""
        node = self._spellings.get(path)
        if node is None:
            node = self._nodes.get(fold(path))
            if node is not None and len(self._spellings) < MANY:
                self._spellings[path] = node
        return node

    def node(self, path: str) -> MessageQueue | Topic:
        """What is at a path, or Refused."""
        node = self.find(path)
        if node is None:
            raise EntityMissing(path)
        return node

    def queue(self, name: str) -> MessageQueue:
        """The queue of this name, or Refused."""
        return _need(self._queues.get(fold(name)), name)

    def topic(self, name: str) -> Topic:
        """The topic of this name, or Refused."""
        return _need(self._topics.get(fold(name)), name)

    def queues(self) -> list[MessageQueue]:
        """All queues, sorted by name."""
        return [self._queues[key] for key in sorted(self._queues)]

    def topics(self) -> list[Topic]:
        """All topics, sorted by name."""
        return [self._topics[key] for key in sorted(self._topics)]

    def check_free(self, path: str) -> None:
        """Raise Refused if the path is taken."""
        if fold(path) in self._nodes:
            raise already_exists(path)

    def add(self, entity: MessageQueue | Topic) -> None:
        """Make an entity and its sub-queues known."""
        if isinstance(entity, Topic):
            self._topics[fold(entity.path)] = entity
        elif not isinstance(entity, Subscription):
            self._queues[fold(entity.path)] = entity
        for node in _all_nodes(entity):
            self._nodes[fold(node.path)] = node

    def drop(self, entity: Entity) -> None:
        """Forget an entity and its sub-queues."""
        key = fold(entity.path)
        self._queues.pop(key, None)
        self._topics.pop(key, None)
        for node in _all_nodes(entity):
            self._nodes.pop(fold(node.path), None)
        self._spellings.clear()


def _need(found: T | None, path: str) -> T:
    if found is None:
        raise EntityMissing(path)
    return found


def _all_nodes(entity: Entity) -> list[MessageQueue | Topic]:
    if isinstance(entity, MessageQueue):
        return [entity, *entity.sub_queues()]
    return [entity] if isinstance(entity, Topic) else []

"""Authorization rules of single entities: kept and given back as they came.

They are a record, not a lock: tokens are checked against the policies of the namespace alone. Azure fills in
keys and times that were left out; here they stay out. The engine has no use for them and does not know them,
so they stand beside it, as long as the process lives.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.topic import Topic

from .markup import Node, branch, leaf

__all__ = ["AuthorizationBook"]

_HEAD: Final = ("ClaimType", "ClaimValue")
_TAIL: Final = ("CreatedTime", "ModifiedTime", "KeyName", "PrimaryKey", "SecondaryKey")


@dataclass(frozen=True)
class _Page:
    # An entity that was deleted and made again begins without rules.
    created_at: float
    rules: Node


class AuthorizationBook:
    """The rules of all queues and topics of a namespace, by path."""

    def __init__(self) -> None:
        self._pages: dict[str, _Page] = {}

    @classmethod
    def of(cls, namespace: Namespace) -> AuthorizationBook:
        """The one book of a namespace."""
        return _books.setdefault(namespace, cls())

    def write(self, entity: MessageQueue | Topic, description: Node) -> None:
        """Take over the rules of a description; one without them clears what was there."""
        given = description.find("AuthorizationRules")
        self._pages.pop(entity.path, None)
        if given is not None and given.children:
            rules = [_clean(rule) for rule in given.find_all("AuthorizationRule")]
            self._pages[entity.path] = _Page(entity.created_at, branch("AuthorizationRules", rules))

    def read(self, entity: MessageQueue | Topic) -> Node:
        page = self._pages.get(entity.path)
        if page is None or page.created_at != entity.created_at:
            return branch("AuthorizationRules", [])
        return page.rules


_books: MutableMapping[Namespace, AuthorizationBook] = WeakKeyDictionary()


def _clean(rule: Node) -> Node:
    """The known elements, in the order in which .NET reads them."""
    given = rule.find("Rights")
    rights = [] if given is None else [leaf("AccessRights", right.text) for right in given.children]
    children = [*_texts(rule, _HEAD), branch("Rights", rights), *_texts(rule, _TAIL)]
    kind = rule.attributes.get("type", "SharedAccessAuthorizationRule")
    return branch("AuthorizationRule", children, {"i:type": kind})


def _texts(rule: Node, names: tuple[str, ...]) -> list[Node]:
    return [leaf(name, text) for name in names if (text := rule.text_of(name)) is not None]

"""Rules of subscriptions: a filter, and what to do to the copy of a message that it lets through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairbus.words import DEFAULT_RULE

from .actions import ChangedMessage, SqlAction
from .filters import Filter, SqlFilter, TrueFilter, filter_from_dict
from .system_properties import Filterable


@dataclass(frozen=True)
class Rule:
    """A named rule. `created_at` is in Unix seconds."""

    name: str = DEFAULT_RULE
    filter: Filter = field(default_factory=TrueFilter)
    action: SqlAction | None = None
    created_at: float = 0.0

    @property
    def is_thorough(self) -> bool:
        """Whether it may take long with one message: it has patterns, or makes another one of it."""
        return self.action is not None or (
            isinstance(self.filter, SqlFilter) and "LIKE" in self.filter.expression.upper()
        )

    def matches(self, message: Filterable) -> bool:
        """Whether the filter lets the message through."""
        return self.filter.matches(message)

    def apply(self, message: Filterable) -> ChangedMessage | None:
        """Give what the action makes of the message; None if the rule has no action."""
        return self.action.apply(message) if self.action is not None else None

    def to_dict(self) -> dict[str, Any]:
        """Plain form for a store: JSON can carry it, and `from_dict` gives back an equal rule."""
        return {
            "name": self.name,
            "filter": self.filter.to_dict(),
            "action": self.action.to_dict() if self.action is not None else None,
            "created_at": self.created_at,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Rule:
        """Give back the rule whose `to_dict` this is."""
        action = SqlAction.from_dict(plain["action"]) if plain["action"] is not None else None
        return cls(plain["name"], filter_from_dict(plain["filter"]), action, plain["created_at"])

"""Redirect records: what went to which backlog queue, so that a later check can name what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["NoRecords", "Records", "RedirectRecord"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedirectRecord:
    """One message that a backlog queue has taken."""

    message_id: str
    path: str
    session_id: str | None
    queue: str
    at: float


class Records(Protocol):
    """Where redirect records are kept."""

    async def append(self, rows: Sequence[RedirectRecord]) -> None:
        """Keep these; they are durable when this returns."""
        ...

    async def close(self) -> None:
        """Close the open segment."""
        ...


class NoRecords:
    """Keeps none."""

    async def append(self, rows: Sequence[RedirectRecord]) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """There is nothing to close."""

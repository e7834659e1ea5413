"""Who sends in a drill, as the conductor sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from .messages import Resting, SentMessage
from .result import Check


class Applications(Protocol):
    """Producers of our own, or the user's application."""

    @property
    def tells_states(self) -> bool:
        """Whether the states of their entities are known."""

    @property
    def names_sessions(self) -> bool:
        """Whether their sessions are those that the scenario names."""

    async def start(self) -> None:
        """Get ready to send."""

    async def run(self) -> None:
        """Send; returns when the time of sending is over."""

    def spooled(self) -> int:
        """Messages on the applications' own disks."""

    def have_reached_primary(self) -> bool:
        """Whether each has sent something to the primary, as far as is known."""

    def is_settled(self) -> bool:
        """Whether all entities are healthy and nothing is spooled."""

    async def retire(self) -> None:
        """No outage is coming any more, and no send."""

    async def close(self) -> None:
        """End, whatever is under way."""

    def sent(self) -> Sequence[SentMessage]:
        """The messages that they say they sent."""

    def account(
        self, resting: Iterable[Resting], redirected: Iterable[tuple[str, str]]
    ) -> Sequence[SentMessage]:
        """The messages that they sent, as far as anybody knows in the end."""

    def checks(self) -> Sequence[Check]:
        """What there is to check of the applications themselves."""

    def notes(self) -> Sequence[str]:
        """What there is to say of them."""

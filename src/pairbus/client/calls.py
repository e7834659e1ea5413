"""What a caller can want of an entity, each with its two ways: on the primary, or in the backlog."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from .link import SdkSender
from .message import Message, Outgoing

if TYPE_CHECKING:
    from .entity import Entity
    from .pair import Pair

__all__ = ["ScheduleCall", "SendCall"]


class SendCall:
    """Have messages sent."""

    __slots__ = ("_entity", "_native", "_pair", "messages")

    def __init__(self, pair: Pair, entity: Entity, outgoing: Outgoing) -> None:
        self._pair = pair
        self._entity = entity
        self._native: Any = outgoing.native
        self.messages: list[Message] = outgoing.messages

    async def transmit(self, sender: SdkSender) -> None:
        """Have the primary take them."""
        await sender.send_messages(self._native)

    async def redirect(self, deadline: float | None) -> None:
        """Have the backlog, or else the spool, take them."""
        await self._pair.redirect(self._entity, self.messages, deadline=deadline)


class ScheduleCall:
    """Have messages scheduled."""

    __slots__ = ("_entity", "_native", "_pair", "_when", "messages")

    def __init__(self, pair: Pair, entity: Entity, outgoing: Outgoing, *, when: datetime) -> None:
        self._pair = pair
        self._entity = entity
        self._native: Any = outgoing.native
        self._when = when
        self.messages: list[Message] = outgoing.messages

    async def transmit(self, sender: SdkSender) -> list[int]:
        """Have the primary schedule them; their sequence numbers."""
        return await sender.schedule_messages(self._native, self._when)

    async def redirect(self, deadline: float | None) -> list[int]:
        """Have the backlog, or else the spool, keep them; numbers below 0."""
        await self._pair.redirect(self._entity, self.messages, deadline=deadline, scheduled_for=self._when)
        return self._pair.numbers.take(len(self.messages))

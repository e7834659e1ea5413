"""What a caller can want of an entity, each with its two ways: on the primary, or in the backlog."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from pairbus.client.observers.observer import RouteName
from pairbus.sdk.privates import LinkLimits
from pairbus.sdk.side import SdkSender

from .message import Message, check_for_primary

if TYPE_CHECKING:
    from .entity import PairedEntity


class EntityCall(Protocol):
    """What a caller wants: done on the primary by `transmit`, or else by `redirect`."""

    operation: ClassVar[Literal["send", "schedule"]]
    messages: list[Message]
    #: The way that was taken last.
    route: RouteName

    @property
    def by_request(self) -> bool:
        """Whether it is no plain send, but a request to schedule."""
        ...

    def check(self, limits: LinkLimits | None) -> None:
        """Raise what the primary would refuse: it is refused in every state."""
        ...

    def transmit(self, sender: SdkSender) -> Coroutine[Any, Any, Any]:
        """Have the primary do it."""
        ...

    async def redirect(self, deadline: float | None) -> Any:
        """Have the backlog do it."""
        ...


class SendCall:
    """Have messages sent."""

    __slots__ = ("_entity", "_native", "messages", "route")

    operation: ClassVar[Literal["send", "schedule"]] = "send"
    by_request = False

    def __init__(self, entity: PairedEntity, native: Any, messages: list[Message]) -> None:
        self._entity = entity
        self._native = native
        self.messages = messages
        self.route: RouteName = "primary"

    def check(self, limits: LinkLimits | None) -> None:
        """Raise what the primary would refuse."""
        check_for_primary(self._native, self.messages, limits)

    async def transmit(self, sender: SdkSender) -> None:
        """Have the primary take them."""
        native = self._native
        if type(native) is list:
            # The batch that the SDK would make of them itself. It would also convert each message twice for
            # it, which is a tenth of the whole send.
            native = await sender.create_message_batch()
            for message in self.messages:
                native.add_message(message)
        await sender.send_messages(native)

    async def redirect(self, deadline: float | None) -> None:
        """Have the backlog, or else the spool, take them."""
        self.route = "backlog"
        self.route = await self._entity.pair.redirect(self._entity, self.messages, deadline=deadline)


class ScheduleCall:
    """Have messages scheduled."""

    __slots__ = ("_entity", "_native", "_when", "messages", "route")

    operation: ClassVar[Literal["send", "schedule"]] = "schedule"
    by_request = True

    def __init__(self, entity: PairedEntity, native: Any, messages: list[Message], *, when: datetime) -> None:
        self._entity = entity
        self._native = native
        self._when = when
        self.messages = messages
        self.route: RouteName = "primary"

    def check(self, limits: LinkLimits | None) -> None:
        """Raise what the primary would refuse, message by message: a request is no batch."""
        for message in self.messages:
            check_for_primary(message, [message], limits)

    def transmit(self, sender: SdkSender) -> Coroutine[Any, Any, list[int]]:
        """Have the primary schedule them; their sequence numbers."""
        return sender.schedule_messages(self._native, self._when)

    async def redirect(self, deadline: float | None) -> list[int]:
        """Have the backlog, or else the spool, keep them; numbers below 0."""
        self.route, pair = "backlog", self._entity.pair
        self.route = await pair.redirect(
            self._entity, self.messages, deadline=deadline, scheduled_for=self._when
        )
        return pair.numbers.take(len(self.messages))


class ReplayCall:
    """Have messages sent, or scheduled, that waited in the spool. They do not go back there."""

    __slots__ = ("_entity", "_when", "by_request", "messages", "route")

    operation: ClassVar[Literal["send", "schedule"]] = "send"

    def __init__(self, entity: PairedEntity, messages: list[Message], when: datetime | None) -> None:
        self._entity = entity
        self._when = when
        self.by_request = when is not None
        self.messages = messages
        self.route: RouteName = "primary"

    def check(self, limits: LinkLimits | None) -> None:
        """What has been taken is not refused any more."""

    def transmit(self, sender: SdkSender) -> Coroutine[Any, Any, object]:
        """Have the primary take them."""
        native = self.messages[0] if len(self.messages) == 1 else self.messages
        if self._when is None:
            return sender.send_messages(native)
        return sender.schedule_messages(native, self._when)

    async def redirect(self, deadline: float | None) -> None:
        """Have the backlog take them."""
        self.route, entity = "backlog", self._entity
        await entity.pair.backlog.send(
            entity.path, self.messages, deadline=deadline, counts=entity.counts, scheduled_for=self._when
        )

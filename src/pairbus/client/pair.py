"""A pair at work: two sides, the entities that are sent to, the backlog, and what they share."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from ..clock import Clock
from ..options import SendAvailabilityOptions, StateChange
from ..pairing.errors import PairFaultedError
from ..pairing.headroom import HeadroomWatch, batch_limit
from ..pairing.health import HealthStatus
from ..pairing.names import backlog_queue_names, path_key
from ..pairing.scheduling import BacklogNumbers, check_cancellable
from .backlog import Backlog
from .entity import Call, Entity
from .link import Graveyard, SdkSender
from .message import Outgoing, PairedMessageBatch
from .notifier import Notifier
from .observer import LogObserver, Observer, Observers
from .records import Records
from .side import Side
from .status import EntityStatus, PairStatus
from .timers import LoopTimers, Timers

__all__ = ["Pair"]

# How long closing waits for links that are being closed, and for the application's callback.
_CLOSE_WAIT = 5.0


class Pair:
    """What a client is made of. It lives on one event loop."""

    def __init__(
        self,
        primary: Side,
        secondary: Side,
        *,
        name: str,
        options: SendAvailabilityOptions,
        clock: Clock,
        records: Records,
        on_state_change: Callable[[StateChange], object] | None,
        observers: Iterable[Observer],
        timers: Timers | None = None,
    ) -> None:
        self.primary = primary
        self.secondary = secondary
        self.name = name
        self.options = options
        self.timers: Timers = timers or LoopTimers(asyncio.get_running_loop())
        self.random = random.random
        self.graveyard = Graveyard()
        self.observers = Observers([LogObserver(), *observers])
        self.headroom = HeadroomWatch()
        self.had_success = False
        self.provisioning = "not started"
        self._clock = clock
        self._records = records
        self._notifier = Notifier(on_state_change)
        self._numbers = BacklogNumbers()
        self._entities: dict[str, Entity] = {}
        self._fault: PairFaultedError | None = None
        self.backlog = Backlog(
            secondary,
            backlog_queue_names(name, options.backlog_queue_count),
            options=options,
            timers=self.timers,
            graveyard=self.graveyard,
            observers=self.observers,
            records=records,
            wall_clock=clock.now,
            random=self.random,
        )

    # -- sending
    # -----------------------------------------------------------------------------------------------------

    async def send(self, entity: Entity, outgoing: Outgoing, timeout: float | None) -> None:
        """Have the messages in the primary or in the backlog."""
        self._check_fault()

        async def transmit(sender: SdkSender) -> None:
            await sender.send_messages(outgoing.native)

        async def redirect(deadline: float | None) -> None:
            await self.backlog.send(entity.path, outgoing.messages, deadline=deadline)

        await entity.perform(Call(outgoing.messages, transmit, redirect), timeout)

    async def schedule(
        self, entity: Entity, outgoing: Outgoing, *, when: datetime, timeout: float | None
    ) -> list[int]:
        """Schedule messages; the numbers of those that went to the backlog are negative."""
        self._check_fault()

        async def transmit(sender: SdkSender) -> list[int]:
            return await sender.schedule_messages(outgoing.native, when)

        async def redirect(deadline: float | None) -> list[int]:
            await self.backlog.send(entity.path, outgoing.messages, deadline=deadline, scheduled_for=when)
            return self._numbers.take(outgoing.count)

        numbers: list[int] = await entity.perform(Call(outgoing.messages, transmit, redirect), timeout)
        return numbers

    async def cancel_scheduled(self, entity: Entity, numbers: list[int], timeout: float | None) -> None:
        """Cancel messages that were scheduled at the primary."""
        self._check_fault()
        check_cancellable(numbers)

        async def transmit(sender: SdkSender) -> None:
            await sender.cancel_scheduled_messages(numbers)

        await entity.ask(transmit, timeout)

    async def new_batch(self, entity: Entity, max_size_in_bytes: int | None) -> PairedMessageBatch:
        """A batch that fits the primary and, with room for an envelope, a backlog queue."""
        self._check_fault()
        largest = await entity.batch_limit() or self.backlog.limit
        if max_size_in_bytes is not None and max_size_in_bytes > largest:
            raise ValueError(
                f"Max message size: {max_size_in_bytes} is too large, "
                f"acceptable max batch size is: {largest} bytes."
            )
        size = batch_limit(max_size_in_bytes, primary_limit=largest, backlog_limit=self.backlog.limit)
        return PairedMessageBatch(size)

    def entity(self, path: str, *, is_topic: bool = False) -> Entity:
        """The one sender of a path; paths are case-insensitive."""
        key = path_key(path)
        found = self._entities.get(key)
        if found is None:
            found = self._entities[key] = Entity(path, pair=self, is_topic=is_topic)
        return found

    # -- by hand
    # -----------------------------------------------------------------------------------------------------

    def fail_over(self, path: str, reason: str) -> None:
        """Send what is for `path` to the backlog from now on, until a ping succeeds."""
        entity = self.entity(path)
        entity.carry_out(entity.health.force_over(self.timers.now(), reason))

    def mark_path_healthy(self, path: str) -> None:
        """Send what is for `path` to the primary again, at once."""
        entity = self.entity(path)
        entity.carry_out(entity.health.mark_healthy(self.timers.now()))

    def fault(self, cause: str, side: str) -> None:
        """Refuse every send from now on."""
        self._fault = self._fault or PairFaultedError(side, cause)

    def _check_fault(self) -> None:
        if self._fault is not None:
            raise self._fault

    # -- telling
    # -----------------------------------------------------------------------------------------------------

    def notify(self, change: StateChange) -> None:
        """Tell everybody of a change; the rules count in monotonic time, people do not."""
        dated = replace(change, at=self._clock.now())
        self.observers.tell(lambda observer: observer.state_changed(dated))
        self._notifier.tell(dated)

    def status(self) -> PairStatus:
        """A picture of this moment."""
        now = self.timers.now()
        offset = self._clock.now() - now
        return PairStatus(
            at=self._clock.now(),
            primary=str(self.primary.endpoint),
            secondary=str(self.secondary.endpoint),
            primary_name=self.name,
            fault=None if self._fault is None else str(self._fault),
            provisioning=self.provisioning,
            had_success=self.had_success,
            backlog_limit=self.backlog.limit,
            entities=tuple(self._entity_status(entity, offset) for entity in self._entities.values()),
            rotation=tuple(
                replace(queue, returns_at=_dated(queue.returns_at, offset))
                for queue in self.backlog.rotation.status(now)
            ),
        )

    def _entity_status(self, entity: Entity, offset: float) -> EntityStatus:
        health: HealthStatus = entity.health.status()
        dated = replace(
            health,
            since=_dated(health.since, offset),
            fails_over_at=_dated(health.fails_over_at, offset),
            next_ping_at=_dated(health.next_ping_at, offset),
        )
        return EntityStatus(health=dated, without_headroom=self.headroom.count(entity.path))

    async def close(self) -> None:
        """Stop the pings, close every link and both sides."""
        for entity in self._entities.values():
            await entity.close()
        await self.backlog.close()
        await self.graveyard.wait(_CLOSE_WAIT)
        await self._records.close()
        for side in (self.primary, self.secondary):
            await side.close()
        await asyncio.get_running_loop().run_in_executor(None, self._notifier.close, _CLOSE_WAIT)


def _dated(moment: float | None, offset: float) -> float | None:
    return None if moment is None else moment + offset

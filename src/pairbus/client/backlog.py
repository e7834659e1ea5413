"""The way to the backlog: wrap, split, choose a queue of the rotation, send, write the redirect record.

1. All senders of a client share one link to each backlog queue, and one rotation.
2. A queue that fails leaves the rotation and the next one is tried at once, until one takes the message, the
   caller's time is over, or none is left.
3. What is near the limit of a backlog queue is measured; all else is known to fit by the size of its body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import OperationTimeoutError

from ..amqp.message import encode_data
from ..options import SendAvailabilityOptions
from ..pairing.envelope import Natives, compress_body, wrap
from ..pairing.failures import Action, describe, judge_backlog
from ..pairing.headroom import SplitProgress, check_fit, split_batch
from ..pairing.rotation import Rotation
from .link import Attempt, Ending, Graveyard, Result, SdkSender, SendLink
from .message import Message, body_bytes, data_of, measure, message_id_of, natives_of, wrapped_copy
from .observer import Observers, Sending
from .records import Records, RedirectRecord
from .side import Side
from .timers import Timers

__all__ = ["Backlog"]

# Until a link has said otherwise: the Standard tier.
DEFAULT_LIMIT = 262_144
# A message whose body leaves this much room fits whatever its properties are: all headers together end at 64
# KB.
_CERTAIN_ROOM = 68 * 1024
# How many queues are asked whether somebody has paired before us.
_ASKED_QUEUES = 2


@dataclass(frozen=True, slots=True)
class _Parcel:
    """A wrapped message and what its record says."""

    wrapped: AmqpAnnotatedMessage
    message_id: str
    session_id: str | None


class Backlog:
    """The backlog queues of one client."""

    def __init__(
        self,
        side: Side,
        queues: list[str],
        *,
        options: SendAvailabilityOptions,
        timers: Timers,
        graveyard: Graveyard,
        observers: Observers,
        records: Records,
        wall_clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self.rotation = Rotation(queues, cool_down=options.rotation_cool_down, random=random)
        self.limit = DEFAULT_LIMIT
        self._side = side
        self._queues = queues
        self._options = options
        self._timers = timers
        self._graveyard = graveyard
        self._observers = observers
        self._records = records
        self._wall_clock = wall_clock
        self._links: dict[str, SendLink] = {}
        self._has_opened = False

    async def send(
        self,
        path: str,
        messages: list[Message],
        *,
        deadline: float | None,
        scheduled_for: datetime | None = None,
    ) -> None:
        """Have all of `messages` in backlog queues, in order, or raise; what was taken is on record when this
        returns.
        """
        parcels = [self._wrap(path, message, scheduled_for) for message in messages]
        progress = SplitProgress(split_batch(self._sizes(parcels, messages), limit=self.limit))
        for group in progress.remaining:
            chosen = [parcels[index] for index in group]
            queue = await self._send_group(path, chosen, deadline)
            progress.mark_sent(group)
            await self._record(path, queue, chosen)

    async def ask(self) -> bool:
        """Whether a link to a backlog queue opens: then somebody has paired these namespaces before."""
        if self._has_opened:
            return True
        for queue in self._queues[:_ASKED_QUEUES]:
            result = await self._link(queue).run(
                Attempt(), self._open, limit=self._options.send_timeout, deadline=None
            )
            if result.ending is Ending.DONE:
                return True
        return False

    async def close(self) -> None:
        """Close all links."""
        for link in self._links.values():
            await link.close()

    # -- wrapping
    # ----------------------------------------------------------------------------------------------------

    def _wrap(self, path: str, message: Message, scheduled_for: datetime | None) -> _Parcel:
        natives = natives_of(message, scheduled_for)
        copy = wrapped_copy(message, wrap(path, natives))
        if body_bytes(message) > self.limit - _CERTAIN_ROOM and measure(copy) > self.limit:
            copy = self._compress(path, message, natives)
        return _Parcel(copy, message_id_of(message), natives.session_id)

    def _compress(self, path: str, message: Message, natives: Natives) -> AmqpAnnotatedMessage:
        sections = data_of(message) if self._options.compress_oversized else None
        copy = wrapped_copy(message, wrap(path, natives))
        if sections is not None:
            body = compress_body(b"".join(map(encode_data, sections)))
            copy = wrapped_copy(message, wrap(path, natives), body=body)
        check_fit(
            path, message_id=message_id_of(message), size=measure(copy), overhead=0, backlog_limit=self.limit
        )
        return copy

    def _sizes(self, parcels: list[_Parcel], messages: list[Message]) -> list[int]:
        """What each takes in a batch; measured only if they might not all fit into one."""
        bodies = [body_bytes(message) for message in messages]
        if len(messages) == 1 or sum(bodies) + len(bodies) * _CERTAIN_ROOM <= self.limit:
            return [0] * len(messages)
        return [measure(parcel.wrapped) for parcel in parcels]

    # -- sending
    # -----------------------------------------------------------------------------------------------------

    async def _send_group(self, path: str, parcels: list[_Parcel], deadline: float | None) -> str:
        payload = self._payload(parcels)
        while True:
            now = self._timers.now()
            queue = self.rotation.choose(path, now)
            result = await self._link(queue).run(
                Attempt(),
                lambda sender: self._transmit(sender, payload),
                limit=self._options.send_timeout,
                deadline=deadline,
            )
            self._observe(path, parcels, result, began=now)
            if result.ending is Ending.DONE:
                self.rotation.succeed(queue, self._timers.now())
                return queue
            await self._cope(queue, result, deadline)

    async def _transmit(self, sender: SdkSender, payload: Any) -> None:
        await self._open(sender)
        await sender.send_messages(payload)

    async def _open(self, sender: SdkSender) -> None:
        if not self._has_opened:
            # Opens the link as well, and is the SDK's public way to tell how much the link takes.
            batch = await sender.create_message_batch()
            self.limit = batch.max_size_in_bytes
            self._has_opened = True

    def _payload(self, parcels: list[_Parcel]) -> Any:
        if len(parcels) == 1:
            return parcels[0].wrapped
        batch = ServiceBusMessageBatch(self.limit)
        for parcel in parcels:
            batch.add_message(parcel.wrapped)
        return batch

    async def _cope(self, queue: str, result: Result, deadline: float | None) -> None:
        """Decide about a send that failed: return to try again, or raise."""
        now = self._timers.now()
        if deadline is not None and now >= deadline:
            raise OperationTimeoutError(
                message="The backlog did not take the message in the time given to the call."
            )
        if result.ending is Ending.ABANDONED:
            raise OperationTimeoutError(message="The client was closed before the backlog took the message.")
        if result.error is None:
            self._remove(queue, now, f"no answer within {self._options.send_timeout:g} s")
            return
        failure = describe(result.error)
        verdict = judge_backlog(failure, self._options)
        if verdict.action is Action.RAISE:
            raise result.error
        if verdict.action is Action.THROTTLED:
            await self._wait(verdict.wait, deadline)
            return
        self._link(queue).discard()
        self._remove(queue, now, failure.summary)

    async def _wait(self, seconds: float, deadline: float | None) -> None:
        until = self._timers.now() + seconds
        pause = Attempt()
        waiter = pause.waiter(asyncio.get_running_loop())
        timer = self._timers.call_at(until if deadline is None else min(until, deadline), pause.expire)
        try:
            await waiter
        finally:
            timer.cancel()

    def _remove(self, queue: str, now: float, reason: str) -> None:
        if self.rotation.fail(queue, now, reason=reason):
            usable = len(self.rotation.usable(now))
            self._observers.tell(lambda observer: observer.rotation_changed(usable, len(self._queues)))

    def _observe(self, path: str, parcels: list[_Parcel], result: Result, *, began: float) -> None:
        sending = Sending(
            path=path,
            route="backlog",
            outcome=result.outcome,
            messages=len(parcels),
            size=sum(body_bytes(parcel.wrapped) for parcel in parcels),
            seconds=self._timers.now() - began,
        )
        self._observers.tell(lambda observer: observer.sent(sending))

    async def _record(self, path: str, queue: str, parcels: list[_Parcel]) -> None:
        at = self._wall_clock()
        await self._records.append(
            [
                RedirectRecord(
                    message_id=parcel.message_id, path=path, session_id=parcel.session_id, queue=queue, at=at
                )
                for parcel in parcels
            ]
        )

    def _link(self, queue: str) -> SendLink:
        link = self._links.get(queue)
        if link is None:
            link = self._links[queue] = SendLink(
                lambda: self._side.open_sender(queue), graveyard=self._graveyard, timers=self._timers
            )
        return link

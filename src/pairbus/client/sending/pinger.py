"""Asks an entity that has failed over whether it takes messages again.

A ping has a link of its own, opened for it when the entity fails over and closed when it is back. It may take
no longer than the time to the next one, or a ping that met a silent peer would hold up the failback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

from azure.servicebus import ServiceBusMessage

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.failures import Fate
from pairbus.sdk.side import SdkSender
from pairbus.timers import Timers
from pairbus.words import PING_CONTENT_TYPE

from .link import SendLink, fate_of
from .message import new_id
from .ticket import Ending, Ticket

__all__ = ["PING_CONTENT_TYPE", "Pinger"]

_PING_LIFE = timedelta(seconds=1)


class Pinger:
    """Pings one entity, one ping at a time."""

    def __init__(
        self,
        link: SendLink,
        *,
        options: SendAvailabilityOptions,
        timers: Timers,
        on_end: Callable[[int, Ending, BaseException | None, float], object],
        on_fate: Callable[[Fate], object],
    ) -> None:
        """`on_end` gets the number of the ping, how it ended, what it met, and the seconds it took; `on_fate`
        what became of each message that was one, also if nobody waited for it any more.
        """
        self._link = link
        self._timers = timers
        self._on_end = on_end
        self._on_fate = on_fate
        self._operation = _open_link if options.probe == "link" else _send_ping
        self.limit = min(options.attempt_timeout, options.ping_primary_interval)
        self._running: dict[asyncio.Task[None], Ticket] = {}

    def start(self, number: int) -> None:
        """Ping, and tell of the answer."""
        ticket = Ticket()
        task = asyncio.get_running_loop().create_task(self._ping(number, ticket))
        self._running[task] = ticket
        task.add_done_callback(self._forget)

    def stop(self) -> None:
        """Nobody waits for a ping any more."""
        for ticket in list(self._running.values()):
            ticket.abandon()
        self._link.discard()  # one whose ping is under way goes with that

    async def close(self) -> None:
        """Stop, and close the link."""
        self.stop()
        await self._link.close(0.0)

    async def _ping(self, number: int, ticket: Ticket) -> None:
        began = self._timers.now()
        ending = await self._link.run(ticket, self._operation, limit=self.limit)
        if ticket.called_at is not None and self._operation is _send_ping:
            self._on_fate(fate_of(ending, ticket.error))
        if ending is Ending.ABANDONED:
            return
        if ending is not Ending.DONE or self._operation is _open_link:
            self._link.discard()  # a link that is open already would tell nothing the next time
        self._on_end(number, ending, ticket.error, self._timers.now() - began)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled():
            task.result()


async def _open_link(sender: SdkSender) -> None:
    await sender.__aenter__()


async def _send_ping(sender: SdkSender) -> None:
    await sender.send_messages(
        ServiceBusMessage(
            b"",
            content_type=PING_CONTENT_TYPE,
            time_to_live=_PING_LIFE,
            # A random session, so that entities with sessions take it too.
            session_id=uuid4().hex,
            message_id=new_id(),
        )
    )

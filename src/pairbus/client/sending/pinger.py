"""Asks an entity that has failed over whether it takes messages again.

A ping has a link of its own, opened when the entity fails over and closed when it is back. While one is still
without an answer the next has a fresh link, so that a peer that was silent holds up no failback; both are
listened to, each for `ping_timeout`.
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
    """Pings one entity."""

    def __init__(
        self,
        new_link: Callable[[], SendLink],
        *,
        options: SendAvailabilityOptions,
        timers: Timers,
        on_end: Callable[[int, Ending, BaseException | None, float], object],
        on_fate: Callable[[Fate], object],
    ) -> None:
        """`on_end` gets the number of the ping, how it ended, what it met, and the seconds it took; `on_fate`
        what became of each message that was one, also if nobody waited for it any more.
        """
        self._new_link = new_link
        self._idle: list[SendLink] = []
        self._timers = timers
        self._on_end = on_end
        self._on_fate = on_fate
        self._operation = _open_link if options.probe == "link" else _send_ping
        self.limit = options.ping_timeout
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
        for link in self._idle:
            link.discard()

    async def close(self) -> None:
        """Stop, and close the links."""
        self.stop()
        if self._running:
            await asyncio.wait(self._running)
        await asyncio.gather(*(link.close(0.0) for link in self._idle))

    async def _ping(self, number: int, ticket: Ticket) -> None:
        link = self._idle.pop() if self._idle else self._new_link()
        began = self._timers.now()
        try:
            ending = await link.run(ticket, self._operation, limit=self.limit)
            if ending is not Ending.DONE or self._operation is _open_link:
                link.discard()  # a link that is open already would tell nothing the next time
        finally:
            self._idle.append(link)
        if ticket.called_at is not None and self._operation is _send_ping:
            self._on_fate(fate_of(ending, ticket))
        if ending is Ending.ABANDONED:
            return
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

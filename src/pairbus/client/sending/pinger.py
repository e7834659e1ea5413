"""Asks an entity that has failed over whether it takes messages again.

A ping has a link of its own, opened when the entity fails over. While one is still without an answer the next
has a fresh link, so that a peer that was silent holds up no failback; both are listened to, each for
`ping_timeout`. The link on which the entity answers is for its sends: to open another may take longer than a
short `failover_interval`, and would fail over what has just come back, again and again.

Where another client's ping was good, a *look* tells whether this one gets there as well: a link of its own
that opens. It costs nothing, and who is alone cut off does not send into the void on the word of others.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

from azure.servicebus import ServiceBusMessage

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.failures import Fate
from pairbus.sdk.side import SdkSender
from pairbus.timers import Timers
from pairbus.words import PING_CONTENT_TYPE

from .link import SendLink
from .message import new_id
from .ticket import Ending, Ticket, fate_of

T = TypeVar("T")
_PING_LIFE = timedelta(seconds=1)


class Pinger:
    """Pings one entity."""

    def __init__(
        self,
        new_link: Callable[[], SendLink],
        *,
        options: SendAvailabilityOptions,
        timers: Timers,
        on_end: Callable[[int, Ending, BaseException | None, float, SendLink], object],
        on_fate: Callable[[Fate], object],
    ) -> None:
        """`on_end` gets the number of the ping, how it ended, what it met, the seconds it took and its link;
        `on_fate` what became of each message that was one, also if nobody waited for it any more.
        """
        self._new_link = new_link
        self._idle: list[SendLink] = []
        self._timers = timers
        self._on_end = on_end
        self._on_fate = on_fate
        self._operation = open_link if options.probe == "link" else _send_ping
        self.limit = options.ping_timeout
        self._running: dict[asyncio.Task[None], Ticket] = {}
        self._is_looking = False

    def start(self, number: int) -> None:
        """Ping, and tell of the answer."""
        self._run(self._ping, number)

    def look(self, tell: Callable[[SendLink | None], object]) -> None:
        """Open a link, unless that is being done, and tell of it: the link, or None if it does not open."""
        if not self._is_looking:
            self._is_looking = True
            self._run(self._look, tell)

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

    def _run(self, work: Callable[[T, Ticket], Coroutine[Any, Any, None]], given: T) -> None:
        ticket = Ticket()
        task = asyncio.get_running_loop().create_task(work(given, ticket))
        self._running[task] = ticket
        task.add_done_callback(self._forget)

    async def _look(self, tell: Callable[[SendLink | None], object], ticket: Ticket) -> None:
        link = self._new_link()
        try:
            ending = await link.run(ticket, open_link, limit=self.limit)
        finally:
            self._is_looking = False
        if not ticket.is_abandoned:  # be it in the turn in which the answer came
            tell(link if ending is Ending.DONE else None)
        await link.close(0.0)  # unless somebody has taken it over

    async def _ping(self, number: int, ticket: Ticket) -> None:
        link = self._idle.pop() if self._idle else self._new_link()
        began = self._timers.now()
        try:
            ending = await link.run(ticket, self._operation, limit=self.limit)
            if ending is not Ending.DONE:
                link.discard()
        finally:
            self._idle.append(link)
        if ticket.called_at is not None and self._operation is _send_ping:
            self._on_fate(fate_of(ending, ticket))
        if not ticket.is_abandoned:
            self._on_end(number, ending, ticket.error, self._timers.now() - began, link)
        if self._operation is open_link:
            link.discard()  # one that is open already would tell nothing the next time

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled():
            task.result()


async def open_link(sender: SdkSender) -> None:
    """Do no more than that."""
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

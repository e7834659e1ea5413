"""Producers and consumers on the official client, which write down what they do and what they were told."""

import asyncio
import contextlib
import datetime
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from tests.crash.journal import Fate, Journal

__all__ = ["QUEUE", "SESSIONS", "SESSION_QUEUE", "WORKERS", "Load"]

Work = Callable[[ServiceBusClient], Coroutine[Any, Any, None]]
QUEUE, SESSION_QUEUE = "orders", "visits"
SESSIONS = ["north", "south"]
PRODUCERS = 2
CONSUMERS = 3
# All at work, those of sessions and schedules included.
WORKERS = PRODUCERS + CONSUMERS + len(SESSIONS) + 2
BATCH = 5
# Times that an abandoned message is given back before it is completed.
ABANDONS = 2
# A client whose broker is gone may need a moment to notice; what it says then does not count any more.
GOODBYE = 20.0


class Load:
    """Keeps a broker busy until it is stopped. Message ids go on from one broker to the next."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._numbers = itertools.count(1)

    @contextlib.asynccontextmanager
    async def running(self, connection_string: str) -> AsyncIterator[None]:
        """Have all producers and consumers at work."""
        client = ServiceBusClient.from_connection_string(connection_string, retry_total=0)
        works: list[Work] = [self._produce_sessions, self._schedule]
        works += [self._produce] * PRODUCERS + [self._consume] * CONSUMERS
        works += [self._visit(session_id) for session_id in SESSIONS]
        tasks = [asyncio.create_task(_until_broken(work, client)) for work in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(ServiceBusError, OSError, TimeoutError):
                await asyncio.wait_for(client.close(), GOODBYE)

    # -- the queue without sessions

    async def _produce(self, client: ServiceBusClient) -> None:
        async with client.get_queue_sender(QUEUE) as sender:
            for size in itertools.cycle([1, 1, BATCH]):
                ids = list(itertools.islice(self._ids("m"), size))
                noted = [self.journal.begin(each, Fate.ACTIVE) for each in ids]
                await sender.send_messages([ServiceBusMessage(each * 20, message_id=each) for each in ids])
                for each, number in zip(ids, noted, strict=True):
                    self.journal.confirm(each, number)

    async def _schedule(self, client: ServiceBusClient) -> None:
        tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
        async with client.get_queue_sender(QUEUE) as sender:
            for each in self._ids("s"):
                number = self.journal.begin(each, Fate.SCHEDULED)
                message = ServiceBusMessage(each, message_id=each)
                (scheduled,) = await sender.schedule_messages([message], tomorrow)
                self.journal.confirm(each, number)
                if _kind(each, 3) == 0:
                    number = self.journal.begin(each, Fate.ABSENT)
                    await sender.cancel_scheduled_messages([scheduled])
                    self.journal.confirm(each, number)

    async def _consume(self, client: ServiceBusClient) -> None:
        async with client.get_queue_receiver(QUEUE) as receiver:
            while True:
                for message in await receiver.receive_messages(max_message_count=BATCH, max_wait_time=1):
                    await self._settle(receiver, message)

    async def _settle(self, receiver: Any, message: Any) -> None:
        """What becomes of a message is decided by its number: most are completed, some are not."""
        each = message.message_id
        match _kind(each, 8):
            case 0:
                await self._note(each, Fate.DEFERRED, receiver.defer_message(message), counted=True)
                if _kind(each, 16) == 0:
                    (deferred,) = await receiver.receive_deferred_messages(message.sequence_number)
                    await self._note(each, Fate.ABSENT, receiver.complete_message(deferred))
            case 1:
                await self._note(each, Fate.DEAD, receiver.dead_letter_message(message, reason="bad"))
            case 2 if message.delivery_count < ABANDONS:
                await self._note(each, Fate.ACTIVE, receiver.abandon_message(message), counted=True)
            case 3:
                pass  # received and never settled: it waits again when its lock ends, or the broker
            case _:
                await self._note(each, Fate.ABSENT, receiver.complete_message(message))

    async def _note(
        self, message_id: str, fate: Fate, act: Coroutine[Any, Any, None], *, counted: bool = False
    ) -> None:
        number = self.journal.begin(message_id, fate)
        await act
        self.journal.confirm(message_id, number, counted=counted)

    # -- the queue with sessions

    async def _produce_sessions(self, client: ServiceBusClient) -> None:
        async with client.get_queue_sender(SESSION_QUEUE) as sender:
            for session_id, each in zip(itertools.cycle(SESSIONS), self._ids("v"), strict=False):
                number = self.journal.begin(each, Fate.ACTIVE)
                await sender.send_messages(ServiceBusMessage(each, message_id=each, session_id=session_id))
                self.journal.confirm(each, number)

    def _visit(self, session_id: str) -> Work:
        async def visit(client: ServiceBusClient) -> None:
            async with client.get_queue_receiver(SESSION_QUEUE, session_id=session_id) as receiver:
                while True:
                    for message in await receiver.receive_messages(max_message_count=BATCH, max_wait_time=1):
                        await self._settle_in_session(receiver, message)

        return visit

    async def _settle_in_session(self, receiver: Any, message: Any) -> None:
        each, session_id = message.message_id, message.session_id
        number = self.journal.begin_state(session_id, each.encode())
        await receiver.session.set_state(each.encode())
        self.journal.confirm_state(session_id, number)
        await self._note(each, Fate.ABSENT, receiver.complete_message(message))

    def _ids(self, prefix: str) -> Iterator[str]:
        return (f"{prefix}{number}" for number in self._numbers)


def _kind(message_id: str, of: int) -> int:
    return int(message_id[1:]) % of


async def _until_broken(work: Work, client: ServiceBusClient) -> None:
    """Work until the broker goes away; whatever was under way then stays unconfirmed."""
    with contextlib.suppress(ServiceBusError, OSError):
        await work(client)

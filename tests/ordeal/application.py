"""An application that sends until it is told to stop: JOURNAL STATE PRIMARY SECONDARY."""

import asyncio
import itertools
import os
import sys
import time

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.aio import PairedServiceBusClient
from pairbus.client.observers.observer import Observer, Sending
from pairbus.client.status import PairStatus
from pairbus.errors import PairbusError
from pairbus.options import SendAvailabilityOptions
from tests.waiting import eventually

from .journal import BACKLOG, Journal, body_of
from .signals import set_clock_by_signals, stop_at_sigterm

CALLERS = 3
PAUSE = 0.02
OPTIONS = SendAvailabilityOptions(
    failover_interval=1.0,
    send_timeout=2.0,
    ping_primary_interval=1.0,
    ping_jitter=0.0,
    rotation_cool_down=1.0,
    backlog_queue_count=len(BACKLOG),
    enable_spool=True,
)


class Doubts(Observer):
    """Notes the sends of which nobody knows whether they have arrived."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def sent(self, sending: Sending) -> None:
        if sending.outcome == "unknown":
            self._journal.note("unknown", sending.messages)


def is_empty(status: PairStatus) -> bool:
    return status.spool is None or not status.spool.messages


async def run(path: str, state: str, primary: str, secondary: str) -> None:
    stop, journal = stop_at_sigterm(), Journal(path)
    numbers, me = itertools.count(), f"{os.getpid()}-{time.monotonic_ns()}"
    client = PairedServiceBusClient.from_connection_strings(
        primary,
        secondary,
        options=OPTIONS,
        state_dir=state,
        observers=[Doubts(journal)],
        primary_name="contoso",
    )

    async def call() -> None:
        sender = client.get_queue_sender("orders")
        while not stop.is_set():
            name = f"{me}-{next(numbers)}"
            journal.note("begun", name)
            try:
                await sender.send_messages(ServiceBusMessage(body_of(name), message_id=name))
                journal.note("done", name)
            except (PairbusError, ServiceBusError, OSError):
                journal.note("failed", name)
            await asyncio.sleep(PAUSE)

    async with client:
        await asyncio.gather(*(call() for _ in range(CALLERS)))
        await eventually(lambda: is_empty(client.status()), what="an empty spool")


if __name__ == "__main__":
    set_clock_by_signals()
    asyncio.run(run(*sys.argv[1:]))

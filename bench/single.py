"""Single sends by the official SDK: one message, one answer, the next message."""

import asyncio
import time
from dataclasses import dataclass

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from bench.brokers import Pairbus
from bench.serve import QUEUE

__all__ = ["SingleSends", "measure_single_sends"]

# Opening the link and putting the token are no part of a send.
_WARM_UP = 20


@dataclass(frozen=True, slots=True)
class SingleSends:
    """What a run took: real time, and processor time on both sides."""

    count: int
    seconds: float
    client_seconds: float
    broker_seconds: float


def measure_single_sends(broker: Pairbus, *, count: int, body_size: int) -> SingleSends:
    """Send one message after the other; this process is the client."""
    return asyncio.run(_measure(broker, count, "x" * body_size))


async def _measure(broker: Pairbus, count: int, body: str) -> SingleSends:
    async with (
        ServiceBusClient.from_connection_string(broker.connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
    ):
        for _ in range(_WARM_UP):
            await sender.send_messages(ServiceBusMessage(body))
        broker_before, client_before = broker.processor_seconds(), time.process_time()
        begun = time.perf_counter()
        for _ in range(count):
            await sender.send_messages(ServiceBusMessage(body))
        seconds = time.perf_counter() - begun
        client_used = time.process_time() - client_before
        broker_used = broker.processor_seconds() - broker_before
    return SingleSends(count, seconds, client_used, broker_used)

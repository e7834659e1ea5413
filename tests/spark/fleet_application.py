"""An application of a fleet, whose primary is said to be down: STATE RECORDS COUNT NAME.

It sends so many messages, all of which go to the backlog, and ends as an application does.
"""

from __future__ import annotations

import asyncio
import os
import sys

from azure.servicebus import ServiceBusMessage

from pairbus.aio import PairedServiceBusClient
from pairbus.options import SendAvailabilityOptions

from .bus import PRIMARY_ENV, SECONDARY_ENV

AT_ONCE = 100
# It hears nothing of the primary until it has ended.
OPTIONS = SendAvailabilityOptions(ping_primary_interval=1800.0, backlog_queue_count=4)


async def send_all(state: str, records: str, count: int, name: str) -> None:
    client = PairedServiceBusClient.from_connection_strings(
        os.environ[PRIMARY_ENV],
        os.environ[SECONDARY_ENV],
        options=OPTIONS,
        state_dir=state,
        records=records,
        primary_name="contoso",
    )
    async with client:
        client.fail_over("orders")
        sender = client.get_queue_sender("orders")
        for begin in range(0, count, AT_ONCE):
            numbers = range(begin, min(count, begin + AT_ONCE))
            await sender.send_messages([ServiceBusMessage("x", message_id=f"{name}-{n}") for n in numbers])


if __name__ == "__main__":
    state, records, count, name = sys.argv[1:]
    asyncio.run(send_all(state, records, int(count), name))

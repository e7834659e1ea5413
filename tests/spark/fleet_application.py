"""An application of a fleet, whose primary is said to be down: STATE RECORDS ORDERS INVOICES NAME.

It sends so many messages of each, all of which go to the backlog, and ends as an application does.
"""

import asyncio
import os
import sys
from collections.abc import Mapping

from azure.servicebus import ServiceBusMessage

from pairbus.aio import PairedServiceBusClient
from pairbus.options import SendAvailabilityOptions

from .bus import PRIMARY_ENV, SECONDARY_ENV

AT_ONCE = 100
# It hears nothing of the primary until it has ended.
OPTIONS = SendAvailabilityOptions(ping_primary_interval=1800.0, backlog_queue_count=4)


async def send_all(state: str, records: str, counts: Mapping[str, int], name: str) -> None:
    client = PairedServiceBusClient.from_connection_strings(
        os.environ[PRIMARY_ENV],
        os.environ[SECONDARY_ENV],
        options=OPTIONS,
        state_dir=state,
        records=records,
        primary_name="contoso",
    )
    async with client:
        for queue, count in counts.items():
            client.fail_over(queue)
            sender = client.get_queue_sender(queue)
            ids = [f"{name}-{queue}-{number}" for number in range(count)]
            for begin in range(0, count, AT_ONCE):
                some = ids[begin : begin + AT_ONCE]
                await sender.send_messages([ServiceBusMessage("x", message_id=id) for id in some])


if __name__ == "__main__":
    state, records, orders, invoices, name = sys.argv[1:]
    asyncio.run(send_all(state, records, {"orders": int(orders), "invoices": int(invoices)}, name))

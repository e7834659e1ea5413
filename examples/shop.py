"""An application to drill: it sends orders through a paired client until it is asked to end.

    pairbus drill --app "python examples/shop.py"

The drill gives it two connection strings and a state directory, and reads in its output which sends returned.
"""

import asyncio
import itertools
import os
import signal

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus import PairbusError, SendAvailabilityOptions
from pairbus.aio import PairedServiceBusClient

QUEUE = "orders"
PAUSE = 0.03


async def main() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    client = PairedServiceBusClient.from_connection_strings(
        os.environ["PAIRBUS_DRILL_PRIMARY"],
        os.environ["PAIRBUS_DRILL_SECONDARY"],
        options=SendAvailabilityOptions(
            failover_interval=2,
            ping_primary_interval=1,
            backlog_queue_count=4,
            enable_spool=True,  # while both sides are down, orders wait on this machine
        ),
        state_dir=os.environ["PAIRBUS_DRILL_STATE"],
    )
    async with client, client.get_queue_sender(QUEUE) as sender:
        for number in itertools.count():
            if ended.is_set():
                return
            order = f"order-{number:05}"
            try:
                await sender.send_messages(ServiceBusMessage(f"one of {order}", message_id=order))
            except (ServiceBusError, PairbusError):  # neither the SDK nor the pair could take it
                print("refused", order, QUEUE, flush=True)
            else:
                print("sent", order, QUEUE, flush=True)
            await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    asyncio.run(main())

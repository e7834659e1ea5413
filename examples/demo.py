"""An outage from beginning to end, on two embedded namespaces: nothing is lost, and you see why.

An application sends orders without a pause. The primary is broken in the middle of it; sends go on to the
backlog of the secondary, come back when the primary does, and a pump brings the backlog home. In the end
every order is received from the primary with the plain SDK. Run it with ``make demo``: it ends with exit code
1 when an order is missing.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import EntityState, PairedServiceBusClient, SendAvailabilityOptions, StateChange
from pairbus.broker import Broker, NamespaceHandle
from pairbus.pairing.names import backlog_queue_names
from pairbus.pump import Pump, PumpOptions, PumpPair

QUEUE = "orders"
BACKLOG_QUEUES = 3
OPTIONS = SendAvailabilityOptions(
    backlog_queue_count=BACKLOG_QUEUES, failover_interval=1.0, ping_primary_interval=1.0
)
# Far longer than any step takes; the demo must not hang on a machine that is too slow for it.
PATIENCE = 30.0


class Story:
    """What has happened so far, told line by line."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.sent: list[str] = []
        self.state = EntityState.HEALTHY

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:5.1f} s  {text}", flush=True)

    def on_state_change(self, change: StateChange) -> None:
        self.state = change.new
        self.tell(f"{change.path}: {change.old.value} -> {change.new.value} ({change.reason[:70]})")


def send_until(
    story: Story, client: PairedServiceBusClient, is_enough: Callable[[], bool], *, at_least: int
) -> int:
    """Send orders, one after the other, until there are enough of them; how many that were."""
    deadline = time.monotonic() + PATIENCE
    first = len(story.sent)
    with client.get_queue_sender(QUEUE) as sender:
        while len(story.sent) - first < at_least or not is_enough():
            if time.monotonic() > deadline:
                raise TimeoutError("the demo is stuck; is the machine very busy?")
            order = f"order-{len(story.sent):05}"
            sender.send_messages(ServiceBusMessage(f"one of {order}", message_id=order))
            story.sent.append(order)
    return len(story.sent) - first


def live_through_an_outage(story: Story, primary: NamespaceHandle, secondary: NamespaceHandle) -> None:
    with PairedServiceBusClient.from_connection_strings(
        primary.connection_string,
        secondary.connection_string,
        options=OPTIONS,
        on_state_change=story.on_state_change,
    ) as client:
        count = send_until(story, client, lambda: True, at_least=200)
        story.tell(f"sent {count} orders to the primary")

        primary.faults.set("refuse")
        story.tell("the primary is down: every connection is refused")
        send_until(story, client, lambda: story.state is EntityState.FAILED_OVER, at_least=1)
        count = send_until(story, client, lambda: True, at_least=300)
        story.tell(f"sent {count} more; none failed, they are in the backlog of the secondary")

        primary.faults.clear()
        story.tell("the primary is up again; the next ping will see it")
        count = send_until(story, client, lambda: story.state is EntityState.HEALTHY, at_least=1)
        send_until(story, client, lambda: True, at_least=100)
        story.tell("orders go to the primary again")


def bring_the_backlog_home(story: Story, primary: NamespaceHandle, secondary: NamespaceHandle) -> None:
    pair = PumpPair.from_connection_strings(primary.connection_string, secondary.connection_string)
    queues = backlog_queue_names(primary.name, BACKLOG_QUEUES)
    summary = asyncio.run(Pump(pair, queues, options=PumpOptions(drain=True)).run())
    story.tell(
        f"the pump moved {summary.moved} orders in {summary.seconds:.1f} s; "
        f"{summary.waiting} wait, {summary.dead_lettered} are dead letters"
    )


def receive_all(story: Story, primary: NamespaceHandle) -> list[str]:
    received: list[str] = []
    client = ServiceBusClient.from_connection_string(primary.connection_string)
    with client, client.get_queue_receiver(QUEUE, prefetch_count=200, max_wait_time=1) as receiver:
        for message in receiver:
            received.append(str(message.message_id))
            receiver.complete_message(message)
            if len(received) == len(story.sent):
                break
    story.tell(f"received {len(received)} orders from the primary with the plain SDK")
    return received


def main() -> int:
    story = Story()
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker["contoso"], broker["contoso-dr"]
        primary.create_queue(QUEUE)
        story.tell(f"namespaces contoso and contoso-dr listen on ports {primary.port} and {secondary.port}")
        live_through_an_outage(story, primary, secondary)
        bring_the_backlog_home(story, primary, secondary)
        received = receive_all(story, primary)
    missing, twice = set(story.sent) - set(received), len(received) - len(set(received))
    if missing:
        print(f"missing: {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    story.tell(f"{len(story.sent)} orders sent, none missing, {twice} arrived twice")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""An embedded namespace and the official SDK: the whole way of a message, and what a fault looks like.

Run it with ``make demo``. It ends with exit code 1 when a message is missing.
"""

from __future__ import annotations

import sys
import time

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusQuotaExceededError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.broker import Broker, NamespaceHandle

QUEUE = "orders"
COUNT = 10


def create_queue(broker: Broker, namespace: NamespaceHandle) -> None:
    # Administration goes over TLS to the same port; the client has to trust the broker's own certificate.
    admin = ServiceBusAdministrationClient.from_connection_string(
        namespace.connection_string, connection_verify=str(broker.certificate)
    )
    with admin:
        admin.create_queue(QUEUE)
    print(f"created the queue {QUEUE} with the administration client")


def send(client: ServiceBusClient) -> set[str]:
    messages = [ServiceBusMessage(f"order {number}", message_id=str(number)) for number in range(COUNT)]
    with client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(messages)
    print(f"sent {COUNT} messages")
    return {str(message.message_id) for message in messages}


def receive(client: ServiceBusClient) -> set[str]:
    received = set()
    with client.get_queue_receiver(QUEUE, max_wait_time=1) as receiver:
        for message in receiver:
            received.add(str(message.message_id))
            receiver.complete_message(message)
            if len(received) == COUNT:
                break
    print(f"received and completed {len(received)}")
    return received


def show_a_fault(client: ServiceBusClient, namespace: NamespaceHandle) -> None:
    namespace.faults.set("full", entity=QUEUE)
    with client.get_queue_sender(QUEUE) as sender:
        try:
            sender.send_messages(ServiceBusMessage("one too many"))
        except ServiceBusQuotaExceededError as error:
            print(f"told the queue to be full, and the SDK raised {type(error).__name__}")
    namespace.faults.clear()


def main() -> int:
    started = time.monotonic()
    with Broker({"contoso": 0}) as broker:
        namespace = broker["contoso"]
        print(f"contoso listens on port {namespace.port}, {time.monotonic() - started:.2f} s after the start")
        create_queue(broker, namespace)
        with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
            missing = send(client) - receive(client)
            show_a_fault(client, namespace)
        for tally in namespace.counters():
            if tally.entity == QUEUE:
                print(f"the broker counted: {tally.kind} {tally.count}")
    if missing:
        print(f"missing: {', '.join(sorted(missing))}", file=sys.stderr)
        return 1
    print(f"nothing is missing; all of it took {time.monotonic() - started:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Tries on two real namespaces what embedded ones can only be believed to do as well, and prints a table.

`make test-azure` runs it, with two connection strings that have the Manage claim in PAIRBUS_AZURE_PRIMARY and
PAIRBUS_AZURE_SECONDARY. It makes queues of its own, `pairbus-trial-…`, and removes them at its end, whatever
happened. What a trial sees is compared with what an embedded namespace does: exit code 0 all is the same,
1 something differs, 2 the variables are missing, 3 a namespace cannot be reached.
"""

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import ServiceBusError, SessionCannotBeLockedError

from pairbus import words
from pairbus.errors import PairbusError
from pairbus.pairing.names import parse_connection_string
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import Side
from pairbus.pump.pump import open_transport
from pairbus.sdk.administration import open_administration

PRIMARY, SECONDARY = "PAIRBUS_AZURE_PRIMARY", "PAIRBUS_AZURE_SECONDARY"
SLOW = "PAIRBUS_AZURE_SLOW"
# Longer than any answer takes that comes at all.
PATIENCE = 30.0
POLL = 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """One namespace, and the queues that were made for the trials."""

    name: str
    connection_string: str
    queue: str
    sessions: str

    def client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.connection_string, retry_total=0)

    def send(self, *messages: ServiceBusMessage, queue: str | None = None) -> None:
        with self.client() as client, client.get_queue_sender(queue or self.queue) as sender:
            sender.send_messages(list(messages))

    def receive(self) -> ServiceBusReceivedMessage | None:
        with self.client() as client, client.get_queue_receiver(self.queue) as receiver:
            found = receiver.receive_messages(max_message_count=1, max_wait_time=PATIENCE)
            for message in found:
                receiver.complete_message(message)
            return found[0] if found else None

    def peek(self, *, dead: bool = False) -> list[ServiceBusReceivedMessage]:
        sub_queue: Any = "deadletter" if dead else None
        with self.client() as client, client.get_queue_receiver(self.queue, sub_queue=sub_queue) as receiver:
            return list(receiver.peek_messages(max_message_count=10))


@dataclass(frozen=True, slots=True)
class Trial:
    """A question, what an embedded namespace answers, and how to ask."""

    question: str
    expected: str
    ask: Callable[[Place], str]
    is_slow: bool = False


def ask_ping(place: Place) -> str:
    ping = ServiceBusMessage(b"", content_type=words.PING_CONTENT_TYPE, time_to_live=timedelta(seconds=1))
    place.send(ping)
    if place.peek():
        return "kept"
    time.sleep(3.0)  # its life, and the time to bury it
    return "dead letter" if place.peek(dead=True) else "swallowed"


def ask_delivery_count(place: Place) -> str:
    async def work() -> str:
        async with open_administration(place.connection_string) as admin:
            return str((await admin.get_queue(place.queue)).max_delivery_count)

    return asyncio.run(work())


def ask_lease(place: Place) -> str:
    place.send(ServiceBusMessage("held", session_id="lease"), queue=place.sessions)
    with place.client() as one, one.get_queue_receiver(place.sessions, session_id="lease") as holder:
        holder.session.set_state(b"mine")
        holder.session.renew_lock()
        try:
            with place.client() as two, two.get_queue_receiver(place.sessions, session_id="lease"):
                return "shared"
        except SessionCannotBeLockedError:
            return f"exclusive, renewed, state {bytes(holder.session.get_state() or b'').decode()}"


def ask_missing(place: Place) -> str:
    try:
        with place.client() as client, client.get_queue_sender("pairbus-trial-missing"):
            return "opened"
    except ServiceBusError as error:
        told = f"{error} {error.inner_exception}"
        return f"{type(error).__name__}, {'the text' if 'could not be found' in told else 'another text'}"


def ask_sessionless(place: Place) -> str:
    wanted = "requires sessions to create a non-sessionful message receiver"
    try:
        with place.client() as client, client.get_queue_receiver(place.sessions):
            return "opened"
    except ServiceBusError as error:
        return "the text" if wanted in str(error) else f"another text: {str(error)[:60]}"


def ask_annotations(place: Place) -> str:
    place.send(ServiceBusMessage("annotated"))
    message = place.receive()
    if message is None:
        return "nothing came"
    found = message.raw_amqp_message.annotations or {}
    names = (key.decode() if isinstance(key, bytes) else str(key) for key in found)
    return ", ".join(sorted(name.removeprefix("x-opt-") for name in names))


def ask_poll(place: Place) -> str:
    """A long poll of our own AMQP, over TLS on Azure, which a message ends."""

    async def work() -> str:
        transport = open_transport(Side(connection_string=place.connection_string).resolve(), PumpOptions())
        source = transport.source(place.queue)
        try:
            empty = await source.receive(10, POLL)
            asyncio.get_running_loop().call_later(POLL / 2, later.set)
            poll = asyncio.ensure_future(source.receive(10, PATIENCE))
            await later.wait()
            await asyncio.to_thread(place.send, ServiceBusMessage("polled"))
            found = await poll
            await source.complete(found)
            return f"{len(empty)} without, {len(found)} with a message"
        finally:
            await source.close()
            await transport.close()

    later = asyncio.Event()
    return asyncio.run(work())


def ask_idle_link(place: Place) -> str:
    """The service closes links after ten idle minutes; a client has to notice and open another."""
    with place.client() as client, client.get_queue_sender(place.queue) as sender:
        sender.send_messages(ServiceBusMessage("before"))
        time.sleep(11 * 60.0)
        try:
            sender.send_messages(ServiceBusMessage("after"))
        except ServiceBusError as error:
            return type(error).__name__
    return "sent"


TRIALS = (
    Trial("Is a ping swallowed, dead-lettered or kept?", "swallowed", ask_ping),
    Trial("The largest max_delivery_count that a queue keeps", "2147483647", ask_delivery_count),
    Trial(
        "Is a session a lease: exclusive, renewable, with a state?",
        "exclusive, renewed, state mine",
        ask_lease,
    ),
    Trial("What a missing entity is called", "ServiceBusAuthenticationError, the text", ask_missing),
    Trial("What a receiver without a session is told", "the text", ask_sessionless),
    Trial(
        "The annotations of a plain message", "enqueued-time, locked-until, sequence-number", ask_annotations
    ),
    Trial("A long poll: empty at its end, ended by a message", "0 without, 1 with a message", ask_poll),
    Trial("A sender after eleven idle minutes", "sent", ask_idle_link, is_slow=True),
)


async def make_queues(connection_string: str, token: str) -> Place:
    name = parse_connection_string(connection_string).endpoint.host
    place = Place(name, connection_string, f"pairbus-trial-{token}", f"pairbus-trial-{token}-sessions")
    async with open_administration(connection_string) as admin:
        await admin.create_queue(
            place.queue, max_delivery_count=2_147_483_647, dead_lettering_on_message_expiration=True
        )
        await admin.create_queue(place.sessions, requires_session=True)
    return place


async def remove_queues(connection_string: str, token: str) -> None:
    async with open_administration(connection_string) as admin:
        for name in (f"pairbus-trial-{token}", f"pairbus-trial-{token}-sessions"):
            try:
                await admin.delete_queue(name)
            except ResourceNotFoundError:
                continue


@contextmanager
def prepared(connection_string: str) -> Iterator[Place]:
    token = secrets.token_hex(4)
    try:
        yield asyncio.run(make_queues(connection_string, token))
    finally:
        asyncio.run(remove_queues(connection_string, token))


def try_one(trial: Trial, place: Place) -> str:
    try:
        return trial.ask(place)
    except (AzureError, PairbusError, OSError) as error:
        return f"failed: {type(error).__name__}: {str(error)[:80]}"


def show(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> int:
    given = {name: os.environ.get(name, "").strip() for name in (PRIMARY, SECONDARY)}
    missing = [name for name, value in given.items() if not value]
    if missing:
        print(
            f"test-azure: set {' and '.join(missing)} to the connection string of a real namespace, with the "
            "Manage claim. It makes queues of its own there, removes them, and costs well under a cent; "
            "docs/azure.md tells more.",
            file=sys.stderr,
        )
        return 2
    is_slow = os.environ.get(SLOW) == "1"
    rows: list[tuple[str, ...]] = [("NAMESPACE", "QUESTION", "EMBEDDED", "SEEN", "")]
    differs = False
    for connection_string in given.values():
        try:
            with prepared(connection_string) as place:
                for trial in TRIALS:
                    if trial.is_slow and not is_slow:
                        rows.append((place.name, trial.question, trial.expected, f"not tried: {SLOW}=1", ""))
                        continue
                    seen = try_one(trial, place)
                    differs |= seen != trial.expected
                    verdict = "same" if seen == trial.expected else "DIFFERS"
                    rows.append((place.name, trial.question, trial.expected, seen, verdict))
        except (AzureError, PairbusError, OSError) as error:
            show(rows)
            print(f"test-azure: a namespace cannot be used: {str(error).splitlines()[0]}", file=sys.stderr)
            return 3
    show(rows)
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())

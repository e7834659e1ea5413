"""`python -m bench.pump`: the pump against a drain loop on the SDK, and over many queues.

How it is measured
1. The broker, with both namespaces in memory, runs in a process of its own. What is measured has this one.
2. Both drain the same number of backlog queues with messages of the same size for the same entity, in turns.
   The SDK's loop uses all that it offers: prefetched messages, batches to send, settlements side by side, and
   a client with a sender of its own for each queue. It writes no receipts; the pump does, with an fsync.
3. Python's collector of garbage is calmed for both, as it is where a syphon's pump runs, and for the broker
   as in `pairbus broker`.
4. The time is of a whole drain, with opening and closing. CPU is this process's own. The SDK takes about a
   second to open and close its links, which is no merit of the pump's: with few messages a queue that second
   is most of the SDK's time and the ratio flatters. Keep to some thousands a queue.
5. A ratio is that of two values of the same round; its median is over the rounds.
6. A second measure spreads the same number of messages over 10, 100 and 1,000 queues. It is the pump's alone:
   what a queue costs that is opened, asked and closed is part of it, and the fewer messages a queue has the
   more that weighs.
7. Of the two processors one is the broker's. Its CPU for each message is told beside the pump's: they are
   about as large, so that the rate is bounded by either, and on a machine with other work by what that leaves
   over. The SDK's loop leaves its processor idle for about half of the time. So the ratio of the rates says
   less than that of the CPU a message, which no better loop on the SDK could escape.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser, served
from bench.report import Report
from pairbus.amqp.message import (
    Properties,
    encode_application_properties,
    encode_data,
    encode_properties,
)
from pairbus.broker import Broker
from pairbus.ledger.receipts import ReceiptLog
from pairbus.pairing.names import backlog_queue_names
from pairbus.plumbing.collector import IN_A_PUMP, CalmCollector
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import Pump, open_transport
from pairbus.pump.transport import Unit

__all__ = ["main"]

PATH = "orders"
_OUTPUT = Path("build/bench-pump.json")
_LEAST, _AIM = 5.0, 10.0
# Over how many queues the same messages are spread, and how much of the rate must be left.
_SPREAD = (10, 100, 1000)
_FLAT = 0.9
# What one receive of the SDK's loop asks for: as many as fit a batch of 1 KB messages.
_SDK_AT_ONCE = 200


class Drained(NamedTuple):
    """One drain; CPU in microseconds a message."""

    rate: float
    cpu: float
    broker_cpu: float


class Strings(NamedTuple):
    """Connection strings, and the process that serves them."""

    primary: str
    secondary: str
    broker: int


@contextmanager
def running_broker(queues: list[str]) -> Iterator[Strings]:
    """Two namespaces in another process; `orders` forgets what it is sent after a while."""
    with served(serve, queues) as (process, ours):
        primary, secondary = ours.recv()
        assert process.pid is not None
        yield Strings(primary, secondary, process.pid)


def serve(told: Connection, queues: list[str]) -> None:
    """What the other process does."""
    with broker_with(queues) as broker, CalmCollector():
        told.send((broker["contoso"].connection_string, broker["contoso-dr"].connection_string))
        told.recv()


@contextmanager
def broker_with(queues: list[str]) -> Iterator[Broker]:
    """Two namespaces, the primary with `orders` and the secondary with these queues, all with much room."""
    from pairbus.broker.engine.settings import QueueSettings
    from pairbus.broker.engine.tiers import RELAXED

    # The longest lock: on a busy machine the SDK's loop has what it fetched ahead for more than a minute.
    large = QueueSettings(lock_duration=300.0, max_size_in_megabytes=5120, max_delivery_count=2_147_483_647)
    with Broker({"contoso": 0, "contoso-dr": 0}, limits=RELAXED) as broker:
        short = QueueSettings(default_message_time_to_live=2.0, max_size_in_megabytes=5120)
        broker["contoso"].create_queue(PATH, short)
        for queue in queues:
            broker["contoso-dr"].create_queue(queue, large)
        yield broker


async def load(strings: Strings, queues: list[str], *, count: int, body: int) -> None:
    """Put wrapped messages into the queues."""
    pair = PumpPair.from_connection_strings(strings.primary, strings.secondary)
    transport = open_transport(pair.secondary.resolve(), PumpOptions(send_timeout=60.0))
    tail = encode_application_properties({"x-ms-path": PATH, "kind": "bench"}) + encode_data(b"x" * body)
    share = count // len(queues)
    for queue in queues:
        units = [
            Unit([encode_properties(Properties(message_id=f"{number:032x}")) + tail])
            for number in range(share)
        ]
        outcomes = await transport.destination(queue).send(units)
        if any(outcomes):
            raise SystemExit(f"the queues could not be filled: {next(filter(None, outcomes))}")
    await transport.close()


async def drain_with_pump(strings: Strings, queues: list[str]) -> int:
    """Our way; how many were moved."""
    with tempfile.TemporaryDirectory() as directory, CalmCollector(IN_A_PUMP):
        receipts = ReceiptLog(Path(directory))
        pair = PumpPair.from_connection_strings(strings.primary, strings.secondary)
        options = PumpOptions(drain=True)
        return (await Pump(pair, queues, options=options, receipts=receipts).run()).moved


async def drain_with_sdk(strings: Strings, queues: list[str], count: int) -> int:
    """The SDK's way: one coroutine a queue, each with links of its own."""
    share = count // len(queues)
    with CalmCollector(IN_A_PUMP):
        return sum(await asyncio.gather(*(_drain_one(strings, queue, share) for queue in queues)))


async def _drain_one(strings: Strings, queue: str, count: int) -> int:
    async with AsyncExitStack() as stack:
        primary = await stack.enter_async_context(ServiceBusClient.from_connection_string(strings.primary))
        secondary = await stack.enter_async_context(
            ServiceBusClient.from_connection_string(strings.secondary)
        )
        sender = await stack.enter_async_context(primary.get_queue_sender(PATH))
        receiver = await stack.enter_async_context(
            secondary.get_queue_receiver(queue, prefetch_count=2 * _SDK_AT_ONCE)
        )
        moved = 0
        while moved < count:
            messages = await receiver.receive_messages(max_message_count=_SDK_AT_ONCE, max_wait_time=5)
            await sender.send_messages([_unwrap(message) for message in messages])
            await asyncio.gather(*(receiver.complete_message(message) for message in messages))
            moved += len(messages)
        return moved


def _unwrap(message: ServiceBusReceivedMessage) -> ServiceBusMessage:
    own = {key: value for key, value in (message.application_properties or {}).items() if key != b"x-ms-path"}
    return ServiceBusMessage(
        b"".join(message.body), application_properties=own, message_id=message.message_id
    )


def measure(
    strings: Strings, queues: list[str], options: argparse.Namespace, *, count: int, with_sdk: bool = False
) -> Drained:
    """Fill the queues, then drain them."""
    asyncio.run(load(strings, queues, count=count, body=options.body))
    cpu, broker_cpu, begun = time.process_time(), used_by(strings.broker), time.perf_counter()
    if with_sdk:
        moved = asyncio.run(drain_with_sdk(strings, queues, count))
    else:
        moved = asyncio.run(drain_with_pump(strings, queues))
    taken, used = time.perf_counter() - begun, time.process_time() - cpu
    if moved != count // len(queues) * len(queues):
        raise SystemExit(f"{moved} of {count} messages were moved")
    broker_used = used_by(strings.broker) - broker_cpu
    return Drained(moved / taken, used / moved * 1e6, broker_used / moved * 1e6)


def used_by(process: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compare(strings: Strings, queues: list[str], options: argparse.Namespace, report: Report) -> None:
    """All rounds of pump and SDK."""
    pump: list[Drained] = []
    sdk: list[Drained] = []
    for number in range(options.rounds + 1):
        drained = (
            measure(strings, queues, options, count=options.messages),
            measure(strings, queues, options, count=options.sdk_messages, with_sdk=True),
        )
        if number:  # the first one warms everything up
            pump.append(drained[0])
            sdk.append(drained[1])
    for name, some in (("pump", pump), ("SDK loop", sdk)):
        report.figures += _figures(name, some)
    faster = ratio("pump against SDK loop, messages/s", [p.rate for p in pump], [s.rate for s in sdk])
    leaner = ratio("SDK loop against pump, CPU a message", [s.cpu for s in sdk], [p.cpu for p in pump])
    report.targets.append(Target(faster, _LEAST, at_least=True))
    report.targets.append(Target(leaner, _AIM, at_least=True))


def spread(strings: Strings, queues: list[str], options: argparse.Namespace, report: Report) -> None:
    """The same messages in more and more queues; the first round warms everything up."""
    few, *_, many = _SPREAD
    found: dict[int, list[Drained]] = {count: [] for count in _SPREAD}
    for number in range(options.rounds + 1):
        for count, drained in found.items():
            one = measure(strings, queues[:count], options, count=options.spread_messages)
            if number:
                drained.append(one)
    for count, drained in found.items():
        report.figures += _figures(f"pump, {count:,} queues", drained)
    flat = ratio(
        f"{many:,} queues against {few}, messages/s",
        [one.rate for one in found[many]],
        [one.rate for one in found[few]],
    )
    leaner = ratio(
        f"{few} queues against {many:,}, CPU a message",
        [one.cpu for one in found[few]],
        [one.cpu for one in found[many]],
    )
    report.targets.append(Target(flat, _FLAT, at_least=True))
    report.targets.append(Target(leaner, _FLAT, at_least=True))


def _figures(name: str, drained: list[Drained]) -> list[Figure]:
    return [
        Figure(name, "messages/s", tuple(one.rate for one in drained)),
        Figure(f"{name}, CPU", "µs/message", tuple(one.cpu for one in drained)),
        Figure(f"{name}, CPU of the broker", "µs/message", tuple(one.broker_cpu for one in drained)),
    ]


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.pump", "Measure the pump.", output=_OUTPUT, rounds=5)
    parser.add_argument("--messages", type=int, default=40_000, help="messages that the pump drains")
    parser.add_argument("--sdk-messages", type=int, default=20_000, help="messages that the SDK drains")
    parser.add_argument("--spread-messages", type=int, default=100_000, help="messages over many queues")
    parser.add_argument("--only", choices=("sdk", "spread"), help="one of the two measures alone")
    parser.add_argument("--queues", type=int, default=10, help="backlog queues")
    options = parser.parse_args()
    queues = backlog_queue_names("contoso", max(options.queues, *_SPREAD))
    report = Report.of(options)
    with running_broker(queues) as strings:
        if options.only != "spread":
            compare(strings, queues[: options.queues], options, report)
        if options.only != "sdk":
            spread(strings, queues, options, report)
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

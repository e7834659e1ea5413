"""`python -m bench.sync`: the paired client for threads against the SDK's, on a healthy namespace.

How it is measured
1. The broker runs in a process of its own, so that it does not share an interpreter with what is measured.
2. In a round the two clients take turns call by call, in an order that changes, so that whatever disturbs the
   machine disturbs both. Only the calls are timed, not the making of messages.
3. A first round warms everything up and does not count.
4. A ratio is that of two values of the same round; its median is over the rounds.
5. By our own AMQP (`transport="amqp"`) with one thread and with sixteen; each thread has a sender of the SDK
   of its own there, which takes one call at a time.
"""

import argparse
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser, served
from bench.report import Report
from pairbus import PairedServiceBusClient
from pairbus.broker import Broker
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.engine.tiers import RELAXED
from pairbus.options import SendAvailabilityOptions

__all__ = ["main"]

QUEUE = "bench"
SDK, PAIRED, AMQP = "SDK", "paired", "own AMQP"
#: By our own AMQP: how many threads, the messages of each in a round, and how many times the SDK's rate.
THREADS = {1: (100, 1.1), 16: (20, 2.0)}
#: How many messages a call sends, and what part of the SDK's rate the paired client is to reach with it. A
#: single send pays for the way to the event loop's thread and back, and for the SDK's asynchronous sender,
#: which is slower than its synchronous one; a batch hardly notices.
SHAPES = {"single sends": (1, 0.5), "batches of 100": (100, 0.95)}
_OUTPUT = Path("build/bench-sync.json")
# What was sent is forgotten soon, or a long run would fill the memory.
_MESSAGE_LIFE = 2.0

Send = Callable[[Any], None]
Delays = dict[str, list[float]]


class Bench:
    """One run."""

    def __init__(self, options: argparse.Namespace, clients: dict[str, Send]) -> None:
        self._options = options
        self._clients = clients
        self._body = b"x" * options.body
        self.report = Report.of(options)

    def run(self) -> Report:
        """Measure every shape of send."""
        for label, (count, bound) in SHAPES.items():
            self._take_turns(count)
            rounds = [self._take_turns(count) for _ in range(self._options.rounds)]
            self._add(label, count, bound, rounds)
        return self.report

    def compare_direct(self, senders: dict[str, list[Send]]) -> None:
        """Threads that send at once, by the SDK and by our own AMQP; `senders` has one for each thread."""
        for threads, (count, bound) in THREADS.items():
            rates: dict[str, list[float]] = {name: [] for name in senders}
            for number in range(self._options.rounds + 1):
                for name in random.sample(list(senders), len(senders)):
                    rate = self._rate_of(senders[name][:threads], count)
                    if number:
                        rates[name].append(rate)
            label = f"single sends, {threads} {'thread' if threads == 1 else 'threads'}"
            for name, values in rates.items():
                self.report.figures.append(Figure(f"{label}, {name}", "messages/s", tuple(values)))
            compared = ratio(f"{label}, own AMQP against SDK", rates[AMQP], rates[SDK])
            self.report.targets.append(Target(compared, bound, at_least=True))

    def _rate_of(self, senders: list[Send], count: int) -> float:
        messages = [ServiceBusMessage(self._body, message_id=f"{number:032x}") for number in range(count)]

        def send_all(send: Send) -> None:
            for message in messages:
                send(message)

        threads = [threading.Thread(target=send_all, args=(send,)) for send in senders]
        begun = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return count * len(senders) / (time.perf_counter() - begun)

    def _take_turns(self, count: int) -> Delays:
        """Send for some time; how long each call took, by client."""
        taken: Delays = {name: [] for name in self._clients}
        ends = time.perf_counter() + self._options.seconds
        while time.perf_counter() < ends:
            for name in random.sample(list(self._clients), len(self._clients)):
                messages = [ServiceBusMessage(self._body, message_id=f"{n:032x}") for n in range(count)]
                payload = messages[0] if count == 1 else messages
                begun = time.perf_counter()
                self._clients[name](payload)
                taken[name].append(time.perf_counter() - begun)
        return taken

    def _add(self, label: str, count: int, bound: float, rounds: list[Delays]) -> None:
        rates = {name: [count / statistics.fmean(taken[name]) for taken in rounds] for name in self._clients}
        for name, values in rates.items():
            self.report.figures.append(Figure(f"{label}, {name}", "messages/s", tuple(values)))
        for name in self._clients:
            slowest = tuple(statistics.quantiles(taken[name], n=100)[98] * 1000 for taken in rounds)
            self.report.figures.append(Figure(f"{label}, {name}, p99 of a call", "ms", slowest))
        compared = ratio(f"{label} by threads, paired against SDK", rates[PAIRED], rates[SDK])
        self.report.targets.append(Target(compared, bound, at_least=True))


@contextmanager
def running_broker() -> Iterator[tuple[str, str]]:
    """Two namespaces in another process, in memory; their connection strings."""
    with served(serve) as (_, ours):
        yield ours.recv()


def serve(told: Connection) -> None:
    """What the other process does."""
    with Broker({"contoso": 0, "contoso-dr": 0}, limits=RELAXED) as broker:
        broker["contoso"].create_queue(QUEUE, QueueSettings(default_message_time_to_live=_MESSAGE_LIFE))
        told.send((broker["contoso"].connection_string, broker["contoso-dr"].connection_string))
        told.recv()


@contextmanager
def connected(strings: tuple[str, str]) -> Iterator[dict[str, Send]]:
    """A sender of each kind, by name."""
    with ExitStack() as stack:
        plain = stack.enter_context(ServiceBusClient.from_connection_string(strings[0]))
        paired = stack.enter_context(PairedServiceBusClient.from_connection_strings(*strings))
        yield {
            SDK: stack.enter_context(plain.get_queue_sender(QUEUE)).send_messages,
            PAIRED: stack.enter_context(paired.get_queue_sender(QUEUE)).send_messages,
        }


@contextmanager
def connected_threads(strings: tuple[str, str]) -> Iterator[dict[str, list[Send]]]:
    """A sender of each kind for each thread: of the SDK one each, of ours the same for all."""
    options = SendAvailabilityOptions(transport="amqp")
    with ExitStack() as stack:
        plain = stack.enter_context(ServiceBusClient.from_connection_string(strings[0]))
        ours = stack.enter_context(PairedServiceBusClient.from_connection_strings(*strings, options=options))
        own = stack.enter_context(ours.get_queue_sender(QUEUE)).send_messages
        yield {
            SDK: [
                stack.enter_context(plain.get_queue_sender(QUEUE)).send_messages for _ in range(max(THREADS))
            ],
            AMQP: [own] * max(THREADS),
        }


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.sync", "Measure the paired client.", output=_OUTPUT, rounds=15)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a round takes")
    options = parser.parse_args()
    with running_broker() as strings, connected(strings) as clients, connected_threads(strings) as senders:
        bench = Bench(options, clients)
        report = bench.run()
        bench.compare_direct(senders)
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

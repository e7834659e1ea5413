"""`python -m bench.aio`: the paired client for asyncio against the SDK's, on a healthy namespace; then what
it costs by itself, what it does while failed over, and what outages leave behind.

How it is measured
1. The broker runs in a process of its own, so that it does not share an interpreter with what is measured.
2. In a round the two clients take turns call by call, in an order that changes, so that whatever disturbs the
   machine disturbs both. Only the calls are timed, not the making of messages.
3. A first round warms everything up and does not count.
4. A ratio is that of two values of the same round; its median is over the rounds.
5. Our own time is the processor's: sends to an SDK sender that returns at once. A task that does nothing is
   measured beside it, for comparison.
6. By our own AMQP (`transport="amqp"`) the rate and the processor time of this process are both compared. The
   two clients take turns of some calls there, a round being many. With many callers the SDK's sender is
   behind a lock, for it takes one call at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser
from bench.report import Report
from bench.sync import QUEUE, running_broker
from pairbus.aio import PairedSender, PairedServiceBusClient
from pairbus.options import SendAvailabilityOptions

__all__ = ["main"]

SDK, PAIRED, AMQP = "SDK", "paired", "own AMQP"
HEALTHY, FAILED_OVER = "healthy", "failed over"
#: How many messages a call sends, and what part of the SDK's rate the paired client is to reach with it.
SHAPES = {"single sends": (1, 0.97), "batches of 100": (100, 0.95)}
#: By our own AMQP: the messages of a turn, of a call, the callers, and how many times the SDK's rate, and
#: the SDK's messages for the same processor time, are to be reached.
DIRECT = {
    "single sends": (100, 1, 1, 1.5, 3.0),
    "single sends, 50 at once": (300, 1, 50, 3.0, 3.0),
    "batches of 100": (1000, 100, 1, 4.0, 4.0),
}
#: Turns of a round there: a hundred messages alone say little.
TURNS = 15
#: How many callers send at once, and what part of the healthy rate is to be reached while failed over.
CALLERS = {1: 0.85, 50: 0.9}
#: Microseconds of the processor that a send may cost besides the SDK's.
OWN_TIME_LIMIT = 25.0
_AWAY = "failed-over"
_NULL_SENDS = 500
# As many go before, for memory that Python has once taken it uses again.
_CYCLES = 100
_OUTPUT = Path("build/bench-aio.json")

Send = Callable[[Any], Awaitable[None]]
Delays = dict[str, list[float]]


class NullSender:
    """An SDK sender that has nothing to do."""

    async def __aenter__(self) -> NullSender:
        return self

    async def __aexit__(self, *details: object) -> None:
        """There is nothing to close."""

    async def send_messages(self, message: Any, *, timeout: float | None = None) -> None:
        """Done."""

    async def close(self) -> None:
        """There is nothing to close."""


class Bench:
    """One run."""

    def __init__(self, options: argparse.Namespace, strings: tuple[str, str]) -> None:
        self._options = options
        self._strings = strings
        self._body = b"x" * options.body
        self.report = Report.of(options)

    async def run(self) -> Report:
        """Measure everything."""
        await self._compare()
        await self._compare_direct()
        await self._measure_own_time()
        await self._measure_failed_over()
        await self._measure_memory()
        return self.report

    def _messages(self, count: int) -> Any:
        messages = [ServiceBusMessage(self._body, message_id=f"{number:032x}") for number in range(count)]
        return messages[0] if count == 1 else messages

    # -- against the SDK

    async def _compare(self) -> None:
        plain = ServiceBusClient.from_connection_string(self._strings[0])
        paired = PairedServiceBusClient.from_connection_strings(*self._strings)
        async with plain, paired, plain.get_queue_sender(QUEUE) as one, paired.get_queue_sender(QUEUE) as two:
            clients: dict[str, Send] = {SDK: one.send_messages, PAIRED: two.send_messages}
            for label, (count, bound) in SHAPES.items():
                await self._take_turns(clients, count)
                rounds = [await self._take_turns(clients, count) for _ in range(self._options.rounds)]
                self._add(label, count, bound, rounds)

    async def _take_turns(self, clients: dict[str, Send], count: int) -> Delays:
        taken: Delays = {name: [] for name in clients}
        ends = time.perf_counter() + self._options.seconds
        while time.perf_counter() < ends:
            for name in random.sample(list(clients), len(clients)):
                messages = self._messages(count)
                begun = time.perf_counter()
                await clients[name](messages)
                taken[name].append(time.perf_counter() - begun)
        return taken

    def _add(self, label: str, count: int, bound: float, rounds: list[Delays]) -> None:
        names = (SDK, PAIRED)
        rates = {name: [count / statistics.fmean(taken[name]) for taken in rounds] for name in names}
        for name in names:
            self._note(f"{label}, {name}", "messages/s", rates[name])
        for name in names:
            slowest = [statistics.quantiles(taken[name], n=100)[98] * 1000 for taken in rounds]
            self._note(f"{label}, {name}, p99 of a call", "ms", slowest)
        compared = ratio(f"{label}, paired against SDK", rates[PAIRED], rates[SDK])
        self.report.targets.append(Target(compared, bound, at_least=True))

    def _note(self, label: str, unit: str, values: list[float]) -> None:
        self.report.figures.append(Figure(label, unit, tuple(values)))

    async def _compare_direct(self) -> None:
        plain = ServiceBusClient.from_connection_string(self._strings[0])
        direct = PairedServiceBusClient.from_connection_strings(
            *self._strings, options=SendAvailabilityOptions(transport="amqp")
        )
        async with plain, direct, plain.get_queue_sender(QUEUE) as one, direct.get_queue_sender(QUEUE) as two:
            clients: dict[str, Send] = {SDK: _one_at_a_time(one.send_messages), AMQP: two.send_messages}
            for label, (total, size, callers, rate, processor) in DIRECT.items():
                for send in clients.values():
                    await self._send_all(send, total, size, callers)
                rounds = [
                    await self._share_round(clients, total, size, callers)
                    for _ in range(self._options.rounds)
                ]
                self._add_direct(label, rounds, rate, processor)

    async def _share_round(
        self, clients: dict[str, Send], total: int, size: int, callers: int
    ) -> dict[str, tuple[float, float]]:
        """Of each client: messages a second, and microseconds of the processor a message."""
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
        for _ in range(TURNS):
            for name in random.sample(list(clients), len(clients)):
                taken[name].append(await self._send_all(clients[name], total, size, callers))
        sent = total * TURNS
        return {
            name: (sent / sum(seconds for seconds, _ in turns), sum(used for _, used in turns) / sent * 1e6)
            for name, turns in taken.items()
        }

    async def _send_all(self, send: Send, total: int, size: int, callers: int) -> tuple[float, float]:
        """How long it took, by the clock and by the processor. Messages are made beforehand."""
        calls = [self._messages(size) for _ in range(total // size)]
        used, begun = time.process_time(), time.perf_counter()
        for first in range(0, len(calls), callers):
            if callers == 1:
                await send(calls[first])
            else:
                await asyncio.gather(*map(send, calls[first : first + callers]))
        return time.perf_counter() - begun, time.process_time() - used

    def _add_direct(
        self, label: str, rounds: list[dict[str, tuple[float, float]]], rate: float, processor: float
    ) -> None:
        rates = {name: [each[name][0] for each in rounds] for name in (SDK, AMQP)}
        costs = {name: [each[name][1] for each in rounds] for name in (SDK, AMQP)}
        for name in (SDK, AMQP):
            self._note(f"{label}, {name}, for comparison with own AMQP", "messages/s", rates[name])
            self._note(f"{label}, {name}, processor time of a message", "µs", costs[name])
        compared = ratio(f"{label}, own AMQP against SDK", rates[AMQP], rates[SDK])
        self.report.targets.append(Target(compared, rate, at_least=True))
        compared = ratio(f"{label}, own AMQP against SDK by processor time", costs[SDK], costs[AMQP])
        self.report.targets.append(Target(compared, processor, at_least=True))

    # -- by itself

    async def _measure_own_time(self) -> None:
        async with PairedServiceBusClient.from_connection_strings(*self._strings) as client:
            null = NullSender()
            client.pair.primary.open_sender = lambda path, **settings: null  # type: ignore[method-assign,assignment]
            sender = client.get_queue_sender("nowhere")
            message = self._messages(1)

            async def in_a_task(message: Any) -> None:
                await asyncio.create_task(null.send_messages(message))

            ours, bare = [], []
            for number in range(self._options.rounds + 1):
                values = (
                    await _processor_time(sender.send_messages, message),
                    await _processor_time(in_a_task, message),
                )
                if number:
                    ours.append(values[0])
                    bare.append(values[1])
        self._note("own processor time of a send", "µs", ours)
        self._note("a task that does nothing", "µs", bare)
        limit = Figure("own processor time of a send", "µs", tuple(ours))
        self.report.targets.append(Target(limit, OWN_TIME_LIMIT, at_least=False))

    # -- in an outage

    async def _measure_failed_over(self) -> None:
        """One client, records on: sends to an entity that is well, and to one that has failed over."""
        options = SendAvailabilityOptions(ping_primary_interval=1800.0)
        with tempfile.TemporaryDirectory() as state:
            paired = PairedServiceBusClient.from_connection_strings(
                *self._strings, options=options, state_dir=state
            )
            async with paired as client:
                client.fail_over(_AWAY)
                senders = {
                    HEALTHY: client.get_queue_sender(QUEUE).send_messages,
                    FAILED_OVER: client.get_queue_sender(_AWAY).send_messages,
                }
                for callers, bound in CALLERS.items():
                    clients = {name: _side_by_side(send, callers) for name, send in senders.items()}
                    await self._take_turns(clients, callers)
                    rounds = [await self._take_turns(clients, callers) for _ in range(self._options.rounds)]
                    self._add_failed_over(callers, bound, rounds)

    def _add_failed_over(self, callers: int, bound: float, rounds: list[Delays]) -> None:
        rates = {
            name: [callers / statistics.fmean(taken[name]) for taken in rounds]
            for name in (HEALTHY, FAILED_OVER)
        }
        label = f"single sends while failed over, {callers} at once"
        self._note(label, "messages/s", rates[FAILED_OVER])
        compared = ratio(f"{label}, against healthy ones", rates[FAILED_OVER], rates[HEALTHY])
        self.report.targets.append(Target(compared, bound, at_least=True))

    async def _measure_memory(self) -> None:
        async with PairedServiceBusClient.from_connection_strings(*self._strings) as client:
            sender = client.get_queue_sender(QUEUE)
            before = await self._resident_after(_CYCLES, client, sender)
            after = await self._resident_after(_CYCLES, client, sender)
        label = f"memory that {_CYCLES} failovers and failbacks leave behind"
        self._note(label, "KB", [after - before])

    async def _resident_after(
        self, cycles: int, client: PairedServiceBusClient, sender: PairedSender
    ) -> float:
        for _ in range(cycles):
            await sender.send_messages(self._messages(1))
            client.fail_over(QUEUE)
            await sender.send_messages(self._messages(1))
            client.mark_path_healthy(QUEUE)
        await asyncio.sleep(2.0)  # links are closed in the background
        gc.collect()
        return _resident_kilobytes()


def _one_at_a_time(send: Send) -> Send:
    lock = asyncio.Lock()

    async def send_in_turn(message: Any) -> None:
        async with lock:
            await send(message)

    return send_in_turn


def _side_by_side(send: Send, callers: int) -> Send:
    """Sends each message by a call of its own, all at once."""
    if callers == 1:
        return send

    async def send_all(messages: Any) -> None:
        await asyncio.gather(*map(send, messages))

    return send_all


async def _processor_time(send: Send, message: Any) -> float:
    """Microseconds of a send."""
    begun = time.process_time()
    for _ in range(_NULL_SENDS):
        await send(message)
    return (time.process_time() - begun) / _NULL_SENDS * 1e6


def _resident_kilobytes() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return float(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.aio", "Measure the paired client.", output=_OUTPUT, rounds=15)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a round takes")
    options = parser.parse_args()
    with running_broker() as strings:
        report = asyncio.run(Bench(options, strings).run())
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

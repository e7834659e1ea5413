"""`python -m bench.backlog`: long backlogs, and how soon one is empty after an outage.

How it is measured
1. The broker has a process of its own, both namespaces in memory. Each drain has one too, so that the peak of
   its memory is its own, and its processor time, which tells more than the rate where others use the machine
   as well. A round drains few messages, then many; a ratio is that of one round.
2. The outage: a pump runs with its defaults while the primary refuses connections, and puts the whole backlog
   aside. Then the primary is back, and the time is taken until the last message has left the backlog. It is
   compared with one ping interval, the longest that anybody waits before a path is tried, and the time that
   the same number takes to drain, of the same round.
"""

import argparse
import asyncio
import multiprocessing
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from bench.bill_job import peak_kilobytes
from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser, served
from bench.pump import Strings, broker_with, drain_with_pump, load
from bench.report import Report
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.names import backlog_queue_names
from pairbus.plumbing.collector import CalmCollector
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import Pump
from pairbus.pump.summary import PumpSummary

__all__ = ["main"]

_OUTPUT = Path("build/bench-backlog.json")
_START_LIMIT = 60.0
_DRAIN_LIMIT = 3600.0
_LOOK = 0.2
#: What is left of the rate, how much more memory many take, and how much longer than it must an outage lasts.
_FLAT, _MEMORY, _AFTER = 0.95, 1.1, 1.2


class Drained(NamedTuple):
    """One drain: messages a second, the peak of its memory in MB, and µs of its processor a message."""

    rate: float
    peak: float
    cpu: float


@contextmanager
def running_broker(queues: list[str]) -> Iterator[tuple[Strings, Connection]]:
    """Two namespaces in another process, and the line by which that is told to refuse and to serve."""
    with served(serve, queues) as (process, ours):
        primary, secondary = ours.recv()
        assert process.pid is not None
        yield Strings(primary, secondary, process.pid), ours


def serve(told: Connection, queues: list[str]) -> None:
    """What the broker's process does."""
    with broker_with(queues) as broker, CalmCollector():
        told.send((broker["contoso"].connection_string, broker["contoso-dr"].connection_string))
        while (word := told.recv()) != "stop":
            if word == "refuse":
                broker["contoso"].faults.set("refuse")
            elif word == "serve":
                broker["contoso"].faults.clear()
            told.send(sum(broker["contoso-dr"].message_count(queue) for queue in queues))


def _drain(told: Connection, strings: Strings, queues: list[str]) -> None:
    """What the process of a drain does."""
    begun, used = time.perf_counter(), time.process_time()
    moved = asyncio.run(drain_with_pump(strings, queues))
    used = time.process_time() - used
    told.send((moved, time.perf_counter() - begun, peak_kilobytes("self") / 1024, used))


def drain(strings: Strings, queues: list[str], count: int, body: int) -> Drained:
    """Fill the queues, and drain them in a process of its own."""
    asyncio.run(load(strings, queues, count=count, body=body))
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=_drain, args=(theirs, strings, queues), daemon=True)
    process.start()
    if not ours.poll(_DRAIN_LIMIT):
        raise SystemExit(f"{count} messages were not drained within an hour")
    moved, taken, peak, used = ours.recv()
    process.join(_START_LIMIT)
    if moved != count // len(queues) * len(queues):
        raise SystemExit(f"{moved} of {count} messages were moved")
    return Drained(moved / taken, peak, used / moved * 1e6)


def _ask(broker: Connection, word: str) -> int:
    broker.send(word)
    if not broker.poll(_START_LIMIT):
        raise SystemExit("the broker does not answer")
    left: int = broker.recv()
    return left


async def recover(strings: Strings, broker: Connection, queues: list[str], count: int, body: int) -> float:
    """Seconds from the primary's return to an empty backlog."""
    _ask(broker, "refuse")
    await load(strings, queues, count=count, body=body)
    pair = PumpPair.from_connection_strings(strings.primary, strings.secondary)
    aside = asyncio.Event()

    def look(summary: PumpSummary) -> None:
        if summary.waiting >= count // len(queues) * len(queues):
            aside.set()

    pump = Pump(pair, queues, options=PumpOptions(), on_progress=look)
    running = asyncio.create_task(pump.run())
    try:
        async with asyncio.timeout(_DRAIN_LIMIT):
            await aside.wait()
            left = await asyncio.to_thread(_ask, broker, "serve")
            begun = time.perf_counter()
            while left:
                await asyncio.sleep(_LOOK)
                left = await asyncio.to_thread(_ask, broker, "count")
            return time.perf_counter() - begun
    finally:
        pump.stop()
        await running


def compare(options: argparse.Namespace) -> Report:
    """All rounds."""
    report = Report.of(options)
    queues = backlog_queue_names("contoso", options.queues)
    few: list[Drained] = []
    many: list[Drained] = []
    after: list[float] = []
    least: list[float] = []
    ping = SendAvailabilityOptions().ping_primary_interval
    with running_broker(queues) as (strings, broker):
        for _ in range(options.rounds):
            few.append(drain(strings, queues, options.few, options.body))
            many.append(drain(strings, queues, options.many, options.body))
            after.append(asyncio.run(recover(strings, broker, queues, options.few, options.body)))
            least.append(ping + options.few / few[-1].rate)
    for count, drained in ((options.few, few), (options.many, many)):
        report.figures.append(Figure(f"drain of {count:,}", "messages/s", tuple(one.rate for one in drained)))
        report.figures.append(
            Figure(f"drain of {count:,}, CPU", "µs/message", tuple(one.cpu for one in drained))
        )
        report.figures.append(Figure(f"drain of {count:,}, memory", "MB", tuple(one.peak for one in drained)))
    report.figures.append(Figure("end of an outage to an empty backlog", "s", tuple(after)))
    name = f"drain of {options.many:,} against {options.few:,}"
    rates = ratio(f"{name}, messages/s", [one.rate for one in many], [one.rate for one in few])
    leaner = ratio(
        f"drain of {options.few:,} against {options.many:,}, CPU a message",
        [one.cpu for one in few],
        [one.cpu for one in many],
    )
    peaks = ratio(f"{name}, memory", [one.peak for one in many], [one.peak for one in few])
    waits = ratio(f"empty again after an outage, {options.few:,}, against ping and drain", after, least)
    report.targets += [
        Target(rates, _FLAT, at_least=True),
        Target(leaner, _FLAT, at_least=True),
        Target(peaks, _MEMORY, at_least=False),
        Target(waits, _AFTER, at_least=False),
    ]
    return report


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.backlog", "Measure long backlogs.", output=_OUTPUT, rounds=3)
    parser.add_argument("--few", type=int, default=100_000, help="messages of a short backlog")
    parser.add_argument("--many", type=int, default=1_000_000, help="messages of a long one")
    parser.add_argument("--queues", type=int, default=10, help="backlog queues")
    options = parser.parse_args()
    report = compare(options)
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

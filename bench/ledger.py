"""`python -m bench.ledger`: what the ledger costs a sender, and what it takes to bill a large one.

How it is measured
1. Two paired clients send to a broker in another process, one with a ledger and one without. They take turns
   call by call, in an order that changes. What counts is the processor time of this process, in which nobody
   else works meanwhile.
2. One percent of a send is less than such a comparison can show on a busy machine. So the way from the end of
   a send to the sums of the ledger is also measured by itself, over many calls, with and without a ledger;
   the difference is set against the processor time of a send of the same round.
3. A made-up ledger is billed as by `pairbus cost report`, each size in a process of its own: from the first
   segment read to the page written. Memory is the peak of Java, which in local mode is driver and executors
   in one, and that of the Python interpreter.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage

from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser
from bench.records import make_ledger
from bench.report import Report
from bench.sync import QUEUE, running_broker
from pairbus.aio import PairedServiceBusClient
from pairbus.client.observers.ledger import ClientLedger
from pairbus.client.sending.calls import EntityCall
from pairbus.client.sending.message import prepare

__all__ = ["main"]

PLAIN, WITH = "without a ledger", "with a ledger"
_SHAPES = {"single sends": 1, "batches of 100": 100}
#: What part of a send recording it may cost.
_SHARE = 0.01
#: How much longer ten times the records may take, what memory a report may take (MB), how long the largest
#: one may take, and how many times as long as DuckDB's sums.
_GROWTH, _MEMORY, _SECONDS, _DUCKS = 11.0, 2048.0, 150.0, 3.0
_CALLS = 20_000
_OUTPUT = Path("build/bench-ledger.json")
_JOB_LIMIT = 3600.0

Clients = dict[str, PairedServiceBusClient]


def _messages(count: int, body: bytes) -> Any:
    messages = [ServiceBusMessage(body, message_id=f"{number:032x}") for number in range(count)]
    return messages[0] if count == 1 else messages


@asynccontextmanager
async def connected(strings: tuple[str, str], directory: Path) -> AsyncIterator[Clients]:
    """A client of each kind."""
    ledger = ClientLedger.open(directory, primary="contoso", secondary="contoso-dr")
    make = PairedServiceBusClient.from_connection_strings
    async with make(*strings) as plain, make(*strings, observers=[ledger]) as recorded:
        yield {PLAIN: plain, WITH: recorded}
    await ledger.close()


class SenderBench:
    """One run of the senders."""

    def __init__(self, options: argparse.Namespace, report: Report) -> None:
        self._options = options
        self._report = report
        self._body = b"x" * options.body

    async def run(self, strings: tuple[str, str], directory: Path) -> None:
        """Measure every shape of send."""
        async with connected(strings, directory) as clients:
            for label, count in _SHAPES.items():
                await self._measure(label, count, clients)

    async def _measure(self, label: str, count: int, clients: Clients) -> None:
        sends: dict[str, list[float]] = {name: [] for name in clients}
        own: list[float] = []
        for number in range(self._options.rounds + 1):
            taken = await self._take_turns(count, clients)
            recording = self._recording_time(count, clients)
            if number:  # the first round warms everything up
                own.append(recording)
                for name, seconds in taken.items():
                    sends[name].append(seconds * 1e6)
        for name, values in sends.items():
            self._note(f"{label}, {name}, processor time of a call", "µs", values)
        self._note(f"{label}, recording it", "µs", own)
        self._note(f"{label}, with a ledger against without", "", ratio("", sends[WITH], sends[PLAIN]).values)
        share = ratio(f"{label}, recording it against the send", own, sends[PLAIN])
        self._report.targets.append(Target(share, _SHARE, at_least=False))

    async def _take_turns(self, count: int, clients: Clients) -> dict[str, float]:
        taken: dict[str, list[float]] = {name: [] for name in clients}
        senders = {name: client.get_queue_sender(QUEUE) for name, client in clients.items()}
        ends = time.perf_counter() + self._options.seconds
        while time.perf_counter() < ends:
            for name in random.sample(list(clients), len(clients)):
                messages = _messages(count, self._body)
                begun = time.process_time()
                await senders[name].send_messages(messages)
                taken[name].append(time.process_time() - begun)
        return {name: statistics.median(some) for name, some in taken.items()}

    def _recording_time(self, count: int, clients: Clients) -> float:
        """Microseconds that a call takes longer to tell of, if there is a ledger."""
        times = {}
        for name, client in clients.items():
            entity = client.pair.entity(QUEUE)
            native, messages = prepare(_messages(count, self._body))
            call = EntityCall(native, messages)
            call.called_at = 0.0
            calls = max(200, _CALLS // count)
            begun = time.process_time()
            for _ in range(calls):
                entity._observe(call, "ok", fate="taken")
            times[name] = (time.process_time() - begun) / calls * 1e6
        return times[WITH] - times[PLAIN]

    def _note(self, label: str, unit: str, values: Any) -> None:
        self._report.figures.append(Figure(label, unit, tuple(values)))


def bill(size: int, scratch: Path) -> dict[str, Any]:
    """Make a ledger of so many records, and bill it in another process."""
    records, out = scratch / f"records-{size}", scratch / f"out-{size}"
    made = make_ledger(records, size)
    command = [sys.executable, "-m", "bench.bill_job", str(records), str(out)]
    try:
        done = subprocess.run(command, timeout=_JOB_LIMIT, capture_output=True, text=True)
    finally:
        shutil.rmtree(records)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise SystemExit(
            f"the bill of {size:,} records ended with {done.returncode}: {said[-1] if said else ''}"
        )
    took: dict[str, Any] = json.loads(done.stdout)
    if took["units"] != made.units or took["bad_rows"]:
        raise SystemExit(f"the report has {took['units']} billed operations of {made.units}")
    return took


def measure_bills(options: argparse.Namespace, scratch: Path, report: Report) -> None:
    """Time and memory of each size, and what they come to."""
    took = {size: bill(size, scratch) for size in options.records}
    for size, values in took.items():
        label = f"a bill of {size:,} records"
        memory = values["kilobytes"] / 1024
        for what, unit, value in (
            ("", "s", values["seconds"]),
            (", processor time", "s", values["processor"]),
            (", start of Spark", "s", values["start"]),
            (", from the table", "s", values["again"]),
            (", from the table, processor time", "s", values["again_processor"]),
            (", sums by DuckDB", "s", values["duckdb"]),
            (", sums by DuckDB, processor time", "s", values["duckdb_processor"]),
        ):
            report.figures.append(Figure(f"{label}{what}", unit, (value,)))
        report.targets.append(
            Target(Figure(f"{label}, memory (MB)", "MB", (memory,)), _MEMORY, at_least=False)
        )
    small, large = min(took), max(took)
    longest = Figure(f"a bill of {large:,} records, seconds", "s", (took[large]["seconds"],))
    report.targets.append(Target(longest, _SECONDS, at_least=False))
    for what, ours, theirs in (
        ("", "again", "duckdb"),
        (", processor time", "again_processor", "duckdb_processor"),
    ):
        name = f"a bill of {large:,} records from the table, against DuckDB's sums{what}"
        ducks = ratio(name, [took[large][ours]], [took[large][theirs]])
        report.targets.append(Target(ducks, _DUCKS, at_least=False))
    if large == 10 * small:
        name = f"{large:,} records against {small:,}, time"
        grown = ratio(name, [took[large]["seconds"]], [took[small]["seconds"]])
        report.targets.append(Target(grown, _GROWTH, at_least=False))


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.ledger", "Measure the ledger.", output=_OUTPUT, rounds=15)
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a round takes")
    parser.add_argument(
        "--records",
        type=int,
        nargs="*",
        default=[1_000_000, 3_000_000, 10_000_000],
        help="sizes of ledgers to bill",
    )
    options = parser.parse_args()
    report = Report.of(options)
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="pairbus-bench-") as scratch:
        with running_broker() as strings:
            asyncio.run(SenderBench(options, report).run(strings, Path(scratch) / "ledger"))
        if options.records:
            measure_bills(options, Path(scratch), report)
    report.notes.append(f"Load average: {before:.1f} before, {os.getloadavg()[0]:.1f} after.")
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

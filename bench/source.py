"""`python -m bench.source`: Spark's reader and writer of Service Bus against the best loop on the SDK.

How it is measured
1. The broker, in memory, runs in a process of its own. What is measured is what a Python worker of Spark
   does, in this process: from the namespace to Arrow batches with every column, and from Arrow batches to
   confirmed messages. Java's part, the same for both, is left out.
2. The SDK's loops are those that one would write in a worker: `peek_messages(250)` and every property of each
   message into Arrow columns; rows of Arrow into messages, sent 100 at a time.
3. A ratio is that of the processor time a message in the same round; its median is over the rounds. The first
   round warms up and does not count.
4. The memory of a long read is the resident size when a tenth has been read, against that at the end.
"""

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser
from bench.pump import PATH, Strings, load, running_broker
from bench.report import Report
from pairbus.spark.source.columns import COLUMNS, PLAIN_COLUMNS
from pairbus.spark.source.encoding import RowEncoder
from pairbus.spark.source.error_table import ErrorTable
from pairbus.spark.source.options import SourceSettings
from pairbus.spark.source.outlets import open_outlet
from pairbus.spark.source.reader import MessageRange, read_range
from pairbus.spark.source.writer import RowSender

__all__ = ["main"]

QUEUE = "source"
_VARIABLE = "BENCH_SOURCE"
_OUTPUT = Path("build/bench-source.json")
_READ, _WRITE, _FLAT = 8.0, 5.0, 1.1
_MAP = pa.map_(pa.string(), pa.struct([("type", pa.string()), ("value", pa.string())]))
_ARROW = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "binary": pa.binary(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
SCHEMA = pa.schema([(name, _ARROW.get(COLUMNS[name].sql_type, _MAP)) for name in PLAIN_COLUMNS])
# What the SDK tells of a message, by the columns that it is for.
_PROPERTIES = (
    "sequence_number", "enqueued_sequence_number", "enqueued_time_utc", "state", "delivery_count",
    "expires_at_utc", "message_id", "correlation_id", "session_id", "subject", "to", "reply_to",
    "reply_to_session_id", "content_type", "time_to_live", "scheduled_enqueue_time_utc", "partition_key",
    "dead_letter_reason", "dead_letter_error_description", "dead_letter_source",
)  # fmt: skip


def settings_of(use: Any) -> SourceSettings:
    return SourceSettings({"connectionStringEnv": _VARIABLE, "entity": QUEUE if use == "read" else PATH}, use)


def read_ours(count: int) -> int:
    """Our way; how many were read."""
    batches = read_range(settings_of("read"), SCHEMA, MessageRange(QUEUE, 1, count + 1))
    return sum(batch.num_rows for batch in batches)


def read_sdk(client: ServiceBusClient, count: int) -> int:
    """The SDK's way."""
    found = 0
    with client.get_queue_receiver(QUEUE) as receiver:
        at = 1
        while found < count:
            page = receiver.peek_messages(250, sequence_number=at)
            columns = {name: [getattr(one, name) for one in page] for name in _PROPERTIES}
            columns["state"] = [state.name for state in columns["state"]]
            columns["body"] = [b"".join(one.body) for one in page]
            columns["properties"] = [
                [
                    (_text(key), type(value).__name__, _text(value))
                    for key, value in (one.application_properties or {}).items()
                ]
                for one in page
            ]
            found += pa.table(columns).num_rows
            at = page[-1].sequence_number + 1 if page[-1].sequence_number is not None else 0
    return found


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def rows_to_send(count: int, body: int) -> Iterator[pa.RecordBatch]:
    """What Spark hands a writer: batches of rows."""
    for begin in range(0, count, 10_000):
        numbers = range(begin, min(count, begin + 10_000))
        yield pa.RecordBatch.from_pydict(
            {
                "body": [b"x" * body] * len(numbers),
                "message_id": [f"{number:032x}" for number in numbers],
                "subject": ["bench"] * len(numbers),
            }
        )


def write_ours(count: int, body: int) -> int:
    """Our way; how many were sent."""

    async def send() -> int:
        chosen = settings_of("write")
        outlet = open_outlet(chosen)
        encoder = RowEncoder(entity=PATH, new_id=str)
        sender = RowSender(chosen, outlet, encoder, ErrorTable(None))
        for batch in rows_to_send(count, body):
            await sender.send(batch)
        await outlet.close()
        return sender.sent

    return asyncio.run(send())


def write_sdk(client: ServiceBusClient, count: int, body: int) -> int:
    """The SDK's way."""
    sent = 0
    with client.get_queue_sender(PATH) as sender:
        for batch in rows_to_send(count, body):
            rows = batch.to_pylist()
            for begin in range(0, len(rows), 100):
                some = rows[begin : begin + 100]
                sender.send_messages(
                    [
                        ServiceBusMessage(row["body"], message_id=row["message_id"], subject=row["subject"])
                        for row in some
                    ]
                )
                sent += len(some)
    return sent


def measure(act: Callable[[], int], expected: int) -> tuple[float, float]:
    """Messages a second, and microseconds of CPU a message."""
    cpu, begun = time.process_time(), time.perf_counter()
    done = act()
    if done != expected:
        raise SystemExit(f"{done} of {expected} messages")
    return done / (time.perf_counter() - begun), (time.process_time() - cpu) / done * 1e6


def compare(strings: Strings, options: argparse.Namespace, report: Report) -> None:
    """All rounds of both ways, reading and writing."""
    few = max(options.messages // 4, 250)
    with ServiceBusClient.from_connection_string(strings.secondary) as client:
        reads = _rounds(
            options.rounds,
            lambda: measure(lambda: read_ours(options.messages), options.messages),
            lambda: measure(lambda: read_sdk(client, few), -(-few // 250) * 250),
        )
    os.environ[_VARIABLE] = strings.primary
    with ServiceBusClient.from_connection_string(strings.primary) as client:
        writes = _rounds(
            options.rounds,
            lambda: measure(lambda: write_ours(options.messages, options.body), options.messages),
            lambda: measure(lambda: write_sdk(client, few, options.body), few),
        )
    for name, (ours, sdk), bound in (("read", reads, _READ), ("write", writes, _WRITE)):
        for who, found in (("Spark's worker", ours), ("SDK loop", sdk)):
            report.figures.append(Figure(f"{name}, {who}", "messages/s", tuple(rate for rate, _ in found)))
            report.figures.append(Figure(f"{name}, {who}, CPU", "µs/message", tuple(cpu for _, cpu in found)))
        cpus = ratio(f"{name}: SDK loop against ours, CPU", [cpu for _, cpu in sdk], [cpu for _, cpu in ours])
        report.targets.append(Target(cpus, bound, at_least=True))


Found = list[tuple[float, float]]


def _rounds(
    count: int, ours: Callable[[], tuple[float, float]], sdk: Callable[[], tuple[float, float]]
) -> tuple[Found, Found]:
    found: tuple[Found, Found] = [], []
    for number in range(count + 1):
        values = ours(), sdk()
        if number:
            for kept, value in zip(found, values, strict=True):
                kept.append(value)
    return found


def resident() -> float:
    """The memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure_memory(count: int, report: Report) -> None:
    """Read all of it once; rule 4."""
    early, seen = 0.0, 0
    for batch in read_range(settings_of("read"), SCHEMA, MessageRange(QUEUE, 1, count + 1)):
        seen += batch.num_rows
        if not early and seen >= count // 10:
            early = resident()
    report.figures.append(Figure(f"memory when {count:,} messages were read", "MB", (resident(),)))
    flat = Figure("memory at the end against that of a tenth", "", (resident() / early,))
    report.targets.append(Target(flat, _FLAT, at_least=False))


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.source", "Measure Spark's source.", output=_OUTPUT, rounds=5)
    parser.add_argument("--messages", type=int, default=20_000, help="messages that we read and write")
    parser.add_argument(
        "--long", type=int, default=1_000_000, help="messages of the read whose memory counts"
    )
    options = parser.parse_args()
    report = Report.of(options)
    with running_broker([QUEUE]) as strings:
        os.environ[_VARIABLE] = strings.secondary
        asyncio.run(load(strings, [QUEUE], count=options.messages, body=options.body))
        compare(strings, options, report)
        os.environ[_VARIABLE] = strings.secondary
        more = options.long - options.messages
        for begin in range(0, more, 50_000):
            asyncio.run(load(strings, [QUEUE], count=min(50_000, more - begin), body=options.body))
        measure_memory(max(options.long, options.messages), report)
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

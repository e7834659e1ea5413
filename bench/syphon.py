"""`python -m bench.syphon`: what Spark adds to the pump.

How it is measured
1. The broker, with both namespaces in memory, runs in a process of its own.
2. In turns, the same queues are filled and drained: by one pump in this process, and by the syphon on a local
   session that is warm, with one shard and then with two. Each pump writes receipts, with an fsync.
3. The time of the pump is that of a whole drain. That of the syphon is from the start of its run to the end
   of its job: asking for the queues, the leash, Spark's planning and the tasks. Putting the receipts into a
   table comes after it; with one shard it is told with it and without.
4. A ratio is that of two values of the same round; its median is over the rounds.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser
from bench.pump import Strings, drain_with_pump, load, running_broker
from bench.report import Report
from pairbus.pairing.names import backlog_queue_names
from pairbus.spark import Backlog, PumpOptions, PumpPair, Syphon, open_session

__all__ = ["main"]

_OUTPUT = Path("build/bench-syphon.json")
# What Spark may take away of the rate, until the receipts are in Parquet.
_LEAST = 0.92
_PUMP, _ONE, _TWO, _TABLE, _WHOLE = (
    "pump, one process",
    "syphon, one shard",
    "syphon, two shards",
    "receipts to Parquet",
    "syphon, one shard, until its receipts are in Parquet",
)


def drain_with_syphon(spark: Any, queues: int, *, shards: int) -> tuple[int, float, float]:
    """How many were moved, how long it took, and how long the table of receipts took."""
    backlog = Backlog(pair=PumpPair.from_env("BENCH_PRIMARY", "BENCH_SECONDARY"), count=queues)
    with tempfile.TemporaryDirectory() as state:
        syphon = Syphon(spark, backlog, state=state, options=PumpOptions(drain_wait=0.02), shards=shards)
        drained: list[float] = []
        begun = time.perf_counter()
        summary = syphon.run(once=True, on_summary=lambda _: drained.append(time.perf_counter()))
        return summary.moved, drained[0] - begun, time.perf_counter() - drained[0]


def measure_round(
    spark: Any, strings: Strings, queues: list[str], options: argparse.Namespace
) -> dict[str, float]:
    """Messages a second of each way, and the seconds of the table."""
    values: dict[str, float] = {}
    expected = options.messages // len(queues) * len(queues)
    for name, shards in ((_PUMP, 0), (_ONE, 1), (_TWO, 2)):
        asyncio.run(load(strings, queues, count=options.messages, body=options.body))
        if shards:
            moved, taken, table = drain_with_syphon(spark, len(queues), shards=shards)
            if shards == 1:
                values[_TABLE], values[_WHOLE] = table, moved / (taken + table)
        else:
            begun = time.perf_counter()
            moved = asyncio.run(drain_with_pump(strings, queues))
            taken = time.perf_counter() - begun
        if moved != expected:
            raise SystemExit(f"{name}: {moved} of {expected} messages were moved")
        values[name] = moved / taken
    return values


def compare(spark: Any, strings: Strings, queues: list[str], options: argparse.Namespace) -> Report:
    """All rounds; the first one warms everything up and does not count."""
    rounds = [measure_round(spark, strings, queues, options) for _ in range(options.rounds + 1)][1:]
    report = Report.of(options)
    for name in (_PUMP, _ONE, _TWO, _WHOLE):
        report.figures.append(Figure(name, "messages/s", tuple(one[name] for one in rounds)))
    report.figures.append(Figure(_TABLE, "s", tuple(one[_TABLE] for one in rounds)))
    for label, name in (
        ("syphon with one shard against the pump", _ONE),
        ("syphon with one shard until its receipts are in Parquet, against the pump", _WHOLE),
    ):
        share = ratio(label, [one[name] for one in rounds], [one[_PUMP] for one in rounds])
        report.targets.append(Target(share, _LEAST, at_least=True))
    return report


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.syphon", "Measure the syphon.", output=_OUTPUT, rounds=3)
    parser.add_argument("--messages", type=int, default=100_000, help="messages of a drain")
    parser.add_argument("--queues", type=int, default=10, help="backlog queues")
    options = parser.parse_args()
    queues = backlog_queue_names("contoso", options.queues)
    with running_broker(queues) as strings:
        # Workers look the names up in the environment that Java was started with.
        os.environ["BENCH_PRIMARY"], os.environ["BENCH_SECONDARY"] = strings[:2]
        spark = open_session(app_name="pairbus-bench")
        try:
            report = compare(spark, strings, queues, options)
        finally:
            spark.stop()
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

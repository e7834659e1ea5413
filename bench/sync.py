"""The paired client for threads against the SDK's, both sending to the same healthy namespace.

``python -m bench.sync [--rounds N] [--seconds S] [--json FILE]``

The broker runs in a process of its own, so that it does not share an interpreter with what is measured. In a
round the contestants take turns call by call, in an order that changes, so that whatever else the machine
does falls on both alike. A ratio is taken within its round; the median of the ratios is the result, and their
spread is printed with it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from pairbus import PairedServiceBusClient
from pairbus.broker import Broker
from pairbus.broker.engine.settings import RELAXED

__all__ = ["main"]

BODY = b"x" * 1024
BATCH = 100
QUEUE = "bench"
#: What the paired client is to reach, as a part of the SDK's rate.
GOALS = {"single": 0.5, "batch": 0.95}
_START_LIMIT = 30.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One shape of send: messages a second, medians of all rounds, and the ratios of the rounds."""

    shape: str
    sdk: float
    paired: float
    ratio: float
    lowest: float
    quartiles: tuple[float, float]
    highest: float
    goal: float
    sdk_p99_ms: float
    paired_p99_ms: float

    @property
    def is_reached(self) -> bool:
        return self.ratio >= self.goal


Send = Callable[[Any], None]


def main() -> int:
    """Run the rounds, print the table; 1 if a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.sync", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1.5, help="how long a round takes")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    with broker() as strings, ExitStack() as stack:
        contestants = connect(strings, stack)
        found = [compare(shape, contestants, arguments.rounds, arguments.seconds) for shape in GOALS]
    sys.stdout.write(table(found, arguments.rounds))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(one) for one in found], indent=2), encoding="utf-8")
    return 0 if all(one.is_reached for one in found) else 1


@contextmanager
def broker() -> Iterator[tuple[str, str]]:
    """Two namespaces in another process, in memory; their connection strings."""
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    process = processes.Process(target=serve, args=(theirs,), daemon=True)
    process.start()
    try:
        if not ours.poll(_START_LIMIT):
            raise SystemExit("the broker did not start")
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(_START_LIMIT)


def serve(told: Connection) -> None:
    """What the other process does."""
    with Broker({"contoso": 0, "contoso-dr": 0}, limits=RELAXED) as running:
        running["contoso"].create_queue(QUEUE)
        told.send((running["contoso"].connection_string, running["contoso-dr"].connection_string))
        told.recv()


def connect(strings: tuple[str, str], stack: ExitStack) -> dict[str, Send]:
    """A sender of each kind, warm."""
    plain = stack.enter_context(ServiceBusClient.from_connection_string(strings[0]))
    paired = stack.enter_context(PairedServiceBusClient.from_connection_strings(*strings))
    sends: dict[str, Send] = {
        "sdk": stack.enter_context(plain.get_queue_sender(QUEUE)).send_messages,
        "paired": stack.enter_context(paired.get_queue_sender(QUEUE)).send_messages,
    }
    for send in sends.values():
        send(ServiceBusMessage(BODY))
    return sends


def compare(shape: str, contestants: dict[str, Send], rounds: int, seconds: float) -> Comparison:
    """Measure one shape of send, round by round."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    delays: dict[str, list[float]] = {name: [] for name in contestants}
    count = BATCH if shape == "batch" else 1
    for _ in range(rounds):
        for name, taken in take_turns(contestants, count, seconds).items():
            delays[name] += taken
            rates[name].append(count * len(taken) / sum(taken))
    ratios = sorted(ours / theirs for ours, theirs in zip(rates["paired"], rates["sdk"], strict=True))
    low, _, high = statistics.quantiles(ratios, n=4)
    return Comparison(
        shape=shape,
        sdk=statistics.median(rates["sdk"]),
        paired=statistics.median(rates["paired"]),
        ratio=statistics.median(ratios),
        lowest=ratios[0],
        quartiles=(low, high),
        highest=ratios[-1],
        goal=GOALS[shape],
        sdk_p99_ms=_p99(delays["sdk"]),
        paired_p99_ms=_p99(delays["paired"]),
    )


def take_turns(contestants: dict[str, Send], count: int, seconds: float) -> dict[str, list[float]]:
    """Send for some time; how long each call took. Making the messages is not measured."""
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for name in random.sample(list(contestants), len(contestants)):
            messages = [ServiceBusMessage(BODY, message_id=f"{number:032x}") for number in range(count)]
            payload = messages[0] if count == 1 else messages
            began = time.perf_counter()
            contestants[name](payload)
            taken[name].append(time.perf_counter() - began)
    return taken


def _p99(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=100)[98] * 1000.0


def table(found: list[Comparison], rounds: int) -> str:
    """The figures for people."""
    lines = [
        f"paired client for threads against the SDK's, 1 KB, {rounds} rounds, {os.cpu_count()} cores",
        f"{'':8}{'SDK/s':>9}{'paired/s':>10}{'ratio':>8}{'spread (quartiles)':>28}{'goal':>7}{'p99 ms':>16}",
    ]
    for one in found:
        spread = f"{one.lowest:.2f} ({one.quartiles[0]:.2f} {one.quartiles[1]:.2f}) {one.highest:.2f}"
        p99 = f"{one.sdk_p99_ms:.1f} / {one.paired_p99_ms:.1f}"
        mark = "" if one.is_reached else "  missed"
        lines.append(
            f"{one.shape:8}{one.sdk:9.0f}{one.paired:10.0f}{one.ratio:8.2f}{spread:>28}{one.goal:7.2f}{p99:>16}{mark}"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())

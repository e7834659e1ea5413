"""`python -m bench.crowd`: a hundred connections that send at once, against one.

Both have the same number of messages on the way, and one process plays all connections. Told are the rate of
all together, the processor time of broker and client a message, and how long a message waits to be accepted.
"""

from __future__ import annotations

import selectors
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.brokers import Pairbus, running
from bench.client import DEADLINE, WINDOW, BenchError, Client, Endpoint, make_payloads
from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser
from bench.report import Report
from pairbus.amqp.events import Settled

__all__ = ["main"]

_OUTPUT = Path("build/crowd.json")
_MANY = 100


class Member(Client):
    """One of many connections, each with some messages on the way."""

    def __init__(self, endpoint: Endpoint, window: int) -> None:
        super().__init__(endpoint)
        self.link = self.attach_sender()
        self.waits: list[float] = []
        self._window = window
        self._sent_at: dict[int, float] = {}

    def send_more(self, payloads: Iterator[bytes]) -> None:
        """Fill the window again."""
        now = time.perf_counter()
        for _ in range(self._window - len(self._sent_at)):
            payload = next(payloads, None)
            if payload is None:
                break
            self._sent_at[self.link.send(payload, tag=b"t")] = now
        self.flush()

    def read(self) -> int:
        """Take what has come; how many messages were accepted."""
        accepted = 0
        for event in self.exchange():
            if type(event) is Settled:
                now = time.perf_counter()
                self.waits += [now - self._sent_at.pop(number) for number in event.delivery_ids]
                accepted += len(event.delivery_ids)
        return accepted


def send_at_once(broker: Pairbus, payloads: list[bytes], connections: int) -> dict[str, float]:
    """Send all of them over so many connections, when these are open."""
    left, accepted, window = iter(payloads), 0, max(1, WINDOW // connections)
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        members = [stack.enter_context(Member(broker.endpoint, window)) for _ in range(connections)]
        for member in members:
            selector.register(member.file, selectors.EVENT_READ, member)
        begun, before = time.perf_counter(), (broker.processor_seconds(), time.process_time())
        for member in members:
            member.send_more(left)
        while accepted < len(payloads):
            ready = selector.select(DEADLINE)
            if not ready:
                raise BenchError("the broker accepts nothing any more")
            for key, _ in ready:
                accepted += key.data.read()
                key.data.send_more(left)
        taken, after = time.perf_counter() - begun, (broker.processor_seconds(), time.process_time())
    waits = [wait for member in members for wait in member.waits]
    return {
        "rate": len(payloads) / taken,
        "cpu": (after[0] - before[0]) / len(payloads) * 1e6,
        "client's cpu": (after[1] - before[1]) / len(payloads) * 1e6,
        "p99": statistics.quantiles(waits, n=100)[98] * 1000,
    }


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.crowd", __doc__, output=_OUTPUT, rounds=5)
    parser.add_argument("--messages", type=int, default=20_000, help="messages a round")
    options = parser.parse_args()
    payloads = make_payloads(options.messages, options.body)
    values: dict[tuple[str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="pairbus-crowd-") as scratch:
        broker = Pairbus("durable", Path(scratch), durable=True)
        with running([broker]):
            for number in range(options.rounds + 1):
                for connections in (1, _MANY):
                    found = send_at_once(broker, payloads, connections)
                    with Client(broker.endpoint) as client:
                        client.receive_all()
                    if number:
                        for name, value in found.items():
                            values[name, connections].append(value)
    report = Report.of(options)
    for name, unit in (("rate", "/s"), ("cpu", "µs"), ("client's cpu", "µs"), ("p99", "ms")):
        for connections in (1, _MANY):
            label = f"{name}, connections: {connections}"
            report.figures.append(Figure(label, unit, tuple(values[name, connections])))
    for name, limit, at_least in (("rate", 0.9, True), ("cpu", 1.1, False), ("p99", 5.0, False)):
        both = ratio(f"{name}, {_MANY} against one", values[name, _MANY], values[name, 1])
        report.targets.append(Target(both, limit, at_least=at_least))
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

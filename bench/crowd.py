"""`python -m bench.crowd`: a hundred connections that send at once, against one.

Both have the same number of messages on the way, and one process plays all connections. They stay open and
take turns: a turn lasts half a second, in which whatever else the machine does weighs more than what is
compared, so a round is several turns of each. Told are the rate of all together, the processor time of broker
and client a message, and how long a message waits to be accepted.
"""

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


class Crowd:
    """Connections that send at once, and what they have seen in a round."""

    def __init__(self, broker: Pairbus, members: list[Member]) -> None:
        self._broker = broker
        self._members = members
        self._sent = 0
        self._spent = (0.0, 0.0, 0.0)

    def send(self, payloads: list[bytes]) -> None:
        """One turn: send all of them, and have them accepted."""
        left, accepted = iter(payloads), 0
        with selectors.DefaultSelector() as selector:
            for member in self._members:
                selector.register(member.file, selectors.EVENT_READ, member)
            before = self._clocks()
            for member in self._members:
                member.send_more(left)
            while accepted < len(payloads):
                ready = selector.select(DEADLINE)
                if not ready:
                    raise BenchError("the broker accepts nothing any more")
                for key, _ in ready:
                    accepted += key.data.read()
                    key.data.send_more(left)
            taken = [after - then for after, then in zip(self._clocks(), before, strict=True)]
        self._sent += accepted
        self._spent = (self._spent[0] + taken[0], self._spent[1] + taken[1], self._spent[2] + taken[2])

    def end_round(self) -> dict[str, float]:
        """What the turns since the last round have given."""
        (seconds, broker, client), sent = self._spent, self._sent
        waits = [wait for member in self._members for wait in member.waits]
        for member in self._members:
            member.waits.clear()
        self._sent, self._spent = 0, (0.0, 0.0, 0.0)
        return {
            "rate": sent / seconds,
            "cpu": broker / sent * 1e6,
            "client's cpu": client / sent * 1e6,
            "p99": statistics.quantiles(waits, n=100)[98] * 1000,
        }

    def _clocks(self) -> tuple[float, float, float]:
        return time.perf_counter(), self._broker.processor_seconds(), time.process_time()


def open_crowd(stack: ExitStack, broker: Pairbus, connections: int) -> Crowd:
    """So many connections, which have as many messages on the way as one has alone."""
    window = max(1, WINDOW // connections)
    return Crowd(broker, [stack.enter_context(Member(broker.endpoint, window)) for _ in range(connections)])


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench.crowd", __doc__, output=_OUTPUT, rounds=5)
    parser.add_argument("--messages", type=int, default=20_000, help="messages a turn")
    parser.add_argument("--turns", type=int, default=5, help="turns a round")
    options = parser.parse_args()
    payloads = make_payloads(options.messages, options.body)
    values: dict[tuple[str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="pairbus-crowd-") as scratch:
        broker = Pairbus("durable", Path(scratch), durable=True)
        with running([broker]), ExitStack() as stack:
            crowds = {connections: open_crowd(stack, broker, connections) for connections in (1, _MANY)}
            for number in range(options.rounds + 1):
                for _ in range(options.turns):
                    for crowd in crowds.values():
                        crowd.send(payloads)
                        with Client(broker.endpoint) as client:
                            client.receive_all()
                for connections, crowd in crowds.items():
                    for name, value in crowd.end_round().items():
                        if number:  # in the first one all of them are new
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

"""`python -m bench`: measure, print a table, write JSON.

How it is measured
1. All brokers run at once, each in a process of its own, and do nothing while another is measured. A round
   measures each of them once, so that whatever disturbs the machine for a while disturbs all.
2. One client process sends N messages of 1 KB over one connection, up to 2,000 of them on the way, until each
   is accepted; then it receives them, completes each, and waits until each completion is confirmed.
3. A first round warms everything up and does not count.
4. A ratio is that of two values of the same round; its median is over the rounds.
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from bench.brokers import Measured, Pairbus, RabbitMq, find_rabbitmq, running
from bench.client import Client, make_payloads
from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser
from bench.report import Report
from bench.single import measure_single_sends
from bench.syncs import count_syncs

MEMORY, DURABLE, RABBITMQ = "memory", "durable", "rabbitmq"
_OUTPUT = Path("build/bench.json")
_LABELS = {"send": "pipelined sends", "receive": "pipelined receive and complete"}
_COSTS = {
    "send_broker": "processor time of the broker, a send",
    "send_client": "processor time of the client, a send",
    "receive_broker": "processor time of the broker, a receive and complete",
    "receive_client": "processor time of the client, a receive and complete",
}

Values = defaultdict[tuple[str, str], list[float]]


class Bench:
    """One run. `values` has each round's values by broker and quantity."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self._options = options
        self._scratch = scratch
        self._payloads = make_payloads(options.messages, options.body)
        self._values: Values = defaultdict(list)
        self._report = Report.of(options)

    def run(self) -> Report:
        """Measure everything."""
        durable = Pairbus(DURABLE, self._scratch, durable=True)
        brokers: list[Measured] = [Pairbus(MEMORY, self._scratch, durable=False), durable]
        script = find_rabbitmq() if self._options.rabbitmq else None
        if script is not None:
            brokers.append(RabbitMq(RABBITMQ, self._scratch, script))
        else:
            reason = "is not installed" if self._options.rabbitmq else "was not asked for"
            self._report.notes.append(f"RabbitMQ {reason} and was left out.")
        with running(brokers):
            for number in range(self._options.rounds + 1):
                for broker in brokers:
                    self._measure(broker, counts=number > 0)
            self._report_pipelined(brokers)
            self._count_syncs(durable)
        self._set_targets(with_rabbitmq=script is not None)
        return self._report

    def _measure(self, broker: Measured, *, counts: bool) -> None:
        messages = len(self._payloads)
        with Client(broker.endpoint) as client:
            used = [(broker.processor_seconds(), time.process_time())]
            sending = client.send(self._payloads)
            used.append((broker.processor_seconds(), time.process_time()))
            receiving = client.receive(messages)
            used.append((broker.processor_seconds(), time.process_time()))
        values = {"send": messages / sending, "receive": messages / receiving}
        for name, before, after in zip(_LABELS, used, used[1:], strict=False):
            values[f"{name}_broker"] = (after[0] - before[0]) / messages * 1e6
            values[f"{name}_client"] = (after[1] - before[1]) / messages * 1e6
        if isinstance(broker, Pairbus):
            values |= self._measure_single(broker)
        if counts:
            for name, value in values.items():
                self._values[broker.name, name].append(value)

    def _measure_single(self, broker: Pairbus) -> dict[str, float]:
        count = self._options.single
        sends = measure_single_sends(broker, count=count, body_size=self._options.body)
        with Client(broker.endpoint) as client:
            client.receive_all()
        return {
            "single": count / sends.seconds,
            "single_client": sends.client_seconds / count * 1e6,
            "single_broker": sends.broker_seconds / count * 1e6,
        }

    # -- what it comes to

    def _report_pipelined(self, brokers: list[Measured]) -> None:
        for name, label in (_LABELS | _COSTS).items():
            for broker in brokers:
                unit = "/s" if name in _LABELS else "µs"
                self._add(f"{label}, {broker.name}", unit, self._values[broker.name, name])
        for kind in (MEMORY, DURABLE):
            self._add(f"single sends by the SDK, {kind}", "/s", self._values[kind, "single"])
            for side in ("client", "broker"):
                label = f"processor time of the {side}, a single send, {kind}"
                self._add(label, "µs", self._values[kind, f"single_{side}"])

    def _count_syncs(self, broker: Pairbus) -> None:
        messages = len(self._payloads)
        with Client(broker.endpoint) as client:
            sending = count_syncs(broker, lambda: client.send(self._payloads), self._scratch)
            receiving = count_syncs(broker, lambda: client.receive(messages), self._scratch)
        for label, syncs in (("sends", sending), ("receive and complete", receiving)):
            per_thousand = syncs.count / messages * 1000
            self._add(f"syncs for 1,000 pipelined {label}, {broker.name}", "", [per_thousand])
        counts = f"{sending.commits} and {receiving.commits} commits for {messages} messages"
        self._report.notes.append(f"Syncs: {sending.source}. There were {counts}.")

    def _set_targets(self, *, with_rabbitmq: bool) -> None:
        values, targets = self._values, self._report.targets
        for name in ("send", "receive"):
            label = f"{_LABELS[name]}, durable against memory"
            targets.append(
                Target(ratio(label, values[DURABLE, name], values[MEMORY, name]), 0.4, at_least=True)
            )
        for broker in (MEMORY, DURABLE):
            label = f"processor time of a single send, broker against SDK client, {broker}"
            costs = ratio(label, values[broker, "single_broker"], values[broker, "single_client"])
            targets.append(Target(costs, 0.5, at_least=False))
        if with_rabbitmq:
            for name in ("send", "receive"):
                label = f"{_LABELS[name]}, durable against RabbitMQ"
                rates = ratio(label, values[DURABLE, name], values[RABBITMQ, name])
                targets.append(Target(rates, 3.5, at_least=True))

    def _add(self, name: str, unit: str, values: list[float]) -> None:
        self._report.figures.append(Figure(name, unit, tuple(values)))


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser("bench", "Measure the embedded broker.", output=_OUTPUT, rounds=7)
    parser.add_argument("--messages", type=int, default=20_000, help="pipelined messages a round")
    parser.add_argument("--single", type=int, default=500, help="single sends a round")
    parser.add_argument(
        "--rabbitmq",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure RabbitMQ, if it is installed",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pairbus-bench-") as scratch:
        report = Bench(options, Path(scratch)).run()
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

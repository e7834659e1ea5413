"""`python -m bench.growth`: does a namespace that holds much serve as quickly as one that holds little?

How it is measured
1. Stores are filled by the engine itself, without a network, once with few messages and once with many. A
   broker is then started on each, in a process of its own; the two stay side by side, and rounds alternate.
2. A round receives and completes some messages of each over one connection, in turns of a few hundred: what
   disturbs the machine for a moment disturbs both. A ratio is that of one round.
3. What a message takes is the memory of the broker with many, less that of the one with few, for each message
   that it has more. The bodies are of the size of a small JSON document.
4. Queues and sessions are tried in the engine alone, by its processor time: what they cost is there.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from bench.brokers import Pairbus, running
from bench.client import Client, make_payloads
from bench.figures import Figure, Target, ratio
from bench.program import finish, make_parser
from bench.report import Report
from bench.serve import NAMESPACE, QUEUE
from pairbus.amqp.message import Properties, encode_data, encode_properties
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.store.sqlite import SqliteStore

_OUTPUT = Path("build/growth.json")
_ROOM = QueueSettings(max_size_in_megabytes=5120)
# Messages that are sent at once, as many as a batch may have, and those that are stored with one sync.
_BATCH, _COMMIT = 200, 10_000
_TURNS = 6


def main() -> int:
    """Measure, print a table, write JSON; 1 if a target is missed and that was asked for."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="pairbus-growth-") as scratch:
        report = _measure(options, Path(scratch))
    return finish(report, options)


def _parse() -> argparse.Namespace:
    parser = make_parser("bench.growth", (__doc__ or "").split("\n")[0], output=_OUTPUT, rounds=3, body=512)
    parser.add_argument("--few", type=int, default=10_000, help="messages of the small store")
    parser.add_argument("--many", type=int, default=1_000_000, help="messages of the large store")
    parser.add_argument(
        "--entities", type=int, default=10_000, help="queues, and sessions, of the large ones"
    )
    parser.add_argument("--receive", type=int, default=3_000, help="messages received in a round")
    options = parser.parse_args()
    if options.rounds * options.receive > options.few:
        parser.error("the rounds receive more messages than there are: raise --few, or lower --receive")
    return options


def _measure(options: argparse.Namespace, scratch: Path) -> Report:
    report = Report.of(options)
    _measure_messages(options, scratch, report)
    for what, work in (("queues", _work_on_queues), ("sessions", _work_on_sessions)):
        few = [work(100) for _ in range(options.rounds)]
        many = [work(options.entities) for _ in range(options.rounds)]
        report.figures.append(Figure(f"messages through {options.entities:,} {what}", "/s", tuple(many)))
        compared = ratio(f"messages through {options.entities:,} {what} / through 100", many, few)
        # Not 1: ten thousand of them do not fit into the caches of a processor.
        report.targets.append(Target(compared, 0.6, at_least=True))
    return report


# -- messages


def _measure_messages(options: argparse.Namespace, scratch: Path, report: Report) -> None:
    brokers = {count: Pairbus(f"of-{count}", scratch, durable=True) for count in (options.few, options.many)}
    payloads = make_payloads(_BATCH, options.body)
    for count, broker in brokers.items():
        _fill(scratch / broker.name, payloads, count)
    few, many = brokers.values()
    with running([few, many]):
        start = many.processor_seconds() - few.processor_seconds()
        memory = (_resident(many.pid) - _resident(few.pid)) / (options.many - options.few)
        rates: dict[str, list[float]] = {few.name: [], many.name: []}
        costs: dict[str, list[float]] = {few.name: [], many.name: []}
        for _ in range(options.rounds):
            with Client(few.endpoint) as of_few, Client(many.endpoint) as of_many:
                taken = {few.name: 0.0, many.name: 0.0}
                before = {broker.name: broker.processor_seconds() for broker in (few, many)}
                for _ in range(_TURNS):
                    taken[few.name] += of_few.receive(options.receive // _TURNS)
                    taken[many.name] += of_many.receive(options.receive // _TURNS)
            for broker in (few, many):
                rates[broker.name].append(options.receive / taken[broker.name])
                used = broker.processor_seconds() - before[broker.name]
                costs[broker.name].append(used / options.receive * 1e6)
    for broker in (few, many):
        report.figures.append(Figure(f"receive, {broker.name}", "/s", tuple(rates[broker.name])))
        report.figures.append(Figure(f"processor time, {broker.name}", "µs", tuple(costs[broker.name])))
    name = f"of {options.many:,} / of {options.few:,}"
    report.targets += [
        Target(ratio(f"receive {name}", rates[many.name], rates[few.name]), 0.8, at_least=True),
        Target(ratio(f"processor time {name}", costs[many.name], costs[few.name]), 1.25, at_least=False),
        Target(Figure("processor time to start with many", "s", (start,)), 10.0, at_least=False),
        Target(
            Figure("memory of a message whose content is on disk", "bytes", (memory,)), 300.0, at_least=False
        ),
    ]


def _fill(directory: Path, payloads: list[bytes], count: int) -> None:
    """Make a store that holds `count` messages."""
    (directory / NAMESPACE).mkdir(parents=True)
    store, space = SqliteStore(directory / NAMESPACE / "store.db"), Namespace(NAMESPACE)
    now = time.time()
    queue = space.create_queue(QUEUE, _ROOM, now)
    messages = [Incoming.parse(payload) for payload in payloads]
    for stored in range(0, count, _COMMIT):
        for _ in range(stored, min(stored + _COMMIT, count), len(messages)):
            space.send(QUEUE, messages, now)
        store.commit(space.take_events())
        for number in range(stored + 1, queue.last_sequence + 1):
            queue.forget(number)  # the file has it
    store.close()


def _resident(pid: int) -> int:
    """The memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/status has no VmRSS")


# -- queues and sessions


def _work_on_queues(count: int) -> float:
    """Messages a second of processor time through a namespace of `count` queues, one after the other."""
    space = Namespace(NAMESPACE)
    queues = [space.create_queue(f"q{number}", None, 0.0) for number in range(count)]
    space.take_events()
    message = Incoming.parse(encode_properties(Properties(message_id="m")) + encode_data(b"x"))
    begun, worked = time.process_time(), 20_000
    for number in range(worked):
        queue = queues[number * 7919 % count]
        now = number * 0.001
        space.send(queue.path, [message], now)
        for ready in space.take_ready():
            for handout in ready.receive(1, now):
                assert handout.lock_token is not None
                ready.complete(handout.lock_token, now)
        space.take_events()
        space.next_deadline()
    return worked / (time.process_time() - begun)


def _work_on_sessions(count: int) -> float:
    """The same through a queue in which `count` sessions are held."""
    space = Namespace(NAMESPACE)
    queue = space.create_queue(QUEUE, QueueSettings(requires_session=True), 0.0)
    locks = {f"s{number}": queue.accept_session(f"s{number}", 0.0) for number in range(count)}
    names = list(locks)
    messages = [
        Incoming.parse(encode_properties(Properties(message_id="m", group_id=name)) + encode_data(b"x"))
        for name in names[:1000]
    ]
    begun, worked = time.process_time(), 20_000
    for number in range(worked):
        now = number * 0.001
        space.send(QUEUE, [messages[number * 7919 % len(messages)]], now)
        space.take_ready()
        for lock in queue.take_ready_sessions():
            for handout in queue.receive(1, now, session=lock):
                assert handout.lock_token is not None
                queue.complete(handout.lock_token, now)
        space.take_events()
        space.next_deadline()
    return worked / (time.process_time() - begun)


if __name__ == "__main__":
    sys.exit(main())

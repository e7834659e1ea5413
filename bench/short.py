"""`python -m bench.short`: what the hot paths cost, in seconds of processor time, against a yardstick.

How it is measured
1. Each path is measured in this process, without network and disk. The yardstick is a loop of plain Python
   that does what they do: it cuts bytes, looks into dictionaries and makes small objects. A ratio to it
   hardly depends on the machine, nor on what else runs there: both are processor time of the same moments.
2. Rounds are interleaved: a round measures yardstick and paths once each. What counts is the least of all
   rounds, of either side: noise only adds.
3. `bench/record.json` has the ratios on record for each version of Python. A path has lost if it takes a
   quarter more than that; before that is said, it is measured again with three times the rounds.
4. Another processor than that of the record may be better at the one and worse at the other. So there is a
   witness that depends on no machine: how many instructions of Python's own a path takes. Where they are no
   more than on record, only half as much again is a loss, which is then one of what is written in C.
5. `--keep` puts today's ratios on record. Do that on a quiet machine, after a change that is meant.
"""

import argparse
import gc
import json
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from pairbus import words
from pairbus.amqp.connection import Connection
from pairbus.amqp.events import LinkAttached, SaslInitReceived, TransferReceived
from pairbus.amqp.link import Link
from pairbus.amqp.message import (
    Header,
    Properties,
    encode_annotations,
    encode_application_properties,
    encode_data,
    encode_header,
    encode_properties,
)
from pairbus.amqp.performatives import ACCEPTED, Source, Target
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.engine.settings import QueueSettings
from pairbus.client.direct.encoding import encode_message
from pairbus.client.sending.message import prepare
from pairbus.client.sending.wrapping import Wrapping
from pairbus.client.state.packing import pack
from pairbus.clock import SystemClock
from pairbus.ledger.operations import parse_row
from pairbus.ledger.receipts import MemoryReceipts
from pairbus.plumbing.json_text import parse_json
from pairbus.pump.destinations import Destinations
from pairbus.pump.intake import Intake
from pairbus.pump.lanes import Lanes
from pairbus.pump.options import PumpOptions
from pairbus.pump.parcel import Parcel
from pairbus.pump.rate import Limiter, Pace
from pairbus.pump.station import Station
from pairbus.pump.steps import Send
from pairbus.pump.summary import PumpTally
from pairbus.pump.transport import Delivery, Transport
from pairbus.pump.turnstile import Entrance, Turnstile

__all__ = ["Lost", "count_steps", "main", "measure", "measure_losses", "read_record"]

RECORD = Path(__file__).with_name("record.json")
#: How much more than on record is a loss; where it takes no more instructions; and with a Python that nothing
#: is on record for.
LOSS, UNWITNESSED_LOSS, STRANGE_LOSS = 1.25, 1.5, 2.0
#: How many more instructions than on record are more: some come and go with any change.
MORE_STEPS = 1.1
ROUNDS = 25
_MESSAGES = 200
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


class Lost(NamedTuple):
    """A path that costs more than it did."""

    name: str
    ratio: float
    record: float


# -- the yardstick


class _Thing:
    __slots__ = ("key", "number", "size")

    def __init__(self, key: bytes, number: int, size: int) -> None:
        self.key = key
        self.number = number
        self.size = size


def _yardstick() -> Callable[[], None]:
    data = bytes(range(256)) * 4
    read = struct.Struct(">HI").unpack_from

    def run() -> None:
        known: dict[bytes, list[_Thing]] = {}
        for number in range(20 * _MESSAGES):
            size, _ = read(data, number % 200)
            key = data[number % 97 : number % 97 + 8]
            things = known.get(key)
            if things is None:
                things = known[key] = []
            things.append(_Thing(key, number, size))
        assert sum(len(things) for things in known.values()) == 20 * _MESSAGES

    return run


# -- the paths


def _payload(number: int) -> bytes:
    marks = {Symbol(words.SEQUENCE_NUMBER): number, Symbol(words.ENQUEUED_TIME): Timestamp(1)}
    return b"".join(
        (
            encode_header(Header(durable=True)),
            encode_annotations(marks),
            encode_properties(Properties(message_id=f"{number:032x}")),
            encode_application_properties({"x-ms-path": "orders", "kind": "bench"}),
            encode_data(b"x" * 1024),
        )
    )


def _pump() -> Callable[[], None]:
    """A message that is taken in, planned and let go: all that the pump itself does with it."""
    deliveries = [Delivery(_payload(number), b"") for number in range(1, _MESSAGES + 1)]
    clock, limiter, paths = SystemClock(), Limiter(), Destinations(first=1.0, longest=60.0)
    station = Station(
        pair="contoso",
        options=PumpOptions(),
        primary=cast(Transport, None),
        receipts=MemoryReceipts(),
        clock=clock,
        conditions=paths,
        limiter=limiter,
        turnstile=Turnstile(limiter, clock),
        entrance=Entrance(limiter, clock),
        tally=PumpTally(0.0),
        longest_wait=900.0,
    )

    def run() -> None:
        lanes: Lanes[Parcel] = Lanes(paths)
        intake = Intake(lanes, Pace(lock_duration=60.0, most=1000), station)
        letters = intake.read(deliveries)
        assert intake.find_gap(letters) is None
        assert not intake.take_in(letters)
        (step,) = lanes.plan(station.monotonic())
        assert isinstance(step, Send)
        assert len(step.units) == _MESSAGES
        for unit in step.units:
            lanes.moved(unit)

    return run


def _engine() -> Callable[[], None]:
    """A message through a queue of the embedded namespace: sent, received under lock, completed."""
    namespace = Namespace("contoso")
    namespace.create_queue("orders", QueueSettings(), 0.0)
    queue = cast(MessageQueue, namespace.node("orders"))
    payload = encode_properties(Properties(message_id="1")) + encode_data(b"x" * 1024)

    def run() -> None:
        namespace.send("orders", [Incoming.parse(payload) for _ in range(_MESSAGES)], 1.0)
        for handout in queue.receive(_MESSAGES, 2.0):
            assert handout.lock_token is not None
            queue.complete(handout.lock_token, 3.0)
        namespace.take_events()

    return run


def _wire() -> Callable[[], None]:
    """A transfer from one AMQP machine to another, and its settlement back."""
    client = Connection(server=False, container_id="client", hostname="localhost")
    server = Connection(server=True, container_id="server")
    seen: list[Any] = []

    def exchange() -> None:
        while True:
            up, down = client.data_to_send(), server.data_to_send()
            if not up and not down:
                return
            events = list(server.receive_data(up, 0.0)) if up else []
            for event in events:
                if isinstance(event, SaslInitReceived):
                    events += server.sasl_outcome(True)
            seen.extend(events)
            if down:
                client.receive_data(down, 0.0)

    client.start()
    client.open()
    exchange()
    session = client.begin()
    link = session.attach(name="link", role_sender=True, source=Source("q"), target=Target("q"))
    exchange()
    answer: Link = next(event.link for event in seen if isinstance(event, LinkAttached))
    answer.accept(initial_credit=_MESSAGES, max_message_size=1 << 20)
    exchange()
    payload = _payload(1)

    def run() -> None:
        seen.clear()
        for number in range(_MESSAGES):
            link.send(payload, tag=number.to_bytes(4, "big"))
        exchange()
        received = [event for event in seen if isinstance(event, TransferReceived)]
        assert len(received) == _MESSAGES
        for event in received:
            answer.settle(event.delivery_id, ACCEPTED)
        answer.flow(_MESSAGES)
        exchange()

    return run


def _client() -> Callable[[], None]:
    """A message as the client writes it: for the primary, for the backlog, for the spool."""
    message = ServiceBusMessage(b"x" * 1024, message_id="0" * 32)
    wrapping = Wrapping(
        "orders",
        limit=1 << 18,
        batch_limit=1 << 18,
        new_batch=ServiceBusMessageBatch,
        compresses=True,
        clock=time.time,
        as_bytes=True,
    )

    def run() -> None:
        for _ in range(_MESSAGES // 4):  # so that it takes no longer than the others
            sent, _ = prepare(message)
            plain = encode_message(sent)
            wrapped = wrapping.wrap(sent, None, alone=True)
            assert len(plain) < len(wrapped.encode(1 << 18) or b"")
            assert len(plain) < len(pack([sent], scheduled_for=None, stays=False))

    return run


def _ledger() -> Callable[[], None]:
    """A row of the ledger, read and judged."""
    line = (
        b'{"row":"operation","id":"w:000000001","writer":"w","pair":"contoso","role":"client",'
        b'"namespace":"contoso","entity":"orders","stage":"send","kind":"send","size_class":1,'
        b'"minute":1767225600,"outage":null,"count":3,"unknown":0,"bytes":900}'
    )

    def run() -> None:
        for _ in range(_MESSAGES):
            assert parse_row(parse_json(line)) is not None

    return run


PATHS: dict[str, Callable[[], Callable[[], None]]] = {
    "a message through the pump": _pump,
    "a message through a queue of the engine": _engine,
    "a transfer from machine to machine": _wire,
    "a message as the client writes it": _client,
    "a row of the ledger": _ledger,
}


# -- measuring


@contextmanager
def _alone() -> Iterator[None]:
    """Nothing but the paths is run: a collection falls into some round, and looks at what others have made; a
    measured coverage would be that of the paths, and not of the yardstick.
    """
    was_on, tracer = gc.isenabled(), sys.gettrace()
    gc.disable()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        if was_on:
            gc.enable()


def measure(rounds: int = ROUNDS) -> dict[str, float]:
    """The cost of each path, as a multiple of the yardstick's."""
    runs = {"": _yardstick(), **{name: make() for name, make in PATHS.items()}}
    least = dict.fromkeys(runs, float("inf"))
    with _alone():
        for number in range(rounds + 1):
            for name, run in runs.items():
                begun = time.thread_time()
                run()
                taken = time.thread_time() - begun
                if number:  # the first one warms everything up
                    least[name] = min(least[name], taken)
    return {name: least[name] / least[""] for name in PATHS}


def count_steps() -> dict[str, int]:
    """The instructions of Python's own that each path takes. Rule 4."""
    found = dict.fromkeys(PATHS, 0)
    with _alone():
        sys._getframe().f_trace_opcodes = True  # without one such frame Python 3.12 leaves out the first path
        for name, make in PATHS.items():
            run = make()
            run()  # what is made once is there

            def trace(frame: FrameType, event: str, arg: object, name: str = name) -> Any:
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
                found[name] += event == "opcode"
                return trace

            sys.settrace(trace)
            run()
            sys.settrace(None)
    return found


def read_record(kind: str = "short") -> dict[str, dict[str, float]]:
    """What is on record by versions of Python: ratios, or the `steps` of rule 4."""
    found: dict[str, dict[str, float]] = json.loads(RECORD.read_text(encoding="utf-8"))[kind]
    return found


def measure_losses(rounds: int = ROUNDS) -> list[Lost]:
    """What has become dearer. Rules 3 and 4."""
    records = read_record()
    record = records.get(_VERSION) or next(iter(records.values()))

    def losses(found: dict[str, float], allowed: dict[str, float]) -> list[Lost]:
        return [
            Lost(name, ratio, record[name])
            for name, ratio in found.items()
            if ratio > record[name] * allowed[name]
        ]

    if _VERSION not in records:
        strange = dict.fromkeys(PATHS, STRANGE_LOSS)
        return losses(measure(rounds), strange) and losses(measure(3 * rounds), strange)
    if not losses(measure(rounds), dict.fromkeys(PATHS, LOSS)):
        return []
    known, steps = read_record("steps")[_VERSION], count_steps()
    allowed = {name: LOSS if steps[name] > known[name] * MORE_STEPS else UNWITNESSED_LOSS for name in PATHS}
    return losses(measure(3 * rounds), allowed)


def main() -> int:
    """Measure and compare; 1 if a path has lost."""
    parser = argparse.ArgumentParser(prog="python -m bench.short", description="Measure the hot paths.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds that count (default: {ROUNDS})")
    parser.add_argument("--keep", action="store_true", help="put today's ratios on record")
    options = parser.parse_args()
    found, records = measure(options.rounds), read_record()
    record = records.get(_VERSION, {})
    sys.stdout.write(f"| path | today | on record with Python {_VERSION} |\n| --- | --- | --- |\n")
    for name, ratio in found.items():
        sys.stdout.write(f"| {name} | {ratio:.2f} | {record.get(name, float('nan')):.2f} |\n")
    if options.keep:
        whole = json.loads(RECORD.read_text(encoding="utf-8"))
        whole["short"][_VERSION] = {name: round(ratio, 3) for name, ratio in found.items()}
        whole["steps"][_VERSION] = count_steps()
        RECORD.write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")
        return 0
    return int(bool(measure_losses(options.rounds)))


if __name__ == "__main__":
    sys.exit(main())

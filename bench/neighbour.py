"""`python -m bench.neighbour`: what a well-behaved client notices of one that is not.

A sender of the official SDK sends one message after the other, first alone, then beside each attack. Told are
p50 and p99 of its sends, and how much memory the broker took for the attack. Attacks run in a process of
their own, so that it is the broker that is measured, and stop when the sender is done.
"""

import argparse
import asyncio
import contextlib
import multiprocessing
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from pathlib import Path

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from bench.brokers import Pairbus, running
from bench.client import Endpoint
from bench.figures import Figure, Target
from bench.program import finish, make_parser
from bench.report import Report
from bench.serve import QUEUE
from pairbus.amqp.connection import Connection
from pairbus.amqp.events import Opened
from pairbus.amqp.frames import AMQP_HEADER, encode_frame
from pairbus.amqp.message import (
    Properties,
    encode_application_properties,
    encode_data,
    encode_properties,
    encode_value,
)
from pairbus.amqp.performatives import Attach, Begin, Detach, Flow, Open, Source, Transfer
from pairbus.amqp.performatives import Target as Terminus
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import Int, Symbol, ULong

__all__ = ["ATTACKS", "main"]

_OUTPUT = Path("build/neighbour.json")
_PATIENCE = 5.0
_BEGIN = encode_frame(0, Begin(next_outgoing_id=0, incoming_window=1 << 30, outgoing_window=1 << 30))
_BEGUN = AMQP_HEADER + encode_frame(0, Open("noise")) + _BEGIN

Attack = Callable[[Endpoint, Event], None]


def _line(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection((endpoint.host, endpoint.port), timeout=_PATIENCE)


@contextlib.contextmanager
def _patiently() -> Iterator[None]:
    """A line that the broker has cut, or does not read from, is what these are after."""
    with contextlib.suppress(OSError):
        yield


def _attach(name: str, handle: int, address: str, *, receives: bool) -> bytes:
    attach = Attach(
        name, handle, receives, source=Source(address), target=Terminus(address), initial_delivery_count=0
    )
    return encode_frame(0, attach)


def _member(endpoint: Endpoint) -> socket.socket:
    """A line with the key of the namespace, that has begun a session."""
    line = _line(endpoint)
    sasl = SaslClient.plain(endpoint.user, endpoint.password)
    machine = Connection(server=False, container_id="noise", hostname="localhost", sasl_client=sasl)
    machine.start()
    machine.open()
    events: list[object] = []
    while not any(isinstance(event, Opened) for event in events):
        line.sendall(machine.data_to_send())
        events += machine.receive_data(line.recv(65536), 0.0)
    line.sendall(machine.data_to_send() + _BEGIN)
    return line


def attach_loop(endpoint: Endpoint, stop: Event) -> None:
    """Without a token: attach, be refused, detach, and again."""
    loop = (_attach("again", 0, QUEUE, receives=False) + encode_frame(0, Detach(0, True))) * 200
    while not stop.is_set():
        with _patiently(), _line(endpoint) as line:
            line.sendall(_BEGUN)
            while not stop.is_set():
                line.sendall(loop)
                line.recv(1 << 20)


def colliding_keys(endpoint: Endpoint, stop: Event) -> None:
    """Without a token: maps whose keys have all the same hash, in frames of 54 KB."""
    pairs = b"".join(b"\x98" + (n * ((1 << 61) - 1)).to_bytes(16, "big") + b"\x40" for n in range(3000))
    fields = b"\xa1\x05noise" + b"\x40" * 8
    fields += b"\xd1" + (len(pairs) + 4).to_bytes(4, "big") + (6000).to_bytes(4, "big") + pairs
    body = b"\x00\x53\x10\xd0" + (len(fields) + 4).to_bytes(4, "big") + (10).to_bytes(4, "big") + fields
    frame = (len(body) + 8).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body
    while not stop.is_set():
        with _patiently(), _line(endpoint) as line:
            line.sendall(AMQP_HEADER + frame)
            line.recv(1000)


def links_without_token(endpoint: Endpoint, stop: Event) -> None:
    """Without a token: as many links as there may be, each with a large filter."""
    many: dict[object, object] = {Symbol(str(number)): [] for number in range(200)}
    attaches = b"".join(
        encode_frame(
            0, Attach(str(n), n, False, source=Source("$cbs", filter=many), initial_delivery_count=0)
        )
        for n in range(150)
    )
    lines: list[socket.socket] = []
    while not stop.is_set():
        with _patiently():
            lines.append(_line(endpoint))
            lines[-1].sendall(_BEGUN + attaches)
        lines = lines[-200:]
        stop.wait(0.01)


def bad_tokens(endpoint: Endpoint, stop: Event) -> None:
    """Without a token: bad ones, over and over."""
    request = (
        encode_properties(Properties(message_id=ULong(1)))
        + encode_application_properties({"operation": "put-token", "type": "jwt", "name": QUEUE})
        + encode_value("SharedAccessSignature sr=x&sig=y&se=1&skn=z")
    )
    loop = encode_frame(0, Transfer(0, 1, b"t", 0, True), request) * 50
    while not stop.is_set():
        with _patiently(), _line(endpoint) as line:
            line.sendall(_BEGUN + _attach("token", 0, "$cbs", receives=False))
            while not stop.is_set():
                line.sendall(loop)
                line.settimeout(0.01)
                with contextlib.suppress(TimeoutError):
                    line.recv(1 << 20)
                line.settimeout(_PATIENCE)


def silent_connections(endpoint: Endpoint, stop: Event) -> None:
    """Connections that say nothing, or three bytes, or begin TLS and wait; as many as there may be."""
    lines: list[socket.socket] = []
    while not stop.is_set():
        with _patiently():
            lines.append(_line(endpoint))
            lines[-1].sendall((b"", b"AMQ", b"\x16\x03\x01\x02\x00")[len(lines) % 3])
        lines = lines[-500:]
        stop.wait(0.005)


def tls_handshakes(endpoint: Endpoint, stop: Event) -> None:
    """Handshakes, one after the other."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while not stop.is_set():
        with _patiently(), _line(endpoint) as line, context.wrap_socket(line):
            stop.wait(0.005)


def http_requests(endpoint: Endpoint, stop: Event) -> None:
    """Without a token: requests over HTTP on a hundred lines, many in one piece."""
    requests = b"GET /orders HTTP/1.1\r\nHost: noise\r\nAuthorization: none\r\n\r\n" * 20
    lines: list[socket.socket] = []
    while not stop.is_set():
        with _patiently():
            if len(lines) < 100:
                lines.append(_line(endpoint))
                lines[-1].setblocking(False)
        for line in lines:
            with _patiently():
                line.send(requests)
            with _patiently():
                line.recv(1 << 16)


def endless_drains(endpoint: Endpoint, stop: Event) -> None:
    """Without a token: drains of a link whose window is shut, behind an answer that waits."""
    with _patiently(), _line(endpoint) as line:
        line.sendall(_BEGUN + _attach("answers", 0, "$cbs", receives=True) + _flow(0, 1, window=0))
        line.sendall(_attach("requests", 1, "$cbs", receives=False))
        line.sendall(encode_frame(0, Transfer(1, 1, b"t", 0, True), _request("nothing", None)))
        drains = _flow(0, 10, window=0, drain=True) * 1000
        while not stop.is_set():
            line.sendall(drains)


_PEEK = {"from-sequence-number": 0, "message-count": Int(1000)}


def _request(operation: str, body: object) -> bytes:
    return (
        encode_properties(Properties(message_id=ULong(1)))
        + encode_application_properties({"operation": operation})
        + encode_value(body)
    )


def unread_peeks(endpoint: Endpoint, stop: Event) -> None:
    """With a key: a thousand peeks whose answers nobody reads."""
    request, address = _request("com.microsoft:peek-message", _PEEK), f"{QUEUE}/$management"
    with _patiently(), _member(endpoint) as line:
        line.sendall(_attach("answers", 0, address, receives=True) + _flow(0, 100_000))
        line.sendall(_attach("requests", 1, address, receives=False))
        line.sendall(encode_frame(0, Transfer(1, 1, b"t", 0, True), request) * 1000)
        stop.wait()


def answers_without_credit(endpoint: Endpoint, stop: Event) -> None:
    """With a key: peeks, each answered on a link of its own that gives no credit."""
    request, address = _request("com.microsoft:peek-message", _PEEK), f"{QUEUE}/$management"
    while not stop.is_set():
        with _patiently(), _member(endpoint) as line:
            line.sendall(_attach("requests", 0, address, receives=False))
            for handle in range(1, 250):
                line.sendall(_attach(f"answers {handle}", handle, address, receives=True))
                line.sendall(encode_frame(0, Transfer(0, handle, b"t", 0, True), request))
            stop.wait(1.0)


def unread_deliveries(endpoint: Endpoint, stop: Event) -> None:
    """With a key: a receiver that grants credit and never reads."""
    with _patiently(), _member(endpoint) as line:
        line.sendall(_attach("deliveries", 0, QUEUE, receives=True) + _flow(0, 1_000_000))
        stop.wait()


def unfinished_messages(endpoint: Endpoint, stop: Event) -> None:
    """With a key: messages of which the last frame never comes."""
    part = bytes(60_000)
    lines: list[socket.socket] = []
    while not stop.is_set():
        with _patiently():
            lines.append(_member(endpoint))
            for handle in range(50):
                lines[-1].sendall(_attach(str(handle), handle, QUEUE, receives=False))
                for _ in range(4):
                    lines[-1].sendall(encode_frame(0, Transfer(handle, handle, b"t", 0, more=True), part))
        lines = lines[-20:]
        stop.wait(0.05)


def _flow(handle: int, credit: int, *, window: int = 1 << 30, drain: bool = False) -> bytes:
    flow = Flow(
        next_incoming_id=0,
        incoming_window=window,
        next_outgoing_id=0,
        outgoing_window=1 << 30,
        handle=handle,
        delivery_count=0,
        link_credit=credit,
        drain=drain,
    )
    return encode_frame(0, flow)


ATTACKS: dict[str, tuple[Attack, bool]] = {
    "attach and detach without a token": (attach_loop, False),
    "colliding keys": (colliding_keys, False),
    "links without a token": (links_without_token, False),
    "bad tokens": (bad_tokens, False),
    "silent connections": (silent_connections, False),
    "TLS handshakes": (tls_handshakes, False),
    "HTTP requests": (http_requests, False),
    "endless drains": (endless_drains, False),
    "unread peeks": (unread_peeks, True),
    "answers without credit": (answers_without_credit, True),
    "unread deliveries": (unread_deliveries, True),
    "unfinished messages": (unfinished_messages, True),
}
"""Each by its name, and whether it has the key."""


def _resident(pid: int) -> float:
    """Memory of a process, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


async def _sends(broker: Pairbus, seconds: float) -> tuple[list[float], float]:
    """How long each send took, in milliseconds, and the most memory of the broker meanwhile."""
    took: list[float] = []
    most = _resident(broker.pid)
    client = ServiceBusClient.from_connection_string(broker.connection_string)
    async with client, client.get_queue_sender(QUEUE) as sender:
        await sender.send_messages(ServiceBusMessage(b"first"))
        ends = time.perf_counter() + seconds
        while (began := time.perf_counter()) < ends:
            await sender.send_messages(ServiceBusMessage(b"x" * 1024))
            took.append((time.perf_counter() - began) * 1000)
            if not len(took) % 20:
                most = max(most, _resident(broker.pid))
    return took, most


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


class _Bench:
    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self._options = options
        self._scratch = scratch
        self._report = Report.of(options)

    def run(self) -> Report:
        quiet = self._measure("alone", None)
        for name, (attack, has_key) in ATTACKS.items():
            if self._options.only and self._options.only not in name:
                continue
            p99, grown = self._measure(name, attack)
            slower = Figure(f"p99 beside {name}, against alone", "", (p99 / quiet[0],))
            self._report.targets.append(Target(slower, 5.0, at_least=False))
            room = 256.0 + 3 * 0.25 if has_key else 64.0
            memory = Figure(f"memory for {name}", "MB", (grown,))
            self._report.targets.append(Target(memory, room, at_least=False))
        return self._report

    def _measure(self, name: str, attack: Attack | None) -> tuple[float, float]:
        broker = Pairbus(f"neighbour-{len(self._report.figures)}", self._scratch, durable=False)
        context = multiprocessing.get_context("spawn")
        stop = context.Event()
        with running([broker]):
            _fill(broker)
            asyncio.run(_sends(broker, 0.5))
            before = _resident(broker.pid)
            noise = context.Process(target=attack, args=(broker.endpoint, stop)) if attack else None
            if noise is not None:
                noise.start()
                time.sleep(1.0)
            try:
                took, most = asyncio.run(_sends(broker, self._options.seconds))
            finally:
                stop.set()
                if noise is not None:
                    noise.join(10)
                    noise.kill()
        grown = most - before
        for label, unit, value in (
            ("p50", "ms", statistics.median(took)),
            ("p99", "ms", _p99(took)),
            ("memory", "MB", grown),
        ):
            self._report.figures.append(Figure(f"{label}, {name}", unit, (value,)))
        return _p99(took), grown


def _fill(broker: Pairbus) -> None:
    """Something to peek and to receive: twenty megabytes."""
    with contextlib.closing(_member(broker.endpoint)) as line:
        line.sendall(_attach("fill", 0, QUEUE, receives=False))
        for number in range(400):
            line.sendall(encode_frame(0, Transfer(0, number, b"t", 0, True), encode_data(bytes(50_000))))
        line.sendall(encode_frame(0, Detach(0, True)))
        line.settimeout(1.0)
        heard = b""
        while heard.count(b"\x00\x53\x16") < 1:
            heard += line.recv(65536)


def main() -> int:
    """Measure; 1 with `--check` if a target was missed."""
    parser = make_parser(
        "bench.neighbour", "A sender beside clients that do harm.", output=_OUTPUT, body=None
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of sends beside each attack")
    parser.add_argument("--only", default="", help="the attacks with this in their name")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pairbus-bench-") as scratch:
        report = _Bench(options, Path(scratch)).run()
    return finish(report, options)


if __name__ == "__main__":
    sys.exit(main())

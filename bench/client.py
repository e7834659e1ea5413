"""A pipelining AMQP client with a blocking socket, for measuring brokers of any make.

It runs on the same protocol machine as the broker, in the client's role. It keeps a window of messages on the
way and never waits for a single one, so that the broker is what limits the rate.
"""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import (
    Closed,
    LinkAttached,
    LinkDetached,
    ProtocolEvent,
    SessionEnded,
    Settled,
    TransferReceived,
)
from pairbus.amqp.link import Link
from pairbus.amqp.message import Header, Properties, encode_data, encode_header, encode_properties
from pairbus.amqp.performatives import ACCEPTED, Accepted, Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.session import Session
from pairbus.errors import PairbusError

__all__ = ["BenchError", "Client", "Endpoint", "make_payloads"]

# Messages on the way at once. Enough that neither side ever waits for the other's turn to end.
WINDOW = 2000
# Far longer than a round takes; a broker that stalls must not hang the run.
DEADLINE = 120.0
_CHUNK = 1 << 18
_MANY = 1_000_000
# Terminus durability "unsettled-state": how an AMQP 1.0 client asks RabbitMQ for a durable queue.
_DURABLE = 2


class BenchError(PairbusError):
    """A broker did not do what the benchmark asked of it."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker is, who may enter, and the queue to measure."""

    host: str
    port: int
    user: str
    password: str
    address: str

    def __repr__(self) -> str:
        return f"Endpoint({self.host}:{self.port} {self.address})"


def make_payloads(count: int, body_size: int) -> list[bytes]:
    """Encoded persistent messages, each with an id of its own."""
    header, body = encode_header(Header(durable=True)), encode_data(b"x" * body_size)
    return [
        header + encode_properties(Properties(message_id=f"{number:032x}")) + body for number in range(count)
    ]


class Client:
    """One connection with one session."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._socket = socket.create_connection((endpoint.host, endpoint.port), timeout=DEADLINE)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._machine = Connection(
            server=False,
            container_id="bench",
            hostname=endpoint.host,
            sasl_client=SaslClient.plain(endpoint.user, endpoint.password),
            now=time.monotonic(),
        )
        self._machine.start()
        self._machine.open()
        self._exchange_until(lambda: self._machine.remote_open is not None)
        self._session: Session = self._machine.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._machine.close()
        self._socket.sendall(self._machine.data_to_send())
        self._socket.close()

    def send(self, payloads: list[bytes]) -> float:
        """Send everything and have it all accepted; the seconds that this took."""
        link = self.attach_sender()
        begun = time.perf_counter()
        sent = settled = 0
        while settled < len(payloads):
            room = min(link.sendable, WINDOW - (sent - settled), len(payloads) - sent)
            for payload in payloads[sent : sent + room]:
                link.send(payload, tag=sent.to_bytes(4, "big"))
                sent += 1
            for event in self.exchange():
                if type(event) is Settled:
                    if type(event.state) is not Accepted:
                        raise BenchError(f"a message was not accepted: {event.state}")
                    settled += len(event.delivery_ids)
        taken = time.perf_counter() - begun
        self._detach(link)
        return taken

    def attach_sender(self) -> Link:
        """A link to the queue, with credit."""
        target = Target(address=self._endpoint.address, durable=_DURABLE)
        link = self._attach("send", role_sender=True, source=Source(address="bench"), target=target)
        self._exchange_until(lambda: link.credit > 0)
        return link

    def receive(self, count: int) -> float:
        """Receive messages, complete each, and have it confirmed; the seconds that this took."""
        begun = time.perf_counter()
        link = self._attach_receiver()
        granted = min(count, WINDOW)
        link.flow(granted)
        received = confirmed = 0
        while confirmed < count:
            for event in self.exchange():
                if type(event) is TransferReceived:
                    received += 1
                    link.settle(event.delivery_id, ACCEPTED, settled=False)
                elif type(event) is Settled:
                    confirmed += len(event.delivery_ids)
            if granted < count and granted - received < WINDOW // 2:
                more = min(count - granted, WINDOW - (granted - received))
                granted += more
                link.flow(granted - received)
        taken = time.perf_counter() - begun
        self._detach(link)
        return taken

    def receive_all(self) -> None:
        """Empty the queue."""
        # Drained: the broker gives what there is, and then takes the rest of the credit back.
        link = self._attach_receiver()
        link.flow(_MANY, drain=True)
        while link.credit > 0:
            for event in self.exchange():
                if type(event) is TransferReceived:
                    link.settle(event.delivery_id, ACCEPTED)
        self._detach(link)

    # -- inside

    def _attach_receiver(self) -> Link:
        source = Source(address=self._endpoint.address, durable=_DURABLE)
        return self._attach("receive", role_sender=False, source=source, target=Target(address="bench"))

    def _attach(self, name: str, *, role_sender: bool, source: Source, target: Target) -> Link:
        link = self._session.attach(
            name=f"{name}-{time.monotonic_ns()}",
            role_sender=role_sender,
            source=source,
            target=target,
        )
        attached: list[ProtocolEvent] = []

        def is_attached() -> bool:
            return any(type(event) is LinkAttached for event in attached)

        self._exchange_until(is_attached, attached)
        return link

    def _detach(self, link: Link) -> None:
        seen: list[ProtocolEvent] = []
        link.detach()
        self._exchange_until(lambda: any(type(event) is LinkDetached for event in seen), seen)

    def _exchange_until(self, is_done: Callable[[], bool], seen: list[ProtocolEvent] | None = None) -> None:
        while not is_done():
            events = self.exchange()
            if seen is not None:
                seen.extend(events)

    def flush(self) -> None:
        """Write what waits."""
        data = self._machine.data_to_send()
        if data:
            self._socket.sendall(data)

    @property
    def file(self) -> socket.socket:
        """To wait for what comes."""
        return self._socket

    def exchange(self) -> list[ProtocolEvent]:
        """Write what waits, read what there is, and say what it means."""
        self.flush()
        received = self._socket.recv(_CHUNK)
        events = self._machine.receive_data(received, time.monotonic())
        if not received:
            raise BenchError("the broker hung up")
        for event in events:
            if type(event) is Closed:
                raise BenchError(f"the broker closed the connection: {event.error}")
            if isinstance(event, LinkDetached | SessionEnded) and event.error is not None:
                raise BenchError(f"the broker ended a link or session: {event.error}")
        return events

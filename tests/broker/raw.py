"""A client on our own protocol machine over a socket, for what the SDK does not do: SASL PLAIN, links without
a token, payloads given byte by byte, and going away without a word.
"""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import (
    Closed,
    LinkAttached,
    LinkDetached,
    LinkFlowed,
    Opened,
    ProtocolEvent,
    Settled,
    TransferReceived,
)
from pairbus.amqp.link import Link
from pairbus.amqp.message import (
    Properties,
    encode_application_properties,
    encode_properties,
    encode_value,
    scan,
)
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.amqp.types import ULong
from pairbus.broker.handle import NamespaceHandle
from tests.waiting import PATIENCE

from .keys import key_of

__all__ = ["RawClient"]

E = TypeVar("E", bound=ProtocolEvent)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class RawClient:
    """One connection with one session."""

    def __init__(self, port: int, sasl: SaslClient, *, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self.machine = Connection(
            server=False, container_id="raw", hostname="127.0.0.1", sasl_client=sasl, max_frame_size=4096
        )
        self._events: list[ProtocolEvent] = []
        self._requests = 0
        self._names = itertools.count()
        self.machine.start()
        self.machine.open()
        self.flush()

    @classmethod
    @contextmanager
    def connected(
        cls, port: int, sasl: SaslClient, *, tls: ssl.SSLContext | None = None
    ) -> Iterator[RawClient]:
        """A client whose connection is open."""
        client = cls(port, sasl, tls=tls)
        try:
            client.await_event(Opened)
            yield client
        finally:
            client.socket.close()

    @classmethod
    def of_owner(cls, namespace: NamespaceHandle) -> AbstractContextManager[RawClient]:
        """One that may do everything."""
        return cls.connected(namespace.port, SaslClient.plain(*key_of(namespace)))

    def flush(self) -> None:
        self.socket.sendall(self.machine.data_to_send())

    def await_event(self, kind: type[E] | tuple[type[E], ...]) -> E:
        """The next event of a kind; others that came before it are dropped."""
        while True:
            while self._events:
                event = self._events.pop(0)
                if isinstance(event, kind):
                    return event
                assert not isinstance(event, Closed), event
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self._events += self.machine.receive_data(data, 0.0)
            self.flush()

    def attach(self, address: str, *, sends: bool, largest: int | None = None) -> Link:
        """Ask for a link; whether it is given stands in the events."""
        link = self.machine.begin().attach(
            name=f"{address}-{next(self._names)}",
            role_sender=sends,
            source=Source(address),
            target=Target(address),
            max_message_size=largest,
        )
        self.flush()
        self.await_event(LinkAttached)
        return link

    def send(self, link: Link, payload: bytes) -> Settled:
        """Send one message and wait for its outcome."""
        if not link.credit:
            self.await_event(LinkFlowed)
        link.send(payload, tag=b"tag")
        self.flush()
        return self.await_event(Settled)

    def receive(self, link: Link) -> TransferReceived:
        """Give credit for one message and wait for it."""
        link.flow(1)
        self.flush()
        return self.await_event(TransferReceived)

    def put_token(self, requests: Link, answers: Link, audience: str, token: str) -> int:
        """Show a token on a pair of links to $cbs; the status of the answer."""
        self._requests += 1
        answers.flow(1)
        self.send(
            requests,
            encode_properties(Properties(message_id=ULong(self._requests)))
            + encode_application_properties({"operation": "put-token", "type": "jwt", "name": audience})
            + encode_value(token),
        )
        answer = scan(self.await_event(TransferReceived).payload)
        assert answer.properties.correlation_id == self._requests
        return int(answer.application_properties["status-code"])

    def refusal(self) -> LinkDetached:
        """How the broker takes a link away."""
        return self.await_event(LinkDetached)

    def vanish(self) -> None:
        """Go as a machine goes whose plug is pulled, with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.socket.close()

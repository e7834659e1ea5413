"""Two machines wired together, the standard test bench."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import LinkAttached, ProtocolEvent, SaslInitReceived, SessionBegun
from pairbus.amqp.limits import CodecLimits
from pairbus.amqp.link import Link
from pairbus.amqp.performatives import Source, Target
from pairbus.amqp.session import Session

E = TypeVar("E")


class Wire:
    """A client and a server; `pump` carries bytes until both are silent."""

    def __init__(
        self,
        *,
        client: Connection | None = None,
        server: Connection | None = None,
        limits: CodecLimits | None = None,
        chunk: int = 0,
    ) -> None:
        self.client = client or Connection(server=False, container_id="client", hostname="localhost")
        self.server = server or Connection(server=True, container_id="server", limits=limits)
        self.client_events: list[ProtocolEvent] = []
        self.server_events: list[ProtocolEvent] = []
        self.chunk = chunk
        self.now = 0.0
        self.accept_sasl = True

    def pump(self) -> None:
        while True:
            up, down = self.client.data_to_send(), self.server.data_to_send()
            if not up and not down:
                return
            for part in self._split(up):
                self._on_server(self.server.receive_data(part, self.now))
            for part in self._split(down):
                self.client_events += self.client.receive_data(part, self.now)

    def _on_server(self, events: list[ProtocolEvent]) -> None:
        for event in events:
            self.server_events.append(event)
            if isinstance(event, SaslInitReceived):
                self._on_server(self.server.sasl_outcome(self.accept_sasl))

    def _split(self, data: bytes) -> Iterable[bytes]:
        step = self.chunk or len(data) or 1
        return (data[at : at + step] for at in range(0, len(data), step))

    def open(self) -> Wire:
        self.client.start()
        self.client.open()
        self.pump()
        return self

    def begin(self) -> tuple[Session, Session]:
        session = self.client.begin()
        self.pump()
        return session, self.server_event(SessionBegun).session

    def attach(
        self, session: Session, *, sender: bool, name: str = "link", credit: int = 0, settled: bool = False
    ) -> tuple[Link, Link]:
        """A link that the client asks for and the server accepts; `credit` is granted by the server."""
        link = session.attach(
            name=name,
            role_sender=sender,
            source=Source("queue"),
            target=Target("queue"),
            snd_settle_mode=int(settled),
        )
        self.pump()
        answer = self.server_event(LinkAttached).link
        answer.accept(initial_credit=0 if answer.is_sender else credit, max_message_size=1 << 20)
        self.pump()
        return link, answer

    def server_event(self, kind: type[E]) -> E:
        return _last(self.server_events, kind)

    def client_event(self, kind: type[E]) -> E:
        return _last(self.client_events, kind)

    def server_all(self, kind: type[E]) -> list[E]:
        return [event for event in self.server_events if isinstance(event, kind)]

    def client_all(self, kind: type[E]) -> list[E]:
        return [event for event in self.client_events if isinstance(event, kind)]


def _last(events: list[ProtocolEvent], kind: type[E]) -> E:
    found = [event for event in events if isinstance(event, kind)]
    assert found, f"no {kind.__name__} in {events}"
    return found[-1]

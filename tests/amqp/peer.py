"""A peer that writes frames by hand and reads what the machine answers."""

from __future__ import annotations

from typing import Any, TypeVar

from pairbus.amqp.composites import Composite
from pairbus.amqp.connection import Connection
from pairbus.amqp.events import Closed, LinkAttached, ProtocolEvent
from pairbus.amqp.frames import AMQP_HEADER, decode_performative, encode_frame, unpack_header
from pairbus.amqp.limits import CodecLimits
from pairbus.amqp.performatives import UINT_MAX, Attach, Begin, Close, Open, Source, Target, Transfer

P = TypeVar("P")
E = TypeVar("E")


class Peer:
    """A client by hand, against a server without SASL."""

    def __init__(
        self, *, limits: CodecLimits | None = None, channel_max: int = 65535, max_frame_size: int = 65536
    ) -> None:
        self.machine = Connection(
            server=True,
            container_id="server",
            sasl=False,
            limits=limits,
            channel_max=channel_max,
            max_frame_size=max_frame_size,
        )
        self.events: list[ProtocolEvent] = []
        self.answers: list[tuple[int, Any, bytes]] = []
        self._bytes = b""

    def feed(self, data: bytes) -> None:
        self.events += self.machine.receive_data(data, 0.0)
        self.collect()

    def collect(self) -> None:
        self._bytes += self.machine.data_to_send()
        if self._bytes.startswith(AMQP_HEADER):
            self._bytes = self._bytes[8:]
        while self._bytes:
            size, doff, _, channel = unpack_header(self._bytes)
            frame, self._bytes = self._bytes[:size], self._bytes[size:]
            if size > doff * 4:
                performative, start = decode_performative(frame, doff * 4, size)
                self.answers.append((channel, performative, frame[start:]))

    def send(self, performative: Composite, payload: bytes = b"", *, channel: int = 0) -> None:
        self.feed(encode_frame(channel, performative, payload))

    def open(self, **fields: Any) -> Peer:
        self.feed(AMQP_HEADER)
        self.send(Open("peer", **fields))
        return self

    def begin(self, *, channel: int = 0, window: int = 1000, handle_max: int = UINT_MAX) -> Peer:
        begin = Begin(next_outgoing_id=0, incoming_window=window, outgoing_window=1000, handle_max=handle_max)
        self.send(begin, channel=channel)
        return self

    def attach(
        self, *, receiver: bool = False, handle: int = 0, name: str = "link", accept: bool = True
    ) -> Peer:
        count = None if receiver else 0
        self.send(
            Attach(
                name, handle, receiver, source=Source("q"), target=Target("q"), initial_delivery_count=count
            )
        )
        if accept:
            self.event(LinkAttached).link.accept(max_message_size=4096)
            self.collect()
        return self

    def transfer(self, payload: bytes = b"m", *, delivery_id: int = 0, **fields: Any) -> None:
        self.send(Transfer(0, delivery_id, b"tag", 0, **fields), payload)

    def answer(self, kind: type[P]) -> P:
        """The last answer of a kind."""
        found = [performative for _, performative, _ in self.answers if isinstance(performative, kind)]
        assert found, f"no {kind.__name__} among {self.answers}"
        return found[-1]

    def has_answer(self, kind: type[Any]) -> bool:
        return any(isinstance(performative, kind) for _, performative, _ in self.answers)

    def event(self, kind: type[E]) -> E:
        found = [event for event in self.events if isinstance(event, kind)]
        assert found, f"no {kind.__name__} among {self.events}"
        return found[-1]

    def all_events(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def assert_closed_with(self, condition: str) -> None:
        """The machine has closed with an error, said so on the wire and to its owner, and is deaf."""
        closed = self.event(Closed)
        assert closed.local
        assert closed.error is not None
        assert closed.error.condition == condition
        error = self.answer(Close).error
        assert error is not None
        assert error.condition == condition
        assert self.machine.receive_data(b"\0" * 100, 0.0) == []
        assert self.machine.data_to_send() == b""

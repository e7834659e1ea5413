"""AMQP over WebSocket, on the port of everything else: with the official clients, and byte by byte."""

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, TransportType
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)

from pairbus.amqp.connection import Connection
from pairbus.amqp.events import LinkAttached, Opened, Settled
from pairbus.amqp.frames import encode_frame
from pairbus.amqp.message import encode_data
from pairbus.amqp.performatives import Close, Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.broker import Broker, ConnectionLimits
from pairbus.broker.links import arrivals
from pairbus.broker.websocket import MOST_READ, WebSocketLine, WebSocketTransport
from pairbus.clock import ManualClock
from tests.logs import our_lines
from tests.waiting import PATIENCE, wait_until

from .bus import Bus, bodies, held, opened, receive
from .keys import key_of

ADDRESS = "/$servicebus/websocket"


class Line:
    """A WebSocket to a namespace, with or without TLS."""

    def __init__(self, port: int, *, tls: ssl.SSLContext | None = None, **request: Any) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self.protocol = WSConnection(ConnectionType.CLIENT)
        self._events: list[Event] = []
        asked = {"host": "127.0.0.1", "target": ADDRESS, "subprotocols": ["AMQPWSB10"], **request}
        self.write(self.protocol.send(Request(**asked)))

    def write(self, data: bytes, *, at_once: int = 1 << 20) -> None:
        for begin in range(0, len(data), at_once):
            self.socket.sendall(data[begin : begin + at_once])

    def next(self) -> Event:
        """What comes next; an end of the line is a ConnectionError."""
        while not self._events:
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionError("the broker closed the connection")
            self.protocol.receive_data(data)
            self._events += self.protocol.events()
        return self._events.pop(0)

    def read_to_its_end(self) -> None:
        """Read until the line ends, which is a ConnectionError."""
        while True:
            self.next()

    def accepted(self) -> str | None:
        """The subprotocol that was agreed on."""
        event = self.next()
        assert isinstance(event, AcceptConnection), event
        return event.subprotocol


@contextmanager
def line(port: int, **settings: Any) -> Iterator[Line]:
    made = Line(port, **settings)
    try:
        yield made
    finally:
        made.socket.close()


class Client:
    """An AMQP client on a WebSocket."""

    def __init__(self, line: Line, sasl: SaslClient, send: Callable[[bytes], None] | None = None) -> None:
        self.line = line
        self.machine = Connection(server=False, container_id="ws", hostname="127.0.0.1", sasl_client=sasl)
        self._send = send or self._send_whole
        self._events: list[Any] = []
        self.machine.start()
        self.machine.open()
        self.flush()

    def _send_whole(self, data: bytes) -> None:
        self.line.write(self.line.protocol.send(BytesMessage(data)))

    def flush(self) -> None:
        data = self.machine.data_to_send()
        if data:
            self._send(data)

    def wait_for(self, kind: type) -> Any:
        while True:
            while self._events:
                event = self._events.pop(0)
                if isinstance(event, kind):
                    return event
            event = self.line.next()
            if isinstance(event, BytesMessage):
                self._events += self.machine.receive_data(bytes(event.data), 0.0)
                self.flush()

    def exchange(self) -> None:
        """Open, attach a sender, and send a message."""
        self.wait_for(Opened)
        link = self.machine.begin().attach(
            name="s", role_sender=True, source=Source("orders"), target=Target("orders")
        )
        self.flush()
        self.wait_for(LinkAttached)
        link.send(encode_data(b"x" * 3000), tag=b"t")
        self.flush()
        self.wait_for(Settled)


@pytest.fixture
def bus(bus_without_client: Bus) -> Bus:
    bus_without_client.namespace.create_queue("orders")
    return bus_without_client


def plain(bus: Bus) -> SaslClient:
    return SaslClient.plain(*key_of(bus.namespace))


def websocket_of(bus: Bus) -> WebSocketLine:
    [peer] = bus.broker._hosts["contoso"].peers
    assert isinstance(peer._transport, WebSocketTransport)
    found = peer._transport._line.get_protocol()
    assert isinstance(found, WebSocketLine)
    return found


def trusting(bus: Bus) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(bus.broker.certificate))


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated")  # by aiohttp, of the SDK
@pytest.mark.parametrize("kind", ["aio", "sync"])
@pytest.mark.parametrize("scheme", ["plain", "tls"])
async def test_the_python_sdk(bus: Bus, kind: str, scheme: str) -> None:
    text = bus.namespace.connection_string
    if scheme == "tls":
        text = text.replace("UseDevelopmentEmulator=true;", "")
    bus.kind = kind
    client = bus.connect(
        text,
        transport_type=TransportType.AmqpOverWebsocket,
        custom_endpoint_address=f"sb://127.0.0.1:{bus.namespace.port}",
    )
    async with client:
        links = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
        async with opened(*links) as (sender, receiver):
            await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("x" * 200_000)])
            first, second = await receive(receiver, 2)
            assert bodies([first, second]) == ["one", "x" * 200_000]
            await receiver.complete_message(first)
            await receiver.abandon_message(second)
            assert [str(found)[:1] for found in await receiver.peek_messages(5, sequence_number=1)] == ["x"]
    assert {info.protocol for info in bus.namespace.connections()} >= {"websocket"}


@pytest.mark.parametrize(
    "target",
    [ADDRESS, f"{ADDRESS}/", f"{ADDRESS}/{ADDRESS}", f"{ADDRESS}{ADDRESS}", "/%24servicebus/websocket?x=1"],
)
@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
def test_addresses(bus: Bus, target: str, with_tls: bool) -> None:
    tls = trusting(bus) if with_tls else None
    with line(bus.namespace.port, target=target, tls=tls) as websocket:
        assert websocket.accepted() == "AMQPWSB10"
        Client(websocket, plain(bus)).exchange()
    assert bus.namespace.message_count("orders") == 1


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [(["amqp"], "amqp"), (["AMQPWSB10", "amqp"], "AMQPWSB10"), (["mqtt", "amqp"], "amqp")],
)
def test_the_subprotocol_that_was_asked_for_is_spoken(bus: Bus, offered: list[str], chosen: str) -> None:
    with line(bus.namespace.port, subprotocols=offered) as websocket:
        assert websocket.accepted() == chosen


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        ({"target": "/"}, 404),
        ({"target": "/orders"}, 404),
        ({"target": f"{ADDRESS}{ADDRESS}{ADDRESS}"}, 404),
        ({"subprotocols": []}, 400),
        ({"subprotocols": ["mqtt"]}, 400),
    ],
)
def test_what_is_no_request_for_amqp_is_refused(bus: Bus, request_: dict[str, Any], status: int) -> None:
    with line(bus.namespace.port, **request_) as websocket:
        event = websocket.next()
        assert isinstance(event, RejectConnection)
        assert event.status_code == status


def test_a_handshake_that_lacks_its_key_is_refused(bus: Bus) -> None:
    request = f"GET {ADDRESS} HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n"
    with socket.create_connection(("127.0.0.1", bus.namespace.port), timeout=PATIENCE) as plain_socket:
        plain_socket.sendall(request.encode())
        assert plain_socket.recv(1000).startswith(b"HTTP/1.1 400")


def test_who_does_not_wait_for_the_answer_may_send_a_little(bus: Bus) -> None:
    for size, status in ((1, b"101"), (MOST_READ + 1, b"400")):
        asking = WSConnection(ConnectionType.CLIENT)
        request = asking.send(Request(host="x", target=ADDRESS, subprotocols=["amqp"]))
        with socket.create_connection(("127.0.0.1", bus.namespace.port), timeout=PATIENCE) as plain_socket:
            plain_socket.sendall(request + bytes(size))
            assert plain_socket.recv(1000).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_bytes_may_be_cut_anywhere(bus: Bus, at_once: int) -> None:
    """Frames in pieces on the wire, and AMQP in pieces of frames."""
    with line(bus.namespace.port) as websocket:
        websocket.accepted()

        def send(data: bytes) -> None:
            for begin in range(0, len(data), at_once):
                part, is_last = data[begin : begin + at_once], begin + at_once >= len(data)
                frame = websocket.protocol.send(BytesMessage(part, message_finished=is_last))
                websocket.write(frame, at_once=at_once)

        Client(websocket, plain(bus), send).exchange()


def test_pings_are_answered(bus: Bus) -> None:
    with line(bus.namespace.port) as websocket:
        websocket.accepted()
        websocket.write(websocket.protocol.send(Ping(b"there?")))
        event = websocket.next()
        assert isinstance(event, Pong)
        assert bytes(event.payload) == b"there?"
        Client(websocket, plain(bus)).exchange()


def test_who_asks_and_is_gone_fills_no_log(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    """Each pong to a line that is lost would be a line of asyncio's log."""
    for _ in range(3):
        with line(bus.namespace.port) as websocket:
            websocket.accepted()
            websocket.write(websocket.protocol.send(Ping()) * 20_000)
            websocket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with line(bus.namespace.port) as another:
        another.accepted()
        Client(another, plain(bus)).exchange()
    assert our_lines(caplog) == []


def test_goodbyes(bus: Bus) -> None:
    with line(bus.namespace.port) as websocket:
        websocket.accepted()
        websocket.write(websocket.protocol.send(CloseConnection(1000)))
        assert isinstance(websocket.next(), CloseConnection)
        with pytest.raises(ConnectionError):
            websocket.next()


def last_words(websocket: Line, bus: Bus) -> bytes:
    """The message that a client would send next, after its first one."""
    client = Client(websocket, plain(bus))
    client.exchange()
    [session] = client.machine.sessions
    [link] = session.links
    link.send(encode_data(b"last"), tag=b"l", settled=True)
    return websocket.protocol.send(BytesMessage(client.machine.data_to_send()))


def test_what_comes_with_a_goodbye_is_heard(bus: Bus) -> None:
    with line(bus.namespace.port) as websocket:
        websocket.accepted()
        last = last_words(websocket, bus)
        websocket.write(last + websocket.protocol.send(CloseConnection(1000)))
        with pytest.raises(ConnectionError):
            websocket.read_to_its_end()
    assert bus.namespace.message_count("orders") == 2


@pytest.mark.parametrize("is_told_first", [False, True])
def test_what_was_read_before_a_line_was_lost_is_heard(bus: Bus, is_told_first: bool) -> None:
    """Whether the loss comes to be known before or behind the share; as with TLS, where both come at once."""
    host = bus.broker._hosts["contoso"]
    with line(bus.namespace.port) as websocket:
        websocket.accepted()
        said = last_words(websocket, bus)
        behind = websocket_of(bus)

        def lose() -> None:
            assert behind._transport is not None
            acts = [lambda: behind.data_received(said), behind._transport.abort]
            for act in reversed(acts) if is_told_first else acts:
                act()

        bus.broker.call(lose)
        wait_until(lambda: not host.peers)
    assert bus.namespace.message_count("orders") == 2


@pytest.mark.usefixtures("noisy")
def test_what_was_read_before_a_black_hole_is_looked_at_after_it(bus: Bus) -> None:
    with line(bus.namespace.port) as websocket:
        websocket.accepted()
        Client(websocket, plain(bus)).exchange()
        behind, said = websocket_of(bus), websocket.protocol.send(Ping(b"there?"))

        def act() -> None:
            behind.data_received(said)
            bus.namespace.faults.set("blackhole")
            behind.work()

        bus.broker.call(act)
        websocket.socket.settimeout(0)
        with pytest.raises(BlockingIOError):
            websocket.next()
        websocket.socket.settimeout(PATIENCE)
        bus.namespace.faults.clear()
        assert isinstance(websocket.next(), Pong)


@pytest.mark.usefixtures("noisy")
def test_who_answers_our_goodbye_with_all_of_its_own_is_told_one(bus: Bus) -> None:
    """That of AMQP, for which we wait, and with it that of WebSocket."""
    with line(bus.namespace.port) as websocket:
        websocket.accepted()
        client = Client(websocket, plain(bus))
        client.exchange()
        websocket.write(websocket.protocol.send(BytesMessage(bytes(8))))
        while not (isinstance(said := websocket.next(), BytesMessage) and b"\x00S\x18" in bytes(said.data)):
            pass  # until it is told of its end
        last = websocket.protocol.send(BytesMessage(encode_frame(0, Close())))
        websocket.write(last + websocket.protocol.send(CloseConnection(1000)))
        assert isinstance(websocket.next(), CloseConnection)


def test_text_is_no_amqp(bus: Bus) -> None:
    with line(bus.namespace.port) as websocket:
        websocket.accepted()
        websocket.write(websocket.protocol.send(TextMessage("hello")))
        event = websocket.next()
        assert isinstance(event, CloseConnection)
        assert event.code == 1003


@pytest.mark.usefixtures("noisy")
def test_what_is_no_amqp_ends_the_connection(bus: Bus) -> None:
    with line(bus.namespace.port) as websocket:
        websocket.accepted()
        websocket.write(websocket.protocol.send(BytesMessage(b"GET / HTTP/1.1\r\n")))
        event = websocket.next()
        while isinstance(event, BytesMessage):
            event = websocket.next()
        assert isinstance(event, CloseConnection)


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize(
    "garbage", [b"\xff" * 50, b"\x82\xff" + b"\xff" * 20, b"\x89\xfe\x01\x00", bytes(999)]
)
def test_what_is_no_websocket_ends_the_connection(bus: Bus, garbage: bytes) -> None:
    with line(bus.namespace.port) as websocket:
        websocket.accepted()
        websocket.write(garbage)
        websocket.socket.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError):
            websocket.read_to_its_end()


def test_thousands_of_empty_frames_stop_nobody(bus: Bus) -> None:
    with line(bus.namespace.port) as websocket, line(bus.namespace.port) as other:
        websocket.accepted()
        other.accepted()
        frame = websocket.protocol.send(BytesMessage(b""))
        websocket.write(frame * 20_000)
        Client(other, plain(bus)).exchange()
        Client(websocket, plain(bus)).exchange()


def test_many_with_empty_frames_are_read_in_slices_of_a_turn(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which other namespaces share. A slice is as short as can be."""
    host, turn, reads = bus.broker._hosts["contoso"], 0, list[int]()
    read = WSConnection.receive_data

    def pass_by() -> None:
        nonlocal turn
        turn += 1
        if host.loop is not None:
            host.loop.call_soon(pass_by)

    def note(protocol: WSConnection, data: bytes | None) -> None:
        if not protocol.client:
            reads.append(turn)
        read(protocol, data)

    with ExitStack() as stack:
        websockets = [stack.enter_context(line(bus.namespace.port)) for _ in range(8)]
        for websocket in websockets:
            websocket.accepted()
        monkeypatch.setattr(arrivals, "ARRIVALS_SLICE", 0.0)
        monkeypatch.setattr(WSConnection, "receive_data", note)
        bus.broker.call(pass_by)
        with held(bus.broker):
            for websocket in websockets:
                websocket.write(websocket.protocol.send(BytesMessage(b"")) * 100)
        Client(websockets[0], plain(bus)).exchange()
        monkeypatch.undo()
    assert len(reads) > len(websockets)
    assert len(set(reads)) == len(reads), "one in a turn"


@pytest.mark.usefixtures("noisy")
def test_who_shows_no_token_is_sent_away(certificate: Any) -> None:
    clock = ManualClock(time.time())
    limits = ConnectionLimits(token_timeout=5.0)
    settings: dict[str, Any] = {"certificate": certificate, "connection_limits": limits}
    with Broker({"contoso": 0}, clock=clock, **settings) as broker, line(broker["contoso"].port) as websocket:
        websocket.accepted()
        clock.advance(6)
        broker.tick()
        with pytest.raises(ConnectionError):
            websocket.read_to_its_end()


@pytest.mark.usefixtures("noisy")
def test_faults_of_the_line_hold_for_websockets(bus: Bus) -> None:
    with line(bus.namespace.port) as websocket:
        websocket.accepted()
        Client(websocket, plain(bus)).exchange()
        bus.namespace.faults.set("reset")
        with pytest.raises(ConnectionError):
            websocket.read_to_its_end()

"""AMQP over WebSocket, for clients behind proxies: `wss://HOST:PORT/$servicebus/websocket`, on the port of
all else.

1. A request to upgrade comes in as any other of HTTP. It is answered with 101 whoever asks: as with plain
   AMQP, tokens are shown later, and until then the connection is a stranger's in the eyes of the gate.
2. The bytes of binary messages are those of AMQP, cut anywhere. What stands behind is the same peer as
   without WebSocket; it writes to a transport that puts each piece into a message, and holds the line back,
   cuts it and closes it through that.
3. Nothing is kept of an unfinished message: its bytes go on as they come. One read is so small that its
   frames, be they all empty, take no more than one turn's share, and the time is put to a stranger's account.
   It waits for that share as a peer does for its own, and nothing more is read meanwhile. The peer is told of
   the end of the line behind it.
"""

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote

from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, Request, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from pairbus.amqp.performatives import AmqpError

from .links.arrivals import Arrivals
from .listener import Direct, cut

PATH = "$servicebus/websocket"
# In the order of preference: that of Microsoft's clients, and that of the standard.
SUBPROTOCOLS = ("AMQPWSB10", "amqp")
# Bytes of a message of ours. Some clients take no message of more than a few megabytes.
MOST_WRITTEN = 65536
# Bytes of one read. An empty frame has six, and takes 20 microseconds.
MOST_READ = 8192
_MAY_CLOSE = (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING)
_CLOSE = CloseConnection(code=CloseReason.NORMAL_CLOSURE)


class Carried(Direct):
    """A protocol whose bytes may come in the messages of another: a connection of AMQP."""

    name: str
    #: Whether what it says waits, as in a black hole.
    is_stopped: bool

    @property
    @abstractmethod
    def is_deaf(self) -> bool:
        """Whether nothing is listened to."""

    @abstractmethod
    def charge(self, seconds: float) -> None:
        """So much time was spent on its bytes before it got them."""


def is_address(path: str) -> bool:
    """Whether WebSockets are asked for at this path, which some clients write twice."""
    parts = [part for part in unquote(path).lower().split("/") if part]
    return parts in (PATH.split("/"), PATH.split("/") * 2)


def open_websocket(headers: Iterable[tuple[bytes, bytes]], target: bytes) -> tuple[WSConnection, bytes]:
    """Take a request to upgrade: the protocol from now on, and the answer. Raises ValueError."""
    protocol = WSConnection(ConnectionType.SERVER)
    try:
        protocol.initiate_upgrade_connection(list(headers), target.decode("latin-1"))
        request = next(iter(protocol.events()))
        assert isinstance(request, Request), "a request is all that can come of one"
        known = [name for name in request.subprotocols if name in SUBPROTOCOLS]
        if not known:
            raise ValueError(f"name one of the subprotocols {', '.join(SUBPROTOCOLS)}")
        return protocol, protocol.send(AcceptConnection(subprotocol=known[0]))
    except (LocalProtocolError, RemoteProtocolError) as error:
        raise ValueError(str(error) or "it is no handshake of WebSocket") from error


class WebSocketTransport(asyncio.Transport):
    """What a peer writes to: a transport that wraps its bytes."""

    def __init__(self, line: asyncio.Transport, protocol: WSConnection, go_on: Callable[[], None]) -> None:
        """`go_on` is called when the peer reads again of which more was read."""
        super().__init__()
        self._line = line
        self._protocol = protocol
        self._go_on = go_on
        self._pauses = 0  # who reads from the line, and who is behind it, each may want no more for a while

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._protocol.state is not ConnectionState.OPEN or self._line.is_closing():
            return  # goodbye has been said, or it is lost
        view = memoryview(data)
        for begin in range(0, len(view), MOST_WRITTEN):
            message = BytesMessage(data=bytes(view[begin : begin + MOST_WRITTEN]))
            self._line.write(self._protocol.send(message))

    def close(self) -> None:
        """Say goodbye in the words of WebSocket too."""
        if not self._line.is_closing():
            if self._protocol.state in _MAY_CLOSE:
                self._line.write(self._protocol.send(_CLOSE))
            self._line.close()

    def abort(self) -> None:
        self._line.abort()

    def is_closing(self) -> bool:
        return self._line.is_closing()

    def pause_reading(self) -> None:
        self._pauses += 1
        self._line.pause_reading()

    def resume_reading(self) -> None:
        self._pauses -= 1
        if self._pauses:
            self._go_on()
        else:
            self._line.resume_reading()

    def get_write_buffer_size(self) -> int:
        return self._line.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._line.get_extra_info(name, default)


class WebSocketLine(Direct):
    """One connection after its upgrade."""

    def __init__(self, protocol: WSConnection, peer: Carried, arrivals: Arrivals) -> None:
        self.name = peer.name
        self._protocol = protocol
        self._peer = peer
        self._arrivals = arrivals
        self._transport: asyncio.Transport | None = None
        self._carrier: WebSocketTransport | None = None
        self._input = b""
        self._is_over = False  # goodbye has been said here

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._peer.buffer[:MOST_READ]

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._peer.buffer[:nbytes]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._carrier = WebSocketTransport(transport, self._protocol, self._go_on)
        self._peer.connection_made(self._carrier)

    def data_received(self, data: bytes) -> None:
        if self._carrier is not None and data and not self._input:
            self._carrier.pause_reading()
            self._arrivals.add(self)
        self._input += data

    def _go_on(self) -> None:
        if self._input:
            self._arrivals.add(self)

    def work(self) -> None:
        """Take the messages out of what was read."""
        if not self._input or (self._peer.is_stopped and self._transport is not None):
            return
        data, self._input = self._input, b""
        if self._carrier is not None:
            self._carrier.resume_reading()
        try:
            if not (self._is_over or self._peer.is_deaf):
                self._take(data)
        finally:
            if self._transport is None:
                self._peer.connection_lost(None)

    def _take(self, data: bytes) -> None:
        begun = time.monotonic()
        chunks: list[bytes] = []
        goodbye: CloseConnection | None = None
        try:
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                if isinstance(event, BytesMessage):
                    chunks.append(bytes(event.data))
                elif isinstance(event, Ping):
                    self._write(event.response())
                elif isinstance(event, CloseConnection):
                    goodbye = event.response()
                elif isinstance(event, TextMessage):
                    self._finish(CloseConnection(CloseReason.UNSUPPORTED_DATA, "AMQP is binary"))
                    return
        except RemoteProtocolError as error:
            self._finish(error.event_hint)
            return
        self._peer.charge(time.monotonic() - begun)
        # With nothing too: it may have to wait for its share of the time.
        self._peer.data_received(b"".join(chunks))
        if goodbye is not None:  # the line is lost only after what came before it has been heard
            self._finish(goodbye)

    def _write(self, event: Event) -> None:
        # To a line that is lost each would be a line of asyncio's log.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._protocol.send(event))

    def _finish(self, goodbye: Any) -> None:
        self._is_over = True
        if isinstance(goodbye, CloseConnection) and self._protocol.state in _MAY_CLOSE:
            self._write(goodbye)
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        self._peer.pause_writing()

    def resume_writing(self) -> None:
        self._peer.resume_writing()

    def close(self, error: AmqpError | None) -> None:
        """The peer says that, as one of its namespace."""

    def reset(self) -> None:
        if self._transport is not None:
            cut(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._input:  # what was said before the end counts
            self._arrivals.add(self)
        else:
            self._peer.connection_lost(exc)

"""One port of one namespace: accepts, looks at the first bytes, and hands the connection on.

Theory
1. The first byte decides: 0x16 begins a TLS handshake; inside TLS, or without it, `AMQP` begins AMQP and a
   letter HTTP. One connection string therefore serves data and administration.
2. A second socket is bound to the port for as long as the listener exists and never listens. While the line
   refuses, nobody else can take the port, and the kernel itself answers that nothing listens there.
3. A black hole is a listening socket whose queue is full: the kernel then drops whatever wants to connect, so
   that connecting hangs, as it does behind a broken network. The queue is filled with connections of our own.
4. Every accepted socket is known here until it is closed, whatever it speaks, so that a fault can cut them
   all.
"""

import asyncio
import logging
import socket
import ssl
import struct
from collections.abc import Callable

from pairbus.broker.errors import BrokerError
from pairbus.broker.faults import Line

__all__ = ["Listener"]

_log = logging.getLogger("pairbus.broker")
_TLS_HANDSHAKE = 0x16
# A client that connects and says nothing is let go after this long.
FIRST_BYTE_TIMEOUT = 30.0
TLS_TIMEOUT = 10.0
_BACKLOG = 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_HOLE_FILLERS = 4  # a queue of length 0 holds one or two connections, by kernel; a few more do no harm


class Listener:
    """The listening socket of one namespace and the sockets that it accepted."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        choose: Callable[[bytes], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext],
    ) -> None:
        """`choose` makes the protocol for a connection from its first bytes; `tls` is asked for at the first
        handshake.
        """
        self._choose = choose
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._holder = _bound_socket(host, port)
        self.host: str = host
        self.port: int = self._holder.getsockname()[1]
        self._listening: socket.socket | None = None
        self._fillers: list[socket.socket] = []
        self._line = Line.UP
        self._unread: dict[socket.socket, asyncio.TimerHandle] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        self.greeters: set[Greeter] = set()

    def open(self) -> None:
        """Begin to accept."""
        self._listen(_BACKLOG)

    def close(self) -> None:
        """Stop accepting and drop what has not spoken yet; connections handed on belong to others."""
        self._stop_listening()
        self._drop_unread()
        for task in self._handshakes:
            task.cancel()
        self._holder.close()

    def set_line(self, line: Line) -> None:
        """Make the port behave as `line` says, for those who connect from now on."""
        if line is self._line:
            return
        self._line = line
        self._stop_listening()
        if line is Line.BLACKHOLE:
            self._listen(0)
            self._fill()
        elif line is not Line.REFUSE:
            self._listen(_BACKLOG)
        if line is not Line.SILENCE:
            self._drop_unread()

    def reset_greeters(self) -> None:
        """Cut the connections that nobody has taken over yet, and those that speak HTTP."""
        for greeter in list(self.greeters):
            greeter.reset()

    # -- listening
    # ---------------------------------------------------------------------------------------------------

    def _listen(self, backlog: int) -> None:
        listening = _bound_socket(self.host, self.port)
        listening.listen(backlog)
        self._listening = listening
        if self._line is not Line.BLACKHOLE:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()

    def _fill(self) -> None:
        for _ in range(_HOLE_FILLERS):
            filler = socket.socket(self._holder.family, socket.SOCK_STREAM)
            filler.setblocking(False)
            filler.connect_ex((self.host, self.port))
            self._fillers.append(filler)

    def _accept(self, listening: socket.socket) -> None:
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # whoever knocked has gone again
        except OSError as error:  # out of descriptors: leave it in the queue, come back in a moment
            _log.error("cannot accept", extra={"fields": {"port": self.port, "reason": str(error)}})
            self._loop.remove_reader(listening.fileno())
            self._loop.call_later(0.1, self._accept_again, listening)
            return
        if self._line is Line.RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread[sock] = self._loop.call_later(FIRST_BYTE_TIMEOUT, self._forget, sock)
        if self._line is not Line.SILENCE:  # a silent line takes bytes in the kernel and nobody looks at them
            self._loop.add_reader(sock.fileno(), self._look, sock)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening is self._listening:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    # -- the first byte
    # ----------------------------------------------------------------------------------------------

    def _look(self, sock: socket.socket) -> None:
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            first = b""
        if not first:
            self._forget(sock)
            return
        self._unread.pop(sock).cancel()
        self._loop.remove_reader(sock.fileno())
        task = self._loop.create_task(self._hand_on(sock, encrypted=first[0] == _TLS_HANDSHAKE))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _hand_on(self, sock: socket.socket, *, encrypted: bool) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: Greeter(self, self._choose),
                sock,
                ssl=self._tls() if encrypted else None,
                ssl_handshake_timeout=TLS_TIMEOUT if encrypted else None,
            )
        except (OSError, ssl.SSLError) as error:
            _log.info("handshake failed", extra={"fields": {"port": self.port, "reason": str(error)}})
            sock.close()

    def _forget(self, sock: socket.socket) -> None:
        timer = self._unread.pop(sock, None)
        if timer is not None:
            timer.cancel()
        self._loop.remove_reader(sock.fileno())
        sock.close()

    def _drop_unread(self) -> None:
        for sock in list(self._unread):
            self._forget(sock)


class Greeter(asyncio.Protocol):
    """Listens to a connection's first four bytes, then stands behind the protocol that speaks what they
    began.
    """

    def __init__(self, listener: Listener, choose: Callable[[bytes], asyncio.Protocol]) -> None:
        self._listener = listener
        self._choose = choose
        self._begun = b""
        self._protocol: asyncio.Protocol | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._listener.greeters.add(self)

    def data_received(self, data: bytes) -> None:
        if self._protocol is not None:
            self._protocol.data_received(data)
            return
        self._begun += data
        if len(self._begun) < 4 or self._transport is None:
            return
        self._protocol = self._choose(self._begun)
        self._protocol.connection_made(self._transport)
        if isinstance(self._protocol, Direct):
            # The hot path: from now on the transport calls the protocol itself.
            self._transport.set_protocol(self._protocol)
            self._listener.greeters.discard(self)
        self._protocol.data_received(self._begun)

    def eof_received(self) -> bool | None:
        return None if self._protocol is None else self._protocol.eof_received()

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.greeters.discard(self)
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    def reset(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()


class Direct(asyncio.Protocol):
    """A protocol that keeps account of its own connection and so needs nobody in front of it."""


def _bound_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise BrokerError(
            f"cannot listen on {host}:{port}: {error.strerror}. Choose another port, or 0 for any free one."
        ) from error
    return sock

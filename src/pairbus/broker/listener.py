"""One port of one namespace: accepts, looks at the first bytes, and hands the connection on.

Theory
1. The first byte decides: 0x16 begins a TLS handshake; inside TLS, or without it, `AMQP` begins AMQP and a
   letter HTTP, from which a client may change to WebSocket. One connection string therefore serves data and
   administration.
2. A second socket is bound to the port for as long as the listener exists and never listens. While the line
   refuses, nobody is given the port, and the kernel itself answers that nothing listens there.
3. A black hole is a listening socket whose queue is full: the kernel then drops whatever wants to connect, so
   that connecting hangs, as it does behind a broken network. The queue of the socket that listens already is
   made short (so there is no moment at which nobody listens) and filled with connections of our own. Who
   still tries when the line comes up again gets through with the next attempt of the kernel.
4. A silent line accepts and lets the kernel take the bytes; nobody looks at them.
5. Every accepted socket is known here, as one of three, until a protocol of its own (`Direct`) takes it over:
   `_unread` (nothing has come), `_handshakes` (becomes a transport; for TLS that takes a while), `greeters`.
   A change of the line is told to the first and the last at once, and to the second when it is done.
6. Each has a `Visitor` from its first moment to its last, by which the gate counts it and may cut it.
"""

import asyncio
import errno
import logging
import socket
import ssl
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable

from pairbus.fault_kinds import LineState

from .bounded_log import BoundedLog
from .errors import BrokerError
from .gate import ConnectionLimits, Gate, Visitor

bounded = BoundedLog(logging.getLogger(__name__))
_TLS_HANDSHAKE = 0x16
# No room, or no descriptors: how long to leave whoever knocks in the kernel's queue.
ACCEPT_PAUSE = 0.1
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_BACKLOG = 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_HOLE_FILLERS = 4  # a queue of length 0 holds one or two connections, by kernel; a few more do no harm

# Makes the protocol for a connection from its first bytes.
Choose = Callable[[bytes, asyncio.Transport, Visitor], "asyncio.Protocol | Direct"]


class Listener:
    """The listening socket of one namespace and the sockets that it accepted."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        choose: Choose,
        tls: Callable[[], ssl.SSLContext],
        limits: ConnectionLimits,
        monotonic: Callable[[], float],
    ) -> None:
        """`tls` is asked for its context at the first handshake. `monotonic` is the clock of the limits."""
        self.choose = choose
        self.gate = Gate(limits, monotonic=monotonic, is_held=lambda: self.line.is_mute)
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._holder = _bound_socket(host, port)
        self.host: str = host
        self.port: int = self._holder.getsockname()[1]
        self.line = LineState.UP
        self._listening: socket.socket | None = None
        self._fillers: list[socket.socket] = []
        self._unread: dict[socket.socket, Visitor] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        self.greeters: set[Greeter] = set()

    def open(self) -> None:
        """Begin to accept."""
        self._listen()

    def close(self) -> None:
        """Stop accepting and cut what is known here; connections taken over belong to others."""
        self._stop_listening()
        self.gate.close()
        self._cut_unread()
        for task in list(self._handshakes):
            task.cancel()
        for greeter in list(self.greeters):
            greeter.cut()
        self._holder.close()

    def set_line(self, line: LineState) -> None:
        """Make the port, and the connections known here, behave as `line` says."""
        if line is self.line:
            return
        was, self.line = self.line, line
        if line is LineState.REFUSE:
            self._stop_listening()
        else:
            self._listen()
        if was.is_mute:
            self.gate.restart()
        if line.is_mute:
            for sock in self._unread:
                self._loop.remove_reader(sock.fileno())
        elif line is LineState.UP and was is LineState.BLACKHOLE:
            for sock in self._unread:
                self._watch(sock)
        else:  # cut, or silent until now
            self._cut_unread()
        for greeter in list(self.greeters):
            greeter.follow(line)

    # -- listening

    def _listen(self) -> None:
        """Have a socket that listens as the line asks for."""
        if self._listening is None:
            self._listening = _bound_socket(self.host, self.port)
        listening = self._listening
        if self.line is LineState.BLACKHOLE:
            self._loop.remove_reader(listening.fileno())
            listening.listen(0)
            self._fill()
        else:
            listening.listen(_BACKLOG)
            self._drop_fillers()
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None
        self._drop_fillers()

    def _fill(self) -> None:
        for _ in range(_HOLE_FILLERS):
            filler = socket.socket(self._holder.family, socket.SOCK_STREAM)
            filler.setblocking(False)
            filler.connect_ex((self.host, self.port))
            self._fillers.append(filler)

    def _drop_fillers(self) -> None:
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()

    def _accept(self, listening: socket.socket) -> None:
        if not self.gate.make_room():
            self._pause(listening)
            return
        try:
            sock, (address, *_) = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return  # whoever knocked has gone again
        except OSError as error:
            bounded.tell(logging.ERROR, "cannot accept", {"port": self.port, "reason": str(error)})
            if error.errno in _NO_DESCRIPTORS:
                self.gate.relieve()
            self._pause(listening)
            return
        if self.line is LineState.RESET or not self.gate.takes(address):
            _reset(sock)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._unread[sock] = self.gate.enter(lambda _: self._forget(sock), address)
        if self.line is not LineState.SILENCE:
            self._watch(sock)

    def _pause(self, listening: socket.socket) -> None:
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(ACCEPT_PAUSE, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening is self._listening and self.line is not LineState.BLACKHOLE:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    # -- the first byte

    def _watch(self, sock: socket.socket) -> None:
        self._loop.add_reader(sock.fileno(), self._look, sock)

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
        visitor = self._take(sock)
        visitor.speak()
        task = self._loop.create_task(self._hand_on(sock, visitor, encrypted=first[0] == _TLS_HANDSHAKE))

        def cancel(reason: str) -> None:
            task.cancel()

        visitor.cut = cancel
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _hand_on(self, sock: socket.socket, visitor: Visitor, *, encrypted: bool) -> None:
        limits = self.gate.limits
        try:
            await self._loop.connect_accepted_socket(
                lambda: Greeter(self, visitor),
                sock,
                ssl=self._tls() if encrypted else None,
                ssl_handshake_timeout=limits.token_timeout if encrypted else None,
                ssl_shutdown_timeout=limits.read_timeout if encrypted else None,
            )
        except (OSError, ssl.SSLError) as error:
            bounded.tell(logging.INFO, "handshake failed", {"port": self.port, "reason": str(error)})
            visitor.leave()
            sock.close()
        except asyncio.CancelledError:
            visitor.leave()
            sock.close()
            raise

    def _take(self, sock: socket.socket) -> Visitor:
        """Look after a socket no longer."""
        self._loop.remove_reader(sock.fileno())
        return self._unread.pop(sock)

    def _forget(self, sock: socket.socket) -> None:
        self._take(sock).leave()
        sock.close()

    def _cut_unread(self) -> None:
        for sock in list(self._unread):
            self._take(sock).leave()
            _reset(sock)


class Greeter(asyncio.Protocol):
    """Hears a connection's first four bytes, then stands behind the protocol that these began."""

    def __init__(self, listener: Listener, visitor: Visitor) -> None:
        self._listener = listener
        self._visitor = visitor
        self._begun = b""
        self._protocol: asyncio.Protocol | Direct | None = None
        self._transport: asyncio.Transport | None = None
        self._mute = False
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._visitor.cut = lambda _: self.cut()
        self._listener.greeters.add(self)
        if self._listener.line is not LineState.UP:
            self.follow(self._listener.line)

    def data_received(self, data: bytes) -> None:
        if self._mute:
            return
        if self._listener.line is LineState.BLACKHOLE:
            # The protocol may have begun to read again of itself, and TLS may have had more in its pocket.
            self._held += data
            self.follow(LineState.BLACKHOLE)
        elif self._protocol is not None:
            self._protocol.data_received(data)
        else:
            self._greet(data)

    def _greet(self, data: bytes) -> None:
        self._begun += data
        if len(self._begun) < 4 or self._transport is None:
            return
        protocol = self._listener.choose(self._begun, self._transport, self._visitor)
        if isinstance(protocol, Direct):
            self.hand_over(protocol, self._begun)
            return
        self._protocol = protocol
        protocol.connection_made(self._transport)
        protocol.data_received(self._begun)

    def hand_over(self, protocol: "Direct", begun: bytes) -> None:
        """Step aside. The hot path: from now on the transport calls the protocol itself."""
        assert self._transport is not None
        self._protocol = protocol
        protocol.connection_made(self._transport)
        self._transport.set_protocol(protocol)
        self._listener.greeters.discard(self)
        protocol.data_received(begun)

    def eof_received(self) -> bool | None:
        if self._mute:
            return True  # the line stays as it is
        return None if self._protocol is None else self._protocol.eof_received()

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.greeters.discard(self)
        self._visitor.leave()
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    def follow(self, line: LineState) -> None:
        """Do as the line does from now on."""
        if self._transport is None or self._transport.is_closing():
            return
        if line in (LineState.REFUSE, LineState.RESET) or (self._mute and line is LineState.UP):
            self.cut()  # what a silent line swallowed is lost, so that it cannot be taken up again
        elif line is LineState.BLACKHOLE:
            self._transport.pause_reading()
        else:
            self._mute = line is LineState.SILENCE
            self._transport.resume_reading()
            held, self._held = self._held, b""
            if held:
                self.data_received(held)

    def cut(self) -> None:
        """End the connection with a reset."""
        if self._transport is not None:
            cut(self._transport)


class Direct(asyncio.BufferedProtocol, ABC):
    """A protocol that keeps account of its own connection and so needs nobody in front of it.

    It reads into a `buffer` that it is given and all of a port may share: what has come is taken out at once.
    Otherwise the event loop asks the kernel for 256 KB at every read and gives them back at once, which costs
    as much as the read itself when little has come.
    """

    buffer: memoryview

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self.buffer[:nbytes]))

    @abstractmethod
    def data_received(self, data: bytes) -> None:
        """Bytes have come."""


def cut(transport: asyncio.Transport) -> None:
    """End a connection with a reset, whatever was still to be written."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    sock.close()


def _bound_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        is_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        mend = (
            "Choose another port, or 0 for any free one." if is_port else "Is it an address of this machine?"
        )
        raise BrokerError(f"cannot listen on {host}:{port}: {error.strerror}. {mend}") from error
    return sock

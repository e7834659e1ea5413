"""A line to a server that a test can cut: refused, hanging, or with answers that are lost."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.waiting import PATIENCE

_CHUNK = 65536


class TcpProxy:
    """Passes bytes on; what it does instead is a matter of its fields, for connections that are open too."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self.refuses = False
        self.hangs = False
        #: Seconds that each piece of an answer takes.
        self.delay = 0.0
        #: So many answers are taken from the server and never passed on; the connection ends then.
        self.answers_to_lose = 0
        self.lost = 0
        self._changed = threading.Event()
        self._lock = threading.Lock()
        proxy = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                proxy._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A line that breaks is what this is for."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = "{}:{}".format(*self._server.server_address[:2])

    @contextmanager
    def running(self) -> Iterator[TcpProxy]:
        thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def _serve(self, client: socket.socket) -> None:
        if self.refuses:
            return
        with socket.create_connection(self._target, timeout=PATIENCE) as server:
            server.settimeout(None)
            up = threading.Thread(target=self._pump, args=(client, server, False), daemon=True)
            up.start()
            self._pump(server, client, True)
            for one in (client, server):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            up.join(PATIENCE)

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                while self.hangs:
                    self._changed.wait(0.05)
                if self.refuses:
                    return
                if is_answer and self._loses():
                    return
                if is_answer and self.delay:
                    time.sleep(self.delay)
                sink.sendall(data)

    def _loses(self) -> bool:
        with self._lock:
            if self.answers_to_lose <= 0:
                return False
            self.answers_to_lose -= 1
            self.lost += 1
            return True


@contextmanager
def proxied(address: str) -> Iterator[TcpProxy]:
    """A line to a server at HOST:PORT."""
    host, _, port = address.rpartition(":")
    with TcpProxy((host, int(port))).running() as proxy:
        yield proxy

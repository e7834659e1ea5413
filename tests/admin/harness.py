"""A namespace's administration API on loopback, with and without TLS, and clients for it."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport

from pairbus.amqp.message import encode_annotations, encode_data
from pairbus.amqp.types import Symbol, Timestamp
from pairbus.broker.access.certificate import ensure_certificate, server_context
from pairbus.broker.admin.api import AdminApi
from pairbus.broker.admin.exchange import HttpRequest, Response
from pairbus.broker.admin.http import AdminHttp
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.namespace import Namespace
from tests.waiting import PATIENCE


def send(namespace: Namespace, path: str, *, count: int, now: float, at: float | None = None) -> None:
    """Send messages into the engine, scheduled ones if `at` is given."""
    annotations = (
        {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(int(at * 1000))} if at is not None else {}
    )
    payload = encode_annotations(annotations) + encode_data(b"body")
    namespace.send(path, [Incoming.parse(payload) for _ in range(count)], now)


class AdminServer:
    """Serves one namespace from a thread of its own, so that blocking clients can be used in a test."""

    def __init__(self, namespace: Namespace, directory: Path) -> None:
        self.namespace = namespace
        self.api = AdminApi(namespace)
        self.requests: list[HttpRequest] = []
        certificate = ensure_certificate(directory, now=time.time())
        self.certificate = str(certificate.cert_path)
        self._context = server_context(certificate)
        self._loop = asyncio.new_event_loop()
        self._servers: list[asyncio.Server] = []
        self.port = self.plain_port = 0

    def handle(self, request: HttpRequest) -> Response:
        self.requests.append(request)
        return self.api.handle(request, time.time())

    def connection_string(self, *, plain: bool = False) -> str:
        port = self.plain_port if plain else self.port
        return (
            f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=root;SharedAccessKey=c2VzYW1l;"
            "UseDevelopmentEmulator=true"
        )

    async def _listen(self, context: ssl.SSLContext | None) -> int:
        server = await self._loop.create_server(lambda: AdminHttp(self.handle), "127.0.0.1", 0, ssl=context)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _start(self) -> None:
        self.port = await self._listen(self._context)
        self.plain_port = await self._listen(None)

    async def _stop(self) -> None:
        for server in self._servers:
            server.close()

    @contextmanager
    def running(self) -> Iterator[AdminServer]:
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(PATIENCE)
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(PATIENCE)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(PATIENCE)
            self._loop.close()


class PlainTransport(RequestsTransport):  # type: ignore[misc]  # the SDK loads it lazily, untyped
    """The clients always ask for https; this sends the same request without TLS."""

    def send(self, request: Any, **settings: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **settings)


class PlainAioTransport(AioHttpTransport):  # type: ignore[misc]
    """The same for the asynchronous client."""

    async def send(self, request: Any, **settings: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **settings)

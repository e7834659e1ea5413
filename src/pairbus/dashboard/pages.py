"""The HTTP face of a dashboard: the page, what it shows, what it may do, and metrics.

GET  /               the page; its files are below /static
GET  /api/state      the picture of this moment
GET  /api/history    what was
GET  /api/events     both as server-sent events, whenever there is news
GET  /api/peek       the first messages of a queue of an embedded namespace
POST /api/do         an action; only with --control
GET  /metrics        for Prometheus
GET  /health         that the process lives
"""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from pairbus.errors import ConfigurationError, PairbusError
from pairbus.plumbing.exposition import CONTENT_TYPE
from pairbus.plumbing.json_text import parse_json

from .collector import SourceCollector
from .controls import Controls
from .metrics import write_metrics
from .namespaces import peek
from .source import describe
from .watched import Watched

_WEB = Path(__file__).parent / "web"
# A proxy that hears nothing for half a minute hangs up.
_HEARTBEAT = 10.0
# Each listener costs a connection and its share of the picture: more than people have open.
_MOST_LISTENERS = 100
_MOST_BODY = 64 * 1024
_SECTION = re.compile(r"^## (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| ([a-z ]+) \| (.+) \|$", re.MULTILINE)
# Links of the documentation lead nowhere on this page: their words stay.
_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")


class Pages:
    """Answers requests. `closing` ends what would otherwise be told for ever."""

    def __init__(self, watched: Watched, collector: SourceCollector, *, version: str, control: bool) -> None:
        self._watched = watched
        self._collector = collector
        self._controls = Controls(watched, collector) if control else None
        self._hello = {"version": version, "control": control}
        self._listeners = 0
        # What was told last, by its name, with its number: written once for all who listen.
        self._told: dict[str, tuple[int, bytes]] = {}
        self.closing = asyncio.Event()

    def application(self) -> Starlette:
        """The application, whose life is that of the collector."""

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            async with self._collector.running():
                yield

        return Starlette(
            lifespan=lifespan,
            routes=[
                Route("/", self._page),
                Route("/health", self._health),
                Route("/metrics", self._metrics),
                Route("/api/state", self._state),
                Route("/api/history", self._history),
                Route("/api/events", self._events),
                Route("/api/peek", self._peek),
                Route("/api/do", self._do, methods=["POST"]),
                Mount("/static", StaticFiles(directory=_WEB)),
            ],
        )

    async def _page(self, request: Request) -> Response:
        return FileResponse(_WEB / "index.html")

    async def _health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _metrics(self, request: Request) -> Response:
        # On a thread: those of thousands of entities take a second or two.
        text = await asyncio.to_thread(write_metrics, self._collector.picture, self._collector.readings())
        return Response(text, media_type=CONTENT_TYPE)

    async def _state(self, request: Request) -> Response:
        return _answer({**self._hello, **self._collector.picture})

    async def _history(self, request: Request) -> Response:
        return _answer(self._collector.history())

    async def _events(self, request: Request) -> Response:
        if self._listeners >= _MOST_LISTENERS:
            return _refuse("too many pages are open", 503)
        self._listeners += 1  # before anything is told: many may come at once
        return _Telling(self._tell(), self._end_listening)

    def _end_listening(self) -> None:
        self._listeners -= 1

    async def _tell(self) -> AsyncIterator[bytes]:
        async with self._collector.listening() as news:
            closing = asyncio.ensure_future(self.closing.wait())
            try:
                yield _event("hello", {**self._hello, "runbook": read_runbook()})
                async for event in self._follow(news, closing):
                    yield event
            finally:
                closing.cancel()

    async def _follow(self, news: asyncio.Event, closing: asyncio.Future[Any]) -> AsyncIterator[bytes]:
        collector, seen, seen_history = self._collector, 0, -1
        while not closing.done():
            news.clear()
            if collector.history_number != seen_history:
                seen_history = collector.history_number
                yield self._once("history", seen_history, collector.history)
            if collector.number != seen:
                seen = collector.number
                yield self._once("state", seen, lambda: collector.picture)
            else:
                yield b": still here\n\n"
            waiting = asyncio.ensure_future(news.wait())
            try:
                await asyncio.wait(
                    {waiting, closing}, timeout=_HEARTBEAT, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                waiting.cancel()

    def _once(self, name: str, number: int, read: Callable[[], Any]) -> bytes:
        told = self._told.get(name)
        if told is None or told[0] != number:
            told = self._told[name] = number, _event(name, read())
        return told[1]

    async def _peek(self, request: Request) -> Response:
        query = request.query_params
        ready_file = self._watched.ready_file
        if ready_file is None:
            return _refuse("no embedded namespaces are watched", 404)
        try:
            found = await peek(
                ready_file, query.get("namespace", ""), query.get("path", ""), is_dead=bool(query.get("dead"))
            )
        except (PairbusError, OSError) as error:
            return _refuse(describe(error), 400 if isinstance(error, ConfigurationError) else 502)
        return _answer(found)

    async def _do(self, request: Request) -> Response:
        if self._controls is None:
            return _refuse("this dashboard is read-only: start it with --control", 403)
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _refuse("an action is JSON", 415)
        body = await _body(request)
        if body is None:
            return _refuse(f"an action has at most {_MOST_BODY:,} bytes", 413)
        given: Any = None
        with suppress(ValueError):
            given = parse_json(body)
        if not isinstance(given, dict):
            return _refuse("an action is a JSON object with 'action'", 400)
        try:
            done = await self._controls.perform(given)
        except ConfigurationError as error:
            return _refuse(describe(error), 400)
        except (PairbusError, OSError) as error:
            return _refuse(describe(error), 502)
        return _answer({"done": done})


class _Telling(StreamingResponse):
    """Events, for as long as somebody listens; whoever counts is told of the end, whatever it is."""

    def __init__(self, events: AsyncIterator[bytes], on_end: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


def read_runbook() -> dict[str, dict[str, str]]:
    """The rows of each alert's section; the runbook is on board, for when no other page can be had."""
    text = resources.files(__package__).joinpath("runbook.md").read_text(encoding="utf-8")
    return {alert: dict(_ROW.findall(_LINK.sub(r"\1", body))) for alert, body in _SECTION.findall(text)}


async def _body(request: Request) -> bytes | None:
    """What was sent; None if that is too much."""
    found = b""
    async for chunk in request.stream():
        found += chunk
        if len(found) > _MOST_BODY:
            return None
    return found


def _event(name: str, value: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), _write(value))


def _answer(value: Any, status: int = 200) -> Response:
    return Response(_write(value), status, media_type="application/json")


def _refuse(error: str, status: int) -> Response:
    return _answer({"error": error}, status)


def _write(value: Any) -> bytes:
    """As JSON that every browser reads, whatever one file among many said. ASCII has room for half a
    character; NaN is null.
    """
    write = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
    try:
        return write(value).encode()
    except ValueError:
        return write(_without_nan(value)).encode()


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

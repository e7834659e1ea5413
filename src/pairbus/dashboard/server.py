"""Serves a dashboard until it is told to end."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import uvicorn

from pairbus.clock import SystemClock
from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.plumbing.hosts import is_loopback

from .collector import SourceCollector
from .connections import BoundedConnection
from .doorkeeper import Doorkeeper
from .history import History
from .pages import Pages
from .watched import Watched

# What is being answered when the server ends.
_GRACE = 5
# Shorter ones can be tried out.
_SHORTEST_TOKEN = 16
# What a browser can send as a header, and nobody mistypes.
_TOKEN = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How a dashboard is reached. `names` are further names that it goes by."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = field(default=None, repr=False)
    control: bool = False
    names: Sequence[str] = ()
    history: Path | None = None
    version: str = ""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < _SHORTEST_TOKEN:
            raise ConfigurationError(f"a token of a dashboard has at least {_SHORTEST_TOKEN} characters")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise ConfigurationError(
                "a token of a dashboard has letters, digits and signs of ASCII, and no spaces"
            )
        if self.token is None and self.needs_token:
            raise ConfigurationError(
                "a dashboard with --control, or one that listens elsewhere than on the loopback, has a token"
            )

    @property
    def needs_token(self) -> bool:
        """Whether it may not be served without one: it shows bodies, or changes things."""
        return self.control or not is_loopback(self.host)


class _Server(uvicorn.Server):
    """One whose signals are ours."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(watched: Watched, how: Serving) -> AsyncIterator[str]:
    """Serve while the block runs; its address, with the token if there is one."""
    listening = _listen(how.host, how.port)
    clock = SystemClock()
    history = await asyncio.to_thread(lambda: History(how.history, now=clock.now()))
    collector = SourceCollector(watched, history, clock=clock)
    pages = Pages(watched, collector, version=how.version, control=how.control)
    app = Doorkeeper(pages.application(), token=how.token, names=[how.host, *how.names])
    server = _Server(
        uvicorn.Config(
            app,
            http=BoundedConnection,
            log_config=None,
            access_log=False,
            lifespan="on",
            ws="none",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE,
        )
    )
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started and not task.done():  # noqa: ASYNC110 - it has no event for this
            await asyncio.sleep(0.02)
        if task.done():
            await task
            raise UnreachableError("the dashboard could not be started; its log says why")
        yield _address(listening, how)
    finally:
        pages.closing.set()
        server.should_exit = True
        await task
        listening.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        why = error.strerror or error
        raise UnreachableError(f"cannot listen on {host}:{port}: {why}; choose another --port") from None
    return listening


def _address(listening: socket.socket, how: Serving) -> str:
    host = f"[{how.host}]" if ":" in how.host else how.host
    # In the fragment, which browsers keep to themselves: it stands in no log and goes to no other page.
    secret = "" if how.token is None else f"#token={quote(how.token, safe='')}"
    return f"http://{host}:{listening.getsockname()[1]}/{secret}"


async def serve_until_signal(watched: Watched, how: Serving, on_address: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with serving(watched, how) as address:
        on_address(address)
        await ended.wait()

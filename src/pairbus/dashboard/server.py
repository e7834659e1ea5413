"""Serves a dashboard until it is told to end."""

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
from uvicorn.protocols.http.h11_impl import H11Protocol

from pairbus.clock import SystemClock
from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.plumbing.hosts import is_loopback

from .collector import SourceCollector
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
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    async with serving(watched, how) as address:
        on_address(address)
        await ended.wait()


# All listeners, and as many requests besides.
MOST_CONNECTIONS = 250
# For a whole head, from the connection or from the answer before; a browser's comes within a second.
_PATIENCE = 20.0


class BoundedConnection(H11Protocol):
    """Hangs up where no request comes in time, and at once where there are too many already.

    uvicorn waits for ever for a request that does not come, or comes a byte at a time. A few hundred such
    connections, for which nobody needs a token, would use up the files that this process may open, and with
    them the sources could not be read either.
    """

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._expect_request()

    def _expect_request(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = self.loop.call_later(_PATIENCE, self._hang_up, self.cycle)

    def _hang_up(self, answered: object) -> None:
        if self.cycle is answered:  # no request has come since
            self.transport.abort()

"""Both of the SDK's clients behind one interface, that of the asynchronous one, so that a scenario is written
once.

The synchronous client runs on threads. It needs up to a second to close a link, for which nobody has to wait:
who leaves `async with` has it closed in the background, and whoever wants to see the link gone calls `close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from typing import Any

import azure.servicebus
import azure.servicebus.aio

__all__ = ["Background", "Farewells", "Shell", "connect", "opened"]

# Methods that are plain in both clients: they make something and do no I/O.
_FACTORIES = frozenset(
    {"get_queue_sender", "get_queue_receiver", "get_topic_sender", "get_subscription_receiver"}
)
_END = object()
# Many times what the slowest close takes.
_PATIENCE = 30.0


class Background:
    """Threads for the synchronous client, and what still runs on them."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(max_workers=64, thread_name_prefix="sdk")
        self.endings: list[Future[None]] = []

    def finish(self) -> None:
        """Wait for everything to end; raises what went wrong on the way."""
        done, late = wait(self.endings, timeout=_PATIENCE)
        assert not late, f"{len(late)} closes hang"
        for ending in done:
            ending.result()
        self.pool.shutdown()


class Farewells:
    """The closes of one test that nobody waited for, and what is to happen after the last of them."""

    def __init__(self, background: Background) -> None:
        self.background = background
        self._closes: list[Future[None]] = []
        self._clients: list[Callable[[], None]] = []

    def close_link(self, close: Callable[[], None]) -> None:
        """Close a sender or receiver in the background."""
        self._closes.append(self.background.pool.submit(close))

    def close_client(self, close: Callable[[], None]) -> None:
        """Close a client when its links are closed, for it would close them again."""
        self._clients.append(close)

    def then(self, act: Callable[[], None]) -> None:
        """Do the last thing when all is closed; this does not wait either."""

        def end() -> None:
            try:
                for closing in self._closes:
                    closing.result(_PATIENCE)
                for close in self._clients:
                    close()
            finally:
                act()

        self.background.endings.append(self.background.pool.submit(end))


class Shell:
    """An object of the synchronous SDK that looks like its asynchronous twin."""

    def __init__(self, subject: Any, farewells: Farewells) -> None:
        self._subject = subject
        self._farewells = farewells

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._subject, name)
        if name == "session":
            return Shell(found, self._farewells)
        if not callable(found):
            return found
        if name in _FACTORIES:
            return lambda *args, **settings: Shell(found(*args, **settings), self._farewells)
        return lambda *args, **settings: self._call(lambda: found(*args, **settings))

    async def __aenter__(self) -> Shell:
        await self._call(self._subject.__enter__)
        return self

    async def __aexit__(self, *details: object) -> None:
        if isinstance(self._subject, azure.servicebus.ServiceBusClient):
            self._farewells.close_client(self._subject.close)
        else:
            self._farewells.close_link(self._subject.close)

    async def __aiter__(self) -> AsyncIterator[Any]:
        items = iter(self._subject)
        while (item := await self._call(lambda: next(items, _END))) is not _END:
            yield item

    async def _call(self, function: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._farewells.background.pool, function)


def connect(kind: str, connection_string: str, farewells: Farewells, **settings: Any) -> Any:
    """A client of the SDK, "aio" or "sync", that gives up at the first failure unless told otherwise."""
    settings = {"retry_total": 0, **settings}
    if kind == "aio":
        return azure.servicebus.aio.ServiceBusClient.from_connection_string(connection_string, **settings)
    client = azure.servicebus.ServiceBusClient.from_connection_string(connection_string, **settings)
    return Shell(client, farewells)


@asynccontextmanager
async def opened(*links: Any) -> AsyncIterator[tuple[Any, ...]]:
    """Senders and receivers, opened and closed all at once."""
    outcomes = await asyncio.gather(*(link.__aenter__() for link in links), return_exceptions=True)
    try:
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        yield links
    finally:
        await asyncio.gather(*(link.__aexit__(None, None, None) for link in links))

"""A way from ordinary threads into one event loop: an asyncio loop on a daemon thread of its own, and calls
with a deadline.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from pairbus.errors import PairbusError

__all__ = ["Portal", "PortalClosed"]

T = TypeVar("T")


class PortalClosed(PairbusError):
    """The event loop behind the call has ended, or did not answer in time."""


class Portal:
    """One event loop on one daemon thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        """Run a coroutine on the loop and wait for its result; cancelled when the time is over or the caller
        is interrupted.
        """
        if self._loop.is_closed():
            coroutine.close()
            raise PortalClosed("the event loop has been closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            if future.done():
                raise  # the coroutine's own time-out
            future.cancel()
            raise PortalClosed(f"the event loop did not answer within {timeout:g} s") from None
        except BaseException:
            future.cancel()
            raise

    def call(self, function: Callable[[], T], *, timeout: float | None = None) -> T:
        """Call a plain function on the loop's thread and wait for its result."""

        async def perform() -> T:
            return function()

        return self.run(perform(), timeout=timeout)

    def close(self, *, timeout: float) -> None:
        """Cancel what still runs on the loop, end it, and wait for its thread."""
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

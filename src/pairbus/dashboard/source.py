"""Sources: what is looked at now and then, each by itself.

1. A source that fails, or does not answer within its limit, is told with its reason; what it said last stays,
   with its age. No source waits for another.
2. What blocks runs on a thread. A thread that hangs is waited for again with the next look, and no second
   one is begun: a disk that is gone costs one thread, not one a second.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pairbus.clock import Clock
from pairbus.plumbing.tasks import wait_at_most
from pairbus.wire.errors import TransportError

log = logging.getLogger(__name__)
ReadSource = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookSource:
    """One thing to look at: `of` is the pair that it belongs to, or empty; durations in seconds."""

    of: str
    name: str
    read: ReadSource
    every: float
    limit: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWord:
    """What a source said last, and when; `error` is why it says nothing now."""

    value: Any = None
    at: float | None = None
    error: str | None = None


class Aside:
    """Calls one function on a thread, never twice at a time: rule 2."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._running: asyncio.Future[Any] | None = None

    async def __call__(self) -> Any:
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().run_in_executor(None, self._function)
        return await asyncio.shield(self._running)


class Watch:
    """Looks at one source, again and again."""

    def __init__(self, source: LookSource, clock: Clock, on_reading: Callable[[], None]) -> None:
        self.source = source
        self.reading = LastWord(error="not looked at yet")
        self._clock = clock
        self._on_reading = on_reading
        self._poked = asyncio.Event()

    def poke(self) -> None:
        """Look again at once: something was done that shows there."""
        self._poked.set()

    async def run(self) -> None:
        while True:
            self._poked.clear()
            await self.look()
            await wait_at_most(self._poked, self.source.every)

    async def look(self) -> None:
        """Look once. Rule 1."""
        before = self.reading
        try:
            async with asyncio.timeout(self.source.limit):
                value = await self.source.read()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this source's alone
            said = describe(error)
            if before.error != said:
                log.debug("%s of %s: %s", self.source.name, self.source.of, said)
            self.reading = LastWord(value=before.value, at=before.at, error=said)
        else:
            self.reading = LastWord(value=value, at=self._clock.now())
        self._on_reading()


def describe(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    said = error.words if isinstance(error, TransportError) else str(error)
    return " ".join(said.split()) or type(error).__name__

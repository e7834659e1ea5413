"""A drain that the dashboard runs itself, for a pair without a syphon: a syphon in this process, no Spark.

It is a syphon like any other, with its lease, its receipts and its leash, that ends when the backlog is empty
or holds only what has to wait; with a path, when that path's messages are moved.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pairbus.errors import ConfigurationError
from pairbus.spark.leash.leash import ORDER_STATES
from pairbus.spark.summary import SyphonSummary
from pairbus.spark.syphon import Syphon, SyphonProgress

from .source import describe
from .watched import WatchedPair

log = logging.getLogger(__name__)
# What a clean end may take: pumps wait for answers that are on the way.
_END_LIMIT = 60.0


class OwnDrain:
    """Runs at most one drain of a pair at a time."""

    def __init__(self, pair: WatchedPair) -> None:
        self._pair = pair
        self._syphon: Syphon | None = None
        self._task: asyncio.Task[None] | None = None
        self._path: str | None = None
        self._progress: SyphonProgress | None = None
        self._summary: SyphonSummary | None = None
        self._error: str | None = None

    @property
    def is_active(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, path: str | None) -> None:
        """Begin to drain, everything or one path."""
        if self._pair.backlog is None:
            raise ConfigurationError(
                f"{self._pair.name} is known by its state directory alone: name its sides"
            )
        if self.is_active:
            raise ConfigurationError("a drain is under way already: pause or stop it first")
        self._path, self._progress, self._summary, self._error = path, None, None, None
        options = replace(self._pair.options, only_paths=() if path is None else (path,))
        self._syphon = Syphon(None, self._pair.backlog, state=self._pair.state_dir, options=options)
        self._task = asyncio.create_task(self._run(self._syphon))

    async def pause(self) -> None:
        """Give back what is in hand, and wait."""
        await self._tell(lambda syphon: syphon.pause())

    async def resume(self) -> None:
        await self._tell(lambda syphon: syphon.resume())

    async def stop(self) -> None:
        task = self._task
        if task is None or task.done():
            return
        if self._progress is not None:
            await self._tell(lambda syphon: syphon.stop())
        await asyncio.wait({task}, timeout=_END_LIMIT)

    async def _tell(self, order: Callable[[Syphon], None]) -> None:
        syphon = self._syphon
        if syphon is None or self._progress is None:
            raise ConfigurationError("the drain is only beginning: try again in a moment")
        await asyncio.to_thread(order, syphon)
        if self.is_active:
            self._progress = await asyncio.to_thread(syphon.progress)

    async def _run(self, syphon: Syphon) -> None:
        try:
            self._summary = await asyncio.to_thread(lambda: syphon.run(once=True, on_progress=self._note))
        except Exception as error:  # noqa: BLE001 - it is told on the page
            self._error = describe(error)
            log.warning("the drain of %s has failed: %s", self._pair.name, self._error)

    def _note(self, progress: SyphonProgress) -> None:
        self._progress = progress

    def describe(self) -> dict[str, Any]:
        """How it is, in the words of a syphon."""
        done: SyphonSummary | SyphonProgress | None = self._summary or self._progress
        return {
            "state": self._state(),
            "path": self._path,
            "moved": done.moved if done else 0,
            "dead_lettered": done.dead_lettered if done else 0,
            "waiting": done.waiting if done else 0,
            "trouble": self._error or self._trouble(),
        }

    def _state(self) -> str:
        if self._task is None:
            return "idle"
        if self._task.done():
            return "ended" if self._error is None else "failed"
        return "starting" if self._progress is None else ORDER_STATES[self._progress.order]

    def _trouble(self) -> str | None:
        if self._summary is None:
            return None if self._progress is None else self._progress.trouble
        troubles = [
            f"{path}: {one.trouble}" for path, one in sorted(self._summary.paths.items()) if one.trouble
        ]
        troubles += [f"{queue}: {error}" for queue, error in sorted(self._summary.queue_errors.items())]
        return troubles[0] if troubles else None

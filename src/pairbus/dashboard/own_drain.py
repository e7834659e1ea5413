"""A drain that the dashboard runs itself, for a pair without a syphon: one pump in this process, no Spark.

1. It ends when the backlog is empty, or holds only what has to wait; with a path, when that path's messages
   are moved. Others are put aside and stay in the backlog.
2. It holds the state of the pair like a syphon does, so that the two never work side by side; a pause lets go
   of it no more than a stop does of a message: what is in hand is settled or given back.
3. Receipts and the ledger go where those of the syphon go, so that `verify` and the bill know of it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any, Literal

from pairbus.backlog.discovery import discover
from pairbus.client.state.directory import records_dir
from pairbus.errors import ConfigurationError
from pairbus.ledger import OperationLog
from pairbus.ledger.receipts import ReceiptLog
from pairbus.pump import Pump, PumpSummary
from pairbus.spark.leash.tether import ControlFile

from .source import describe
from .watched import WatchedPair

log = logging.getLogger(__name__)
_PROGRESS = 0.5
# What a clean end may take; a pump that is silent for longer is cut off, which loses nothing.
_END_LIMIT = 20.0
State = Literal["idle", "running", "paused", "ended", "failed"]


class OwnDrain:
    """Runs at most one drain of a pair at a time."""

    def __init__(self, pair: WatchedPair) -> None:
        self._pair = pair
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._resumed = asyncio.Event()
        self.state: State = "idle"
        self.path: str | None = None
        self._error: str | None = None
        self._done = {"moved": 0, "dead_lettered": 0}
        self._now: PumpSummary | None = None

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
        self.path, self._error, self._now = path, None, None
        self._done = {"moved": 0, "dead_lettered": 0}
        self._stop.clear()
        self._resumed.set()
        self.state = "running"
        self._task = asyncio.create_task(self._run())

    def pause(self) -> None:
        """Give back what is in hand, and wait."""
        self._resumed.clear()
        self._stop.set()

    def resume(self) -> None:
        """Go on."""
        self._resumed.set()

    async def stop(self) -> None:
        """End cleanly."""
        task, self._task = self._task, None
        if task is None:
            return
        if self.state == "paused":
            task.cancel()
        self._stop.set()
        done, _ = await asyncio.wait({task}, timeout=_END_LIMIT)
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=_END_LIMIT)
        self.state = "ended"

    def describe(self) -> dict[str, Any]:
        """How it is, in the words of a syphon."""
        now = self._now
        return {
            "state": self.state,
            "path": self.path,
            "moved": self._done["moved"] + (now.moved if now else 0),
            "dead_lettered": self._done["dead_lettered"] + (now.dead_lettered if now else 0),
            "waiting": now.waiting if now else 0,
            "trouble": self._error or (now.stall if now else None) or _first_trouble(now),
        }

    async def _run(self) -> None:
        try:
            with ControlFile(self._pair.state_dir).held():
                while True:
                    await self._pump()
                    if self._resumed.is_set():
                        break
                    self.state = "paused"
                    await self._resumed.wait()
                    self._stop.clear()
                    self.state = "running"
        except Exception as error:  # noqa: BLE001 - it is told on the page
            self.state, self._error = "failed", describe(error)
            log.warning("the drain of %s has failed: %s", self._pair.name, self._error)
        else:
            self.state = "ended"

    async def _pump(self) -> None:
        backlog = self._pair.backlog
        assert backlog is not None  # `start` has seen to it
        found = await discover([backlog])
        records = records_dir(self._pair.state_dir)
        paths = () if self.path is None else (self.path,)
        pump = Pump(
            replace(backlog.pair, name=backlog.name),
            [queue.name for queue in found.queues],
            options=replace(self._pair.options, drain=True, only_paths=paths, progress_interval=_PROGRESS),
            receipts=ReceiptLog(records),
            ledger=OperationLog(records, role="pump", pair=backlog.name),
            on_progress=self._note,
            stop=self._stop,
        )
        try:
            self._note(await pump.run())
        finally:
            self._count()

    def _note(self, summary: PumpSummary) -> None:
        self._now = summary

    def _count(self) -> None:
        """Keep what a pump that is no more has done; the rest is found again by the next one."""
        now = self._now
        if now is not None:
            self._done = {
                "moved": self._done["moved"] + now.moved,
                "dead_lettered": self._done["dead_lettered"] + now.dead_lettered,
            }
            self._now = replace(now, moved=0, dead_lettered=0)


def _first_trouble(now: PumpSummary | None) -> str | None:
    if now is None:
        return None
    troubles = [f"{path}: {one.trouble}" for path, one in sorted(now.paths.items()) if one.trouble]
    troubles += [f"{queue}: {error}" for queue, error in sorted(now.queue_errors.items())]
    return troubles[0] if troubles else None

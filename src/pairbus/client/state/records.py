"""Redirect records: what went to which backlog queue, so that a later check can name what is missing.

`SegmentRecords` keeps them on the disk of this machine. Sends that end at the same time share one fsync:
while one is under way, in a thread, the rows of all others gather for the next.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pairbus.client.serial_thread import SerialThread
from pairbus.clock import Clock
from pairbus.ledger.segment import MAX_AGE, SegmentWriter, adopt_segments

__all__ = ["KIND", "NoRecords", "Records", "RedirectRecord", "SegmentRecords"]

#: The kind of segment that holds redirect records.
KIND = "redirects"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedirectRecord:
    """One message that a backlog queue has taken."""

    message_id: str
    path: str
    session_id: str | None
    queue: str
    at: float


class Records(Protocol):
    """Where redirect records are kept."""

    async def append(self, rows: Sequence[RedirectRecord]) -> None:
        """Keep these; they are durable when this returns."""
        ...

    async def close(self) -> None:
        """Close the open segment."""
        ...


class NoRecords:
    """Keeps none."""

    async def append(self, rows: Sequence[RedirectRecord]) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """There is nothing to close."""


class SegmentRecords:
    """Keeps redirect records in segments of a directory, durably.

    The message is in the backlog when its record is written. A disk that is full or broken therefore does not
    make the send fail, since its caller would send again what has been taken: the loss is logged and counted.
    """

    def __init__(self, directory: Path, *, clock: Clock | None = None, max_age: float = MAX_AGE) -> None:
        """Does no I/O; the directory is made with the first row."""
        self._writer = SegmentWriter(directory, KIND, max_age=max_age, clock=clock)
        self._max_age = max_age
        self._waiting: list[tuple[Sequence[RedirectRecord], asyncio.Future[None]]] = []
        self._flush: asyncio.Task[None] | None = None
        self._roll: asyncio.TimerHandle | None = None
        self._thread: SerialThread | None = None
        #: How many records could not be written.
        self.lost = 0

    async def append(self, rows: Sequence[RedirectRecord]) -> None:
        """Keep these; they are on the disk when this returns, unless `lost` has grown."""
        if not rows:
            return
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, done))
        self._start_flush()
        await done

    async def close(self) -> None:
        """Write what waits and close the open segment."""
        while self._flush is not None:
            await asyncio.wait({self._flush})
        if self._roll is not None:
            self._roll.cancel()
            self._roll = None
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._close_segment)
            thread.shutdown(wait=False)

    def _start_flush(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().create_task(self._write_waiting())

    async def _write_waiting(self) -> None:
        """Write until nothing waits; whoever waits is told with its own batch."""
        loop = asyncio.get_running_loop()
        try:
            if self._thread is None:
                self._thread = SerialThread("pairbus-records")
                await loop.run_in_executor(self._thread, self._adopt)
            while self._waiting:
                batch, self._waiting = self._waiting, []
                rows = [row for some, _ in batch for row in some]
                try:
                    await loop.run_in_executor(self._thread, self._write, rows)
                finally:  # also when the loop ends: nobody waits for ever
                    for _, done in batch:
                        if not done.done():  # its caller may have been cancelled
                            done.set_result(None)
            self._roll = self._roll or loop.call_later(self._max_age, self._close_old)
        finally:
            self._flush = None

    def _close_old(self) -> None:
        """Let others see the rows of a segment that nothing more is written to."""
        self._roll = None
        if self._thread is not None:
            self._thread.submit(self._close_segment)

    # -- on the thread

    def _adopt(self) -> None:
        try:
            adopted = adopt_segments(self._writer.directory, KIND)
        except OSError as error:
            log.warning("cannot adopt redirect records of earlier processes: %s", error)
            return
        if adopted:
            log.info("adopted redirect records of earlier processes: %d segments", len(adopted))

    def _write(self, rows: list[RedirectRecord]) -> None:
        try:
            self._writer.append(map(dataclasses.asdict, rows))
        except OSError as error:
            self.lost += len(rows)
            log.error("cannot write redirect records: %s", error, extra={"fields": {"lost": self.lost}})

    def _close_segment(self) -> None:
        try:
            self._writer.close()
        except OSError as error:
            log.warning("cannot close a segment of redirect records: %s", error)

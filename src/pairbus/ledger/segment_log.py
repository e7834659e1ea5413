"""Rows that many callers want kept at once, in segments: each is on the disk when its `append` returns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Generic, TypeVar

from pairbus.plumbing.group_commit import GroupCommit
from pairbus.plumbing.serial_thread import SerialThread

from .segment import SegmentWriter

log = logging.getLogger(__name__)
Row = TypeVar("Row")


class SegmentLog(Generic[Row]):
    """A writer of segments for the callers of event loops; they share its fsyncs."""

    def __init__(self, segments: SegmentWriter) -> None:
        """Does no I/O."""
        self._segments = segments
        self._thread = SerialThread(f"pairbus-{segments.kind}")
        self._commit = GroupCommit(self._write, thread=self._thread)
        self._is_used = False
        self._roll: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Leave a sign in the background that there is a writer; see `chain`."""
        self._is_used = True
        self._thread.submit(self._begin)

    async def append(self, rows: Sequence[Row]) -> None:
        """Keep these; they are on the disk when this returns."""
        if not rows:
            return
        self._is_used = True
        if self._roll is None:
            age = self._segments.max_age
            self._roll = asyncio.get_running_loop().call_later(age, self._close_old)
        await self._commit.append(rows)

    async def close(self) -> None:
        """Write what waits and close the open segment. Rows that come later begin another one."""
        if self._roll is not None:
            self._roll.cancel()
            self._roll = None
        if self._is_used:
            self._is_used = False
            try:
                await self._thread.run(self._segments.close, ends=True)
            finally:
                self._thread.rest()

    def _close_old(self) -> None:
        self._roll = None
        self._thread.submit(self._show)

    # -- on the thread

    def _begin(self) -> None:
        try:
            self._segments.begin()
        except OSError as error:  # the first row tries again
            log.warning("cannot begin a chain of %s: %s", self._segments.kind, error)

    def _write(self, rows: list[Row]) -> None:
        self._segments.append(rows)

    def _show(self) -> None:
        """Let others see the rows of a segment that nothing more is written to."""
        try:
            self._segments.close()
        except OSError as error:  # it is adopted later
            log.warning("cannot close a segment of %s: %s", self._segments.kind, error)

"""Rows that many callers want kept at once, in segments or as objects of a store.

Each is on the disk, or in the store, when its `append` returns; or with the kernel, which outlives the
process, and on the disk within a second: a power cut may then cost the rows of a second, and no caller waits
for the disk.

To wake a thread and to be woken by it costs ten times as much as to pass a row to the kernel. So rows that
need not be synced are written *in place*, on the event loop, while that is all there is to do: a segment is
open, and the thread, which syncs, closes and opens segments, has nothing to do. A disk that hangs does so in
a sync first, and whoever comes meanwhile waits for the thread, not the event loop for the disk. A write that
took long leaves the next one to the thread, which finds out whether that waits long as well, as it may when
the kernel has too much to bring to the disk: then those of the next time are the thread's. If it does not,
others only had the processor, and on a busy machine all would go to the thread.
"""

import asyncio
import logging
import math
import resource
import time
from collections.abc import Sequence
from typing import Generic, TypeVar

from pairbus.plumbing.group_commit import GroupCommit
from pairbus.plumbing.serial_thread import SerialThread
from pairbus.plumbing.tasks import end_on_disk

from .commit_objects import RowWriter

log = logging.getLogger(__name__)
Row = TypeVar("Row")
# A second is promised; the disk takes its part of it.
_SYNC_AFTER = 0.5
# A write in place takes some ten microseconds. One that took so many seconds is followed by none until it is
# known whether it was the disk, and if so for so many.
_LONG, _WARY = 0.005, 30.0
# Where waits are not counted by thread, those of others count as ours.
_OURSELVES = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class SegmentLog(Generic[Row]):
    """A writer of rows for the callers of event loops; they share its fsyncs, or puts."""

    def __init__(self, segments: RowWriter, *, is_synced: bool = True, is_left: bool = False) -> None:
        """Does no I/O. `is_synced`: rows are on the disk when `append` returns, not only soon after.
        `is_left`: whoever closes does not wait for a disk that hangs.
        """
        self._segments = segments
        self._is_synced = is_synced
        self._is_left = is_left
        self._sync: asyncio.TimerHandle | None = None
        self._thread = SerialThread(f"pairbus-{segments.kind}")
        self._commit = GroupCommit(self._write_beside, thread=self._thread, gather=segments.gather)
        self._is_used = False
        self._roll: asyncio.TimerHandle | None = None
        self._in_place_from = 0.0

    def begin(self) -> None:
        """Leave a sign in the background that there is a writer; see `chain`."""
        self._is_used = True
        self._thread.submit(self._begin)

    async def begun(self) -> None:
        """The same, and wait for it."""
        self._is_used = True
        await self._thread.run(self._begin)

    async def append(self, rows: Sequence[Row]) -> None:
        """Keep these, as safe as the log was made for, when this returns."""
        if not rows:
            return
        self._is_used, loop = True, asyncio.get_running_loop()
        if self._roll is None:
            self._roll = loop.call_later(self._segments.max_age, self._close_old)
        if self._is_synced:
            await self._commit.append(rows)
            return
        try:
            if not self._write_in_place(rows):
                await self._commit.append(rows)
        finally:  # they are written, too, if whoever brought them is called away
            if self._sync is None and not loop.is_closed():
                self._sync = loop.call_later(_SYNC_AFTER, self._sync_soon)

    def append_at_once(self, rows: Sequence[Row]) -> bool:
        """Have these with the kernel when this returns, if that is enough and nothing is to be waited for or
        begun; else False, and `append` does it.
        """
        return self._sync is not None and self._write_in_place(rows)

    def urge(self) -> None:
        """Nobody comes until what waits is kept: it need not wait for others."""
        self._segments.urge()

    async def close(self) -> None:
        """Write what waits and close the open segment. Rows that come later begin another one."""
        for timer in (self._roll, self._sync):
            if timer is not None:
                timer.cancel()
        self._roll = self._sync = None
        if self._is_used:
            self._is_used = False
            try:
                closing = self._thread.run(self._segments.close, ends=True)
                await (end_on_disk(closing, what=self._segments.kind) if self._is_left else closing)
            finally:
                self._thread.rest()

    def _write_in_place(self, rows: Sequence[Row]) -> bool:
        began = time.monotonic()
        if began < self._in_place_from:
            return False
        is_written = self._thread.at_once(self._write_if_ready, rows)
        if time.monotonic() - began > _LONG:
            self._in_place_from = math.inf
        return is_written

    def _write_if_ready(self, rows: Sequence[Row]) -> bool:
        return self._segments.append_if_ready(rows)

    def _close_old(self) -> None:
        self._roll = None
        self._thread.submit(self._show)

    def _sync_soon(self) -> None:
        self._sync = None
        if self._is_used:  # else closing has synced them
            self._thread.submit(self._sync_rows)

    # -- on the thread

    def _begin(self) -> None:
        try:
            self._segments.begin()
        except OSError as error:  # the first row tries again
            log.warning("cannot begin a chain of %s: %s", self._segments.kind, error)

    def _write_beside(self, rows: list[Row]) -> None:
        if self._in_place_from < math.inf:
            self._write(rows)
            return
        began, waits = time.monotonic(), _count_waits()
        try:
            self._write(rows)
        finally:
            ended = time.monotonic()
            has_waited = ended - began > _LONG and _count_waits() > waits
            self._in_place_from = ended + _WARY if has_waited else 0.0

    def _write(self, rows: list[Row]) -> None:
        self._segments.append(rows, is_synced=self._is_synced)

    def _sync_rows(self) -> None:
        try:
            self._segments.sync()
        except OSError as error:  # the rows have been counted as lost
            log.error("cannot bring %s to the disk: %s", self._segments.kind, error)

    def _show(self) -> None:
        """Let others see the rows of a segment that nothing more is written to."""
        try:
            self._segments.close()
        except OSError as error:  # it is adopted later
            log.warning("cannot close a segment of %s: %s", self._segments.kind, error)


def _count_waits() -> int:
    """How often this thread has waited for something other than the processor."""
    return resource.getrusage(_OURSELVES).ru_nvcsw

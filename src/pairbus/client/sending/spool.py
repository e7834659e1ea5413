"""The local spool: where messages wait while both sides are down.

Theory of operation
-------------------

1. A call whose messages neither side takes has them written here, and returns when they are on the disk. The
   messages of one call are one record: all of them are kept, or none.
2. The spool is bounded. What does not fit any more is refused with `SpoolFullError`, and nothing of it kept.
3. Each path has a lane (`spool_lane`), which sends its records in the background, in their order, by whatever
   route is open then. One that takes nothing does not hold up the others.
4. While an entity has records here, what comes for its backlog queues up behind them. What earlier processes
   have left is known a moment after the start; where that takes longer, every entity may have some.
5. What is here survives the process; the next client with the same state directory sends it, before its own.
6. Nothing that was taken is given up. What is refused for its own sake, and what is damaged, is kept and
   shown until somebody decides: `spool_aside`.
7. What is counted here is what is on the disk, or on its way there. It is counted before it is written, and
   no longer when it was not written, or has been dealt with; whoever waits for that, or does not any more.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from pairbus.client.errors import SpoolError, SpoolFullError
from pairbus.client.state.directory import try_directory
from pairbus.client.state.packing import pack
from pairbus.client.state.spool_aside import count_damaged, count_refused, is_refused, keep_refused
from pairbus.client.state.spool_records import SpoolRecord, framed
from pairbus.client.state.spool_store import Held, LineKey, SpoolStore, adopt_stores
from pairbus.client.status import SpoolStatus
from pairbus.clock import Clock, SystemClock
from pairbus.errors import PairbusError
from pairbus.plumbing.each import call_each
from pairbus.plumbing.group_commit import GroupCommit, WriteHere
from pairbus.plumbing.kernel_sync import Ended, KernelSync
from pairbus.plumbing.serial_thread import SerialThread
from pairbus.plumbing.tasks import end_on_disk, take_each
from pairbus.timers import Timers

from .message import Message, message_id_of
from .spool_lane import OnStay, Replay, SpooledMessage, SpoolLane

log = logging.getLogger(__name__)
_MOMENT = 1.0
# So often at most the room on the disk is asked for: whoever waits for a write waits for that as well.
_LOOK_EVERY = 1.0
# A write and its sync that took longer are followed by one on the thread, whatever they waited for.
_QUICK = 0.005
_NOTHING = Held()


@dataclass(slots=True, eq=False)
class _Entry:
    """A record on its way to the disk; `error` is why it did not get there."""

    key: LineKey
    data: bytes
    held: Held
    error: Exception | None = None

    @classmethod
    def of(cls, path: str, messages: Sequence[Message], *, is_late: bool = False, **about: Any) -> _Entry:
        data = framed(SpoolRecord(path, len(messages), pack(messages, **about)))
        return cls(LineKey.of(path, is_late=is_late), data, Held(len(messages), len(data)))


class Spool:
    """The spool of one client."""

    def __init__(
        self, directory: Path, *, limit: int, keeps_sessions: bool = False, clock: Clock | None = None
    ) -> None:
        """Does no I/O. `keeps_sessions`: the order of each session is kept, at any price."""
        self._directory = directory
        self._limit = limit
        self.keeps_sessions = keeps_sessions
        self._clock = clock or SystemClock()
        self.thread = SerialThread("pairbus-spool")
        self._sync = KernelSync()
        self._commit = GroupCommit(
            self._write,
            thread=self.thread,
            ended=self._end_entries,
            here=WriteHere(self._begin, self._sync.wait),
        )
        # Those of processes that are gone, the oldest first, then our own.
        self.stores: list[SpoolStore] = []
        self._own: SpoolStore | None = None
        self._held: dict[LineKey, Held] = {}
        self._size = 0  # of all of it
        self._lanes: dict[LineKey, tuple[SpoolLane, asyncio.Task[None]]] = {}
        self._refused = self._damaged = self._known_damages = 0
        # What the disk has room for, if it has been seen, and why it takes nothing.
        self._room: int | None = None
        self._trouble: str | None = None
        self._looked_at = -inf
        self._is_quick = False  # the disk, when it was written to the last time
        # What calls have brought that the disk has not answered for, the oldest first, and since when.
        self._unanswered: dict[_Entry, float] = {}
        self._start: tuple[Replay, Timers] | None = None
        self.on_stay: OnStay | None = None
        self._adoption: asyncio.Task[None] | None = None
        self._is_stopping = self._is_closed = False

    def holds(self, path: str) -> bool:
        """Whether messages of an entity wait here, as far as is known, that others may not overtake."""
        return self.is_adopting or LineKey.of(path) in self._held

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all waits here."""
        return not self._held and not self.is_adopting

    async def hold_up(self) -> None:
        """Rule 4: wait for that moment."""
        if self._adoption is not None and not self._adoption.done():
            await asyncio.wait({self._adoption}, timeout=_MOMENT)

    @property
    def silent_since(self) -> float:
        """When the oldest call came whose messages the disk has not answered for; inf if there is none."""
        return next(iter(self._unanswered.values()), inf)

    def status(self) -> SpoolStatus:
        """A picture of this moment."""
        found = sum(store.damages for store in self.stores)
        self._damaged += found - self._known_damages
        self._known_damages = found
        if (self._refused or self._damaged) and not self._is_closed:  # somebody may have dropped them
            self.thread.submit(self._count_aside)
        if self._trouble is not None and not self._is_closed:
            self.thread.submit(self._try_disk)
        failures = (lane.failure for lane, _ in self._lanes.values() if lane.failure is not None)
        return SpoolStatus(
            directory=str(self._directory),
            messages=sum(held.messages for held in self._held.values()),
            bytes=self._size,
            limit=self._limit if self._room is None else min(self._limit, self._size + self._room),
            refused=self._refused,
            damaged=self._damaged,
            last_failure=next(failures, None),
        )

    @property
    def warnings(self) -> list[str]:
        """What was spooled and has been taken away by somebody else, and why nothing more can be."""
        losses = [loss for store in self.stores for loss in store.losses]
        return losses if self._trouble is None else [*losses, self._describe_trouble(self._trouble)]

    def _describe_trouble(self, why: object) -> str:
        return (
            f"The spool in {self._directory} cannot be written to: {why}. Make room, or mend the directory."
        )

    async def append(
        self,
        path: str,
        messages: Sequence[Message],
        *,
        scheduled_for: datetime | None = None,
        stays: bool = False,
        at: float = inf,
    ) -> None:
        """Keep the messages of one call, which comes `at` this time; they are on the disk when this returns.
        `stays`: a session of them is to stay on the backlog, also for the next process.
        """
        entry = _Entry.of(path, messages, scheduled_for=scheduled_for, stays=stays)
        if self._size + entry.held.size > self._limit:
            raise SpoolFullError(str(self._directory), held=self._size, limit=self._limit)
        self._unanswered[entry] = at
        await self._keep(entry)

    def nudge(self) -> None:
        """Something has changed: try again at once."""
        for lane, _ in self._lanes.values():
            lane.nudge()

    async def _keep(self, entry: _Entry) -> None:
        if self._is_closed:  # nobody would look after the file
            raise SpoolError(f"The spool in {self._directory} has been closed.")
        self._count(entry.key, entry.held)  # first, so that calls side by side do not overfill it
        error: BaseException | None = None
        try:
            await self._commit.append((entry,))
        except Exception as raised:  # noqa: BLE001 - it is told below, as one of the spool's
            error = raised
        error = error or entry.error
        if isinstance(error, PairbusError):
            raise error
        if error is not None:
            raise SpoolError(self._describe_trouble(error)) from error

    def _end_entries(self, entries: list[_Entry], error: BaseException | None) -> None:
        """Also what its caller gives up is counted as long as it is on the disk, and no longer."""
        kept: dict[LineKey, None] = {}
        for entry in entries:
            self._unanswered.pop(entry, None)
            if error is not None or entry.error is not None:
                self.release(entry.key, entry.held)
            else:
                kept[entry.key] = None
        for key in kept:
            self._begin_lane(key, at_once=False)

    def _count(self, key: LineKey, held: Held) -> None:
        before = self._held.get(key, _NOTHING)
        self._held[key] = Held(before.messages + held.messages, before.size + held.size)
        self._size += held.size

    # -- lanes

    @property
    def is_adopting(self) -> bool:
        """Whether it is not known yet what earlier processes have left."""
        return self._adoption is not None and not self._adoption.done()

    def start(self, replay: Replay, *, timers: Timers, on_stay: OnStay | None = None) -> None:
        """Begin to send what is here, and what processes left that are gone. `on_stay` is told of messages
        whose session is to stay on the backlog, before they are sent.
        """
        self.on_stay = on_stay
        self._start = replay, timers
        self._adoption = asyncio.get_running_loop().create_task(self._adopt())

    async def close(self, grace: float = 0.0) -> None:
        """Stop; what is here stays. Calls that are under way have so many seconds to end, or they are made
        again by whoever comes next. The stores are let go, also if whoever closes is cancelled.
        """
        self._is_stopping = True
        for lane, _ in self._lanes.values():
            lane.stop()
        try:
            await take_each(partial(self._end_tasks, grace), self._save_lanes, self._let_go)
        finally:
            self.thread.rest()

    async def _end_tasks(self, grace: float) -> None:
        tasks = {task for _, task in self._lanes.values()}
        if self._adoption is not None:
            tasks.add(self._adoption)
        if not tasks:
            return
        try:
            if grace:
                await asyncio.wait(tasks, timeout=grace)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _save_lanes(self) -> None:
        self._is_closed = True
        saved = asyncio.gather(*(lane.save() for lane, _ in self._lanes.values()))
        await end_on_disk(saved, what="the spool")

    async def _let_go(self) -> None:
        try:
            await end_on_disk(self.thread.run(self._close_stores), what="the spool")
        finally:
            self._sync.leave_loop()

    async def _adopt(self) -> None:
        try:
            found = await self.thread.run(self._adopt_stores)
        except Exception:
            log.exception("what earlier processes spooled cannot be read")
            found = []
        for key, held in found:
            self._count(key, held)
        for key in [*self._held]:
            self._begin_lane(key, at_once=True)

    def _begin_lane(self, key: LineKey, *, at_once: bool) -> None:
        is_known = not self.is_adopting or self._adoption is asyncio.current_task()
        if self._start is None or not is_known or self._is_stopping or key in self._lanes:
            return
        replay, timers = self._start
        lane = SpoolLane(key, self, replay, timers=timers)
        task = asyncio.get_running_loop().create_task(lane.run(at_once=at_once))
        self._lanes[key] = lane, task
        task.add_done_callback(lambda task: self._end_lane(key, task))

    def _end_lane(self, key: LineKey, task: asyncio.Task[None]) -> None:
        if self._is_stopping or task.cancelled():
            return  # how far it has come is still to be saved
        del self._lanes[key]
        if (error := task.exception()) is not None:
            log.error("a lane of the spool has ended", exc_info=error)
        if self.is_held(key):  # has come since
            self._begin_lane(key, at_once=False)

    # -- what lanes ask for

    def is_held(self, key: LineKey) -> bool:
        """Whether there is anything of a line."""
        return key in self._held

    def release(self, key: LineKey, held: Held) -> None:
        """So much of a line is not held any more."""
        before = self._held[key]
        left = Held(before.messages - held.messages, before.size - held.size)
        self._size -= held.size
        if left == _NOTHING:
            del self._held[key]
        else:
            self._held[key] = left

    async def refuse(self, name: str, spooled: SpooledMessage, reason: str) -> None:
        """Rule 6."""
        assert spooled.message is not None
        file = await self.thread.run(self._keep_refused, name, spooled, spooled.message, reason)
        told = message_id_of(spooled.message)
        log.error("%s was refused for %s and is kept in %s: %s", told, spooled.path, file, reason)

    async def postpone(self, spooled: SpooledMessage) -> None:
        """Keep a message that waits for the primary, in a line of its own."""
        assert spooled.message is not None
        log.warning("%s for %s waits for the primary", message_id_of(spooled.message), spooled.path)
        about = {"scheduled_for": spooled.when, "stays": spooled.stays}
        await self._keep(_Entry.of(spooled.path, [spooled.message], is_late=True, **about))

    def _begin(self, entries: list[_Entry], ended: Ended) -> bool:
        """Write these here, where they are of one line and a file has room for them on the disk, and have the
        kernel sync them. A disk that hangs does so in a sync first, and is not quick then. A file system that
        is frozen keeps the write itself: docs/promises.md says so.
        """
        key, began = entries[0].key, self._clock.monotonic()
        is_due = began - self._looked_at > _LOOK_EVERY
        if self._own is None or not self._is_quick or is_due or any(entry.key != key for entry in entries):
            return False

        def end(is_kept: bool) -> None:
            self._is_quick = self._clock.monotonic() - began < _QUICK
            if is_kept:
                self._note_written(len(data))
            ended(is_kept)

        data = b"".join([entry.data for entry in entries])
        messages = sum([entry.held.messages for entry in entries])
        return self._own.begin_to_keep(key, data, messages, self._sync, end)

    def _note_written(self, size: int) -> None:
        self._room = None if self._room is None else max(self._room - size, 0)

    # -- on the thread

    def _write(self, entries: list[_Entry]) -> None:
        """Write these with one sync a file. A file that cannot be written fails its own entries alone."""
        began = self._clock.monotonic()
        lines: dict[LineKey, list[_Entry]] = {}
        for entry in entries:
            lines.setdefault(entry.key, []).append(entry)
        trouble: Exception | None = None
        for key, mine in lines.items():
            try:
                data = b"".join([entry.data for entry in mine])
                self._keep_data(key, data, sum([entry.held.messages for entry in mine]))
                self._note_written(len(data))
            except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                trouble = error
                for entry in mine:
                    entry.error = error
        ended = self._clock.monotonic()
        self._is_quick = trouble is None and ended - began < _QUICK
        is_old = ended - self._looked_at > _LOOK_EVERY
        if is_old or (trouble, self._trouble) != (None, None):
            self._look_at_disk(trouble)

    def _look_at_disk(self, trouble: Exception | None) -> None:
        self._looked_at = self._clock.monotonic()
        self._trouble, self._room = (None, None) if trouble is None else (str(trouble), 0)
        if trouble is None:
            with suppress(OSError):  # whoever writes next is told
                self._room = shutil.disk_usage(self._directory).free

    def _try_disk(self) -> None:
        try:
            try_directory(self._directory, 1)
        except OSError as error:
            self._look_at_disk(error)
        else:
            self._look_at_disk(None)

    def _keep_data(self, key: LineKey, data: bytes, messages: int) -> None:
        if self._own is not None:
            try:
                self._own.keep(key, data, messages)
                return
            except (FileNotFoundError, NotADirectoryError):
                if self._own.is_there:
                    raise
        self._own = SpoolStore.create(self._directory)
        self.stores.append(self._own)
        self._own.keep(key, data, messages)

    def _adopt_stores(self) -> list[tuple[LineKey, Held]]:
        found = adopt_stores(self._directory)
        self.stores[:0] = found  # here, so that they are let go though nobody waits any more
        self._count_aside()
        return [line for store in found for line in store.lines().items()]

    def _keep_refused(self, name: str, spooled: SpooledMessage, message: Message, reason: str) -> Path:
        is_again = is_refused(self._directory, name)
        file = keep_refused(
            self._directory,
            name,
            path=spooled.path,
            message=message,
            when=spooled.when,
            reason=reason,
            at=self._clock.now(),
        )
        # Here, where they are counted. One that was there already, after a crash or a failed sync, may have
        # been counted or not.
        self._refused = count_refused(self._directory) if is_again else self._refused + 1
        return file

    def _count_aside(self) -> None:
        self._known_damages = sum(store.damages for store in self.stores)
        try:
            self._refused, self._damaged = count_refused(self._directory), count_damaged(self._directory)
        except OSError as error:  # which keeps nobody from sending
            log.warning("cannot count what the spool keeps: %s", error)

    def _close_stores(self) -> None:
        stores = self.stores.copy()
        self.stores.clear()
        call_each([*(store.close for store in reversed(stores)), self._sync.end])

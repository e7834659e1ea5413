"""The local spool: where messages wait while both sides are down.

Theory of operation
-------------------

1. A call whose messages neither side takes has them written here, and returns when they are on the disk. The
   messages of one call are one record: all of them are kept, or none.
2. The spool is bounded. What does not fit any more is refused with `SpoolFullError`, and nothing of it kept.
3. Records are sent again in the background, per entity in their order, by whatever route is open then. One
   entity that takes nothing does not hold up the others. It is tried again after a pause, which grows, and at
   once when something has changed.
4. While an entity has records here, what comes for its backlog queues up behind them.
5. What is here survives the process; the next client with the same state directory sends it.
6. A record that is refused for its own sake (too large, say) is put aside and named in the log, so that those
   behind it go on. Everything else is kept until it is sent.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from azure.core.exceptions import AzureError

from pairbus.client.errors import SpoolError, SpoolFullError
from pairbus.client.state.packing import pack, unpack
from pairbus.client.state.spool_store import SpoolStore, adopt_stores
from pairbus.client.status import SpoolStatus
from pairbus.errors import PairbusError
from pairbus.pairing.names import path_key
from pairbus.plumbing.files import make_directory
from pairbus.plumbing.group_commit import GroupCommit
from pairbus.plumbing.serial_thread import SerialThread
from pairbus.timers import Timers

from .message import Message, message_id_of

log = logging.getLogger(__name__)
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
# So many records are sent before it is noted that they were; as many may be sent again after a crash.
_AT_A_TIME = 50

Replay = Callable[[str, list[Message], datetime | None], Awaitable[None]]


class UnsendableRecord(PairbusError):
    """What replaying raises for a record that can never be sent."""


class _Record(NamedTuple):
    """A record as it lies on the disk: whose it is and how many messages, then the messages."""

    path: str
    messages: int
    packed: bytes

    def to_bytes(self) -> bytes:
        path = self.path.encode()
        return _HEAD.pack(len(path), self.messages) + path + self.packed

    @classmethod
    def from_bytes(cls, data: bytes) -> _Record:
        length, messages = _HEAD.unpack_from(data)
        start = _HEAD.size + length
        return cls(data[_HEAD.size : start].decode(), messages, data[start:])


_HEAD = struct.Struct(">HI")


@dataclass(slots=True)
class _Entry:
    """A record on its way to the disk; `error` is why it did not get there."""

    path: str
    messages: int
    record: bytes
    error: Exception | None = None

    @property
    def key(self) -> str:
        return path_key(self.path)


class Spool:
    """The spool of one client."""

    def __init__(self, directory: Path, *, limit: int) -> None:
        """Does no I/O."""
        self._directory = directory
        self._limit = limit
        self._thread = SerialThread("pairbus-spool")
        self._commit = GroupCommit(self._write, thread=self._thread)
        # Those of processes that are gone, the oldest first, then our own.
        self._stores: list[SpoolStore] = []
        self._own: SpoolStore | None = None
        self._size = 0
        self._held: Counter[str] = Counter()
        self._last_failure: str | None = None
        self._pause = _FIRST_PAUSE
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def holds(self, path: str) -> bool:
        """Whether messages of an entity wait here."""
        return self._held[path_key(path)] > 0

    @property
    def has_room(self) -> bool:
        """Whether it is below its limit."""
        return self._size < self._limit

    def status(self) -> SpoolStatus:
        """A picture of this moment."""
        return SpoolStatus(
            directory=str(self._directory),
            messages=self._held.total(),
            bytes=self._size,
            limit=self._limit,
            last_failure=self._last_failure,
        )

    async def append(
        self, path: str, messages: Sequence[Message], *, scheduled_for: datetime | None = None
    ) -> None:
        """Keep the messages of one call; they are on the disk when this returns."""
        record = _Record(path, len(messages), pack(messages, scheduled_for=scheduled_for)).to_bytes()
        if self._size + len(record) > self._limit:
            raise SpoolFullError(str(self._directory), held=self._size, limit=self._limit)
        self._count(path, len(messages), len(record))  # first, so that calls side by side do not overfill it
        # Shielded: also what its caller gives up is counted as long as it is on the disk, and no longer.
        await asyncio.shield(self._keep(_Entry(path, len(messages), record)))

    async def _keep(self, entry: _Entry) -> None:
        try:
            if self._is_closed:  # nobody would look after the file
                raise SpoolError(f"The spool in {self._directory} has been closed.")
            await self._commit.append([entry])
            if entry.error is not None:
                raise entry.error
        except BaseException as error:
            self._count(entry.path, -entry.messages, -len(entry.record))
            if isinstance(error, PairbusError) or not isinstance(error, Exception):
                raise
            raise SpoolError(f"The spool in {self._directory} could not take the message: {error}") from error

    def nudge(self) -> None:
        """Something has changed: try again at once."""
        self._pause = _FIRST_PAUSE
        self._wanted.set()

    def _count(self, path: str, messages: int, size: int) -> None:
        self._held[path_key(path)] += messages
        self._size += size

    # -- sending again

    def start(self, replay: Replay, *, timers: Timers) -> None:
        """Begin to send what is here, and what processes left that are gone."""
        self._task = asyncio.get_running_loop().create_task(self._keep_replaying(replay, timers))

    async def close(self) -> None:
        """Stop; what is here stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._is_closed = True
        await self._thread.run(self._close_stores)
        self._thread.rest()

    async def _keep_replaying(self, replay: Replay, timers: Timers) -> None:
        await self._adopt()
        while True:
            self._wanted.clear()
            await self._replay_all(replay)
            timer = timers.call_at(timers.now() + self._pause, self._wanted.set)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            try:
                await self._wanted.wait()
            finally:
                timer.cancel()

    async def _replay_all(self, replay: Replay) -> None:
        blocked: set[str] = set()
        for store in list(self._stores):
            for key in store.paths():
                try:
                    is_done = key not in blocked and await self._replay_path(store, key, replay)
                except Exception:  # rule 3, whatever it is
                    log.exception("the spool could not be sent")
                    is_done = False
                if not is_done:
                    blocked.add(key)  # for the next store too, whose records are younger

    async def _replay_path(self, store: SpoolStore, key: str, replay: Replay) -> bool:
        """Send all that a store has for an entity; False if something is left."""
        while records := await self._thread.run(store.read, key):
            for start in range(0, len(records), _AT_A_TIME):
                some = records[start : start + _AT_A_TIME]
                done = 0
                try:
                    for record in some:
                        if not await self._replay_one(store, record, replay):
                            return False
                        done += 1
                finally:
                    await self._forget(store, key, some[:done])
        return True

    async def _replay_one(self, store: SpoolStore, data: bytes, replay: Replay) -> bool:
        """Send a record; False if that has to wait."""
        record = _Record.from_bytes(data)
        messages, about = unpack(record.packed)
        try:
            await replay(record.path, messages, about["scheduled_for"])
        except UnsendableRecord as error:
            place = await self._thread.run(store.reject, data)
            ids = ", ".join(map(message_id_of, messages))
            log.error("messages that can never be sent were put aside in %s: %s (%s)", place, ids, error)
        except (PairbusError, AzureError, OSError) as error:
            if self._last_failure != str(error):
                log.info("the spool waits: %s", error)
            self._last_failure = str(error)
            return False
        self._last_failure = None
        return True

    async def _forget(self, store: SpoolStore, key: str, records: list[bytes]) -> None:
        if records:
            await self._thread.run(store.forget, key, records)
            for data in records:
                record = _Record.from_bytes(data)
                self._count(record.path, -record.messages, -len(data))

    # -- on the thread

    def _write(self, entries: list[_Entry]) -> None:
        """Write these with one fsync a file. A file that cannot be written fails its own entries alone."""
        for key in dict.fromkeys(entry.key for entry in entries):
            mine = [entry for entry in entries if entry.key == key]
            try:
                self._own_store().append(key, [entry.record for entry in mine])
            except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
                for entry in mine:
                    entry.error = error

    def _own_store(self) -> SpoolStore:
        if self._own is None:
            make_directory(self._directory)
            self._own = SpoolStore.create(self._directory)
            self._stores.append(self._own)
        return self._own

    async def _adopt(self) -> None:
        sizes: list[tuple[_Record, int]] = []

        def visit(found: list[bytes]) -> str:
            records = [(_Record.from_bytes(data)._replace(packed=b""), len(data)) for data in found]
            sizes.extend(records)
            return path_key(records[0][0].path)

        try:
            found = await self._thread.run(adopt_stores, self._directory, visit)
        except Exception:
            log.exception("what earlier processes spooled cannot be read")
            return
        for record, size in sizes:
            self._count(record.path, record.messages, size)
        self._stores[:0] = found

    def _close_stores(self) -> None:
        for store in self._stores:
            store.close()
        self._stores.clear()


def list_spooled(directory: Path) -> list[tuple[str, str]]:
    """Paths and ids of the messages that processes which are gone have left in a spool; it stays as it is."""
    found: list[tuple[str, str]] = []

    def visit(records: list[bytes]) -> str:
        path = ""
        for path, _, packed in map(_Record.from_bytes, records):
            found.extend((path, message_id_of(message)) for message in unpack(packed)[0])
        return path_key(path)

    for store in adopt_stores(directory, visit):
        store.close()
    return found

"""The local spool: where messages wait while both sides are down.

Theory of operation
-------------------

1. A call whose messages neither side takes has them written here, and returns when they are on the disk. The
   messages of one call are one record: all of them are kept, or none.
2. The spool is bounded. What does not fit any more is refused with `SpoolFullError`, and nothing of it kept.
3. Records are sent again in the background, per entity in their order, by whatever route is open then. One
   entity that takes nothing does not hold up the others. It is tried after each pause, which grows, and at once
   when something has changed.
4. While an entity has records here, what comes for its backlog queues up behind them.
5. What is here survives the process; the next client with the same state directory sends it.
6. A record that is refused for its own sake (too large, say) is put aside and named in the log, so that those
   behind it go on. Everything else is kept until it is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from ..errors import PairbusError
from ..pairing.names import path_key
from .errors import SpoolError, SpoolFullError
from .message import Message, message_id_of
from .packing import pack, unpack
from .spool_store import SpoolStore, adopt_stores
from .status import SpoolStatus
from .timers import TimerHandle, Timers

__all__ = ["Rejected", "Replay", "Spool"]

log = logging.getLogger("pairbus.client")
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
# So many records are sent before it is noted that they were; as many may be sent again after a crash.
_AT_A_TIME = 50

Replay = Callable[[str, list[Message], datetime | None], Awaitable[None]]
T = TypeVar("T")


class Rejected(PairbusError):
    """What replaying raises for a record that can never be sent."""


class Spool:
    """The spool of one client."""

    def __init__(self, directory: Path, *, limit: int) -> None:
        """Does no I/O."""
        self._directory = directory
        self._limit = limit
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pairbus-spool")
        self._stores: list[SpoolStore] = []
        self._own: SpoolStore | None = None
        self._size = 0
        self._held: Counter[str] = Counter()
        self._last_failure: str | None = None
        self._pause = _FIRST_PAUSE
        self._wanted = asyncio.Event()
        self._timer: TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def holds(self, path: str) -> bool:
        """Whether messages of an entity wait here."""
        return self._held[path_key(path)] > 0

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
        record = pack(messages, path=path, scheduled_for=scheduled_for)
        if self._size + len(record) > self._limit:
            raise SpoolFullError(str(self._directory), held=self._size, limit=self._limit)
        key = path_key(path)
        self._size += len(record)  # at once, so that calls side by side do not fill it twice
        self._held[key] += len(messages)
        try:
            await self._on_thread(lambda: self._store().append(key, [record]))
        except OSError as error:
            self._size -= len(record)
            self._held[key] -= len(messages)
            raise SpoolError(f"The spool in {self._directory} could not take the message: {error}") from error
        if self._timer is None:
            self._pause = _FIRST_PAUSE

    def nudge(self) -> None:
        """Something has changed: try again at once."""
        self._pause = _FIRST_PAUSE
        self._wanted.set()

    # ------------------------------------------------------------- sending again

    def start(self, replay: Replay, *, timers: Timers) -> None:
        """Begin to send what is here, and what processes left that are gone."""
        self._task = asyncio.get_running_loop().create_task(self._keep_replaying(replay, timers))

    async def close(self) -> None:
        """Stop; what is here stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._timer is not None:
            self._timer.cancel()
        await self._on_thread(self._close_stores)
        self._thread.shutdown(wait=False)

    async def _keep_replaying(self, replay: Replay, timers: Timers) -> None:
        await self._adopt()
        while True:
            self._wanted.clear()
            await self._replay_all(replay)
            self._timer = timers.call_at(timers.now() + self._pause, self._wanted.set)
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            await self._wanted.wait()
            self._timer.cancel()

    async def _replay_all(self, replay: Replay) -> None:
        blocked: set[str] = set()
        for store in list(self._stores):
            for key in store.paths():
                if key not in blocked and not await self._replay_path(store, key, replay):
                    blocked.add(key)  # also for later stores, whose records are younger

    async def _replay_path(self, store: SpoolStore, key: str, replay: Replay) -> bool:
        """Send all that a store has for an entity; False if something is left."""
        while records := await self._on_thread(lambda: store.read(key)):
            for start in range(0, len(records), _AT_A_TIME):
                some = records[start : start + _AT_A_TIME]
                sent = await self._replay_some(store, some, replay)
                await self._forget(store, key, some[:sent])
                if sent < len(some):
                    return False
        return True

    async def _replay_some(self, store: SpoolStore, records: list[bytes], replay: Replay) -> int:
        """Send records in their order; how many are done with."""
        for index, record in enumerate(records):
            messages, about = unpack(record)
            try:
                await replay(about["path"], messages, about["scheduled_for"])
            except Rejected as error:
                path = await self._on_thread(lambda record=record: store.reject(record))  # type: ignore[misc]
                ids = ", ".join(map(message_id_of, messages))
                log.error("messages that can never be sent were put aside in %s: %s (%s)", path, ids, error)
            except Exception as error:
                self._last_failure = str(error)
                log.info("the spool waits: %s", error)
                return index
        self._last_failure = None
        return len(records)

    async def _forget(self, store: SpoolStore, key: str, records: list[bytes]) -> None:
        if not records:
            return
        await self._on_thread(lambda: store.forget(key, records))
        self._size -= sum(map(len, records))
        self._held[key] -= sum(len(unpack(record)[0]) for record in records)

    # ------------------------------------------------------------- on the thread

    async def _on_thread(self, act: Callable[[], T]) -> T:
        # Shielded: the files must not be left half-way because a caller was cancelled.
        work = asyncio.get_running_loop().run_in_executor(self._thread, act)
        return await asyncio.shield(work)

    def _store(self) -> SpoolStore:
        if self._own is None:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._own = SpoolStore.create(self._directory)
            self._stores.append(self._own)
        return self._own

    async def _adopt(self) -> None:
        found = await self._on_thread(lambda: adopt_stores(self._directory, _path_of))
        for store in found:
            for key in store.paths():
                self._held[key] += 1
        self._stores[:0] = found

    def _close_stores(self) -> None:
        for store in self._stores:
            store.close()
        self._stores.clear()


def _path_of(record: bytes) -> str:
    return path_key(unpack(record)[1]["path"])

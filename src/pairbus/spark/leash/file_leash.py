"""The leash as files, for where executors cannot reach the driver: all of them share the records.

1. The leash is a hidden directory below the records, or objects with such names in a store; where pairs have
   records of their own, below those of the first, and the others have an empty one of that name. The driver
   writes one file there, the *order*: run, pause or stop, the queues that the planner deals out, and the
   pumps that it has seen with the time that each has left and its part of the job's limits. It writes it anew
   with every beat, with a number that grows; `documents` says how often that is.
2. A pump writes one file of its own: who it is, what it has counted, what went wrong, and at its end what it
   has done. It begins when the order names it. That also proves that both mean the same directory.
3. Files appear by rename, so that whoever reads one reads all of it. Nobody compares clocks of two machines:
   whoever sees the number of the other unchanged for `STALE` seconds takes the other for dead.
4. A pump that sees no heartbeat, or that the order names no more, takes its leash for cut. The files of pumps
   that have ended are removed by the driver, and the whole directory at the end. What a killed driver leaves
   is removed by a later one.
5. Commands to a running syphon come from the driver's own machine, by its socket as ever.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, TypeVar

from pairbus.plumbing.tasks import wait_at_most
from pairbus.portal import PortalClosed
from pairbus.stores.places import RecordPlace, write_uri

from .documents import (
    clear_leash,
    list_documents,
    pace_of,
    prepare_leash,
    read_document,
    remove_document,
    show_use,
    write_document,
)
from .epochs import Epochs
from .leash import ENDING, HeldPump, Leash, LeashDirectory, PumpNews

log = logging.getLogger(__name__)
T = TypeVar("T")

ORDER_FILE = "order.json"
PUMP_FILE = "pump-{mark}.json"
_PREFIX = ".leash-"
_NEWS = tuple(one.name for one in fields(PumpNews))


@dataclass(slots=True, eq=False)
class _Filed:
    """A pump that is held by its file."""

    held: HeldPump
    #: When its epoch ends; None if it has no end.
    ends: float | None
    beat: int
    seen_at: float
    faults: int = 0


class FileLeash(Leash):
    """Use it with `with`; its methods may be called from any thread."""

    def __init__(
        self,
        records: Sequence[RecordPlace],
        *,
        epochs: Epochs | None = None,
        on_row: Callable[[Mapping[str, Any]], None] = lambda row: None,
        stale: float | None = None,
    ) -> None:
        """`records` are the places that driver and executors share."""
        super().__init__(records, epochs=epochs, on_row=on_row)
        name = f"{_PREFIX}{secrets.token_hex(8)}"
        self._marks: list[RecordPlace] = [place / name for place in records]
        self.directory = self._marks[0]
        self._pace = pace_of(self.directory)
        self._stale = stale or self._pace.stale
        self._filed: dict[str, _Filed] = {}
        # Those that were taken for dead; they are not heard again.
        self._gone: set[str] = set()
        self._beat = 0
        self._pulled = asyncio.Event()
        self._is_closing = False
        self._has_complained = False
        self._looking = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None

    @property
    def place(self) -> LeashDirectory:
        return LeashDirectory(write_uri(self.directory))

    @property
    def orphans(self) -> float:
        return self._stale + ENDING

    def _hear_out(self) -> None:
        if self._portal is not None:
            with suppress(PortalClosed):  # a place that does not answer now
                self._portal.run_within(self._stale, partial(self._try, self._look))

    # -- on the loop

    async def _open(self) -> None:
        await super()._open()
        await asyncio.to_thread(self._prepare)
        await self._write_order()
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _close(self) -> None:
        self._is_closing = True
        self._pulled.set()
        if self._watcher is not None:
            await self._watcher
        await super()._close()
        names = [ORDER_FILE, *(PUMP_FILE.format(mark=mark) for mark in (*self._filed, *self._gone))]
        for mark in self._marks:
            await asyncio.to_thread(clear_leash, mark, names if mark == self.directory else [])

    def _prepare(self) -> None:
        for mark in self._marks:
            prepare_leash(mark, _PREFIX)

    def _pass_on(self) -> None:
        super()._pass_on()
        self._pulled.set()

    async def _watch(self) -> None:
        pause, written = self._pace.quickest_look, time.monotonic()
        while not self._is_closing:
            has_news = await self._try(self._look) or self._pulled.is_set()
            self._pulled.clear()
            if has_news or time.monotonic() - written >= self._pace.beat:
                await self._try(self._write_order)
                written = time.monotonic()
            pause = self._pace.quickest_look if has_news else min(self._pace.slowest_look, pause * 2)
            await wait_at_most(self._pulled, pause)

    async def _try(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do what is done again soon. Without the heartbeat all pumps would end, so that it goes on."""
        try:
            return await work()
        except OSError as error:  # a shared directory may be out of reach for a moment
            log.debug("the leash in %s cannot be reached: %s", self.directory, error)
        except Exception:
            if not self._has_complained:  # once, not every second
                log.exception("what pumps say cannot be heard")
            self._has_complained = True
        return None

    async def _look(self) -> bool:
        """Read what pumps say; whether any of them has come or gone."""
        async with self._looking:
            said = await asyncio.to_thread(self._read_pumps)
            now = time.monotonic()
            over = [mark for mark, document in said.items() if self._hear(mark, document, now)]
            over += [mark for mark, filed in self._filed.items() if now - filed.seen_at > self._stale]
            for mark in over:
                self._let_go(self._filed.pop(mark).held)
                self._gone.add(mark)
            # After those that have ended: how long an epoch lasts depends on what was done before it.
            come = [mark for mark in said if mark not in self._filed and mark not in self._gone]
            for mark in come:
                self._filed[mark] = self._accept(said[mark], now)
            self._gone -= await asyncio.to_thread(self._remove, self._gone)
            return bool(over or come)

    def _accept(self, document: Mapping[str, Any], now: float) -> _Filed:
        held = self._take_hold(document)
        ends = now + self._left(held) if document["timed"] else None
        return _Filed(held, ends, document["beat"], now)

    def _hear(self, mark: str, document: Mapping[str, Any], now: float) -> bool:
        """Take in what a pump says, if it is new; whether it was the last."""
        filed = self._filed.get(mark)
        if filed is None or filed.beat == document["beat"]:
            return False
        filed.beat, filed.seen_at = document["beat"], now
        for fault in document["faults"][filed.faults :]:
            self._listen(filed.held, {"fault": fault, "is_final": document.get("is_final")})
        filed.faults = len(document["faults"])
        said = (*_NEWS, "row")
        self._listen(filed.held, {name: document[name] for name in said if name in document})
        return bool(document["is_over"])

    async def _write_order(self) -> None:
        self._beat += 1
        now = time.monotonic()
        document = {
            "beat": self._beat,
            "order": self._for_pumps,
            "queues": self.queues,
            "held": {
                mark: None if filed.ends is None else max(0.0, filed.ends - now)
                for mark, filed in self._filed.items()
            },
            "shares": {mark: self._shares.part(filed.held) for mark, filed in self._filed.items()},
        }
        await asyncio.to_thread(self._publish, document)

    # -- on other threads

    def _publish(self, order: Mapping[str, Any]) -> None:
        write_document(self.directory / ORDER_FILE, order)
        for mark in self._marks:
            show_use(mark)

    def _read_pumps(self) -> dict[str, dict[str, Any]]:
        begin, end = PUMP_FILE.split("{mark}")
        found = {}
        for name in list_documents(self.directory, begin, end):
            document = read_document(self.directory / name)
            if document is not None:
                found[name.removeprefix(begin).removesuffix(end)] = document
        return found

    def _remove(self, marks: set[str]) -> set[str]:
        """Remove the files of pumps that have gone; those whose file was there no more."""
        return {
            mark for mark in set(marks) if not remove_document(self.directory / PUMP_FILE.format(mark=mark))
        }

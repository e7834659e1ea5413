"""The other ends of a leash of files: a pump's and the planner's."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pairbus.backlog.served_queue import ServedQueue
from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.plumbing.tasks import wait_at_most
from pairbus.stores.places import RecordPlace, name_of, parse_place

from .documents import is_marked, pace_of, read_document, remove_document, write_document
from .file_leash import ORDER_FILE, PUMP_FILE
from .leash import LeashDirectory, PumpNews, PumpSeen, not_shared
from .tether import Tether

_LOOK = 0.5
_FIRST_LOOK = 0.05
# A shared directory may show what is new in it a little late.
_APPEARS = 2.0


class _OrderFile:
    """The driver's file, and whether its heart still beats."""

    def __init__(self, directory: RecordPlace, *, stale: float) -> None:
        self._directory = directory
        self._stale = stale
        self._beat: int | None = None
        self._beaten_at = time.monotonic()

    def read(self) -> dict[str, Any] | None:
        """What it says; None if it cannot be read now."""
        found = read_document(self._directory / ORDER_FILE)
        if found is not None and found["beat"] != self._beat:
            self._beat, self._beaten_at = found["beat"], time.monotonic()
        return found

    def is_dead(self) -> bool:
        """Whether the driver has gone, as far as can be seen from here."""
        return time.monotonic() - self._beaten_at > self._stale or not is_marked(self._directory)


class FileTether(Tether):
    """Holds on by a file of its own."""

    def __init__(self, place: LeashDirectory, document: Mapping[str, Any], *, stale: float | None) -> None:
        super().__init__()
        self._directory = parse_place(place.directory)
        self._pace = pace_of(self._directory)
        self._mark = secrets.token_hex(8)
        self._path = self._directory / PUMP_FILE.format(mark=self._mark)
        self._stale = stale or self._pace.stale
        self._orders = _OrderFile(self._directory, stale=self._stale)
        self._document = {**document, "beat": 0, "faults": [], "is_over": False}
        self._has_news = False
        self._closing = asyncio.Event()

    @classmethod
    async def connect(
        cls,
        place: LeashDirectory,
        records: Sequence[RecordPlace],
        *,
        pump: PumpSeen,
        timed: bool,
        stale: float | None = None,
    ) -> FileTether:
        """Show oneself, and wait until the driver has seen it."""
        tether = cls(place, {**pump._asdict(), "timed": timed}, stale=stale)
        await tether._find_order()
        for directory in records:
            mark = directory / name_of(tether._directory)
            if not await asyncio.to_thread(is_marked, mark):
                raise ConfigurationError(not_shared(directory, pump.host))
        try:
            await tether._write()
            await tether._await_welcome()
        except OSError as error:
            raise ConfigurationError(
                f"{pump.host} cannot write to {tether._directory} ({error.strerror or error}); give "
                "--records a place that driver and executors share and may write to"
            ) from None
        tether._start_listening()
        return tether

    async def _find_order(self) -> None:
        deadline, pause = time.monotonic() + max(_APPEARS, self._pace.slowest_look), _FIRST_LOOK
        while await asyncio.to_thread(self._orders.read) is None:
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"{self._directory} cannot be read on {socket.gethostname()}: either the driver is "
                    "gone, or this is not the same directory as there; give --records a path that all share"
                )
            await asyncio.sleep(pause)
            pause = min(_LOOK, pause * 2)

    async def _await_welcome(self) -> None:
        deadline, pause = time.monotonic() + self._stale, _FIRST_LOOK
        while True:
            order = await asyncio.to_thread(self._orders.read)
            if order is not None and self._mark in order["held"]:
                self.order, self.left = order["order"], order["held"][self._mark]
                self.share = order["shares"][self._mark]
                return
            if time.monotonic() > deadline:
                await asyncio.to_thread(remove_document, self._path)
                raise UnreachableError(f"the driver of the syphon does not answer in {self._directory}")
            await asyncio.sleep(pause)
            pause = min(_LOOK, pause * 2)

    async def _listen(self) -> None:
        written = time.monotonic()
        while not self.is_cut and not await wait_at_most(self._closing, self._pace.slowest_look):
            has_news = self._has_news and self._pace.is_quick
            if has_news or time.monotonic() - written >= self._pace.beat:
                written = time.monotonic()
                with suppress(OSError):  # it is written again; a driver that never sees it lets go of us
                    await self._write()
            order = await asyncio.to_thread(self._orders.read)
            if await asyncio.to_thread(self._orders.is_dead) or (order and self._mark not in order["held"]):
                self._cut()
            elif order is not None:
                self.share = order["shares"][self._mark]
                self._obey(order["order"])

    async def _write(self) -> None:
        self._has_news = False
        self._document["beat"] += 1
        await asyncio.to_thread(write_document, self._path, dict(self._document))

    def tell(self, news: PumpNews) -> None:
        self._document |= asdict(news)
        self._has_news = True

    def complain(self, fault: str, *, is_final: bool = False) -> None:
        self._document["faults"] = [*self._document["faults"], fault]
        self._document["is_final"] = is_final
        self._has_news = True

    def report(self, row: Mapping[str, Any]) -> None:
        self._document["row"] = dict(row)
        self._has_news = True

    async def close(self) -> None:
        self._closing.set()
        if self._listener is not None:
            await self._listener  # or what it writes might come after the last word
        self._document["is_over"] = True
        with suppress(OSError):  # the driver and its directory may have gone
            await self._write()


class FilePlannerTether:
    """The planner's end: it reads the order."""

    def __init__(self, place: LeashDirectory, *, stale: float | None = None) -> None:
        directory = parse_place(place.directory)
        self._orders = _OrderFile(directory, stale=stale or pace_of(directory).stale)

    def next_epoch(self) -> list[ServedQueue] | None:
        while (order := self._orders.read()) is None or self._orders.is_dead():
            if self._orders.is_dead():
                raise UnreachableError("the driver of the syphon gives no sign of life")
            time.sleep(_LOOK)
        if order["order"] == "stop":
            time.sleep(_FIRST_LOOK)  # Spark asks again at once, until the driver ends the query
            return None
        return [ServedQueue(pair, name) for pair, name in order["queues"]]

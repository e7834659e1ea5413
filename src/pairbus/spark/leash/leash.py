"""The leash: by it the driver holds every pump, wherever that runs. Here it is a socket of the driver.

Spark gives a running task no sign when its job is to end, and tells nothing about it before it has ended. So
each pump connects to the driver and keeps the connection.

1. Whoever connects says who it is in its first line, with the token of this leash; without that it hears
   nothing. Lines are JSON.
2. A *pump* names a file that it has just written into each place of records. It is let go on only if the
   driver finds those files: receipts that the driver cannot see would be lost. Then the driver tells it to
   run, to pause or to stop, and the pump tells its counts every second, how many of its queues have something
   to move and why it makes no headway, if so; and at its end what became of each path. The driver answers
   with the pump's part of the limits that are the job's (`shares`).
3. When a pump finds its leash cut, because the driver has died or cannot be reached, it ends cleanly: what it
   has in hand is settled or given back. Its task fails then, and Spark tries it again: if the driver is still
   there, the work goes on.
4. The *planner* of the query asks for each epoch whether there is one, and which queues are served.
5. A *control* asks for the state, or to pause, resume or stop; `pairbus syphon pause` is one.

Where executors cannot reach the driver, `file_leash` does the same by files.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

from pairbus.backlog.served_queue import ServedQueue
from pairbus.plumbing.json_text import parse_json
from pairbus.portal import Portal, PortalClosed
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store

from .epochs import Epochs
from .shares import Shares

log = logging.getLogger(__name__)
T = TypeVar("T")
Order = Literal["run", "pause", "stop"]
#: What a syphon does under an order, in a word.
ORDER_STATES = {"run": "running", "pause": "paused", "stop": "stopping"}
#: What pumps count.
COUNTS = ("moved", "dead_lettered", "waiting", "bytes", "unknown", "retries", "lost_locks")
# Far longer than a first line takes, so that nobody holds a connection by saying nothing.
_FIRST_LINE = 10.0
_DEADLINE = 10.0
# For the last steps of a thread whose loop has ended.
_ENDS = 1.0
# What was said is on its way; only a pump whose whole machine has died keeps its connection open.
_SETTLE = 5.0
#: A pump that is cut off gives back what it holds, which takes a moment.
ENDING = 5.0
# A line of counts is a few hundred bytes.
LINE_LIMIT = 1024 * 1024


class LeashAddress(NamedTuple):
    """Where the leash is, and the token that opens it."""

    host: str
    port: int
    token: str

    def __repr__(self) -> str:
        return f"<LeashAddress {self.host}:{self.port}>"


class LeashDirectory(NamedTuple):
    """The directory of a leash that is made of files."""

    directory: str


LeashPlace = LeashAddress | LeashDirectory


class PumpSeen(NamedTuple):
    """A pump on the leash."""

    shard: int
    epoch: int
    attempt: int
    host: str
    pid: int
    queues: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpNews:
    """What a pump tells every second: `active` queues have something to move; who rests holds nothing."""

    counts: Mapping[str, int]
    active: int = 0
    stall: str | None = None
    paths: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    is_resting: bool = False


class WaitingPath(NamedTuple):
    """What waits for a path that is down: how many, when the oldest was enqueued, and why."""

    waiting: int = 0
    oldest: float | None = None
    why: str | None = None

    def plus(self, other: WaitingPath) -> WaitingPath:
        """With what another pump says of the path."""
        known = [one for one in (self.oldest, other.oldest) if one is not None]
        return WaitingPath(self.waiting + other.waiting, min(known, default=None), self.why or other.why)


@dataclass(frozen=True, slots=True)
class Progress:
    """What all pumps together have counted; `trouble` is what driver and pumps cannot do."""

    counts: Mapping[str, int]
    pumps: int
    order: Order
    trouble: str | None = None
    resting: int = 0
    paths: Mapping[str, WaitingPath] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class HeldPump:
    """A pump, and what it has told. One that is held by files has no writer."""

    seen: PumpSeen
    writer: asyncio.StreamWriter | None = None
    counts: dict[str, int] = field(default_factory=dict)
    #: Why it makes no headway, if so.
    stall: str | None = None
    is_resting: bool = False
    has_reported: bool = False


def not_shared(place: RecordPlace, host: str) -> str:
    """Why a pump there is of no use."""
    if isinstance(place, StoreUri):
        return f"{host} and the driver do not see the same objects in {place}; give both the same endpoint"
    return (
        f"{place} is not the same directory on {host} as on the driver; give --records a path that all "
        "of them share, or the URI of an object store"
    )


async def read_line(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """One line of JSON; None at the end, or if it is none."""
    try:
        line = await reader.readline()
        found = parse_json(line) if line.endswith(b"\n") else None
    except (ValueError, OSError):  # too long, no JSON, cut
        return None
    return found if isinstance(found, dict) else None


def write_line(writer: asyncio.StreamWriter, value: Mapping[str, Any]) -> None:
    writer.write(json.dumps(value).encode() + b"\n")


class Leash:
    """Use it with `with`; its methods may be called from any thread."""

    def __init__(
        self,
        records: Sequence[RecordPlace],
        *,
        host: str = "127.0.0.1",
        epochs: Epochs | None = None,
        on_row: Callable[[Mapping[str, Any]], None] = lambda row: None,
    ) -> None:
        """`on_row` is called on a thread of the leash with the last words of each pump."""
        self.records = records
        self._host = host
        self._epochs = epochs or Epochs()
        #: The queues that the planner deals out.
        self.queues: Sequence[ServedQueue] = ()
        #: What the driver cannot do now, for whoever asks.
        self.trouble: str | None = None
        self._on_row = on_row
        self._token = secrets.token_urlsafe(24)
        self._portal: Portal | None = None
        self._server: asyncio.Server | None = None
        self._order: Order = "run"
        self._bar: str | None = None
        self._held: set[HeldPump] = set()
        self._past: dict[str, int] = dict.fromkeys(COUNTS, 0)
        self._waiting: dict[int, int] = {}
        self._shares: Shares[HeldPump] = Shares()
        self._faults: list[str] = []
        self._paths: dict[int, dict[str, WaitingPath]] = {}
        #: What else is told to whoever asks.
        self.facts: dict[str, Any] = {}
        #: Why no pump will ever work, if one has said so.
        self.final_fault: str | None = None
        #: Whether each pump has said what it did, when all have ended.
        self.is_whole = True

    @property
    def orphans(self) -> float:
        """For how many seconds pumps may outlive a driver that is killed."""
        return ENDING  # their connection ends with it

    # -- life

    def __enter__(self) -> Self:
        self._portal = Portal("pairbus-leash")
        try:
            self._portal.run_within(_DEADLINE + self.orphans, self._open)
        except BaseException:
            self._portal.close(timeout=_DEADLINE)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        portal = self._portal
        if portal is not None:
            try:
                portal.run_within(_DEADLINE + self.orphans, self._close)
            except PortalClosed as error:  # a later driver clears it; what the run has done is done
                log.warning("the leash could not be let go in time: %s", error)
            finally:
                portal.close(timeout=_DEADLINE)
                self._portal = None  # not before: whoever calls until then must not do so beside the loop

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, self._host, 0, limit=LINE_LIMIT)

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for held in self._held:
            if held.writer is not None:
                held.writer.close()

    @property
    def place(self) -> LeashPlace:
        """Where pumps and planner take hold."""
        return self.address

    @property
    def address(self) -> LeashAddress:
        """Where commands are taken."""
        assert self._server is not None, "the leash is not open"
        return LeashAddress(self._host, self._server.sockets[0].getsockname()[1], self._token)

    # -- the driver's hand

    def stop(self) -> None:
        """Let every pump end cleanly, and plan no further epoch."""
        self._call(lambda: self._give("stop"))

    def pause(self) -> None:
        """Let pumps give back what they hold, and wait."""
        self._call(lambda: self._give("pause"))

    def resume(self) -> None:
        """Let pumps go on."""
        self._call(lambda: self._give("run"))

    def bar(self, reason: str | None) -> None:
        """Let no pump work, whatever the order is, for this reason; None lets them. It waits for nothing:
        whoever keeps the leases calls it, and must come to renew them.
        """
        portal = self._portal
        if portal is None or not portal.post(lambda: self._set_bar(reason)):
            self._set_bar(reason)

    @property
    def order(self) -> Order:
        return self._order

    @property
    def faults(self) -> list[str]:
        """Why pumps could not work, as they said."""
        return list(self._faults)

    def pumps(self) -> list[PumpSeen]:
        return self._call(lambda: sorted(held.seen for held in self._held))

    def progress(self) -> Progress:
        """What was counted so far."""
        return self._call(self._progress)

    def settle(self) -> None:
        """Wait, after the job, until all that its pumps have said is heard, or as long as that may take."""
        self._hear_out()
        self.is_whole = self.is_whole and not self.progress().pumps

    def _hear_out(self) -> None:
        deadline = time.monotonic() + _SETTLE
        while self.progress().pumps and time.monotonic() < deadline:
            time.sleep(0.02)

    def _call(self, function: Callable[[], T]) -> T:
        portal = self._portal
        if portal is not None:
            try:
                return portal.call(function, timeout=_DEADLINE)
            except PortalClosed:
                if not portal.join(timeout=_ENDS):  # it stands still
                    raise
        return function()  # nobody else is there any more

    # -- on the loop

    def _progress(self) -> Progress:
        counts = {**self._past, "waiting": sum(self._waiting.values())}
        for held in self._held:
            for name, count in held.counts.items():
                counts[name] += count
        stalls = sorted({held.stall for held in self._held if held.stall})
        trouble = "; ".join(filter(None, [self._bar, self.trouble, *stalls])) or None
        resting = sum(held.is_resting for held in self._held)
        return Progress(counts, len(self._held), self._order, trouble, resting, self._waiting_paths())

    def _waiting_paths(self) -> dict[str, WaitingPath]:
        found: dict[str, WaitingPath] = {}
        for paths in self._paths.values():
            for path, one in paths.items():
                found[path] = found.get(path, WaitingPath()).plus(one)
        return found

    def _give(self, order: Order) -> None:
        if self._order == "stop":
            return  # there is no way back
        self._order = order
        self._pass_on()

    def _set_bar(self, reason: str | None) -> None:
        self._bar = reason
        self._pass_on()

    def _pass_on(self) -> None:
        """Tell pumps what they are to do."""
        order = self._for_pumps
        for held in self._held:
            held.is_resting = held.is_resting and order == "pause"
            if held.writer is not None:
                write_line(held.writer, {"order": order})

    @property
    def _for_pumps(self) -> Order:
        return "pause" if self._bar is not None and self._order == "run" else self._order

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):  # asyncio complains of handlers that were cancelled
            await self._converse(reader, writer)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_FIRST_LINE):
                hello = await read_line(reader)
        except TimeoutError:
            hello = None
        try:
            if hello is not None and hmac.compare_digest(
                str(hello.get("token")).encode(), self._token.encode()
            ):
                await self._welcome(hello, reader, writer)
        finally:
            writer.close()

    async def _welcome(
        self, hello: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        match hello.get("role"):
            case "pump":
                await self._hold(hello, reader, writer)
            case "planner":
                await self._advise(reader, writer)
            case "control":
                self._obey(hello, writer)
                await writer.drain()

    async def _hold(
        self, hello: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        trouble = await asyncio.get_running_loop().run_in_executor(None, self._check_proof, hello)
        if trouble is not None:
            self._faults.append(trouble)
            write_line(writer, {"refused": trouble})
            await writer.drain()
            return
        held = self._take_hold(hello, writer)
        try:
            left = self._left(held) if hello["timed"] else None
            write_line(writer, {"order": self._for_pumps, "left": left, "share": self._shares.part(held)})
            while (said := await read_line(reader)) is not None:
                self._listen(held, said)
        finally:
            self._let_go(held)

    def _take_hold(self, hello: Mapping[str, Any], writer: asyncio.StreamWriter | None = None) -> HeldPump:
        held = HeldPump(PumpSeen(*(hello[name] for name in PumpSeen._fields)), writer)
        held.is_resting = self._for_pumps == "pause"  # it begins with that
        self._held.add(held)
        self._shares.deal(held, active=0, queues=held.seen.queues)
        return held

    def _left(self, held: HeldPump) -> float:
        counts = self._progress().counts
        handled = counts["moved"] + counts["dead_lettered"]
        return self._epochs.left(held.seen.epoch, now=time.monotonic(), handled=handled)

    def _let_go(self, held: HeldPump) -> None:
        self._held.discard(held)
        self._shares.forget(held)
        self.is_whole = self.is_whole and held.has_reported
        for name, count in held.counts.items():
            self._past[name] += count

    def _listen(self, held: HeldPump, said: Mapping[str, Any]) -> None:
        if "fault" in said:
            self._faults.append(str(said["fault"]))
            if said.get("is_final") and self.final_fault is None:
                self.final_fault = str(said["fault"])
        if "counts" in said:
            counts = {name: int(said["counts"].get(name, 0)) for name in COUNTS}
            # Messages that wait are seen again by the next pump of the shard, all others are handled once.
            self._waiting[held.seen.shard] = counts.pop("waiting")
            held.counts = counts
            held.stall = said.get("stall")
            held.is_resting = bool(said.get("is_resting")) and self._for_pumps == "pause"
            self._paths[held.seen.shard] = {
                path: WaitingPath(**told) for path, told in said.get("paths", {}).items()
            }
            share = self._shares.deal(held, active=int(said.get("active", 0)), queues=held.seen.queues)
            if held.writer is not None:
                write_line(held.writer, {"share": share})
        if "row" in said:
            held.has_reported = True
            self._on_row(said["row"])

    def _check_proof(self, hello: dict[str, Any]) -> str | None:
        for place in self.records:
            store, proof = open_store(place), Path(str(hello.get("proof"))).name
            try:
                shared = store.read(proof) == str(hello.get("mark")).encode()
                store.delete(proof)
            except OSError:
                shared = False
            if not shared:
                return not_shared(place, str(hello.get("host")))
        return None

    async def _advise(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_line(reader) is not None:
            write_line(writer, {"queues": None if self._order == "stop" else self.queues})
            await writer.drain()

    def _obey(self, hello: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        asked = hello.get("order")
        if asked in ("run", "pause", "stop"):
            self._give(asked)
        progress = self._progress()
        paths = {path: one._asdict() for path, one in progress.paths.items()}
        write_line(writer, {**self.facts, **asdict(progress), "paths": paths})

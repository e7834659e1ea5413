"""Plays a plan of the spool alone: calls that are kept, paths that are down, messages that are refused or too
large for the backlog, disks that fail, and power cuts.

A history takes milliseconds, so that what is rare in those of the whole client is found here.
"""

import asyncio
import random
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from unittest import mock

from azure.servicebus import ServiceBusMessage

from pairbus.client.errors import SpoolError
from pairbus.client.sending.message import Message, message_id_of
from pairbus.client.sending.spool import Spool
from pairbus.client.sending.spool_lane import UnsendableRecord
from pairbus.client.state import spool_store
from pairbus.pairing.errors import MessageTooLargeForBacklog
from pairbus.timers import LoopTimers

from .client_history import memory, replaced
from .faults import Fault, FaultKind, Weather
from .forgetful_disk import ForgetfulDisk
from .history import SimulatedHistory
from .loop import EPOCH, Process, SimulatedClock, Stuck, current_process
from .pump_plan import Crash

__all__ = ["SpoolHistory", "draw_spool_plan", "play_spool"]

_PATHS = ("orders", "bills")
_HORIZON = 40.0
_GRACE = 200.0
# The parts of messages that are refused, and of those that are too large for the backlog.
_ODD = ((0.0, 0.0), (0.2, 0.0), (0.0, 0.2), (0.2, 0.2))
# How many moments the calls of a burst spread over, in seconds: some while those before are being written.
_BURST = 0.03
# What has been sent is noted within this time.
_NOTED = 0.5


@dataclass(frozen=True, slots=True)
class SpooledCall:
    """Messages of one call."""

    ids: tuple[str, ...]
    path: str
    at: float

    def __str__(self) -> str:
        return f"{self.at:8.3f}: {'+'.join(self.ids)} to {self.path}"


@dataclass(frozen=True, slots=True)
class SpoolPlan:
    """A whole history."""

    seed: int
    calls: tuple[SpooledCall, ...]
    faults: tuple[Fault, ...]
    crashes: tuple[Crash, ...]
    #: Ids of messages that are refused for their own sake, and of those that the primary alone takes.
    refused: frozenset[str]
    late: frozenset[str]
    file_bytes: int
    #: What the clock of each process is ahead: somebody sets it.
    clocks: tuple[float, ...]

    @property
    def healed_at(self) -> float:
        """From when on nothing goes wrong any more."""
        return max([_HORIZON, *(fault.end for fault in self.faults)])

    def lines(self) -> list[str]:
        """The plan for people."""
        about = [f"files of {self.file_bytes} bytes, refused: {self.refused or 0}, late: {self.late or 0}"]
        about.append(f"clocks of the processes: {', '.join(f'{ahead:+g} s' for ahead in self.clocks)}")
        return [*about, *map(str, self.faults), *map(str, self.crashes), *map(str, self.calls)]


def draw_spool_plan(seed: int) -> SpoolPlan:
    """The plan of a seed."""
    chance = random.Random(f"spool {seed}")
    calls = []
    times = _draw_times(seed)
    for number in range(chance.randint(3, 30)):
        ids = tuple(f"m{number:02}{letter}" for letter in "abc"[: chance.randint(1, 3)])
        at = round(chance.uniform(0, _HORIZON * 0.6), 3)
        calls.append(SpooledCall(ids, chance.choice(_PATHS), next(times, at)))
    faults = []
    for path in _PATHS * 2:
        begin = chance.uniform(0, _HORIZON * 0.7)
        kind: FaultKind = chance.choice(("refuse", "refuse", "lose-answer"))
        end = begin + chance.uniform(0.1, 20)
        faults.append(Fault(kind, path, round(begin, 3), round(end, 3), None, chance.choice((1.0, 0.5))))
    if chance.random() < 0.3:
        begin = chance.uniform(0, _HORIZON)
        disk: FaultKind = chance.choice(("disk-full", "disk-sync"))
        faults.append(Fault(disk, "disk", round(begin, 3), round(begin + 5, 3), None, 0.5))
    crashes = tuple(
        Crash(
            int(10 ** chance.uniform(1, 3.3)),
            1.0,
            is_clean=chance.random() < 0.2,
            is_power_cut=chance.random() < 0.7,
        )
        for _ in range(chance.choice((0, 1, 2, 3)))
    )
    names = [name for call in calls for name in call.ids]
    odd = [frozenset(name for name in names if chance.random() < part) for part in chance.choice(_ODD)]
    calls.sort(key=lambda call: call.at)
    file_bytes = chance.choice((1, 400, 1500, 1 << 22))
    clocks = tuple(chance.choice((0.0, 0.0, -3600.0, 3600.0)) for _ in range(len(crashes) + 1))
    late = odd[1] - odd[0]
    return SpoolPlan(seed, tuple(calls), tuple(faults), crashes, odd[0], late, file_bytes, clocks)


def _draw_times(seed: int) -> Iterator[float]:
    """When calls are made that come in bursts, as they do in half of the histories."""
    chance = random.Random(f"bursts of the spool {seed}")
    if chance.random() < 0.5:
        bursts = [chance.uniform(0, _HORIZON * 0.6) for _ in range(chance.randint(1, 3))]
        while True:
            yield round(chance.choice(bursts) + chance.uniform(0, _BURST), 4)


class SpoolHistory(SimulatedHistory):
    """One history: what was planned, and all that became of it."""

    def __init__(self, plan: SpoolPlan) -> None:
        super().__init__(plan.seed)
        self.plan = plan
        self.weather = Weather(plan.faults, plan.seed)
        self._state = Path(tempfile.mkdtemp(prefix="pairbus-simulation-", dir=memory()))
        self.disk = ForgetfulDisk(self._state, plan.seed)
        self._left = list(plan.calls)
        self._kept: list[str] = []
        #: What arrived where and when, in whose life, and whether that one has heard of it.
        self._arrived: list[tuple[str, str, float, Process | None, bool]] = []
        self._deaths: dict[Process, float] = {}
        self._ending = asyncio.Event()
        self._ahead = 0.0

    def play(self) -> None:
        """Play the plan to its end, and check what came of it."""
        try:
            file_bytes = mock.patch.object(spool_store, "_FILE_BYTES", self.plan.file_bytes)
            clock = mock.patch.object(spool_store, "time", mock.Mock(time_ns=self._time_ns))
            with file_bytes, replaced(cast(Any, self)), clock:
                self.loop.run(self._main(), limit=self.plan.healed_at + 20 * _GRACE)
        except Stuck as stuck:
            self.failures.append(f"stuck: {stuck}")
        finally:
            shutil.rmtree(self._state, ignore_errors=True)
        self.failures += self.loop.errors
        if not self.failures:
            self._check()

    def _time_ns(self) -> int:
        return int((EPOCH + self.loop.time() + self._ahead) * 1e9)

    async def _main(self) -> None:
        crashes, clocks = list(self.plan.crashes), list(self.plan.clocks)
        while True:
            self._ahead = clocks.pop(0) if clocks else 0.0
            process, crash = Process("application"), crashes.pop(0) if crashes else None
            self._ending = asyncio.Event()
            if crash is not None:
                process.ends_at = crash.step
                process.end = self._ending.set if crash.is_clean else process.kill
            dead: asyncio.Future[None] = self.loop.create_future()
            process.on_death.append(lambda dead=dead: dead.set_result(None))  # type: ignore[misc]
            running = self.loop.spawn(process, self._application())
            ends: set[asyncio.Future[Any]] = {running, dead}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not dead.done():
                if running.result():
                    return
                self.note("stopped")
                continue
            assert crash is not None
            self._deaths[process] = self.loop.time()
            self.note("killed")
            if crash.is_power_cut and memory() is not None:
                self.disk.cut_power()
            await asyncio.sleep(crash.pause)

    async def _application(self) -> bool:
        """Whether it has come to its end, and was not stopped before."""
        spool = Spool(self._state / "spool", limit=1 << 30, clock=SimulatedClock(self.loop))
        spool.start(self._take, timers=LoopTimers(self.loop))
        await spool.hold_up()
        working = asyncio.ensure_future(self._work(spool))
        ending = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        is_stopped = not working.done()
        ending.cancel()
        working.cancel()
        await asyncio.wait({working})
        await spool.close()
        if not is_stopped:
            working.result()
        return not is_stopped

    async def _work(self, spool: Spool) -> None:
        async with asyncio.TaskGroup() as calls:
            while self._left:
                call = self._left[0]
                await asyncio.sleep(max(0.0, call.at - self.loop.time()))
                self._left.remove(call)
                calls.create_task(self._make(spool, call))
        await asyncio.sleep(max(0.0, self.plan.healed_at - self.loop.time()))
        until = self.loop.time() + _GRACE
        while not spool.is_empty:
            if self.loop.time() > until:
                raise Stuck(f"nothing moves any more: {spool.status()}")
            await asyncio.sleep(1.0)
        status, refused = spool.status(), self.plan.refused
        if status.bytes or status.messages:
            self.failures.append(f"counters do not return to zero: {status}")
        if not len(refused.intersection(self._kept)) <= status.refused <= len(refused):
            self.failures.append(f"of {len(refused)} that are refused {status.refused} are kept")

    async def _make(self, spool: Spool, call: SpooledCall) -> None:
        messages = [ServiceBusMessage(name, message_id=name) for name in call.ids]
        try:
            await spool.append(call.path, messages)
        except SpoolError:
            self.note(f"{call.ids} are refused")
        else:
            self._kept += call.ids
            self.note(f"{call.ids} are kept")

    async def _take(self, path: str, messages: list[Message], when: datetime | None) -> None:
        await asyncio.sleep(0.005)
        now = self.loop.time()
        if self.weather.strikes(path, now, "refuse"):
            raise ConnectionError(path)
        names = [message_id_of(message) for message in messages]
        if not self.plan.refused.isdisjoint(names):
            raise UnsendableRecord("refused")
        if now < self.plan.healed_at and not self.plan.late.isdisjoint(names):
            raise MessageTooLargeForBacklog(path, message_id=names[0], size=2, limit=1)
        is_heard = self.weather.strikes(path, now, "lose-answer") is None
        for name in names:
            self._arrived.append((path, name, now, current_process(), is_heard))
            self.note(f"{name} arrives")
        if not is_heard:
            raise ConnectionError(path)

    def _check(self) -> None:
        arrived = Counter(name for _, name, *_ in self._arrived)
        sent = [name for name in self._kept if name not in self.plan.refused]
        self.failures += [f"lost: {name}" for name in sent if not arrived[name]]
        if all(fault.where != "disk" for fault in self.plan.faults):
            for number, (_, name, at, process, is_heard) in enumerate(self._arrived):
                died_at = None if process is None else self._deaths.get(process)
                is_noted = is_heard and (died_at is None or at < died_at - _NOTED)
                # Killed while it was moved to the line that waits for the primary, it is in both.
                is_moved = name in self.plan.late and bool(self._deaths)
                if (
                    is_noted
                    and not is_moved
                    and any(later[1] == name for later in self._arrived[number + 1 :])
                ):
                    self.failures.append(f"duplicated: {name}")
        lines: dict[str, list[str]] = defaultdict(list)
        for path, name, *_ in self._arrived:
            if name not in lines[path]:
                lines[path].append(name)
        for path, names in lines.items():
            kept = [name for name in names if name in self._kept and name not in self.plan.late]
            if kept != sorted(kept, key=self._kept.index):
                self.failures.append(f"out of order in {path}: {' '.join(kept)}")


def play_spool(plan: SpoolPlan) -> SpoolHistory:
    """Play a plan and check what came of it."""
    history = SpoolHistory(plan)
    history.play()
    return history

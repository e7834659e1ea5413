"""Plays a fleet: real paired clients that share their pings, through an outage of the primary.

What must hold, whatever their clocks say, whoever joins, leaves, is killed or stands still, in whichever
order the secondary wakes those who wait for word, and whatever goes wrong at the place where they meet:

1. When all is well again, all are back.
2. Where nothing else goes wrong, and where there is no place to meet at all, each is back not more than a
   second later than it might be without a fleet: one ping interval after its entity was well.
3. Where nothing else goes wrong, each is back two seconds after the first good ping of its entity, and what
   it takes to open a link.
4. Whoever leaves, is killed or stands still, the others are back two intervals and a second after their
   entity was well: who pinged is replaced.
5. Where nothing else goes wrong, an entity is pinged once an interval, and by each client that joins once at
   most; all that is billed besides is proportional to clients and entities, and not to the outage.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast
from unittest import mock

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage

from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.client import aio
from pairbus.client.fleet.line import FleetLine
from pairbus.client.observers.observer import Observer
from pairbus.client.pair import Pair
from pairbus.client.sender import PairedSender
from pairbus.client.sending import message
from pairbus.client.state.records import NoRecords
from pairbus.errors import PairbusError
from pairbus.options import EntityState, SendAvailabilityOptions, StateChange
from pairbus.pairing.names import lease_queue_name

from .faults import Fault, FaultKind, Weather
from .fleet_line import Meeting, SimulatedFleetLine
from .history import SimulatedHistory, create_queue, schedule_fault
from .loop import Process, SimulatedClock, Stuck, outside
from .namespace import SimulatedNamespace
from .pump_plan import PRIMARY, SECONDARY, backlog
from .side import SimulatedSide, connection_string

__all__ = ["FleetHistory", "FleetPlan", "Mishap", "draw_fleet_plan", "play_fleet"]

QUEUE = lease_queue_name(PRIMARY)
_OUTAGES: tuple[FaultKind, ...] = ("refuse", "silence", "error", "lose-answer", "break-answer")
_TROUBLES: tuple[FaultKind, ...] = (
    *_OUTAGES,
    "slow",
    "lose-request",
    "break-request",
    "busy",
    "full",
    "disabled",
    "token",
)
_MOMENTS: tuple[FaultKind, ...] = ("cut", "detach", "restart")
# What words take to travel, and pings to be answered.
_TRAVELS = 0.5
# What a fleet may add, and what telling all may take.
_LATER = 1.0
_TOLD_WITHIN = 2.0
# Rule 1, beyond the intervals: an answer that is slow, an old link that is given up.
_SLACK = 16.0


@dataclass(frozen=True, slots=True)
class Mishap:
    """A client is killed, or stands still for so long; or it leaves, as it should."""

    client: int
    at: float
    stands: float | None = None
    leaves: bool = False

    def __str__(self) -> str:
        what = "is killed" if self.stands is None else f"stands still for {self.stands:g} s"
        what = "leaves" if self.leaves else what
        return f"{self.at:8.3f}: client {self.client} {what}"


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """A whole history."""

    seed: int
    clients: int
    interval: float
    failover_interval: float
    good_pings: int
    skews: tuple[float, ...]
    outage: tuple[float, float]
    outage_kind: FaultKind
    faults: tuple[Fault, ...] = ()
    mishaps: tuple[Mishap, ...] = ()
    #: For each entity, how much longer than the others it is down.
    later: tuple[float, ...] = (0.0,)
    #: For each client, when it begins; those that are not named, at once.
    begins: tuple[float, ...] = ()
    #: Whether there is a place to meet.
    has_queue: bool = True
    #: What it takes to open a link to either namespace: by the SDK, half a second or more.
    opening: float = 0.0

    @property
    def is_lonely(self) -> bool:
        """Whether there is no place to meet, for all of the time."""
        always = [one for one in self.faults if one.begin <= 0 and one.end > self.well_at]
        return not self.has_queue or any(one.kind != "full" for one in always)

    @property
    def is_clean(self) -> bool:
        """Whether nothing else goes wrong."""
        return not self.mishaps and (self.is_lonely or not self.faults)

    @property
    def well_at(self) -> float:
        """From when on all entities are well."""
        return self.outage[1] + max(self.later)

    @property
    def healed_at(self) -> float:
        """From when on nothing goes wrong any more."""
        ends = [one.end for one in self.faults]
        stands = [one.at + one.stands for one in self.mishaps if one.stands is not None]
        return max(self.well_at, *ends, *stands, 0.0)

    def lines(self) -> list[str]:
        """The plan for people."""
        told = f"{self.clients} clients, pings every {self.interval:g} s, {self.good_pings} good ones"
        told += f", links open in {self.opening:g} s"
        outage = f"{self.outage[0]:8.3f} to {self.outage[1]:.3f}: {self.outage_kind} at {PRIMARY}"
        entities = f"{len(self.later)} entities, back later by {self.later}; clients begin at {self.begins}"
        place = [] if self.has_queue else ["no place to meet"]
        return [told, entities, *place, outage, *map(str, self.faults), *map(str, self.mishaps)]


def draw_fleet_plan(seed: int) -> FleetPlan:
    """The plan of a seed."""
    chance = random.Random(f"fleet {seed}")
    clients, interval = chance.randint(1, 8), chance.choice((1.0, 5.0, 60.0))
    ends = 10.0 + interval * chance.uniform(1.0, 8.0)
    later = tuple(chance.choice((0.0, chance.uniform(0.0, 3.0))) for _ in range(chance.choice((1, 1, 2, 4))))
    weather = chance.choice(("clear", "clear", "nowhere", "faults", "faults", "mishaps", "both"))
    faults: list[Fault] = []
    if weather == "nowhere":
        kind = chance.choice(_TROUBLES)
        faults.append(Fault(kind, SECONDARY, 0.0, ends + 10 * interval, QUEUE))
    if weather in ("faults", "both"):
        faults += _draw_faults(chance, interval, ends)
    mishaps: list[Mishap] = []
    if weather in ("mishaps", "both"):
        mishaps += [_draw_mishap(chance, clients, interval, ends) for _ in range(chance.choice((1, 2)))]
    return FleetPlan(
        seed,
        clients,
        interval,
        chance.choice((0.0, 1.0, 5.0)),
        chance.choice((1, 1, 1, 2)),
        tuple(chance.choice((0.0, chance.uniform(0.0, 1000.0))) for _ in range(clients)),
        (10.0, ends),
        chance.choice(_OUTAGES),
        tuple(faults),
        tuple(mishaps),
        later,
        tuple(chance.choice((0.0, 0.0, chance.uniform(0.0, ends))) for _ in range(clients)),
        has_queue=weather != "nowhere" or chance.random() < 0.7,
        opening=random.Random(f"opening {seed}").choice((0.0, 0.0, 0.5, 1.0)),
    )


def _draw_faults(chance: random.Random, interval: float, ends: float) -> list[Fault]:
    faults: list[Fault] = []
    for _ in range(chance.choice((1, 1, 2))):
        begin = chance.uniform(0.0, ends)
        kind = chance.choice(_TROUBLES)
        last = begin + chance.uniform(0.5, 2.0) * interval
        faults.append(Fault(kind, SECONDARY, begin, last, QUEUE, chance.choice((1.0, 0.5))))
    for _ in range(chance.choice((0, 0, 1))):
        begin = chance.uniform(0.0, ends)
        faults.append(Fault(chance.choice(_MOMENTS), SECONDARY, begin, begin, QUEUE))
    return faults


def _draw_mishap(chance: random.Random, clients: int, interval: float, ends: float) -> Mishap:
    stands = chance.choice((None, chance.uniform(0.5, 3.0) * interval))
    leaves = stands is None and chance.random() < 0.5
    return Mishap(chance.randrange(clients), chance.uniform(5.0, ends + 2.0), stands, leaves)


class _SkewedTimers:
    """The time of the loop, as a machine has it whose clock began earlier."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew: float) -> None:
        self._loop = loop
        self._skew = skew

    def now(self) -> float:
        return self._loop.time() + self._skew

    def call_at(self, when: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        # A moment later: what is lost in the difference must not make it a moment too early, for ever.
        return self._loop.call_at(when - self._skew + 1e-6, act)


class FleetHistory(SimulatedHistory):
    """One history: what was planned, and what became of it."""

    def __init__(self, plan: FleetPlan) -> None:
        super().__init__(plan.seed)
        self.plan = plan
        outage = Fault(plan.outage_kind, PRIMARY, *plan.outage)
        self.paths = [f"orders{number}" for number in range(len(plan.later))]
        self._stragglers = [
            Fault("error", PRIMARY, plan.outage[0], plan.outage[1] + later, path)
            for path, later in zip(self.paths, plan.later, strict=True)
            if later
        ]
        weather = Weather((outage, *self._stragglers, *plan.faults), plan.seed)
        clock = SimulatedClock(self.loop)
        self._clock = clock
        self.primary, self.secondary = (
            SimulatedNamespace(name, clock, weather, seed=plan.seed, tell=self.note)
            for name in (PRIMARY, SECONDARY)
        )
        self.meeting = Meeting(self.secondary, QUEUE, plan.seed)
        self._outage = outage
        self.processes = [Process(f"client {index}") for index in range(plan.clients)]
        self.clients: list[aio.PairedServiceBusClient] = []
        #: When each client failed over, and when it came back, for the last time.
        self.over: dict[tuple[int, str], float] = {}
        self.back: dict[tuple[int, str], float] = {}
        self.states: dict[tuple[int, str], EntityState] = {}
        #: Pings that were made, by all.
        self.pings = 0
        self.good_at: dict[str, float] = {}

    def play(self) -> None:
        """Play the plan to its end."""
        chance = random.Random(f"fleet's own {self.plan.seed}")
        before = random.getstate()
        random.seed(f"fleet's own {self.plan.seed}")
        try:
            with (
                mock.patch.object(message, "urandom", chance.randbytes),
                mock.patch("os.urandom", chance.randbytes),
            ):
                self.loop.max_steps = 40_000_000
                self.loop.run(self._main(), limit=self.plan.healed_at + 40 * self.plan.interval + 1000.0)
        except Stuck as stuck:
            self.failures.append(f"stuck: {stuck}")
        finally:
            random.setstate(before)
        self.failures += self.loop.errors

    async def _main(self) -> None:
        for path in self.paths:
            self.primary.act(partial(create_queue, path, QueueSettings()))
        self.secondary.act(partial(create_queue, backlog(0), QueueSettings(max_delivery_count=2_147_483_647)))
        if self.plan.has_queue:
            self.secondary.act(
                partial(create_queue, QUEUE, QueueSettings(requires_session=True, lock_duration=60.0))
            )
        for fault in (self._outage, *self._stragglers):
            schedule_fault(self, fault, self.primary)
        for fault in self.plan.faults:
            schedule_fault(self, fault, self.secondary)
        for mishap in self.plan.mishaps:
            self.loop.call_at(mishap.at, self._befall, mishap, context=outside())
        self.clients += [self._make_client(index) for index in range(self.plan.clients)]
        for index, process in enumerate(self.processes):
            self.loop.spawn(process, self._live(index))
        await self._wait_until_well()

    def _befall(self, mishap: Mishap) -> None:
        process = self.processes[mishap.client]
        self.note(str(mishap).split(": ", 1)[1])
        if mishap.leaves and mishap.client < len(self.clients):
            self.loop.spawn(process, self._leave(process, self.clients[mishap.client]))
        elif mishap.stands is None:
            process.kill()
        else:
            process.stands_until = self.loop.time() + mishap.stands

    async def _leave(self, process: Process, client: aio.PairedServiceBusClient) -> None:
        await client.close()
        process.kill()

    async def _live(self, index: int) -> None:
        client = self.clients[index]
        begins = self.plan.begins[index] if self.plan.begins else 0.01 * index
        await asyncio.sleep(begins)
        await client.start()
        await asyncio.gather(*(self._send(client.get_queue_sender(path), index) for path in self.paths))

    async def _send(self, sender: PairedSender, index: int) -> None:
        while True:
            try:
                await sender.send_messages(ServiceBusMessage(b"x"), timeout=30.0)
            except (AzureError, PairbusError) as error:
                self.note(f"client {index}: {type(error).__name__}")
            await asyncio.sleep(self.plan.interval / 4)

    def _make_client(self, index: int) -> aio.PairedServiceBusClient:
        plan = self.plan
        options = SendAvailabilityOptions(
            backlog_queue_count=1,
            failover_interval=plan.failover_interval,
            ping_primary_interval=plan.interval,
            good_pings=plan.good_pings,
            rotation_cool_down=1.0,
        )

        async def open_line() -> FleetLine:
            return SimulatedFleetLine(self.meeting, f"client {index}")

        client = aio.PairedServiceBusClient.from_connection_strings(
            *map(connection_string, (PRIMARY, SECONDARY)), primary_name=PRIMARY
        )
        client._make_pair = lambda: Pair(
            cast(Any, SimulatedSide(self.primary, opening=plan.opening)),
            cast(Any, SimulatedSide(self.secondary, opening=plan.opening)),
            name=PRIMARY,
            options=options,
            clock=self._clock,
            records=NoRecords(),
            spool=None,
            syphon=None,
            view=None,
            landmark=None,
            open_fleet_line=open_line,
            on_state_change=None,
            observers=(_Watch(self, index),),
            timers=_SkewedTimers(self.loop, plan.skews[index]),
        )
        return client

    async def _wait_until_well(self) -> None:
        await asyncio.sleep(max(self.plan.healed_at, self.plan.outage[1]) - self.loop.time())
        pings = 2 + self.plan.good_pings
        until = self.loop.time() + pings * self.plan.interval + self.plan.failover_interval + _SLACK
        while self._down():
            if self.loop.time() > until:
                self.failures.append(
                    f"not back {self.loop.time() - self.plan.healed_at:.0f} s later: {self._down()}"
                )
                return
            await asyncio.sleep(0.5)
        self._judge()

    def _judge(self) -> None:
        """Rules 2 to 5."""
        plan = self.plan
        troubled = {one.client for one in plan.mishaps if one.stands is not None}
        intervals = plan.good_pings + (0 if plan.is_clean else 1)
        for (index, path), back in self.back.items():
            if index in troubled or (plan.faults and not plan.is_lonely):
                continue
            well = plan.outage[1] + plan.later[self.paths.index(path)]
            since = max(well, self.over[index, path])
            if back > since + intervals * plan.interval + _LATER + _TRAVELS + plan.opening:
                self.failures.append(
                    f"late: client {index} was back {back - since:.1f} s after {path} was well, at {back:.3f}"
                )
            good = max(self.good_at.get(path, back), self.over[index, path])
            told = good + _TOLD_WITHIN + plan.opening
            if plan.is_clean and not plan.is_lonely and plan.good_pings == 1 and back > told:
                self.failures.append(
                    f"not told: client {index} was back {back - good:.1f} s after the good ping of {path}"
                )
        if plan.is_clean and not plan.is_lonely:
            self._judge_bill()

    def _judge_bill(self) -> None:
        plan, entities = self.plan, len(self.paths)
        slots = (plan.well_at - plan.outage[0]) / plan.interval
        most_pings = entities * (slots + 2 * plan.good_pings + 1 + plan.clients)
        if self.pings > most_pings:
            self.failures.append(f"too many pings: {self.pings}, and {most_pings:.0f} are allowed")
        if self.billed > 6 * plan.clients * entities:
            self.failures.append(f"too dear: {self.billed} for {plan.clients} clients, {entities} entities")

    def _down(self) -> list[tuple[int, str]]:
        return [
            one
            for one, state in self.states.items()
            if self.processes[one[0]].is_alive and state is not EntityState.HEALTHY
        ]

    @property
    def spread(self) -> float:
        """How long after the good ping of its entity the last client was back."""
        return max(at - self.good_at[path] for (_, path), at in self.back.items())

    @property
    def billed(self) -> int:
        """All that was billed at the place where they meet."""
        return sum(self.secondary.counters.total(kind, entity=QUEUE) for kind in OperationKind)


class _Watch(Observer):
    """What one client tells."""

    def __init__(self, history: FleetHistory, index: int) -> None:
        self._history = history
        self._index = index

    def state_changed(self, change: StateChange) -> None:
        history = self._history
        history.note(f"client {self._index}: {change.new.value} ({change.reason})")
        one = self._index, change.path
        before = history.states.get(one)
        history.states[one] = change.new
        if change.new is EntityState.FAILED_OVER:
            history.over[one] = history.loop.time()
        if change.new is EntityState.HEALTHY and before is not EntityState.SUSPECT:
            history.back[one] = history.loop.time()

    def pinged(self, path: str, *, succeeded: bool, seconds: float) -> None:
        history = self._history
        history.pings += 1
        history.note(f"client {self._index}: ping of {path} {succeeded}")
        if succeeded:
            history.good_at.setdefault(path, history.loop.time())


def play_fleet(plan: FleetPlan) -> FleetHistory:
    """Play a plan and check what came of it."""
    history = FleetHistory(plan)
    history.play()
    return history

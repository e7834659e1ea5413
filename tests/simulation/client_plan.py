"""What a history of the client is made of, drawn from a seed."""

import random
from dataclasses import dataclass, replace
from typing import Literal

from .faults import OF_A_LINE, Fault, FaultKind
from .pump_plan import PRIMARY, SECONDARY, Crash, backlog

__all__ = [
    "ClientKnobs",
    "ClientPlan",
    "Deed",
    "PlannedCall",
    "draw_client_plan",
    "draw_convoy_plan",
    "draw_order_plan",
]

_PATHS = ("orders", "bills")
_HORIZON = 40.0
# What passes by itself, so that a session waits for its own backlog queue.
_PASSING: tuple[FaultKind, ...] = (*OF_A_LINE, "error", "busy")
# What an application is told at once is no business of a backlog; these are what failovers are for.
_OUTAGES: tuple[FaultKind, ...] = (*_PASSING, "full", "disabled", "token")
_MOMENTS: tuple[FaultKind, ...] = ("cut", "detach", "restart")


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of the application: messages of one path and session, sent by one of its callers."""

    ids: tuple[str, ...]
    caller: int
    path: str
    session: str | None
    at: float
    #: What is to be cancelled is scheduled first.
    kind: Literal["one", "list", "batch", "schedule", "cancel"]
    timeout: float | None
    cancelled_after: float | None
    #: Whether its caller does not wait for it before the next one.
    is_pipelined: bool = False
    #: Whether it is too large for a narrow backlog.
    is_large: bool = False
    #: With so many steps more of whoever it is, its caller does not wait any longer.
    cancelled_with: int | None = None

    def __str__(self) -> str:
        session = f"/{self.session}" if self.session else ""
        limits = [f"timeout {self.timeout:g} s"] if self.timeout is not None else []
        if self.cancelled_after is not None:
            limits.append(f"cancelled after {self.cancelled_after:g} s")
        if self.cancelled_with is not None:
            limits.append(f"cancelled with step {self.cancelled_with}")
        limits += ["pipelined"] * self.is_pipelined + ["large"] * self.is_large
        told = f" ({', '.join(limits)})" if limits else ""
        what = f"{self.kind} {'+'.join(self.ids)} to {self.path}{session}{told}"
        return f"{self.at:8.3f}: caller {self.caller}: {what}"


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody does to an entity by hand, or to the whole application: it stands still for so long."""

    kind: Literal["fail over", "mark healthy", "stand still"]
    at: float
    path: str
    seconds: float

    def __str__(self) -> str:
        what = f"stand still for {self.seconds:g} s" if self.kind == "stand still" else self.kind
        return f"{self.at:8.3f}: {what} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKnobs:
    """How the client is set up."""

    queues: int
    failover_interval: float
    ping_interval: float
    send_timeout: float
    cool_down: float
    links: int
    keeps_order: bool
    spools: bool
    hosts: bool
    probe: Literal["message", "link"]
    #: Whether the backlog takes batches of a few messages only, so that lists are split.
    is_narrow: bool
    #: Whether the spool holds a few messages only.
    is_cramped: bool
    #: How long it takes to open a link.
    opening: float
    detects_duplicates: bool
    on_suspect: Literal["hold", "raise"]
    on_permanent: Literal["raise", "backlog"]
    good_pings: int
    #: Whether throttling, refused rights and disabled entities count, and full ones are passed by.
    counts_all: bool


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """A whole history."""

    seed: int
    knobs: ClientKnobs
    calls: tuple[PlannedCall, ...]
    faults: tuple[Fault, ...]
    crashes: tuple[Crash, ...]
    deeds: tuple[Deed, ...] = ()

    @property
    def healed_at(self) -> float:
        """From when on nothing goes wrong any more."""
        ends = [deed.at + deed.seconds for deed in self.deeds]
        return (
            max([0.0, *(call.at for call in self.calls), *(fault.end for fault in self.faults), *ends]) + 1.0
        )

    def lines(self) -> list[str]:
        """The plan for people."""
        parts = (self.faults, self.crashes, self.deeds, self.calls)
        return [f"{self.knobs}", *(str(one) for part in parts for one in part)]


def draw_client_plan(seed: int) -> ClientPlan:
    """The plan of a seed."""
    chance = random.Random(f"client {seed}")
    spools = chance.random() < 0.4
    knobs = ClientKnobs(
        queues=chance.choice((1, 2, 3)),
        failover_interval=chance.choice((0.0, 1.0, 5.0)),
        ping_interval=chance.choice((1.0, 3.0)),
        send_timeout=chance.choice((3.0, 10.0)),
        cool_down=chance.choice((5.0, 30.0)),
        links=chance.choice((1, 1, 2)),
        keeps_order=chance.random() < 0.4,
        spools=spools,
        hosts=chance.random() < 0.5,
        probe=chance.choice(("message", "link")),
        is_narrow=chance.random() < (0.6 if spools else 0.2),
        is_cramped=chance.random() < 0.2,
        opening=chance.choice((0.0, 0.5, 1.5)),
        detects_duplicates=chance.random() < 0.3,
        on_suspect=chance.choice(("hold", "hold", "hold", "raise")),
        on_permanent=chance.choice(("raise", "backlog")),
        good_pings=chance.choice((1, 1, 2)),
        counts_all=chance.random() < 0.3,
    )
    calls, faults = _calls(chance, knobs), _faults(chance, knobs)
    return ClientPlan(seed, knobs, calls, faults, _crashes(chance), _deeds(chance))


def draw_convoy_plan(seed: int) -> ClientPlan:
    """Single messages that come in bursts while the primary is away, so that many wait for one queue."""
    plan = draw_client_plan(2 * seed + 1)  # a sender takes one call at a time
    chance = random.Random(f"convoy {seed}")
    bursts = [round(chance.uniform(8, 25), 4) for _ in range(chance.randint(2, 5))]
    calls = [
        PlannedCall(
            (f"m{number:03}",),
            caller := chance.randrange(12),
            chance.choice(_PATHS),
            chance.choice((None, None, None, f"s{caller}")),
            chance.choice(bursts),
            chance.choice(("one", "one", "one", "one", "schedule", "list")),
            chance.choice((None, None, 1.0, 20.0)),
            round(10 ** chance.uniform(-3, 0.5), 4) if chance.random() < 0.15 else None,
            is_pipelined=True,
            is_large=plan.knobs.is_narrow and chance.random() < 0.05,
        )
        for number in range(chance.randint(20, 80))
    ]
    faults = [Fault("refuse", PRIMARY, 1.0, 30.0)]
    for begin in chance.sample(bursts, len(bursts) // 2 + chance.randrange(2)):
        kind: FaultKind = chance.choice((*_OUTAGES, "lose-answer", "busy", "slow"))
        end = round(begin + chance.choice((0.5, 3.0, 15.0)), 4)
        faults.append(Fault(kind, SECONDARY, begin, end, None, chance.choice((1.0, 0.5, 0.2))))
    return replace(
        plan,
        calls=tuple(sorted(calls, key=lambda call: (call.at, call.ids))),
        faults=tuple(sorted(faults, key=lambda fault: fault.begin)),
        crashes=plan.crashes if chance.random() < 0.2 else (),
        deeds=tuple(Deed("fail over", 5.0, path, 0.0) for path in _PATHS),
    )


def draw_order_plan(seed: int) -> ClientPlan:
    """Sessions that are sent to through an outage, while the secondary fails now and then and the application
    is restarted.
    """
    plan = draw_client_plan(seed)
    chance = random.Random(f"order {seed}")
    begin, end = round(chance.uniform(2, 6), 4), round(chance.uniform(12, 28), 4)
    number, calls = 0, []
    for caller in range(chance.randint(1, 4)):
        path, at = chance.choice(_PATHS), 0.5
        while at < _HORIZON * 0.8:
            ids = tuple(f"m{number + more:03}" for more in range(chance.choice((1, 1, 1, 3))))
            kind: Literal["one", "list"] = "one" if len(ids) == 1 else "list"
            calls.append(PlannedCall(ids, caller, path, f"s{caller}", round(at, 4), kind, None, None))
            number += len(ids)
            at += chance.expovariate(1.0)
    faults = [Fault(chance.choice(("refuse", "silence")), PRIMARY, begin, end)]
    for _ in range(chance.choice((0, 1, 2, 4))):
        at = round(chance.uniform(begin, end + 8), 4)
        queue = backlog(chance.randrange(3)) if chance.random() < 0.3 else None
        if chance.random() < 0.4:
            faults.append(Fault(chance.choice(_MOMENTS), SECONDARY, at, at, queue))
        else:
            until = round(at + 10 ** chance.uniform(-1, 1), 4)
            often = chance.choice((1.0, 0.5))
            faults.append(Fault(chance.choice(_PASSING), SECONDARY, at, until, queue, often))
    return replace(
        plan,
        knobs=replace(
            plan.knobs, queues=3, keeps_order=True, is_narrow=False, is_cramped=False, on_suspect="hold"
        ),
        calls=tuple(sorted(calls, key=lambda call: (call.at, call.ids))),
        faults=tuple(sorted(faults, key=lambda fault: fault.begin)),
        crashes=_crashes(chance),
        deeds=(),
    )


def _deeds(chance: random.Random) -> tuple[Deed, ...]:
    deeds = [
        Deed(
            chance.choice(("fail over", "mark healthy", "stand still")),
            round(chance.uniform(0, _HORIZON), 4),
            chance.choice(_PATHS),
            round(10 ** chance.uniform(-1, 1.2), 3),
        )
        for _ in range(chance.choice((0, 0, 0, 1, 2, 4)))
    ]
    return tuple(sorted(deeds, key=lambda deed: deed.at))


def _calls(chance: random.Random, knobs: ClientKnobs) -> tuple[PlannedCall, ...]:
    count = int(20 * 10 ** chance.random())
    callers = chance.randint(1, 6)
    begins = [chance.uniform(0, _HORIZON * 0.7) for _ in range(chance.randint(1, 6))]
    pipelined = {caller for caller in range(callers) if chance.random() < 0.4}
    large = chance.choice((0.0, 0.0, 0.1)) if knobs.is_narrow else 0.0
    # Five fit into one batch for a narrow backlog queue, more have to be split.
    most = 20 if knobs.is_narrow else 5
    hasty = chance.choice((0.0, 0.0, 0.0, 0.3))
    calls: list[PlannedCall] = []
    number = 0
    while number < count:
        kind = chance.choice(
            ("one", "one", "one", "one", "list", "list", "batch", "batch", "schedule", "cancel")
        )
        size = chance.randint(1, most) if kind in ("list", "batch") else 1
        caller = chance.randrange(callers)
        if caller in pipelined and kind == "batch":
            kind = "list"  # whoever awaits a batch before it is sent has no order to ask for
        calls.append(
            PlannedCall(
                tuple(f"m{number + more:03}" for more in range(size)),
                caller,
                chance.choice(_PATHS),
                # A session belongs to one caller.
                chance.choice((None, f"s{caller}")),
                round(chance.choice((chance.uniform(0, _HORIZON * 0.7), chance.choice(begins))), 4),
                kind,  # type: ignore[arg-type]
                chance.choice((None, None, None, 1.0, 20.0)),
                round(chance.uniform(0.001, 3.0), 4) if chance.random() < 0.05 else None,
                caller in pipelined,
                chance.random() < large,
                int(10 ** chance.uniform(0, 2.5)) if chance.random() < hasty else None,
            )
        )
        number += size
    return tuple(sorted(calls, key=lambda call: (call.at, call.ids)))


def _faults(chance: random.Random, knobs: ClientKnobs) -> tuple[Fault, ...]:
    faults = [_fault(chance, knobs) for _ in range(chance.choice((0, 1, 2, 3, 5)))]
    if chance.random() < 0.7:
        faults += _outage(chance, is_total=chance.random() < (0.6 if knobs.spools else 0.2))
    return tuple(sorted(faults, key=lambda fault: fault.begin))


def _outage(chance: random.Random, *, is_total: bool) -> list[Fault]:
    """The primary is away for a while, and the secondary for a part of it."""
    kind: FaultKind = chance.choice(("refuse", "silence", "error", "lose-request", "break-answer"))
    begin, length = chance.uniform(1, 15), chance.uniform(5, 25)
    found = [Fault(kind, PRIMARY, round(begin, 4), round(begin + length, 4))]
    if is_total:
        kind = chance.choice(("refuse", "silence", "error", "lose-answer"))
        begin += chance.uniform(-3, length)
        end = round(begin + chance.uniform(2, 20), 4)
        found.append(Fault(kind, SECONDARY, round(begin, 4), end, None, chance.choice((1.0, 1.0, 0.5))))
    return found


def _fault(chance: random.Random, knobs: ClientKnobs) -> Fault:
    if knobs.spools and chance.random() < 0.15:
        begin = round(chance.uniform(0.5, _HORIZON), 4)
        disk: FaultKind = chance.choice(("disk-full", "disk-sync"))
        return Fault(
            disk, "disk", begin, round(begin + chance.uniform(0.1, 10), 4), None, chance.choice((1.0, 0.5))
        )
    where = chance.choice((PRIMARY, PRIMARY, SECONDARY))
    begin = round(chance.choice((chance.uniform(0.5, 3), chance.uniform(0.5, _HORIZON))), 4)
    entity = None
    if chance.random() < 0.4:
        entity = chance.choice(_PATHS) if where == PRIMARY else backlog(chance.randrange(knobs.queues))
    if chance.random() < 0.2:
        return Fault(chance.choice(_MOMENTS), where, begin, begin, entity)
    length = chance.choice((chance.uniform(0.005, 0.5), chance.uniform(0.5, 10), chance.uniform(5, _HORIZON)))
    end = round(min(begin + length, _HORIZON + 5), 4)
    return Fault(chance.choice(_OUTAGES), where, begin, end, entity, chance.choice((1.0, 1.0, 0.5, 0.1)))


def _crashes(chance: random.Random) -> tuple[Crash, ...]:
    return tuple(
        Crash(
            int(10 ** chance.uniform(1.5, 3.7)),
            round(chance.uniform(0, 10), 3),
            is_clean=chance.random() < 0.3,
            is_power_cut=chance.random() < 0.5,
        )
        for _ in range(chance.choice((0, 0, 0, 1, 2)))
    )

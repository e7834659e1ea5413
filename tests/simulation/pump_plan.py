"""What a history of the pump is made of, drawn from a seed. Plain data: it can be printed and shortened."""

import random
from dataclasses import dataclass
from typing import Literal

from .faults import MOMENTS, SPELLS, Fault, FaultKind

__all__ = [
    "DENIED",
    "MISSING",
    "PRIMARY",
    "SECONDARY",
    "Crash",
    "Knobs",
    "PlannedMessage",
    "PumpPlan",
    "backlog",
    "draw_pump_plan",
]

PRIMARY, SECONDARY = "contoso", "contoso-dr"
#: A path that nobody may send to, and one that is not there.
DENIED, MISSING = "secret", "nowhere"
_PATHS = ("orders", "bills", "notes")
_HORIZON = 40.0


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """A message that is in a backlog queue from a moment on."""

    id: str
    queue: int
    path: str
    session: str | None
    at: float
    size: int
    is_malformed: bool = False

    def __str__(self) -> str:
        session = f"/{self.session}" if self.session else ""
        return f"{self.at:8.3f}: {self.id} for {self.path}{session} in queue {self.queue}"


@dataclass(frozen=True, slots=True)
class Crash:
    """A pump is killed, or stopped as it should be, with this step, and another begins after a pause."""

    step: int
    pause: float
    is_clean: bool = False
    #: The machine goes down with it, and forgets what was not synced.
    is_power_cut: bool = False

    def __str__(self) -> str:
        how = "stopped" if self.is_clean else "killed by a power cut" if self.is_power_cut else "killed"
        return f"{how} with step {self.step}, begun again after {self.pause:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Sizes and times. Small ones show in short histories what large ones do in long ones."""

    queues: int
    mode: Literal["drain", "stream"]
    lock: float
    fetch: int
    batch: int
    page: int
    in_hand: int
    send_timeout: float
    detects_duplicates: bool
    skew: float
    start_rate: float = 2000.0
    max_rate: float | None = None
    #: Credits a second of each namespace; 0 for none.
    credits: int = 0
    #: So many pumps begin side by side, and are killed together after a while; then one goes on alone.
    rivals: int = 0
    rivals_for: float = 0.0


@dataclass(frozen=True, slots=True)
class PumpPlan:
    """A whole history."""

    seed: int
    knobs: Knobs
    messages: tuple[PlannedMessage, ...]
    faults: tuple[Fault, ...]
    crashes: tuple[Crash, ...]

    @property
    def healed_at(self) -> float:
        """From when on nothing goes wrong any more."""
        last = max((message.at for message in self.messages), default=0.0)
        return max([last, *(fault.end for fault in self.faults)]) + 1.0

    def lines(self) -> list[str]:
        """The plan for people."""
        return [
            f"{self.knobs}",
            *map(str, self.faults),
            *map(str, self.crashes),
            *map(str, self.messages),
        ]


def draw_pump_plan(seed: int) -> PumpPlan:
    """The plan of a seed."""
    chance = random.Random(f"pump {seed}")
    knobs = Knobs(
        queues=chance.choice((1, 1, 2, 3)),
        mode=chance.choice(("drain", "stream")),
        lock=chance.choice((2.0, 5.0, 20.0, 60.0)),
        fetch=chance.choice((2, 5, 20, 200)),
        batch=chance.choice((1, 3, 10, 100)),
        page=chance.choice((3, 20, 250)),
        in_hand=chance.choice((10, 20, 1000)),
        send_timeout=chance.choice((3.0, 10.0)),
        detects_duplicates=chance.random() < 0.3,
        skew=chance.choice((0.0, -0.5, 0.5, -3600.0, 3600.0)),
        start_rate=chance.choice((5.0, 50.0, 2000.0)),
        max_rate=chance.choice((None, None, 20.0)),
        rivals=chance.choice((0, 0, 2, 4)),
        rivals_for=round(10 ** chance.uniform(-2, 1), 4),
    )
    return PumpPlan(seed, knobs, _messages(chance, knobs), _faults(chance, knobs), _crashes(chance))


def _messages(chance: random.Random, knobs: Knobs) -> tuple[PlannedMessage, ...]:
    count = int(20 * 10 ** chance.random())
    paths = [*_PATHS[: chance.randint(1, 3)], *chance.choice(((), (), (MISSING,), (DENIED,)))]
    sessions: list[str | None] = [None, *(f"s{number}" for number in range(chance.randint(0, 4)))]
    if chance.random() < 0.3 and len(sessions) > 1:
        sessions.remove(None)
    begins = sorted(
        chance.choice((0.0, chance.uniform(0, _HORIZON * 0.7))) for _ in range(chance.randint(1, 4))
    )
    messages = [
        PlannedMessage(
            f"m{number:03}",
            chance.randrange(knobs.queues),
            chance.choice(paths),
            chance.choice(sessions),
            round(chance.choice(begins) + chance.choice((0.0, chance.uniform(0, 2))), 4),
            chance.choice((10, 10, 10, 2000)),
            chance.random() < 0.01,
        )
        for number in range(count)
    ]
    return tuple(sorted(messages, key=lambda message: (message.at, message.id)))


def _faults(chance: random.Random, knobs: Knobs) -> tuple[Fault, ...]:
    faults = [_fault(chance, knobs) for _ in range(chance.choice((0, 1, 2, 3, 5, 8)))]
    return tuple(sorted(faults, key=lambda fault: fault.begin))


def _fault(chance: random.Random, knobs: Knobs) -> Fault:
    begin = round(chance.choice((0.0, chance.uniform(0, 3), chance.uniform(0, _HORIZON))), 4)
    if chance.random() < 0.06:
        kind: FaultKind = chance.choice(("disk-full", "disk-sync"))
        return Fault(kind, "disk", begin, begin + chance.uniform(0.1, 5.0))
    where = chance.choice((PRIMARY, PRIMARY, SECONDARY))
    entity = None
    if chance.random() < 0.4:
        entity = chance.choice(_PATHS) if where == PRIMARY else backlog(chance.randrange(knobs.queues))
    if chance.random() < 0.3:
        moment = chance.choice(MOMENTS)
        if moment == "hold":
            where, entity = SECONDARY, backlog(chance.randrange(knobs.queues))
        return Fault(moment, where, begin, begin, entity)
    spell = chance.choice(SPELLS)
    length = chance.choice((chance.uniform(0.005, 0.5), chance.uniform(0.5, 10), chance.uniform(5, _HORIZON)))
    share = chance.choice((1.0, 1.0, 0.5, 0.1))
    return Fault(spell, where, begin, round(min(begin + length, _HORIZON + 5), 4), entity, share)


def _crashes(chance: random.Random) -> tuple[Crash, ...]:
    return tuple(
        Crash(
            int(10 ** chance.uniform(0.7, 3.5)),
            round(chance.choice((0.1, chance.uniform(0, 30))), 3),
            chance.random() < 0.3,
        )
        for _ in range(chance.choice((0, 0, 1, 2, 4)))
    )


def backlog(index: int) -> str:
    """The name of a backlog queue."""
    return f"{PRIMARY}/x-servicebus-transfer/{index}"

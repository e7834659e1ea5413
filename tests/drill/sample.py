"""Results of drills that never ran: an outage reckoned step by step, the same every time.

Each entity is sent to evenly. While the fault holds, sends wait for the failover interval, then go to the
backlog; when it is over, pings bring the entity back and the backlog drains at a fixed rate.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pairbus.drill.picture import DrillPicture, EntityPicture
from pairbus.drill.result import (
    Check,
    Cost,
    CostLine,
    Drain,
    DrillResult,
    DrillVerdict,
    EntityResult,
    FaultSpan,
    Phase,
    Sample,
    StateSpan,
    Unaccounted,
)

__all__ = ["BEGAN", "make_empty", "make_failed", "make_healthy", "make_pictures", "make_result", "make_wide"]

BEGAN = 1_794_484_800.0
STEP = 0.25
PATHS = ("orders", "payments", "events/subscriptions/audit")


@dataclass
class Course:
    """How the drill goes; the sums are those of the samples."""

    rate: float
    outage: tuple[float, float]
    failover: float
    drain_rate: float
    dice: random.Random
    sums: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("primary", "backlog", "moved"), 0.0)
    )

    def step(self, at: float, sends: bool) -> Sample:
        fault, over = self.outage
        number = self.rate * STEP * self.dice.uniform(0.8, 1.2) if sends else 0.0
        held = fault <= at < fault + self.failover
        backed = fault + self.failover <= at < over + 0.75
        if not held:
            # The sends that the failover found waiting go out with the first that follow.
            due = number + (self.rate * self.failover if backed and self.sums["backlog"] == 0 else 0)
            self.sums["backlog" if backed else "primary"] += due
        if at > over + 3:
            self.sums["moved"] = min(self.sums["backlog"], self.sums["moved"] + self.drain_rate * STEP)
        whole = {name: int(value) for name, value in self.sums.items()}
        return Sample(
            at=round(at + STEP, 3),
            to_primary=whole["primary"],
            to_backlog=whole["backlog"],
            to_spool=0,
            refused=0,
            received=whole["primary"] + whole["moved"],
            moved=whole["moved"],
            backlog=whole["backlog"] - whole["moved"],
            spooled=0,
            held=8 if held else 0,
        )


def make_result(
    *,
    seconds: float = 42.0,
    outage: tuple[float, float] = (9.0, 21.0),
    paths: Sequence[str] = PATHS,
    clients: Sequence[str] = ("shop-1", "shop-2"),
    rate: float = 80.0,
    seed: int = 7,
) -> DrillResult:
    """A primary that refuses every connection, and everything arrives."""
    course = Course(rate, outage, failover=1.2, drain_rate=260.0, dice=random.Random(seed))
    moments = [number * STEP for number in range(int(seconds / STEP))]
    samples = tuple(course.step(at, sends=at < seconds - 8) for at in moments)
    last = samples[-1]
    sent = last.to_primary + last.to_backlog
    begins, ends = outage
    drained = next((one.at for one in samples if one.moved and one.moved == last.to_backlog), seconds)
    phases = _phases(begins, ends, drained, seconds)
    states = tuple(
        span for path in paths for client in clients for span in _states(path, client, outage, seconds)
    )
    return DrillResult(
        scenario="primary-down",
        title="The primary namespace goes down and comes back",
        story="Two applications send to two queues and a topic. The primary refuses every connection for a "
        "while. Sends go on to the backlog, pings find the primary again, the syphon brings everything home.",
        seed=seed,
        began=BEGAN,
        seconds=seconds,
        version="0.5.0",
        options={
            "failover_interval": 1.0,
            "ping_primary_interval": 0.5,
            "backlog_queue_count": 4,
            "rate": rate,
        },
        phases=phases,
        faults=(FaultSpan(namespace="contoso", kind="refuse", entity=None, begins=begins, ends=ends),),
        states=states,
        samples=samples,
        entities=_entities(paths, last),
        drain=Drain(
            moved=last.moved,
            dead_lettered=0,
            waiting=0,
            bytes=last.moved * 480,
            seconds=round(drained - ends - 3, 2),
            slowest_path=paths[0],
            engine="local",
        ),
        verdict=DrillVerdict(
            sent=sent,
            delivered=sent,
            duplicated=0,
            waiting=0,
            dead_lettered=0,
            refused=0,
            unknown=0,
            lost=0,
            out_of_order=0,
        ),
        checks=(
            Check(name="nothing is lost", passed=True, detail=f"{sent:,} sent, {sent:,} arrived"),
            Check(name="no send raised", passed=True, detail="0 of them did"),
            Check(name="failed over within 2 s", passed=True, detail="the slowest took 1.2 s"),
            Check(name="back on the primary within 2 s", passed=True, detail="the slowest took 0.8 s"),
            Check(name="order kept per session", passed=True, detail="24 sessions"),
        ),
        cost=_cost(last),
        notes=("The syphon ran without Spark, on the pump alone.",),
    )


def _phases(begins: float, ends: float, drained: float, seconds: float) -> tuple[Phase, ...]:
    edges = (0.0, begins, ends, ends + 3, drained, seconds)
    names = ("healthy", "outage", "recovery", "drain", "verdict")
    return tuple(
        Phase(name=name, begins=edges[place], ends=edges[place + 1]) for place, name in enumerate(names)
    )


def _states(path: str, client: str, outage: tuple[float, float], seconds: float) -> list[StateSpan]:
    begins, ends = outage
    late = 0.12 if client.endswith("2") else 0.0
    edges = (0.0, begins + 0.1 + late, begins + 1.1 + late, ends + 0.7 + late, seconds)
    told = (
        ("healthy", ""),
        ("suspect", "ServiceBusConnectionError"),
        ("failed_over", "1 s with no success"),
        ("healthy", "a ping succeeded"),
    )
    return [
        StateSpan(
            client=client, path=path, state=state, reason=reason, begins=edges[place], ends=edges[place + 1]
        )
        for place, (state, reason) in enumerate(told)
    ]


def _entities(paths: Sequence[str], last: Sample) -> tuple[EntityResult, ...]:
    entities, left_primary, left_backlog = [], last.to_primary, last.to_backlog
    for place, path in enumerate(paths):
        share = len(paths) - place
        primary, backlog = left_primary // share, left_backlog // share
        left_primary, left_backlog = left_primary - primary, left_backlog - backlog
        entities.append(
            EntityResult(
                path=path,
                kind="topic" if "/" in path else "queue",
                sent=primary + backlog,
                to_primary=primary,
                to_backlog=backlog,
                to_spool=0,
                refused=0,
                delivered=primary + backlog,
                duplicated=0,
                missing=0,
                pings=44 + place,
                failovers=2,
                longest_send=1.31 + place / 50,
            )
        )
    return tuple(entities)


def _cost(last: Sample) -> Cost:
    operations = {
        "send to the primary": (last.to_primary + last.moved, False),
        "receive from the primary": (last.received, True),
        "complete at the primary": (last.received, True),
        "send to the backlog": (last.to_backlog, False),
        "receive from the backlog": (last.moved, False),
        "complete at the backlog": (last.moved, False),
        "idle receives of the syphon": (61, False),
        "pings": (135, False),
    }
    lines = tuple(
        CostLine(name=name, operations=number, cost=f"{number * 8e-7:.8f}", derived=derived)
        for name, (number, derived) in operations.items()
    )
    total = sum(number for number, _ in operations.values())
    return Cost(
        currency="USD",
        prices_as_of="2026-10-01",
        total=f"{total * 8e-7:.8f}",
        in_outages=f"{total * 3e-7:.8f}",
        operations=total,
        stages=lines,
        note="The free operations of the month are not taken off.",
    )


def make_healthy() -> DrillResult:
    """Nothing is broken, nothing fails over."""
    result = make_result(seconds=20.0, outage=(30.0, 40.0))
    return replace(
        result,
        scenario="calm",
        title="A day without an outage",
        story="What the pair costs when nothing happens.",
        phases=(Phase(name="healthy", begins=0.0, ends=18.0), Phase(name="verdict", begins=18.0, ends=20.0)),
        faults=(),
        states=tuple(
            replace(span, begins=0.0, ends=20.0)
            for span in result.states
            if span.state == "healthy" and not span.reason
        ),
        drain=None,
        entities=tuple(
            replace(entity, failovers=0, pings=0, longest_send=0.043) for entity in result.entities
        ),
        checks=result.checks[:2],
        notes=(),
    )


def make_failed(lost: int = 3, ids: int = 40) -> DrillResult:
    """Both sides fail, and messages of every fate are left; the names are as bad as names can be."""
    result = make_result(seconds=60.0, outage=(10.0, 34.0), rate=120.0, seed=11)
    samples = tuple(_with_spool(sample) for sample in result.samples)
    fates: list[Any] = ["lost"] * lost + ["waiting", "dead-lettered", "refused", "unknown", "delivered"] * ids
    unaccounted = tuple(
        Unaccounted(
            message_id=f"shop-1-{number:06d}",
            path=PATHS[number % 3],
            fate=fate,
            note=f"<b>{fate}</b> & so on",
        )
        for number, fate in enumerate(fates)
    )
    sent = result.verdict.sent
    verdict = DrillVerdict(
        sent=sent,
        delivered=sent - lost - 4 * ids,
        duplicated=ids,
        waiting=ids,
        dead_lettered=ids,
        refused=ids,
        unknown=ids,
        lost=lost,
        out_of_order=5,
        unaccounted=unaccounted,
    )
    first, *rest = result.entities
    return replace(
        result,
        scenario="both-down",
        title="Both <namespaces> fail & the disk fills",
        faults=(
            *result.faults,
            FaultSpan(namespace="contoso-dr", kind="silence", entity=None, begins=16.0, ends=24.0),
            FaultSpan(namespace="contoso", kind="error", entity="payments", begins=34.0, ends=46.0),
        ),
        states=tuple(_faulted(span) for span in result.states),
        samples=samples,
        entities=(
            replace(first, path="orders<script>alert(1)</script>", missing=lost, refused=ids, to_spool=310),
            *rest,
        ),
        verdict=verdict,
        checks=(
            *result.checks[1:],
            Check(name="nothing is lost", passed=False, detail=f"{lost} ids are nowhere <here>"),
        ),
        notes=("The disk of shop-1 was full at 22 s & two sends raised.",),
    )


def _with_spool(sample: Sample) -> Sample:
    spooled = int(min(max(sample.at - 17, 0), 7) * 90)
    left = int(spooled * min(max((40 - sample.at) / 12, 0), 1))
    refused = int(min(max(sample.at - 21, 0), 2) * 20)
    return replace(sample, to_spool=spooled, spooled=left, refused=refused)


def _faulted(span: StateSpan) -> StateSpan:
    if span.path != "payments" or span.reason != "a ping succeeded":
        return span
    return replace(span, state="faulted", reason="three pings meet <entity not found>")


def make_wide(entities: int = 20) -> DrillResult:
    """Ten minutes with many entities, half of which stay healthy."""
    paths = [f"region-{number % 4}/department-{number % 7}/queue-{number:02d}" for number in range(entities)]
    result = make_result(seconds=600.0, outage=(120.0, 300.0), paths=paths, rate=400.0)
    troubled = set(paths[: entities // 2])
    healthy = [
        replace(span, ends=600.0)
        for span in result.states
        if span.path not in troubled and span.state == "healthy" and not span.reason
    ]
    faults = tuple(
        FaultSpan(namespace="contoso", kind="error", entity=path, begins=120.0 + place, ends=300.0)
        for place, path in enumerate(sorted(troubled))
    )
    return replace(
        result,
        scenario="half-the-entities",
        title="Half of the entities of a large system fail",
        faults=faults,
        states=(*(span for span in result.states if span.path in troubled), *healthy),
    )


def make_empty() -> DrillResult:
    """A drill that was broken off before anything happened."""
    return DrillResult(
        scenario="primary-down",
        title="Broken off",
        story="",
        seed=1,
        began=BEGAN,
        seconds=0.0,
        version="0.5.0",
        options={},
        phases=(),
        faults=(),
        states=(),
        samples=(),
        entities=(),
        drain=None,
        verdict=DrillVerdict(
            sent=0,
            delivered=0,
            duplicated=0,
            waiting=0,
            dead_lettered=0,
            refused=0,
            unknown=0,
            lost=0,
            out_of_order=0,
        ),
        checks=(),
        cost=None,
    )


def make_pictures(result: DrillResult) -> list[DrillPicture]:
    """How the drill looked at each of its samples; every entity has an even share."""
    return [_picture(result, sample) for sample in result.samples]


def _picture(result: DrillResult, sample: Sample) -> DrillPicture:
    phase = next((one.name for one in result.phases if one.begins <= sample.at < one.ends), "verdict")
    drains = phase in ("drain", "verdict") and result.drain is not None
    return DrillPicture(
        at=sample.at,
        phase=phase,
        faults=tuple(
            f"{fault.kind} at {fault.namespace}"
            for fault in result.faults
            if fault.begins <= sample.at < fault.ends
        ),
        entities=tuple(_entity_picture(result, sample, entity) for entity in result.entities),
        backlog=sample.backlog,
        spooled=sample.spooled,
        drain_moved=sample.moved,
        drain_total=result.samples[-1].moved if drains else None,
        drain_rate=260.0 if phase == "drain" else 0.0,
        message="the syphon waits until all is well",
    )


def _entity_picture(result: DrillResult, sample: Sample, entity: EntityResult) -> EntityPicture:
    share = len(result.entities)
    state = next(
        (
            span.state
            for span in result.states
            if span.path == entity.path and span.begins <= sample.at < span.ends
        ),
        "healthy",
    )
    return EntityPicture(
        path=entity.path,
        kind=entity.kind,
        state=state,
        sent=(sample.to_primary + sample.to_backlog + sample.to_spool) // share,
        to_primary=sample.to_primary // share,
        to_backlog=sample.to_backlog // share,
        to_spool=sample.to_spool // share,
        received=sample.received // share,
        rate=80.0 / share,
        refused=sample.refused // share,
    )

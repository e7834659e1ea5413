"""Puts the result of a drill together from what was recorded and what was found."""

import dataclasses
from collections.abc import Iterator, Sequence

from pairbus.plumbing.wording import counted

from .audit import Audit
from .checks import Evidence, make_checks
from .recorder import Recorder
from .result import Check, Cost, Drain, DrainRun, DrillResult, EntityResult


def write_up(
    evidence: Evidence,
    cost: Cost | None,
    *,
    engine: str,
    version: str,
    checks: Sequence[Check],
    notes: Sequence[str],
) -> DrillResult:
    """The result; `checks` and `notes` are those that were made before."""
    scenario, recorder = evidence.scenario, evidence.recorder
    return DrillResult(
        scenario=scenario.name,
        title=scenario.title,
        story=scenario.story,
        seed=scenario.seed,
        began=recorder.began,
        seconds=recorder.now(),
        version=version,
        options=dataclasses.asdict(scenario.options),
        phases=tuple(recorder.phases),
        faults=tuple(recorder.faults),
        states=tuple(recorder.states),
        samples=tuple(recorder.samples),
        entities=tuple(_describe_entities(recorder, evidence.audit)),
        drain=_sum_up_drain(evidence.runs, engine),
        verdict=evidence.audit.verdict,
        checks=(*make_checks(evidence), *checks),
        cost=cost,
        notes=(*notes, *_make_notes(evidence, engine)),
    )


def _describe_entities(recorder: Recorder, found: Audit) -> Iterator[EntityResult]:
    for tally in recorder.tallies.values():
        plan, counts = tally.plan, found.by_path[tally.plan.path]
        yield EntityResult(
            path=plan.path,
            kind=plan.kind,
            sent=counts.sent,
            **tally.ways(),
            refused=counts.refused,
            delivered=counts.delivered,
            duplicated=counts.duplicated,
            missing=counts.lost,
            pings=tally.pings,
            failovers=len(recorder.failovers(plan.path)),
            longest_send=tally.longest_send,
        )


def _sum_up_drain(runs: Sequence[DrainRun], engine: str) -> Drain | None:
    if not runs:
        return None
    return Drain(
        moved=sum(run.moved for run in runs),
        dead_lettered=sum(run.dead_lettered for run in runs),
        waiting=runs[-1].waiting,
        bytes=sum(run.bytes for run in runs),
        seconds=sum(run.seconds for run in runs),
        slowest_path=next((run.slowest_path for run in reversed(runs) if run.slowest_path), None),
        engine=engine,
    )


def _make_notes(evidence: Evidence, engine: str) -> Iterator[str]:
    scenario = evidence.scenario
    if engine == "pump":
        yield "Drained by a pump in the process of the drill, without Spark; the records were not verified."
    loose = [one.path for one in scenario.entities if not one.duplicate_detection]
    twice = sum(evidence.audit.by_path[path].duplicated for path in loose)
    if twice:
        yield (
            f"{counted(twice, 'message', 'messages')} arrived twice at entities without duplicate detection "
            f"({', '.join(loose)}): "
            "the outcome of a send was unknown, and it was sent again."
        )
    if any(one.sessions for one in scenario.entities) and scenario.options.ordering == "none":
        yield (
            "Order within a session is judged among the messages that went the same way. At the failback new "
            "messages go to the primary at once, before those of the backlog have arrived."
        )

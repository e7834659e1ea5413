"""The checks: what a scenario promises, measured, each with the figures that it was judged by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairbus.options import EntityState
from pairbus.pairing.names import path_key
from pairbus.plumbing.wording import counted

from .audit import Audit
from .messages import Resting
from .recorder import Recorder
from .result import Check, DrainRun, FaultSpan, StateSpan
from .scenario import PRIMARY, EntityPlan, Scenario

if TYPE_CHECKING:
    from pairbus.spark import Verdict

# So many ids are named in a line.
_NAMED = 5
# A machine that let everybody wait for longer than this is no judge of seconds.
_TOO_LATE = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the checks are made from. `records` is the verdict of Spark, if there is one."""

    scenario: Scenario
    recorder: Recorder
    audit: Audit
    runs: Sequence[DrainRun]
    backlog: Sequence[Resting]
    spooled: Sequence[Resting]
    redirected: frozenset[tuple[str, str]]
    records: Verdict | None
    knows_states: bool = True
    knows_order: bool = True


def make_checks(evidence: Evidence) -> tuple[Check, ...]:
    """All checks of a drill, the most important first."""
    return tuple(
        check
        for make in (_check_loss, _check_content, _check_states, _check_backlog, _check_records)
        for check in make(evidence)
    )


def _check_loss(evidence: Evidence) -> Iterator[Check]:
    verdict = evidence.audit.verdict
    lost = [f"{one.path}: {one.message_id}" for one in verdict.unaccounted if one.fate == "lost"]
    yield Check(
        name="no message is lost",
        passed=verdict.lost == 0,
        detail=f"{verdict.delivered:,} of {verdict.sent:,} arrived"
        if not lost
        else _name(lost, verdict.lost),
    )
    if not evidence.scenario.expect.refused:
        refused = verdict.refused + verdict.unknown
        told = [one.note for one in verdict.unaccounted if one.fate in ("refused", "unknown")]
        yield Check(
            name="no send failed",
            passed=refused == 0,
            detail=f"{refused:,} failed: {told[0]}"
            if told
            else counted(verdict.sent, "send returned", "sends returned"),
        )


def _check_content(evidence: Evidence) -> Iterator[Check]:
    audit, entities = evidence.audit, evidence.scenario.entities
    strict = [one.path for one in entities if one.duplicate_detection]
    if strict:
        twice = sum(audit.by_path[path].duplicated for path in strict)
        yield Check(
            name="nothing arrived twice where duplicates are detected",
            passed=twice == 0,
            detail=f"{', '.join(strict)}: {counted(twice, 'duplicate', 'duplicates')}",
        )
    with_sessions = [one.path for one in entities if one.sessions]
    if with_sessions and evidence.knows_order:
        late = sum(audit.by_path[path].out_of_order for path in with_sessions)
        way = "whatever its way" if evidence.scenario.options.ordering == "session" else "on each way"
        yield Check(
            name=f"order was kept in every session, {way}",
            passed=late == 0,
            detail=f"{', '.join(with_sessions)}: {late:,} out of order",
        )
    yield Check(
        name="what arrived is what was sent",
        passed=not audit.altered and not audit.unexpected,
        detail=f"{_some(audit.altered, 'altered')}, {_some(audit.unexpected, 'sent by nobody')}",
    )


def _check_states(evidence: Evidence) -> Iterator[Check]:
    expect = evidence.scenario.expect
    if not evidence.knows_states:
        return
    for plan in evidence.scenario.entities:
        if not evidence.audit.by_path[plan.path].sent:
            continue  # an application of the user's need not send to all of them
        spans = evidence.recorder.failovers(plan.path)
        if path_key(plan.path) in map(path_key, expect.failover):
            yield _check_failover(evidence, plan, spans)
            if spans:
                yield _check_failback(evidence, plan, spans)
        else:
            yield Check(
                name=f"{plan.path} never left the primary",
                passed=not spans,
                detail=counted(len(spans), "failover", "failovers"),
            )


def _check_failover(evidence: Evidence, plan: EntityPlan, spans: Sequence[StateSpan]) -> Check:
    within = evidence.scenario.expect.within
    name = f"{plan.path} failed over within {within:g} s of the first failing send"
    if not spans:
        return Check(name=name, passed=False, detail="it never failed over")
    waits = []
    for span in spans:
        since = evidence.recorder.held_since(span.client, span.path, span.begins)
        if since is None:  # an application of the user's does not tell when its sends begin
            since = _last_fault(evidence, plan, before=span.begins)
        waits.append((since, span.begins))
    return _check_waits(evidence, name, waits, within=within)


def _check_failback(evidence: Evidence, plan: EntityPlan, spans: Sequence[StateSpan]) -> Check:
    within = evidence.scenario.expect.back_within
    name = f"{plan.path} was back on the primary within {within:g} s of the end of the outage"
    over = max((fault.ends for fault in evidence.recorder.faults if _concerns(fault, plan)), default=0.0)
    key = path_key(plan.path)
    final = {span.client: span.state for span in evidence.recorder.states if path_key(span.path) == key}
    last = {span.client: span.ends for span in spans}
    away = [client for client in last if final.get(client) != EntityState.HEALTHY.value]
    if away:
        return Check(name=name, passed=False, detail=f"{', '.join(away)} never came back")
    waits = [(over, max(over, ends)) for ends in last.values()]
    return _check_waits(evidence, name, waits, within=within)


def _check_waits(
    evidence: Evidence, name: str, waits: Sequence[tuple[float, float]], *, within: float
) -> Check:
    """No wait may last longer than promised. For how long the machine let everybody wait is not held against
    the client, and is told; if that was long, what is left over proves nothing either.
    """
    late = [evidence.recorder.lateness(begins, ends) for begins, ends in waits]
    longest = max(ends - begins for begins, ends in waits)
    passed = all(ends - begins <= within + more for (begins, ends), more in zip(waits, late, strict=True))
    detail = f"{longest:.2f} s" if len(waits) == 1 else f"{longest:.2f} s, the longest of {len(waits)}"
    if longest > within:
        detail += f"; the machine was late by {max(late):.2f} s"
    return Check(name=name, passed=passed, detail=detail, inconclusive=not passed and max(late) >= _TOO_LATE)


def _last_fault(evidence: Evidence, plan: EntityPlan, *, before: float) -> float:
    faults = [fault.begins for fault in evidence.recorder.faults if _concerns(fault, plan)]
    return max((begins for begins in faults if begins <= before), default=before)


def _concerns(fault: FaultSpan, plan: EntityPlan) -> bool:
    return fault.namespace == PRIMARY and (
        fault.entity is None or path_key(fault.entity) == path_key(plan.path)
    )


def _check_backlog(evidence: Evidence) -> Iterator[Check]:
    expect, sample = evidence.scenario.expect, evidence.recorder.samples[-1]
    moved = sum(run.moved for run in evidence.runs)
    if expect.failover and evidence.knows_states:
        went = sample.to_backlog + sample.to_spool
        yield Check(
            name="the backlog took what the primary could not",
            passed=went > 0,
            detail=f"{_messages(sample.to_backlog)}, of which the syphon moved {moved:,}",
        )
    if expect.spool:
        yield Check(
            name="the spool took what neither side could, and is empty",
            passed=sample.to_spool > 0 and not evidence.spooled,
            detail=f"{_messages(sample.to_spool)} went there, {len(evidence.spooled):,} are left",
        )
    if expect.put_aside:
        aside = max((run.waiting for run in evidence.runs), default=0)
        yield Check(
            name="the syphon put aside what its entity had no room for",
            passed=aside > 0,
            detail=f"{_messages(aside)} waited, {counted(len(evidence.runs), 'run', 'runs')}",
        )
    if not expect.waiting:
        left = [f"{one.path}: {one.message_id} in {one.place}" for one in evidence.backlog]
        yield Check(
            name="the backlog is empty",
            passed=not left,
            detail=_name(left, len(left)) if left else "no message and no dead letter is left",
        )


def _check_records(evidence: Evidence) -> Iterator[Check]:
    records = evidence.records
    if records is None:
        return
    lost = sum(
        (path_key(one.path), one.message_id) in evidence.redirected
        for one in evidence.audit.verdict.unaccounted
        if one.fate == "lost"
    )
    yield Check(
        name="the records say the same as the audit",
        passed=records.lost == lost
        and records.redirected == len(evidence.redirected)
        and (records.is_complete or not evidence.redirected),
        detail=f"verify: {records.redirected:,} redirected, {records.delivered:,} delivered, "
        f"{records.waiting:,} waiting, {records.dead_lettered:,} dead-lettered, {records.lost:,} lost",
    )


def _messages(number: int) -> str:
    return counted(number, "message", "messages")


def _name(found: Sequence[str], number: int) -> str:
    more = number - len(found[:_NAMED])
    return ", ".join(found[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _some(found: Sequence[str], what: str) -> str:
    return f"{len(found)} {what}" + (f" ({_name(found, len(found))})" if found else "")

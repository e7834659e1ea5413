"""What must be true of a history of the client when faults have healed and there was time enough."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pairbus.broker.counters import OperationKind
from pairbus.client.state.records import UNANSWERED, UNKNOWN
from pairbus.options import EntityState, StateChange
from pairbus.words import ENQUEUED_TIME

from .checker import stored
from .client_history import body_of
from .client_plan import PlannedCall
from .faults import Fault
from .loop import EPOCH
from .namespace import Attempt
from .pump_plan import PRIMARY, SECONDARY

if TYPE_CHECKING:
    from .client_history import ClientHistory

__all__ = ["check_client"]

# An answer that takes longer may come after its caller has gone another way.
_PROMPT = 0.25
# How soon sends find a secondary that is back; how long a call may take to say that it is down.
_RECOVERY = 10.0
_LOOK = 2.0
_DOWN = {"BacklogUnavailableError", "SpoolFullError"}
_OUTLAST = 60.0
# What has been sent is noted in the spool's cursor within this time.
_NOTED = 1.0
# Promises 3 and 4: what a failover and a failback may take beyond their intervals; what an attempt without an
# answer is given; how far apart faults are that have nothing to do with each other.
_LATEST = 2.0
_FIRST_ANSWER = 3.0
_NEARBY = 20.0
# Service Bus has milliseconds.
_EXACT = 0.002
# For these a session leaves its backlog queue.
_LASTING = {"full", "disabled"}
_SENDS = (OperationKind.SEND, OperationKind.SEND_REFUSED, OperationKind.PING)


def check_client(history: ClientHistory) -> list[str]:
    """What is wrong with a history of the client; nothing if the list is empty."""
    arrived = {
        queue.path: [str(one.properties.message_id) for one in stored(history.primary, queue.path)]
        for queue in history.primary.engine.list_queues()
    }
    calls = {name: call for call in (*history.plan.calls, *history.last_calls) for name in call.ids}
    return [
        *_check_places(history, arrived, calls),
        *_check_duplicates(history, arrived),
        *_check_order(history, arrived),
        *_check_cancelled(history, arrived),
        *_check_records(history),
        *_check_ledger(history),
        *_check_recovery(history),
        *_check_failovers(history),
        *_check_failbacks(history),
    ]


def _check_places(
    history: ClientHistory, arrived: dict[str, list[str]], calls: dict[str, PlannedCall]
) -> list[str]:
    """What was acknowledged is where it belongs, and nothing else is there."""
    wrong = [
        f"lost: {name} for {call.path}"
        for name, call in calls.items()
        if history.ended.get(call) == "done"
        and name not in arrived[call.path]
        and name not in history.cancelled
    ]
    for path in arrived:
        for sections in stored(history.primary, path):
            name = str(sections.properties.message_id)
            call = calls.get(name)
            if call is None or call.path != path:
                wrong.append(f"unexpected: {name} at {path}")
            elif (
                b"".join(sections.data_sections()) != body_of(call, name)
                or sections.properties.group_id != call.session
                or dict(sections.application_properties) != {"number": int(name[1:])}
            ):
                wrong.append(f"altered: {name}")
            elif sections.annotations[ENQUEUED_TIME] / 1000 < history.due.get(name, 0.0) - _EXACT:
                wrong.append(f"before its time: {name}")
    for queue in history.secondary.engine.list_queues():
        buried = stored(history.secondary, f"{queue.path}/$DeadLetterQueue")
        wrong += [f"buried: {one.properties.message_id!r}" for one in buried]
    return wrong


def _check_duplicates(history: ClientHistory, arrived: dict[str, list[str]]) -> list[str]:
    """A second copy has an excuse: somebody did not hear in time that a send was taken, or died."""
    copies = Counter(name for names in arrived.values() for name in names)
    twice = [name for name, count in copies.items() if count > 1]
    if history.plan.knobs.detects_duplicates:
        return [f"duplicated in spite of duplicate detection: {name}" for name in twice]
    attempts = _attempts(history)
    return [
        f"duplicated: {name}"
        for name in twice
        if not any(_is_excuse(history, attempt) for attempt in attempts[name])
        and name not in history.unsettled
    ]


def _attempts(history: ClientHistory) -> dict[str, list[Attempt]]:
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in (*history.primary.attempts, *history.secondary.attempts):
        for name in attempt.ids:
            attempts[name].append(attempt)
    return attempts


def _check_cancelled(history: ClientHistory, arrived: dict[str, list[str]]) -> list[str]:
    """What was cancelled does not come, unless it was sent twice and nobody knew."""
    attempts = _attempts(history)
    came = history.cancelled.intersection(name for names in arrived.values() for name in names)
    return [
        f"cancelled, and came: {name}"
        for name in sorted(came)
        if not any(_is_excuse(history, attempt) for attempt in attempts[name])
    ]


def _check_records(history: ClientHistory) -> list[str]:
    """What backlog queues have taken is on record, and nothing else; and so is what the primary may have
    taken before. Whoever dies may not come to it.
    """
    taken, sure, doubted, twice = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for attempt in history.secondary.attempts:
        if attempt.process is not None and attempt.process.is_alive:
            taken.update(attempt.ids)
    for row in history.records:
        kinds = {None: sure, UNKNOWN: doubted, UNANSWERED: twice}
        kinds[row.outcome][row.message_id] += 1
    wrong = [f"not on record: {name}" for name in taken if taken[name] > sure[name] + doubted[name]]
    everything = Counter(name for attempt in history.secondary.attempts for name in attempt.ids)
    wrong += [f"on record, and never taken: {name}" for name in sure if sure[name] > everything[name]]
    if not history.plan.knobs.hosts:
        direct = Counter(
            name
            for attempt in history.primary.attempts
            if attempt.process is not None
            and attempt.process.is_alive
            and attempt.process.name == "application"
            for name in attempt.ids
        )
        # What its sender died with is sent again by the next one, which cannot know of it.
        alive = [name for name in sure if taken[name] == everything[name]]
        wrong += [f"sent twice, and not on record: {name}" for name in alive if direct[name] > twice[name]]
    return wrong


def _is_excuse(history: ClientHistory, attempt: Attempt) -> bool:
    is_late = not attempt.is_known or attempt.seconds > _PROMPT or _was_given_up(history, attempt)
    return is_late or _died_with(history, attempt)


def _was_given_up(history: ClientHistory, attempt: Attempt) -> bool:
    """Whether its entity failed over, be it for the sake of another link, before its sender heard of it."""
    return any(
        change.path == attempt.path and attempt.begun <= at <= attempt.begun + attempt.seconds
        for at, change in history.changes
        if change.new is EntityState.FAILED_OVER
    )


def _died_with(history: ClientHistory, attempt: Attempt) -> bool:
    """Whether whoever heard of it may not have had the time to note it."""
    if attempt.process is None or attempt.process.is_alive:
        return False
    is_noted = not history.plan.knobs.hosts and all(fault.where != "disk" for fault in history.plan.faults)
    died_at = history.deaths.get(attempt.process)
    return not is_noted or died_at is None or attempt.at + attempt.seconds > died_at - _NOTED


def _check_ledger(history: ClientHistory) -> list[str]:
    """I8: what the client has recorded is what the namespaces have counted, up to what nobody has heard of.

    Not where the syphon sends by the same process, nor where a process has died with its sums.
    """
    if history.plan.knobs.hosts or history.plan.crashes or history.ledger is None:
        return []
    history.ledger.before_flush()
    known: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for (namespace, _, _, kind, *_), (count, maybe, _) in history.ledger.take().items():
        if kind in _SENDS:
            known[namespace] += count
            unknown[namespace] += maybe
    wrong: list[str] = []
    for one in (history.primary, history.secondary):
        counted = sum(one.counters.total(kind, connection="application") for kind in _SENDS)
        if not known[one.name] <= counted <= known[one.name] + unknown[one.name]:
            told = f"{known[one.name]} and {unknown[one.name]} more at most"
            wrong.append(f"the ledger is wrong: {counted} sends to {one.name}, it says {told}")
    return wrong


def _check_recovery(history: ClientHistory) -> list[str]:
    """No send says that both sides are down when the secondary has been well for a while."""
    wrong: list[str] = []
    for call, how in history.ended.items():
        begun = history.began[call]
        ends = [
            fault.end
            for fault in history.plan.faults
            if fault.where == SECONDARY and fault.begin <= begun + _OUTLAST
        ]
        # Who stood still cannot tell that from a secondary that is silent.
        stills = [deed for deed in history.plan.deeds if deed.kind == "stand still" and deed.at <= begun]
        ends += [deed.at + deed.seconds for deed in stills]
        knobs = history.plan.knobs
        told = {"BacklogUnavailableError"} if knobs.keeps_order else _DOWN
        # A lost answer is known when its time is over; then a link is opened soon.
        found = max(_RECOVERY, knobs.send_timeout + _LOOK + knobs.opening) + history.standstill
        if how in told and begun > max(ends, default=0.0) + found:
            wrong.append(f"told to be down long after it was back: {call}")
    return wrong


def _check_failovers(history: ClientHistory) -> list[str]:
    """An entity fails over for an outage, or by hand, and in time: whoever sends in one waits no longer."""
    plan = history.plan
    over = [
        change
        for at, change in history.changes
        if change.new is EntityState.FAILED_OVER and not _is_heard_late(history, change, at)
    ]
    is_calm = not plan.deeds and not plan.crashes
    wrong: list[str] = []
    # With an interval of 0 a send whose link is detached before its answer goes to the backlog.
    mild = {"busy", "full"} if plan.knobs.failover_interval == 0 else {"busy", "full", "disabled", "token"}
    is_mild = all(fault.kind in mild for fault in plan.faults if fault.where == PRIMARY)
    # Where nobody waits until a link is open, nothing is ever answered.
    waits = [plan.knobs.failover_interval or 60.0, *(call.timeout or 60.0 for call in plan.calls)]
    is_quick = plan.knobs.opening < min(waits)
    if is_mild and is_calm and is_quick and not plan.knobs.counts_all:
        wrong += [f"failed over without an outage: {change}" for change in over]
    if is_calm and not plan.knobs.keeps_order and plan.knobs.on_suspect == "hold":
        wrong += [
            f"held for {history.took[call]:.1f} s: {call}"
            for call in history.took
            if (longest := _longest_hold(history, call)) is not None and history.took[call] > longest
        ]
    return wrong


def _is_heard_late(history: ClientHistory, change: StateChange, at: float) -> bool:
    """Whether links were refused, and those who waited for that had given up when the SDK told it."""
    is_silence = "unanswered" in change.reason or "no answer" in change.reason
    since = at - history.plan.knobs.failover_interval - _FIRST_ANSWER
    return is_silence and any(since < one < at for one in history.primary.refusals.get(change.path, ()))


def _longest_hold(history: ClientHistory, call: PlannedCall) -> float | None:
    """How long a call may take that begins while nothing but an outage of the whole primary goes on; None
    where more goes wrong, or has gone wrong shortly before.
    """
    plan, begun = history.plan, history.began[call]
    near = [fault for fault in plan.faults if fault.begin < begun + _NEARBY and fault.end > begun - _NEARBY]
    is_plain = call.kind in ("one", "list") and call.cancelled_after is None and call.cancelled_with is None
    if len(near) != 1 or not is_plain:
        return None
    [fault] = near
    is_whole = fault.where == PRIMARY and fault.entity is None and fault.chance == 1.0
    has_begun = fault.begin <= begun and fault.end > begun + _NEARBY
    was_reached = any(
        call.path == one.path and one.at - EPOCH < fault.begin for one in history.primary.attempts
    )
    if fault.kind not in ("refuse", "silence") or not (is_whole and has_begun and was_reached):
        return None
    knobs = plan.knobs
    interval = knobs.failover_interval
    held = max(interval, min(_FIRST_ANSWER, knobs.send_timeout)) if interval else knobs.send_timeout
    return held + _LATEST + knobs.opening


def _check_failbacks(history: ClientHistory) -> list[str]:
    """An entity is back by a ping that was answered, or by hand, and in time."""
    plan = history.plan
    wrong: list[str] = []
    for at, change in history.changes:
        if change.new is not EntityState.HEALTHY or change.old is EntityState.SUSPECT:
            continue
        if "by hand" in change.reason:
            if all(deed.kind != "mark healthy" for deed in plan.deeds):
                wrong.append(f"back, and nobody has said so: {change}")
        elif any(_is_silenced(fault, change.path, at) for fault in plan.faults):
            wrong.append(f"back, and nothing answers: {change}")
    if not plan.crashes and not plan.deeds:
        soon = (
            plan.healed_at + plan.knobs.good_pings * plan.knobs.ping_interval + plan.knobs.opening + _LATEST
        )
        wrong += [
            f"back {at - plan.healed_at:.1f} s after all was well: {change}"
            for at, change in history.changes
            if change.new is EntityState.HEALTHY and change.old is not EntityState.SUSPECT
            if at > soon and not _goes_over_after(history, change.path, plan.healed_at, at)
        ]
    return wrong


def _is_silenced(fault: Fault, path: str, at: float) -> bool:
    """Whether a fault has let nothing through for as long as a ping is waited for."""
    # Connections, which may be refused, are those of a namespace.
    deaf = ("silence", "lose-request") if fault.entity else ("refuse", "silence", "lose-request")
    is_deaf = fault.kind in deaf and fault.chance == 1.0
    return (
        is_deaf
        and fault.where == PRIMARY
        and fault.entity in (None, path)
        and fault.begin + 11 < at < fault.end
    )


def _goes_over_after(history: ClientHistory, path: str, begin: float, end: float) -> bool:
    return any(
        begin < at < end and change.path == path and change.new is EntityState.FAILED_OVER
        for at, change in history.changes
    )


def _check_order(history: ClientHistory, arrived: dict[str, list[str]]) -> list[str]:
    """With `ordering="session"`, what was acknowledged comes in the order in which its caller sent it.

    A process that begins while the secondary is down does not know what the one before has left there.
    """
    if not history.plan.knobs.keeps_order:
        return []
    wrong: list[str] = []
    queues: dict[str, set[str]] = defaultdict(set)
    for attempt in history.secondary.attempts:
        for name in attempt.ids:
            queues[name].add(attempt.path)
    kept = [
        call
        for call in history.plan.calls
        if call.session is not None
        and call.kind not in ("schedule", "cancel")
        and history.ended.get(call) == "done"
    ]
    away = {fault.kind for fault in history.plan.faults if fault.where == SECONDARY}
    redirected = {(call.path, call.session) for call in kept if any(queues[name] for name in call.ids)}
    lines: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for call in kept:
        assert call.session is not None
        # What has never seen the backlog is in order across the death of its application as well.
        is_apart = away and (call.path, call.session) in redirected
        lines[call.path, call.session, history.lives[call] if is_apart else 0] += call.ids
    for (path, session, _), names in lines.items():
        if away & _LASTING and len(set().union(*(queues[name] for name in names))) > 1:
            continue  # a queue was full in the middle of the outage, and promises.md says what that means
        places = [arrived[path].index(name) for name in names if name in arrived[path]]
        if places != sorted(places):
            came = sorted(names, key=arrived[path].index)
            wrong.append(f"out of order in {path}/{session}: {' '.join(came)}")
    return wrong

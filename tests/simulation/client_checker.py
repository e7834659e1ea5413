"""What must be true of a history of the client when faults have healed and there was time enough."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pairbus.broker.counters import OperationKind

from .checker import stored
from .client_plan import PlannedCall
from .namespace import Attempt
from .pump_plan import SECONDARY

if TYPE_CHECKING:
    from .client_history import ClientHistory

__all__ = ["check_client"]

# An answer that takes longer may come after its caller has gone another way.
_PROMPT = 0.25
# How soon sends find a secondary that is back; how long a call may take to say that it is down.
_RECOVERY = 10.0
_DOWN = {"BacklogUnavailableError", "SpoolFullError"}
_OUTLAST = 60.0
# What has been sent is noted in the spool's cursor within this time.
_NOTED = 1.0
_SENDS = (OperationKind.SEND, OperationKind.SEND_REFUSED, OperationKind.PING)


def check_client(history: ClientHistory) -> list[str]:
    """What is wrong with a history of the client; nothing if the list is empty."""
    arrived = {
        queue.path: [str(one.properties.message_id) for one in stored(history.primary, queue.path)]
        for queue in history.primary.engine.list_queues()
    }
    calls = {name: call for call in history.plan.calls for name in call.ids}
    return [
        *_check_places(history, arrived, calls),
        *_check_duplicates(history, arrived),
        *_check_order(history, arrived),
        *_check_ledger(history),
        *_check_recovery(history),
    ]


def _check_places(
    history: ClientHistory, arrived: dict[str, list[str]], calls: dict[str, PlannedCall]
) -> list[str]:
    """What was acknowledged is where it belongs, and nothing else is there."""
    wrong = [
        f"lost: {name} for {call.path}"
        for name, call in calls.items()
        if history.ended.get(call) == "done" and name not in arrived[call.path]
    ]
    for path in arrived:
        for sections in stored(history.primary, path):
            name = str(sections.properties.message_id)
            call = calls.get(name)
            if call is None or call.path != path:
                wrong.append(f"unexpected: {name} at {path}")
            elif (
                b"".join(sections.data_sections()) != name.encode() * 5
                or sections.properties.group_id != call.session
                or dict(sections.application_properties) != {"number": int(name[1:])}
            ):
                wrong.append(f"altered: {name}")
    for queue in history.secondary.engine.list_queues():
        buried = stored(history.secondary, f"{queue.path}/$DeadLetterQueue")
        wrong += [f"buried: {one.properties.message_id!r}" for one in buried]
    return wrong


def _check_duplicates(history: ClientHistory, arrived: dict[str, list[str]]) -> list[str]:
    """A second copy has an excuse: somebody did not hear in time that a send was taken, or died."""
    copies = Counter(name for names in arrived.values() for name in names)
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in (*history.primary.attempts, *history.secondary.attempts):
        for name in attempt.ids:
            attempts[name].append(attempt)
    return [
        f"duplicated: {name}"
        for name, count in copies.items()
        if count > 1 and not any(_is_excuse(history, attempt) for attempt in attempts[name])
    ]


def _is_excuse(history: ClientHistory, attempt: Attempt) -> bool:
    return not attempt.is_known or attempt.seconds > _PROMPT or _died_with(history, attempt)


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
        told = {"BacklogUnavailableError"} if history.plan.knobs.keeps_order else _DOWN
        if how in told and begun > max(ends, default=0.0) + _RECOVERY:
            wrong.append(f"told to be down long after it was back: {call}")
    return wrong


def _check_order(history: ClientHistory, arrived: dict[str, list[str]]) -> list[str]:
    """With `ordering="session"`, what was acknowledged comes in the order in which its caller sent it.

    No send of a new process waits until it is known what the one before has left in the backlog.
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
        if call.session is not None and call.kind != "schedule" and history.ended.get(call) == "done"
    ]
    redirected = {(call.path, call.session) for call in kept if any(queues[name] for name in call.ids)}
    lines: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for call in kept:
        assert call.session is not None
        # What has never seen the backlog is in order across the death of its application as well.
        is_apart = (call.path, call.session) in redirected
        lines[call.path, call.session, history.lives[call] if is_apart else 0] += call.ids
    for (path, session, _), names in lines.items():
        if len(set().union(*(queues[name] for name in names))) > 1:
            continue  # a queue failed in the middle of the outage, and promises.md says what that means
        places = [arrived[path].index(name) for name in names if name in arrived[path]]
        if places != sorted(places):
            came = sorted(names, key=arrived[path].index)
            wrong.append(f"out of order in {path}/{session}: {' '.join(came)}")
    return wrong

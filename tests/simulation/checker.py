"""What must be true of a history when faults have healed and there was time enough."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from pairbus.amqp.message import MessageSections, scan
from pairbus.broker.links.wire import render_peeked

from .namespace import Attempt, SimulatedNamespace
from .pump_plan import DENIED, MISSING, PRIMARY, SECONDARY, PlannedMessage

if TYPE_CHECKING:
    from .pump_history import PumpHistory

__all__ = ["check_pump"]


def stored(namespace: SimulatedNamespace, path: str) -> list[MessageSections]:
    """The messages at a path, in their order."""
    found = namespace.queue(path).peek(0, 1 << 30, namespace.clock.now())
    return [scan(bytes(render_peeked(message))) for message in found]


def check_pump(history: PumpHistory) -> list[str]:
    """What is wrong with a history of the pump; nothing if the list is empty."""
    return [
        *_check_places(history),
        *_check_duplicates(history),
        *_check_order(history),
        *_check_receipts(history),
        *_check_doubts(history),
    ]


def _arrived(history: PumpHistory) -> dict[str, list[str]]:
    """Ids at each path, in order."""
    return {
        queue.path: [str(one.properties.message_id) for one in stored(history.primary, queue.path)]
        for queue in history.primary.engine.list_queues()
    }


def _buried(history: PumpHistory) -> dict[str, str]:
    return {
        str(one.properties.message_id): str(one.application_properties.get("DeadLetterReason"))
        for name in history.queues
        for one in stored(history.secondary, f"{name}/$DeadLetterQueue")
    }


def _check_places(history: PumpHistory) -> list[str]:
    """Each message is where it belongs, as it was: lost, unexpected, altered, buried alive."""
    wrong: list[str] = []
    planned = {message.id: message for message in history.plan.messages}
    left, buried = set(history.left()), _buried(history)
    found: dict[str, list[str]] = defaultdict(list)
    for queue in history.primary.engine.list_queues():
        for sections in stored(history.primary, queue.path):
            name = str(sections.properties.message_id)
            found[name].append(queue.path)
            wrong += _differences(planned.get(name), queue.path, sections)
    for name, message in planned.items():
        reason = buried.get(name)
        if reason is not None and reason != _proper_burial(message):
            wrong.append(f"buried: {name} for {message.path} as {reason}")
        if name in left and (message.path != DENIED or message.is_malformed):
            wrong.append(f"left behind: {name} for {message.path}")
        if not (found[name] or reason or name in left):
            wrong.append(f"lost: {name} for {message.path}")
    return wrong


def _proper_burial(message: PlannedMessage) -> str | None:
    if message.is_malformed:
        return "MalformedEnvelope"
    return {MISSING: "EntityNotFound", DENIED: "NotAuthorized"}.get(message.path)


def _differences(message: PlannedMessage | None, path: str, sections: MessageSections) -> list[str]:
    from .pump_history import body_of

    if message is None:
        return [f"unexpected: {sections.properties.message_id!r} at {path}"]
    if message.path != path or message.is_malformed:
        return [f"unexpected: {message.id} at {path}"]
    properties = {"number": int(message.id[1:])}
    same = (
        b"".join(sections.data_sections()) == body_of(message)
        and sections.properties.group_id == message.session
        and dict(sections.application_properties) == properties
    )
    return [] if same else [f"altered: {message.id}"]


def _check_duplicates(history: PumpHistory) -> list[str]:
    """A second copy has an excuse: nobody heard that the first was taken, or who heard it died."""
    wrong: list[str] = []
    attempts: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in history.primary.attempts:
        for name in attempt.ids:
            attempts[name].append(attempt)
    copies = Counter(name for names in _arrived(history).values() for name in names)
    for name, count in copies.items():
        if count > 1 and history.plan.knobs.detects_duplicates:
            wrong.append(f"duplicated in spite of duplicate detection: {name}")
        # One that nobody has heard of may arrive late, after the one that was made in its stead.
        if sum(not _is_excused(history, name, attempt) for attempt in attempts[name]) > 1:
            wrong.append(f"duplicated: {name}")
    return wrong


def _is_excused(history: PumpHistory, name: str, attempt: Attempt) -> bool:
    if not attempt.is_known or attempt.process is None:
        return True
    if history.ended.get(attempt.process, "killed") != "done":
        return True
    return name in history.unsettled


def _check_order(history: PumpHistory) -> list[str]:
    """Within a backlog queue, path and session, first copies come in the order of the backlog."""
    wrong: list[str] = []
    if history.plan.knobs.rivals:
        return wrong  # order is kept by one pump alone
    arrived: dict[str, int] = {}
    for at_path in _arrived(history).values():
        for place, name in enumerate(at_path):
            arrived.setdefault(name, place)
    lanes: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (queue, _), message in sorted(history.numbers.items()):
        if message.session is not None and message.id in arrived:
            lanes[queue, message.path, message.session].append(message.id)
    for lane, names in lanes.items():
        places = [arrived[name] for name in names]
        if places != sorted(places):
            came = sorted(names, key=lambda name: arrived[name])
            wrong.append(f"out of order in {'/'.join(lane[1:])}: {' '.join(came)}")
    return wrong


def _check_receipts(history: PumpHistory) -> list[str]:
    """What a receipt says is so."""
    wrong: list[str] = []
    arrived = {name for names in _arrived(history).values() for name in names}
    for (queue, number), outcome in history.disk.outcomes.items():
        message = history.numbers[queue, number]
        if outcome == "moved" and message.id not in arrived:
            wrong.append(f"a receipt for what never arrived: {message.id}")
    return wrong


def _check_doubts(history: PumpHistory) -> list[str]:
    """Who has more copies than receipts is in doubt, and nobody is without a reason."""
    rows = history.disk.rows
    moved = Counter(row["message_id"] for row in rows if row["outcome"] == "moved")
    doubted = {row["message_id"] for row in rows if row["unsure"]}
    copies = Counter(name for names in _arrived(history).values() for name in names)
    beyond = {name for name in copies if copies[name] > moved[name]}
    wrong: list[str] = []
    # A namespace that restarts forgets locks, and that their messages were ever delivered.
    if not any(fault.kind == "restart" and fault.where == SECONDARY for fault in history.plan.faults):
        wrong += [f"more copies than receipts, and not in doubt: {name}" for name in sorted(beyond - doubted)]
    if _is_orderly(history):
        wrong += [f"in doubt without a reason: {name}" for name in sorted(doubted - history.primary.unheard)]
    return wrong


def _is_orderly(history: PumpHistory) -> bool:
    """Whether no pump died and none has lost a lock."""
    is_troubled = history.lost_locks or any(fault.where != PRIMARY for fault in history.plan.faults)
    return not is_troubled and set(history.ended.values()) == {"done"}

"""The audit: of every message that an application tried to send, what became of it, by its id.

Rules
1. A message has arrived when each node that it was for (a queue, or every subscription of a topic) has
   delivered it to a receiver.
2. A send that returned is a promise. Its message has arrived, or it lies in a queue or a spool (waiting), or
   among dead letters; else it is lost, and that alone is a failure of the system.
3. A send that raised is no promise: if its message is nowhere it was refused, and the application knows. One
   whose outcome is unknown may or may not have arrived; neither is wrong.
4. A message is duplicated when a node has it under two sequence numbers. To be delivered again after a lost
   lock is no duplicate: the number is the same.
5. Order is judged for each node and session, among messages that went the same way: straight to the primary,
   or by one backlog queue. Between two ways it is promised by `ordering="session"` alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pairbus.pairing.names import path_key

from .messages import Arrival, Resting, SentMessage
from .result import DrillVerdict, MessageFate, Unaccounted

_Key = tuple[str, str]  # path and message id
# So many are named; all are counted.
_NAMED = 1000
# The worst first, when not all can be named.
_ORDER: Sequence[MessageFate] = ("lost", "dead-lettered", "waiting", "unknown", "refused", "delivered")


@dataclass(slots=True)
class PathAudit:
    """What became of the messages of one entity."""

    sent: int = 0
    delivered: int = 0
    duplicated: int = 0
    lost: int = 0
    refused: int = 0
    out_of_order: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The verdict, the same by entity, and what else was found. `unexpected` messages arrived and were sent
    by nobody; `altered` ones arrived with another body.
    """

    verdict: DrillVerdict
    by_path: Mapping[str, PathAudit]
    unexpected: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()


@dataclass(slots=True)
class _Seen:
    """What is known of one message besides its sending."""

    numbers: dict[str, set[int]] = field(default_factory=dict)  # sequence numbers by node
    checksums: set[int | None] = field(default_factory=set)
    resting: list[Resting] = field(default_factory=list)

    @property
    def is_duplicated(self) -> bool:
        return any(len(numbers) > 1 for numbers in self.numbers.values())


def audit(
    sent: Sequence[SentMessage],
    arrivals: Sequence[Arrival],
    resting: Iterable[Resting],
    *,
    nodes: Mapping[str, Sequence[str]],
    queues: Mapping[_Key, str] | None = None,
    ordered_across: bool = False,
) -> Audit:
    """Judge. `arrivals` are in the order in which they came; `nodes` are those of each entity; `queues` says
    by which backlog queue a message went, by path and id. With `ordered_across` order is judged whatever the
    way.
    """
    seen = _gather(arrivals, resting)
    late = _find_late(sent, arrivals, {} if ordered_across else _ways(sent, queues or {}))
    book = _Book(nodes)
    for message in sent:
        key = _key(message.path, message.message_id)
        book.enter(message, seen.get(key) or _Seen(), is_late=key in late)
    unexpected = [f"{path}: {identity}" for path, identity in seen.keys() - book.fates.keys()]
    return Audit(
        verdict=_sum_up(book.by_path, book.fates, book.found),
        by_path=book.by_path,
        unexpected=tuple(sorted(unexpected)),
        altered=tuple(book.altered),
    )


class _Book:
    """Judges one message after the other, and adds up."""

    def __init__(self, nodes: Mapping[str, Sequence[str]]) -> None:
        self._nodes = {path_key(path): tuple(names) for path, names in nodes.items()}
        self._spellings = {path_key(path): path for path in nodes}
        self.by_path = {path: PathAudit() for path in nodes}
        self.fates: dict[_Key, MessageFate] = {}
        self.found: list[Unaccounted] = []
        self.altered: list[str] = []

    def enter(self, message: SentMessage, here: _Seen, *, is_late: bool) -> None:
        key = _key(message.path, message.message_id)
        fate, note = _judge(message, here, self._nodes.get(key[0], ()))
        self.fates[key] = fate
        if message.checksum is not None and here.checksums - {None, message.checksum}:
            self.altered.append(message.message_id)
        told = _describe(message, fate, note, here=here, is_late=is_late)
        if told is not None:
            self.found.append(told)
        counts = self.by_path.setdefault(self._spellings.get(key[0], message.path), PathAudit())
        _count(counts, fate, is_duplicated=here.is_duplicated, is_late=is_late)


def _key(path: str, message_id: str) -> _Key:
    return path_key(path), message_id


def _gather(arrivals: Iterable[Arrival], resting: Iterable[Resting]) -> dict[_Key, _Seen]:
    seen: dict[_Key, _Seen] = {}
    for one in arrivals:
        here = seen.setdefault(_key(one.path, one.message_id), _Seen())
        here.numbers.setdefault(one.node, set()).add(one.sequence_number)
        here.checksums.add(one.checksum)
    for lying in resting:
        seen.setdefault(_key(lying.path, lying.message_id), _Seen()).resting.append(lying)
    return seen


def _judge(message: SentMessage, here: _Seen, nodes: Sequence[str]) -> tuple[MessageFate, str]:
    missing = [node for node in nodes if node not in here.numbers]
    if nodes and not missing:
        return "delivered", ""
    waiting = [one for one in here.resting if not one.is_dead]
    if waiting:
        return "waiting", f"lies in {waiting[0].place}"
    if here.resting:
        dead = here.resting[0]
        return "dead-lettered", f"in {dead.place}: {dead.reason or 'no reason given'}"
    if message.outcome == "raised":
        return "refused", message.error
    if message.outcome != "returned":
        return "unknown", message.error or "the send had not ended when the drill did"
    where = f"never arrived at {', '.join(missing)}" if missing else "never arrived"
    return "lost", f"sent by {message.route or 'an unknown way'}, {where}"


def _describe(
    message: SentMessage, fate: MessageFate, note: str, *, here: _Seen, is_late: bool
) -> Unaccounted | None:
    if fate == "delivered":
        told = ["arrived more than once"] if here.is_duplicated else []
        told += ["arrived after a later one of its session"] if is_late else []
        if not told:
            return None
        note = ", ".join(told)
    return Unaccounted(message_id=message.message_id, path=message.path, fate=fate, note=note)


def _count(counts: PathAudit, fate: MessageFate, *, is_duplicated: bool, is_late: bool) -> None:
    counts.sent += 1
    counts.delivered += fate == "delivered"
    counts.lost += fate == "lost"
    counts.refused += fate == "refused"
    counts.duplicated += is_duplicated
    counts.out_of_order += is_late


def _sum_up(
    by_path: Mapping[str, PathAudit], fates: Mapping[_Key, MessageFate], found: list[Unaccounted]
) -> DrillVerdict:
    judged = list(fates.values())
    found.sort(key=lambda one: (_ORDER.index(one.fate), one.path))
    return DrillVerdict(
        sent=len(judged),
        delivered=judged.count("delivered"),
        duplicated=sum(one.duplicated for one in by_path.values()),
        waiting=judged.count("waiting"),
        dead_lettered=judged.count("dead-lettered"),
        refused=judged.count("refused"),
        unknown=judged.count("unknown"),
        lost=judged.count("lost"),
        out_of_order=sum(one.out_of_order for one in by_path.values()),
        unaccounted=tuple(found[:_NAMED]),
    )


def _ways(sent: Iterable[SentMessage], queues: Mapping[_Key, str]) -> dict[_Key, str]:
    """By which way each message went: what was spooled comes later than what was not."""
    ways = {}
    for message in sent:
        key = _key(message.path, message.message_id)
        ways[key] = f"{'spool ' if message.route == 'spool' else ''}{queues.get(key, 'primary')}"
    return ways


def _find_late(
    sent: Iterable[SentMessage], arrivals: Iterable[Arrival], ways: Mapping[_Key, str]
) -> set[_Key]:
    """The messages that arrived after a later one of the same session, node and way."""
    positions = {
        _key(message.path, message.message_id): message.position
        for message in sent
        if message.session is not None
    }
    highest: dict[tuple[str, str, str], int] = {}
    known: set[tuple[str, str]] = set()
    late = set()
    for one in arrivals:
        key = _key(one.path, one.message_id)
        if one.session is None or key not in positions or (one.node, one.message_id) in known:
            continue
        known.add((one.node, one.message_id))
        line = (one.node, one.session, ways.get(key, ""))
        if positions[key] < highest.get(line, -1):
            late.add(key)
        highest[line] = max(positions[key], highest.get(line, -1))
    return late

"""What a pre-flight check finds, and the rules by which it finds it. Nothing here asks anybody.

A *finding* is an error (the pair would not work) or a warning (it would, with a drawback that someone should
know of). Notes are neither: they say what was looked at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.headroom import MAX_OVERHEAD
from pairbus.pairing.names import Endpoint, backlog_queue_names, parse_backlog_queue_name
from pairbus.plumbing.wording import counted, time_span

from .provisioner import BacklogQueueReport, ProvisioningReport

Severity = Literal["error", "warning", "note"]

# From here on a held send takes longer than most web servers let a request take.
_LONG_HOLD = 30.0
# With these a backlog queue does not take, or does not keep, what is sent to it.
_FATAL = {"requires_session", "status", "forward_to"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The outage to be ready for. Without a rate, capacity is given in messages only."""

    outage: float
    rate: float | None = None
    message_size: int = 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: `topic` groups findings, `subject` is what it is about."""

    severity: Severity
    topic: str
    subject: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the backlog queues have room for."""

    free_bytes: int
    messages: int
    hours: float | None


def judge_names(name: str, endpoint: Endpoint, *, count: int, entities: Sequence[str]) -> Iterator[Finding]:
    """What the backlog queues are called, and whether everybody will call them so."""
    names = backlog_queue_names(name, count)
    last = f" to {names[-1].rpartition('/')[2]}" if count > 1 else ""
    yield Finding("note", "names", name, f"backlog queues: {names[0]}{last}")
    if name == f"{endpoint.host.replace('.', '-').replace(':', '-')}-{endpoint.port}":
        text = "the name comes from an address, which others may see differently; set primary_name"
        yield Finding("warning", "names", name, text)
    for path in entities:
        if parse_backlog_queue_name(path) is not None:
            yield Finding("warning", "names", path, "this is a backlog queue, not an entity to send to")


def judge_options(options: SendAvailabilityOptions) -> Iterator[Finding]:
    """What callers will feel."""
    interval = options.failover_interval
    if options.on_suspect == "hold" and interval >= _LONG_HOLD:
        text = (
            f"when an outage begins, a send may be held for {interval:g} s; callers that cannot wait need a "
            "timeout or a shorter interval"
        )
        yield Finding("note", "hold", "failover_interval", text)
    yield from (Finding("warning", "hold", "send_timeout", text) for text in options.doubts)


def judge_queues(report: ProvisioningReport) -> Iterator[Finding]:
    """Whether the backlog queues are there, and as they should be."""
    if report.state == "not_permitted":
        text = (
            "no Manage claim, which a sender does not need; settings and capacity of the backlog queues "
            "could not be looked at"
        )
        yield Finding("note", "claims", "secondary", text)
        return
    missing = [queue.name for queue in report.queues if not queue.is_there]
    if missing:
        text = "missing; run `pairbus provision` with the Manage claim"
        yield Finding("error", "backlog", _several(missing), text)
    for name in report.extra:
        yield Finding("warning", "backlog", name, "has an index beyond the count: no sender uses it")
    yield from _judge_differences(report.queues)


def _judge_differences(queues: Sequence[BacklogQueueReport]) -> Iterator[Finding]:
    """One finding for a difference, however many queues have it."""
    having: dict[tuple[str, str], list[str]] = {}
    for queue in queues:
        for difference in queue.differences:
            having.setdefault((difference.setting, str(difference)), []).append(queue.name)
    for (setting, text), names in having.items():
        topic = "locks" if setting == "lock_duration" else "settings"
        yield Finding("error" if setting in _FATAL else "warning", topic, _several(names), text)


def judge_contents(waiting: int, dead: int) -> Iterator[Finding]:
    """What lies in the backlog already."""
    if waiting:
        what = counted(waiting, "message waits", "messages wait")
        text = f"{what} in the backlog: `pairbus syphon run --once` moves what can be moved"
        yield Finding("warning", "backlog", "secondary", text)
    if dead:
        what = counted(dead, "message is a dead letter", "messages are dead letters")
        text = f"{what} of the backlog: `pairbus redrive --dry-run` shows why"
        yield Finding("warning", "backlog", "secondary", text)


def measure_capacity(free: int, plan: Plan) -> Capacity:
    """How many messages fit into the free bytes, and how long that lasts."""
    size = plan.message_size + MAX_OVERHEAD
    hours = free / (size * plan.rate) / 3600.0 if plan.rate else None
    return Capacity(free_bytes=free, messages=free // size, hours=hours)


def judge_capacity(capacity: Capacity, plan: Plan) -> Finding:
    """Whether the backlog outlasts the outage."""
    room = f"room for {capacity.messages:,} messages of {plan.message_size:,} bytes"
    if capacity.hours is None:
        return Finding("note", "capacity", "secondary", f"{room}; give a rate to have it in hours")
    text = f"{room}: {capacity.hours:.1f} h at {plan.rate:,.10g} a second"
    if capacity.hours * 3600.0 >= plan.outage:
        return Finding("note", "capacity", "secondary", text)
    needed = f"an outage of {time_span(plan.outage)} needs more or larger backlog queues"
    return Finding("warning", "capacity", "secondary", f"{text}; {needed}")


def judge_duplicates(path: str, window: float | None, *, outage: float) -> Iterator[Finding]:
    """Judge duplicate detection by its window; None if it is off."""
    if window is None:
        text = "no duplicate detection: a message whose fate is not known may arrive twice"
        yield Finding("warning", "duplicates", path, text)
    elif window <= outage:
        text = (
            f"duplicates are found for {time_span(window)}, which is not longer than an outage of "
            f"{time_span(outage)} and the drain after it"
        )
        yield Finding("warning", "duplicates", path, text)


def judge_headroom(path: str, limit: int, *, backlog_limit: int, compressing: bool) -> Iterator[Finding]:
    """Whether what the entity takes fits into the backlog, envelope included."""
    room = backlog_limit - MAX_OVERHEAD
    if limit <= room:
        return
    helped = "are compressed for the backlog, or refused" if compressing else "are refused"
    # Equal limits, the usual case, leave a sliver that compression nearly always covers.
    severity: Severity = "note" if limit <= backlog_limit and compressing else "warning"
    text = f"takes messages of {limit:,} bytes; while it is down, those above {room:,} {helped}"
    yield Finding(severity, "headroom", path, text)


def _several(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"

"""A drill in a sentence and a few figures."""

from collections.abc import Iterator
from dataclasses import dataclass

from pairbus.drill.result import DrillResult, FaultSpan, StateSpan
from pairbus.plumbing.wording import counted

from .wording import name_state, write_rate, write_seconds, write_sum

#: What stands before a verdict, and the class of its colour; what is neither passed nor failed has neither.
SIGNS = {"passed": ("✓", "pass"), "inconclusive": ("?", "doubt")}
FAILED = ("✗", "fail")
# How scenarios call the namespace whose faults bring no failover.
_SECONDARY = "secondary"


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that matters: what it is, how it is written, and what there is to say about it."""

    name: str
    value: str
    note: str = ""


def judge(result: DrillResult) -> str:
    """In one word: a drill in which nothing was sent has kept its promises, and still proves nothing."""
    if not result.verdict.sent:
        return "nothing proved"
    if result.inconclusive:
        return "inconclusive"
    return "passed" if result.passed else "failed"


def sum_up(result: DrillResult) -> list[str]:
    """The verdict in plain sentences: how many messages were sent, arrived, and are lost."""
    verdict = result.verdict
    if not verdict.sent:
        return ["No messages were sent.", "The drill proves nothing."]
    outage = find_outage(result)
    through = f" through {_outage_words(outage)}" if outage else ""
    return [
        f"{counted(verdict.sent, 'message', 'messages')} sent{through}.",
        f"{verdict.delivered:,} arrived.",
        "None lost." if verdict.is_clean else f"{verdict.lost:,} lost.",
    ]


def tell_rest(result: DrillResult) -> str:
    """What else is to be said of the messages: those that are accounted for, and did not simply arrive."""
    told = "; ".join(_exceptions(result))
    return f"{told}." if told else ""


def _exceptions(result: DrillResult) -> Iterator[str]:
    verdict = result.verdict
    if verdict.duplicated:
        yield f"{verdict.duplicated:,} arrived more than once"
    if verdict.waiting:
        yield f"{counted(verdict.waiting, 'still waits', 'still wait')} in the backlog"
    if verdict.dead_lettered:
        yield f"{verdict.dead_lettered:,} dead-lettered"
    if verdict.refused:
        yield f"{verdict.refused:,} refused, and the application was told"
    if verdict.unknown:
        yield f"{verdict.unknown:,} of unknown outcome"


def _outage_words(seconds: float) -> str:
    words = write_seconds(seconds)
    # "8 s", "11 s", "18 s" and "80 s" begin with a vowel when they are read aloud.
    number = words.split(" ")[0].split(".")[0]
    return f"{'an' if number.startswith('8') or number in ('11', '18') else 'a'} {words} outage"


def fates_of(result: DrillResult) -> list[tuple[str, int]]:
    """Every message once, by what became of it; a message that arrived twice is among `arrived twice`."""
    verdict = result.verdict
    return [
        ("arrived", verdict.delivered - verdict.duplicated),
        ("arrived more than once", verdict.duplicated),
        ("waiting", verdict.waiting),
        ("dead-lettered", verdict.dead_lettered),
        ("refused", verdict.refused),
        ("unknown", verdict.unknown),
        ("lost", verdict.lost),
    ]


def find_outage(result: DrillResult) -> float:
    """How long something was broken: the time that any fault covers, those side by side counted once."""
    total, reached = 0.0, 0.0
    for fault in sorted(result.faults, key=lambda fault: fault.begins):
        begins = max(fault.begins, reached)
        if fault.ends > begins:
            total += fault.ends - begins
            reached = fault.ends
    return total


def find_failover(result: DrillResult) -> float | None:
    """How long the slowest failover took, from its fault, or, again, from the end of health; None if none."""
    found, healthy = [], dict[tuple[str, str], StateSpan]()
    for span in sorted(result.states, key=lambda span: span.begins):
        lane = (span.path, span.client)
        if name_state(span.state) == "healthy":
            healthy[lane] = span
        elif name_state(span.state) == "failed over" and (cause := _cause_of(span, result.faults)):
            before = healthy.get(lane)
            again = before is not None and before.begins >= cause.begins
            found.append(span.begins - (before.ends if before and again else cause.begins))
    return max(found, default=None)


def _cause_of(span: StateSpan, faults: tuple[FaultSpan, ...]) -> FaultSpan | None:
    """The latest fault that concerned the entity and was there, or just over, when the state began."""
    concerned = [
        fault
        for fault in faults
        if fault.namespace != _SECONDARY
        and fault.entity in (None, span.path)
        and fault.begins <= span.begins <= fault.ends + 1
    ]
    return max(concerned, key=lambda fault: fault.begins, default=None)


def tell_figures(result: DrillResult) -> str:
    """The key figures in a line."""
    return ", ".join(f"{figure.name} {figure.value}" for figure in key_figures(result))


def key_figures(result: DrillResult) -> Iterator[Figure]:
    """What a reader with one minute wants to know."""
    failover = find_failover(result)
    if failover is not None:
        yield Figure("failover", write_seconds(failover), "from the fault, the slowest")
    if result.entities:
        slowest = max(result.entities, key=lambda entity: entity.longest_send)
        if slowest.longest_send:  # an application of others tells only that a send has ended
            yield Figure("longest send", write_seconds(slowest.longest_send), slowest.path)
    backlog = sum(entity.to_backlog for entity in result.entities)
    spool = sum(entity.to_spool for entity in result.entities)
    if result.entities:
        note = f"and {spool:,} through the spool" if spool else "messages"
        yield Figure("through the backlog", f"{backlog:,}", note)
    drain = result.drain
    if drain is not None:
        rate = write_rate(drain.moved / drain.seconds) if drain.seconds > 0 else "–"
        yield Figure("drained at", rate, f"{drain.moved:,} in {write_seconds(drain.seconds)}")
    cost = result.cost
    if cost is not None:
        note = counted(cost.operations, "operation", "operations")
        yield Figure("cost", f"{write_sum(cost.total)} {cost.currency}", note)

"""What a drill found: plain values, the same in the report, in JSON and on the terminal.

Times are seconds since the drill began. Counts in samples are sums so far, so that a chart takes the
difference of two of them for a rate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pairbus.pump.summary import PumpSummary
    from pairbus.spark import SyphonSummary

#: The form of the JSON; it changes when a reader of the old form would go wrong.
FORM = 1

#: What became of a message that an application tried to send. `lost` alone is a failure of the system: the
#: send returned, and the message is nowhere. `refused`: the send raised, and the application knows.
MessageFate = Literal["delivered", "waiting", "dead-lettered", "refused", "unknown", "lost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A stretch of the drill: `healthy`, `outage`, `recovery`, `drain`, `verdict`."""

    name: str
    begins: float
    ends: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultSpan:
    """Something that was broken on purpose; `entity` is None for a whole namespace."""

    namespace: str
    kind: str
    entity: str | None
    begins: float
    ends: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpan:
    """How long an entity was in a state, as one client saw it, and what brought it there."""

    client: str
    path: str
    state: str
    begins: float
    ends: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Sums so far. `backlog` is no sum: what lies in the backlog queues at that moment, `spooled` what lies
    on the applications' disks, and `held` how many sends wait for their answer.
    """

    at: float
    to_primary: int
    to_backlog: int
    to_spool: int
    refused: int
    received: int
    moved: int
    backlog: int
    spooled: int
    held: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityResult:
    """One queue or topic, and what arrived there; of a topic, at every subscription."""

    path: str
    kind: Literal["queue", "topic"]
    sent: int
    to_primary: int
    to_backlog: int
    to_spool: int
    refused: int
    delivered: int
    duplicated: int
    missing: int
    pings: int
    failovers: int
    longest_send: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRun:
    """One run over the backlog, until it was empty or held only what had to wait."""

    moved: int
    dead_lettered: int
    waiting: int
    bytes: int
    seconds: float
    slowest_path: str | None

    @staticmethod
    def of(summary: PumpSummary | SyphonSummary) -> DrainRun:
        """What a pump, or the syphon, says of its run."""
        return DrainRun(**{one.name: getattr(summary, one.name) for one in dataclasses.fields(DrainRun)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain(DrainRun):
    """All runs of the syphon together."""

    engine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unaccounted:
    """A message that did not simply arrive, by name."""

    message_id: str
    path: str
    fate: MessageFate
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillVerdict:
    """Every message by what became of it; `duplicated` ones are among those delivered."""

    sent: int
    delivered: int
    duplicated: int
    waiting: int
    dead_lettered: int
    refused: int
    unknown: int
    lost: int
    out_of_order: int
    unaccounted: tuple[Unaccounted, ...] = ()

    @property
    def is_clean(self) -> bool:
        return self.lost == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One promise of a scenario. `inconclusive`: the machine was too late for anybody to tell."""

    name: str
    passed: bool
    detail: str
    inconclusive: bool = False

    @property
    def word(self) -> str:
        if self.passed:
            return "passed"
        return "inconclusive" if self.inconclusive else "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostLine:
    """What one stage cost; money is a decimal number as text."""

    name: str
    operations: int
    cost: str
    derived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The bill of the drill's traffic by the price sheet."""

    currency: str
    prices_as_of: str
    total: str
    in_outages: str
    operations: int
    stages: tuple[CostLine, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    """A whole drill."""

    scenario: str
    title: str
    story: str
    seed: int
    began: float
    seconds: float
    version: str
    options: Mapping[str, Any]
    phases: tuple[Phase, ...]
    faults: tuple[FaultSpan, ...]
    states: tuple[StateSpan, ...]
    samples: tuple[Sample, ...]
    entities: tuple[EntityResult, ...]
    drain: Drain | None
    verdict: DrillVerdict
    checks: tuple[Check, ...]
    cost: Cost | None
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether something was sent, nothing is missing, and every promise of the scenario came true."""
        return self.verdict.sent > 0 and self.verdict.is_clean and all(check.passed for check in self.checks)

    @property
    def inconclusive(self) -> bool:
        """Whether nothing is missing and no promise was broken, but some could not be judged."""
        judged = self.verdict.sent > 0 and self.verdict.is_clean and not self.passed
        return judged and all(check.passed or check.inconclusive for check in self.checks)

    def describe(self) -> dict[str, Any]:
        """The result as JSON has it."""
        told = {"form": FORM, "passed": self.passed, "inconclusive": self.inconclusive}
        return {**told, **dataclasses.asdict(self)}

"""What a drain would do, told before anything moves."""

import asyncio
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any

from pairbus.cost.sheet import PriceSheet, default_sheet
from pairbus.metering import units
from pairbus.pairing.names import path_key
from pairbus.pump.options import PumpOptions
from pairbus.sdk.administration import TROUBLES, describe_trouble

from .backlog import Backlog
from .discovery import administration, discover, refuse_bare
from .survey import survey_queues

# A namespace has ten thousand entities at most, listed a hundred at a time.
_LIST_LIMIT = 120.0
# Stands for the path of messages that have none.
_NOWHERE = "(none)"
# A message that is moved is delivered, sent and completed.
_OPERATIONS_EACH = 3


@dataclass(slots=True)
class PathPlan:
    """What waits for one path; `oldest` in seconds."""

    messages: int = 0
    bytes: int = 0
    oldest: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)
    is_missing: bool = False

    def problems(self) -> list[str]:
        """In words."""
        told = [f"{count:,} {reason}" for reason, count in self.reasons.items()]
        return ["there is no such entity", *told] if self.is_missing else told

    @property
    def poison(self) -> int:
        return self.messages if self.is_missing else sum(self.reasons.values())


@dataclass(slots=True, kw_only=True)
class BacklogPlan:
    """What a drain would do. The cost is reckoned with the dearest step of the price sheet."""

    #: Messages a second: what was asked for, or what the tier leaves for a drain if that is less.
    rate: float
    paths: dict[str, PathPlan] = field(default_factory=dict)
    dead_letters: int = 0
    operations: int = 0
    cost: str = "0"
    currency: str = ""
    notes: tuple[str, ...] = ()

    @property
    def messages(self) -> int:
        return sum(path.messages for path in self.paths.values())

    @property
    def bytes(self) -> int:
        return sum(path.bytes for path in self.paths.values())

    @property
    def seconds(self) -> float:
        return self.messages / self.rate

    @property
    def poison(self) -> int:
        """Messages that would end in the dead letters."""
        return sum(path.poison for path in self.paths.values())

    def to_dict(self) -> dict[str, Any]:
        sums = {name: getattr(self, name) for name in ("messages", "bytes", "seconds", "poison")}
        return {**sums, **asdict(self)}


async def plan_backlog(
    backlog: Backlog, options: PumpOptions, *, rate: float, now: float, sheet: PriceSheet | None = None
) -> BacklogPlan:
    """Look through the whole backlog of a pair. Without a sheet, prices are those that come with Pairbus."""
    found = await discover([backlog])
    refuse_bare(found)
    plan = BacklogPlan(rate=rate, notes=found.notes)
    async for seen in survey_queues(backlog.pair, [queue.name for queue in found.queues], options, now=now):
        if seen.is_dead:
            plan.dead_letters += 1
            continue
        path = plan.paths.setdefault(path_key(seen.path) or _NOWHERE, PathPlan())
        path.messages += 1
        path.bytes += seen.bytes
        path.oldest = max(path.oldest, now - seen.enqueued)
        plan.operations += _OPERATIONS_EACH * units(seen.bytes)
        if seen.reason is not None:
            reason = seen.reason.partition(":")[0]
            path.reasons[reason] = path.reasons.get(reason, 0) + 1
    await _find_missing(backlog, plan)
    sheet = sheet or default_sheet()
    dearest = max(step.price for step in sheet.standard_operations.steps)
    plan.cost = f"{Decimal(plan.operations) / 1_000_000 * dearest:.6f}"
    plan.currency = sheet.currency
    return plan


async def _find_missing(backlog: Backlog, plan: BacklogPlan) -> None:
    """Mark the paths that the primary does not have, if its entities may be listed."""
    names: set[str] = set()
    try:
        async with asyncio.timeout(_LIST_LIMIT), administration(backlog.pair.primary) as admin:
            for entities in (admin.list_queues(), admin.list_topics()):
                names.update([path_key(entity.name) async for entity in entities])
    except TROUBLES as error:
        plan.notes += (f"the entities of the primary cannot be listed: {describe_trouble(error)}",)
        return
    for name, path in plan.paths.items():
        path.is_missing = name != _NOWHERE and name not in names

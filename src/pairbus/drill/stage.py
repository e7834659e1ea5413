"""The stage of a drill: two embedded namespaces, their entities, and the faults that the scenario plans.

The broker runs in this process, on a thread of its own. In a process of its own it would have a core for
itself, which it does not need at the rates of a drill, and cost a second of start-up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from pairbus.broker import Broker, NamespaceHandle, QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.broker.engine.errors import Refused
from pairbus.broker.faults.plan import CLEAR, FaultStep
from pairbus.pairing.names import backlog_queue_names
from pairbus.pump.pair import PumpPair

from .result import FaultSpan
from .scenario import PRIMARY, SECONDARY, EntityPlan, Scenario

PRIMARY_NAME = "contoso"
SECONDARY_NAME = "contoso-dr"
# The shortest that the service takes: what a receiver held when its line was lost comes back after it. A
# session comes back with the line, and its lock is longer than any drill, so that nobody has to renew it.
_LOCK = 5.0
_SESSION_LOCK = 300.0
T = TypeVar("T")


class DrillStage:
    """Two namespaces with the entities of a scenario. Use it with `with`."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self._broker = Broker({PRIMARY_NAME: 0, SECONDARY_NAME: 0})
        self.backlog_queues = backlog_queue_names(PRIMARY_NAME, scenario.options.backlog_queue_count)

    def __enter__(self) -> DrillStage:
        self._broker.__enter__()
        try:
            for plan in self.scenario.entities:
                _create(self.primary, plan)
        except BaseException:
            self._broker.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._broker.__exit__(*exception)

    def describe(self) -> dict[str, Any]:
        """How to reach the namespaces and their control address, as a ready file has it, with secrets."""
        return self._broker.describe()

    @property
    def primary(self) -> NamespaceHandle:
        return self._broker[PRIMARY_NAME]

    @property
    def secondary(self) -> NamespaceHandle:
        return self._broker[SECONDARY_NAME]

    @property
    def pair(self) -> PumpPair:
        """Both namespaces, for our own AMQP."""
        return PumpPair.from_connection_strings(
            self.primary.connection_string, self.secondary.connection_string
        )

    # -- faults

    async def take_step(self, step: FaultStep) -> float | None:
        """Do what the scenario plans; how long it lasts, if that is known."""
        faults = {PRIMARY: self.primary, SECONDARY: self.secondary}[step.namespace].faults
        if step.kind == CLEAR:
            await _aside(lambda: faults.clear(step.entity))
            return None
        await _aside(
            lambda: faults.set(step.kind, entity=step.entity, duration=step.duration, **step.arguments)
        )
        return step.duration

    async def heal(self) -> None:
        for side in (self.primary, self.secondary):
            await _aside(side.faults.clear)

    # -- looking

    async def backlog_depth(self) -> int:
        """How many messages lie in the backlog queues, dead letters aside."""
        return await _aside(lambda: sum(_count(self.secondary, queue) or 0 for queue in self.backlog_queues))

    async def has_backlog(self) -> bool:
        """Whether any client has made the backlog queues."""
        return await _aside(lambda: _count(self.secondary, self.backlog_queues[0])) is not None

    async def primary_depth(self) -> int:
        """How many messages lie at the nodes of the primary, dead letters aside."""
        nodes = [node for plan in self.scenario.entities for node in plan.nodes]
        return await _aside(lambda: sum(_count(self.primary, node) or 0 for node in nodes))


def _count(side: NamespaceHandle, path: str) -> int | None:
    try:
        return side.message_count(path)
    except Refused:  # no client has made it yet
        return None


async def _aside(function: Callable[[], T]) -> T:
    """Ask the broker from another thread: it may be busy, and the loop has sends to time. Who is cancelled
    waits for the answer nevertheless, since a broker that has ended gives none.
    """
    asking = asyncio.ensure_future(asyncio.to_thread(function))
    try:
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        await asyncio.wait({asking})
        raise


def _create(primary: NamespaceHandle, plan: EntityPlan) -> None:
    lock = _SESSION_LOCK if plan.sessions else _LOCK
    if plan.kind == "queue":
        primary.create_queue(
            plan.path,
            QueueSettings(
                lock_duration=lock,
                requires_session=plan.sessions > 0,
                requires_duplicate_detection=plan.duplicate_detection,
            ),
        )
        return
    primary.create_topic(plan.path, TopicSettings(requires_duplicate_detection=plan.duplicate_detection))
    for name in plan.subscriptions:
        settings = SubscriptionSettings(lock_duration=lock, requires_session=plan.sessions > 0)
        primary.create_subscription(plan.path, name, settings=settings)


def describe_fault(span: FaultSpan) -> str:
    """A fault in a few words."""
    where = span.namespace if span.entity is None else f"{span.entity} of {span.namespace}"
    return f"{where}: {span.kind}"

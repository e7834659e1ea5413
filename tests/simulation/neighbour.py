"""A drain beside an application, where namespaces have credits: how often is the application throttled?

The application sends and receives as many messages a second, at one side or at both. Each send takes a
credit, and so does each message that it receives; what it is refused it counts and drops.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial

from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import ResolvedSide
from pairbus.pump.pump import Pump
from pairbus.pump.summary import PumpSummary
from tests.pump.bench import envelope

from .faults import Weather
from .history import create_queue
from .loop import SimulatedClock, SimulatedLoop, outside
from .namespace import SimulatedNamespace
from .pump_history import PAIR
from .pump_plan import PRIMARY, SECONDARY, backlog
from .transport import SimulatedTransport

__all__ = ["Beside", "play_beside"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What is played. `busy_sides` are those where the application is."""

    seed: int
    credits: int
    app_rate: float
    messages: int
    queues: int = 3
    busy_sides: tuple[str, ...] = (PRIMARY,)


@dataclass(slots=True)
class Outcome:
    """What came of it: when the application was throttled, and what either side gave to whom."""

    seconds: float = 0.0
    summary: PumpSummary | None = None
    throttled: list[float] = field(default_factory=list)


class _Application:
    """Lives at one namespace."""

    def __init__(self, namespace: SimulatedNamespace, plan: Beside, outcome: Outcome) -> None:
        self._namespace = namespace
        self._plan = plan
        self._outcome = outcome

    def live(self) -> None:
        loop = asyncio.get_running_loop()
        namespace, pause = self._namespace, 1 / self._plan.app_rate
        if namespace.is_throttled:
            self._outcome.throttled.append(loop.time())
        else:
            for kind in (OperationKind.SEND, OperationKind.DELIVERY, OperationKind.COMPLETE):
                namespace.count("shop", kind, 100)
        loop.call_later(pause, self.live, context=outside())


async def _play(plan: Beside, loop: SimulatedLoop, outcome: Outcome) -> None:
    clock, weather = SimulatedClock(loop), Weather((), plan.seed)
    sides = {name: SimulatedNamespace(name, clock, weather, seed=plan.seed) for name in (PRIMARY, SECONDARY)}
    sides[PRIMARY].act(partial(create_queue, "orders", QueueSettings()))
    queues = [backlog(index) for index in range(plan.queues)]
    waiting = QueueSettings(lock_duration=60.0, max_delivery_count=1000, max_size_in_megabytes=5120)
    for name in queues:
        sides[SECONDARY].act(partial(create_queue, name, waiting))
    for number in range(plan.messages):
        sides[SECONDARY].take(queues[number % plan.queues], [envelope("orders", f"m{number}")])
    for side in sides.values():
        side.limit_credits(plan.credits)
    for name in plan.busy_sides:
        _Application(sides[name], plan, outcome).live()

    def open_simulated(side: ResolvedSide, options: PumpOptions) -> SimulatedTransport:
        name = PRIMARY if side.endpoint.host == f"{PRIMARY}.simulated" else SECONDARY
        return SimulatedTransport(sides[name], timeout=options.send_timeout)

    options = PumpOptions(drain=True, credits=plan.credits)
    pump = Pump(PAIR, queues, transport=open_simulated, options=options, clock=clock)
    outcome.summary = await pump.run()
    outcome.seconds = loop.time()


def play_beside(plan: Beside) -> Outcome:
    """Drain beside the application."""
    loop, outcome = SimulatedLoop(plan.seed), Outcome()
    loop.max_steps = 1000 * plan.messages + 1_000_000
    loop.run(_play(plan, loop, outcome), limit=3600.0)
    assert not loop.errors
    return outcome

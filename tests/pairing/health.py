"""An entity's health in tests: made, brought to a state, and what comes of an input."""

from collections.abc import Callable
from typing import Any

from pairbus.options import EntityState, SendAvailabilityOptions
from pairbus.pairing.failures import Action, FailureKind, Ruling
from pairbus.pairing.health import Effect, EntityHealth, Notify, StartPing

HEALTHY, SUSPECT = EntityState.HEALTHY, EntityState.SUSPECT
FAILED_OVER, FAULTED = EntityState.FAILED_OVER, EntityState.FAULTED

COUNT = Ruling(Action.COUNT, FailureKind.CONNECTION)
UNKNOWN = Ruling(Action.COUNT_UNKNOWN, FailureKind.TIMEOUT)
CALLER = Ruling(Action.RAISE, FailureKind.CALLER)
MISSING = Ruling(Action.PERMANENT, FailureKind.MISSING)
UNAUTHORIZED = Ruling(Action.PERMANENT, FailureKind.UNAUTHORIZED)
SPILL = Ruling(Action.SPILL, FailureKind.FULL)
REFUSED = Ruling(Action.PERMANENT, FailureKind.DISABLED, is_answer=True)


def throttled(wait: float = 2.0) -> Ruling:
    return Ruling(Action.THROTTLED, FailureKind.THROTTLED, wait)


def make(random: Callable[[], float] = lambda: 0.0, **options: Any) -> EntityHealth:
    return EntityHealth("orders", SendAvailabilityOptions(**options), random=random)


def changes(effects: tuple[Effect, ...]) -> list[tuple[EntityState, EntityState]]:
    return [(effect.change.old, effect.change.new) for effect in effects if isinstance(effect, Notify)]


def pings(effects: tuple[Effect, ...]) -> list[int]:
    return [effect.number for effect in effects if isinstance(effect, StartPing)]


def brought_to(state: EntityState, **options: Any) -> EntityHealth:
    """An entity in that state at time 100, with no ping under way."""
    health = make(**options)
    if state is SUSPECT:
        health.begin("first", 100)
        health.record("first", COUNT, now=100, reason="refused")
    elif state is not HEALTHY:
        health.force_over(100, "drill")
    if state is FAULTED:
        for now in (160, 220, 280):
            (number,) = pings(health.tick(now))
            health.ping_failed(number, MISSING, now=now, reason="gone")
    assert health.state is state
    return health

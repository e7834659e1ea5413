"""A model of a drain beside an application, where both namespaces have credits. Time is a number.

The limiter and the broker's credits are the real ones; what lies between them is as simple as can be: every
few milliseconds the pump asks for what it may, sends what it has, and sounds the secondary when told to.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from pairbus.broker.counters import OperationKind
from pairbus.broker.credits import Credits
from pairbus.pump.rate import Limiter

__all__ = ["Thrift", "play_thrift"]

_TICK = 0.0025
# How long a throttled answer asks to wait, and what a path that is paused is left alone.
_PAUSE = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Thrift:
    """What is played: an application of `app_rate` messages a second, sent and received, at these sides."""

    seed: int = 0
    credits: int = 1000
    app_rate: float = 200.0
    messages: int = 100_000
    sides: tuple[str, ...] = ("primary",)
    is_random: bool = False
    #: From then on the application has another rate.
    change: tuple[float, float] = (float("inf"), 0.0)
    is_told: bool = True


@dataclass(slots=True)
class ThriftOutcome:
    """How long it took, and when the application met a throttled answer."""

    seconds: float = 0.0
    asked: int = 0
    throttled: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)


class _Side:
    """A namespace with credits, and perhaps the application."""

    def __init__(self, plan: Thrift, name: str, outcome: ThriftOutcome) -> None:
        self.now = 0.0
        self.throttled_until = 0.0
        self._plan = plan
        self._outcome = outcome
        self._chance = random.Random(f"{name} {plan.seed}")
        self._next = self._chance.random() / plan.app_rate if name in plan.sides else float("inf")
        phase = self._chance.random()
        self._credits = Credits(
            plan.credits,
            monotonic=lambda: self.now + phase,
            count_filters=lambda path: 0,
            throttle=self._throttle,
        )

    def _throttle(self, seconds: float) -> None:
        self.throttled_until = self.now + seconds

    def take(self, kind: OperationKind = OperationKind.SEND) -> bool:
        """Whether an operation is taken."""
        if self.now < self.throttled_until:
            return False
        self._credits.spend("", kind)
        return True

    def let_application(self, until: float) -> Iterator[float]:
        """The application does what it does until then; its times."""
        while self._next < until:
            self.now = self._next
            self._outcome.asked += 1
            if self.take():
                self.take(OperationKind.DELIVERY)
            else:
                self._outcome.throttled.append(self.now)
            at, later = self._plan.change
            rate = self._plan.app_rate if self.now < at else later
            self._next += self._chance.expovariate(rate) if self._plan.is_random else 1 / rate
            yield self.now


def play_thrift(plan: Thrift) -> ThriftOutcome:
    """Drain beside the application."""
    outcome, limiter = ThriftOutcome(), Limiter()
    chance = random.Random(f"thrift {plan.seed}")
    sides = {name: _Side(plan, name, outcome) for name in ("primary", "secondary")}
    primary, secondary = sides["primary"], sides["secondary"]
    limiter.expect("primary", plan.credits, is_certain=plan.is_told)
    limiter.expect("secondary", plan.credits, is_certain=plan.is_told)
    moved = held = granted = 0
    now = paused_until = sounded_at = 0.0
    while moved < plan.messages:
        now += _TICK
        for side in sides.values():
            for _ in side.let_application(now - chance.random() * _TICK):
                pass
            side.now = now
        while granted and secondary.take(OperationKind.DELIVERY):
            granted -= 1
            held += 1
        asked = min(int(limiter.inlet.fill(now)), 1000 - held - granted)
        if asked > 0:
            limiter.inlet.take(asked)
            granted += asked
        pause = limiter.sounding_pause()
        if pause is not None and now - sounded_at >= pause:
            sounded_at = now
            limiter.inlet.take(1)
            if not secondary.take(OperationKind.MANAGEMENT):
                limiter.trouble(now, "secondary", is_busy=True)
        room = limiter.room(now)
        if now < paused_until:
            continue
        sent = 0
        while held and (room is None or room.take(1)):
            sent += 1
            if primary.take():
                moved += 1
                held -= 1
            else:
                limiter.trouble(now, is_busy=True)
                paused_until = now + _PAUSE
                break
        limiter.take(sent, sent)
        if int(now) > int(now - _TICK):
            outcome.rates.append(limiter.rate)
    outcome.seconds = now
    return outcome

"""How fast a backlog may be moved, and how fast it must be. Pure.

1. A Standard namespace has 1,000 credits a second for everything that touches it, the application's own sends
   and receives included; beyond that it throttles everybody. A message that is moved takes one on either
   side, to be received there and to be sent here; a message of the application takes one to be sent and one
   to be received.
2. Of what the application leaves, a drain uses a part, the same as that to which a pump goes back by itself
   where it meets the wall (`pump.gait`): credits come second by second, and so does load.
3. Premium has no credits; its units are the limit, which nobody can tell from outside.
"""

from dataclasses import dataclass
from math import ceil, inf
from typing import Literal

from pairbus.pump.gait import KEPT, STANDARD_CREDITS

PlanTier = Literal["standard", "premium"]
#: What one shard, a core of its own, moves a second: about half of what a quiet machine was measured to do.
SHARD_RATE = 5000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSchedule:
    """What a drain within a time needs; `most` is the rate that the tier leaves for it, None for no limit."""

    within: float
    rate: float
    shards: int
    most: float | None
    is_possible: bool
    advice: str


def most_rate(tier: PlanTier, app_rate: float) -> float:
    """Messages a second that a drain may move, beside an application that sends and receives so many."""
    if tier == "premium":
        return inf
    return max(0.0, KEPT * (STANDARD_CREDITS - 2 * app_rate))


def schedule(messages: int, *, within: float, tier: PlanTier, app_rate: float) -> DrainSchedule:
    """Which rate and how many shards it takes, or why it cannot be."""
    rate, most = messages / within, most_rate(tier, app_rate)
    shards = max(1, ceil(rate / SHARD_RATE))
    return DrainSchedule(
        within=within,
        rate=rate,
        shards=shards,
        most=None if most == inf else most,
        is_possible=rate <= most,
        advice=_advise(messages, rate, most, shards),
    )


def _in_hours(seconds: float) -> str:
    """As precisely as it takes to be told from nothing."""
    hours = seconds / 3600
    return f"{hours:,.1f} h" if hours >= 1 else f"{ceil(seconds / 60)} min"


def _advise(messages: int, rate: float, most: float, shards: int) -> str:
    if rate <= most:
        return f"`pairbus syphon run --once --max-rate {max(1, ceil(rate))} --shards {shards}`"
    if most <= 0:
        return (
            "the application alone takes all credits of the Standard tier: drain when it rests, or move the "
            "primary to Premium"
        )
    return (
        f"the Standard tier leaves {most:,.0f} messages a second beside the application, which takes "
        f"{_in_hours(messages / most)}: give it that time, spread the entities over several pairs, or "
        "move the primary to Premium"
    )

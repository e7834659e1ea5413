"""The tiers of the service, each with its quotas, as strict as Azure or relaxed for tests.

limits_of(Tier.PREMIUM)                          what Azure's Premium allows and refuses
limits_of(Tier.STANDARD, Strictness.RELAXED)     the same with short locks, windows and lives
"""

from dataclasses import replace
from enum import StrEnum

from .settings import MEGABYTE, NamespaceLimits

_DAY = 86_400.0


class Tier(StrEnum):
    """What a namespace is paid for."""

    BASIC = "basic"
    STANDARD = "standard"
    PREMIUM = "premium"


class Strictness(StrEnum):
    """Whether durations and sizes are held to what Azure allows."""

    STRICT = "strict"
    RELAXED = "relaxed"


_LIMITS = {
    Tier.BASIC: NamespaceLimits(
        sku="Basic",
        max_time_to_live=14 * _DAY,
        has_topics=False,
        has_sessions=False,
        has_duplicate_detection=False,
        has_forwarding=False,
        has_transactions=False,
    ),
    Tier.STANDARD: NamespaceLimits(),
    Tier.PREMIUM: NamespaceLimits(
        sku="Premium",
        max_message_size=MEGABYTE,
        max_batch_size=MEGABYTE,
        smallest_kilobytes=1024,
        partitions=1,
        max_queue_megabytes=81_920,
        queue_megabytes=(1024, 2048, 3072, 4096, 5120, 10_240, 20_480, 40_960, 81_920),
        largest_message_size=100 * MEGABYTE,
        max_entities=1_000,
    ),
}


def limits_of(tier: Tier, strictness: Strictness = Strictness.STRICT) -> NamespaceLimits:
    """The quotas of a tier."""
    limits = _LIMITS[tier]
    if strictness is Strictness.STRICT:
        return limits
    return replace(
        limits,
        min_lock_duration=0.001,
        max_lock_duration=_DAY,
        min_time_to_live=0.001,
        min_duplicate_window=0.001,
        min_auto_delete=0.001,
        smallest_kilobytes=1,
        max_queue_megabytes=81_920,
        queue_megabytes=(),
    )


STANDARD = limits_of(Tier.STANDARD)
PREMIUM = limits_of(Tier.PREMIUM)
# For tests of applications: what Azure refuses for being short.
RELAXED = limits_of(Tier.STANDARD, Strictness.RELAXED)

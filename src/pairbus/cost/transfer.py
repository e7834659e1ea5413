"""Bytes by region and direction, as a network sees them. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from pairbus.stages import Direction, Region, Stage


@dataclass(frozen=True, slots=True)
class RegionBytes:
    """What went into the namespace of a region, or came out of it, and by which stages."""

    region: Region
    direction: Direction
    bytes: int
    stages: tuple[str, ...]


def sum_transfer(sizes: Iterable[tuple[Stage, int]]) -> tuple[RegionBytes, ...]:
    """The bytes of stages by where they went; what carries nothing is in none."""
    found: dict[tuple[Region, Direction], dict[Stage, int]] = {}
    for stage, size in sizes:
        traits = stage.traits
        if traits.region is not None and traits.direction is not None and size:
            place = found.setdefault((traits.region, traits.direction), {})
            place[stage] = place.get(stage, 0) + size
    return tuple(
        RegionBytes(region, direction, sum(parts.values()), tuple(stage.words for stage in parts))
        for (region, direction), parts in sorted(found.items())
    )

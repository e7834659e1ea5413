"""A picture of a paired client at one moment, typed for programs and as JSON for everybody else."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..pairing.health import HealthStatus
from ..pairing.rotation import QueueStatus

__all__ = ["EntityStatus", "PairStatus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityStatus:
    """One entity: its health, with times of day, and what lacked headroom."""

    health: HealthStatus
    without_headroom: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatus:
    """Everything that an operator wants to know of one client."""

    at: float
    primary: str
    secondary: str
    primary_name: str
    fault: str | None
    provisioning: str
    had_success: bool
    backlog_limit: int
    entities: tuple[EntityStatus, ...]
    rotation: tuple[QueueStatus, ...]
    warnings: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(_plain(self))


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value

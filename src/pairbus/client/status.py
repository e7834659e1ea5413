"""A picture of a paired client at one moment, typed for programs and as JSON for everybody else."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, get_args

from pairbus.options import PingRole
from pairbus.pairing.health import HealthStatus
from pairbus.pairing.rotation import QueueStatus

from .observers.observer import AttemptOutcome, RouteName

#: Messages by the way that they were sent and by what became of it.
SendCounts = dict[RouteName, dict[AttemptOutcome, int]]


def new_counts() -> SendCounts:
    """Counts that stand at zero."""
    return {route: dict.fromkeys(get_args(AttemptOutcome), 0) for route in get_args(RouteName)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStatus:
    """One entity: its health, with times of day, what was sent, how many messages lacked headroom, and how
    many sends arrived after the failover had given them up: their messages may be there twice.
    `ping_role` says who pings it while it is down: prober (this client, for all), listener (another
    client), alone (this client, for itself).
    """

    health: HealthStatus
    without_headroom: int
    arrived_late: int
    sent: Mapping[RouteName, Mapping[AttemptOutcome, int]]
    ping_role: PingRole | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolStatus:
    """The local spool: what it holds, and what keeps it. `refused` messages were taken, and then refused for
    their own sake; `damaged` parts of files cannot be read. Both are kept: `pairbus spool`.
    """

    directory: str
    messages: int
    bytes: int
    limit: int
    last_failure: str | None
    refused: int = 0
    damaged: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsStatus:
    """With `ordering="session"`: how many sessions stay on the backlog, and why it could not be looked at."""

    staying: int
    last_error: str | None


SyphonState = Literal["pending", "waiting", "running", "resting", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonStatus:
    """The hosted syphon, and what it has done since the client began.

    `state`: pending before its first pump, waiting while another syphon has the lease of the pair, resting
    between a pump that failed and the next. `waiting` were put
    aside because their path is down; `unknown` were sent without an answer, and may arrive twice.
    `last_error` is what ended the last pump that failed; `queue_errors` names queues that cannot be read now.
    `lease` says why the lease of the pair is not held, be it that another has it or that none can be had.
    """

    state: SyphonState
    moved: int
    waiting: int
    dead_lettered: int
    unknown: int
    restarts: int
    last_error: str | None
    queue_errors: Mapping[str, str]
    lease: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippingStatus:
    """How far records have come to the shared place: all that is older than `lag` seconds is there.
    `waiting` segments are to be put; `last_error` is why the last round did not come to its end.
    """

    to: str
    lag: float
    waiting: int
    shipped: int
    last_error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """Whether this client shares its pings with others of its pair. `state`: idle while nothing is down,
    joined, or alone; `why` it is alone.
    """

    state: Literal["idle", "joined", "alone"]
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStatus:
    """Everything that an operator wants to know of one client. `sides`: open, closed or faulted.
    `records_lost` are redirect records that could not be written.
    """

    at: float
    primary: str
    secondary: str
    primary_name: str
    fault: str | None
    provisioning: str
    had_success: bool
    backlog_limit: int
    entities: tuple[PathStatus, ...]
    rotation: tuple[QueueStatus, ...]
    sides: Mapping[str, str] = field(default_factory=dict)
    syphon: SyphonStatus | None = None
    sessions: SessionsStatus | None = None
    spool: SpoolStatus | None = None
    fleet: FleetStatus | None = None
    records_lost: int = 0
    shipping: ShippingStatus | None = None
    warnings: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The same as JSON."""
        return to_json(self)


def to_json(picture: object) -> str:
    """A status, or something that has one in it, as JSON. There may be one of ten thousand entities every few
    seconds: the encoder asks for what it does not know, and all else costs next to nothing.
    """
    return json.dumps(picture, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return dict(value)
    return {name: getattr(value, name) for name in value.__dataclass_fields__}

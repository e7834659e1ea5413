"""The system that is to be paid for, in the words of whoever runs it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from pairbus.errors import ConfigurationError

__all__ = ["System", "parse_system"]

BatchBilling = Literal["per_message", "per_batch"]


def _described(default: Any, meaning: str, *, low: float, high: float = float("inf")) -> Any:
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high})


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Pairs of namespaces of the Standard tier, all alike, and what goes through them in a month."""

    pairs: int = _described(1, "pairs of namespaces", low=1)
    entities: int = _described(1, "queues and topics of each primary that are sent to", low=1)
    subscriptions: int = _described(1, "copies of each message that are received: 1 for a queue", low=0)
    clients: int = _described(1, "sending processes of each pair", low=1)
    rate: float = _described(0.0, "messages a second that are sent, over all entities of a pair", low=0)
    size: int = _described(1024, "bytes of a message", low=0)
    days: int = _described(30, "days of the month", low=1, high=31)
    backlog_queues: int = _described(10, "backlog queues of each pair", low=1)
    poll: float = _described(900.0, "seconds that an idle receive of the syphon waits", low=1, high=86400)
    ping_interval: float = _described(
        60.0, "seconds between pings of an entity that is down", low=1, high=1800
    )
    outages: float = _described(0.0, "outages a month", low=0)
    outage_hours: float = _described(0.0, "hours that an outage lasts", low=0)
    batch_size: int = _described(1, "messages that are sent together", low=1)
    batch_billing: BatchBilling = field(
        default="per_message",
        metadata={"meaning": "how a batch bills, which is not documented: per_message or per_batch"},
    )
    connections: int | None = field(
        default=None,
        metadata={
            "meaning": "connections at the peak; left out: one for each client and entity, and the syphon's"
        },
    )
    same_region: bool = field(
        default=False,
        metadata={"meaning": "whether primary and secondary are in one region, where transfer is free"},
    )

    def __post_init__(self) -> None:
        for entry in fields(self):
            _check(entry.name, getattr(self, entry.name), entry.metadata)
        if self.batch_billing not in ("per_message", "per_batch"):
            raise ConfigurationError(f"batch_billing is per_message or per_batch, not {self.batch_billing!r}")

    def without_outages(self) -> System:
        """The same system in a month in which nothing fails."""
        return replace(self, outages=0.0, outage_hours=0.0)


def _check(name: str, value: Any, metadata: Any) -> None:
    if "low" not in metadata:
        return
    low, high = metadata["low"], metadata["high"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        upper = f" to {high:g}" if high != float("inf") else " and up"
        raise ConfigurationError(f"{name} ({metadata['meaning']}) is {low:g}{upper}, not {value!r}")


def parse_system(text: str, *, above: System | None = None) -> System:
    """Read a system from TOML text: the fields of `System` by their names. Others are those of `above`."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"the system is not valid TOML: {error}") from None
    known = {entry.name for entry in fields(System)}
    unknown = document.keys() - known
    if unknown:
        wrong, right = ", ".join(sorted(unknown)), ", ".join(sorted(known))
        raise ConfigurationError(f"the system describes {wrong}, which it does not have; it has {right}")
    return replace(above or System(), **document)

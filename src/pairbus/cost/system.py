"""The system that is to be paid for, in the words of whoever runs it."""

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from pairbus.errors import ConfigurationError, show_value
from pairbus.plumbing.toml_tables import parse_toml

BatchBilling = Literal["per_message", "per_batch"]
# Beyond what anybody has of anything here: what is more is a slip of the pen.
_MOST = 1e9
# A petabyte a second: what is more has sums that nobody can read.
_MOST_BYTES = 1e15
# Parts of a month are reckoned with fractions.
_SLACK = 1 + 1e-9


def _described(default: Any, meaning: str, *, low: float, high: float = _MOST) -> Any:
    return field(default=default, metadata={"meaning": meaning, "low": low, "high": high})


def _choice(choices: tuple[Any, ...], meaning: str) -> Any:
    """One of these; the first by default."""
    return field(default=choices[0], metadata={"meaning": meaning, "choices": choices})


def _flag(meaning: str) -> Any:
    return _choice((False, True), meaning)


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
    share_pings: bool = _flag("whether clients find each other, so that one pings for all; else each pings")
    outages: float = _described(0.0, "outages a month", low=0)
    outage_hours: float = _described(0.0, "hours that an outage lasts", low=0)
    batch_size: int = _described(1, "messages that are sent together", low=1)
    batch_billing: BatchBilling = _choice(
        get_args(BatchBilling), "how a batch bills, which is not documented"
    )
    connections: int | None = _described(
        None, "connections at the peak; left out: one for each client and entity, and the syphon's", low=0
    )
    same_region: bool = _flag("whether primary and secondary are in one region, where transfer is free")
    records_in_store: bool = _flag(
        "whether records are kept in an object store, where each write is paid for"
    )

    def __post_init__(self) -> None:
        for entry in fields(self):
            if (mistake := _find_mistake(entry.name, getattr(self, entry.name))) is not None:
                raise ConfigurationError(mistake)
        for what, amount, most in self._wholes():
            if amount > most * _SLACK:
                raise ConfigurationError(f"{what} is at most {most:,.0f}, not {amount:,.0f}")

    def _wholes(self) -> tuple[tuple[str, float, float], ...]:
        """What several fields come to together, and how much of it there can be."""
        copies = self.pairs * self.rate * self.subscriptions
        moved = max(copies, self.pairs * self.rate)
        return (
            ("outages × outage_hours (hours of the month)", self.outages * self.outage_hours, 24 * self.days),
            ("pairs × rate (messages a second)", self.pairs * self.rate, _MOST),
            ("pairs × rate × subscriptions (messages a second)", copies, _MOST),
            ("pairs × rate × subscriptions × size (bytes a second)", moved * self.size, _MOST_BYTES),
            ("pairs × clients × entities", self.pairs * self.clients * self.entities, _MOST),
            ("pairs × backlog_queues", self.pairs * self.backlog_queues, _MOST),
        )


def _find_mistake(name: str, value: Any) -> str | None:
    """What is wrong with the value of one field, in words, or None."""
    entry = System.__dataclass_fields__[name]
    rule = entry.metadata
    if choices := rule.get("choices"):
        fits = isinstance(value, type(choices[0])) and value in choices
        allowed = " or ".join(str(choice) for choice in choices)
    else:
        low, high = rule["low"], rule["high"]
        # Half a queue is nothing: only what is a fraction by default may be one.
        kinds, whole = (int | float, "") if isinstance(entry.default, float) else (int, "a whole number, ")
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        fits = value is entry.default or (is_number and low <= value <= high)
        allowed = f"{whole}{low:g} to {high:,.0f}"
    return None if fits else f"{name} ({rule['meaning']}) is {allowed}, not {show_value(value)}"


def parse_system(text: str, *, above: System | None = None, where: str = "the system") -> System:
    """Read a system from TOML text: the fields of `System` by their names. Others are those of `above`."""
    top = parse_toml(text, where=where)
    found = top.checked([entry.name for entry in fields(System)], _find_mistake)
    top.refuse()
    return replace(above or System(), **found)

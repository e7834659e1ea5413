"""What a user can set about a pair, and the words for what the pair tells back.

Every option stands once, as a field of `SendAvailabilityOptions`: its default, the values that are allowed
and one sentence that says what it does. Validation, error texts and the settings page are all read from
there, so that they cannot disagree; so is the schema of the configuration file. Durations are float seconds.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from typing import Any, Literal, get_args

from .errors import ConfigurationError, show_value

OnSuspect = Literal["hold", "raise"]
OnPermanent = Literal["raise", "backlog"]
Probe = Literal["message", "link"]
Ordering = Literal["none", "session"]
TtlPolicy = Literal["pause", "deduct"]
RecordsSync = Literal["background", "always"]
#: Who pings an entity that is down: this client for its whole fleet, another one, or this one for itself.
PingRole = Literal["prober", "listener", "alone"]
SendTransport = Literal["sdk", "amqp"]

_HOUR = 3600.0
_DAY = 24 * _HOUR
_GIB = 1024**3
# What the SDK takes to tell a mistake, 1.05 s, and some room.
_SDK_ANSWER = 2.0


class EntityState(Enum):
    """How one client sees one entity of the primary."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"
    FAILED_OVER = "failed_over"
    FAULTED = "faulted"

    # Members are singletons, so identity is a sound hash, and states are hashed with every send.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class StateChange:
    """One change of state of one entity: what `on_state_change` is called with."""

    path: str
    old: EntityState
    new: EntityState
    at: float
    reason: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """The meaning of an option, its allowed values in words, and the check of a value."""

    meaning: str
    allowed: str
    kind: Literal["whole", "number", "flag", "choice", "policies"]
    low: float = 0.0
    high: float = 0.0
    choices: tuple[str, ...] = ()
    optional: bool = False

    def accepts(self, value: object) -> bool:
        if value is None:
            return self.optional
        if self.kind == "flag":
            return isinstance(value, bool)
        if self.kind == "choice":
            return isinstance(value, str) and value in self.choices
        if self.kind == "policies":
            return self._accepts_policies(value)
        number = int if self.kind == "whole" else (int, float)
        if isinstance(value, bool) or not isinstance(value, number):
            return False
        return self.low <= value <= self.high

    def _accepts_policies(self, value: object) -> bool:
        return isinstance(value, Mapping) and all(
            isinstance(path, str) and bool(path.strip("/")) and policy in self.choices
            for path, policy in value.items()
        )

    def schema(self) -> dict[str, Any]:
        """The allowed values as JSON Schema has them. None is left out: TOML has no word for it."""
        if self.kind == "flag":
            return {"type": "boolean"}
        if self.kind == "choice":
            return {"type": "string", "enum": list(self.choices)}
        if self.kind == "policies":
            policy = {"type": "string", "enum": list(self.choices)}
            return {"type": "object", "propertyNames": {"minLength": 1}, "additionalProperties": policy}
        kind = "integer" if self.kind == "whole" else "number"
        return {"type": kind, "minimum": self.low, "maximum": self.high}


# Each kind of option makes its field: the default, the values that are allowed, what it means.


def _option(default: object, rule: _Rule) -> Any:
    return field(default=default, metadata={"rule": rule})


def _whole(default: int, within: tuple[int, float], meaning: str) -> Any:
    low, high = within
    return _option(default, _Rule(meaning, f"a whole number, {low} to {high:.0f}", "whole", low, high))


def _seconds(
    default: float | None, within: tuple[float, float], meaning: str, *, optional: bool = False
) -> Any:
    low, high = within
    allowed = f"{low:g} to {high:g} seconds" + (", or None for never" if optional else "")
    return _option(default, _Rule(meaning, allowed, "number", low, high, optional=optional))


def _fraction(default: float, within: tuple[float, float], meaning: str) -> Any:
    low, high = within
    return _option(default, _Rule(meaning, f"a fraction, {low:g} to {high:g}", "number", low, high))


def _flag(default: bool, meaning: str) -> Any:
    return _option(default, _Rule(meaning, "True or False", "flag"))


def _choice(default: str, choices: Any, meaning: str) -> Any:
    words = get_args(choices)
    allowed = " or ".join(f'"{word}"' for word in words)
    return _option(default, _Rule(meaning, allowed, "choice", choices=words))


def _policies(meaning: str) -> Any:
    allowed = 'a mapping of paths to "pause" or "deduct"'
    rule = _Rule(meaning, allowed, "policies", choices=get_args(TtlPolicy))
    return field(default_factory=dict, hash=False, metadata={"rule": rule})


@dataclass(frozen=True, kw_only=True)
class SendAvailabilityOptions:
    """How a pair keeps an application sending. Every option has a default that suits most applications.

    The values are checked on construction: a value out of range raises `ConfigurationError` with the range
    in its text. Durations are float seconds.
    """

    # -- the pair
    backlog_queue_count: int = _whole(
        10, (1, 10_000), "How many backlog queues the pair has on the secondary; load is spread over them."
    )
    enable_syphon: bool = _flag(
        False,
        "Run a small set of pumps inside this process that move the backlog to the primary, for "
        "applications without a Spark job.",
    )
    # -- failing over
    failover_interval: float = _seconds(
        60.0,
        (0.0, _HOUR),
        "How long an entity may fail, with no send succeeding, before its sends go to the backlog. 0: "
        "the very send that failed goes there.",
    )
    send_timeout: float = _seconds(
        10.0,
        (0.05, _HOUR),
        "How long one attempt may stay unanswered. The failover does not wait for it. Below 2 s a wrong "
        "key or name is taken for silence: the SDK needs more than a second to tell them apart.",
    )
    retry_delay: float = _seconds(
        0.25,
        (0.001, 60.0),
        "The pause before a held send is tried again; it doubles with each further failure.",
    )
    retry_delay_max: float = _seconds(
        5.0, (0.001, 300.0), "The longest pause between two attempts of a held send; not below retry_delay."
    )
    on_suspect: OnSuspect = _choice(
        "hold",
        OnSuspect,
        "What the caller of a send sees that failed before the failover: hold keeps the call and tries "
        "again until the primary or the backlog has the message; raise raises the failure at once.",
    )
    transport: SendTransport = _choice(
        "sdk",
        SendTransport,
        "What sends: sdk is the official SDK; amqp is our own AMQP, several times as fast, with the same "
        "messages, methods and errors, and without proxies and WebSocket. Receivers are the SDK's.",
    )
    links_per_entity: int = _whole(
        1,
        (1, 64),
        "How many SDK links one sender uses side by side. More than 1 gives up the order of sends.",
    )
    idle_spell: float = _seconds(
        60.0,
        (1.0, _DAY),
        "After how long without a send a closed link is taken for an idle one and opened again at once, "
        "without a change of state.",
    )
    # -- which failures count
    throttle_wait: float = _seconds(
        10.0, (0.1, 300.0), "How long to wait after a throttled send when the answer does not say."
    )
    count_throttled_after: float | None = _seconds(
        None,
        (0.0, _HOUR),
        "After how long without a success throttled sends count as failures.",
        optional=True,
    )
    count_unauthorized: bool = _flag(
        False, "Count refused rights as an outage, since the token service can be down; otherwise they raise."
    )
    count_disabled: bool = _flag(False, "Count a disabled entity as an outage; otherwise it raises.")
    spill_when_full: bool = _flag(
        False,
        "Send to the backlog what a full entity, or too many connections, refuses; otherwise it raises.",
    )
    # -- pings and failing back
    ping_primary_interval: float = _seconds(
        60.0, (1.0, 1800.0), "The time between two pings of an entity that has failed over."
    )
    ping_timeout: float = _seconds(
        10.0, (0.05, _HOUR), "How long a ping may stay unanswered. The next one does not wait for it."
    )
    ping_jitter: float = _fraction(
        0.1,
        (0.0, 0.9),
        "The part of the interval by which a ping may come early, at random, so that a fleet does not "
        "ping at once.",
    )
    probe: Probe = _choice(
        "message",
        Probe,
        "How a ping asks: message sends an empty message that lives for a second; link opens a send "
        "link, without a message and without a charge.",
    )
    share_pings: bool = _flag(
        True,
        "Let one of the clients of a pair ping for all: they meet at the queue of the syphon's lease on "
        "the secondary, which needs the Listen claim; where they cannot, each pings by itself.",
    )
    good_pings: int = _whole(
        1,
        (1, 100),
        "How many pings in a row must succeed before sends go back to the primary; more damp flapping.",
    )
    on_permanent: OnPermanent = _choice(
        "raise",
        OnPermanent,
        "What sends do once three pings in a row met the same permanent error: raise PrimaryEntityFault, "
        "or go on to the backlog.",
    )
    # -- the backlog
    rotation_cool_down: float = _seconds(
        60.0,
        (0.1, _DAY),
        "How long a backlog queue that failed stays out of the rotation before it is tried again.",
    )
    ordering: Ordering = _choice(
        "none",
        Ordering,
        "Order across failback: session keeps a session on the backlog until all that it has there has "
        "arrived at the primary; none sends to the primary at once.",
    )
    ttl_policy: TtlPolicy = _choice(
        "pause",
        TtlPolicy,
        "Whether the time that a message spends in the backlog counts against its time to live: pause "
        "starts it anew at the primary; deduct counts it, and what has run out is dead-lettered as "
        "expired.",
    )
    ttl_policies: Mapping[str, TtlPolicy] = _policies(
        "The policy of single entities, by path, above ttl_policy."
    )
    compress_oversized: bool = _flag(
        True,
        "Compress the body for its stay in the backlog when the message fits the primary but, wrapped, "
        "not a backlog queue; otherwise it is refused.",
    )
    records_sync: RecordsSync = _choice(
        "background",
        RecordsSync,
        "When redirect records are fsynced: background within a second of the send, so that a power cut "
        "of this machine can lose the records of a second, and no message; always before the send "
        "returns.",
    )
    # -- both sides down
    enable_spool: bool = _flag(
        False,
        "With both sides down, write messages to a local spool, replayed in order; otherwise the send "
        "raises.",
    )
    spool_max_bytes: int = _whole(_GIB, (1024**2, 1024 * _GIB), "How many bytes the spool may hold.")

    def __post_init__(self) -> None:
        values = vars(self)
        for name, value in values.items():
            if (mistake := find_mistake(name, value)) is not None:
                raise ConfigurationError(mistake)
        if (conflict := find_conflict(values)) is not None:
            raise ConfigurationError(conflict)
        # Paths are case-insensitive, and the caller may change the mapping later: keep a normal form.
        policies = {path.strip("/").lower(): policy for path, policy in self.ttl_policies.items()}
        object.__setattr__(self, "ttl_policies", policies)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is allowed and yet likely to be regretted."""
        if self.send_timeout >= _SDK_ANSWER:
            return ()
        return (
            f"send_timeout is {self.send_timeout:g} s, but the SDK needs more than a second to tell a wrong "
            f"key or name from silence; give it {_SDK_ANSWER:g} s at least",
        )

    def retry_delay_after(self, failures: int) -> float:
        """The pause before the next attempt of a send that has failed `failures` times."""
        # Capped before the power is taken: a send held for an hour must not overflow a float.
        return min(self.retry_delay_max, self.retry_delay * 2.0 ** min(max(failures - 1, 0), 64))


def find_mistake(name: str, value: object) -> str | None:
    """What is wrong with the value of one option, in words, or None."""
    rule: _Rule = SendAvailabilityOptions.__dataclass_fields__[name].metadata["rule"]
    if rule.accepts(value):
        return None
    hint = "; give seconds as a number" if type(value).__name__ == "timedelta" else ""
    return f"{name} must be {rule.allowed}, not {show_value(value)}{hint}"


def find_conflict(values: Mapping[str, Any]) -> str | None:
    """Options that are right one by one and cannot be together; those left out have their defaults."""
    low = values.get("retry_delay", SendAvailabilityOptions.retry_delay)
    high = values.get("retry_delay_max", SendAvailabilityOptions.retry_delay_max)
    if high >= low:
        return None
    return (
        f"retry_delay_max ({high:g} seconds) must not be below retry_delay ({low:g} seconds); raise the one "
        "or lower the other"
    )


@dataclass(frozen=True, slots=True)
class OptionDescription:
    """One option in words."""

    name: str
    default: str
    allowed: str
    meaning: str
    #: The allowed values, the default and the meaning as JSON Schema.
    schema: Mapping[str, Any]


def describe_options() -> list[OptionDescription]:
    """All options in their order, for documentation and help texts."""
    return [_describe(entry) for entry in fields(SendAvailabilityOptions)]


def _describe(entry: Field[Any]) -> OptionDescription:
    rule: _Rule = entry.metadata["rule"]
    default = {} if entry.default is MISSING else entry.default
    schema = {"description": rule.meaning, **rule.schema()}
    if default is not None:
        schema["default"] = default
    return OptionDescription(entry.name, repr(default), rule.allowed, rule.meaning, schema)

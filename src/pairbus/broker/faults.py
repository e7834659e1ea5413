"""Faults on demand: what a namespace or one of its entities does wrong, from when, until when.

Theory
1. A fault is data. A `FaultBoard` holds the faults of one namespace and answers questions about a moment
   (`now` is an argument): it never acts. The listener, the connections and the link endpoints ask it and act.
2. Faults that concern the *line* (refuse, reset, silence, blackhole, flap) act on the whole namespace when
   they name no entity. Naming one, they act on that entity's links alone: refuse and reset detach and refuse
   them, silence and blackhole leave whatever is asked of them unanswered.
3. Faults that concern an *answer* (error, busy, disabled, full, token, delay, drop) act on every entity, or
   on the one named.
4. Flapping is a function of time, down first: no state has to be kept and a test can ask about any moment.
5. The latest fault set wins where several apply.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pairbus.amqp import errors as conditions
from pairbus.amqp.performatives import AmqpError
from pairbus.errors import ConfigurationError

__all__ = ["Fault", "FaultBoard", "FaultKind", "Line", "Operation"]


class FaultKind(StrEnum):
    """Everything that can be made to go wrong."""

    REFUSE = "refuse"
    RESET = "reset"
    SILENCE = "silence"
    BLACKHOLE = "blackhole"
    DELAY = "delay"
    ERROR = "error"
    BUSY = "busy"
    TOKEN = "token"
    DISABLED = "disabled"
    FULL = "full"
    DROP = "drop"
    FLAP = "flap"


class Line(StrEnum):
    """What the line to a namespace, or to one entity, does at a moment."""

    UP = "up"
    REFUSE = "refuse"
    RESET = "reset"
    SILENCE = "silence"
    BLACKHOLE = "blackhole"


class Operation(StrEnum):
    """What a client asks of an entity, as far as faults tell one thing from another."""

    SEND = "send"
    ATTACH_SENDER = "attach_sender"
    ATTACH_RECEIVER = "attach_receiver"
    MANAGE = "manage"


_EVERYTHING = frozenset(Operation)
_SENDING = frozenset({Operation.SEND})

# kind -> (condition, description, the operations that are refused so)
_REFUSALS: dict[FaultKind, tuple[str, str, frozenset[Operation]]] = {
    FaultKind.ERROR: (
        conditions.INTERNAL_ERROR,
        "The service was unable to process the request.",
        _EVERYTHING,
    ),
    FaultKind.BUSY: (
        conditions.SERVER_BUSY,
        "The request was terminated because the namespace is being throttled. Error code: 50009. "
        "Please wait 2 seconds and try again.",
        _EVERYTHING,
    ),
    FaultKind.DISABLED: (
        conditions.ENTITY_DISABLED,
        "Messaging entity is currently disabled.",
        _EVERYTHING - {Operation.MANAGE},
    ),
    FaultKind.FULL: (
        conditions.RESOURCE_LIMIT,
        "The maximum entity size has been reached or exceeded.",
        _SENDING,
    ),
    FaultKind.REFUSE: (conditions.DETACH_FORCED, "The entity is not reachable.", _EVERYTHING),
    FaultKind.RESET: (conditions.DETACH_FORCED, "The link was forcibly detached.", _EVERYTHING),
}
_LINES = {
    FaultKind.REFUSE: Line.REFUSE,
    FaultKind.RESET: Line.RESET,
    FaultKind.SILENCE: Line.SILENCE,
    FaultKind.BLACKHOLE: Line.BLACKHOLE,
    FaultKind.FLAP: Line.REFUSE,
}
# An open sender link is left to have its sends refused, one by one, unless its entity is gone from the line
# or disabled. A receiver asks for nothing more once it has given credit, so that only a detach can tell it.
_SEVERS_SENDERS = frozenset({FaultKind.REFUSE, FaultKind.RESET, FaultKind.FLAP, FaultKind.DISABLED})
_SEVERS_RECEIVERS = _SEVERS_SENDERS | {FaultKind.ERROR}
# Which arguments mean anything to which kind; another one is a mistake of the caller's and is refused.
_ARGUMENTS: dict[FaultKind, frozenset[str]] = {
    FaultKind.DELAY: frozenset({"seconds"}),
    FaultKind.ERROR: frozenset({"condition"}),
    FaultKind.DROP: frozenset({"every"}),
    FaultKind.FLAP: frozenset({"up", "down"}),
}
DEFAULT_DELAY = 30.0  # longer than an impatient sender waits, shorter than the SDK's 60 s
DEFAULT_EVERY = 10
DEFAULT_FLAP = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong. Every kind works with its defaults alone."""

    kind: FaultKind
    since: float
    entity: str | None = None
    until: float = math.inf
    seconds: float = DEFAULT_DELAY
    condition: str = conditions.INTERNAL_ERROR
    every: int = DEFAULT_EVERY
    up: float = DEFAULT_FLAP
    down: float = DEFAULT_FLAP
    _sends: list[int] = field(default_factory=lambda: [0], compare=False, repr=False)

    def is_over(self, now: float) -> bool:
        """Whether the fault's time has run out."""
        return now >= self.until

    def concerns(self, entity: str | None) -> bool:
        """Whether the fault acts on `entity`: it names it, a parent of it, or nothing at all."""
        if self.entity is None or entity is None:
            return self.entity is None
        mine, other = self.entity.lower(), entity.lower()
        return other == mine or other.startswith(mine + "/")

    def line(self, now: float) -> Line:
        """What this fault does to the line at `now`."""
        if self.kind is FaultKind.FLAP and (now - self.since) % (self.up + self.down) >= self.down:
            return Line.UP
        return _LINES.get(self.kind, Line.UP)

    def next_change(self, now: float) -> float:
        """When this fault ends or, flapping, next changes its mind."""
        if self.kind is not FaultKind.FLAP:
            return self.until
        period = self.up + self.down
        start = self.since + math.floor((now - self.since) / period) * period
        edge = start + self.down if now < start + self.down else start + period
        return min(edge, self.until)

    def refusal(self, operation: Operation, now: float) -> AmqpError | None:
        """The error that `operation` is answered with, if this fault refuses it."""
        kind = FaultKind.REFUSE if self.kind is FaultKind.FLAP else self.kind
        if kind not in _REFUSALS or (kind in _LINES and self.line(now) is Line.UP):
            return None
        condition, description, operations = _REFUSALS[kind]
        if operation not in operations:
            return None
        return AmqpError(self.condition if kind is FaultKind.ERROR else condition, description, {})

    def drops_this_send(self) -> bool:
        """Count one send; whether it is the one whose answer is lost."""
        self._sends[0] += 1
        return self._sends[0] % self.every == 0

    def describe(self) -> dict[str, Any]:
        """The fault as plain values, for JSON; only the arguments that its kind knows."""
        shown: dict[str, Any] = {"kind": self.kind.value, "entity": self.entity, "since": self.since}
        shown["until"] = None if math.isinf(self.until) else self.until
        shown.update({name: getattr(self, name) for name in sorted(_ARGUMENTS.get(self.kind, ()))})
        return shown


class FaultBoard:
    """The faults of one namespace."""

    __slots__ = ("_faults", "any")

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self.any = False  # the hot path asks this first: hardly ever is there a fault

    def set(
        self,
        kind: FaultKind | str,
        *,
        now: float,
        entity: str | None = None,
        duration: float | None = None,
        seconds: float | None = None,
        condition: str | None = None,
        every: int | None = None,
        up: float | None = None,
        down: float | None = None,
    ) -> Fault:
        """Add a fault, for `duration` seconds or until cleared. Bad arguments raise ConfigurationError."""
        chosen = _known_kind(kind)
        given = {"seconds": seconds, "condition": condition, "every": every, "up": up, "down": down}
        arguments: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        _check_arguments(chosen, arguments)
        if duration is not None and not duration > 0:
            raise ConfigurationError(
                f"a fault lasts more than 0 seconds, not {duration:g}; leave the time out to keep it"
            )
        until = math.inf if duration is None else now + duration
        fault = Fault(kind=chosen, since=now, entity=entity, until=until, **arguments)
        self._faults.append(fault)
        self.any = True
        return fault

    def clear(self, entity: str | None = None) -> int:
        """Take away all faults, or those set on `entity`; how many there were."""
        kept = [] if entity is None else [f for f in self._faults if not (f.entity and f.concerns(entity))]
        cleared = len(self._faults) - len(kept)
        self._faults = kept
        self.any = bool(kept)
        return cleared

    def expire(self, now: float) -> None:
        """Forget the faults whose time has run out."""
        self._faults = [fault for fault in self._faults if not fault.is_over(now)]
        self.any = bool(self._faults)

    def active(self, now: float) -> list[Fault]:
        """The faults in force at `now`, the latest first."""
        return [fault for fault in reversed(self._faults) if not fault.is_over(now)]

    def next_change(self, now: float) -> float | None:
        """When something next changes by itself."""
        moments = [fault.next_change(now) for fault in self._faults]
        soonest = min(moments, default=math.inf)
        return None if math.isinf(soonest) else soonest

    def line(self, now: float, entity: str | None = None) -> Line:
        """What the line does: the namespace's own if no entity is named, else what was set on that entity by
        name.
        """
        for fault in self._relevant(entity, now):
            if (fault.entity is None) == (entity is None) and fault.line(now) is not Line.UP:
                return fault.line(now)
        return Line.UP

    def refusal(self, operation: Operation, entity: str, *, now: float) -> AmqpError | None:
        """The error with which an operation on `entity` is to be answered, if any."""
        for fault in self._relevant(entity, now):
            if fault.entity is None and fault.kind in _LINES:
                continue  # the listener sees to those
            error = fault.refusal(operation, now)
            if error is not None:
                return error
        return None

    def severance(self, operation: Operation, entity: str, *, now: float) -> AmqpError | None:
        """The error with which a link that is open already is detached, if a fault does not let it be."""
        severing = _SEVERS_RECEIVERS if operation is Operation.ATTACH_RECEIVER else _SEVERS_SENDERS
        for fault in self._relevant(entity, now):
            if fault.kind in severing and not (fault.entity is None and fault.kind in _LINES):
                error = fault.refusal(operation, now)
                if error is not None:
                    return error
        return None

    def delay(self, entity: str, now: float) -> float:
        """How much later than usual a send to `entity` is answered."""
        return next((f.seconds for f in self._relevant(entity, now) if f.kind is FaultKind.DELAY), 0.0)

    def drops(self, entity: str, now: float) -> bool:
        """Whether the answer to this send is lost, and its connection too. Each question counts one send."""
        droppers = [fault for fault in self._relevant(entity, now) if fault.kind is FaultKind.DROP]
        return sum(fault.drops_this_send() for fault in droppers) > 0  # each of them counts

    def refuses_tokens(self, entity: str, now: float) -> bool:
        """Whether the token plane is down for `entity`."""
        return any(f.kind is FaultKind.TOKEN for f in self._relevant(entity, now))

    def _relevant(self, entity: str | None, now: float) -> Iterable[Fault]:
        return [fault for fault in self.active(now) if fault.concerns(entity)]


def _known_kind(kind: FaultKind | str) -> FaultKind:
    try:
        return FaultKind(kind)
    except ValueError:
        raise ConfigurationError(
            f"there is no fault {kind!r}; choose one of {', '.join(FaultKind)}"
        ) from None


def _check_arguments(kind: FaultKind, arguments: dict[str, Any]) -> None:
    allowed = _ARGUMENTS.get(kind, frozenset())
    for name, value in arguments.items():
        if name not in allowed:
            takes = f"takes {', '.join(sorted(allowed))}" if allowed else "takes no argument of its own"
            raise ConfigurationError(f"the fault {kind} does not take {name!r}: it {takes}")
        if name != "condition" and not value > 0:
            raise ConfigurationError(f"{name} of the fault {kind} must be more than 0, not {value!r}")

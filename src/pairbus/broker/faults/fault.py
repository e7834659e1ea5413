"""One fault: what goes wrong, where, from when and until when.

A fault is data. It is asked about a moment (`now` is an argument) and answers; it never acts.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pairbus import conditions
from pairbus.amqp.performatives import AmqpError
from pairbus.broker.engine.names import fold
from pairbus.errors import ConfigurationError

__all__ = ["FAULT_ARGUMENTS", "ClientAction", "Fault", "FaultKind", "LineState", "make_fault"]


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


class LineState(StrEnum):
    """What the line to a namespace, or to one entity, does at a moment."""

    UP = "up"
    REFUSE = "refuse"
    RESET = "reset"
    SILENCE = "silence"
    BLACKHOLE = "blackhole"

    @property
    def is_mute(self) -> bool:
        """Whether nothing is answered, though nothing is cut."""
        return self in (LineState.SILENCE, LineState.BLACKHOLE)


class ClientAction(StrEnum):
    """What a client asks for, as far as faults tell one thing from another."""

    ATTACH_SENDER = "attach_sender"
    ATTACH_RECEIVER = "attach_receiver"
    ATTACH_MANAGEMENT = "attach_management"
    SEND = "send"
    SCHEDULE = "schedule"
    MANAGE = "manage"
    ADMINISTER = "administer"


_ATTACHING = frozenset(
    {ClientAction.ATTACH_SENDER, ClientAction.ATTACH_RECEIVER, ClientAction.ATTACH_MANAGEMENT},
)
_SENDING = frozenset({ClientAction.SEND, ClientAction.SCHEDULE})
_ON_LINKS = frozenset(ClientAction) - {ClientAction.ADMINISTER}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trait:
    """What a kind of fault does: to the line, to what is asked, and to links that are open already.

    One that withholds gives nothing to receivers that have asked for messages, and says nothing either.
    """

    line: LineState = LineState.UP
    condition: str = ""
    description: str = ""
    refuses: frozenset[ClientAction] = frozenset()
    severs: frozenset[ClientAction] = frozenset()
    withholds: bool = False
    arguments: frozenset[str] = frozenset()


# An open sender has each of its sends refused and need not lose its link. A receiver asks for nothing more
# once it has given credit, so that only a detach can tell it that something is wrong.
_SEVERS_RECEIVERS = frozenset({ClientAction.ATTACH_RECEIVER})

_TRAITS: dict[FaultKind, _Trait] = {
    # The conditions of the first two concern the links of one entity; a namespace is cut off below AMQP.
    FaultKind.REFUSE: _Trait(
        line=LineState.REFUSE,
        condition=conditions.DETACH_FORCED,
        description="The entity is not reachable.",
        refuses=_ON_LINKS,
        severs=_ATTACHING,
    ),
    FaultKind.RESET: _Trait(
        line=LineState.RESET,
        condition=conditions.DETACH_FORCED,
        description="The link was forcibly detached.",
        refuses=_ON_LINKS,
        severs=_ATTACHING,
    ),
    FaultKind.SILENCE: _Trait(line=LineState.SILENCE),
    FaultKind.BLACKHOLE: _Trait(line=LineState.BLACKHOLE),
    FaultKind.DELAY: _Trait(arguments=frozenset({"seconds"})),
    FaultKind.ERROR: _Trait(
        description="The service was unable to process the request.",
        refuses=frozenset(ClientAction),
        severs=_SEVERS_RECEIVERS,
        arguments=frozenset({"condition"}),
    ),
    FaultKind.BUSY: _Trait(
        condition=conditions.SERVER_BUSY,
        description="The request was terminated because the namespace is being throttled. Error code: 50009. "
        "Please wait 2 seconds and try again.",
        refuses=frozenset(ClientAction),
        # No link is lost: the Python SDK expects that of this condition, and would use a lost one for ever.
        withholds=True,
    ),
    FaultKind.TOKEN: _Trait(
        condition=conditions.UNAUTHORIZED,
        description="The token is not accepted: the token service is not available.",
        refuses=frozenset(ClientAction),
        severs=_SEVERS_RECEIVERS,
    ),
    FaultKind.DISABLED: _Trait(
        condition=conditions.ENTITY_DISABLED,
        description="Messaging entity is currently disabled.",
        refuses=_SENDING | {ClientAction.ATTACH_SENDER, ClientAction.ATTACH_RECEIVER},
        severs=_SEVERS_RECEIVERS,
    ),
    FaultKind.FULL: _Trait(
        condition=conditions.RESOURCE_LIMIT,
        description="The maximum entity size has been reached or exceeded.",
        refuses=_SENDING,
    ),
    FaultKind.DROP: _Trait(arguments=frozenset({"every"})),
    FaultKind.FLAP: _Trait(
        line=LineState.REFUSE,
        condition=conditions.DETACH_FORCED,
        description="The entity is not reachable.",
        refuses=_ON_LINKS,
        severs=_ATTACHING,
        arguments=frozenset({"up", "down"}),
    ),
}
FAULT_ARGUMENTS = tuple(sorted(frozenset[str]().union(*(trait.arguments for trait in _TRAITS.values()))))

DEFAULT_DELAY = 30.0  # longer than an impatient sender waits, shorter than the SDK's 60 s
DEFAULT_EVERY = 10
DEFAULT_FLAP = 5.0
# A port that opens and closes faster than this would do nothing else any more.
SHORTEST_PHASE = 0.01


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
    _key: str = field(init=False, repr=False, compare=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "_key", fold(self.entity or ""))

    def is_over(self, now: float) -> bool:
        """Whether the fault's time has run out."""
        return now >= self.until

    def is_on(self, entity: str) -> bool:
        """Whether the fault was set on just this entity."""
        return self.entity is not None and self._key == fold(entity)

    def concerns(self, entity: str | None) -> bool:
        """Whether the fault acts on `entity`: it names it or its parent (queue or topic), or nothing at all.

        `orders/new` is a queue of its own and no child of `orders`.
        """
        if self.entity is None or entity is None:
            return self.entity is None
        path = fold(entity)
        return path == self._key or path.startswith((self._key + "/$", self._key + "/subscriptions/"))

    def line(self, now: float) -> LineState:
        """What this fault does to the line at `now`."""
        if self.kind is FaultKind.FLAP and not self._phase(now)[0]:
            return LineState.UP
        return _TRAITS[self.kind].line

    @property
    def is_of_the_line(self) -> bool:
        """Whether it is the line that this fault disturbs, rather than answers."""
        return _TRAITS[self.kind].line is not LineState.UP

    def next_change(self, now: float) -> float:
        """When, after `now`, this fault ends or, flapping, next changes its mind."""
        if self.kind is not FaultKind.FLAP:
            return self.until
        return min(self._phase(now)[1], self.until)

    def refusal(self, operation: ClientAction, now: float) -> AmqpError | None:
        """The error that `operation` is answered with, if this fault refuses it."""
        return self._error(now) if operation in _TRAITS[self.kind].refuses else None

    def severance(self, operation: ClientAction, now: float) -> AmqpError | None:
        """The error with which an open link of that sort is detached, if this fault does not let it be."""
        return self._error(now) if operation in _TRAITS[self.kind].severs else None

    @property
    def withholds(self) -> bool:
        """Whether open receivers get nothing."""
        return _TRAITS[self.kind].withholds

    def describe(self) -> dict[str, Any]:
        """The fault as plain values, for JSON; only the arguments that its kind knows."""
        shown: dict[str, Any] = {"kind": self.kind.value, "entity": self.entity, "since": self.since}
        shown["until"] = None if math.isinf(self.until) else self.until
        shown.update({name: getattr(self, name) for name in sorted(_TRAITS[self.kind].arguments)})
        return shown

    def _error(self, now: float) -> AmqpError | None:
        if self.is_of_the_line and self.line(now) is LineState.UP:
            return None
        trait = _TRAITS[self.kind]
        return AmqpError(trait.condition or self.condition, trait.description, {})

    def _phase(self, now: float) -> tuple[bool, float]:
        """Flapping: whether it is down at `now`, and when that ends.

        Edges are always reckoned from `since`, in the same way, so that the end of one phase is exactly the
        beginning of the next and lies after `now`, however the division below was rounded.
        """
        period = self.up + self.down
        turn = math.floor((now - self.since) / period)
        if self.since + (turn + 1) * period <= now:
            turn += 1
        elif self.since + turn * period > now:
            turn -= 1
        rise = self.since + turn * period + self.down
        return (True, rise) if now < rise else (False, self.since + (turn + 1) * period)


def make_fault(
    kind: FaultKind | str,
    *,
    now: float,
    entity: str | None,
    duration: float | None,
    arguments: Mapping[str, Any],
) -> Fault:
    """A fault of the given values, which may have come from anywhere: ConfigurationError tells what is wrong.

    An argument that is None counts as not given.
    """
    chosen = _known_kind(kind)
    given = {name: value for name, value in arguments.items() if value is not None}
    for name, value in given.items():
        _check_argument(chosen, name, value)
    if duration is not None and not _is_positive(duration):
        raise ConfigurationError(
            f"a fault lasts more than 0 seconds, not {duration!r}; leave the time out to keep it"
        )
    until = math.inf if duration is None else now + duration
    return Fault(kind=chosen, since=now, entity=check_entity(entity), until=until, **given)


def check_entity(entity: Any) -> str | None:
    """The path of an entity without outer slashes, or ConfigurationError; None is the whole namespace."""
    if entity is None:
        return None
    if not isinstance(entity, str) or not entity.strip("/"):
        raise ConfigurationError(
            f"an entity is the path of a queue, topic or subscription, not {entity!r}; "
            "leave it out to mean the whole namespace"
        )
    return entity.strip("/")


def _known_kind(kind: Any) -> FaultKind:
    try:
        return FaultKind(kind)
    except ValueError:
        raise ConfigurationError(
            f"there is no fault {kind!r}; choose one of {', '.join(FaultKind)}"
        ) from None


def _check_argument(kind: FaultKind, name: str, value: Any) -> None:
    allowed = _TRAITS[kind].arguments
    if name not in allowed:
        takes = f"takes {' and '.join(sorted(allowed))}" if allowed else "takes no argument of its own"
        raise ConfigurationError(f"the fault {kind} does not take {name!r}: it {takes}")
    if name == "condition":
        if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
            raise ConfigurationError(
                f"condition of the fault {kind} is the name of an AMQP error, such as "
                f"{conditions.INTERNAL_ERROR}, not {value!r}"
            )
    elif name == "every" and not (isinstance(value, int) and _is_positive(value)):
        raise ConfigurationError(f"every of the fault {kind} must be a whole number from 1 on, not {value!r}")
    elif not _is_positive(value):
        raise ConfigurationError(f"{name} of the fault {kind} must be more than 0 seconds, not {value!r}")
    elif name in ("up", "down") and value < SHORTEST_PHASE:
        raise ConfigurationError(f"{name} of the fault {kind} is at least {SHORTEST_PHASE} s, not {value!r}")


def _is_positive(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and _is_moderate(value)
    )


def _is_moderate(value: float) -> bool:
    """Whether sums with this number stay numbers. A hundred years are for ever enough."""
    return value <= 100 * 366 * 86400.0

"""One fault as data: what goes wrong, where and when. It is asked about a moment, `now`, and never acts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pairbus.amqp.performatives import AmqpError
from pairbus.broker.engine.names import fold
from pairbus.errors import ConfigurationError
from pairbus.fault_kinds import KINDS, ClientAction, FaultKind, FaultTraits, LineState, is_lasting


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Fault:
    """One thing that goes wrong. Arguments that its kind does not take are left empty."""

    kind: FaultKind
    since: float
    entity: str | None = None
    until: float = math.inf
    seconds: float = 0.0
    condition: str = ""
    every: int = 0
    up: float = 0.0
    down: float = 0.0
    _key: str = field(init=False, compare=False, default="")

    def __post_init__(self) -> None:
        object.__setattr__(self, "_key", fold(self.entity or ""))

    def __repr__(self) -> str:
        return f"Fault({', '.join(f'{name}={value!r}' for name, value in self.describe().items())})"

    @property
    def _traits(self) -> FaultTraits:
        return KINDS[self.kind]

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
        return self._traits.line

    @property
    def is_of_the_line(self) -> bool:
        """Whether it is the line that this fault disturbs, rather than answers."""
        return self._traits.line is not LineState.UP

    def next_change(self, now: float) -> float:
        """When, after `now`, this fault ends or, flapping, next changes its mind."""
        if self.kind is not FaultKind.FLAP:
            return self.until
        return min(self._phase(now)[1], self.until)

    def refusal(self, operation: ClientAction, now: float) -> AmqpError | None:
        """The error that `operation` is answered with, if this fault refuses it."""
        return self._error(now) if operation in self._traits.refuses else None

    def severance(self, operation: ClientAction, now: float) -> AmqpError | None:
        """The error with which an open link of that sort is detached, if this fault does not let it be."""
        return self._error(now) if operation in self._traits.severs else None

    @property
    def withholds(self) -> bool:
        """Whether open receivers get nothing."""
        return self._traits.withholds

    def describe(self) -> dict[str, Any]:
        """The fault as plain values, for JSON; only the arguments that its kind knows."""
        shown: dict[str, Any] = {"kind": self.kind.value, "entity": self.entity, "since": self.since}
        shown["until"] = None if math.isinf(self.until) else self.until
        shown.update((argument.name, getattr(self, argument.name)) for argument in self._traits.arguments)
        return shown

    def _error(self, now: float) -> AmqpError | None:
        if self.is_of_the_line and self.line(now) is LineState.UP:
            return None
        return AmqpError(self._traits.condition or self.condition, self._traits.description, {})

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
        KINDS[chosen].check(chosen, name, value)
    if duration is not None and not is_lasting(duration):
        raise ConfigurationError(
            f"a fault lasts more than 0 seconds, not {duration!r}; leave the time out to keep it"
        )
    until = math.inf if duration is None else now + duration
    values = {argument.name: argument.default for argument in KINDS[chosen].arguments} | given
    return Fault(kind=chosen, since=now, entity=check_entity(entity), until=until, **values)


def check_entity(entity: Any) -> str | None:
    """The path of an entity without outer slashes, or ConfigurationError; None is the whole namespace."""
    if entity is None:
        return None
    if not isinstance(entity, str) or not entity.strip("/") or not entity.isprintable():
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

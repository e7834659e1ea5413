"""Faults on demand: all that goes wrong with one namespace.

Theory
1. A `FaultBoard` holds the faults of one namespace and answers questions about a moment (`now` is an
   argument): it never acts. The listener, the connections and the link endpoints ask it and act.
2. Faults that concern the *line* (refuse, reset, silence, blackhole, flap) act on the whole namespace when
   they name no entity. Naming one, they act on that entity's links alone: refuse and reset detach and refuse
   them, silence and blackhole leave whatever is asked of them unanswered.
3. Faults that concern an *answer* (error, busy, disabled, full, token, delay, drop) act on every entity, or
   on the one named.
4. Flapping is a function of time, down first: no state has to be kept and a test can ask about any moment.
5. The latest fault set wins where several apply.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pairbus.amqp.performatives import AmqpError
from pairbus.fault_kinds import ClientAction, FaultKind, LineState

from .fault import Fault, check_entity, make_fault

_NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})


class FaultBoard:
    """The faults of one namespace."""

    __slots__ = ("_faults", "_sends", "any")

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._sends: list[int] = []  # beside each fault, how many sends it has seen
        self.any = False  # the hot path asks this first: hardly ever is there a fault

    def set(
        self,
        kind: FaultKind | str,
        *,
        now: float,
        entity: str | None = None,
        duration: float | None = None,
        arguments: Mapping[str, Any] = _NO_ARGUMENTS,
    ) -> Fault:
        """Add a fault, for `duration` seconds or until cleared. Bad arguments raise ConfigurationError."""
        fault = make_fault(kind, now=now, entity=entity, duration=duration, arguments=arguments)
        self._faults.append(fault)
        self._sends.append(0)
        self.any = True
        return fault

    def clear(self, entity: str | None = None) -> int:
        """Take away all faults, or those set on just this entity; how many there were."""
        wanted = check_entity(entity)
        return len(self._remove([f for f in self._faults if wanted is None or f.is_on(wanted)]))

    def expire(self, now: float) -> list[Fault]:
        """Forget the faults whose time has run out, and return them."""
        return self._remove([fault for fault in self._faults if fault.is_over(now)])

    def shift(self, seconds: float) -> None:
        """Somebody has set the clock forward: a fault lasts as long as it would have."""
        self._faults = [
            replace(fault, since=fault.since + seconds, until=fault.until + seconds) for fault in self._faults
        ]

    def active(self, now: float) -> list[Fault]:
        """The faults in force at `now`, the latest first."""
        return [fault for fault in reversed(self._faults) if not fault.is_over(now)]

    def next_change(self, now: float) -> float | None:
        """When, after `now`, something next changes by itself."""
        soonest = min((fault.next_change(now) for fault in self.active(now)), default=math.inf)
        return None if math.isinf(soonest) else soonest

    def line(self, now: float, entity: str | None = None) -> LineState:
        """The namespace's own line if no entity is named, else what was set on that entity by name."""
        for fault in self._relevant(entity, now):
            line = fault.line(now)
            if (fault.entity is None) == (entity is None) and line is not LineState.UP:
                return line
        return LineState.UP

    def refusal(self, operation: ClientAction, entity: str, *, now: float) -> AmqpError | None:
        """The error with which an operation on `entity` is to be answered, if any."""
        errors = (fault.refusal(operation, now) for fault in self._answering(entity, now))
        return next((error for error in errors if error is not None), None)

    def severance(self, operation: ClientAction, entity: str, *, now: float) -> AmqpError | None:
        """The error with which a link that is open already is detached, if a fault does not let it be."""
        errors = (fault.severance(operation, now) for fault in self._answering(entity, now))
        return next((error for error in errors if error is not None), None)

    def withholds(self, entity: str, now: float) -> bool:
        """Whether the receivers of `entity` get nothing for the time being."""
        return any(fault.withholds for fault in self._relevant(entity, now))

    def delay(self, entity: str, now: float) -> float:
        """How much later than usual a send to `entity` is answered."""
        return next((f.seconds for f in self._relevant(entity, now) if f.kind is FaultKind.DELAY), 0.0)

    def drops(self, entity: str, now: float) -> bool:
        """Whether the answer to this send is lost, and its connection too. Each question counts one send."""
        dropped = False
        for index, fault in enumerate(self._faults):
            if fault.kind is FaultKind.DROP and fault.concerns(entity) and not fault.is_over(now):
                self._sends[index] += 1
                dropped |= self._sends[index] % fault.every == 0
        return dropped

    def refuses_tokens(self, entity: str, now: float) -> bool:
        """Whether the token plane is down for `entity`."""
        return any(f.kind is FaultKind.TOKEN for f in self._relevant(entity, now))

    def _relevant(self, entity: str | None, now: float) -> list[Fault]:
        return [fault for fault in self.active(now) if fault.concerns(entity)]

    def _answering(self, entity: str, now: float) -> list[Fault]:
        """The faults that give answers; the line of the whole namespace is the listener's business."""
        return [f for f in self._relevant(entity, now) if f.entity is not None or not f.is_of_the_line]

    def _remove(self, gone: list[Fault]) -> list[Fault]:
        kept = [pair for pair in zip(self._faults, self._sends, strict=True) if pair[0] not in gone]
        self._faults = [fault for fault, _ in kept]
        self._sends = [sends for _, sends in kept]
        self.any = bool(self._faults)
        return gone

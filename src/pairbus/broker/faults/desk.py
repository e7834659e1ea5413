"""Where the faults of one namespace are set and ended, and where its port and its connections learn of it.

The board knows what is wrong at any moment; the desk knows when that changes (somebody sets or clears a
fault, a plan does, or time passes) and sees to it that open connections feel it as new ones do.
"""

import logging
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pairbus.broker.bounded_log import BoundedLog
from pairbus.fault_kinds import FaultKind, LineState

from .board import FaultBoard
from .fault import Fault
from .plan import FaultStep

if TYPE_CHECKING:
    from pairbus.broker.host import NamespaceHost

log = logging.getLogger(__name__)
bounded = BoundedLog(log)


class FaultDesk:
    """Sets and ends the faults of one namespace."""

    def __init__(self, host: "NamespaceHost", board: FaultBoard) -> None:
        self._host = host
        self._board = board
        self.line = LineState.UP  # what port and connections were last told
        self.next_change = math.inf  # in Unix time

    def set(
        self,
        kind: FaultKind | str,
        *,
        entity: str | None,
        duration: float | None,
        arguments: Mapping[str, Any],
    ) -> Fault:
        """Add a fault; open connections feel it at once."""
        now = self._host.now()
        fault = self._board.set(kind, now=now, entity=entity, duration=duration, arguments=arguments)
        self._tell("fault set", fault.describe())
        self._changed()
        return fault

    def throttle(self, seconds: float) -> None:
        """Refuse everything as throttled: the credits of the namespace are spent."""
        now = self._host.now()
        self._board.set(FaultKind.BUSY, now=now, duration=seconds)
        fields = {"namespace": self._host.name, "seconds": round(seconds, 3)}
        bounded.tell(logging.WARNING, "credits are spent", fields)
        self._changed()

    def clear(self, entity: str | None = None) -> int:
        """Take away all faults, or those of one entity; how many there were."""
        cleared = self._board.clear(entity)
        self._tell("faults cleared", {"entity": entity, "count": cleared})
        self._changed()
        return cleared

    def take_step(self, step: FaultStep) -> None:
        """Do what a plan of faults says."""
        step.apply(self._board, self._host.now())
        self._tell("fault plan", step.describe())
        self._changed()

    def is_mute(self, path: str) -> bool:
        """Whether nothing that is asked of the entity, or of the whole namespace, is answered now."""
        if not self._board.any:
            return False
        return self.line.is_mute or self._board.line(self._host.now(), path).is_mute

    def withholds(self, path: str) -> bool:
        """Whether the entity's receivers get nothing for the time being."""
        board = self._board
        return board.any and (self.is_mute(path) or board.withholds(path, self._host.now()))

    def keep_time(self, now: float) -> None:
        """End what is over, and let what flaps change its mind."""
        if now < self.next_change:
            return
        for fault in self._board.expire(now):
            self._tell("fault ended", fault.describe())
        self._changed()

    def shift(self, seconds: float) -> None:
        """Somebody has set the clock forward."""
        self._board.shift(seconds)
        self.next_change += seconds

    def _changed(self) -> None:
        now = self._host.now()
        line = self._board.line(now)
        if line is not self.line:
            self._tell("line changed", {"line": line.value, "was": self.line.value})
            self.line = line
            self._host.follow_line(line)
        soonest = self._board.next_change(now)
        self.next_change = math.inf if soonest is None else soonest
        self._host.review()

    def _tell(self, event: str, facts: dict[str, Any]) -> None:
        log.warning(event, extra={"fields": {"namespace": self._host.name, **facts}})

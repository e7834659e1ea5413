"""Who wants to know: logs, metrics, the ledger and tests listen here to what the client does.

An observer is called on the event loop and must not block. What one of them raises is logged and stops
neither the others nor the send.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ..options import StateChange
from ..pairing.headroom import HeadroomNotice

__all__ = ["LogObserver", "Observer", "Observers", "Outcome", "Route", "Sending"]

Route = Literal["primary", "backlog", "spool"]
Outcome = Literal["ok", "failed", "unknown"]

log = logging.getLogger("pairbus.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """One attempt to send. `unknown`: there was no answer, so that the messages may have been taken."""

    path: str
    route: Route
    outcome: Outcome
    messages: int
    size: int
    seconds: float


class Observer:
    """Hears of everything; override what is of interest."""

    def state_changed(self, change: StateChange) -> None:
        """An entity has changed its state."""

    def sent(self, sending: Sending) -> None:
        """An attempt to send has ended."""

    def pinged(self, path: str, *, succeeded: bool, seconds: float) -> None:
        """A ping has been answered, or not."""

    def rotation_changed(self, usable: int, total: int) -> None:
        """A backlog queue has left the rotation or come back."""

    def headroom_lacked(self, notice: HeadroomNotice) -> None:
        """A message was sent that would not fit a backlog queue as it is."""


class LogObserver(Observer):
    """One line a change."""

    def state_changed(self, change: StateChange) -> None:
        level = logging.INFO if change.new.value == "healthy" else logging.WARNING
        log.log(
            level,
            "%s: %s -> %s (%s)",
            change.path,
            change.old.value,
            change.new.value,
            change.reason,
            extra={"fields": {"path": change.path, "old": change.old.value, "new": change.new.value}},
        )

    def headroom_lacked(self, notice: HeadroomNotice) -> None:
        log.warning("%s", notice, extra={"fields": {"path": notice.path, "size": notice.size}})


class Observers:
    """All observers of a client."""

    __slots__ = ("_all",)

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._all = tuple(observers)

    def tell(self, event: Callable[[Observer], None]) -> None:
        """Call each of them."""
        for observer in self._all:
            try:
                event(observer)
            except Exception:
                log.exception("an observer failed: %r", observer)

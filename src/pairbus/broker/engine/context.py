"""What the entities of one namespace share: limits, alarms, and the account of what has happened."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from .deadlines import Alarms
from .events import EngineEvent, SequenceAdvanced
from .settings import NamespaceLimits

if TYPE_CHECKING:
    from .entity import Entity
    from .queue import MessageQueue
    from .sessions import SessionLock


class Space:
    """Bytes taken, and remembered ids, each against the quota; shared with sub-queues and subscriptions."""

    __slots__ = ("limit", "remembered", "used")

    def __init__(self) -> None:
        self.used = self.remembered = self.limit = 0


class Context:
    """One a namespace. `find` and `retire` are the namespace's: look up a path, delete an idle entity."""

    __slots__ = (
        "advanced",
        "alarms",
        "events",
        "find",
        "limits",
        "lost_sessions",
        "next_token",
        "ready",
        "retire",
    )

    def __init__(
        self,
        limits: NamespaceLimits,
        next_token: Callable[[], uuid.UUID],
        *,
        find: Callable[[str], Entity | None],
        retire: Callable[[Entity], None],
    ) -> None:
        self.limits = limits
        self.next_token = next_token
        self.find = find
        self.retire = retire
        self.alarms = Alarms()
        # Emptied, never replaced: entities keep the bound methods of these.
        self.events: list[EngineEvent] = []
        self.ready: set[MessageQueue] = set()
        # Of locks that have ended by their time: who held them is to be told.
        self.lost_sessions: list[SessionLock] = []
        # Who has given out numbers; told once a turn, however many there were.
        self.advanced: set[Entity] = set()

    def take_events(self) -> list[EngineEvent]:
        for entity in self.advanced:
            if not entity.removed:
                self.events.append(SequenceAdvanced(entity.path, entity.last_sequence))
        self.advanced.clear()
        taken = self.events.copy()
        self.events.clear()
        return taken

    def drop_events(self) -> None:
        """Tell nobody of what has happened: of whatever fails in telling, this does nothing."""
        self.events.clear()
        self.advanced.clear()

    def take_ready(self) -> set[MessageQueue]:
        taken = {queue for queue in self.ready if not queue.removed}
        self.ready.clear()
        return taken

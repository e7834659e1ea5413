"""Sessions of a queue.

1. A session is there while it has messages, a state or a lock; it is made by the first and dropped after
   the last of these.
2. It is *available* while a message waits in it and nobody holds it. Available sessions are given out in
   the order in which they became so: a session that comes back goes to the end, so that none starves.
3. A session's lock covers every message that was received under it; they are `held`. When the lock
   expires they go back with a delivery counted; when it is released, without.
"""

import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from .breath import breathe
from .deadlines import Deadlines
from .message import StoredMessage
from .number_line import NumberLine
from .table import MessageTable


@dataclass(slots=True, eq=False)
class SessionLock:
    """A receiver's hold on a session."""

    session_id: str
    token: uuid.UUID
    locked_until: float


class MessageSession:
    """The messages of one session, its state and its lock."""

    __slots__ = ("held", "line", "lock", "session_id", "state", "table", "updated_at", "waiting")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.table = MessageTable()
        self.line = NumberLine()
        self.waiting = 0
        self.held: dict[int, StoredMessage] = {}
        self.lock: SessionLock | None = None
        self.state: bytes | None = None
        self.updated_at = 0.0


class MessageSessions:
    """All sessions of one queue."""

    __slots__ = ("_all", "_available", "_ends", "_ready")

    def __init__(self) -> None:
        self._all: dict[str, MessageSession] = {}
        self._available: OrderedDict[str, MessageSession] = OrderedDict()
        self._ends: Deadlines[str] = Deadlines()
        self._ready: dict[SessionLock, None] = {}

    def __iter__(self) -> Iterator[MessageSession]:
        return iter(self._all.values())

    def get(self, session_id: str | None) -> MessageSession | None:
        return None if session_id is None else self._all.get(session_id)

    def need(self, session_id: str) -> MessageSession:
        """The session of this id, made if it is not there."""
        session = self._all.get(session_id)
        if session is None:
            session = self._all[session_id] = MessageSession(session_id)
        return session

    def stand(self, message: StoredMessage) -> None:
        """Let a message wait in its session."""
        session = self.need(message.session_id or "")
        session.line.put(message.sequence_number)
        session.waiting += 1
        if session.lock is not None:
            self._ready[session.lock] = None
        self.review(session)

    def take_ready(self) -> list[SessionLock]:
        """The locks of sessions in which a message came to wait since the last call."""
        ready = list(self._ready)
        self._ready.clear()
        return ready

    def review(self, session: MessageSession) -> None:
        """Let the books agree with a session whose messages, state or lock have changed."""
        key = session.session_id
        if session.waiting and session.lock is None:
            if key not in self._available:
                self._available[key] = session
            return
        self._available.pop(key, None)
        if not session.table.count and session.lock is None and session.state is None:
            self._all.pop(key, None)

    def next_available(self) -> MessageSession | None:
        """The session that has been available for longest."""
        return next(iter(self._available.values()), None)

    def lock(self, session: MessageSession, lock: SessionLock) -> None:
        session.lock = lock
        self._ends.add(lock.locked_until, session.session_id)
        self.review(session)

    def unlock(self, session: MessageSession) -> list[StoredMessage]:
        """Take the lock away; the messages that were held under it, in order."""
        if session.lock is not None:
            self._ends.remove(session.lock.locked_until, session.session_id)
            self._ready.pop(session.lock, None)
            session.lock = None
        held = [session.held[number] for number in sorted(session.held)]
        session.held.clear()
        return held

    def extend(self, lock: SessionLock, until: float) -> None:
        """Let a lock end at another time than it did."""
        self._ends.remove(lock.locked_until, lock.session_id)
        lock.locked_until = until
        self._ends.add(until, lock.session_id)

    def shift_ends(self, seconds: float) -> None:
        """Let all locks end that much later."""
        for session in self._all.values():
            if session.lock is not None:
                self.extend(session.lock, session.lock.locked_until + seconds)

    def pop_due(self, now: float) -> Iterator[MessageSession]:
        """The sessions whose locks are over."""
        for session_id in self._ends.pop_due(now):
            yield self._all[session_id]

    def next(self) -> float:
        return self._ends.next()

    def listing(self, *, skip: int, top: int, updated_after: float | None) -> list[str]:
        """Ids, sorted: of sessions with messages or a state, or with a state set after a time."""
        found: list[str] = []
        for each in self:
            if updated_after is None:
                is_listed = each.table.count or each.state is not None
            else:
                is_listed = each.state is not None and each.updated_at > updated_after
            if is_listed:
                found.append(each.session_id)
            breathe()
        return sorted(found)[skip : skip + top]

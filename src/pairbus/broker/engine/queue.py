"""A queue that messages are received from: a queue, a subscription, or a dead-letter sub-queue of either.

Theory of operation:
1. Every operation first does what is due by its `now`: locks, sessions and messages end, scheduled
   messages are activated. So no operation sees a state older than its own time, whether the namespace has
   been ticked or not.
2. Receive under peek-lock: the message with the smallest number that waits is locked and named by a fresh
   token. Receive and delete: it is removed. Nothing else removes a message but complete, its expiry, and
   the way to the dead letters.
3. A lock ends by settlement, by its time, or with its session. A token that is not in the books any more is
   lost; it is not told why.

       settlement    delivery count    then
       complete      -                 the message is gone
       abandon       + 1               it waits again, at its number's place
       defer         + 1               only its number brings it back
       dead-letter   as it was         a new record in the dead letters
       release       as it was         it waits again
       (lock ends)   + 1               as abandon

4. A count that reaches the maximum sends the message to the dead letters instead (Azure counts deferring
   too). The count starts at 0 and is what the header of a delivery says: the deliveries before this one.
5. In a queue with sessions, messages are only received under a session's lock, in order, and live under
   that lock instead of one of their own. The sub-queues of such a queue know no sessions.
6. A deferred message that is received, and not completed, is deferred again.
7. Everything costs the logarithm of the queue's length at most, on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pairbus import words

from .context import Context, Space
from .errors import (
    bad_argument,
    disabled,
    message_not_found,
    not_allowed,
    not_found,
    session_cannot_be_locked,
    session_lock_lost,
)
from .events import SessionStateSet
from .message import MessageState, StoredMessage
from .sessions import MessageSession, MessageSessions, SessionLock
from .settings import EntitySettings, ReceivableSettings
from .settlement import Handout, LockableStock

__all__ = ["Counts", "Handout", "MessageQueue"]


class Counts(NamedTuple):
    """Messages as Azure counts them: locked and deferred ones are among the active."""

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    deferred: int = 0

    @property
    def total(self) -> int:
        return self.active + self.dead_letter + self.scheduled + self.transfer + self.transfer_dead_letter


class MessageQueue(LockableStock):
    """Something to receive from."""

    __slots__ = ("_receives", "parent")
    dead_letters: MessageQueue | None
    transfer_dead_letters: MessageQueue | None

    def __init__(
        self,
        context: Context,
        path: str,
        *,
        space: Space,
        now: float,
        parent: MessageQueue | None = None,
    ) -> None:
        super().__init__(context, path, space=space, now=now)
        self.parent = parent
        self._receives = True
        if parent is None:
            self.dead_letters = self._sub_queue(words.DEAD_LETTER_QUEUE, now)
            self.transfer_dead_letters = self._sub_queue(words.TRANSFER_DEAD_LETTER_QUEUE, now)

    def _sub_queue(self, name: str, now: float) -> MessageQueue:
        return MessageQueue(self._context, f"{self.path}/{name}", space=self.space, now=now, parent=self)

    def sub_queues(self) -> list[MessageQueue]:
        """The dead letters and the transfer dead letters, if this is not one of them."""
        return [queue for queue in (self.dead_letters, self.transfer_dead_letters) if queue is not None]

    def configure(self, settings: EntitySettings, now: float) -> None:
        assert isinstance(settings, ReceivableSettings)
        self._obey(settings)
        self._max_deliveries = settings.max_delivery_count
        super().configure(settings, now)
        for queue in self.sub_queues():
            queue._obey(settings)

    def _obey(self, settings: ReceivableSettings) -> None:
        """What holds for a sub-queue as well: it has its parent's locks and status, not its limits."""
        self.settings = settings
        self._lock_duration = settings.lock_duration
        forwards = self.parent is None and settings.forward_to is not None
        self._receives = not settings.status.forbids_receiving and not forwards
        if self.active_count:
            # Receivers that were held off may go on.
            self._ready.add(self)

    def remove(self) -> None:
        super().remove()
        self._receives = False
        for queue in self.sub_queues():
            queue.remove()

    def shift_durations(self, seconds: float) -> None:
        for queue in self.sub_queues():  # before the queue itself, which is as idle as they are
            queue.shift_durations(seconds)
        super().shift_durations(seconds)

    # -- checks

    def check_send(self) -> None:
        if self.parent is not None:
            raise not_allowed(f"'{self.path}' is a sub-queue. Send to '{self.parent.path}' instead.")
        super().check_send()

    def check_receive(self) -> None:
        """Raise Refused if nothing can be received here now."""
        if self.removed:
            raise not_found(self.path)
        if self.settings.status.forbids_receiving:
            raise disabled(self.path, "receiving")
        if self.parent is None and self.settings.forward_to is not None:
            raise not_allowed(
                f"Cannot create a message receiver on the entity '{self.path}' because auto-forwarding is "
                f"enabled. Receive from '{self.settings.forward_to}' instead."
            )

    def check_receiver(self, *, with_session: bool) -> None:
        """Raise Refused if a receiver of this kind cannot be here."""
        self.check_receive()
        if with_session and self.sessions is None:
            raise not_allowed(
                f"A sessionful message receiver cannot be created on the entity '{self.path}', which does "
                "not require sessions. Receive without a session."
            )
        if not with_session and self.sessions is not None:
            raise not_allowed(
                f"It is not possible for the entity '{self.path}', which requires sessions, to create a "
                "non-sessionful message receiver. Accept a session first."
            )

    # -- receiving

    def receive(
        self, limit: int, now: float, *, delete: bool = False, session: SessionLock | None = None
    ) -> list[Handout]:
        """Take up to `limit` waiting messages, locked or deleted."""
        if now >= self.alarm_at:
            self.tick(now)
        self.accessed_at = now
        if not self._receives or (session is None) is not (self.sessions is None):
            self.check_receiver(with_session=session is not None)
        held = None if session is None else self._held_session(session)
        line = self._line if held is None else held.line
        until = now + self._lock_duration if session is None else session.locked_until
        deliveries: list[Handout] = []
        while len(deliveries) < limit:
            message = self._step(line, now)
            if message is None:
                break
            if delete:
                self._take_out(message)
                deliveries.append(Handout(message, None, 0.0))
            else:
                deliveries.append(self._lock(message, until, held))
        return deliveries

    def receive_deferred(
        self,
        sequence_numbers: Sequence[int],
        now: float,
        *,
        delete: bool = False,
        session: SessionLock | None = None,
    ) -> list[Handout]:
        """Take deferred messages by their numbers: all of them, or none and raise Refused."""
        if now >= self.alarm_at:
            self.tick(now)
        self.accessed_at = now
        self.check_receiver(with_session=session is not None)
        held = None if session is None else self._held_session(session)
        messages = [self._find_deferred(number, held, now) for number in sequence_numbers]
        if delete:
            for message in messages:
                self._take_out(message)
            return [Handout(message, None, 0.0) for message in messages]
        until = now + self._lock_duration if session is None else session.locked_until
        return [self._lock(message, until, held) for message in messages]

    def peek(
        self, from_sequence: int, limit: int, now: float, *, session_id: str | None = None
    ) -> list[StoredMessage]:
        """Look at messages from a number on: waiting, locked, deferred and scheduled ones alike."""
        if now >= self.alarm_at:
            self.tick(now)
        if self.removed:
            raise not_found(self.path)
        self.accessed_at = now
        table = self.table
        if session_id is not None and self.sessions is not None:
            session = self.sessions.get(session_id)
            if session is None:
                return []
            table = session.table
        found: list[StoredMessage] = []
        if limit > 0:
            for message in table.since(from_sequence):
                if session_id is None or message.session_id == session_id:
                    found.append(message)
                    if len(found) == limit:
                        break
        return found

    def _find_deferred(self, number: int, held: MessageSession | None, now: float) -> StoredMessage:
        message = self.table.get(number)
        if message is None or message.state is not MessageState.DEFERRED or message.lock_token is not None:
            raise message_not_found(number)
        if held is not None and message.session_id != held.session_id:
            raise message_not_found(number)
        if message.expires_at is not None and message.expires_at <= now:
            self._expire(message, now)
            raise message_not_found(number)
        return message

    # -- sessions

    def accept_session(self, session_id: str | None, now: float) -> SessionLock | None:
        """Lock a session, or the next one that has messages; None if no session is available now."""
        if now >= self.alarm_at:
            self.tick(now)
        self.accessed_at = now
        self.check_receiver(with_session=True)
        assert self.sessions is not None
        session = self.sessions.next_available() if session_id is None else self.sessions.need(session_id)
        if session is None:
            return None
        if session.lock is not None:
            raise session_cannot_be_locked(session.session_id)
        lock = SessionLock(session.session_id, self._context.next_token(), now + self._lock_duration)
        self.sessions.lock(session, lock)
        self._wake_at(lock.locked_until)
        return lock

    def renew_session(self, lock: SessionLock, now: float) -> float:
        """Hold a session for another lock duration; until when."""
        if now >= self.alarm_at:
            self.tick(now)
        self.accessed_at = now
        self._held_session(lock)
        assert self.sessions is not None
        self.sessions.extend(lock, now + self._lock_duration)
        self._wake_at(lock.locked_until)
        return lock.locked_until

    def release_session(self, lock: SessionLock, now: float) -> None:
        """Let a session go; its messages wait again. To release a lost lock does nothing."""
        if now >= self.alarm_at:
            self.tick(now)
        self.accessed_at = now
        session = self.sessions.get(lock.session_id) if self.sessions is not None else None
        if session is not None and session.lock is lock:
            self._end_session(session, now, counted=False)

    def session_lock(self, session_id: str) -> SessionLock | None:
        """The lock on a session, whoever holds it."""
        session = None if self.sessions is None else self.sessions.get(session_id)
        return None if session is None else session.lock

    def take_ready_sessions(self) -> list[SessionLock]:
        """The locks of sessions in which something became available since the last call."""
        return [] if self.sessions is None else self.sessions.take_ready()

    def get_session_state(self, session_id: str) -> bytes | None:
        """The state that was set last, if any."""
        session = self._needs_sessions().get(session_id)
        return None if session is None else session.state

    def set_session_state(self, session_id: str, state: bytes | None, now: float) -> None:
        """Set the state of a session; None clears it."""
        limit = self._context.limits.max_session_state
        if state is not None and len(state) > limit:
            raise bad_argument(f"The session state has {len(state)} bytes; it may have {limit} at most.")
        self.accessed_at = now
        self.restore_session_state(session_id, state, now)
        self._emit(SessionStateSet(self.path, session_id, state, now))

    def restore_session_state(self, session_id: str, state: bytes | None, now: float) -> None:
        """Put a session's state back as a store had it."""
        sessions = self._needs_sessions()
        session = sessions.need(session_id)
        before = len(session.state or b"")
        session.state = state
        session.updated_at = now
        self.space.used += len(state or b"") - before
        sessions.review(session)

    def list_sessions(
        self, *, skip: int = 0, top: int = 100, updated_after: float | None = None
    ) -> list[str]:
        """Ids of sessions: of those with messages, or of those whose state was set after a time."""
        return self._needs_sessions().listing(skip=skip, top=top, updated_after=updated_after)

    def _needs_sessions(self) -> MessageSessions:
        if self.removed:
            raise not_found(self.path)
        if self.sessions is None:
            raise not_allowed(f"The entity '{self.path}' does not require sessions and has none.")
        return self.sessions

    def _held_session(self, lock: SessionLock) -> MessageSession:
        session = self.sessions.get(lock.session_id) if self.sessions is not None else None
        if session is None or session.lock is not lock:
            raise session_lock_lost(lock.session_id)
        return session

    # -- counting

    def counts(self) -> Counts:
        """How many messages there are, of which kind."""
        dead, transfer = self.dead_letters, self.transfer_dead_letters
        return Counts(
            active=self.active_count + self.deferred_count,
            dead_letter=0 if dead is None else dead.active_count + dead.deferred_count,
            scheduled=self.scheduled_count,
            transfer_dead_letter=0 if transfer is None else transfer.active_count + transfer.deferred_count,
            deferred=self.deferred_count,
        )

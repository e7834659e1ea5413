"""Locks on messages, and how they end.

A lock has a token, which is all that a receiver has to show. The books of the tokens are here; what a
settlement does to the message, and the table of the settlements, stands in `queue`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from pairbus import words

from .context import Context, Space
from .deadlines import Deadlines
from .errors import Refused, message_lock_lost, not_allowed, not_found, session_lock_lost
from .message import MessageState, StoredMessage
from .sessions import MessageSession, MessageSessions
from .stock import Stock


class Handout(NamedTuple):
    """A message for a receiver. Without a token it is deleted already."""

    message: StoredMessage
    lock_token: uuid.UUID | None
    locked_until: float


class LockableStock(Stock):
    """A stock whose messages can be locked and settled."""

    __slots__ = ("_lock_duration", "_lock_ends", "_locks", "_max_deliveries")

    def __init__(self, context: Context, path: str, *, space: Space, now: float) -> None:
        super().__init__(context, path, space=space, now=now)
        self._locks: dict[uuid.UUID, StoredMessage] = {}
        self._lock_ends: Deadlines[int] = Deadlines()
        self._lock_duration = 60.0
        # None in a sub-queue, which keeps its messages however often they fail.
        self._max_deliveries: int | None = None

    # -- settling

    def complete(self, token: uuid.UUID, now: float) -> None:
        """The message is done with."""
        self._take_out(self._unlock(self._locked(token, now)))

    def abandon(self, token: uuid.UUID, now: float, *, properties: Mapping[str, Any] | None = None) -> None:
        """Give a message back that could not be handled."""
        message = self._locked(token, now)
        self._change(message, properties)
        self._give_back(self._unlock(message), now)

    def defer(self, token: uuid.UUID, now: float, *, properties: Mapping[str, Any] | None = None) -> None:
        """Put a message aside; only its number brings it back."""
        message = self._locked(token, now)
        self._change(message, properties)
        self._unlock(message)
        if message.state is MessageState.ACTIVE:
            message.state = MessageState.DEFERRED
            self.active_count -= 1
            self.deferred_count += 1
        self._give_back(message, now)

    def dead_letter(
        self,
        token: uuid.UUID,
        now: float,
        *,
        reason: str | None = None,
        description: str | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """Move a message to the dead letters."""
        if self.dead_letters is None:
            raise not_allowed(
                f"'{self.path}' holds dead letters already. Complete the message, or send it anew."
            )
        message = self._locked(token, now)
        letter = self._letter(message, reason=reason, description=description, properties=properties)
        self._move(self._unlock(message), letter, now)

    def release(self, token: uuid.UUID, now: float) -> None:
        """Give a message back as if it had not been delivered."""
        self._return(self._unlock(self._locked(token, now)), now)

    def renew(self, token: uuid.UUID, now: float) -> float:
        """Lock a message for another lock duration; until when."""
        message = self._locked(token, now)
        if self.sessions is not None:
            raise not_allowed(
                "A message of a session has no lock of its own. Renew the session's lock instead."
            )
        self._lock_ends.remove(message.locked_until, message.sequence_number)
        until = message.locked_until = now + self._lock_duration
        self._lock_ends.add(until, message.sequence_number)
        self._wake_at(until)
        return until

    # -- the books

    def _lock(self, message: StoredMessage, until: float, held: MessageSession | None) -> Handout:
        token = self._context.next_token()
        message.lock_token = token
        message.locked_until = until
        self._locks[token] = message
        if held is None:
            self._lock_ends.add(until, message.sequence_number)
            if until < self.alarm_at:
                self._context.alarms.set(self, until)
        else:
            held.held[message.sequence_number] = message
        return Handout(message, token, until)

    def _locked(self, token: uuid.UUID, now: float) -> StoredMessage:
        if now >= self.alarm_at:
            self.tick(now)
        self.accessed_at = now
        message = self._locks.get(token)
        if message is None:
            raise self._lost()
        return message

    def _unlock(self, message: StoredMessage) -> StoredMessage:
        self._drop_lock(message)
        if self.sessions is None:
            self._lock_ends.remove(message.locked_until, message.sequence_number)
            return message
        session = self.sessions.get(message.session_id)
        if session is not None:
            session.held.pop(message.sequence_number, None)
        return message

    def _drop_lock(self, message: StoredMessage) -> None:
        if message.lock_token is not None:
            del self._locks[message.lock_token]
            message.lock_token = None

    def _lost(self) -> Refused:
        if self.removed:
            return not_found(self.path)
        return message_lock_lost() if self.sessions is None else session_lock_lost(None)

    def _give_back(self, message: StoredMessage, now: float) -> None:
        """A delivery has failed: count it, and bury the message if that was the last one."""
        message.delivery_count += 1
        most = self._max_deliveries
        if most is not None and message.delivery_count >= most:
            description = f"Message could not be consumed after {most} delivery attempts."
            letter = self._letter(message, reason=words.TOO_MANY_DELIVERIES, description=description)
            self._move(message, letter, now)
            return
        self._tell_change(message)
        self._return(message, now)

    def _return(self, message: StoredMessage, now: float) -> None:
        if message.state is MessageState.DEFERRED:
            return
        if message.expires_at is not None and message.expires_at <= now:
            self._expire(message, now)
        else:
            self._offer(message)

    def _end_session(self, session: MessageSession, now: float, *, counted: bool) -> None:
        assert self.sessions is not None
        for message in self.sessions.unlock(session):
            self._drop_lock(message)
            if counted:
                self._give_back(message, now)
            else:
                self._return(message, now)
        self.sessions.review(session)
        if session.waiting:
            self._ready.add(self)

    # -- time and end

    def _work_off(self, now: float) -> None:
        for number in self._lock_ends.pop_due(now):
            message = self.table.get(number)
            assert message is not None
            self._drop_lock(message)
            self._give_back(message, now)
        if self.sessions is not None:
            for session in self.sessions.pop_due(now):
                if session.lock is not None:
                    self._context.lost_sessions.append(session.lock)
                self._end_session(session, now, counted=True)
        super()._work_off(now)

    def shift_durations(self, seconds: float) -> None:
        if self.sessions is not None:
            self.sessions.shift_locks(seconds)
        else:
            for message in self._locks.values():
                self._lock_ends.remove(message.locked_until, message.sequence_number)
                message.locked_until += seconds
                self._lock_ends.add(message.locked_until, message.sequence_number)
        super().shift_durations(seconds)

    def _next_deadline(self) -> float:
        due = min(super()._next_deadline(), self._lock_ends.next())
        return due if self.sessions is None else min(due, self.sessions.next())

    def remove(self) -> None:
        super().remove()
        self._locks.clear()
        if self.sessions is not None:
            self.sessions = MessageSessions()

"""Locks on messages: who holds which, and until when.

A lock has a token, which is all that a receiver has to show. A message of a session has no end of its own: it
is held as long as its session is.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from .deadlines import Deadlines
from .message import StoredMessage
from .sessions import MessageSession
from .shelf import Shelf


class Locks:
    """The locked messages of one queue; `by_token` finds them."""

    __slots__ = ("_ends", "_shelf", "by_token")

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.by_token: dict[uuid.UUID, StoredMessage] = {}
        self._ends: Deadlines[int] = Deadlines()

    def __len__(self) -> int:
        return len(self.by_token)

    def __iter__(self) -> Iterator[StoredMessage]:
        return iter(self.by_token.values())

    def add(
        self, message: StoredMessage, token: uuid.UUID, until: float, held: MessageSession | None
    ) -> None:
        """Lock a message; `held` is the session under whose lock."""
        message.lock_token = token
        message.locked_until = until
        self.by_token[token] = message
        if held is None:
            self._ends.add(until, message.sequence_number)
        else:
            held.held[message.sequence_number] = message

    def release(self, message: StoredMessage) -> StoredMessage:
        """Unlock a message before its time."""
        assert message.lock_token is not None
        del self.by_token[message.lock_token]
        message.lock_token = None
        sessions = self._shelf.sessions
        if sessions is None:
            self._ends.remove(message.locked_until, message.sequence_number)
            return message
        session = sessions.get(message.session_id)
        if session is not None:
            session.held.pop(message.sequence_number, None)
        return message

    def drop(self, message: StoredMessage) -> None:
        """Forget the token of a message whose lock is over."""
        if message.lock_token is not None:
            del self.by_token[message.lock_token]
            message.lock_token = None

    def move_end(self, message: StoredMessage, until: float) -> None:
        """Let a lock end at another time than it did."""
        self._ends.remove(message.locked_until, message.sequence_number)
        message.locked_until = until
        self._ends.add(until, message.sequence_number)

    def pop_due(self, now: float) -> Iterator[StoredMessage]:
        """The messages whose locks are over, unlocked."""
        for number in self._ends.pop_due(now):
            message = self._shelf.table.get(number)
            assert message is not None
            self.drop(message)
            yield message

    def next(self) -> float:
        return self._ends.next()

    def clear(self) -> None:
        self.by_token.clear()

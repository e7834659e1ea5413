"""Locks on messages: who holds which, and until when.

A lock has a token, which is all that a receiver has to show. A message of a session has no end of its own: it
is held as long as its session is.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from .breath import breathe
from .deadlines import Deadlines
from .message import StoredMessage
from .sessions import MessageSession
from .shelf import Shelf

_end = attrgetter("locked_until")


class Locks:
    """The locked messages of one queue."""

    __slots__ = ("_by_token", "_ends", "_shelf")

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        # By the number that a token is: Python has to be asked for the hash of a uuid, each time.
        self._by_token: dict[int, StoredMessage] = {}
        self._ends: Deadlines[int] = Deadlines()

    def __len__(self) -> int:
        return len(self._by_token)

    def __iter__(self) -> Iterator[StoredMessage]:
        return iter(self._by_token.values())

    def find(self, token: uuid.UUID) -> StoredMessage | None:
        """The message that is locked by this token, unless that is lost."""
        return self._by_token.get(token.int)

    def add(
        self, message: StoredMessage, token: uuid.UUID, until: float, held: MessageSession | None
    ) -> None:
        """Lock a message; `held` is the session under whose lock."""
        message.lock_token = token
        message.locked_until = until
        self._by_token[token.int] = message
        if held is None:
            self._ends.add(until, message.sequence_number)
        else:
            held.held[message.sequence_number] = message

    def add_all(
        self, messages: Mapping[int, StoredMessage], until: float, held: MessageSession | None
    ) -> None:
        """Lock messages together, which have their tokens already and come by the numbers that these are."""
        self._by_token.update(messages)
        numbers = []
        for message in messages.values():
            message.locked_until = until
            numbers.append(message.sequence_number)
        if held is not None:
            held.held.update(zip(numbers, messages.values(), strict=True))
        elif numbers:
            self._ends.add_all(until, numbers)

    def release(self, message: StoredMessage) -> StoredMessage:
        """Unlock a message before its time."""
        assert message.lock_token is not None
        del self._by_token[message.lock_token.int]
        return self._unlock(message)

    def take_all(self, tokens: Sequence[uuid.UUID]) -> list[StoredMessage | None]:
        """Unlock the messages that are locked by these tokens; None stands for a token that is lost."""
        pop = self._by_token.pop
        found = [pop(token.int, None) for token in tokens]
        taken = [message for message in found if message is not None]
        if self._shelf.sessions is not None:
            for message in taken:
                self._unlock(message)
            return found
        for until, group in groupby(taken, key=_end):
            self._ends.remove_all(until, [message.sequence_number for message in group])
        for message in taken:
            message.lock_token = None
        return found

    def _unlock(self, message: StoredMessage) -> StoredMessage:
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
            del self._by_token[message.lock_token.int]
            message.lock_token = None

    def move_end(self, message: StoredMessage, until: float) -> None:
        """Let a lock end at another time than it did."""
        self._ends.remove(message.locked_until, message.sequence_number)
        message.locked_until = until
        self._ends.add(until, message.sequence_number)

    def shift_ends(self, seconds: float) -> None:
        """Let all locks end that much later."""
        for message in self:
            self.move_end(message, message.locked_until + seconds)

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
        while self._by_token:
            self._by_token.popitem()
            breathe()

"""The messages that one entity holds, whatever their state: by number, by session, and the room they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .context import Space
from .message import StoredMessage
from .sessions import MessageSessions
from .table import MessageTable


class Shelf:
    """All messages of an entity. `sessions` is there if they are to be told apart by their session."""

    __slots__ = ("sessions", "space", "table")

    def __init__(self, space: Space) -> None:
        self.space = space
        self.table = MessageTable()
        self.sessions: MessageSessions | None = None

    def add(self, message: StoredMessage) -> None:
        self.table.add(message)
        self.space.used += message.size
        if self.sessions is not None and message.session_id is not None:
            self.sessions.need(message.session_id).table.add(message)

    def add_all(self, messages: Sequence[StoredMessage]) -> None:
        """The same for many, where there are no sessions."""
        self.table.add_all(messages)
        self.space.used += sum([message.size for message in messages])

    def remove(self, message: StoredMessage) -> None:
        self.table.remove(message.sequence_number)
        self.space.used -= message.size
        if self.sessions is not None:
            session = self.sessions.get(message.session_id)
            if session is not None:
                session.table.remove(message.sequence_number)
                self.sessions.review(session)

    def since(self, number: int, session_id: str | None) -> Iterator[StoredMessage]:
        """The messages from a number on, in order, of one session if one is named."""
        if session_id is None:
            return self.table.since(number)
        if self.sessions is None:
            return (message for message in self.table.since(number) if message.session_id == session_id)
        session = self.sessions.get(session_id)
        return iter(()) if session is None else session.table.since(number)

    def measure(self) -> int:
        """Bytes taken by what is here alone; counted message by message."""
        states = sum(len(session.state or b"") for session in self.sessions or ())
        return states + sum(message.size for message in self.table.since(0))

    def clear(self) -> None:
        """Let go of everything, and of the account of it."""
        self.table = MessageTable()
        if self.sessions is not None:
            self.sessions = MessageSessions()

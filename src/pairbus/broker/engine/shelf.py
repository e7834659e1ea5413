"""The messages that one entity holds, whatever their state: by number, by session, and the room they take."""

from collections.abc import Iterable, Iterator, Sequence

from .breath import breathe
from .context import Space
from .message import Content, StoredMessage
from .sessions import MessageSessions
from .table import MessageTable

# Bytes of a message that is read together with others.
_SMALL = 1 << 16
#: How many are read together.
AT_ONCE = 250


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

    def remove_all(self, messages: Sequence[StoredMessage]) -> None:
        """The same for many."""
        if self.sessions is not None:
            for message in messages:
                self.remove(message)
            return
        self.table.remove_all([message.sequence_number for message in messages])
        self.space.used -= sum([message.size for message in messages])

    def since(self, number: int, session_id: str | None) -> Iterator[StoredMessage]:
        """The messages from a number on, in order, of one session if one is named."""
        if session_id is None:
            return self.table.since(number)
        if self.sessions is None:
            return self._of_session(number, session_id)
        session = self.sessions.get(session_id)
        return iter(()) if session is None else session.table.since(number)

    def _of_session(self, number: int, session_id: str) -> Iterator[StoredMessage]:
        """Where sessions are not told apart, each message is looked at."""
        for message in self.table.since(number):
            breathe()
            if message.session_id == session_id:
                yield message

    def bring(self, message: StoredMessage, others: Iterable[int]) -> None:
        """Read the content of a message that is about to leave, and of others that leave right after it."""
        found = (self.table.get(number) for number in others)
        absent = [each for each in found if each is not None and not each.is_at_hand and each.size <= _SMALL]
        if message not in absent:
            absent.append(message)
        source = message.held
        assert not isinstance(source, Content)
        for each, content in zip(absent, source.read([one.sequence_number for one in absent]), strict=True):
            if content is not None:
                each.held = content

    def measure(self) -> int:
        """Bytes taken by what is here alone; counted message by message."""
        states = sum(len(session.state or b"") for session in self.sessions or ())
        sizes = 0
        for message in self.table.since(0):
            sizes += message.size
            breathe()
        return states + sizes

    def clear(self) -> None:
        """Let go of everything, and of the account of it."""
        self.table.clear()
        if self.sessions is not None:
            for session in self.sessions:
                session.table.clear()
            self.sessions = MessageSessions()

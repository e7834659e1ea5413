"""What a queue has to give: which messages wait, in which line, and which expire when.

1. A message is in the stock until it leaves. It *waits* if it is active and not locked; then it stands in the
   line, or in that of its session.
2. An expired message is never given out. It is found by its deadline, or at the latest when its turn comes.
   A locked message outlives its expiry until the lock ends; a deferred one until somebody asks for it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from .deadlines import NEVER, Deadlines
from .message import MessageState, StoredMessage
from .number_line import NumberLine
from .shelf import AT_ONCE, Shelf

# Names of a module: to find a member of an enumeration takes Python 3.11 ten times as long.
_ACTIVE: Final = MessageState.ACTIVE
_DEFERRED: Final = MessageState.DEFERRED
# Lines shorter than this are not worth sweeping.
FEW: Final = 64
# Messages, and bytes of them, that are brought at once: so many that to ask is nothing beside the reading.
_MOST_ABSENT: Final = 256
_MOST_ABSENT_BYTES: Final = 1 << 20


class Stock:
    """The messages of a queue that are not scheduled."""

    __slots__ = ("_expiries", "_shelf", "active_count", "deferred_count", "line")

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._expiries: Deadlines[int] = Deadlines()
        self.line = NumberLine()
        self.active_count = 0
        self.deferred_count = 0

    def place(self, message: StoredMessage) -> float:
        """Take a message in; when it expires."""
        self._shelf.add(message)
        if message.state is _DEFERRED:
            self.deferred_count += 1
            return NEVER
        self.active_count += 1
        return self.stand(message)

    def place_all(self, messages: Sequence[StoredMessage]) -> float:
        """Take in many active ones, in the order of their numbers, without sessions; the first expiry."""
        self._shelf.add_all(messages)
        self.active_count += len(messages)
        numbers = [message.sequence_number for message in messages]
        self.line.extend(numbers)
        ends = {message.expires_at for message in messages}
        first_end = min((end for end in ends if end is not None), default=NEVER)
        if len(ends) == 1 and first_end < NEVER:  # that of their entity
            self._expiries.add_all(first_end, numbers)
        elif first_end < NEVER:
            for message in messages:
                if message.expires_at is not None:
                    self._expiries.add(message.expires_at, message.sequence_number)
        return first_end

    def take_off(self, message: StoredMessage) -> None:
        """Let a message go that neither waits nor is locked any more."""
        if message.expires_at is not None:
            self._expiries.remove(message.expires_at, message.sequence_number)
        self._shelf.remove(message)
        if message.state is _DEFERRED:
            self.deferred_count -= 1
        else:
            self.active_count -= 1

    def take_all_off(self, messages: Sequence[StoredMessage]) -> None:
        """The same for many."""
        deferred = 0
        for message in messages:
            if message.expires_at is not None:
                self._expiries.remove(message.expires_at, message.sequence_number)
            if message.state is _DEFERRED:
                deferred += 1
        self._shelf.remove_all(messages)
        self.deferred_count -= deferred
        self.active_count -= len(messages) - deferred

    def defer(self, message: StoredMessage) -> None:
        """Put an active message aside."""
        if message.state is _ACTIVE:
            message.state = _DEFERRED
            self.active_count -= 1
            self.deferred_count += 1

    # -- the lines

    def stand(self, message: StoredMessage) -> float:
        """Let an active message wait; when it expires. That may have come while it was locked, and lie ahead
        again since the clock was set back.
        """
        sessions, end = self._shelf.sessions, message.expires_at
        if sessions is None:
            self.line.put(message.sequence_number)
        else:
            sessions.stand(message)
        if end is None:
            return NEVER
        self._expiries.remove(end, message.sequence_number)
        self._expiries.add(end, message.sequence_number)
        return end

    def leave_line(self, message: StoredMessage) -> None:
        """A message waits no longer. The line itself keeps its number, and passes over it."""
        if self._shelf.sessions is not None:
            session = self._shelf.sessions.get(message.session_id)
            if session is not None:
                session.waiting -= 1

    def take(self, line: NumberLine, most: int) -> list[StoredMessage]:
        """Take some of the next messages off a line, be they expired; none if there are no more."""
        find = self._shelf.table.get
        while numbers := line.pop(most):
            found = [
                message
                for message in map(find, dict.fromkeys(numbers))  # one that is stale may have come back
                if message is not None and message.lock_token is None and message.state is _ACTIVE
            ]
            if found:
                if self._shelf.sessions is not None:
                    for message in found:
                        self.leave_line(message)
                return found
        return []

    def put_back(self, line: NumberLine, messages: Sequence[StoredMessage]) -> None:
        """Let those that `take` has given last, and nobody has got, wait again."""
        left = [message for message in messages if self.is_waiting(message.sequence_number)]
        line.put_back([message.sequence_number for message in left])
        if self._shelf.sessions is not None:
            for message in left:
                self._shelf.sessions.need(message.session_id or "").waiting += 1

    def absent(self, line: NumberLine) -> list[StoredMessage]:
        """What is next in a line, up to the first that is at hand and to what may be brought at once."""
        found: list[StoredMessage] = []
        size = 0
        for number in line.ahead() if len(line) else ():
            message = self._shelf.table.get(number)
            if message is None or not self.is_waiting(number):
                continue
            size += message.size
            if message.is_at_hand or len(found) == _MOST_ABSENT or (found and size > _MOST_ABSENT_BYTES):
                break
            found.append(message)
        return found

    def is_waiting(self, number: int) -> bool:
        message = self._shelf.table.get(number)
        return message is not None and message.lock_token is None and message.state is _ACTIVE

    # -- time

    def pop_expired(self, now: float, *, with_contents: bool) -> Iterator[list[StoredMessage]]:
        """Those whose time is over, some at a time and out of line; each is still to be taken off."""
        due = self._expiries.pop_due(now)
        while numbers := list(islice(due, FEW)):
            expired = [self._shelf.table[number] for number in numbers if self.is_waiting(number)]
            for message in expired:
                self.leave_line(message)
                if with_contents and not message.is_at_hand:
                    self._shelf.bring(message, [*numbers, *self._expiries.due(now, AT_ONCE)])
            yield expired
            for session_id in {message.session_id for message in expired}:
                self._sweep_line(session_id)

    def next_expiry(self) -> float:
        return self._expiries.next()

    def _sweep_line(self, session_id: str | None) -> None:
        line, waiting = self.line, self.active_count
        session = self._shelf.sessions.get(session_id) if self._shelf.sessions is not None else None
        if session is not None:
            line, waiting = session.line, session.waiting
        if len(line) > 2 * waiting + FEW:
            line.sweep(self.is_waiting)

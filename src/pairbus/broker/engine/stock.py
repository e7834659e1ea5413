"""The messages that a queue has, locked or not: how they come in, wait, expire and leave.

1. A message is in the table until it leaves. It *waits* if it is active and not locked; then it stands in
   the line, or in that of its session.
2. An expired message is never given out. It is found by its deadline, or at the latest when its turn comes.
   A locked message outlives its expiry until the lock ends; a deferred one until somebody asks for it.
3. A message leaves for the dead letters with its number and its time of enqueueing, as a new record there.
   That record is made before the message is taken out: if it cannot be made, the message is where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pairbus import words

from .context import Context, Space
from .deadlines import Deadlines
from .entity import Entity
from .errors import Refused, not_allowed
from .events import MessageChanged, MessageRemoved, MessageStored
from .message import Incoming, MessageState, StoredMessage
from .number_line import NumberLine
from .sessions import MessageSessions
from .settings import EntitySettings, ReceivableSettings

# Lines shorter than this are not worth sweeping.
FEW: Final = 64


class Stock(Entity):
    """The store room of a queue, a subscription or a sub-queue."""

    __slots__ = (
        "_dead_letters_expired",
        "_expiries",
        "_forward_dead_letters_to",
        "_forward_to",
        "_line",
        "_ready",
        "active_count",
        "dead_letters",
        "deferred_count",
        "sessions",
        "transfer_dead_letters",
    )
    settings: ReceivableSettings

    def __init__(self, context: Context, path: str, *, space: Space, now: float) -> None:
        super().__init__(context, path, space=space, now=now)
        # None in a sub-queue, which buries nothing.
        self.dead_letters: Stock | None = None
        self.transfer_dead_letters: Stock | None = None
        self.sessions: MessageSessions | None = None
        self.active_count = 0
        self.deferred_count = 0
        self._line = NumberLine()
        self._expiries: Deadlines[int] = Deadlines()
        self._dead_letters_expired = False
        self._forward_to: str | None = None
        self._forward_dead_letters_to: str | None = None
        self._ready = context.ready

    @property
    def requires_session(self) -> bool:
        return self.sessions is not None

    @property
    def used_at(self) -> float:
        rooms = (self, self.dead_letters, self.transfer_dead_letters)
        return max(room.accessed_at for room in rooms if room is not None)

    def configure(self, settings: EntitySettings, now: float) -> None:
        assert isinstance(settings, ReceivableSettings)
        self._dead_letters_expired = settings.dead_lettering_on_message_expiration
        self._forward_to = settings.forward_to
        self._forward_dead_letters_to = settings.forward_dead_lettered_messages_to
        if settings.requires_session and self.sessions is None:
            self.sessions = MessageSessions()
        super().configure(settings, now)

    # -- coming in

    def _enqueue(self, message: StoredMessage, now: float, view: Incoming | None = None) -> None:
        if self._forward_to is not None:
            self._forward(message, self._forward_to, now)
        elif self.sessions is not None and message.session_id is None:
            # Only topics and forwarding bring such a message; a sender is refused.
            letter = self._letter(
                message,
                reason="Session ID is null.",
                description="A session-enabled entity takes no message whose session id is null.",
            )
            self._bury(letter, now)
        else:
            self.insert(message)

    def insert(self, message: StoredMessage) -> None:
        """Put an active message in, with the number that it has."""
        self._place(message)
        self._emit(MessageStored(self.path, message))
        self._ready.add(self)

    def restore(self, message: StoredMessage) -> None:
        if self.dead_letters is not None:
            # A sub-queue gives out no numbers: what it holds was numbered by its parent.
            self.last_sequence = max(self.last_sequence, message.sequence_number)
        if message.state is MessageState.SCHEDULED:
            self._place_scheduled(message)
        else:
            self._place(message)
            self._ready.add(self)

    def forget(self, number: int) -> None:
        message = self.table.get(number)
        if message is None:
            return
        if message.state is MessageState.SCHEDULED:
            super().forget(number)
            return
        if self.sessions is not None and message.state is MessageState.ACTIVE:
            self._leave_session_line(message)
        self._take_off_books(message)

    def stored_bytes(self) -> int:
        """Bytes taken by this queue and its sub-queues alone; counted message by message."""
        rooms = [room for room in (self, self.dead_letters, self.transfer_dead_letters) if room is not None]
        states = sum(len(session.state or b"") for session in self.sessions or ())
        return states + sum(message.size for room in rooms for message in room.table.since(0))

    def _place(self, message: StoredMessage) -> None:
        self._index(message)
        expires_at = message.expires_at
        if expires_at is not None:
            self._expiries.add(expires_at, message.sequence_number)
            if expires_at < self.alarm_at:
                self._context.alarms.set(self, expires_at)
        if message.state is MessageState.DEFERRED:
            self.deferred_count += 1
        else:
            self.active_count += 1
            self._stand(message)

    def _index(self, message: StoredMessage) -> None:
        self.table.add(message)
        self.space.used += message.size
        if self.sessions is not None and message.session_id is not None:
            self.sessions.need(message.session_id).table.add(message)

    # -- waiting

    def _stand(self, message: StoredMessage) -> None:
        sessions = self.sessions
        if sessions is None:
            self._line.put(message.sequence_number)
        else:
            sessions.stand(message)

    def _offer(self, message: StoredMessage) -> None:
        self._stand(message)
        self._ready.add(self)

    def _step(self, line: NumberLine, now: float) -> StoredMessage | None:
        """Take the next message off a line; expired ones on the way are dealt with."""
        table = self.table
        while (number := line.pop()) is not None:
            message = table.get(number)
            if message is None or message.lock_token is not None or message.state is not MessageState.ACTIVE:
                continue
            if self.sessions is not None:
                self._leave_session_line(message)
            if message.expires_at is None or message.expires_at > now:
                return message
            self._expire(message, now)
        return None

    def _leave_session_line(self, message: StoredMessage) -> None:
        assert self.sessions is not None
        session = self.sessions.get(message.session_id)
        if session is not None:
            session.waiting -= 1

    def _is_waiting(self, number: int) -> bool:
        message = self.table.get(number)
        return message is not None and message.lock_token is None and message.state is MessageState.ACTIVE

    # -- time

    def _work_off(self, now: float) -> None:
        for number in self._expiries.pop_due(now):
            message = self.table.get(number)
            if message is not None and self._is_waiting(number):
                if self.sessions is not None:
                    self._leave_session_line(message)
                self._expire(message, now)
                self._sweep_line(message.session_id)
        super()._work_off(now)

    def _next_deadline(self) -> float:
        return min(super()._next_deadline(), self._expiries.next())

    def _sweep_line(self, session_id: str | None) -> None:
        line, waiting = self._line, self.active_count
        session = self.sessions.get(session_id) if self.sessions is not None else None
        if session is not None:
            line, waiting = session.line, session.waiting
        if len(line) > 2 * waiting + FEW:
            line.sweep(self._is_waiting)

    def _expire(self, message: StoredMessage, now: float) -> None:
        if not self._dead_letters_expired:
            self._take_out(message)
            return
        description = "The message expired and was dead lettered."
        self._move(message, self._letter(message, reason=words.EXPIRED, description=description), now)

    # -- leaving

    def _take_out(self, message: StoredMessage) -> None:
        """Remove a message that neither waits nor is locked any more."""
        self._take_off_books(message)
        self._emit(MessageRemoved(self.path, message.sequence_number))

    def _take_off_books(self, message: StoredMessage) -> None:
        if message.expires_at is not None:
            self._expiries.remove(message.expires_at, message.sequence_number)
        self._unindex(message)
        if message.state is MessageState.DEFERRED:
            self.deferred_count -= 1
        else:
            self.active_count -= 1

    def _unindex(self, message: StoredMessage) -> None:
        self.table.remove(message.sequence_number)
        self.space.used -= message.size
        if self.sessions is not None:
            session = self.sessions.get(message.session_id)
            if session is not None:
                session.table.remove(message.sequence_number)
                self.sessions.review(session)

    def _move(self, message: StoredMessage, letter: StoredMessage, now: float) -> None:
        """Take a message out, and put what was made of it into the dead letters."""
        self._take_out(message)
        self._bury(letter, now)

    def _bury(self, letter: StoredMessage, now: float) -> None:
        assert self.dead_letters is not None
        if self._forward_dead_letters_to is not None:
            self._forward(letter, self._forward_dead_letters_to, now)
        else:
            self.dead_letters.insert(letter)

    def _letter(
        self,
        message: StoredMessage,
        *,
        reason: str | None,
        description: str | None,
        properties: Mapping[str, Any] | None = None,
    ) -> StoredMessage:
        """What becomes of a message among the dead letters."""
        letter = message.copy(message.sequence_number)
        letter.state = MessageState.ACTIVE
        letter.expires_at = None
        letter.dead_letter_source = self.path
        changes = dict(properties or {})
        if reason is not None:
            changes[words.REASON] = reason
        if description is not None:
            changes[words.DESCRIPTION] = description
        if changes:
            letter.change_application_properties(changes)
        return letter

    def _change(self, message: StoredMessage, properties: Mapping[str, Any] | None) -> None:
        if properties:
            before = message.size
            message.change_application_properties(properties)
            self.space.used += message.size - before

    def _tell_change(self, message: StoredMessage) -> None:
        self._emit(
            MessageChanged(
                self.path,
                message.sequence_number,
                message.state,
                message.delivery_count,
                message.application_properties_bytes,
                message.size,
            )
        )

    # -- forwarding

    def _forward(self, message: StoredMessage, path: str, now: float) -> None:
        """Pass a message on at once. One that cannot be passed on goes to the transfer dead letters."""
        message.hops += 1
        if not message.enqueued_sequence_number:
            message.enqueued_sequence_number = message.sequence_number
        try:
            if message.hops > self._context.limits.max_hops:
                raise Refused(
                    "MaxTransferHopCountExceeded",
                    f"The message was forwarded more than {self._context.limits.max_hops} times.",
                )
            destination = self._context.find(path)
            if destination is None:
                raise not_allowed(f"The entity '{path}' that '{self.path}' forwards to is not there.")
            destination.accept_forwarded(message, now)
        except Refused as refused:
            assert self.transfer_dead_letters is not None
            letter = self._letter(message, reason=refused.condition, description=refused.description)
            self.transfer_dead_letters.insert(letter)

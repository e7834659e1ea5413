"""A queue that messages are received from: a queue, a subscription, or a dead-letter sub-queue of either.

Theory of operation:
1. Every operation first does what is due by its `now`: locks, sessions and messages end, scheduled
   messages are activated. So no operation sees a state older than its own time, whether the namespace has
   been ticked or not.
2. Receive under peek-lock: the message with the smallest number that waits is locked and named by a fresh
   token. Receive and delete: it is removed. Nothing else removes a message but complete, its expiry, and
   the way to the dead letters.
3. A lock ends by settlement, by its time, or with its session. A token that is not in the books is lost.

       settlement    delivery count    then
       complete      -                 the message is gone
       abandon       + 1               it waits again, at its number's place
       defer         + 1               only its number brings it back
       dead-letter   as it was         a new record in the dead letters
       release       as it was         it waits again
       (lock ends)   + 1               as abandon

4. A count that reaches the maximum sends the message to the dead letters instead (Azure counts deferring
   too). The count starts at 0 and is what the header of a delivery says: the deliveries before this one.
   Among the dead letters nothing is counted.
5. In a queue with sessions, messages are only received under a session's lock, in order, and live under
   that lock instead of one of their own. The sub-queues of such a queue know no sessions.
6. A deferred message that is received, and not completed, is deferred again.
7. Everything costs the logarithm of the queue's length at most, on average. Its parts keep the books: `stock`
   of what waits and expires, `locks`, `exits`, and those of every entity.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from pairbus import words

from . import errors
from .breath import breathe
from .context import Context, Space
from .deadlines import timely
from .entity import Entity
from .errors import Refused
from .events import MessageChanged, MessageRemoved, MessageStored, SessionStateSet
from .exits import Exits
from .locks import Locks
from .message import Content, Incoming, MessageState, StoredMessage
from .results import Counts, Handout
from .sessions import MessageSession, MessageSessions, SessionLock
from .settings import EntitySettings, ReceivableSettings
from .stock import FEW, Stock


class MessageQueue(Entity):
    """Something to receive from."""

    __slots__ = (
        "_exits",
        "_lock_duration",
        "_locks",
        "_max_deliveries",
        "_receives",
        "_stock",
        "dead_letters",
        "parent",
        "transfer_dead_letters",
    )
    settings: ReceivableSettings

    def __init__(
        self, context: Context, path: str, *, space: Space, now: float, parent: MessageQueue | None = None
    ) -> None:
        super().__init__(context, path, space=space, now=now)
        self.parent = parent
        self._stock = Stock(self._shelf)
        self._locks = Locks(self._shelf)
        self._receives = True
        self._lock_duration = 60.0
        # None in a sub-queue, which keeps its messages however often they fail.
        self._max_deliveries: int | None = None
        #: What has died here, and what could not be forwarded. A sub-queue has neither.
        self.dead_letters = self._sub_queue(words.DEAD_LETTER_QUEUE, now)
        self.transfer_dead_letters = self._sub_queue(words.TRANSFER_DEAD_LETTER_QUEUE, now)
        self._exits = Exits(context, path, self.dead_letters, self.transfer_dead_letters)

    def _sub_queue(self, name: str, now: float) -> MessageQueue | None:
        if self.parent is not None:
            return None
        return MessageQueue(self._context, f"{self.path}/{name}", space=self.space, now=now, parent=self)

    # -- what it tells

    def sub_queues(self) -> list[MessageQueue]:
        """The dead letters and the transfer dead letters, if this is not one of them."""
        return [queue for queue in (self.dead_letters, self.transfer_dead_letters) if queue is not None]

    @property
    def sessions(self) -> MessageSessions | None:
        """The sessions, if messages need one here."""
        return self._shelf.sessions

    @property
    def requires_session(self) -> bool:
        """Whether messages need a session id."""
        return self._shelf.sessions is not None

    @property
    def is_wide(self) -> bool:
        return self._exits.forward_to is not None

    @property
    def parts(self) -> Sequence[Entity]:
        return self.sub_queues()

    def counts(self) -> Counts:
        """How many messages there are, of which kind."""
        dead, transfer = self.dead_letters, self.transfer_dead_letters
        return Counts(
            active=self.stored_count,
            dead_letter=0 if dead is None else dead.stored_count,
            scheduled=self.scheduled_count,
            transfer_dead_letter=0 if transfer is None else transfer.stored_count,
            deferred=self._stock.deferred_count,
        )

    @property
    def stored_count(self) -> int:
        """How many messages there are that are not scheduled."""
        return self._stock.active_count + self._stock.deferred_count

    def stored_bytes(self) -> int:
        """Bytes taken by this queue and its sub-queues alone; counted one by one."""
        return sum(queue._shelf.measure() for queue in (self, *self.sub_queues()))

    # -- settings and end

    def configure(self, settings: EntitySettings, now: float) -> None:
        assert isinstance(settings, ReceivableSettings)
        self._exits.obey(settings)
        if settings.requires_session and self._shelf.sessions is None:
            self._shelf.sessions = MessageSessions()
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
        if self._stock.active_count:  # receivers that were held off may go on
            self._context.ready.add(self)

    def remove(self) -> None:
        super().remove()
        self._locks.clear()
        self._receives = False
        for queue in self.sub_queues():
            queue.remove()

    # -- checks

    def check_send(self) -> None:
        if self.parent is not None:
            raise errors.not_allowed(f"'{self.path}' is a sub-queue. Send to '{self.parent.path}' instead.")
        super().check_send()

    def check_receive(self) -> None:
        """Raise Refused if nothing can be received here now."""
        if self.removed:
            raise errors.EntityMissing(self.path)
        if self.settings.status.forbids_receiving:
            raise errors.disabled(self.path, "receiving")
        if self.parent is None and self.settings.forward_to is not None:
            raise errors.forwards_elsewhere(self.path, self.settings.forward_to)

    def check_receiver(self, *, with_session: bool) -> None:
        """Raise Refused if a receiver of this kind cannot be here."""
        self.check_receive()
        if with_session and self._shelf.sessions is None:
            raise errors.has_no_sessions(self.path)
        if not with_session and self._shelf.sessions is not None:
            raise errors.needs_session(self.path)

    def check_growth(self, size: int, *, count: int = 1) -> None:
        """Raise Refused unless the `size` bytes that are written into each of so many messages find room."""
        self._admission.check_growth(size, count)

    # -- messages that come in

    def _enqueue(self, message: StoredMessage, now: float, view: Incoming | None = None) -> None:
        forward_to = self._exits.forward_to
        if forward_to is not None:
            self._exits.forward(message, forward_to, now)
        elif message.session_id is None and self._shelf.sessions is not None:
            # Only topics and forwarding bring such a message; a sender is refused.
            text = "A session-enabled entity takes no message whose session id is null."
            self._exits.bury(self._exits.letter(message, reason="Session ID is null.", description=text), now)
        else:
            self.insert(message)

    @property
    def lines_up(self) -> bool:
        return self._exits.forward_to is None and self._shelf.sessions is None and self.duplicates is None

    def _line_up(self, messages: Sequence[StoredMessage], now: float) -> None:
        self._wake_at(self._stock.place_all(messages))
        self._context.events += [MessageStored(self.path, message) for message in messages]
        self._context.ready.add(self)

    def insert(self, message: StoredMessage) -> None:
        """Put an active message in, with the number that it has."""
        self._wake_at(self._stock.place(message))
        self._emit(MessageStored(self.path, message))
        self._context.ready.add(self)

    def restore(self, message: StoredMessage) -> None:
        if self.parent is None:
            # A sub-queue gives out no numbers: what it holds was numbered by its parent.
            self.last_sequence = max(self.last_sequence, message.sequence_number)
        if message.state is MessageState.SCHEDULED:
            self._wake_at(self._schedule.place(message))
        else:
            self._wake_at(self._stock.place(message))
            self._context.ready.add(self)

    def restore_all(self, messages: Sequence[StoredMessage]) -> None:
        if self._shelf.sessions is None and all(each.state is MessageState.ACTIVE for each in messages):
            self._wake_at(self._stock.place_all(messages[:-1]))
            messages = messages[-1:]  # which shows how far the numbers go
        super().restore_all(messages)

    def forget(self, number: int) -> None:
        message = self.table.get(number)
        if message is None:
            return
        if message.state is MessageState.SCHEDULED:
            self._schedule.take(message)
            return
        if message.state is MessageState.ACTIVE:
            self._stock.leave_line(message)
        self._stock.take_off(message)

    # -- receiving

    @timely
    def receive(
        self,
        limit: int,
        now: float,
        *,
        delete: bool = False,
        session: SessionLock | None = None,
        at_hand: bool = False,
    ) -> list[Handout]:
        """Up to `limit` waiting messages, locked or deleted; with `at_hand` none from the first absent on."""
        self.accessed_at = now
        if not self._receives or (session is None) is not (self._shelf.sessions is None):
            self.check_receiver(with_session=session is not None)
        held = None if session is None else self._held_session(session)
        line = self._stock.line if held is None else held.line
        until = now + self._lock_duration if session is None else session.locked_until
        deliveries, locked = list[Handout](), dict[int, StoredMessage]()
        next_token, found = self._context.next_token, list[StoredMessage]()
        try:
            while limit and (found := self._stock.take(line, min(limit - len(deliveries), FEW))):
                for message in found:
                    if message.expires_at is not None and message.expires_at <= now:
                        self._expire(message, now)
                    elif at_hand and not isinstance(message.held, Content):
                        limit = 0
                        break
                    elif delete:
                        self._take_out(message)
                        deliveries.append(Handout(message, None, 0.0))
                    else:
                        token = next_token()
                        locked[token.int], message.lock_token = message, token
                        deliveries.append(Handout(message, token, until))
                breathe()
        finally:  # whatever happens, no message has a token that nobody knows, or is out of line
            self._stock.put_back(line, found)
            self._locks.add_all(locked, until, held)
            if held is None and locked:
                self._wake_at(until)
        return deliveries

    def absent(self, session: SessionLock | None) -> list[StoredMessage]:
        """What waits next, if the first of it is not at hand: to be brought before more can be received."""
        return self._stock.absent(self._stock.line if session is None else self._held_session(session).line)

    def locked(self, tokens: Iterable[uuid.UUID]) -> list[StoredMessage]:
        """The messages that are locked by these tokens; of a token that is lost there is none."""
        return [message for message in map(self._locks.find, tokens) if message is not None]

    @timely
    def receive_deferred(
        self,
        sequence_numbers: Sequence[int],
        now: float,
        *,
        delete: bool = False,
        session: SessionLock | None = None,
    ) -> list[Handout]:
        """Take deferred messages by their numbers: all of them, or none and raise Refused."""
        self.accessed_at = now
        self.check_receiver(with_session=session is not None)
        held = None if session is None else self._held_session(session)
        # A number that is named twice is one message.
        messages = [self._find_deferred(number, held, now) for number in dict.fromkeys(sequence_numbers)]
        if delete:
            for message in messages:
                self._take_out(message)
            return [Handout(message, None, 0.0) for message in messages]
        until = now + self._lock_duration if session is None else session.locked_until
        for message in messages:
            self._locks.add(message, self._context.next_token(), until, held)
        if held is None:
            self._wake_at(until)
        return [Handout(message, message.lock_token, until) for message in messages]

    def peek(
        self, from_sequence: int, limit: int, now: float, *, session_id: str | None = None
    ) -> list[StoredMessage]:
        """Look at messages from a number on: waiting, locked, deferred and scheduled ones alike."""
        return list(islice(self._since(from_sequence, now, session_id), max(0, limit)))

    @timely
    def _since(self, number: int, now: float, session_id: str | None) -> Iterator[StoredMessage]:
        if self.removed:
            raise errors.EntityMissing(self.path)
        self.accessed_at = now
        return self._shelf.since(number, session_id)

    def _find_deferred(self, number: int, held: MessageSession | None, now: float) -> StoredMessage:
        message = self.table.get(number)
        if message is None or message.state is not MessageState.DEFERRED or message.lock_token is not None:
            raise errors.message_not_found(number)
        if held is not None and message.session_id != held.session_id:
            raise errors.message_not_found(number)
        if message.expires_at is not None and message.expires_at <= now:
            self._expire(message, now)
            raise errors.message_not_found(number)
        return message

    # -- settling

    def complete(self, token: uuid.UUID, now: float) -> None:
        """The message is done with."""
        self._take_out(self._locks.release(self._locked(token, now)))

    @timely
    def complete_all(self, tokens: Sequence[uuid.UUID], now: float) -> list[Refused | None]:
        """Complete each of them for itself; why it is refused, where it is."""
        self.accessed_at = now
        found = self._locks.take_all(tokens)
        self._take_all_out([message for message in found if message is not None])
        return [self.lost() if message is None else None for message in found]

    def abandon(self, token: uuid.UUID, now: float, *, properties: Mapping[str, Any] | None = None) -> None:
        """Give a message back that could not be handled."""
        message = self._locked(token, now)
        changed = self._change(message, properties)
        self._give_back(self._locks.release(message), now, changed=changed)

    def defer(self, token: uuid.UUID, now: float, *, properties: Mapping[str, Any] | None = None) -> None:
        """Put a message aside; only its number brings it back."""
        message = self._locked(token, now)
        changed = self._change(message, properties)
        self._stock.defer(self._locks.release(message))
        self._give_back(message, now, changed=changed)

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
        if self.parent is not None:
            raise errors.is_dead_already(self.path)
        message = self._locked(token, now)
        letter = self._exits.letter(message, reason=reason, description=description, properties=properties)
        self._move(self._locks.release(message), letter, now)

    def release(self, token: uuid.UUID, now: float) -> None:
        """Give a message back as if it had not been delivered."""
        self._return(self._locks.release(self._locked(token, now)), now)

    def renew(self, token: uuid.UUID, now: float) -> float:
        """Lock a message for another lock duration; until when."""
        message = self._locked(token, now)
        if self._shelf.sessions is not None:
            raise errors.locked_by_session()
        until = now + self._lock_duration
        self._locks.move_end(message, until)
        self._wake_at(until)
        return until

    @timely
    def _locked(self, token: uuid.UUID, now: float) -> StoredMessage:
        self.accessed_at = now
        message = self._locks.find(token)
        if message is None:
            raise self.lost()
        return message

    def lost(self) -> Refused:
        if self.removed:
            return errors.EntityMissing(self.path)
        return errors.message_lock_lost() if self._shelf.sessions is None else errors.session_lock_lost(None)

    def _give_back(self, message: StoredMessage, now: float, *, changed: bool = False) -> None:
        """A delivery has failed: count it, and bury the message if that was the last one."""
        most = self._max_deliveries
        message.delivery_count += most is not None
        if most is not None and message.delivery_count >= most:
            description = f"Message could not be consumed after {most} delivery attempts."
            letter = self._exits.letter(message, reason=words.TOO_MANY_DELIVERIES, description=description)
            self._move(message, letter, now)
            return
        self._emit(MessageChanged.of(self.path, message, changed=changed))
        self._return(message, now)

    def _return(self, message: StoredMessage, now: float) -> None:
        if message.state is MessageState.DEFERRED:
            return
        if message.expires_at is not None and message.expires_at <= now:
            self._expire(message, now)
        else:
            self._wake_at(self._stock.stand(message))
            self._context.ready.add(self)

    def _change(self, message: StoredMessage, properties: Mapping[str, Any] | None) -> bool:
        """Change the properties as asked for; whether anything was."""
        before, held = message.size, message.held
        if properties:
            message.change_application_properties(properties, is_bounded=True)
        self.space.used += message.size - before
        return message.held is not held

    # -- leaving

    def _take_out(self, message: StoredMessage) -> None:
        """Remove a message that neither waits nor is locked any more."""
        self._stock.take_off(message)
        self._emit(MessageRemoved(self.path, message.sequence_number))

    def _take_all_out(self, messages: Sequence[StoredMessage]) -> None:
        """The same for many."""
        self._stock.take_all_off(messages)
        self._context.events += [MessageRemoved(self.path, message.sequence_number) for message in messages]

    def _move(self, message: StoredMessage, letter: StoredMessage, now: float) -> None:
        """Take a message out, and put what was made of it into the dead letters."""
        self._take_out(message)
        self._exits.bury(letter, now)

    def _expire(self, message: StoredMessage, now: float) -> None:
        if not self._exits.buries_expired:
            self._take_out(message)
            return
        description = "The message expired and was dead lettered."
        self._move(message, self._exits.letter(message, reason=words.EXPIRED, description=description), now)

    # -- time

    def _work_off(self, now: float) -> None:
        for message in self._locks.pop_due(now):
            self._give_back(message, now)
            breathe()
        if self._shelf.sessions is not None:
            for session in self._shelf.sessions.pop_due(now):
                if session.lock is not None:
                    self._context.lost_sessions.append(session.lock)
                self._end_session(session, now, counted=True)
        for expired in self._stock.pop_expired(now, with_contents=self._exits.buries_expired):
            if not self._exits.buries_expired:
                self._take_all_out(expired)
            for message in expired if self._exits.buries_expired else ():
                self._expire(message, now)
                breathe()
            breathe()
        super()._work_off(now)

    def _next_deadline(self) -> float:
        due = min(super()._next_deadline(), self._stock.next_expiry(), self._locks.next())
        return due if self._shelf.sessions is None else min(due, self._shelf.sessions.next())

    def shift_durations(self, seconds: float) -> None:
        for queue in self.sub_queues():  # before the queue itself, which is as idle as they are
            queue.shift_durations(seconds)
        (self._locks if self._shelf.sessions is None else self._shelf.sessions).shift_ends(seconds)
        super().shift_durations(seconds)

    # -- sessions

    @timely
    def accept_session(self, session_id: str | None, now: float) -> SessionLock | None:
        """Lock a session, or the next one that has messages; None if no session is available now."""
        self.accessed_at = now
        self.check_receiver(with_session=True)
        sessions = self._shelf.sessions
        assert sessions is not None
        session = sessions.next_available() if session_id is None else sessions.need(session_id)
        if session is None:
            return None
        if session.lock is not None:
            raise errors.session_cannot_be_locked(session.session_id)
        lock = SessionLock(session.session_id, self._context.next_token(), now + self._lock_duration)
        sessions.lock(session, lock)
        self._wake_at(lock.locked_until)
        return lock

    @timely
    def renew_session(self, lock: SessionLock, now: float) -> float:
        """Hold a session for another lock duration; until when."""
        self.accessed_at = now
        self._held_session(lock)
        assert self._shelf.sessions is not None
        self._shelf.sessions.extend(lock, now + self._lock_duration)
        self._wake_at(lock.locked_until)
        return lock.locked_until

    @timely
    def release_session(self, lock: SessionLock, now: float) -> None:
        """Let a session go; its messages wait again. To release a lost lock does nothing."""
        self.accessed_at = now
        session = self._shelf.sessions.get(lock.session_id) if self._shelf.sessions is not None else None
        if session is not None and session.lock is lock:
            self._end_session(session, now, counted=False)

    def session_lock(self, session_id: str) -> SessionLock | None:
        """The lock on a session, whoever holds it."""
        session = None if self._shelf.sessions is None else self._shelf.sessions.get(session_id)
        return None if session is None else session.lock

    def take_ready_sessions(self) -> list[SessionLock]:
        """The locks of sessions in which something became available since the last call."""
        return [] if self._shelf.sessions is None else self._shelf.sessions.take_ready()

    def get_session_state(self, session_id: str) -> bytes | None:
        """The state that was set last, if any."""
        session = self._needs_sessions().get(session_id)
        return None if session is None else session.state

    def set_session_state(self, session_id: str, state: bytes | None, now: float) -> None:
        """Set the state of a session; None clears it."""
        if state is not None:
            self._admission.check_state(state, before=self.get_session_state(session_id))
        self.accessed_at = now
        self.restore_session_state(session_id, state, now)
        self._emit(SessionStateSet(self.path, session_id, state, now))

    def restore_session_state(self, session_id: str, state: bytes | None, now: float) -> None:
        """Put a session's state back as a store had it."""
        sessions = self._needs_sessions()
        session = sessions.need(session_id)
        before = len(session.state or b"")
        session.state, session.updated_at = state, now
        self.space.used += len(state or b"") - before
        sessions.review(session)

    def list_sessions(
        self, *, skip: int = 0, top: int = 100, updated_after: float | None = None
    ) -> list[str]:
        """Ids of sessions: of those with messages, or of those whose state was set after a time."""
        return self._needs_sessions().listing(skip=skip, top=top, updated_after=updated_after)

    def _end_session(self, session: MessageSession, now: float, *, counted: bool) -> None:
        sessions = self._shelf.sessions
        assert sessions is not None
        for message in sessions.unlock(session):
            self._locks.drop(message)
            (self._give_back if counted else self._return)(message, now)
            breathe()
        sessions.review(session)
        if session.waiting:
            self._context.ready.add(self)

    def _needs_sessions(self) -> MessageSessions:
        if self.removed:
            raise errors.EntityMissing(self.path)
        if self._shelf.sessions is None:
            raise errors.not_allowed(f"The entity '{self.path}' does not require sessions and has none.")
        return self._shelf.sessions

    def _held_session(self, lock: SessionLock) -> MessageSession:
        session = self._shelf.sessions.get(lock.session_id) if self._shelf.sessions is not None else None
        if session is None or session.lock is not lock:
            raise errors.session_lock_lost(lock.session_id)
        return session

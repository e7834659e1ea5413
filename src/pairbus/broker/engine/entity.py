"""What queues, topics and subscriptions have in common: path, numbers, senders, scheduled messages.

1. A send is checked as a whole before any of it is done: all messages or none.
2. The order of the checks: the entity is there and its status lets it be sent to; each message fits; the
   entity has room. A ping goes through all of them and is then dropped. A duplicate is accepted and dropped.
3. A scheduled message has a number that names it until its time comes. Then it is enqueued as if it had been
   sent that instant, with a new number.
4. A message lives as long as itself or its entity says, whichever is shorter, from when it is enqueued.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from .admission import Admission
from .breath import breathe, slices
from .context import Context, Space
from .deadlines import NEVER, Alarm, timely
from .duplicates import DuplicateHistory
from .errors import EntityMissing, disabled, message_not_found
from .events import DuplicateForgotten, DuplicateSeen, MessageRemoved, MessageStored
from .message import Incoming, MessageState, StoredMessage
from .schedule import Schedule
from .settings import MEGABYTE, EntitySettings, QueueSettings, TopicSettings
from .shelf import Shelf


class Entity(ABC):
    """Something with a path that may be sent to: shelf, schedule, and rules of admission."""

    __slots__ = (
        "_admission",
        "_context",
        "_emit",
        "_idle",
        "_idle_since",
        "_schedule",
        "_shelf",
        "_takes_messages",
        "accessed_at",
        "alarm",
        "created_at",
        "duplicates",
        "last_sequence",
        "path",
        "receivers",
        "removed",
        "settings",
        "space",
        "table",
        "updated_at",
    )
    settings: EntitySettings

    def __init__(self, context: Context, path: str, *, space: Space, now: float) -> None:
        self.alarm = Alarm(self.tick)
        self.path = path
        self.removed = False
        self.created_at = self.updated_at = self._idle_since = now
        # When messages were last sent, received or looked at; 0 if never.
        self.accessed_at = 0.0
        #: How many are there to receive, whether anything comes or not.
        self.receivers = 0
        self.space = space
        self.last_sequence = 0
        self.duplicates: DuplicateHistory | None = None
        # Computed once, so that a valid send need not ask again.
        self._takes_messages = False
        self._idle: float | None = None
        self._context = context
        self._emit = context.events.append
        self._shelf = Shelf(space)
        #: All messages that are here, whatever their state.
        self.table = self._shelf.table
        self._schedule = Schedule(self._shelf)
        self._admission = Admission(context, path, space)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r}>"

    # -- what every entity tells

    @property
    def scheduled_count(self) -> int:
        """How many messages wait for their time."""
        return self._schedule.count

    @property
    @abstractmethod
    def is_wide(self) -> bool:
        """Whether a single message that is sent here may cause much to be done."""

    @property
    def lines_up(self) -> bool:
        """Whether each message that is taken, and not scheduled, just joins the line."""
        return False

    @property
    def largest_message(self) -> int:
        """Bytes that a message may have that is sent here."""
        return self._admission.largest

    @property
    def size_bytes(self) -> int:
        """Bytes taken by the entity with all that shares its quota."""
        return self.space.used

    @property
    def parts(self) -> Sequence[Entity]:
        """What belongs to it: whoever uses that uses the entity."""
        return ()

    @property
    def used_at(self) -> float:
        """When the entity was last used, as auto-delete sees it."""
        return max(self.accessed_at, self._idle_since, *(part.used_at for part in self.parts))

    @property
    def is_attended(self) -> bool:
        """Whether somebody is there to receive from it."""
        return self.receivers > 0 or any(part.is_attended for part in self.parts)

    def attend(self) -> None:
        """A receiver has come: the entity is in use until it goes, however long nothing else happens."""
        self.receivers += 1

    def leave(self, now: float) -> None:
        """A receiver has gone."""
        self.receivers -= 1
        self.accessed_at = now

    @property
    def has_been_used(self) -> bool:
        """Whether it was accessed since it was made, changed or loaded: no event has told of that."""
        return self.accessed_at >= self._idle_since

    def spare(self, now: float) -> None:
        """Let the entity be idle from now on and no longer: somebody has just cared for it."""
        self._idle_since = now

    # -- sending

    def check_send(self) -> None:
        """Raise Refused if nothing can be sent here now."""
        if self.removed:
            raise EntityMissing(self.path)
        if self.settings.status.forbids_sending:
            raise disabled(self.path, "sending")

    @timely
    def send(self, messages: Sequence[Incoming], now: float) -> None:
        """Take all messages, or none and raise Refused."""
        if len(messages) > 1 and self._join_line(messages, now, self._admission.largest_batch):
            return
        if not self._takes_messages:
            self.check_send()
        self._admission.admit(messages)
        self.take(messages, now)

    @timely
    def check_arrival(self, messages: Sequence[Incoming], now: float, *, before: int) -> int:
        """Raise Refused unless all may come in behind so many bytes; the bytes of both."""
        self.check_send()
        self._admission.admit(messages)
        total = before + sum(incoming.size for incoming in messages)
        self._admission.check_room(total)
        return total

    def take(self, messages: Sequence[Incoming], now: float) -> None:
        """Take messages that may come in."""
        self.accessed_at = now
        for incoming in messages:
            if incoming.is_ping or (self.duplicates is not None and self._is_duplicate(incoming, now)):
                continue
            when = incoming.scheduled_for
            if when is not None and when > now:
                self._hold(incoming, when, now)
            else:
                incoming.scheduled_for = None  # it was not held
                expires_at = self._admission.expiry(incoming.time_to_live, now)
                self._enqueue(incoming.store(self._advance(), now, expires_at), now, incoming)
            breathe()

    @timely
    def send_run(self, messages: Sequence[Incoming], now: float) -> bool:
        """Take messages, each for itself, if each just joins the line; else do nothing, and say so."""
        return self._join_line(messages, now, NEVER)

    def _join_line(self, messages: Sequence[Incoming], now: float, most: float) -> bool:
        """Let messages of at most so many bytes join the line, if that is all that is to be done with them;
        whether it was.
        """
        if not (self._takes_messages and self.lines_up and self._admission.admit_each(messages, most)):
            return False
        self.accessed_at = now
        self._context.advanced.add(self)
        expiry = self._admission.expiry
        usual_end = expiry(None, now)
        for few in slices(messages):
            first = self.last_sequence + 1
            self.last_sequence += len(few)
            stored = [
                incoming.store(
                    number,
                    now,
                    usual_end if incoming.time_to_live is None else expiry(incoming.time_to_live, now),
                )
                for number, incoming in enumerate(few, first)
            ]
            self._line_up(stored, now)
        return True

    @timely
    def schedule(self, messages: Sequence[Incoming], now: float) -> list[int]:
        """Hold all messages until their time, or none; the numbers that name them until then."""
        if not self._takes_messages:
            self.check_send()
        self._admission.admit(messages)
        self.accessed_at = now
        numbers = []
        for incoming in messages:
            if incoming.is_ping or (self.duplicates is not None and self._is_duplicate(incoming, now)):
                numbers.append(self._advance())
            else:
                when = incoming.scheduled_for
                numbers.append(self._hold(incoming, now if when is None else when, now))
            breathe()
        if now >= self.alarm.at:
            self.tick(now)
        return numbers

    @timely
    def cancel_scheduled(self, numbers: Sequence[int], now: float) -> None:
        """Drop scheduled messages: all of them, or none and raise Refused."""
        self.check_send()
        found = {}
        for number in numbers:
            message = self._schedule.find(number)
            if message is None:
                raise message_not_found(number)
            found[number] = message
        self.accessed_at = now
        for message in found.values():
            self._discard_scheduled(message)
            breathe()

    def accept_forwarded(self, message: StoredMessage, now: float) -> None:
        """Take a message that another entity forwards, or raise Refused."""
        self.check_send()
        self._admission.check_one(message)
        self._admission.check_room(message.size)
        self.accessed_at = now
        if self.duplicates is not None and self._is_duplicate(message, now):
            return
        copy = message.copy(self._advance())
        copy.enqueued_at = now
        copy.expires_at = self._admission.earlier_expiry(message.expires_at, now)
        self._enqueue(copy, now)

    # -- time

    def tick(self, now: float) -> None:
        """Do all that is due: called by the namespace, and by every operation before it looks at anything."""
        self._work_off(now)
        if not self.removed:
            self.wind_alarm()

    def wind_alarm(self) -> None:
        """Set the alarm to the next deadline."""
        self._context.alarms.set(self.alarm, self._next_deadline())

    def _work_off(self, now: float) -> None:
        for message in self._schedule.pop_due(now):
            self._activate(message, now)
            breathe()
        if self.duplicates is not None and self.duplicates.forget(now):
            self._emit(DuplicateForgotten(self.path, now))
        if self._idle is not None and now >= self.used_at + self._idle:
            if self._schedule.count or self.is_attended:
                self.spare(now)
            else:
                self._context.retire(self)

    def _next_deadline(self) -> float:
        due = self._schedule.next()
        if self.duplicates is not None:
            due = min(due, self.duplicates.next())
        return due if self._idle is None else min(due, self.used_at + self._idle)

    def _wake_at(self, when: float) -> None:
        if when < self.alarm.at:
            self._context.alarms.set(self.alarm, when)

    def shift_durations(self, seconds: float) -> None:
        """Somebody has set the clock forward: what is over after a while takes as long as it would have."""
        self._idle_since += seconds
        if self.accessed_at:
            self.accessed_at += seconds
        self.wind_alarm()

    # -- settings, end and recovery

    def configure(self, settings: EntitySettings, now: float) -> None:
        """Obey these settings from now on. What is stored already keeps its expiry."""
        self.settings = settings
        self.updated_at = now
        self._admission.obey(settings)
        self._idle = settings.auto_delete_on_idle
        if isinstance(settings, QueueSettings | TopicSettings):
            self._takes_messages = not settings.status.forbids_sending
            partitions = self._context.limits.partitions if settings.enable_partitioning else 1
            self.space.limit = settings.max_size_in_megabytes * MEGABYTE * partitions
            self._configure_duplicates(settings)
        self.wind_alarm()

    def _configure_duplicates(self, settings: QueueSettings | TopicSettings) -> None:
        if not settings.requires_duplicate_detection:
            self.duplicates = None
        elif self.duplicates is None:
            window = settings.duplicate_detection_history_time_window
            self.duplicates = DuplicateHistory(window, self.space)
        elif self.duplicates.window != settings.duplicate_detection_history_time_window:
            self.duplicates.change_window(settings.duplicate_detection_history_time_window)

    def retell_duplicates(self) -> None:
        """Tell anew until when ids are remembered: the window has changed."""
        for key, until in () if self.duplicates is None else self.duplicates.entries():
            self._emit(DuplicateSeen(self.path, key, until))
            breathe()

    def remove(self) -> None:
        """Be gone: whoever still holds this entity is refused from now on."""
        self.removed = True
        self._takes_messages = False
        self._shelf.clear()
        self._context.alarms.set(self.alarm, NEVER)

    def restore(self, message: StoredMessage) -> None:
        """Put a message back as a store had it."""
        self.last_sequence = max(self.last_sequence, message.sequence_number)
        self._wake_at(self._schedule.place(message))

    def restore_all(self, messages: Sequence[StoredMessage]) -> None:
        """Put back many that a store has and that are not here, in the order of their numbers."""
        for message in messages:
            self.restore(message)

    def forget(self, number: int) -> None:
        """Take a message out and tell nobody."""
        message = self._schedule.find(number)
        if message is not None:
            self._schedule.take(message)

    # -- inside

    @abstractmethod
    def _enqueue(self, message: StoredMessage, now: float, view: Incoming | None = None) -> None:
        """Do with a message what the entity is there for. `view` is what filters may look at."""

    def _line_up(self, messages: Sequence[StoredMessage], now: float) -> None:
        """Enqueue messages, in the order of their numbers, where each just joins the line."""
        for message in messages:
            self._enqueue(message, now)

    def _advance(self) -> int:
        self.last_sequence += 1
        self._context.advanced.add(self)
        return self.last_sequence

    def _is_duplicate(self, message: Incoming | StoredMessage, now: float) -> bool:
        history = self.duplicates
        assert history is not None
        key = message.message_id or ""
        if isinstance(self.settings, QueueSettings | TopicSettings) and self.settings.enable_partitioning:
            # A partition knows only its own ids.
            key = f"{message.session_id or message.partition_key or ''}\0{key}"
        if history.knows(key, now):
            return True
        until = now + history.window
        history.keep(key, until)
        self._emit(DuplicateSeen(self.path, key, until))
        self._wake_at(history.next())
        return False

    # -- scheduled messages

    def _hold(self, incoming: Incoming, when: float, now: float) -> int:
        message = incoming.store(self._advance(), now, self._admission.expiry(incoming.time_to_live, when))
        message.state = MessageState.SCHEDULED
        message.scheduled_for = when
        self._wake_at(self._schedule.place(message))
        self._emit(MessageStored(self.path, message))
        return message.sequence_number

    def _discard_scheduled(self, message: StoredMessage) -> None:
        self._schedule.take(message)
        self._emit(MessageRemoved(self.path, message.sequence_number))

    def _activate(self, held: StoredMessage, now: float) -> None:
        message = held.copy(self._advance())
        self._discard_scheduled(held)
        message.state = MessageState.ACTIVE
        message.enqueued_at = now
        if message.expires_at is not None:
            # The life of a message begins when it is enqueued, be that late after a restart.
            message.expires_at += now - (message.scheduled_for or now)
        self._enqueue(message, now)

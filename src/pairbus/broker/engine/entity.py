"""What queues, topics and subscriptions have in common: path, numbers, senders, scheduled messages.

1. A send is checked as a whole before any of it is done: all messages or none.
2. The order of the checks: the entity is there and its status lets it be sent to; each message fits; the
   entity has room. A ping goes through all of them and is then dropped. A duplicate is accepted and dropped.
3. A scheduled message has a number that names it until its time comes. Then it is enqueued as if it had been
   sent that instant, with a new number.
4. A message lives as long as itself or its entity says, whichever is shorter, from when it is enqueued.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from pairbus import conditions

from .context import Context, Space
from .deadlines import NEVER, Deadlines, Sleeper
from .duplicates import DuplicateHistory
from .errors import Refused, bad_argument, disabled, message_not_found, not_allowed, not_found
from .events import DuplicateForgotten, DuplicateSeen, MessageRemoved, MessageStored
from .message import Incoming, MessageState, StoredMessage
from .settings import MEGABYTE, EntitySettings, QueueSettings, TopicSettings
from .table import MessageTable


class Entity(Sleeper):
    """Something that has a path and may be sent to."""

    __slots__ = (
        "_context",
        "_emit",
        "_idle",
        "_max_message_size",
        "_schedule",
        "_takes_messages",
        "_time_to_live",
        "accessed_at",
        "created_at",
        "duplicates",
        "last_sequence",
        "path",
        "removed",
        "scheduled_count",
        "settings",
        "space",
        "table",
        "updated_at",
    )
    settings: EntitySettings

    def __init__(self, context: Context, path: str, *, space: Space, now: float) -> None:
        super().__init__()
        self.path = path
        self.removed = False
        self.created_at = self.updated_at = self.accessed_at = now
        self.space = space
        self.table = MessageTable()
        self.last_sequence = 0
        self.scheduled_count = 0
        self.duplicates: DuplicateHistory | None = None
        # Known beforehand, so that a send that is fine need not ask again.
        self._takes_messages = False
        self._time_to_live: float | None = None
        self._idle: float | None = None
        self._max_message_size = context.limits.max_message_size
        self._context = context
        self._emit = context.events.append
        self._schedule: Deadlines[int] = Deadlines()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path!r}>"

    # -- what every entity tells

    @property
    def size_bytes(self) -> int:
        """Bytes taken by the entity with all that shares its quota."""
        return self.space.used

    @property
    def used_at(self) -> float:
        """When the entity was last used, as auto-delete sees it."""
        return self.accessed_at

    @property
    def requires_session(self) -> bool:
        """Whether messages need a session id."""
        return False

    def touch(self, now: float) -> None:
        """Note that the entity is in use, for instance by a receiver that waits."""
        self.accessed_at = now

    # -- sending

    def check_send(self) -> None:
        """Raise Refused if nothing can be sent here now."""
        if self.removed:
            raise not_found(self.path)
        if self.settings.status.forbids_sending:
            raise disabled(self.path, "sending")

    def send(self, messages: Sequence[Incoming], now: float) -> None:
        """Take all messages, or none and raise Refused."""
        if now >= self.alarm_at:
            self.tick(now)
        self._check(messages)
        self.accessed_at = now
        for incoming in messages:
            if incoming.is_ping or (self.duplicates is not None and self._is_duplicate(incoming, now)):
                continue
            when = incoming.scheduled_for
            if when is not None and when > now:
                self._hold(incoming, when, now)
            else:
                expires_at = self._expiry(incoming.time_to_live, now)
                self._enqueue(incoming.store(self._advance(), now, expires_at), now, incoming)

    def schedule(self, messages: Sequence[Incoming], now: float) -> list[int]:
        """Hold all messages until their time, or none; the numbers that name them until then."""
        if now >= self.alarm_at:
            self.tick(now)
        self._check(messages)
        self.accessed_at = now
        numbers = []
        for incoming in messages:
            if incoming.is_ping or (self.duplicates is not None and self._is_duplicate(incoming, now)):
                numbers.append(self._advance())
            else:
                when = incoming.scheduled_for
                numbers.append(self._hold(incoming, now if when is None else when, now))
        if now >= self.alarm_at:
            self.tick(now)
        return numbers

    def cancel_scheduled(self, numbers: Sequence[int], now: float) -> None:
        """Drop scheduled messages: all of them, or none and raise Refused."""
        if now >= self.alarm_at:
            self.tick(now)
        self.check_send()
        found = {}
        for number in numbers:
            message = self.table.get(number)
            if message is None or message.state is not MessageState.SCHEDULED:
                raise message_not_found(number)
            found[number] = message
        self.accessed_at = now
        for message in found.values():
            self._discard_scheduled(message)

    def accept_forwarded(self, message: StoredMessage, now: float) -> None:
        """Take a message that another entity forwards, or raise Refused."""
        self.check_send()
        self._check_one(message)
        self._check_room(message.size)
        self.accessed_at = now
        if self.duplicates is not None and self._is_duplicate(message, now):
            return
        copy = message.copy(self._advance())
        copy.enqueued_at = now
        copy.expires_at = self._earlier_expiry(message.expires_at, now)
        self._enqueue(copy, now)

    # -- time

    def tick(self, now: float) -> None:
        """Do all that is due: called by the namespace, and by every operation before it looks at anything."""
        self._work_off(now)
        if not self.removed:
            self.wind_alarm()

    def wind_alarm(self) -> None:
        """Set the alarm to the next deadline."""
        self._context.alarms.set(self, self._next_deadline())

    def _work_off(self, now: float) -> None:
        for number in self._schedule.pop_due(now):
            self._activate(number, now)
        if self.duplicates is not None and self.duplicates.forget(now):
            self._emit(DuplicateForgotten(self.path, now))
        if self._idle is not None and now >= self.used_at + self._idle:
            if self.scheduled_count:
                self.touch(now)
            else:
                self._context.retire(self)

    def _next_deadline(self) -> float:
        due = self._schedule.next()
        if self.duplicates is not None:
            due = min(due, self.duplicates.next())
        return due if self._idle is None else min(due, self.used_at + self._idle)

    def _wake_at(self, when: float) -> None:
        if when < self.alarm_at:
            self._context.alarms.set(self, when)

    def shift_durations(self, seconds: float) -> None:
        """Somebody has set the clock forward: what is over after a while takes as long as it would have."""
        self.accessed_at += seconds
        self.wind_alarm()

    # -- settings, end and recovery

    def configure(self, settings: EntitySettings, now: float) -> None:
        """Obey these settings from now on. What is stored already keeps its expiry."""
        self.settings = settings
        self.updated_at = now
        self._time_to_live = settings.default_message_time_to_live
        self._idle = settings.auto_delete_on_idle
        if isinstance(settings, QueueSettings | TopicSettings):
            self._takes_messages = not settings.status.forbids_sending
            self.space.limit = settings.max_size_in_megabytes * MEGABYTE
            kilobytes = settings.max_message_size_in_kilobytes
            default = self._context.limits.max_message_size
            self._max_message_size = default if kilobytes is None else kilobytes * 1024
            self._configure_duplicates(settings)
        self.wind_alarm()

    def _configure_duplicates(self, settings: QueueSettings | TopicSettings) -> None:
        if not settings.requires_duplicate_detection:
            self.duplicates = None
        elif self.duplicates is None:
            self.duplicates = DuplicateHistory(settings.duplicate_detection_history_time_window)
        else:
            self.duplicates.window = settings.duplicate_detection_history_time_window

    def remove(self) -> None:
        """Be gone: whoever still holds this entity is refused from now on."""
        self.removed = True
        self._takes_messages = False
        self.table = MessageTable()
        self._context.alarms.set(self, NEVER)

    def restore(self, message: StoredMessage) -> None:
        """Put a message back as a store had it."""
        self.last_sequence = max(self.last_sequence, message.sequence_number)
        self._place_scheduled(message)

    def forget(self, number: int) -> None:
        """Take a message out and tell nobody."""
        message = self.table.get(number)
        if message is not None:
            self._take_scheduled(message)

    # -- inside

    @abstractmethod
    def _enqueue(self, message: StoredMessage, now: float, view: Incoming | None = None) -> None:
        """Do with a message what the entity is there for. `view` is what filters may look at."""

    def _advance(self) -> int:
        self.last_sequence += 1
        self._context.advanced.add(self)
        return self.last_sequence

    def _expiry(self, time_to_live: float | None, start: float) -> float | None:
        default = self._time_to_live
        if time_to_live is None or (default is not None and default < time_to_live):
            time_to_live = default
        return None if time_to_live is None else start + time_to_live

    def _earlier_expiry(self, expires_at: float | None, start: float) -> float | None:
        default = self._time_to_live
        if default is None or (expires_at is not None and expires_at < start + default):
            return expires_at
        return start + default

    def _check(self, messages: Sequence[Incoming]) -> None:
        if not self._takes_messages:
            self.check_send()
        total = 0
        for incoming in messages:
            self._check_one(incoming)
            total += incoming.size
        limits = self._context.limits
        if len(messages) > 1 and total > max(limits.max_batch_size, self._max_message_size):
            raise _too_large(total, limits.max_batch_size, "batch")
        if self.space.used + total > self.space.limit:
            self._check_room(total)
        for incoming in messages:
            if incoming.message_id is None:
                incoming.name(str(self._context.next_token()))

    def _check_one(self, message: Incoming | StoredMessage) -> None:
        if message.size > self._max_message_size:
            raise _too_large(message.size, self._max_message_size, "message")
        limit = self._context.limits.max_identifier
        session_id, message_id = message.session_id, message.message_id
        if session_id is None:
            if self.requires_session:
                raise not_allowed(
                    f"The entity '{self.path}' requires sessions, and a message without a session id cannot "
                    "be sent to it. Set the session id of the message."
                )
        elif len(session_id) > limit:
            raise bad_argument(
                f"The session id has {len(session_id)} characters; it may have {limit} at most."
            )
        if message_id is not None and len(message_id) > limit:
            raise bad_argument(
                f"The message id has {len(message_id)} characters; it may have {limit} at most."
            )

    def _check_room(self, size: int) -> None:
        if self.space.used + size > self.space.limit:
            raise Refused(
                conditions.RESOURCE_LIMIT,
                f"The maximum entity size has been reached or exceeded for '{self.path}': {self.space.used} "
                f"of {self.space.limit} bytes are taken. Receive messages, dead letters too, or raise the "
                "entity's maximum size.",
            )

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
        message = incoming.store(self._advance(), now, self._expiry(incoming.time_to_live, when))
        message.state = MessageState.SCHEDULED
        message.scheduled_for = when
        self._place_scheduled(message)
        self._emit(MessageStored(self.path, message))
        return message.sequence_number

    def _place_scheduled(self, message: StoredMessage) -> None:
        assert message.scheduled_for is not None
        self._index(message)
        self.scheduled_count += 1
        self._schedule.add(message.scheduled_for, message.sequence_number)
        self._wake_at(message.scheduled_for)

    def _discard_scheduled(self, message: StoredMessage) -> None:
        self._take_scheduled(message)
        self._emit(MessageRemoved(self.path, message.sequence_number))

    def _take_scheduled(self, message: StoredMessage) -> None:
        assert message.scheduled_for is not None
        self._schedule.remove(message.scheduled_for, message.sequence_number)
        self._unindex(message)
        self.scheduled_count -= 1

    def _activate(self, number: int, now: float) -> None:
        held = self.table.get(number)
        assert held is not None
        message = held.copy(self._advance())
        self._discard_scheduled(held)
        message.state = MessageState.ACTIVE
        message.enqueued_at = now
        if message.expires_at is not None:
            # The life of a message begins when it is enqueued, be that late after a restart.
            message.expires_at += now - (message.scheduled_for or now)
        self._enqueue(message, now)

    # -- the table

    def _index(self, message: StoredMessage) -> None:
        self.table.add(message)
        self.space.used += message.size

    def _unindex(self, message: StoredMessage) -> None:
        self.table.remove(message.sequence_number)
        self.space.used -= message.size


def _too_large(size: int, limit: int, what: str) -> Refused:
    return Refused(
        conditions.MESSAGE_SIZE_EXCEEDED,
        f"The {what} has {size} bytes, more than the {limit} bytes that are allowed here. Send less at once, "
        "or keep large bodies elsewhere and send where they are.",
    )

"""What may come into an entity, and how long it lives there.

The order of the checks: each message fits and has what the entity needs; all together fit; the entity has
room. Whether the entity takes messages at all is its own to say, before.
"""

from collections.abc import Sequence
from typing import Final

from pairbus import conditions

from .breath import breathe, slices
from .context import Context, Space
from .errors import Refused, bad_argument, not_allowed
from .message import Incoming, StoredMessage
from .settings import EntitySettings, QueueSettings, ReceivableSettings, TopicSettings

_KILOBYTE: Final = 1024
# A reason and a description, of 4,096 letters each: a full entity must be one that can be emptied.
_REASON: Final = 16 * _KILOBYTE


class Admission:
    """The rules for messages that come into one entity."""

    __slots__ = (
        "_limits",
        "_longest",
        "_needs_session",
        "_next_token",
        "_path",
        "_space",
        "_time_to_live",
        "largest",
    )

    def __init__(self, context: Context, path: str, space: Space) -> None:
        self._path = path
        self._limits = limits = context.limits
        self._next_token = context.next_token
        self._space = space
        #: Bytes that a message may have.
        self.largest = limits.max_message_size
        # A message that is no longer than this has neither too long a property nor too long headers.
        self._longest = min(self.largest, limits.max_property_size)
        self._needs_session = False
        self._time_to_live: float | None = None

    def obey(self, settings: EntitySettings) -> None:
        """Hold to these settings from now on."""
        self._time_to_live = settings.default_message_time_to_live
        if isinstance(settings, ReceivableSettings):
            self._needs_session = settings.requires_session
        if isinstance(settings, QueueSettings | TopicSettings):
            kilobytes = settings.max_message_size_in_kilobytes
            self.largest = self._limits.max_message_size if kilobytes is None else kilobytes * _KILOBYTE
            self._longest = min(self.largest, self._limits.max_property_size)

    def admit(self, messages: Sequence[Incoming]) -> None:
        """Raise Refused unless all of them may come in together; give an id to whoever has none."""
        total = 0
        for few in slices(messages):
            for incoming in few:
                self.check_one(incoming)
                if incoming.size > self._longest:
                    self._check_headers(incoming)
                total += incoming.size
        if len(messages) > 1 and total > self.largest_batch:
            raise _too_large(total, self._limits.max_batch_size, "batch")
        if max(self._space.used + total, self._space.remembered) >= self._space.limit:
            self.check_room(total)
        self._name(messages)

    @property
    def largest_batch(self) -> int:
        """Bytes of messages that may come in together."""
        return max(self._limits.max_batch_size, self.largest)

    def admit_each(self, messages: Sequence[Incoming], most: float) -> bool:
        """Whether each of these may come in and needs nothing else, and they have at most so many bytes; if
        so, all of them get an id.
        """
        longest, limit, total = self._longest, self._limits.max_identifier, 0
        has_ids = True
        for few in slices(messages):
            for incoming in few:
                size, session_id, message_id = incoming.size, incoming.session_id, incoming.message_id
                total += size
                if size > longest or incoming.is_ping or incoming.scheduled_for is not None:
                    return False
                if self._needs_session if session_id is None else len(session_id) > limit:
                    return False
                if message_id is None:
                    has_ids = False
                elif len(message_id) > limit:
                    return False
        if total > most or self._space.used + total > self._space.limit:
            return False
        if not has_ids:
            self._name(messages)
        return True

    def _name(self, messages: Sequence[Incoming]) -> None:
        for incoming in messages:
            if incoming.message_id is None:
                incoming.name(str(self._next_token()))
                breathe()

    def check_one(self, message: Incoming | StoredMessage) -> None:
        """Raise Refused unless a message fits and has what it needs."""
        if message.size > self.largest:
            raise _too_large(message.size, self.largest, "message")
        limit = self._limits.max_identifier
        session_id, message_id = message.session_id, message.message_id
        if session_id is None:
            if self._needs_session:
                raise not_allowed(
                    f"The entity '{self._path}' requires sessions, and a message without a session id cannot "
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

    def _check_headers(self, message: Incoming) -> None:
        """Raise Refused if all that comes before the body is too long, or a single property is."""
        size, limit, longest = message.header_size, self._limits.max_header_size, self._longest
        if size > limit:
            raise _headers_too_long(f"The headers of the message have {size} bytes; all may have {limit}")
        if size > longest:
            for value in (*message.sections.property_values, *message.application_properties.values()):
                length = len(value.encode()) if isinstance(value, str) else _length(value)
                if length > longest:
                    raise _headers_too_long(f"A property has {length} bytes; each may have {longest}")

    def check_state(self, state: bytes, *, before: bytes | None) -> None:
        """Raise Refused unless a session may have this state instead of the one before."""
        limit, growth = self._limits.max_session_state, len(state) - len(before or b"")
        if len(state) > limit:
            raise bad_argument(f"The session state has {len(state)} bytes; it may have {limit} at most.")
        if growth > 0:
            self.check_room(growth)

    def check_growth(self, size: int, count: int) -> None:
        """The same for what is written into messages that are there; a reason always fits."""
        if size > _REASON:
            self.check_room(size * count)

    def check_room(self, size: int) -> None:
        """Raise Refused unless there is room for that much."""
        space = self._space
        if 0 < space.limit <= space.remembered:
            raise Refused(
                conditions.RESOURCE_LIMIT,
                f"'{self._path}' remembers {space.remembered} bytes of message ids to detect duplicates, and "
                "may remember no more than its maximum size. Send later, when some are forgotten, or shorten "
                "the window of the detection.",
            )
        if space.used + size > space.limit:
            raise Refused(
                conditions.RESOURCE_LIMIT,
                f"The maximum entity size has been reached or exceeded for '{self._path}': {space.used} "
                f"of {space.limit} bytes are taken. Receive messages, dead letters too, or raise the "
                "entity's maximum size.",
            )

    def expiry(self, time_to_live: float | None, start: float) -> float | None:
        """When a message ends that begins at `start` and is to live that long; None for never."""
        default = self._time_to_live
        if time_to_live is None or (default is not None and default < time_to_live):
            time_to_live = default
        return None if time_to_live is None else start + time_to_live

    def earlier_expiry(self, expires_at: float | None, start: float) -> float | None:
        """The same for a message whose end is known from elsewhere."""
        default = self._time_to_live
        if default is None or (expires_at is not None and expires_at < start + default):
            return expires_at
        return start + default


def _length(value: object) -> int:
    return len(value) if isinstance(value, bytes) else 0


def _headers_too_long(text: str) -> Refused:
    """The service takes it for an error of its own, and SDKs try again. What is wrong it does not say."""
    return Refused(
        conditions.INTERNAL_ERROR,
        f"The service was unable to process the request; please retry the operation. {text} at most. Put "
        "what is long into the body.",
    )


def _too_large(size: int, limit: int, what: str) -> Refused:
    return Refused(
        conditions.MESSAGE_SIZE_EXCEEDED,
        f"The {what} has {size} bytes, more than the {limit} bytes that are allowed here. Send less at once, "
        "or keep large bodies elsewhere and send where they are.",
    )

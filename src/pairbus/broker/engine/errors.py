"""How the engine says no.

    PairbusError
     └── Refused            an operation that the engine refuses; `condition` is what the client sees
          └── EntityMissing there is no entity at a path

The texts say what would be right, because the official SDKs show them to the application's author. The
functions make the refusals that are raised in more than one place, so that each is worded once.
"""

from pairbus import conditions
from pairbus.errors import PairbusError


class Refused(PairbusError):
    """An operation that the engine does not do. Nothing has changed."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description

    def told_to(self, host: str) -> str:
        """The description for a client that calls the namespace `host`."""
        del host
        return self.description


class EntityMissing(Refused):
    """There is no such entity. Clients look for its whole address in the text."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(conditions.NOT_FOUND, self._text(path))

    def told_to(self, host: str) -> str:
        return self._text(f"sb://{host}/{self.path}")

    @staticmethod
    def _text(name: str) -> str:
        return f"The messaging entity '{name}' could not be found. Create it first, or mend its name."


def already_exists(path: str) -> Refused:
    """The name is taken."""
    return Refused(
        conditions.ENTITY_ALREADY_EXISTS,
        f"The messaging entity '{path}' already exists. Choose another name, or update the entity.",
    )


def bad_argument(text: str) -> Refused:
    """A value that the service does not take."""
    return Refused(conditions.ARGUMENT_ERROR, text)


def not_allowed(text: str) -> Refused:
    """An operation that this kind of entity does not have."""
    return Refused(conditions.NOT_ALLOWED, text)


def disabled(path: str, operation: str) -> Refused:
    """The entity's status forbids it."""
    return Refused(
        conditions.ENTITY_DISABLED,
        f"The messaging entity '{path}' is disabled for {operation}. Set its status to Active to use it.",
    )


def message_lock_lost() -> Refused:
    """Some clients look for this very text."""
    return Refused(
        conditions.MESSAGE_LOCK_LOST,
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from "
        "the queue. Renew locks before they end, or give the queue a longer lock duration.",
    )


def session_lock_lost(session_id: str | None) -> Refused:
    """The session went to somebody else, or its lock ended."""
    named = "of the session" if session_id is None else f"of the session '{session_id}'"
    return Refused(
        conditions.SESSION_LOCK_LOST,
        f"The lock {named} was lost. The lock supplied is invalid. Either the lock expired, or the message "
        "has already been removed from the queue. Accept the session again, and renew its lock in time.",
    )


def session_cannot_be_locked(session_id: str) -> Refused:
    """Somebody else holds the session."""
    return Refused(
        conditions.SESSION_CANNOT_BE_LOCKED,
        f"The requested session '{session_id}' cannot be accepted. It may be locked by another receiver. "
        "Try again when that receiver has closed or its lock has ended.",
    )


def message_not_found(number: int) -> Refused:
    """No message of that number in the wanted state."""
    return Refused(
        conditions.MESSAGE_NOT_FOUND,
        f"There is no such message with the sequence number {number}. It was settled, cancelled or enqueued "
        "already, has expired, or the number belongs to another entity.",
    )


def forwards_elsewhere(path: str, target: str) -> Refused:
    """Nobody receives from an entity that passes everything on."""
    return not_allowed(
        f"Cannot create a message receiver on the entity '{path}' because auto-forwarding is enabled. "
        f"Receive from '{target}' instead."
    )


def has_no_sessions(path: str) -> Refused:
    """A session is asked for where there are none."""
    return not_allowed(
        f"A sessionful message receiver cannot be created on the entity '{path}', which does not require "
        "sessions. Receive without a session."
    )


def needs_session(path: str) -> Refused:
    """No session is asked for where every message has one."""
    return not_allowed(
        "It is not possible for an entity that requires sessions to create a non-sessionful message "
        f"receiver. Accept a session of '{path}'."
    )


def too_many_properties(size: int, limit: int) -> Refused:
    return Refused(
        conditions.MESSAGE_SIZE_EXCEEDED,
        f"The application properties of the message would have {size} bytes, more than the {limit} bytes "
        "that settling can make of them. Settle it with fewer or shorter properties.",
    )


def is_dead_already(path: str) -> Refused:
    """There are no dead letters of dead letters."""
    return not_allowed(f"'{path}' holds dead letters already. Complete the message, or send it anew.")


def locked_by_session() -> Refused:
    """A lock is to be renewed that there is not."""
    return not_allowed("A message of a session has no lock of its own. Renew the session's lock instead.")

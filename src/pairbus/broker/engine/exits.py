"""Where messages go from a queue, other than to a receiver: to another entity, or to the dead letters.

A message leaves for the dead letters with its number and its time of enqueueing, as a new record there. That
record is made before the message is taken out: if it cannot be made, the message is where it was.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from pairbus import words

from .context import Context
from .errors import Refused, not_allowed
from .message import MessageState, StoredMessage
from .names import entity_path
from .settings import ReceivableSettings


class Grave(Protocol):
    """What dead letters are put into."""

    def insert(self, message: StoredMessage) -> None: ...


class Exits:
    """The ways out of one queue. A sub-queue has no dead letters of its own, and buries nothing."""

    __slots__ = (
        "_context",
        "_dead_letters",
        "_forward_dead_letters_to",
        "_path",
        "_transfer_dead_letters",
        "buries_expired",
        "forward_to",
    )

    def __init__(
        self, context: Context, path: str, dead_letters: Grave | None, transfer_dead_letters: Grave | None
    ) -> None:
        self._context = context
        self._path = path
        self._dead_letters = dead_letters
        self._transfer_dead_letters = transfer_dead_letters
        self.buries_expired = False
        self.forward_to: str | None = None
        self._forward_dead_letters_to: str | None = None

    def obey(self, settings: ReceivableSettings) -> None:
        """Go by these settings from now on."""
        self.buries_expired = settings.dead_lettering_on_message_expiration
        self.forward_to = _path(settings.forward_to)
        self._forward_dead_letters_to = _path(settings.forward_dead_lettered_messages_to)

    def letter(
        self,
        message: StoredMessage,
        *,
        reason: str | None,
        description: str | None,
        properties: Mapping[str, Any] | None = None,
    ) -> StoredMessage:
        """What becomes of a message among the dead letters. Refused if a client's properties are too much."""
        letter = message.copy(message.sequence_number)
        letter.state = MessageState.ACTIVE
        letter.expires_at = None
        letter.dead_letter_source = self._path
        if properties:
            letter.change_application_properties(properties, is_bounded=True)
        given = {words.REASON: reason, words.DESCRIPTION: description}
        why = {name: text for name, text in given.items() if text is not None}
        if why:
            letter.change_application_properties(why)
        return letter

    def bury(self, letter: StoredMessage, now: float) -> None:
        """Put a letter where dead ones go."""
        assert self._dead_letters is not None
        if self._forward_dead_letters_to is not None:
            self.forward(letter, self._forward_dead_letters_to, now)
        else:
            self._dead_letters.insert(letter)

    def forward(self, message: StoredMessage, path: str, now: float) -> None:
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
                raise not_allowed(f"The entity '{path}' that '{self._path}' forwards to is not there.")
            destination.accept_forwarded(message, now)
        except Refused as refused:
            assert self._transfer_dead_letters is not None
            letter = self.letter(message, reason=refused.condition, description=refused.description)
            self._transfer_dead_letters.insert(letter)


def _path(target: str | None) -> str | None:
    return None if target is None else entity_path(target)

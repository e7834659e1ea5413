"""What a queue hands out, and what it tells of itself."""

import uuid
from typing import NamedTuple

from .message import StoredMessage


class Counts(NamedTuple):
    """Messages as Azure counts them: locked and deferred ones are among the active."""

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0
    deferred: int = 0

    @property
    def total(self) -> int:
        return self.active + self.dead_letter + self.scheduled + self.transfer + self.transfer_dead_letter


class Handout(NamedTuple):
    """A message for a receiver. Without a token it is deleted already."""

    message: StoredMessage
    lock_token: uuid.UUID | None
    locked_until: float

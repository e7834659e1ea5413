"""Messages that are sent and settled together, or not at all.

What belongs to a transaction is only noted until that is discharged: messages are not stored, and those to be
settled stay locked. When it is discharged, everything is looked at first, as of one moment: whether each
message may come in, and whether each lock still holds. Only then is anything done, and of what is done
nothing can be refused.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .breath import breathe
from .errors import Refused, is_dead_already
from .message import Incoming, StoredMessage
from .namespace import Namespace
from .queue import MessageQueue


@dataclass(frozen=True, slots=True)
class NotedSend:
    """Messages that come in together."""

    path: str
    messages: Sequence[Incoming]

    def pack(self) -> None:
        """Hold no more than must be held."""
        for message in self.messages:
            message.pack()

    @property
    def size(self) -> int:
        """Bytes that are held for it."""
        return sum(message.size for message in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedSettlement:
    """A message that is settled. `settle` does so; `buries` if it goes to the dead letters; `needs_content`
    if it is not just removed. `properties` tells how its properties change, and `size` the bytes held for it.
    """

    queue: MessageQueue
    token: uuid.UUID
    settle: Callable[[float], object]
    properties: Callable[[], Mapping[str, Any] | None]
    size: int
    buries: bool = False
    needs_content: bool = False

    @property
    def path(self) -> str:
        return self.queue.path


NotedStep = NotedSend | NotedSettlement


def discharge(namespace: Namespace, steps: Sequence[NotedStep], now: float) -> None:
    """Do all of them, in their order, or none and raise Refused."""
    coming: dict[str, int] = {}
    for step in steps:
        if isinstance(step, NotedSend):
            node = namespace.node(step.path)
            coming[node.path] = node.check_arrival(step.messages, now, before=coming.get(node.path, 0))
        else:
            _check_settling(step, now)
        breathe()
    for step in steps:
        try:
            if isinstance(step, NotedSend):
                namespace.node(step.path).take(step.messages, now)
                step.pack()
            else:
                step.settle(now)
        except Refused as refused:
            raise RuntimeError("a step of a transaction was refused after it had been allowed") from refused
        breathe()


def check_locked(queue: MessageQueue, tokens: Sequence[uuid.UUID], now: float) -> list[StoredMessage]:
    """The messages that are locked by these tokens, or Refused if one of the locks is lost."""
    if now >= queue.alarm.at:
        queue.alarm.wake(now)
    locked = queue.locked(tokens)
    if len(locked) < len(tokens):
        raise queue.lost()
    return locked


def _check_settling(step: NotedSettlement, now: float) -> None:
    if step.buries and step.queue.parent is not None:
        raise is_dead_already(step.queue.path)
    (message,) = check_locked(step.queue, [step.token], now)
    step.queue.check_growth(step.size)
    if properties := step.properties():
        copy = message.copy(message.sequence_number)
        copy.change_application_properties(properties, is_bounded=True)

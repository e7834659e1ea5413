"""What connections make a broker hold, over all of them: messages that have begun to come and are not whole
yet, and what is to be written and nobody reads.

Each connection has a limit of its own, and there may be thousands. When all together hold too much, the one
that holds the most is ended.
"""

import logging
from abc import ABC, abstractmethod
from typing import Protocol

from pairbus import conditions
from pairbus.amqp.performatives import AmqpError
from pairbus.broker.bounded_log import BoundedLog

bounded = BoundedLog(logging.getLogger(__name__))
#: Bytes over all connections of all namespaces of a broker.
MOST_BYTES = 256 << 20
_TOO_MUCH = "Too many large messages are under way at once. Send fewer at a time."


class BusyLine(Protocol):
    """A connection on which messages come and go."""

    name: str

    def close(self, error: AmqpError | None) -> None: ...

    def reset(self) -> None: ...


class HeldBytes(ABC):
    """An account of what connections make a broker hold."""

    def __init__(self, largest: int, most: int = MOST_BYTES) -> None:
        """`largest` is the size of the largest message that there may be: three of these always fit."""
        self._most = max(most, 3 * largest)
        self._held: dict[BusyLine, int] = {}
        self._total = 0

    def note(self, line: BusyLine, size: int) -> None:
        """A connection holds so much now."""
        before = self._held.get(line, 0)
        if size == before:
            return
        self._total += size - before
        self._held[line] = size
        if not size:
            del self._held[line]
        elif size > before and self._total > self._most and (worst := self._worst()) is not None:
            self._total -= self._held.pop(worst)
            self._end(worst)

    def _worst(self) -> BusyLine | None:
        """The connection that has to go, if any has."""
        return max(self._held, key=lambda each: self._held[each])

    @abstractmethod
    def _end(self, worst: BusyLine) -> None:
        """End that connection."""


class Unfinished(HeldBytes):
    """Messages that are not whole yet. To finish what a connection has begun would need even more."""

    def _end(self, worst: BusyLine) -> None:
        bounded.tell(logging.WARNING, "unfinished messages are dropped", {"connection": worst.name})
        worst.close(AmqpError(conditions.RESOURCE_LIMIT, _TOO_MUCH, {}))


class Unread(HeldBytes):
    """What is to be written. A client that reads nothing would not read a goodbye either."""

    def _end(self, worst: BusyLine) -> None:
        fields = {"connection": worst.name}
        bounded.tell(logging.WARNING, "a client that does not read makes room for others", fields)
        worst.reset()


class UnreadAnswers(Unread):
    """Answers of about the same size: the oldest goes, but the only one stays, however large it is."""

    def _worst(self) -> BusyLine | None:
        return next(iter(self._held)) if len(self._held) > 1 else None


class Burdens:
    """Both accounts, for all namespaces of a process."""

    def __init__(self, largest: int) -> None:
        self.unfinished = Unfinished(largest)
        self.unread = Unread(largest)

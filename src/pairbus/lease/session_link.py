"""A receiver link to a session, which holds the session's lock."""

from typing import Self

from pairbus import words
from pairbus.amqp.events import LinkAttached
from pairbus.amqp.types import Symbol, UInt
from pairbus.wire.line import AmqpLine
from pairbus.wire.links import ReceiverLink
from pairbus.wire.meter import Meter

# .NET's ticks of 100 ns count from the year 1.
_TICKS_OF_UNIX = 621_355_968_000_000_000
_TICKS_A_SECOND = 10_000_000


class SessionLink(ReceiverLink):
    """Receives from one session; `locked_until` is in Unix seconds by the service's clock."""

    locked_until: float | None = None

    def on_attached(self, event: LinkAttached) -> None:
        told = {str(key): value for key, value in (event.attach.properties or {}).items()}
        ticks = told.get(words.LOCKED_UNTIL_TICKS)
        if isinstance(ticks, int):
            self.locked_until = (ticks - _TICKS_OF_UNIX) / _TICKS_A_SECOND
        super().on_attached(event)

    @classmethod
    async def open_session(
        cls, line: AmqpLine, address: str, session: str, *, timeout: float, meter: Meter
    ) -> Self:
        """Lock this session; TransportError if another has it."""
        link = cls(line, address, meter, filters={Symbol(words.SESSION_FILTER): session})
        await link.await_attached(timeout)
        return link

    @classmethod
    async def open_next(
        cls, line: AmqpLine, address: str, *, wait: float, timeout: float, meter: Meter
    ) -> Self:
        """Wait for an unlocked session with messages, and lock it; these are deleted on receipt."""
        link = cls(
            line,
            address,
            meter,
            filters={Symbol(words.SESSION_FILTER): None},
            properties={Symbol(words.LINK_TIMEOUT): UInt(int(wait * 1000))},
            deletes=True,
        )
        await link.await_attached(wait + timeout)
        return link

"""Who holds the lease of a pair, for `status` commands."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from pairbus import conditions
from pairbus.errors import PairbusError
from pairbus.ledger.columns import Moment, take_values
from pairbus.pairing.names import lease_queue_name
from pairbus.plumbing.json_text import parse_json
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.wire.errors import TransportError

from .holding import SessionHold, peek_announcement


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A syphon with the lease. For `orphans` seconds its pumps, which run elsewhere, may outlive it."""

    host: str
    pid: int
    run: str
    since: Moment
    kind: str
    orphans: float = 0.0

    @classmethod
    def of_this_process(cls, run: str, *, kind: str, now: float, orphans: float = 0.0) -> Holder:
        """One that runs here."""
        return cls(host=socket.gethostname(), pid=os.getpid(), run=run, since=now, kind=kind, orphans=orphans)

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return f"a syphon ({self.kind}) on {self.host}, process {self.pid}, since {since}"


def parse_holder(text: bytes | None) -> Holder | None:
    """Parse an announcement; None if there is none, or it is not one."""
    if text is None:
        return None
    try:
        found = parse_json(text)
        told = {one.name: found[one.name] for one in fields(Holder) if one.name in found}
        return Holder(**take_values(Holder, told))
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """Whether the lease is held, and by whom if that was announced; `trouble` if it cannot be told."""

    is_held: bool | None = None
    holder: Holder | None = None
    trouble: str | None = None


async def read_lease(transport: AmqpTransport, primary: str) -> LeaseView:
    """Look at the lease without taking it.

    Without an announcement it counts as free; a holder that may not send to the queue is not seen. With one
    it is asked for, which is refused unless its writer has died.
    """
    queue = lease_queue_name(primary)
    try:
        text = await peek_announcement(transport, queue)
        if text is None:
            return LeaseView(is_held=False)
        (await SessionHold.take(transport, queue)).release()
    except TransportError as error:
        if error.condition == conditions.SESSION_CANNOT_BE_LOCKED:
            return LeaseView(is_held=True, holder=parse_holder(text))
        if error.condition == conditions.NOT_FOUND:
            return LeaseView(trouble=f"there is no queue {queue}; `pairbus provision` makes it")
        return LeaseView(trouble=str(error))
    except PairbusError as error:
        return LeaseView(trouble=str(error))
    return LeaseView(is_held=False)

"""Who holds the lease of a pair, as whoever looks on can see it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, fields
from datetime import UTC, datetime

from pairbus import conditions
from pairbus.errors import PairbusError
from pairbus.pairing.names import lease_queue_name
from pairbus.plumbing.json_text import parse_json
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.wire.errors import TransportError

from .holding import SessionHold, peek_announcement


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A syphon that holds the lease: where it runs, since when (Unix seconds), and of which kind it is."""

    host: str
    pid: int
    run: str
    since: float
    kind: str

    @classmethod
    def of_this_process(cls, run: str, *, kind: str, now: float) -> Holder:
        """One that runs here."""
        return cls(host=socket.gethostname(), pid=os.getpid(), run=run, since=now, kind=kind)

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since, UTC).isoformat(timespec="seconds")
        return f"a syphon ({self.kind}) on {self.host}, process {self.pid}, since {since}"


def parse_holder(text: bytes | None) -> Holder | None:
    """What an announcement says; None if there is none, or nobody can read it."""
    if text is None:
        return None
    try:
        found = parse_json(text)
        return Holder(**{one.name: found[one.name] for one in fields(Holder)})
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """Whether the lease is held, by whom, as far as that has left word; `trouble` if nobody can tell."""

    is_held: bool | None = None
    holder: Holder | None = None
    trouble: str | None = None


async def read_lease(transport: AmqpTransport, primary: str) -> LeaseView:
    """Look. One that is not held is ours for a moment: there is no other way to see it. Closes nothing."""
    queue = lease_queue_name(primary)
    try:
        (await SessionHold.take(transport, queue)).release()
    except TransportError as error:
        if error.condition == conditions.SESSION_CANNOT_BE_LOCKED:
            return LeaseView(is_held=True, holder=await _read_holder(transport, queue))
        return LeaseView(trouble=str(error))
    except PairbusError as error:
        return LeaseView(trouble=str(error))
    return LeaseView(is_held=False)


async def _read_holder(transport: AmqpTransport, queue: str) -> Holder | None:
    try:
        return parse_holder(await peek_announcement(transport, queue))
    except TransportError:
        return None

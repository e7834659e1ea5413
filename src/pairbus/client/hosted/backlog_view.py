"""Looks through the backlog queues for sessions, by peeking; this needs the Listen claim."""

from collections.abc import Sequence
from pathlib import Path

from pairbus.client.sending.sessions import SessionKey, SessionPicture
from pairbus.clock import Clock
from pairbus.conditions import NOT_FOUND
from pairbus.ledger.operation_log import OperationLog
from pairbus.pairing.errors import MalformedEnvelope
from pairbus.pairing.names import path_key, primary_name
from pairbus.pump.browsing import PAGE
from pairbus.pump.transport import BacklogSource
from pairbus.pump.unwrapping import read_address, read_postmark
from pairbus.sdk.side import SdkSide
from pairbus.wire.errors import TransportError
from pairbus.wire.meter import Meter

from .transport import open_transport

# A backlog of this size is not looked through to its end only to count.
_ENOUGH = 1000
_ANSWER_LIMIT = 10.0


class BacklogView:
    """The backlog queues of one client, as something to be looked at now and then."""

    def __init__(
        self, side: SdkSide, queues: Sequence[str], *, name: str, records: Path | None, clock: Clock
    ) -> None:
        """What is billed is recorded under `records`, if that is given. Does no I/O."""
        self._side = side
        self._queues = list(queues)
        self._meter = Meter()
        self._ledger: OperationLog | None = None
        if records is not None:
            self._ledger = OperationLog(records, role="client", pair=name, clock=clock)
            self._meter = Meter(primary_name(side.parsed or side.endpoint), self._ledger, region="secondary")

    async def look(self, wanted: set[SessionKey] | None) -> SessionPicture:
        """See which sessions have messages; None wants all. In a large backlog, only until each of those that
        are wanted has been seen.

        A queue that is missing is empty. TransportError if one cannot be read.
        """
        if self._ledger is not None:
            self._ledger.start()
        picture = SessionPicture()
        transport = open_transport(self._side, timeout=_ANSWER_LIMIT)
        transport.meter = self._meter
        try:
            for queue in self._queues:
                source = transport.source(queue)
                try:
                    await self._look_at(queue, source, picture, wanted)
                except TransportError as error:
                    if error.condition != NOT_FOUND:
                        raise
                finally:
                    await source.close()
        finally:
            await transport.close()
        return picture

    async def _look_at(
        self, queue: str, source: BacklogSource, picture: SessionPicture, wanted: set[SessionKey] | None
    ) -> None:
        number = 0
        while picture.is_whole and (page := await source.peek(number, PAGE)):
            number = page[-1].sequence_number + 1
            for one in page:
                try:
                    path, session = read_address(one.sections)
                except MalformedEnvelope:
                    continue  # a syphon buries it
                if session is not None:
                    at = read_postmark(one.sections).enqueued_ms
                    picture.note(SessionKey(path_key(path), session), queue, one.sequence_number, at=at)
            picture.looked_at += len(page)
            if wanted is not None and picture.looked_at > _ENOUGH and wanted <= picture.counts.keys():
                picture.is_whole = False

    def close(self) -> None:
        """Write what was recorded. Waits for the disk."""
        if self._ledger is not None:
            self._ledger.close()

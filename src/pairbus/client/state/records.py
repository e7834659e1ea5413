"""Redirect records: what went to which backlog queue, so that a later check can name what is missing."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quote
from pathlib import Path
from typing import Protocol

from pairbus.clock import Clock
from pairbus.ledger.segment import MAX_AGE, SegmentWriter, adopt_segments
from pairbus.ledger.segment_log import SegmentLog
from pairbus.options import RecordsSync

#: The kind of segment that holds redirect records.
KIND = "redirects"
#: The outcome of a send without an answer: it counts as recovered if it is found, and not as lost if not.
UNKNOWN = "unknown"
#: That of a send to the primary without an answer, before the message went to `queue`, or into the spool, for
#: which the first queue stands: it may be there twice.
UNANSWERED = "unanswered"

log = logging.getLogger(__name__)
# So many wait for a disk that hangs: some 50 MB.
_MOST_WAITING = 100_000


@dataclass(slots=True, kw_only=True)  # not frozen, which would make it three times as dear: one a send
class RedirectRecord:
    """One message that a backlog queue has taken; or may have, if its `outcome` is `UNKNOWN`; or the primary,
    before the backlog has, if it is `UNANSWERED`.
    """

    message_id: str
    path: str
    session_id: str | None
    queue: str
    at: float
    outcome: str | None = None


class Records(Protocol):
    """Where redirect records are kept."""

    @property
    def lost(self) -> int:
        """How many could not be written."""

    def begin(self) -> None:
        """Leave a sign that records are kept, so that none differ from nothing that was redirected."""

    def append_at_once(self, rows: Sequence[RedirectRecord]) -> bool:
        """The same as `append` where nothing is to be waited for; else False, and nothing is kept."""

    async def append(self, rows: Sequence[RedirectRecord]) -> None:
        """Keep these; the end of the process cannot lose them when this returns."""

    async def close(self) -> None:
        """Close the open segment."""


class NoRecords:
    """Keeps none."""

    lost = 0

    def begin(self) -> None:
        """There is nothing to begin."""

    def append_at_once(self, rows: Sequence[RedirectRecord]) -> bool:
        """Nothing is kept."""
        return True

    async def append(self, rows: Sequence[RedirectRecord]) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """There is nothing to close."""


class SegmentRecords(SegmentLog[RedirectRecord]):
    """Keeps redirect records in segments of a directory, and fsyncs them within a second, or, if they are to
    be synced always, before the send returns.

    The message is in the backlog when its record is written. A disk that is full or broken therefore does not
    make the send fail, since its caller would send again what has been taken: the loss is logged and counted.
    """

    def __init__(
        self,
        directory: Path,
        *,
        sync: RecordsSync = "background",
        clock: Clock | None = None,
        max_age: float = MAX_AGE,
        is_shipped: bool = False,
    ) -> None:
        """Does no I/O."""
        self._disk = SegmentWriter(
            directory,
            KIND,
            max_age=max_age,
            clock=clock,
            encode=_encode,
            is_chained=True,
            is_shipped=is_shipped,
        )
        super().__init__(self._disk, is_synced=sync == "always", is_left=True)
        self._has_adopted = self._is_owing = False

    @property
    def lost(self) -> int:
        """How many records could not be written."""
        return self._disk.lost

    async def append(self, rows: Sequence[RedirectRecord]) -> None:
        """The same; but these are lost where the disk has not answered for so long that memory would fill."""
        if self._commit.waiting < _MOST_WAITING:
            await super().append(rows)
            return
        self._disk.count_lost(len(rows))  # before it is asked whether the thread will tell it
        if not self._is_owing:
            log.error("the disk does not answer: redirect records of sends to come are lost until it does")
            self._is_owing = True
            self._sync_soon()

    async def close(self) -> None:
        """Write what waits and close the open segment."""
        try:
            await super().close()
        except OSError as error:
            log.warning("cannot close a segment of redirect records: %s", error)

    # -- on the thread

    def _write(self, rows: list[RedirectRecord]) -> None:
        try:
            if not self._has_adopted:
                self._adopt()
            self._disk.append(rows, is_synced=self._is_synced)
        except Exception as error:  # noqa: BLE001 - whatever it is, the messages have been taken
            self._lose(len(rows), error)

    def _write_if_ready(self, rows: Sequence[RedirectRecord]) -> bool:
        try:
            return self._disk.append_if_ready(rows)
        except Exception as error:  # noqa: BLE001 - the same
            self._lose(len(rows), error)
            return True

    def _sync_rows(self) -> None:
        self._is_owing = False  # before it is told: what is lost from now on may be told later
        super()._sync_rows()

    def _lose(self, rows: int, error: Exception) -> None:
        self._disk.lose(rows)
        log.error("cannot write redirect records: %s", error, extra={"fields": {"lost": self.lost}})

    def _adopt(self) -> None:
        self._has_adopted = True
        try:
            adopted = adopt_segments(self._disk.directory, KIND)
        except OSError as error:
            log.warning("cannot adopt redirect records of earlier processes: %s", error)
            return
        if adopted:
            log.info("adopted redirect records of earlier processes: %d segments", len(adopted))


def _encode(row: RedirectRecord) -> bytes:
    # By hand, since each send has one: a fifth of the general encoder's time.
    place = _tell_place(row.path, row.session_id, row.queue)
    outcome = "null" if row.outcome is None else quote(row.outcome)
    line = f'{{"message_id":{quote(row.message_id)}{place}{float(row.at)!r},"outcome":{outcome}}}\n'
    return line.encode("ascii")


@lru_cache(maxsize=64)
def _tell_place(path: str, session_id: str | None, queue: str) -> str:
    """What is between the id and the time, the same for most records that follow each other."""
    session = "null" if session_id is None else quote(session_id)
    return f',"path":{quote(path)},"session_id":{session},"queue":{quote(queue)},"at":'

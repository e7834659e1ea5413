"""Redirect records: what went to which backlog queue, so that a later check can name what is missing.

`SegmentRecords` keeps them on the disk of this machine. Sends that end at the same time share one write.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pairbus.clock import Clock
from pairbus.ledger.segment import MAX_AGE, SegmentWriter, adopt_segments, encode_row
from pairbus.ledger.segment_log import SegmentLog
from pairbus.options import RecordsSync
from pairbus.plumbing.files import FileLock, make_directory

#: The kind of segment that holds redirect records.
KIND = "redirects"
#: The outcome of a send without an answer: it counts as recovered if it is found, and not as lost if not.
UNKNOWN = "unknown"
#: That of a send to the primary without an answer, before the message went to `queue`, or into the spool, for
#: which the first queue stands: it may be there twice.
UNANSWERED = "unanswered"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
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


def lock_of_writer(directory: Path, writer: str) -> Path:
    """Locked while that writer lives, if its records are shipped."""
    return directory / f".{KIND}-{writer}.lock"


class Records(Protocol):
    """Where redirect records are kept."""

    @property
    def lost(self) -> int:
        """How many could not be written."""
        ...

    def begin(self) -> None:
        """Leave a sign that records are kept, so that none differ from nothing that was redirected."""
        ...

    async def append(self, rows: Sequence[RedirectRecord]) -> None:
        """Keep these; the end of the process cannot lose them when this returns."""
        ...

    async def close(self) -> None:
        """Close the open segment."""
        ...


class NoRecords:
    """Keeps none."""

    lost = 0

    def begin(self) -> None:
        """There is nothing to begin."""

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
        """Does no I/O. `is_shipped`: a lock tells whoever ships them that this writer lives."""
        self._disk = SegmentWriter(
            directory, KIND, max_age=max_age, clock=clock, encode=_encode, is_chained=True
        )
        super().__init__(self._disk, is_synced=sync == "always")
        self._has_adopted = False
        self._is_shipped = is_shipped
        self._life: FileLock | None = None

    @property
    def lost(self) -> int:
        """How many records could not be written."""
        return self._disk.lost

    async def close(self) -> None:
        """Write what waits and close the open segment."""
        try:
            await super().close()
        except OSError as error:
            log.warning("cannot close a segment of redirect records: %s", error)
        life, self._life = self._life, None
        if life is not None:
            life.release()

    # -- on the thread

    def _begin(self) -> None:
        self._show_life()
        super()._begin()

    def _show_life(self) -> None:
        """Before there is a head, or it would be taken for that of a dead one."""
        writer = self._disk.writer
        if not self._is_shipped or self._life is not None or writer is None:
            return
        try:
            make_directory(self._disk.directory, follows=True)
            self._life = FileLock.take(lock_of_writer(self._disk.directory, writer))
        except OSError as error:
            log.warning("cannot lock the chain of redirect records: %s", error)

    def _write(self, rows: list[RedirectRecord]) -> None:
        try:
            self._show_life()
            if not self._has_adopted:
                self._adopt()
            super()._write(rows)
        except Exception as error:  # noqa: BLE001 - whatever it is, the messages have been taken
            self._disk.lose(len(rows))
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
    # By hand, since each send has one: `asdict` looks for fields and copies what it finds.
    return encode_row(
        {
            "message_id": row.message_id,
            "path": row.path,
            "session_id": row.session_id,
            "queue": row.queue,
            "at": row.at,
            "outcome": row.outcome,
        }
    )

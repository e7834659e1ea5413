"""Writes operations: summed up in memory, and put on the disk by a thread every few seconds.

1. To record is to add to a number, under a lock that nobody holds for long: the disk is never waited for.
2. The thread takes the sums and writes them in one piece, with a mark that all is written up to now. Rows
   that could not be written are tried again as they are, ids included, since nobody knows what of them is on
   the disk; meanwhile sums gather in memory.
3. A process that is killed loses what it did in the last `every` seconds. That it was killed is told by the
   mark that it owes: also one that has nothing to tell makes one each `HEARTBEAT`. Rows are numbered as they
   are written, so that what is missing in between shows; see `row_runs`.
4. Writes to an object store are told with what is written next. Those that a process makes after its last
   word, a handful, are told by nobody.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from pairbus.clock import Clock, SystemClock
from pairbus.metering import RECORDS
from pairbus.stages import Role, Stage
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.writes import take_writes

from .commit_objects import open_writer
from .operations import KIND
from .segment import adopt_segments, writer_name

log = logging.getLogger(__name__)
#: How often sums are written: what a killed process may lose.
EVERY = 10.0
#: How often a writer with nothing to tell shows that it lives.
HEARTBEAT = 60.0
# Sums are small. A file each ten minutes and writer is enough for a report, and not too many for a disk.
MAX_AGE = 600.0
_CLOSE_WAIT = 5.0

# By namespace, entity, stage, kind, size class, minute and outage: count, unknown, bytes; as rows call them.
_FIELDS = (
    "namespace", "entity", "stage", "kind", "size_class", "minute", "outage", "count", "unknown", "bytes",
)  # fmt: skip
_Key = tuple[str, str, Stage, str, int, int, "str | None"]
_Sums = dict[_Key, list[int]]


class OperationSums:
    """Sums in memory."""

    def __init__(self, *, role: Role, clock: Clock | None = None) -> None:
        """`role` is who does what is summed up."""
        self.role: Role = role
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._sums: _Sums = {}

    def record(
        self,
        namespace: str,
        entity: str,
        *,
        stage: Stage,
        kind: str,
        count: int = 0,
        unknown: int = 0,
        size: int = 0,
        size_class: int = 1,
        outage: str | None = None,
        at: float | None = None,
    ) -> None:
        """`count` operations of `size` bytes were made now, or `at` a time; `unknown` more may have been."""
        minute = int((self._clock.now() if at is None else at) // 60) * 60
        key = (namespace, entity, stage, kind, size_class, minute, outage)
        if not count:  # what may not have been carried is not paid for either
            size = 0
        with self._lock:
            sums = self._sums.get(key)
            if sums is None:
                self._sums[key] = [count, unknown, size]
            else:
                sums[0] += count
                sums[1] += unknown
                sums[2] += size

    def take(self) -> _Sums:
        """The sums so far; they begin anew."""
        with self._lock:
            sums, self._sums = self._sums, {}
        return sums


class OperationLog(OperationSums):
    """Keeps sums in segments of a directory, or as objects in a store."""

    def __init__(
        self,
        place: RecordPlace,
        *,
        role: Role,
        pair: str,
        writer: str | None = None,
        clock: Clock | None = None,
        every: float | None = None,
        max_age: float = MAX_AGE,
        ships_to: RecordPlace | None = None,
    ) -> None:
        """Does no I/O. `writer` is by default host, process, id; `every` is longer where a write is a put.
        `ships_to`: where others bring what is written here.
        """
        super().__init__(role=role, clock=clock)
        self.writer = writer or writer_name()
        self._about = {"writer": self.writer, "pair": pair}
        self._place = place
        self._store = place if ships_to is None else ships_to
        self._every = every or (HEARTBEAT if isinstance(place, StoreUri) else EVERY)
        self._segments = open_writer(place, KIND, max_age=max_age, clock=clock)
        #: Called before sums are taken, on the thread that writes: whoever has some to add does it now.
        self.before_flush: Callable[[], None] = lambda: None
        self._numbers = itertools.count()
        self._marks: list[dict[str, Any]] = []
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._has_failed = False
        self._unwritten: list[dict[str, Any]] = []
        self._marked_at = 0.0

    def mark_outage(self, outage: str, entity: str, *, begins: bool, at: float) -> None:
        """An entity has failed over, or is back."""
        with self._lock:
            self._marks.append({"entity": entity, "outage": outage, "begins": begins, "at": at})

    def start(self) -> None:
        """Begin to write, on a thread."""
        if self._thread is None and not self._ending.is_set():
            # A daemon: a process that ends without `close` must not be held up by this.
            self._thread = threading.Thread(target=self._run, name="pairbus-ledger", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what there is and let everybody see it. Waits for the disk, but not for ever."""
        self._ending.set()
        thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_WAIT)

    # -- the thread

    def _run(self) -> None:
        self._adopt()
        self.flush("begin")
        while not self._ending.wait(self._every):
            self.flush("interval")
        if self._unwritten:
            self.flush("interval")
        self.flush("end")
        try:
            self._segments.close()
        except OSError as error:
            log.warning("cannot close a segment of the ledger: %s", error)

    def flush(self, phase: str) -> None:
        """Write the sums, and a mark that all is written up to now. Rule 2."""
        try:
            if not self._unwritten:
                self._unwritten = self._take_rows(phase)
            if not self._unwritten:
                return
            self._segments.append(self._unwritten)
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread lives on
            if not self._has_failed:  # once, not every few seconds
                log.error("cannot write the ledger; its sums are kept for another try: %r", error)
            self._has_failed = True
        else:
            self._unwritten = []
            self._has_failed = False

    def _take_rows(self, phase: str) -> list[dict[str, Any]]:
        # Read before the sums are taken: what comes between is written sooner than it is said to be.
        at = self._clock.now()
        self.before_flush()
        sums = self.take()
        with self._lock:
            marks, self._marks = self._marks, []
        if not sums and not marks and phase == "interval" and at - self._marked_at < HEARTBEAT:
            return []
        self._add_writes(sums, at, is_last=phase == "end")
        self._marked_at = at
        every = max(HEARTBEAT, self._every)
        operations = [dict(zip(_FIELDS, (*key, *sums[key]), strict=True)) for key in sums]
        return [
            *(self._row("outage", told) for told in marks),
            *(self._row("operation", {"role": self.role, **told}) for told in operations),
            self._row("writer", {"role": self.role, "phase": phase, "at": at, "every": every}),
        ]

    def _add_writes(self, sums: _Sums, at: float, *, is_last: bool) -> None:
        """Rule 4. The last word is a write as well, which nobody else would tell of."""
        is_put = is_last and isinstance(self._place, StoreUri)
        writes = take_writes(self._store, ahead=int(is_put))
        if writes:
            key = (RECORDS, RECORDS, Stage.STORE_WRITE, "put", 1, int(at // 60) * 60, None)
            sums[key] = [writes, 0, 0]

    def _row(self, kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"row": kind, "id": f"{self.writer}:{next(self._numbers):09d}", **self._about, **values}

    def _adopt(self) -> None:
        if isinstance(self._place, StoreUri):
            return  # there is nothing to adopt where nothing is open
        try:
            adopt_segments(self._place, KIND)
        except OSError as error:
            log.warning("cannot adopt the ledger of earlier processes: %s", error)

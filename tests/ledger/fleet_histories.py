"""Random histories of a fleet: hosts that redirect, pump and ship what they have recorded to one place, two
processes of one host among them, a job that pumps there, compactions, retention, deaths and a store that
fails; and what the verdict makes of it.

Everything is written, shipped, put into tables, removed and audited by the real code. What is played is
Service Bus, the clock, and the store behind `abfss://`, which is a directory with faults.
"""

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow.parquet as pq
import pytest

from pairbus.client.state.records import KIND as REDIRECTS
from pairbus.client.state.records import UNKNOWN, RedirectRecord
from pairbus.client.state.shipping import RecordShipper
from pairbus.clock import ManualClock
from pairbus.ledger import segment
from pairbus.ledger.commit_objects import CommitWriter, open_writer
from pairbus.ledger.plain_compaction import compact_plainly
from pairbus.ledger.receipts import KIND as RECEIPTS
from pairbus.ledger.receipts import operation_id
from pairbus.ledger.reckoning import reckon
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.retention import DAY, trim
from pairbus.ledger.segment import (
    SegmentWriter,
    adopt_segments,
    lock_of_writer,
    parse_lines,
    read_segment,
)
from pairbus.ledger.silence import tell_behind, tell_silent
from pairbus.ledger.store_files import StoreFiles, begin_anew
from pairbus.spark.redirects import _Found
from pairbus.stores.errors import CallHungError, RecordStoreError
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import DirectoryStore, open_store

from .histories import PAIRS, Copy, Key, Killed, Row, count_keys

START = 1_790_000_000.0
_JOB = "job"
_FAULTS = {"refused": RecordStoreError, "hung": CallHungError}


def nothing() -> None:
    """No trouble."""


def _refuse(*_: object) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


class FaultyStore(DirectoryStore):
    """The store behind a URI. `fault` is asked before and after each put or deletion, and may raise; `beside`
    is called before others read, and may change what they find.
    """

    roots: ClassVar[dict[StoreUri, Path]] = {}
    fault: ClassVar[Callable[[], None]] = staticmethod(nothing)
    beside: ClassVar[Callable[[], None]] = staticmethod(nothing)

    def __init__(self, place: StoreUri) -> None:
        super().__init__(self.roots[place])
        self.uri = place

    def put(self, name: str, data: bytes) -> None:
        assert data, f"{name} is empty, which no object may be"
        FaultyStore.fault()
        super().put(name, data)
        FaultyStore.fault()

    def delete(self, name: str) -> None:
        FaultyStore.fault()
        super().delete(name)
        FaultyStore.fault()

    def list(self, kind: str) -> Any:
        FaultyStore.beside()
        return super().list(kind)

    def read(self, name: str) -> bytes:
        FaultyStore.beside()
        return super().read(name)


@dataclass
class Host:
    """A process with a client that redirects, and a pump beside it; its directory may be another's too."""

    directory: Path
    shipper: RecordShipper | None = None
    redirects: SegmentWriter | None = None
    receipts: SegmentWriter | None = None
    #: Seconds that its clock is behind.
    behind: float = 0.0

    @property
    def runs(self) -> bool:
        return self.shipper is not None

    @property
    def locks(self) -> set[Path]:
        """What shows that its writers live."""
        writers = [one for one in (self.redirects, self.receipts) if one is not None and one.writer]
        return {lock_of_writer(self.directory, one.kind, one.writer or "") for one in writers}

    @property
    def keeps_receipts(self) -> bool:
        """Whether it has some that nobody else knows of."""
        return any(self.directory.glob(f"*{RECEIPTS}-*.jsonl*"))


class FleetHistory:
    """A world that is played from a seed."""

    def __init__(self, directory: Path, seed: int, *, in_store: bool, hosts: int = 3) -> None:
        self._chance = random.Random(seed)
        self.clock = ManualClock(START)
        self.shared = directory / "shared"
        self.shared.mkdir(parents=True)
        self.place: RecordPlace = self.shared
        if in_store:
            self.place = StoreUri(scheme="abfss", bucket="records", path=f"{directory.name}/{seed}")
            FaultyStore.roots[self.place] = self.shared
        self.hosts = [Host(directory / f"host{max(1, number)}") for number in range(hosts)]
        self.waiting: list[Copy] = []
        self.dead: list[Copy] = []
        self.moved: set[int] = set()
        self.unsure: set[Key] = set()
        self.redirected = 0
        self.snapshots: list[dict[str, bytes]] = []
        self._job: Any = None
        # Who dies if the store says so.
        self._at_work: Host | str | None = None
        self._numbers = Counter[str]()
        # When each message was redirected, by the clock of its host, however often it was redriven since.
        self._born: dict[int, float] = {}
        self._names = 0

    # -- steps

    def play(self, steps: int) -> None:
        """Some steps, whoever does them."""
        for host in self.hosts:
            if not host.runs:
                self._start(host)
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """Something that somebody does, and perhaps fails to, or dies of."""
        deeds: list[Callable[[], None]] = [
            *[self._redirect] * 6,
            *[self._move_hosted] * 3,
            *[self._move_by_job] * 3,
            self._bury,
            self._redrive,
            *[self._ship] * 4,
            *[self._compact] * 2,
            self._trim,
            self._close_segment,
            self._leave_segment,
            self._set_clock,
            self._end_job,
            self._die,
            self._end_host,
            self._snapshot,
        ]
        self.clock.advance(self._chance.choice((0.001, 1.0, 50.0, 3000.0, 40_000.0)))
        deed = self._chance.choice(deeds)
        with self._trouble():
            deed()

    def settle(self, *, all_return: bool = True) -> None:
        """All who died come back, ship what they have, and end; or some never do."""
        self._end_job()
        for host in self.hosts:
            if not host.runs and (all_return or self._chance.random() < 0.5):
                self._start(host)
            if host.runs:
                self._end(host)
                self._start(host)  # whoever comes next ships what the last one could not
                self._end(host)
        self.clock.advance(1.0)

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        """At most one call of the store fails, done or not; or whoever makes it dies; or another process
        ships or ends meanwhile; or nothing can be adopted.
        """
        kind = self._chance.choice((*["none"] * 4, "refused", "hung", "killed", "crossed", "unadopted"))
        left = self._chance.randint(0, 12)

        def fault() -> None:
            nonlocal left
            left -= 1
            if left == 0 and kind in _FAULTS:
                raise _FAULTS[kind](kind)
            if left <= 0 and kind == "killed":
                raise Killed
            if left == 0 and kind == "crossed":
                self._cross()

        FaultyStore.fault = staticmethod(fault)
        try:
            with pytest.MonkeyPatch.context() as patch:
                if kind == "unadopted":
                    patch.setattr(segment, "_cut_torn_commit", _refuse)
                yield
        except Killed:
            if self._at_work == _JOB:
                self._job = None
            elif isinstance(self._at_work, Host):
                self._kill(self._at_work)
        except OSError:
            return
        finally:
            FaultyStore.fault = staticmethod(nothing)

    def _cross(self) -> None:
        """Something that another process does in between."""
        at_work = self._at_work
        others = [host for host in self.hosts if host.runs and host is not at_work]
        if others:
            self._at_work = host = self._chance.choice(others)
            self._chance.choice((self._end, self._kill, self._close, self._ship_of))(host)
        self._at_work = at_work

    def lives_elsewhere(self, lock: Path) -> bool:
        """For whoever is at work: all are in one process here."""
        return any(lock in host.locks for host in self.hosts if host.runs and host is not self._at_work)

    # -- hosts

    def _start(self, host: Host) -> None:
        self._at_work = host
        host.shipper = RecordShipper(host.directory, self.place, clock=self.clock)
        host.redirects = self._open(host, REDIRECTS)

    def _open(self, host: Host, kind: str) -> SegmentWriter:
        writer = SegmentWriter(
            host.directory, kind, clock=self.clock, is_chained=True, is_shipped=True, max_bytes=2000
        )
        writer.begin()
        return writer

    def _end(self, host: Host) -> None:
        self._at_work = host
        for writer in (host.receipts, host.redirects):
            if writer is not None:
                writer.close(ends=True)
        shipper = host.shipper
        host.redirects = host.receipts = None
        assert shipper is not None
        shipper.ship()
        host.shipper = None

    def _kill(self, host: Host) -> None:
        for writer in (host.receipts, host.redirects):
            if writer is not None and writer._open is not None:
                writer._open.abandon()
            if writer is not None and writer._life is not None:
                writer._life.release()
        host.shipper = host.redirects = host.receipts = None

    def _pick(self) -> Host:
        host = self._chance.choice(self.hosts)
        if not host.runs:
            self._start(host)
        self._at_work = host
        return host

    def _die(self) -> None:
        host = self._chance.choice(self.hosts)
        if host.runs:
            self._kill(host)

    def _end_host(self) -> None:
        host = self._chance.choice(self.hosts)
        if host.runs:
            self._end(host)

    def _ship(self) -> None:
        host = self._pick()
        if self._chance.random() < 0.5:
            self._close(host)
        self._ship_of(host)

    def _ship_of(self, host: Host) -> None:
        assert host.shipper is not None
        host.shipper.ship()

    def _close_segment(self) -> None:
        self._close(self._pick())

    def _leave_segment(self) -> None:
        """As if its anchor could not be written: the writer goes on with another one."""
        host = self._pick()
        for writer in (host.redirects, host.receipts, self._job):
            if isinstance(writer, SegmentWriter) and writer._open is not None:
                writer._open.abandon()
                writer._open = None

    def _set_clock(self) -> None:
        """Forward or back, but never ahead."""
        self._pick().behind = self._chance.choice((0.0, 3600.0, 0.8 * DAY, 2 * DAY))

    def _close(self, host: Host) -> None:
        for writer in (host.redirects, host.receipts):
            if writer is not None:
                writer.close()

    # -- the job and the keepers of the place

    def _end_job(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job.close(ends=True)

    def keep_house(self) -> None:
        """What is done now and then by who holds the lease."""
        self._compact()
        self._trim()

    def _compact(self) -> None:
        self._at_work = None
        compact_plainly(self.place)

    def _trim(self) -> None:
        self._at_work = None
        before = (self.clock.now() // DAY - self._chance.randint(1, 4)) * DAY
        # Nobody removes records of what still waits.
        left = [self._born[copy.origin] for copy in (*self.waiting, *self.dead)]
        trim(self.place, before=min([before, *((one // DAY - 1) * DAY for one in left)]))

    def _snapshot(self) -> None:
        self.snapshots.append(read_tree(self.shared))

    # -- messages

    def _redirect(self) -> None:
        host = self._pick()
        rows = []
        for _ in range(self._chance.randint(1, 3)):
            pair = self._chance.choice(PAIRS)
            key = Key(pair, self._chance.choice(("orders", "carts")), f"m{self._chance.randint(0, 29)}")
            queue = f"{pair}/x-servicebus-transfer/{self._chance.randint(0, 1)}"
            is_sure = self._chance.random() < 0.9
            if not is_sure:
                self.unsure.add(key)
            at = self.clock.now() - host.behind
            if is_sure or self._chance.random() < 0.5:
                self._put(key, queue, born=at)
            record = RedirectRecord(
                message_id=key.message_id,
                path=key.path,
                session_id=None,
                queue=queue,
                at=at,
                outcome=None if is_sure else UNKNOWN,
            )
            rows.append(asdict(record))
        assert host.redirects is not None
        host.redirects.append(rows)

    def _put(self, key: Key, queue: str, origin: int | None = None, *, born: float = 0.0) -> None:
        self._numbers[queue] += 1
        known = self._numbers.total() if origin is None else origin
        self._born.setdefault(known, born)
        self.waiting.append(Copy(key, queue, self._numbers[queue], self.clock.now(), known))

    def _move_hosted(self) -> None:
        host = self._pick()
        if host.receipts is None:
            host.receipts = self._open(host, RECEIPTS)
        self._move(host.receipts)

    def _move_by_job(self) -> None:
        self._at_work = _JOB
        if self._job is None:
            self._job = open_writer(self.place, RECEIPTS, clock=self.clock, is_chained=True)
            if isinstance(self._job, CommitWriter):
                self._job._gather = 0.0
            self._job.begin()
        self._move(self._job)

    def _move(self, writer: Any) -> None:
        taken = self.waiting[: self._chance.randint(1, 4)]
        if taken:
            self.moved |= {copy.origin for copy in taken}
            writer.append([self._receipt(copy, "moved") for copy in taken])
            if self._chance.random() < 0.9:  # else it comes again
                del self.waiting[: len(taken)]

    def _bury(self) -> None:
        host = self._pick()
        if self.waiting and host.receipts is not None:
            copy = self.waiting[0]
            host.receipts.append([self._receipt(copy, "dead-lettered")])
            self.waiting.pop(0)
            self.dead.append(copy)

    def _redrive(self) -> None:
        if self.dead:
            copy = self.dead.pop(0)
            self._put(copy.key, copy.queue, copy.origin)

    def _receipt(self, copy: Copy, outcome: str) -> Row:
        self._names += 1
        milliseconds = round(copy.enqueued * 1000)
        return {
            "op": operation_id(copy.key.pair, copy.queue, copy.number, milliseconds),
            "pair": copy.key.pair,
            "writer": f"pump {self._names}",
            "path": copy.key.path,
            "session": None,
            "message_id": copy.key.message_id,
            "backlog_queue": copy.queue,
            "sequence_number": copy.number,
            "enqueued": copy.enqueued,
            "moved": self.clock.now(),
            "bytes": 1,
            "attempts": 1,
            "outcome": outcome,
            "reason": None,
            "unsure": 0,
            "repeats": 0,
        }


def read_tree(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


class FleetVerdict(NamedTuple):
    """What can be told in plain Python."""

    redirected: int
    delivered: int
    waiting: int
    dead: int
    lost: int
    unclear: int
    gaps: tuple[str, ...]
    is_behind: bool = False

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.unclear or self.gaps)


def judge_fleet(
    place: RecordPlace, look: Callable[[], tuple[list[Copy], list[Copy]]], *, now: float
) -> FleetVerdict:
    """As `verify` does it: redirect records, then queues, then receipts; a loss after a second look only."""
    found = _Found()
    if isinstance(place, StoreUri):
        begin_anew(open_store(place), lambda: found.add_store(place, now=now))
    else:
        found.add_directory(place, now=now)
    found.choose()
    redirects = found._rows + [row for one in found._whole for row in parse_lines(one.data).rows]
    verdicts: list[FleetVerdict] = []
    while len(verdicts) < 2 and not (verdicts and not verdicts[-1].lost):
        waiting, dead = look()
        receipts, gaps, trimmed, behind = _read_receipts(place, now)
        since = max(found.since, trimmed and trimmed + DAY)
        counts = count_keys({REDIRECTS: redirects, RECEIPTS: receipts}, waiting, dead, since=since)
        fates = [reckon(count) for count in counts]
        verdicts.append(
            FleetVerdict(
                redirected=sum(one.redirected for one in counts),
                delivered=sum(one.delivered for one in counts),
                waiting=sum(one.waiting for one in counts),
                dead=sum(one.dead_lettered for one in counts),
                lost=sum(one.lost for one in fates),
                unclear=sum(one.unclear for one in fates),
                gaps=(*found.gaps, *gaps),
                is_behind=bool(behind),
            )
        )
    return min(verdicts, key=lambda verdict: verdict.lost)


_Receipts = tuple[list[Row], list[str], float, list[str]]


def _read_receipts(place: RecordPlace, now: float) -> _Receipts:
    if isinstance(place, StoreUri):
        return begin_anew(open_store(place), lambda: _read_objects(place, now))
    adopt_segments(place, RECEIPTS)
    files = RecordFiles.list(place, RECEIPTS)
    rows = [row for one in files.opened.values() for row in one.rows]
    rows += [row for path in files.closed for row in read_segment(path).rows]
    rows += [row for path in files.table.files for row in _rows_of(path.read_bytes())]
    gaps = [*files.audit(must_succeed=False).gaps, *tell_silent(files.later, now=now)]
    return rows, gaps, files.table.manifest.since, tell_behind(files.later)


def _read_objects(place: StoreUri, now: float) -> _Receipts:
    store = open_store(place)
    files = StoreFiles.list(store, RECEIPTS)
    rows = [row for name in files.fresh for row in parse_lines(store.read(name)).rows]
    rows += [row for name in files.table.files for row in _rows_of(store.read(name))]
    gaps = [*files.audit(must_succeed=False).gaps, *tell_silent(files.later, now=now)]
    return rows, gaps, files.table.manifest.since, tell_behind(files.later)


def _rows_of(data: bytes) -> list[Row]:
    rows: list[Row] = pq.read_table(BytesIO(data)).to_pylist()
    return rows

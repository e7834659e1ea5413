"""The syphon: drains the backlog of one or many pairs.

Theory of operation
1. The work is done by pumps inside shards (`shard`), in tasks of Spark or in this process (`engine`); the
   driver plans, holds the leash and counts.
2. Receipts are written by the pumps, on the disk before a message leaves its queue. After a run those of dead
   pumps are adopted, and all are put into one table. What pumps tell by the leash is for the summary only,
   and counts there if every pump has told what it did.
3. To stop is to tell the pumps by the leash and to wait until they have come back.
4. One syphon works on a pair at a time (`pairbus.lease`). Without the lease pumps are barred by the leash,
   also in the middle of the work; it is given back when they have ended, and receipts are in their tables.
5. A drain ends. Pumps see to that as far as they can; one that makes no headway though they run, or that may
   not work since the lease does not come back, is stopped after a while, and says why.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pairbus.backlog.backlog import Backlog
from pairbus.backlog.discovery import Discovery, refuse_bare
from pairbus.client.state.directory import records_dir
from pairbus.errors import ConfigurationError
from pairbus.lease.view import Holder
from pairbus.ledger.ledger_merge import merge_ledger
from pairbus.ledger.retention import cut_for, trim
from pairbus.plumbing.files import make_directory
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.stores.places import RecordPlace, StoreUri, parse_place
from pairbus.stores.store import open_store

from .engine import SyphonEngine
from .housekeeping import Chore, tell_failed
from .leases import ONCE_PATIENCE, SyphonLeases
from .leash.epochs import BUSY_EPOCH, LONGEST_EPOCH, Epochs
from .leash.file_leash import FileLeash
from .leash.leash import Leash, Progress, PumpSeen, WaitingPath
from .leash.tether import ControlFile
from .local_engine import LocalEngine
from .onlookers import Speed, StoreStatus, remove_status, write_status
from .shard import ShardJob
from .standstill import Standstill
from .summary import ReceiptCounts, RunTally, SyphonSummary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
T = TypeVar("T")
LeashKind = Literal["socket", "file", "store"]
_COMPACTION = "the compaction of receipts"
_RETENTION = "the removal of old records"
_PREPARATION = "the preparation of tables"
# Seconds: a busy pump closes a segment of receipts every two or three.
_PREPARED_EVERY = 0.5
# What the leash counts is newer.
_TOLD_BY_LEASH = {"order", "pumps", "resting", "trouble", "paths"}
# So long no task may run before that is told: a busy cluster takes its time.
_PUMPLESS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonProgress:
    """How far it is. `total` is what lay in the backlog at the start, if that is known; `trouble` is what
    the driver cannot do at the moment, while messages go on, or why there is no progress; `paths` tells what
    waits for paths that are down; pumps that rest have let go of all that they had.
    """

    moved: int
    dead_lettered: int
    waiting: int
    bytes: int
    total: int | None
    seconds: float
    pumps: int
    order: str
    trouble: str | None = None
    resting: int = 0
    retries: int = 0
    lost_locks: int = 0
    paths: Mapping[str, WaitingPath] = field(default_factory=dict)
    #: Messages a second, of late.
    rate: float = 0.0
    #: The state of the lease of each pair: held, taken by another, unavailable …
    leases: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds_left(self) -> float | None:
        """How long it will take at this rate; None if nobody knows, or it does not go on."""
        if self.total is None or self.rate <= 1:
            return None
        return max(0, self.total - self.moved - self.dead_lettered) / self.rate

    def to_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        paths = {path: one._asdict() for path, one in self.paths.items()}
        return {**asdict(self), "seconds_left": self.seconds_left, "paths": paths}


class Syphon:
    """Drains the backlog of one or many pairs. Run it once."""

    def __init__(
        self,
        spark: SparkSession | None,
        pair: PumpPair | Backlog | Sequence[PumpPair | Backlog],
        *,
        records: RecordPlace | str | Sequence[RecordPlace | str] | None = None,
        state: Path | str | None = None,
        options: PumpOptions | Sequence[PumpOptions] | None = None,
        shards: int | None = None,
        driver_host: str = "127.0.0.1",
        leash: LeashKind | None = None,
        keep_days: int | None = None,
        busy_epoch: float = BUSY_EPOCH,
        longest_epoch: float = LONGEST_EPOCH,
    ) -> None:
        """Without a session of Spark the pumps run in this process.

        `records` is a directory that driver and executors share, or the URI of an object store; `state` is a
        directory of the driver, for checkpoint and control address. `records` and `options` are for
        all pairs, or one for each. `driver_host` is an address of the driver that executors can
        reach. `leash` says how pumps are held: by a socket of the driver, or by files below
        `records`; by default by files in a session of Spark Connect. Records that are older than `keep_days`
        are removed now and then. Does no I/O.
        """
        given = [pair] if isinstance(pair, PumpPair | Backlog) else list(pair)
        if not given:
            raise ConfigurationError("a syphon needs at least one pair")
        self._engine = _engine_for(spark, shards)
        self._backlogs = [one if isinstance(one, Backlog) else Backlog(pair=one) for one in given]
        # Receipts show a pair by the name that its backlog queues have.
        self._pairs = tuple(replace(one.pair, name=one.name) for one in self._backlogs)
        self._options = _options_for(options, len(given))
        self._state = Path(state) if state is not None else None
        self.records = _records_for(records, self._state, len(given))
        self._places = tuple(dict.fromkeys(self.records))
        self._run_id = secrets.token_hex(8)
        stores = [place for place in self._places if isinstance(place, StoreUri)]
        self._statuses = [StoreStatus(place, self._run_id) for place in stores]
        self._since = time.time()
        self._tally = RunTally()
        kind = leash or self._choose_leash()
        epochs = Epochs(busy=busy_epoch, longest=longest_epoch, poll=max(one.poll for one in self._options))
        self._leash = self._make_leash(kind, driver_host, epochs)
        self._keep_days = keep_days
        self._begun = 0.0
        self._pumped_at = 0.0
        self._standstill = Standstill(self._options)
        self._vain: dict[str, str] = {}
        self._speed = Speed()
        self._leases: SyphonLeases | None = None
        self._was_stopped = False
        self._total: int | None = None

    def _choose_leash(self) -> LeashKind:
        if not self._engine.is_remote:
            return "socket"
        return "store" if isinstance(self.records[0], StoreUri) else "file"

    def _make_leash(self, kind: LeashKind, driver_host: str, epochs: Epochs) -> Leash:
        def add(row: Mapping[str, Any]) -> None:
            self._tally.add([row])

        in_directories = len(self._directories)
        if kind == "store" and in_directories:
            raise ConfigurationError("--leash store needs --records in an object store")
        if kind == "file" and in_directories < len(self._places):
            raise ConfigurationError(
                "--leash file needs --records in a directory; with a store, --leash store"
            )
        if kind != "socket":
            return FileLeash(self._places, epochs=epochs, on_row=add)
        return Leash(self._places, host=driver_host, epochs=epochs, on_row=add)

    @property
    def _directories(self) -> list[Path]:
        """The places that are not in a store."""
        return [place for place in self._places if not isinstance(place, StoreUri)]

    # -- control, from any thread

    def stop(self) -> None:
        """End cleanly: nothing is left locked, and nothing is sent twice."""
        self._leash.stop()

    def pause(self) -> None:
        """Give back what is in hand, and wait."""
        self._leash.pause()

    def resume(self) -> None:
        """Go on."""
        self._leash.resume()

    def pumps(self) -> list[PumpSeen]:
        """The pumps at work."""
        return self._leash.pumps()

    def progress(self) -> SyphonProgress:
        """How far it is."""
        return self._describe(self._leash.progress())

    # -- running

    def run(
        self,
        *,
        once: bool = False,
        on_progress: Callable[[SyphonProgress], None] | None = None,
        on_summary: Callable[[SyphonSummary], None] | None = None,
    ) -> SyphonSummary:
        """Drain until nothing is left to do, or pump until stopped; what was done.

        `on_progress` is called about every second, in this thread, and `on_summary` when the last message is
        settled, before receipts are put into tables, which takes a while. An interrupt stops cleanly and is
        raised.
        UnreachableError if another syphon runs with this state.
        """
        control = None if self._state is None else ControlFile(self._state)
        with nullcontext() if control is None else control.held():
            return self._run(control, once=once, on_progress=on_progress, on_summary=on_summary)

    def _run(
        self,
        control: ControlFile | None,
        *,
        once: bool,
        on_progress: Callable[[SyphonProgress], None] | None,
        on_summary: Callable[[SyphonSummary], None] | None,
    ) -> SyphonSummary:
        self._begun = time.monotonic()
        self._leases = leases = self._make_leases()
        discovery = leases.discover()
        refuse_bare(discovery)
        self._total = discovery.active
        for directory in self._directories:
            make_directory(directory, follows=True)
        with ExitStack() as telling, self._leash, leases:
            telling.callback(self._tell_no_more)
            for status in self._statuses:
                status.begin()
            if control is not None:
                control.write(self._leash.address)
            reporter = _Reporter(self, on_progress, self._tell_onlookers)
            leases.wait(ONCE_PATIENCE if once else None, reporter.tick)
            begun = time.monotonic()
            # A syphon that was told to stop before all this has nothing to do.
            if self._leash.order != "stop":
                self._work(leases, discovery, once=once, reporter=reporter)
            self._was_stopped = once and self._leash.order == "stop"
            self._leash.settle()
            moving = time.monotonic() - begun
            telling.close()
            discovery = replace(discovery, notes=(*discovery.notes, *leases.notes))
            summary = self._sum_up(leases, discovery, moving=moving)
            if on_summary is not None:
                on_summary(summary)
            # The holder of the lease compacts: the next one waits until this is done.
            return self._tidy(summary)

    def _tell_no_more(self) -> None:
        for directory in self._directories:
            remove_status(directory, self._run_id)
        for status in self._statuses:
            status.end()

    def _make_leases(self) -> SyphonLeases:
        return SyphonLeases(
            self._backlogs,
            self._leash,
            run=self._run_id,
            kind=self._engine.kind,
            leaves_orphans=self._engine.leaves_orphans,
            records=self.records,
        )

    def _work(self, leases: SyphonLeases, discovery: Discovery, *, once: bool, reporter: _Reporter) -> None:
        chores: list[Chore] = []
        self._pumped_at = time.monotonic()

        def watch() -> None:
            for chore in chores:
                chore.tick()
            progress = self._leash.progress()
            troubles = [one.trouble for one in chores] + [self._describe_want_of_pumps(progress)]
            self._leash.trouble = "; ".join(filter(None, troubles)) or None
            reporter.tick()
            if once:
                self._end_in_vain(progress, leases)

        self._leash.queues = discovery.queues
        if once:
            prepare = partial(self._engine.prepare, self._places)
            chores.append(Chore(_PREPARATION, prepare, every=_PREPARED_EVERY))
            self._engine.drain(self._job(drain=True), discovery.queues, self._leash, watch)
            return
        chores += [
            Chore("the search for backlog queues", lambda: self._find_queues(leases)),
            Chore(_COMPACTION, self._compact),
            Chore(_RETENTION, self._trim),
        ]
        self._engine.stream(self._job(drain=False), self._leash, watch, state=self._state)

    def _end_in_vain(self, progress: Progress, leases: SyphonLeases) -> None:
        """Rule 5."""
        passed = self._standstill.note(progress, may_work=leases.are_ours, now=time.monotonic())
        if passed is not None:
            why = progress.trouble or "nobody knows why"
            self._vain["the backlog"] = f"given up, since nothing was moved for {passed:.0f} s: {why}"
            self._leash.stop()

    def _describe_want_of_pumps(self, progress: Progress) -> str | None:
        now = time.monotonic()
        if progress.pumps:
            self._pumped_at = now
        passed = now - self._pumped_at
        if passed < _PUMPLESS:
            return None
        return (
            f"no progress for {passed:.0f} s, because Spark runs no task of the syphon: has it an executor "
            "with a free slot? (--shards, --master)"
        )

    def _job(self, *, drain: bool) -> ShardJob:
        return ShardJob(
            pairs=self._pairs,
            options=tuple(replace(one, drain=drain) for one in self._options),
            records=self.records,
            run=self._run_id,
            leash=self._leash.place,
            timed=not drain,
            label=", ".join(one.name for one in self._pairs),
        )

    def _find_queues(self, leases: SyphonLeases) -> None:
        found = leases.discover()
        self._leash.queues = found.queues or self._leash.queues

    def _compact(self) -> tuple[str, ...]:
        """Compact the receipts; the tables. Without the lease another syphon may be doing it."""
        if not self._may_tidy:
            return ()
        for place in self._places:
            if isinstance(place, StoreUri):
                merge_ledger(open_store(place), now=time.time())
        return self._engine.compact(self._places)

    @property
    def _may_tidy(self) -> bool:
        return self._leases is None or self._leases.are_ours

    def _trim(self) -> tuple[str, ...]:
        """Makes no tables."""
        if self._keep_days is not None and self._may_tidy:
            for place in self._places:
                trim(place, before=cut_for(self._keep_days, now=time.time()))
        return ()

    # -- telling

    def _describe(self, progress: Progress) -> SyphonProgress:
        counts = progress.counts
        return SyphonProgress(
            moved=counts["moved"],
            dead_lettered=counts["dead_lettered"],
            waiting=counts["waiting"],
            bytes=counts["bytes"],
            total=self._total,
            seconds=time.monotonic() - self._begun if self._begun else 0.0,
            pumps=progress.pumps,
            order=progress.order,
            trouble=progress.trouble,
            resting=progress.resting,
            retries=counts["retries"],
            lost_locks=counts["lost_locks"],
            paths=progress.paths,
            rate=0.0 if progress.order == "pause" else self._speed.rate,
            leases={} if self._leases is None else self._leases.describe(),
        )

    def _tell_onlookers(self, progress: SyphonProgress) -> None:
        """For `pairbus syphon status`, by the leash and by a file beside the receipts."""
        handled = progress.moved + progress.dead_lettered
        self._speed.note(handled, time.monotonic())
        holder = Holder.of_this_process(self._run_id, kind=self._engine.kind, now=self._since)
        told = {**progress.to_dict(), "rate": progress.rate, "at": time.time(), "who": asdict(holder)}
        self._leash.facts = {name: told[name] for name in told if name not in _TOLD_BY_LEASH}
        for directory in self._directories:
            write_status(directory, self._run_id, told)
        for status in self._statuses:
            status.tell(told, now=time.monotonic())

    def _count(self) -> ReceiptCounts:
        """The counts told by the pumps, if all reported and none is in doubt; else those of the receipts."""
        told = self._tally.counts()
        if self._leash.is_whole and not self._tally.unknown:
            return told
        return self._engine.count(self._places, run=self._run_id) or told

    def _sum_up(self, leases: SyphonLeases, discovery: Discovery, *, moving: float) -> SyphonSummary:
        tally = self._tally
        # Before the compaction, which keeps one row of a message that two runs have handled.
        told = self._count()
        left = leases.discover().active if self._was_stopped else None
        return SyphonSummary(
            moved=told.moved,
            dead_lettered=told.dead_lettered,
            waiting=tally.waiting,
            bytes=told.bytes,
            unknown=tally.unknown,
            seconds=time.monotonic() - self._begun,
            moving_seconds=moving,
            receipts=told.moved + told.dead_lettered,
            slowest_path=tally.slowest_path,
            paths=tally.paths,
            queue_errors={
                **{f"the backlog of {pair}": "it has no queues" for pair in discovery.bare},
                **self._vain,
                **tally.queue_errors,
            },
            notes=discovery.notes,
            stopped=self._was_stopped,
            left=left,
        )

    def _tidy(self, summary: SyphonSummary) -> SyphonSummary:
        """Put receipts into tables and remove old ones; the summary with what came of it."""
        for name, act in ((_COMPACTION, self._compact), (_RETENTION, self._trim)):
            try:
                summary = replace(summary, tables=act() or summary.tables)
            except Exception as error:  # noqa: BLE001 - the messages have arrived; the next run does it again
                note = tell_failed(name, error)
                log.warning("%s", note)
                summary = replace(summary, notes=(*summary.notes, note))
        return replace(summary, seconds=time.monotonic() - self._begun)


def _engine_for(spark: SparkSession | None, shards: int | None) -> SyphonEngine:
    if spark is None:
        return LocalEngine()
    from .cluster_engine import ClusterEngine  # late: without a session there need be no pyspark

    return ClusterEngine(spark, shards=shards)


def _options_for(given: PumpOptions | Sequence[PumpOptions] | None, count: int) -> tuple[PumpOptions, ...]:
    if given is None or isinstance(given, PumpOptions):
        return (given or PumpOptions(),) * count
    return _for_each(given, count, what="options")


def _for_each(given: Sequence[T], count: int, *, what: str) -> tuple[T, ...]:
    if len(given) != count:
        raise ConfigurationError(f"give {what} for each of the {count} pairs, or one for all")
    return tuple(given)


def _records_for(
    given: RecordPlace | str | Sequence[RecordPlace | str] | None, state: Path | None, count: int
) -> tuple[RecordPlace, ...]:
    if given is None:
        if state is None:
            raise ConfigurationError(
                "say where receipts are kept: records=, or state= for a directory of this machine"
            )
        given = records_dir(state)
    each = (
        (given,) * count
        if isinstance(given, Path | StoreUri | str)
        else _for_each(given, count, what="records")
    )
    return tuple(map(parse_place, each))


class _Reporter:
    """Calls back about every second."""

    def __init__(self, syphon: Syphon, *listeners: Callable[[SyphonProgress], None] | None) -> None:
        self._syphon = syphon
        self._listeners = [one for one in listeners if one is not None]
        self._next = time.monotonic() + 1.0

    def tick(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + 1.0
            progress = self._syphon.progress()
            for tell in self._listeners:
                tell(progress)

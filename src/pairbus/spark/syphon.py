"""The syphon: drains the backlog of one or many pairs on Spark.

Theory of operation
1. The work is done by pumps inside tasks (`task`); the driver plans, holds the leash and counts.
2. Once: a job of one task a shard, each of which ends when its queues are drained.
3. For ever: a Structured Streaming query. The planner says for each epoch which shard serves which queues,
   the pumps of all shards end together with the epoch, and the checkpoint remembers the epoch's number. No
   message depends on the checkpoint: what was not completed is still in its queue.
4. Receipts are written by the pumps, on the disk before a message leaves its queue. After a run those of dead
   pumps are adopted, and all are put into one table. What pumps tell by the leash is for the summary only.
5. To stop is to tell the pumps by the leash and to wait until their tasks have come back. Only then is the
   query ended: Spark would kill them.
6. A session of Spark Connect is a client of a driver elsewhere, whose executors need not reach this process,
   so that there the leash is made of files. No function of ours runs in that driver but the planner.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pairbus.backlog.discovery import Backlog, Discovery, discover
from pairbus.client.state.directory import records_dir
from pairbus.errors import ConfigurationError, PairbusError
from pairbus.plumbing.files import make_directory
from pairbus.portal import Portal
from pairbus.pump import PumpOptions, PumpPair

from .housekeeping import Chore, describe_failure
from .leash.ends import write_place
from .leash.epochs import BUSY_EPOCH, LONGEST_EPOCH, Epochs, deal
from .leash.file_leash import FileLeash
from .leash.leash import Leash, Progress, PumpSeen
from .leash.tether import ControlFile
from .planner import PlanSource
from .receipts import compact_receipts, count_receipts
from .session import check_spark_version, is_remote
from .summary import RunTally, SyphonSummary
from .task import RESULT_DDL, ShardJob, pump_planned, pump_shards

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
T = TypeVar("T")
LeashKind = Literal["socket", "file"]
_TICK = 0.2
_REMOTE_SHARDS = 2
_COMPACTION = "the compaction of receipts"
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


class SyphonError(PairbusError):
    """The syphon cannot go on; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonProgress:
    """How far it is. `total` is what lay in the backlog at the start, if that is known; `trouble` is what
    the driver cannot do at the moment, while messages go on.
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


class Syphon:
    """Drains the backlog of one or many pairs. Run it once."""

    def __init__(
        self,
        spark: SparkSession,
        pair: PumpPair | Backlog | Sequence[PumpPair | Backlog],
        *,
        records: Path | str | Sequence[Path | str] | None = None,
        state: Path | str | None = None,
        options: PumpOptions | Sequence[PumpOptions] | None = None,
        shards: int | None = None,
        driver_host: str = "127.0.0.1",
        leash: LeashKind | None = None,
        busy_epoch: float = BUSY_EPOCH,
        longest_epoch: float = LONGEST_EPOCH,
    ) -> None:
        """`records` is a directory that driver and executors share, `state` one of the driver: checkpoint and
        control address. `records` and `options` are for all pairs, or one for each. `driver_host` is an
        address of the driver that executors can reach. `leash` says how pumps are held: by a socket of the
        driver, or by files below `records`; by default by files in a session of Spark Connect. Does no I/O.
        """
        check_spark_version(spark.version, is_server=is_remote(spark))
        given = [pair] if isinstance(pair, PumpPair | Backlog) else list(pair)
        if not given:
            raise ConfigurationError("a syphon needs at least one pair")
        self._spark = spark
        self._backlogs = [one if isinstance(one, Backlog) else Backlog(pair=one) for one in given]
        # Receipts show a pair by the name that its backlog queues have.
        self._pairs = tuple(replace(one.pair, name=one.name) for one in self._backlogs)
        self._options = _options_for(options, len(given))
        self._state = Path(state) if state is not None else None
        self.records = _records_for(records, self._state, len(given))
        self._directories = tuple(dict.fromkeys(self.records))
        self._run_id = secrets.token_hex(8)
        self._shards = shards
        self._is_remote = is_remote(spark)
        self._tally = RunTally()
        kind = leash or ("file" if self._is_remote else "socket")
        epochs = Epochs(busy=busy_epoch, longest=longest_epoch, poll=max(one.poll for one in self._options))
        self._leash = self._make_leash(kind, driver_host, epochs)
        self._begun = 0.0
        self._was_stopped = False
        self._total: int | None = None

    def _make_leash(self, kind: LeashKind, driver_host: str, epochs: Epochs) -> Leash:
        def add(row: Mapping[str, Any]) -> None:
            self._tally.add([row])

        if kind == "file":
            return FileLeash(self._directories, epochs=epochs, on_row=add)
        return Leash(self._directories, host=driver_host, epochs=epochs, on_row=add)

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
        self, *, once: bool = False, on_progress: Callable[[SyphonProgress], None] | None = None
    ) -> SyphonSummary:
        """Drain until nothing is left to do, or pump until stopped; what was done.

        `on_progress` is called about every second, in this thread. An interrupt stops cleanly and is raised.
        UnreachableError if another syphon runs with this state.
        """
        control = None if self._state is None else ControlFile(self._state)
        with nullcontext() if control is None else control.held():
            return self._run(control, once=once, on_progress=on_progress)

    def _run(
        self,
        control: ControlFile | None,
        *,
        once: bool,
        on_progress: Callable[[SyphonProgress], None] | None,
    ) -> SyphonSummary:
        self._begun = time.monotonic()
        discovery = _discover(self._backlogs)
        self._total = discovery.active
        for directory in self._directories:
            make_directory(directory, follows=True)
        with self._leash:
            if control is not None:
                control.write(self._leash.address)
            self._work(discovery, once=once, on_progress=on_progress)
            self._was_stopped = once and self._leash.order == "stop"
            self._leash.settle()
        return self._sum_up(discovery)

    def _work(
        self, discovery: Discovery, *, once: bool, on_progress: Callable[[SyphonProgress], None] | None
    ) -> None:
        reporter = _Reporter(self, on_progress)
        if not discovery.queues:
            return
        if once:
            self._drain(discovery, reporter)
        else:
            self._stream(discovery, reporter)

    def _job(self, *, drain: bool) -> ShardJob:
        return ShardJob(
            pairs=self._pairs,
            options=tuple(replace(one, drain=drain) for one in self._options),
            records=tuple(str(one) for one in self.records),
            run=self._run_id,
            leash=self._leash.place,
            timed=not drain,
        )

    def _shard_count(self) -> int:
        if self._shards is not None:
            return max(1, self._shards)
        if self._is_remote:  # which does not tell its slots
            return _REMOTE_SHARDS
        slots = self._spark.sparkContext.defaultParallelism
        is_local = (self._spark.sparkContext.master or "").startswith("local")
        # One slot is left to other jobs. Pumps are busy with Python, so more than cores would not help.
        return max(1, min(slots - 1, (os.cpu_count() or 1) if is_local else slots))

    def _drain(self, discovery: Discovery, reporter: _Reporter) -> None:
        shards = deal(discovery.queues, self._shard_count())
        count = len(shards)
        # Exactly one row, and so one shard, a task.
        numbers = self._spark.range(0, count, 1, count)
        frame = numbers.mapInArrow(pump_shards(self._job(drain=True), shards), RESULT_DDL)
        thread = _Action(frame.collect)
        try:
            while not thread.wait(_TICK):
                reporter.tick()
        except BaseException:
            self._leash.stop()
            thread.wait(None)
            raise
        if thread.error is not None:
            raise self._explain(thread.error) from None

    def _stream(self, discovery: Discovery, reporter: _Reporter) -> None:
        self._leash.queues = discovery.queues
        with self._checkpoint() as checkpoint:
            self._watch_query(self._start_query(checkpoint), reporter)

    def _watch_query(self, query: StreamingQuery, reporter: _Reporter) -> None:
        search = Chore("the search for backlog queues", self._find_queues)
        chores = [search, Chore(_COMPACTION, self._compact)]
        try:
            while query.isActive and self._leash.order != "stop":
                time.sleep(_TICK)
                reporter.tick()
                for chore in chores:
                    chore.tick()
                self._leash.trouble = "; ".join(one.trouble for one in chores if one.trouble) or None
        finally:
            self._leash.stop()
            self._end_query(query)
        error = query.exception()
        if error is not None:
            raise self._explain(error) from None

    def _start_query(self, checkpoint: str) -> StreamingQuery:
        spark = self._spark
        spark.dataSource.register(PlanSource)
        plan = (
            spark.readStream.format(PlanSource.name())
            .option("leash", write_place(self._leash.place))
            .option("shards", self._shard_count())
            .load()
        )
        pumped = plan.mapInArrow(pump_planned(self._job(drain=False)), RESULT_DDL)
        return (
            pumped.writeStream.queryName("pairbus-syphon")
            .format("noop")
            .option("checkpointLocation", checkpoint)
            .start()
        )

    @contextmanager
    def _checkpoint(self) -> Iterator[str]:
        """A directory of Spark's driver: for a remote one, below what both share, and for this run only."""
        if self._is_remote:
            shared = self.records[0] / f".checkpoint-{secrets.token_hex(8)}"
            try:
                yield str(shared)
            finally:
                shutil.rmtree(shared, ignore_errors=True)
        elif self._state is not None:
            yield str(self._state / "checkpoint")
        else:
            with tempfile.TemporaryDirectory(prefix="pairbus-syphon-", ignore_cleanup_errors=True) as scratch:
                yield scratch

    def _end_query(self, query: StreamingQuery) -> None:
        """Wait for the pumps, then end the query."""
        while query.isActive and (self._leash.progress().pumps or query.status["isTriggerActive"]):
            time.sleep(_TICK / 4)
        query.stop()

    def _find_queues(self) -> None:
        found = _discover(self._backlogs)
        self._leash.queues = found.queues or self._leash.queues

    def _compact(self) -> tuple[str, ...]:
        """The tables that there are."""
        done = [compact_receipts(self._spark, directory) for directory in self._directories]
        return tuple(str(one.table) for one in done if one.table is not None)

    # -- telling

    def _explain(self, error: BaseException) -> SyphonError:
        faults = self._leash.faults
        if faults:
            return SyphonError(faults[-1])
        if missing := _MISSING.search(str(error)):
            return SyphonError(
                f"Spark's workers have no module {missing[1]}: install Pairbus for the Python that runs them"
            )
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        told = [line for line in lines if line.startswith("pairbus.")]
        return SyphonError((told or lines or [type(error).__name__])[-1 if told else 0])

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
        )

    def _sum_up(self, discovery: Discovery) -> SyphonSummary:
        tally = self._tally
        seconds = time.monotonic() - self._begun
        # Before the compaction, which keeps one row of a message that two runs have handled.
        told = count_receipts(self._spark, self._directories, run=self._run_id)
        tables: tuple[str, ...] = ()
        notes = discovery.notes
        try:
            tables = self._compact()
        except Exception as error:  # noqa: BLE001 - the messages have arrived; the next run does it again
            notes += (describe_failure(_COMPACTION, error),)
            log.warning("%s", notes[-1])
        return SyphonSummary(
            moved=told.moved,
            dead_lettered=told.dead_lettered,
            waiting=tally.waiting,
            bytes=told.bytes,
            unknown=tally.unknown,
            seconds=seconds,
            receipts=told.moved + told.dead_lettered,
            slowest_path=tally.slowest_path,
            paths=tally.paths,
            queue_errors=tally.queue_errors,
            notes=notes,
            tables=tables,
            stopped=self._was_stopped,
        )


def _discover(backlogs: Sequence[Backlog]) -> Discovery:
    """On a loop of its own: a notebook runs one already."""
    portal = Portal("pairbus-discovery")
    try:
        return portal.run(discover, backlogs)
    finally:
        portal.close(timeout=10.0)


def _options_for(given: PumpOptions | Sequence[PumpOptions] | None, count: int) -> tuple[PumpOptions, ...]:
    if given is None or isinstance(given, PumpOptions):
        return (given or PumpOptions(),) * count
    return _for_each(given, count, what="options")


def _for_each(given: Sequence[T], count: int, *, what: str) -> tuple[T, ...]:
    if len(given) != count:
        raise ConfigurationError(f"give {what} for each of the {count} pairs, or one for all")
    return tuple(given)


def _records_for(
    given: Path | str | Sequence[Path | str] | None, state: Path | None, count: int
) -> tuple[Path, ...]:
    if given is None:
        if state is None:
            raise ConfigurationError(
                "say where receipts are kept: records=, or state= for a directory of this machine"
            )
        given = records_dir(state)
    each = (given,) * count if isinstance(given, Path | str) else _for_each(given, count, what="records")
    return tuple(Path(one).absolute() for one in each)


class _Action:
    """Runs a Spark action in a thread, so that this one can tell of progress and be interrupted."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.error: Exception | None = None
        self._action = action
        self._is_done = threading.Event()
        threading.Thread(target=self._run, name="pairbus-syphon", daemon=True).start()

    def _run(self) -> None:
        try:
            self._action()
        except Exception as error:  # noqa: BLE001 - it is raised where the end is waited for
            self.error = error
        finally:
            self._is_done.set()

    def wait(self, seconds: float | None) -> bool:
        return self._is_done.wait(seconds)


class _Reporter:
    """Calls back about every second."""

    def __init__(self, syphon: Syphon, on_progress: Callable[[SyphonProgress], None] | None) -> None:
        self._syphon = syphon
        self._on_progress = on_progress
        self._next = time.monotonic() + 1.0

    def tick(self) -> None:
        if self._on_progress is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + 1.0
            self._on_progress(self._syphon.progress())

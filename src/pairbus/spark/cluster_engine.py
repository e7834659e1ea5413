"""The engine that is Spark, on one machine or many.

1. A drain is a job of one task a shard, each of which ends when its queues are drained. It is an RDD,
   and the context of Spark is enough: SQL would take Java and the Python workers seconds to set up.
2. Else it is a Structured Streaming query. The planner says for each epoch which shard serves which queues,
   the pumps of all shards end together with the epoch, and the checkpoint remembers the epoch's number. No
   message depends on the checkpoint: what was not completed is still in its queue.
3. To stop is to tell the pumps by the leash and to wait until their tasks have come back. Only then is the
   query ended: Spark would kill them.
4. A session of Spark Connect is a client of a driver elsewhere, whose executors need not reach this process,
   so that there the leash is made of files. No function of ours runs in that driver but the planner.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pairbus.backlog.served_queue import ServedQueue
from pairbus.ledger.plain_compaction import ReadyRows, compact_directory
from pairbus.stores.places import RecordPlace, StoreUri

from .engine import TICK, BackgroundWork, SyphonEngine, SyphonError
from .leash.ends import write_place
from .leash.epochs import deal
from .leash.leash import COUNTS, Leash
from .planner import PlanSource
from .receipts import compact_receipts, count_receipts
from .session import check_spark_version, gist, is_remote, java_end
from .shard import ShardJob
from .summary import ReceiptCounts
from .task import RESULT_DDL, pump_planned, pump_shard, pump_shards

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_REMOTE_SHARDS = 2
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_NO_ROOM = "No space left on device"
# What Spark allows in the name of a query is anything; what a person reads is a word or two.
_QUERY = "pairbus-syphon"


class ClusterEngine(SyphonEngine):
    """Pumps in the tasks of Spark."""

    kind = "Spark"

    def __init__(self, spark: SparkSession | SparkContext, *, shards: int | None = None) -> None:
        check_spark_version(spark.version, is_server=is_remote(spark))
        self.is_remote = is_remote(spark)
        self._given = spark
        self._shards = shards
        self._ready = ReadyRows()

    @cached_property
    def _spark(self) -> SparkSession:
        return SparkSession(self._given) if isinstance(self._given, SparkContext) else self._given

    @property
    def _context(self) -> SparkContext:
        return self._given if isinstance(self._given, SparkContext) else self._given.sparkContext

    def _shard_count(self) -> int:
        if self._shards is not None:
            return max(1, self._shards)
        if self.is_remote:  # which does not tell its slots
            return _REMOTE_SHARDS
        slots = self._context.defaultParallelism
        is_local = (self._context.master or "").startswith("local")
        # One slot is left to other jobs. Pumps are busy with Python, so more than cores would not help.
        return max(1, min(slots - 1, (os.cpu_count() or 1) if is_local else slots))

    # -- a drain

    def drain(
        self, job: ShardJob, queues: Sequence[ServedQueue], leash: Leash, watch: Callable[[], None]
    ) -> None:
        shards = deal(queues, self._shard_count())
        count = len(shards)

        def pump() -> None:
            # Exactly one row, and so one shard, a task.
            if self.is_remote:  # whose jobs are grouped by its session
                numbers = self._spark.range(0, count, 1, count)
                numbers.mapInArrow(pump_shards(job, shards), RESULT_DDL).collect()
                return
            self._context.setJobGroup(f"{_QUERY}-{job.run}", f"syphon of {job.label}: drain")
            self._context.parallelize(range(count), count).foreach(pump_shard(job, shards))

        action = BackgroundWork(pump)
        action.wait(leash, watch)
        if action.error is not None:
            raise self._explain(action.error, leash) from None

    # -- for ever

    def stream(self, job: ShardJob, leash: Leash, watch: Callable[[], None], *, state: Path | None) -> None:
        with self._checkpoint(job, state) as checkpoint:
            query = self._start_query(job, leash, checkpoint)
            try:
                while query.isActive and leash.order != "stop" and leash.final_fault is None:
                    time.sleep(TICK)
                    watch()
            finally:
                leash.stop()
                self._end_query(query, leash)
            error = query.exception()
        if leash.final_fault is not None:
            raise SyphonError(leash.final_fault)
        if error is not None:
            raise self._explain(error, leash) from None

    def _start_query(self, job: ShardJob, leash: Leash, checkpoint: str) -> StreamingQuery:
        spark = self._spark
        spark.dataSource.register(PlanSource)
        plan = (
            spark.readStream.format(PlanSource.name())
            .option("leash", write_place(leash.place))
            .option("shards", self._shard_count())
            .load()
        )
        pumped = plan.mapInArrow(pump_planned(job), RESULT_DDL)
        seen = pumped.observe("pairbus", *(F.sum(name).alias(name) for name in COUNTS))
        return (
            seen.writeStream.queryName(f"{_QUERY} {job.label}")
            .format("noop")
            .option("checkpointLocation", checkpoint)
            .start()
        )

    @contextmanager
    def _checkpoint(self, job: ShardJob, state: Path | None) -> Iterator[str]:
        """A directory of Spark's driver: for a remote one, below what both share, and for this run only."""
        name = f".checkpoint-{secrets.token_hex(8)}"
        if self.is_remote and isinstance(job.records[0], StoreUri):
            yield f"file:///tmp/pairbus{name}"  # of that driver: Spark cannot keep it in a store
        elif self.is_remote:
            shared = Path(str(job.records[0])) / name
            try:
                yield str(shared)
            finally:
                shutil.rmtree(shared, ignore_errors=True)
        elif state is not None:
            yield str(state / "checkpoint")
        else:
            with tempfile.TemporaryDirectory(prefix="pairbus-syphon-", ignore_cleanup_errors=True) as scratch:
                yield scratch

    def _end_query(self, query: StreamingQuery, leash: Leash) -> None:
        """Wait for the pumps, then end the query."""
        while query.isActive and (leash.progress().pumps or query.status["isTriggerActive"]):
            time.sleep(TICK / 4)
        query.stop()

    # -- receipts

    def count(self, places: Sequence[RecordPlace], *, run: str) -> ReceiptCounts:
        return count_receipts(self._spark, places, run=run)

    def prepare(self, places: Sequence[RecordPlace]) -> None:
        for place in places:
            if not isinstance(place, StoreUri):
                self._ready.add(place)

    def compact(self, places: Sequence[RecordPlace]) -> tuple[str, ...]:
        done = [
            compact_receipts(self._spark, place)
            if isinstance(place, StoreUri)
            else compact_directory(place, self._ready)
            for place in places
        ]
        return tuple(one.place for one in done if one.place)

    # -- telling

    def _explain(self, error: BaseException, leash: Leash) -> SyphonError:
        if ended := java_end():
            return SyphonError(
                f"{ended} in the middle of the work; what was not moved is still in the backlog: run it again"
            )
        if leash.faults:
            return SyphonError(leash.faults[-1])
        if missing := _MISSING.search(str(error)):
            return SyphonError(
                f"Spark's workers have no module {missing[1]}: install Pairbus for the Python that runs them"
            )
        if _NO_ROOM in str(error):
            return SyphonError(
                f"{_NO_ROOM}: Spark's checkpoint lies below --state, receipts in --records, its other "
                "files in the temporary directory; what was not moved is still in the backlog: "
                "make room and run it again"
            )
        told = [line for line in map(str.strip, str(error).splitlines()) if line.startswith("pairbus.")]
        return SyphonError(told[-1] if told else gist(error))

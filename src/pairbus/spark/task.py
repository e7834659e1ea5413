"""What a Spark task does: a shard, on an executor.

What the task returns to Spark says no more than that it has ended; a task that fails is tried again by Spark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pairbus.backlog.served_queue import ServedQueue
from pairbus.plumbing.collector import IN_A_PUMP, CalmCollector
from pairbus.plumbing.json_text import parse_json

from .leash.epochs import Shard
from .leash.leash import COUNTS
from .shard import ShardJob, ShardRun

if TYPE_CHECKING:
    import pyarrow as pa

#: What Spark is shown of each shard, for `observe`.
RESULT_DDL = ", ".join(["epoch long", "shard int", *(f"{name} long" for name in COUNTS)])
Batches = Iterator["pa.RecordBatch"]


def pump_shard(job: ShardJob, shards: Sequence[Shard]) -> Callable[[int], None]:
    """For `RDD.foreach`: each element is the number of a shard."""

    def pump(number: int) -> None:
        _perform(job, shards[number])

    return pump


def pump_shards(job: ShardJob, shards: Sequence[Shard]) -> Callable[[Batches], Batches]:
    """For `mapInArrow`: each row is the number of a shard."""

    def pump(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _told(_perform(job, shards[number]))

    return pump


def pump_planned(job: ShardJob) -> Callable[[Batches], Batches]:
    """For `mapInArrow`: each row is a shard as the planner wrote it."""

    def pump(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                yield _told(_perform(job, _shard(row)))

    return pump


def _shard(row: dict[str, Any]) -> Shard:
    queues = tuple(ServedQueue(pair, name) for pair, name in parse_json(row["queues"]))
    return Shard(row["epoch"], row["shard"], queues)


def _perform(job: ShardJob, shard: Shard) -> dict[str, int]:
    with CalmCollector(IN_A_PUMP):
        counts = asyncio.run(ShardRun(job, shard).run(_attempt()))
    return {"epoch": shard.epoch, "shard": shard.number, **counts}


def _told(row: dict[str, int]) -> pa.RecordBatch:
    import pyarrow as pa  # late: a drain does without

    types = {"epoch": pa.int64(), "shard": pa.int32(), **dict.fromkeys(COUNTS, pa.int64())}
    return pa.RecordBatch.from_pylist([row], schema=pa.schema(types))


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())

"""The planner: a streaming source that says, epoch after epoch, which shard serves which queues.

It touches no queue. Whether there is another epoch, how long it lasts and which queues there are, it asks of
the driver by the leash. So Spark may ask it as often as it likes, and may plan an epoch anew after a crash.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pairbus.backlog.served_queue import ServedQueue

from .leash.ends import PlannerTether, open_planner, read_place
from .leash.epochs import Shard, deal
from .leash.leash import LeashPlace

PLAN_DDL = "epoch long, shard int, queues string"


class ShardPartition(InputPartition):
    """One shard of one epoch."""

    def __init__(self, shard: Shard) -> None:
        super().__init__(None)
        self.shard = tuple(shard)


class PlanSource(DataSource):
    """`spark.readStream.format("pairbus-plan")`; its options are the place of the leash and `shards`."""

    @classmethod
    def name(cls) -> str:
        return "pairbus-plan"

    def schema(self) -> str:
        return PLAN_DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return PlanReader(read_place(self.options["leash"]), shards=int(self.options["shards"]))


class PlanReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are numbers of epochs."""

    def __init__(self, place: LeashPlace, *, shards: int) -> None:
        self._place = place
        self._shards = shards
        self._tether: PlannerTether | None = None
        self._plan: Sequence[ServedQueue] | None = None
        self._is_single = False
        self._last: int | None = None

    # -- on the driver

    def initialOffset(self) -> dict[str, int]:
        return {"epoch": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_single = True

    def latestOffset(
        self, start: dict[str, int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, int]:
        """The next epoch, if there is one."""
        epoch = 0 if start is None else start["epoch"]
        if self._is_single:
            self._last = epoch + 1 if self._last is None else self._last
            if epoch >= self._last:
                return {"epoch": epoch}
        self._plan = self._ask()
        return {"epoch": epoch + 1 if self._plan else epoch}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        plan = self._plan or self._ask()  # an epoch that was planned before a crash is planned anew
        if not plan:
            return []
        return [ShardPartition(shard) for shard in deal(plan, self._shards, epoch=end["epoch"])]

    def _ask(self) -> Sequence[ServedQueue] | None:
        if self._tether is None:
            self._tether = open_planner(self._place)
        return self._tether.next_epoch()

    def commit(self, end: dict[str, int]) -> None:
        """There is nothing to commit: an epoch that is over leaves no trace here."""

    # -- on an executor

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        assert isinstance(partition, ShardPartition)
        epoch, number, queues = partition.shard
        yield epoch, number, json.dumps(queues)

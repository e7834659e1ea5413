"""The engine without Spark: all queues are one shard, on an event loop of this process.

It is there at once, and needs no Java. The leash, the receipts and the epochs are those of every engine; what
is missing is other machines. Receipts are put into tables when there are many, see `ledger.plain_compaction`.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from pairbus.backlog.served_queue import ServedQueue
from pairbus.ledger.plain_compaction import compact_plainly
from pairbus.stores.places import RecordPlace

from .engine import BackgroundWork, SyphonEngine, SyphonError
from .leash.epochs import Shard
from .leash.leash import Leash
from .shard import ShardJob, ShardRun


class LocalEngine(SyphonEngine):
    """Pumps in this process."""

    kind = "local"
    leaves_orphans = False

    def drain(
        self, job: ShardJob, queues: Sequence[ServedQueue], leash: Leash, watch: Callable[[], None]
    ) -> None:
        self._run(job, Shard(0, 0, tuple(queues)), leash, watch)

    def stream(self, job: ShardJob, leash: Leash, watch: Callable[[], None], *, state: Path | None) -> None:
        epoch = 0
        while leash.order != "stop":
            epoch += 1
            self._run(job, Shard(epoch, 0, tuple(leash.queues)), leash, watch)

    def _run(self, job: ShardJob, shard: Shard, leash: Leash, watch: Callable[[], None]) -> None:
        action = BackgroundWork(lambda: asyncio.run(ShardRun(job, shard).run(0)))
        action.wait(leash, watch)
        if action.error is not None:
            raise SyphonError((leash.faults or [str(action.error)])[-1]) from action.error

    def count(self, places: Sequence[RecordPlace], *, run: str) -> None:
        """No pump of this process dies alone: what they have told is all."""

    def prepare(self, places: Sequence[RecordPlace]) -> None:
        """The pumps have this process for themselves."""

    def compact(self, places: Sequence[RecordPlace]) -> tuple[str, ...]:
        done = map(compact_plainly, places)
        return tuple(one.place for one in done if one.place)

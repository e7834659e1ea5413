"""What a Spark task does that looks at backlog queues. It imports little: workers start with it."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from pairbus.backlog.survey import survey_queues
from pairbus.ledger.receipts import copy_id
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair

from .leash.epochs import Shard
from .task import Batches

#: `copy` is the operation id that a receipt for this message has, without the pair.
SEEN_DDL = "queue string, copy string, message_id string, path string, is_dead boolean"
_SEEN = pa.schema(
    [*((name, pa.string()) for name in ("queue", "copy", "message_id", "path")), ("is_dead", pa.bool_())]
)
_PAGE = 10_000


def peek_shards(
    pairs: tuple[PumpPair, ...], shards: Sequence[Shard], options: PumpOptions
) -> Callable[[Batches], Batches]:
    """For `mapInArrow`: each row is the number of a shard, whose messages are the result."""

    def peek(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                rows = asyncio.run(_peek_shard(pairs, shards[number], options))
                for begin in range(0, len(rows), _PAGE):
                    yield pa.RecordBatch.from_pylist(rows[begin : begin + _PAGE], schema=_SEEN)

    return peek


async def _peek_shard(
    pairs: tuple[PumpPair, ...], shard: Shard, options: PumpOptions
) -> list[dict[str, Any]]:
    rows = []
    for index, pair in enumerate(pairs):
        queues = [queue.name for queue in shard.queues if queue.pair == index]
        async for one in survey_queues(pair, queues, options, now=time.time()):
            rows.append(
                {
                    "queue": one.queue,
                    "copy": copy_id(one.queue, one.sequence_number, round(one.enqueued * 1000)),
                    "message_id": one.message_id,
                    "path": one.path,
                    "is_dead": one.is_dead,
                }
            )
    return rows

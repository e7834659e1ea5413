"""Reads entities by peek: nothing is locked, nothing is removed.

Theory of operation
1. The driver finds the first and the last number of each entity and cuts what lies between them into ranges
   of about the same length. A range is a partition. What comes later is beyond the last: a read has an end.
2. An executor looks through its range, page by page, and asks for the next page before it makes rows of the
   one that it has: namespace and worker work at the same time, with two pages in memory.
3. A range can be read again at any time. So a namespace that is busy or away is waited for, and a task that
   fails is repeated by Spark, and neither is seen in the rows.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pairbus.pump.browsing import NO_END, PAGE

from .columns import check_schema
from .decoding import MessagePage, make_batch
from .entities import find_entities
from .options import SourceSettings
from .peeking import PatientSource, open_line, open_namespace, read_head

# Planning waits for the answer; an executor has more time.
_PLAN_PATIENCE = 10.0
# Less is not worth a task.
_LEAST_RANGE = 1000
# Rows of a batch: enough to share what a batch costs, and few enough to stay in memory if they are large.
_BATCH_ROWS, _BATCH_BYTES = 4 * PAGE, 8 << 20


class MessageRange(InputPartition):
    """Messages of an entity from `first` on and below `until`; at most `limit` of them."""

    def __init__(self, entity: str, first: int, until: int, limit: int | None = None) -> None:
        super().__init__(None)
        self.entity = entity
        self.first = first
        self.until = until
        self.limit = limit


def divide(entity: str, first: int, until: int, *, parts: int) -> list[MessageRange]:
    """A range as several of about the same length; they are few if it is short."""
    size = until - first
    parts = max(1, min(parts, size // _LEAST_RANGE))
    edges = [first + size * index // parts for index in range(parts + 1)]
    return [MessageRange(entity, low, high) for low, high in pairwise(edges)]


class RangeReader:
    """What a batch and a stream have in common: ranges are read on executors."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        check_schema(schema)
        self._settings = settings
        self._schema = to_arrow_schema(schema, timezone="UTC")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, MessageRange)
        return read_range(self._settings, self._schema, partition)


class MessageReader(RangeReader, DataSourceReader):
    """Of `spark.read`."""

    def partitions(self) -> list[InputPartition]:
        return asyncio.run(self._plan())

    async def _plan(self) -> list[InputPartition]:
        settings = self._settings
        names = await find_entities(settings.side, settings["entity"], dead_letters=settings["deadLetters"])
        planned: list[InputPartition] = []
        async with open_namespace(settings.side) as transport:
            for name in names:
                planned += await self._plan_one(PatientSource(transport, name, timeout=_PLAN_PATIENCE))
        # Spark would take an empty list for one partition that nobody has planned.
        return planned or [MessageRange(names[0], 0, 0)]

    async def _plan_one(self, source: PatientSource) -> Sequence[InputPartition]:
        settings = self._settings
        bounds = await source.find_bounds(settings["fromSequenceNumber"])
        if bounds is None:
            return []
        first, until = bounds[0].sequence_number, bounds[1].sequence_number + 1
        limit = settings["maxMessages"]
        if limit is not None:
            return [MessageRange(source.entity, first, until, limit)]
        return divide(source.entity, first, until, parts=settings["partitions"])


def read_range(settings: SourceSettings, schema: pa.Schema, wanted: MessageRange) -> Iterator[pa.RecordBatch]:
    """The messages of a range as batches."""
    now = time.time()
    for messages in _whole_batches(_pages(settings, wanted)):
        page = MessagePage(wanted.entity, messages, is_wrapped=settings.is_wrapped, now=now)
        yield make_batch(page, schema)


def _whole_batches(pages: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    held: list[bytes] = []
    size = 0
    for page in pages:
        held += page
        size += sum(map(len, page))
        if len(held) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _pages(settings: SourceSettings, wanted: MessageRange) -> Iterator[list[bytes]]:
    """The messages of a range, page by page; rule 2."""
    left = NO_END if wanted.limit is None else wanted.limit
    with asyncio.Runner() as runner:
        transport = open_line(settings.side)
        source = PatientSource(transport, wanted.entity, timeout=settings["timeout"])
        loop = runner.get_loop()  # `runner.run` would set signal handlers anew for each page

        def ask(number: int) -> asyncio.Task[list[bytes]]:
            task = loop.create_task(source.peek(number, min(PAGE, left), with_bodies=settings.with_bodies))
            loop.run_until_complete(_let_go())
            return task

        try:
            asked = ask(wanted.first) if wanted.first < wanted.until else None
            while asked is not None:
                page = loop.run_until_complete(asked)
                following = read_head(page[-1]).sequence_number + 1 if page else wanted.until
                if following > wanted.until:
                    page = [one for one in page if read_head(one).sequence_number < wanted.until]
                if not settings.with_scheduled:
                    page = [one for one in page if read_head(one).state != "scheduled"]
                left -= len(page)
                asked = ask(following) if following < wanted.until and left > 0 else None
                if page:
                    yield page
        finally:
            loop.run_until_complete(transport.close())


async def _let_go() -> None:
    """Turns of the loop that a request needs until it is on its way."""
    for _ in range(4):
        await asyncio.sleep(0)

"""Reads entities as a stream, by peek.

Theory of operation
1. The offset of an entity is the next sequence number, and when the youngest message was enqueued that had
   been seen then. A batch is all numbers between two offsets. It can be read again as often as it has to be,
   and is the same as long as nobody removes messages.
2. How far a batch goes is found without reading it: there are no more messages than numbers. The last number
   is found by halving; from the first number that is there, a batch of at most N messages goes N numbers far.
3. Scheduled messages are left out: they get another number when their time comes, and would come twice.
4. `mode=consume` removes a batch when it is over. Spark says so by asking for what comes after it: it tells
   of the last batch in no other way. A driver that dies before that reads the same batch again.
5. A look at idle entities is billed, and Spark would ask a hundred times a second: `pollInterval` bounds it.
6. Numbers of partitioned entities are not one sequence, and are refused as far as they can be told. Dead
   letters have the numbers of their former life and come in any order: a stream would pass some over, and
   `mode=consume` would remove them unread.
"""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pairbus.errors import ConfigurationError
from pairbus.pump.amqp_transport import AmqpTransport

from .consuming import check_consumable, remove_below
from .entities import find_entities
from .options import SourceSettings
from .peeking import PatientSource, open_line
from .reader import RangeReader, divide

T = TypeVar("T")
Offsets = dict[str, dict[str, int]]
# Partitioned entities have the number of the partition in the upper 16 bits.
_PARTITION_NUMBERS = 2**48
# Entities that come and go are looked for so often, where patterns name them.
_LIST_AGAIN = 30.0


class Span(NamedTuple):
    """What there is to read of an entity: numbers from `first` on and below `until`, enqueued by `seen`."""

    first: int
    until: int
    seen: int


class MessageStreamReader(RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of `spark.readStream`. On the driver one process has it for the whole life of the query."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self._drop()

    def _drop(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._transport: AmqpTransport | None = None
        self._sources: dict[str, PatientSource] = {}
        self._names: tuple[float, list[str]] | None = None
        self._removed: dict[str, int] = {}
        self._targets: dict[str, Span] | None = None
        self._tips: dict[str, int] = {}
        self._idle_since: float | None = None
        self._is_checked = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._drop()

    def initialOffset(self) -> Offsets:
        return self._run(self._begin())

    async def _begin(self) -> Offsets:
        first = self._settings["fromSequenceNumber"]
        begun = {name: {"next": first, "seen": 0} for name in await self._entities()}
        if self._settings["startingPosition"] == "latest":
            for name, span in (await self._look(begun)).items():
                begun[name] = {"next": span.until, "seen": span.seen}
        return begun

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._settings["maxMessagesPerBatch"]
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that is to be read."""
        self._targets = self._run(self._look({}))

    def latestOffset(self, start: Offsets | None = None, limit: ReadLimit | None = None) -> Offsets:
        """Where the next batch ends. What is before `start` has been dealt with."""
        begun = start or self.initialOffset()
        if self._idle_since is not None:
            time.sleep(max(0.0, self._idle_since + self._settings["pollInterval"] - time.monotonic()))
        found = self._run(self._advance(begun, limit))
        self._idle_since = time.monotonic() if found == begun and self._targets is None else None
        return found

    async def _advance(self, begun: Offsets, limit: ReadLimit | None) -> Offsets:
        if not self._is_checked:
            for name in await self._entities():
                if name in begun:
                    await self._check_same(self._source(name), begun[name])
            self._is_checked = True
        if self._settings["mode"] == "consume":
            await self._remove(begun)
        spans = await self._look(begun) if self._targets is None else self._left_of(begun, self._targets)
        self._tips.update({name: span.until for name, span in spans.items()})
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        ends = dict(begun)
        for name, count in share(spans, most).items():
            if count:
                ends[name] = {"next": spans[name].first + count, "seen": spans[name].seen}
        return ends

    def _left_of(self, begun: Offsets, targets: dict[str, Span]) -> dict[str, Span]:
        left = {}
        for name, span in targets.items():
            first = max(span.first, begun.get(name, {"next": 0})["next"])
            if first < span.until:
                left[name] = Span(first, span.until, span.seen)
        return left

    async def _look(self, begun: Offsets) -> dict[str, Span]:
        """What there is beyond the offsets, by entity."""
        spans = {}
        for name in await self._entities():
            at = begun.get(name, {"next": self._settings["fromSequenceNumber"], "seen": 0})
            source = self._source(name)
            bounds = await source.find_bounds(at["next"])
            await self._check_same(source, at)  # a new one may be ahead of the offset by now
            if bounds is None:
                continue
            first, last = bounds
            if last.sequence_number >= _PARTITION_NUMBERS:
                raise ConfigurationError(
                    f"{name!r} is partitioned: its sequence numbers are not one sequence, so that a stream "
                    "would miss messages. Read it with spark.read"
                )
            spans[name] = Span(first.sequence_number, last.sequence_number + 1, last.enqueued_ms)
        return spans

    async def _check_same(self, source: PatientSource, at: dict[str, int]) -> None:
        """An entity that was created again has younger messages with numbers that have been read."""
        oldest = await source.peek_heads(0, 1) if at["seen"] else []
        if oldest and oldest[0].sequence_number < at["next"] and oldest[0].enqueued_ms > at["seen"]:
            raise ConfigurationError(
                f"{source.entity!r} was created again since the last batch: its messages have numbers that "
                "this query has read. Begin anew with another checkpoint"
            )

    async def _remove(self, begun: Offsets) -> None:
        """Rule 4."""
        timeout = self._settings["timeout"]
        for name in await self._entities():
            at = begun.get(name, {"next": 0, "seen": 0})
            source = self._source(name)
            if name not in self._removed:
                await check_consumable(source, timeout=timeout)
                self._removed[name] = 0
            if at["next"] > self._removed[name]:
                await remove_below(source, at["next"], seen_ms=at["seen"], timeout=timeout)
                self._removed[name] = at["next"]

    async def _entities(self) -> list[str]:
        settings = self._settings
        if self._names is None or (
            self._targets is None
            and any("*" in name or "?" in name for name in settings["entity"])
            and time.monotonic() > self._names[0] + _LIST_AGAIN
        ):
            found = await find_entities(settings.side, settings["entity"], dead_letters="no")
            self._names = time.monotonic(), found
        return self._names[1]

    def reportLatestOffset(self) -> Offsets | None:
        return {name: {"next": until, "seen": 0} for name, until in self._tips.items()} or None

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        planned: list[InputPartition] = []
        for name, at in end.items():
            first = start.get(name, {"next": self._settings["fromSequenceNumber"]})["next"]
            if first < at["next"]:
                planned += divide(name, first, at["next"], parts=self._settings["partitions"])
        return planned

    def commit(self, end: Offsets) -> None:
        """Spark tells of a batch only when the next one has begun: rule 4 does it earlier."""

    def _source(self, name: str) -> PatientSource:
        if self._transport is None:
            self._transport = open_line(self._settings.side)
        if name not in self._sources:
            self._sources[name] = PatientSource(self._transport, name, timeout=self._settings["timeout"])
        return self._sources[name]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)


def share(spans: dict[str, Span], most: int | None) -> dict[str, int]:
    """How many sequence numbers of each entity go into a batch: all, or an even share of `most`."""
    counts = {name: span.until - span.first for name, span in spans.items()}
    if most is None:
        return counts
    left, shares = most, {}
    for place, name in enumerate(sorted(counts, key=counts.__getitem__)):
        shares[name] = min(counts[name], -(-left // (len(counts) - place)))
        left -= shares[name]
    return shares

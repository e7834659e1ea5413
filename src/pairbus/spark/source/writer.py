"""Writes rows as messages.

Theory of operation
1. The rows of a partition are messages in their order. Messages of one entity and session (and partition key)
   travel together, as many as fit a batch; many batches are on the way at once, of a session one.
2. A task ends when the namespace has confirmed every message. If it fails before, Spark runs it again, and
   all rows are sent again: none is lost, and those that had arrived come twice. Their ids are the same, so
   that duplicate detection absorbs them. A row without an id gets one of the job (of a stream, its query and
   batch), the partition and its place there, which is the same in every attempt.
3. A namespace that is busy is waited for as long as it asks, one that is away for the option `timeout`.
4. A row that no namespace would take fails the task, or goes to the error table: written under a hidden name
   by the task, and shown by the driver when the whole write is committed. So a failed attempt leaves no rows.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pairbus.errors import ConfigurationError
from pairbus.pump.judgement import Remedy, judge
from pairbus.pump.transport import Refusal, Unit
from pairbus.wire.errors import TransportError

from .encoding import OutRow, RowEncoder, check_columns
from .error_table import ErrorTable
from .options import SourceSettings
from .outlets import Outlet, open_outlet
from .patience import explain, wait_for

# What every tier takes as one batch, with room for what is around the messages.
_UNIT_BYTES = 240_000
_UNIT_ROWS = 1000
# A wave is waited for as a whole: enough to keep a line busy, and few enough to stay in memory.
_WAVE_BYTES = 4 << 20
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(slots=True)
class _Parcel:
    """Rows that travel together: their places in the batch, and their messages."""

    entity: str
    session_id: str | None
    places: list[int] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    size: int = 0

    def singles(self) -> Iterator[_Parcel]:
        """Each row by itself."""
        for place, payload in zip(self.places, self.payloads, strict=True):
            yield _Parcel(self.entity, self.session_id, [place], [payload], len(payload))


class TaskDone(WriterCommitMessage):
    """What a task tells the driver: how many rows were sent, and where those are that were not."""

    def __init__(self, sent: int, refused: int, file: str | None) -> None:
        self.sent = sent
        self.refused = refused
        self.file = file


class RowSender:
    """Sends the rows of one partition."""

    def __init__(
        self, settings: SourceSettings, outlet: Outlet, encoder: RowEncoder, errors: ErrorTable
    ) -> None:
        self._timeout = settings["timeout"]
        self._outlet = outlet
        self._encoder = encoder
        self._errors = errors
        self.sent = 0

    async def send(self, batch: pa.RecordBatch) -> None:
        """Send all rows of a batch; rule 1."""
        refused: dict[int, str] = {}
        wave: list[_Parcel] = []
        size = 0
        for parcel in self._parcels(batch, refused):
            wave.append(parcel)
            size += parcel.size
            if size >= _WAVE_BYTES:
                await self._send_wave(wave, refused)
                wave, size = [], 0
        await self._send_wave(wave, refused)
        self.sent += batch.num_rows - len(refused)
        self._errors.add(batch, refused)

    def _parcels(self, batch: pa.RecordBatch, refused: dict[int, str]) -> Iterator[_Parcel]:
        open_ones: dict[tuple[str, str | None, str | None], _Parcel] = {}
        now_ms = int(time.time() * 1000)
        for place, row in enumerate(self._encoder.encode(batch, now_ms=now_ms)):
            if row.problem is not None:
                refused[place] = row.problem
                continue
            yield from _add(open_ones, place, row)
        yield from open_ones.values()

    async def _send_wave(self, wave: list[_Parcel], refused: dict[int, str]) -> None:
        loop = asyncio.get_running_loop()
        ends, attempt = loop.time() + self._timeout, 0
        while wave:
            now_ones, later = _one_a_session(wave)
            outcomes = await self._outlet_send(now_ones)
            wave, wait, failure = [], 0.0, None
            for parcel, outcome in zip(now_ones, outcomes, strict=True):
                if outcome is None:
                    attempt, ends = 0, loop.time() + self._timeout
                    continue
                again, pause = self._judge(parcel, outcome, attempt, refused)
                wave += again
                if pause:
                    wait, failure = max(wait, pause), (parcel, outcome)
            wave += later
            if failure is not None:
                if loop.time() + wait > ends:
                    raise explain(failure[1], failure[0].entity)
                await asyncio.sleep(wait)
                attempt += 1

    async def _outlet_send(self, parcels: list[_Parcel]) -> list[Refusal]:
        by_entity: dict[str, list[int]] = {}
        for index, parcel in enumerate(parcels):
            by_entity.setdefault(parcel.entity, []).append(index)
        outcomes: list[Refusal] = [None] * len(parcels)

        async def send(entity: str, places: list[int]) -> None:
            units = [Unit(parcels[place].payloads, parcels[place].session_id) for place in places]
            for place, outcome in zip(places, await self._outlet.send(entity, units), strict=True):
                outcomes[place] = outcome

        await asyncio.gather(*(send(entity, places) for entity, places in by_entity.items()))
        return outcomes

    def _judge(
        self, parcel: _Parcel, outcome: TransportError, attempt: int, refused: dict[int, str]
    ) -> tuple[list[_Parcel], float]:
        """What to send again, and after how long."""
        verdict = judge(outcome).verdict
        if verdict in (Remedy.SUSPECT, Remedy.POISON):
            if len(parcel.places) > 1:
                return list(parcel.singles()), 0.0
            if verdict is Remedy.POISON:
                refused[parcel.places[0]] = str(outcome)
                return [], 0.0
            return [parcel], wait_for(outcome, attempt) or 0.1
        wait = wait_for(outcome, attempt)
        if wait is None:
            raise explain(outcome, parcel.entity)
        return [parcel], max(wait, 0.001)


def _add(
    open_ones: dict[tuple[str, str | None, str | None], _Parcel], place: int, row: OutRow
) -> Iterator[_Parcel]:
    """Put a row to those that it travels with; a parcel that is full by it is given out."""
    key = row.entity, row.session_id, row.partition_key
    parcel = open_ones.get(key)
    if parcel is not None and (
        parcel.size + len(row.payload) > _UNIT_BYTES or len(parcel.places) >= _UNIT_ROWS
    ):
        yield open_ones.pop(key)
        parcel = None
    if parcel is None:
        parcel = open_ones[key] = _Parcel(row.entity, row.session_id)
    parcel.places.append(place)
    parcel.payloads.append(row.payload)
    parcel.size += len(row.payload) + 8


def _one_a_session(wave: list[_Parcel]) -> tuple[list[_Parcel], list[_Parcel]]:
    """What may be on the way at once, and what waits for it: order is kept within a session."""
    now_ones: list[_Parcel] = []
    later: list[_Parcel] = []
    seen: set[tuple[str, str]] = set()
    for parcel in wave:
        if parcel.session_id is None:
            now_ones.append(parcel)
        elif (key := (parcel.entity, parcel.session_id)) in seen:
            later.append(parcel)
        else:
            seen.add(key)
            now_ones.append(parcel)
    return now_ones, later


class _Writing(ABC):
    """What a batch and a stream have in common."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        check_columns(schema)
        if not settings["entity"] and "entity" not in schema.fieldNames():
            raise ConfigurationError(
                'Say where to: .option("entity", "orders"), .save("orders"), or a column `entity`'
            )
        settings.side.resolve()  # a variable that is not set is told before any row is made
        self._settings = settings
        self._job: str | None = settings["jobId"]

    @abstractmethod
    def _name(self, context: TaskContext) -> str:
        """What is written, the same in every attempt."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "rows are written by tasks"
        return asyncio.run(self._run(iterator, f"{self._name(context)}-{context.partitionId()}", context))

    async def _run(self, batches: Iterator[pa.RecordBatch], prefix: str, context: TaskContext) -> TaskDone:
        settings = self._settings
        new_id: Callable[[int], str] = f"{prefix}-{{}}".format
        entities = settings["entity"]
        encoder = RowEncoder(entity=entities[0] if entities else None, new_id=new_id)
        errors = ErrorTable(settings["errorTable"])
        outlet = open_outlet(settings)
        sender = RowSender(settings, outlet, encoder, errors)
        try:
            for batch in batches:
                await sender.send(batch)
        finally:
            await outlet.close()
        return TaskDone(sender.sent, errors.count, errors.write(f"{prefix}-{context.taskAttemptId()}"))

    def commit(self, messages: list[Any], batchId: int = 0) -> None:
        ErrorTable(self._settings["errorTable"]).show(_files(messages))

    def abort(self, messages: list[Any], batchId: int = 0) -> None:
        ErrorTable(self._settings["errorTable"]).drop(_files(messages))


def _files(messages: list[Any]) -> list[str]:
    return [done.file for done in messages if isinstance(done, TaskDone) and done.file is not None]


class MessageWriter(_Writing, DataSourceArrowWriter):
    """Of `df.write`."""

    def __init__(self, settings: SourceSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self._job = self._job or uuid.uuid4().hex

    def _name(self, context: TaskContext) -> str:
        return str(self._job)


class MessageStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """Of `df.writeStream`. Query and batch are the same when a batch is done again, also after a restart."""

    def _name(self, context: TaskContext) -> str:
        job = self._job or context.getLocalProperty(_QUERY)
        return f"{job}-{context.getLocalProperty(_BATCH)}"

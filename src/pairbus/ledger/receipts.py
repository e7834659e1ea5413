"""Receipts: one row for each message that a pump handled, on the disk before the message leaves its queue.

Rows that come while an fsync is under way, in a thread, gather for the next one, so that many queues share
the price of the disk. Unlike other records, a receipt that cannot be written is an error: the message must
then stay where it is.

A row may be written twice, if the process dies between the receipt and the completion of the message. Both
have the same operation id, so that whoever reads receipts keeps one of them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from json.encoder import encode_basestring_ascii as _quote
from pathlib import Path
from typing import Annotated, Any, Protocol, TypedDict

from pairbus.clock import Clock

from .columns import Moment
from .segment import MAX_AGE, SegmentWriter

__all__ = ["KIND", "MemoryReceipts", "Receipt", "ReceiptLog", "Receipts", "operation_id"]

#: The kind of segment that holds receipts.
KIND = "receipts"


class Receipt(TypedDict):
    """One message that was moved or dead-lettered. Tables and docs/syphon.md derive from this."""

    op: Annotated[str, "the operation id: pair, queue, sequence number and time; one for each message"]
    pair: Annotated[str, "the pair it belongs to"]
    writer: Annotated[str, "the pump; its name begins with an id of the run"]
    path: Annotated[str, "the entity it was sent to"]
    session: Annotated[str | None, "its session, if it has one"]
    message_id: Annotated[str, "its own id"]
    backlog_queue: Annotated[str, "the queue it waited in"]
    sequence_number: Annotated[int, "its number in that queue"]
    enqueued: Annotated[Moment, "when it came to the backlog"]
    moved: Annotated[Moment, "when it left the backlog"]
    bytes: Annotated[int, "its size"]
    attempts: Annotated[int, "how often it was tried"]
    outcome: Annotated[str, "`moved` or `dead-lettered`"]
    reason: Annotated[str | None, "why it was dead-lettered"]


def operation_id(pair: str, queue: str, sequence_number: int, enqueued_ms: int) -> str:
    """The same for the same message, however often it is handled; the time tells queues apart that were
    deleted and made again.
    """
    return f"{pair}:{queue}:{sequence_number}:{enqueued_ms}"


class Receipts(Protocol):
    """Where receipts are kept."""

    @property
    def writer(self) -> str:
        """Who writes them."""
        ...

    async def append(self, rows: Sequence[Receipt]) -> None:
        """Keep these; they are durable when this returns. OSError if that cannot be done."""
        ...

    async def close(self) -> None:
        """Let everybody see them."""
        ...


class MemoryReceipts:
    """Keeps receipts in a list, for tests and for applications that want none on their disk."""

    def __init__(self, writer: str = "memory") -> None:
        self.writer = writer
        self.rows: list[Receipt] = []

    async def append(self, rows: Sequence[Receipt]) -> None:
        self.rows += rows

    async def close(self) -> None:
        """There is nothing to close."""


class ReceiptLog:
    """Keeps receipts in segments of a directory."""

    def __init__(
        self,
        directory: Path,
        *,
        writer: str | None = None,
        clock: Clock | None = None,
        max_age: float = MAX_AGE,
    ) -> None:
        """Does no I/O; the directory is made with the first row. `writer` is by default host, process, id."""
        self.writer = writer or f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._segments = SegmentWriter(directory, KIND, max_age=max_age, clock=clock, encode=_encode)
        self._max_age = max_age
        self._waiting: list[tuple[Sequence[Receipt], asyncio.Future[None]]] = []
        self._flush: asyncio.Task[None] | None = None
        self._roll: asyncio.TimerHandle | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def append(self, rows: Sequence[Receipt]) -> None:
        """Keep these; they are on the disk when this returns."""
        if not rows:
            return
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((rows, done))
        if self._flush is None:
            self._flush = loop.create_task(self._write_waiting())
        await done

    async def close(self) -> None:
        """Write what waits and close the open segment."""
        while self._flush is not None:
            await asyncio.wait({self._flush})
        if self._roll is not None:
            self._roll.cancel()
            self._roll = None
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._segments.close)
            thread.shutdown(wait=False)

    async def _write_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="pairbus-receipts")
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                rows: list[Mapping[str, Any]] = [row for some, _ in batch for row in some]
                try:
                    await loop.run_in_executor(self._thread, self._segments.append, rows)
                except OSError as error:
                    _fail(batch, error)
                else:
                    for _, done in batch:
                        if not done.done():  # its caller may have been cancelled
                            done.set_result(None)
            if self._roll is None:
                self._roll = loop.call_later(self._max_age, self._close_old)
        finally:
            self._flush = None

    def _close_old(self) -> None:
        """Let others see the rows of a segment that nothing more is written to."""
        self._roll = None
        if self._thread is not None:
            self._thread.submit(self._segments.close)


def _encode(row: Receipt) -> bytes:
    """A receipt as a line. By hand, since each message has one: half the general encoder's time."""
    session, reason = row["session"], row["reason"]
    return (
        f'{{"op":{_quote(row["op"])},"pair":{_quote(row["pair"])},"writer":{_quote(row["writer"])}'
        f',"path":{_quote(row["path"])},"session":{"null" if session is None else _quote(session)}'
        f',"message_id":{_quote(row["message_id"])},"backlog_queue":{_quote(row["backlog_queue"])}'
        f',"sequence_number":{row["sequence_number"]},"enqueued":{row["enqueued"]!r},"moved":{row["moved"]!r}'
        f',"bytes":{row["bytes"]},"attempts":{row["attempts"]},"outcome":{_quote(row["outcome"])}'
        f',"reason":{"null" if reason is None else _quote(reason)}}}\n'
    ).encode("ascii")


def _fail(batch: Sequence[tuple[Sequence[Receipt], asyncio.Future[None]]], error: OSError) -> None:
    for _, done in batch:
        if not done.done():
            done.set_exception(error)

"""Receipts: one row for each message that a pump handled, on the disk before the message leaves its queue.

Many queues share the price of the disk, see `SegmentLog`. Unlike other records, a receipt that cannot be
written is an error: the message must then stay where it is.

A row may be written twice, if the process dies between the receipt and the completion of the message. Both
have the same operation id, so that whoever reads receipts keeps one of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as _quote
from typing import Annotated, Any, Protocol, TypedDict

from pairbus.clock import Clock
from pairbus.stores.places import RecordPlace

from .columns import Moment
from .commit_objects import open_writer
from .segment import MAX_AGE, writer_name
from .segment_log import SegmentLog

#: The kind of segment that holds receipts.
KIND = "receipts"
#: What may have become of a message.
OUTCOMES = ("moved", "dead-lettered", "unknown")
#: What a row must have to be a receipt that a verdict can be based on.
NEEDED = ("op", "path", "message_id", "backlog_queue", "moved", "outcome")


class Receipt(TypedDict):
    """A message that was moved, dead-lettered or sent without an answer. Tables and docs derive from this."""

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
    outcome: Annotated[
        str, "`moved`, `dead-lettered`, or `unknown` if nothing but a send without an answer is known"
    ]
    reason: Annotated[str | None, "why it was dead-lettered"]
    unsure: Annotated[int | None, "sends of it without an answer: so often it may have arrived besides"]
    repeats: Annotated[int | None, "how often it was moved besides, having come again"]


def operation_id(pair: str, queue: str, sequence_number: int, enqueued_ms: int) -> str:
    """The same however often a message is handled; the time tells queues apart that were made again."""
    return f"{pair}:{copy_id(queue, sequence_number, enqueued_ms)}"


def copy_id(queue: str, sequence_number: int, enqueued_ms: int) -> str:
    """The operation id without its pair, as whoever looks at a queue can tell it."""
    return f"{queue}:{sequence_number}:{enqueued_ms}"


def merge_receipts(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each operation id: the last one counts that says what became of the message, and sums up
    the others. The same row may come twice, after a crash in a compaction.
    """
    single: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in rows:
        key = tuple(row.get(name) for name in ("op", "writer", "moved", "outcome"))
        single[key] = max(single.get(key, row), row, key=_sums)
    merged: dict[str, dict[str, Any]] = {}
    moves = Counter[str]()
    for row in sorted(single.values(), key=lambda row: (row["outcome"] != "unknown", row["moved"])):
        op, (unsure, repeats) = row["op"], _sums(row)
        moves[op] += repeats + (row["outcome"] == "moved")
        unsure += merged.get(op, {}).get("unsure", 0)
        merged[op] = {**row, "unsure": unsure, "repeats": moves[op] - (row["outcome"] == "moved")}
    return list(merged.values())


def _sums(row: Mapping[str, Any]) -> tuple[int, int]:
    return row.get("unsure") or 0, row.get("repeats") or 0


class Receipts(Protocol):
    """Where receipts are kept."""

    @property
    def writer(self) -> str:
        """Who writes them."""

    def begin(self) -> None:
        """Leave a sign that receipts are kept, so that missing ones differ from none at all."""

    async def append(self, rows: Sequence[Receipt]) -> None:
        """Keep these; they are durable when this returns. Raises whatever prevents that."""

    def urge(self) -> None:
        """No more come until those that wait are durable."""

    async def close(self) -> None:
        """Let everybody see them."""


class MemoryReceipts:
    """Keeps receipts in a list, for tests and for applications that want none on their disk."""

    writer = "memory"

    def __init__(self) -> None:
        self.rows: list[Receipt] = []

    def begin(self) -> None:
        """There is nothing to begin."""

    async def append(self, rows: Sequence[Receipt]) -> None:
        self.rows += rows

    def urge(self) -> None:
        """None waits."""

    async def close(self) -> None:
        """There is nothing to close."""


class ReceiptLog(SegmentLog[Receipt]):
    """Keeps receipts in segments of a directory, or as objects in a store."""

    def __init__(
        self,
        place: RecordPlace,
        *,
        writer: str | None = None,
        clock: Clock | None = None,
        max_age: float = MAX_AGE,
        is_shipped: bool = False,
    ) -> None:
        """Does no I/O; a directory is made with the first row. `writer` is by default host, process, id."""
        super().__init__(
            open_writer(
                place,
                KIND,
                max_age=max_age,
                clock=clock,
                encode=_encode,
                is_chained=True,
                is_shipped=is_shipped,
            )
        )
        self.writer = writer or writer_name()


def _encode(row: Receipt) -> bytes:
    """A receipt as a line. By hand, since each message has one: half the general encoder's time."""
    session, reason = row["session"], row["reason"]
    return (
        f'{{"op":{_quote(row["op"])},"pair":{_quote(row["pair"])},"writer":{_quote(row["writer"])}'
        f',"path":{_quote(row["path"])},"session":{"null" if session is None else _quote(session)}'
        f',"message_id":{_quote(row["message_id"])},"backlog_queue":{_quote(row["backlog_queue"])}'
        f',"sequence_number":{row["sequence_number"]},"enqueued":{row["enqueued"]!r},"moved":{row["moved"]!r}'
        f',"bytes":{row["bytes"]},"attempts":{row["attempts"]},"outcome":{_quote(row["outcome"])}'
        f',"reason":{"null" if reason is None else _quote(reason)},"unsure":{row["unsure"]},"repeats":0}}\n'
    ).encode("ascii")

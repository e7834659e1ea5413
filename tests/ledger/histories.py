"""Random histories of two pairs: clients that redirect, pumps that move and bury, kills, compactions; what
they leave on a real disk and in the queues, and the verdict on it in plain Python.

The files are written, adopted, compacted and audited by the real code, and the rules are the real ones. What
is played is Service Bus, and, unless it is wanted otherwise, the table: JSON lines under the name of Parquet.
"""

import dataclasses
import fcntl
import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pairbus.client.state.records import KIND as REDIRECTS
from pairbus.client.state.records import UNKNOWN, RedirectRecord
from pairbus.clock import ManualClock
from pairbus.ledger.generation import TableRead, compact
from pairbus.ledger.receipts import KIND as RECEIPTS
from pairbus.ledger.receipts import copy_id, operation_id
from pairbus.ledger.reckoning import KeyCounts, place_copy, reckon
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.segment import SegmentWriter, adopt_segments, closed_segments, read_segment

PAIRS = ("contoso", "fabrikam")
Row = dict[str, Any]


class Key(NamedTuple):
    """Messages that are alike."""

    pair: str
    path: str
    message_id: str


class Copy(NamedTuple):
    """A message in a backlog queue."""

    key: Key
    queue: str
    number: int
    enqueued: float
    #: The same for a message that was redriven.
    origin: int

    @property
    def name(self) -> str:
        """What receipts and queues tell it by."""
        return copy_id(self.queue, self.number, round(self.enqueued * 1000))


class JsonTable:
    """How the rows of a table are kept."""

    def write(self, path: Path, rows: list[Row]) -> None:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def read(self, path: Path) -> list[Row]:
        return read_segment(path).rows

    def compact(self, segments: list[Path], table: TableRead, to: Path) -> int:
        """The next generation: a row for each message, in two files."""
        found = [read_segment(path) for path in segments]
        by_op: dict[str, Row] = {}
        for row in sorted(self.read_all(table) + [row for one in found for row in one.rows], key=_age):
            moves = _moves(by_op.get(row["op"], {})) + _moves(row)
            by_op[row["op"]] = {**row, "repeats": moves - (row["outcome"] == "moved")}
        to.mkdir()
        for part, ops in enumerate((sorted(by_op)[::2], sorted(by_op)[1::2])):
            self.write(to / f"part-{part}.parquet", [by_op[op] for op in ops])
        return sum(one.bad for one in found)

    def read_all(self, table: TableRead) -> list[Row]:
        return [row for path in table.files for row in self.read(path)]


def _age(row: Row) -> float:
    return float(row["moved"])


def _moves(row: Row) -> int:
    return int(row.get("repeats", 0)) + (row.get("outcome") == "moved")


_JSON = JsonTable()


class Killed(BaseException):
    """The process is no more."""


@contextmanager
def killed_after(calls: int) -> Iterator[None]:
    """Let only so many more names in directories be changed."""

    def guard(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls -= 1
            if calls < 0:
                raise Killed
            return original(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("replace", "rename", "unlink", "rmdir"):
            patch.setattr(os, name, guard(getattr(os, name)))
        with suppress(Killed):
            yield


class History:
    """A world that is played from a seed."""

    def __init__(self, directory: Path, seed: int, table: JsonTable = _JSON) -> None:
        self.directory = directory
        self.waiting: list[Copy] = []
        self.dead: list[Copy] = []
        #: The origins of messages that the primary has.
        self.moved: set[int] = set()
        self.unsure: set[Key] = set()
        self._chance = random.Random(seed)
        self._clock = ManualClock(1_790_000_000.0)
        self._numbers = Counter[str]()
        self._writers: dict[str, SegmentWriter] = {}
        self._names = 0
        self._table = table

    def play(self, steps: int) -> None:
        """Some steps; then everybody ends, or has died."""
        deeds = (
            *[self._redirect] * 6,
            *[self._move] * 5,
            self._bury,
            self._redrive,
            self._close,
            self._end,
            self._die,
            self._adopt,
            *[self._compact] * 2,
        )
        self._begin(REDIRECTS)  # a client that may have nothing to tell
        for _ in range(steps):
            self._clock.advance(self._chance.choice((0.001, 1.0, 50.0)))
            self._chance.choice(deeds)()
        for kind in list(self._writers):
            self._end(kind)
        for kind in (REDIRECTS, RECEIPTS):
            adopt_segments(self.directory, kind)

    def tidy(self) -> None:
        """Have a compaction remove what a killed one has left: files that nobody reads any more."""
        closed = closed_segments(self.directory, RECEIPTS)
        is_left = len(closed) > len(RecordFiles.list(self.directory, RECEIPTS).closed)
        if is_left or len(list(self.directory.glob("*.parquet"))) > 1:
            compact(self.directory, RECEIPTS, self._table.compact)

    # -- writers

    def _begin(self, kind: str) -> SegmentWriter:
        if kind not in self._writers:
            self._names += 1
            self._writers[kind] = SegmentWriter(
                self.directory, kind, clock=self._clock, is_chained=True, max_bytes=2000
            )
            self._writers[kind].begin()
        return self._writers[kind]

    def _pick(self) -> str:
        return self._chance.choice((REDIRECTS, RECEIPTS))

    def _close(self) -> None:
        if writer := self._writers.get(self._pick()):
            writer.close()

    def _end(self, kind: str | None = None) -> None:
        if writer := self._writers.pop(kind or self._pick(), None):
            writer.close(ends=True)

    def _die(self) -> None:
        writer = self._writers.pop(self._pick(), None)
        if writer is None or writer._open is None:
            return
        left = writer._open
        if self._chance.random() < 0.5:  # while it closes
            descriptor = os.dup(left.lock.descriptor)
            with killed_after(self._chance.randint(0, 2)):
                writer.close(ends=self._chance.random() < 0.5)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
            return
        left.abandon()
        if self._chance.random() < 0.5:  # in the midst of a write
            with left.path.open("ab") as file:
                file.write(b'{"half":1}\n{"a ro')

    def _adopt(self) -> None:
        with killed_after(self._chance.choice((0, 1, 2, 99))):
            adopt_segments(self.directory, self._pick())

    def _compact(self) -> None:
        with killed_after(self._chance.choice((*range(12), 99, 99, 99))):
            compact(self.directory, RECEIPTS, self._table.compact)

    # -- messages

    def _redirect(self) -> None:
        rows = []
        for _ in range(self._chance.randint(1, 3)):
            pair = self._chance.choice(PAIRS)
            key = Key(pair, self._chance.choice(("orders", "carts")), f"m{self._chance.randint(0, 9)}")
            queue = f"{pair}/x-servicebus-transfer/{self._chance.randint(0, 1)}"
            is_sure = self._chance.random() < 0.85
            if not is_sure:
                self.unsure.add(key)
            if is_sure or self._chance.random() < 0.5:
                self._put(key, queue)
            record = RedirectRecord(
                message_id=key.message_id,
                path=key.path,
                session_id=None,
                queue=queue,
                at=self._clock.now(),
                outcome=None if is_sure else UNKNOWN,
            )
            rows.append(dataclasses.asdict(record))
        self._begin(REDIRECTS).append(rows)

    def _put(self, key: Key, queue: str, origin: int | None = None) -> None:
        self._numbers[queue] += 1
        known = self._numbers.total() if origin is None else origin
        self.waiting.append(Copy(key, queue, self._numbers[queue], self._clock.now(), known))

    def _move(self) -> None:
        taken = self.waiting[: self._chance.randint(1, 4)]
        if taken:
            self._begin(RECEIPTS).append(self._receipt(copy, "moved") for copy in taken)
            self.moved |= {copy.origin for copy in taken}
            if self._chance.random() < 0.9:  # else it comes again
                del self.waiting[: len(taken)]

    def _bury(self) -> None:
        if self.waiting:
            copy = self.waiting.pop(0)
            self.dead.append(copy)
            self._begin(RECEIPTS).append([self._receipt(copy, "dead-lettered")])

    def _redrive(self) -> None:
        if self.dead:
            copy = self.dead.pop(0)
            self._put(copy.key, copy.queue, copy.origin)

    def _receipt(self, copy: Copy, outcome: str) -> Row:
        milliseconds = round(copy.enqueued * 1000)
        return {
            "op": operation_id(copy.key.pair, copy.queue, copy.number, milliseconds),
            "writer": f"pump {self._names}",
            "path": copy.key.path,
            "message_id": copy.key.message_id,
            "backlog_queue": copy.queue,
            "moved": self._clock.now(),
            "outcome": outcome,
        }


class PlainVerdict(NamedTuple):
    """What can be told in plain Python."""

    redirected: int
    lost: int
    unclear: int
    gaps: list[str]

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.unclear or self.gaps)


def judge(
    directory: Path,
    waiting: Sequence[Copy],
    dead: Sequence[Copy],
    table: JsonTable = _JSON,
    *,
    since: float = 0.0,
) -> PlainVerdict:
    """As `verify` does it."""
    gaps: list[str] = []
    rows: dict[str, list[Row]] = {}
    for kind in (REDIRECTS, RECEIPTS):
        adopt_segments(directory, kind)
        files = RecordFiles.list(directory, kind)
        gaps += files.audit(must_succeed=kind == REDIRECTS).gaps
        read = [*files.opened.values(), *map(read_segment, files.closed)]
        gaps += [f"{one.bad} lines of {kind} cannot be read" for one in read if one.bad]
        rows[kind] = [row for one in read for row in one.rows] + table.read_all(files.table)
    counts = count_keys(rows, waiting, dead, since=since)
    return PlainVerdict(
        redirected=sum(count.redirected for count in counts),
        lost=sum(reckon(count).lost for count in counts),
        unclear=sum(reckon(count).unclear for count in counts),
        gaps=gaps,
    )


def count_keys(
    rows: dict[str, list[Row]], waiting: Iterable[Copy], dead: Iterable[Copy], *, since: float = 0.0
) -> list[KeyCounts]:
    redirected, unsure = Counter[Key](), Counter[Key]()
    first: dict[Key, float] = {}
    for row in rows[REDIRECTS]:
        is_whole = {"queue", "path", "message_id"} <= row.keys() and isinstance(row.get("at"), float)
        if is_whole and row["at"] >= since:
            key = Key(str(row["queue"]).partition("/")[0], row["path"], row["message_id"])
            first[key] = min(row["at"], first.get(key, row["at"]))
            (unsure if row.get("outcome") == UNKNOWN else redirected)[key] += 1
    signs: dict[tuple[Key, str], dict[str, int]] = defaultdict(
        lambda: {"has_arrived": 0, "lies_dead": 0, "lies_waiting": 0}
    )
    buried_once: set[tuple[Key, str]] = set()
    for row in rows[RECEIPTS]:
        if {"backlog_queue", "path", "message_id", "op", "outcome"} <= row.keys():
            key = Key(str(row["backlog_queue"]).partition("/")[0], row["path"], row["message_id"])
            copy_name = row["op"].partition(":")[2]
            if _moves(row):
                signs[key, copy_name]["has_arrived"] = 1
            if row["outcome"] == "dead-lettered":
                buried_once.add((key, copy_name))
    for sign, copies in (("lies_waiting", waiting), ("lies_dead", dead)):
        for copy in copies:
            signs[copy.key, copy.name][sign] = 1
    delivered, buried, left, echoed = Counter[Key](), Counter[Key](), Counter[Key](), Counter[Key]()
    bygone = Counter[Key]()
    for (key, name), shown in signs.items():
        told = name.rpartition(":")[2]
        came = int(told) / 1000 if told.isdecimal() else inf  # damaged
        if came < since and first.get(key, came + 61.0) - came > 60.0:
            bygone[key] += 1
            continue
        if (key, name) in buried_once and shown["has_arrived"] and not shown["lies_dead"]:
            echoed[key] += 1
        place = place_copy(**shown)
        delivered[key] += place.delivered
        buried[key] += place.dead_lettered
        left[key] += place.waiting
    keys = {*redirected, *unsure, *delivered, *buried, *left}
    return [
        KeyCounts(
            redirected=redirected[key],
            unsure=unsure[key],
            delivered=delivered[key],
            dead_lettered=buried[key],
            waiting=left[key],
            echoed=echoed[key],
            bygone=bygone[key],
        )
        for key in sorted(keys)
    ]

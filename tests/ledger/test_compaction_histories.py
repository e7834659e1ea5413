"""Compactions as they are, by Arrow, beside writers, kills, retention and rows made ready lose nothing."""

import os
import random
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from pairbus.clock import ManualClock
from pairbus.ledger import plain_compaction
from pairbus.ledger.plain_compaction import ReadyRows, compact_directory
from pairbus.ledger.receipts import KIND, merge_receipts
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.retention import DAY, trim
from pairbus.ledger.segment import SegmentWriter, adopt_segments, read_segment

from .histories import killed_after
from .test_receipts import receipt

BEGIN = 1_790_000_000.0
Row = dict[str, Any]


class History:
    """A world that is played from a seed."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.rows: list[Row] = []
        self.since = 0.0
        self._chance = random.Random(seed)
        self._clock = ManualClock(BEGIN)
        self._ready = ReadyRows()
        self._writers: list[SegmentWriter] = []

    def step(self) -> None:
        self._clock.advance(self._chance.choice((0.5, 60.0, DAY / 3)))
        deeds = (
            *[self._append] * 6,
            self._close,
            self._end,
            self._die,
            *[self._prepare] * 3,
            *[self._compact] * 2,
            self._be_killed,
            self._trim,
        )
        self._chance.choice(deeds)()

    def _append(self) -> None:
        if not self._writers or self._chance.random() < 0.2:
            self._writers.append(SegmentWriter(self.directory, KIND, clock=self._clock, is_chained=True))
        writer, now = self._chance.choice(self._writers), self._clock.now()
        rows = list[Row]()
        for _ in range(self._chance.randrange(1, 4)):
            if self.rows and self._chance.random() < 0.3:  # one that comes again
                again = self._chance.choice(self.rows)
                message, enqueued = again["message_id"], again["enqueued"]
            else:
                message, enqueued = f"m{len(self.rows) + len(rows)}", now - self._chance.random() * DAY
            outcome = self._chance.choice(("moved", "moved", "dead-lettered", "unknown"))
            told = {
                "op": message,
                "message_id": message,
                "enqueued": enqueued,
                "moved": now + len(rows) / 1e3,
            }
            more = {"writer": writer.writer, "outcome": outcome, "unsure": int(outcome == "unknown")}
            rows.append({**receipt(0), **told, **more})
        writer.append(rows)
        self.rows += rows

    def _close(self) -> None:
        for writer in self._writers:
            writer.close()

    def _end(self) -> None:
        if self._writers:
            self._writers.pop().close(ends=True)

    def _die(self) -> None:
        if self._writers and (left := self._writers.pop())._open is not None:
            left._open.abandon()
            left._open = None

    def _prepare(self) -> None:
        self._ready.add(self.directory)

    def _compact(self) -> None:
        compact_directory(self.directory, self._ready)

    def _be_killed(self) -> None:
        deed = self._chance.choice((self._compact, self._trim))
        with killed_after(self._chance.randrange(20)):
            deed()
        self._ready = ReadyRows()

    def _trim(self) -> None:
        before = (self._clock.now() - 3 * DAY) // DAY * DAY
        self.since = max(self.since, before - DAY)
        trim(self.directory, before=before)

    def finish(self) -> None:
        while self._writers:
            self._end()
        adopt_segments(self.directory, KIND)

    def check(self) -> None:
        files = RecordFiles.list(self.directory, KIND)
        audit = files.audit(must_succeed=False)
        assert audit.gaps == []
        assert files.table.manifest.since <= self.since
        found = [row for path in files.closed for row in read_segment(path).rows]
        found += [row for one in files.opened.values() for row in one.rows]
        tabled = [row for path in files.table.files for row in _read(path)]
        assert max(Counter(row["op"] for row in tabled).values(), default=1) == 1
        old = {row["op"] for row in self.rows if row["moved"] < self.since}
        expected = _sum_up(self.rows)
        kept = _sum_up([*found, *tabled])
        assert {op: kept[op] for op in kept if op not in old} == {
            op: expected[op] for op in expected if op not in old
        }


def _read(path: Path) -> list[Row]:
    return [
        {name: cell.timestamp() if isinstance(cell, datetime) else cell for name, cell in row.items()}
        for row in parquet.read_table(path).to_pylist()
    ]


def _sum_up(rows: list[Row]) -> dict[str, tuple[str, float, int, int]]:
    """By message: what became of it, when, and how often."""
    return {
        row["op"]: (row["outcome"], round(row["moved"], 3), row["unsure"], row["repeats"])
        for row in merge_receipts(rows)
    }


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine stops in the midst of these histories; and files are soon many."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(plain_compaction, "_MANY_FILES", 4)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_or_counted_twice(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    for _ in range(60):
        history.step()
        history.check()
    history.finish()
    history.check()

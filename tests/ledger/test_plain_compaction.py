"""Compaction without Spark: rows come into tables, and nothing is lost, doubled or passed over."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from pairbus.ledger import plain_compaction
from pairbus.ledger.commit_objects import CommitWriter
from pairbus.ledger.plain_compaction import _write_days, compact_plainly
from pairbus.ledger.receipts import KIND
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.segment import SegmentWriter
from pairbus.ledger.store_compaction import compact_store
from pairbus.ledger.store_files import StoreFiles, day_of
from pairbus.stores.store import DirectoryStore

from .test_receipts import receipt

DAY = 86_400.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_compaction, "WORTHWHILE", 2)
    monkeypatch.setattr(plain_compaction, "_MANY_FILES", 3)
    monkeypatch.setattr(plain_compaction, "_MOST_ROWS", 3)


def row(number: int, *, moved: float = 2.0) -> dict[str, Any]:
    return {**receipt(number), "moved": moved}


def ids(files: list[Path]) -> list[str]:
    return sorted(name for path in files for name in parquet.read_table(path)["message_id"].to_pylist())


def test_segments_become_a_table_of_few_files(tmp_path: Path) -> None:
    number = 0
    for _ in range(6):
        for _ in range(2):
            writer = SegmentWriter(tmp_path, KIND, is_chained=True)
            for _ in range(2):
                writer.append([row(number), row(number + 1)])
                number += 2
            writer.close(ends=True)
        assert compact_plainly(tmp_path).segments == 2
        files = RecordFiles.list(tmp_path, KIND)
        assert ids(files.table.files) == sorted(f"m{one}" for one in range(number))
        assert files.audit(must_succeed=False).gaps == []
        assert len(files.table.files) <= 5
    assert compact_plainly(tmp_path).table is None, "there is nothing to do"
    table = parquet.read_table(files.table.files[0])
    assert table["moved"][0].as_py() == datetime.fromtimestamp(2.0, UTC)


def test_objects_become_files_by_day(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    writer = CommitWriter(store, KIND, is_chained=True, gather=0.0)
    for number in range(6):
        writer.append([row(number), row(number + 100, moved=2.0 + DAY * (number % 2))])
        compact_store(store, KIND, _write_days)
        files = StoreFiles.list(store, KIND)
        assert files.audit(must_succeed=False).gaps == []
        assert len(ids([tmp_path / name for name in files.table.files])) == 2 * (number + 1)
        days = [day_of(name) for name in files.table.files]
        assert days.count("1970-01-01") <= 3
    assert set(days) == {"1970-01-01", "1970-01-02"}


def test_rows_that_are_none_are_counted(tmp_path: Path) -> None:
    for odd in ({"moved": "soon"}, {"outcome": "maybe"}):
        writer = SegmentWriter(tmp_path, KIND, is_chained=True)
        writer.append([row(1), {**row(2), **odd}])
        writer.close(ends=True)
    assert compact_plainly(tmp_path).bad == 2
    assert RecordFiles.list(tmp_path, KIND).table.manifest.bad == 2

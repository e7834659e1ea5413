"""Receipts as tables: read whole beside compactions, and what of them cannot be read is told."""

import asyncio
import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

from pairbus.client.state.records import KIND as REDIRECTS
from pairbus.client.state.records import RedirectRecord
from pairbus.clock import ManualClock
from pairbus.ledger import rereading
from pairbus.ledger.generation import lock_of
from pairbus.ledger.receipts import Receipt, ReceiptLog
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.retention import DAY, trim
from pairbus.ledger.segment import SegmentWriter
from pairbus.plumbing.files import hold_alone
from pairbus.spark import (
    compact_receipts,
    load_receipts,
)
from pairbus.spark.receipts import read_receipts
from pairbus.spark.redirects import _Found, read_redirects
from tests.ledger.test_receipts import receipt

pytestmark = pytest.mark.timeout(900)


@pytest.mark.long
def test_receipts_are_read_whole_beside_compactions(spark: Any, tmp_path: Path) -> None:
    """Whoever reads sees all, whatever a compaction that runs all the time has just removed."""
    ended, written, compactions = threading.Event(), list[int](), list[Path]()

    def compact_all_the_time() -> None:
        while not ended.is_set():
            number = len(written)
            asyncio.run(keep(tmp_path, [receipt(number)]))
            written.append(number)
            table = compact_receipts(spark, tmp_path).table
            compactions.extend([table] if table is not None else [])

    compactor = threading.Thread(target=compact_all_the_time)
    compactor.start()
    try:
        for _ in range(3):
            before = len(written)
            found = read_receipts(spark, tmp_path)
            seen = {row["sequence_number"] for row in found.rows.select("sequence_number").collect()}
            assert seen >= set(range(before)), "nothing that was there is missing"
            assert found.gaps == ()
    finally:
        ended.set()
        compactor.join()
    assert compactions
    assert read_receipts(spark, tmp_path).rows.count() == len(written)


def test_records_that_are_removed_while_they_are_read_are_read_anew(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in (DAY, 5 * DAY):
        writer = SegmentWriter(tmp_path, REDIRECTS, clock=ManualClock(at), is_chained=True)
        queue = "contoso/x-servicebus-transfer/0"
        record = RedirectRecord(message_id=str(at), path="orders", session_id=None, queue=queue, at=at)
        writer.append([dataclasses.asdict(record)])
        writer.close(ends=True)
    load = _Found.load
    trimmed: list[int] = []

    def load_late(found: _Found, spark: Any) -> Any:
        trimmed.append(trim(tmp_path, before=3 * DAY).redirects)
        return load(found, spark)

    monkeypatch.setattr(_Found, "load", load_late)
    read = read_redirects(spark, [tmp_path], ["contoso"])
    assert trimmed == [1, 0]
    assert [row["at"] for row in read.rows.collect()] == [5 * DAY]
    assert (read.gaps, read.since) == ((), 3 * DAY)


def test_who_meets_compactions_again_and_again_keeps_them_out(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(keep(tmp_path, [receipt(0)]))
    looks: list[bool] = []

    def are_there(files: RecordFiles) -> bool:
        """As if a compaction had come meanwhile, as long as one may."""
        with hold_alone(lock_of(files.directory)) as lock:
            looks.append(lock is not None)
            return lock is None

    monkeypatch.setattr(RecordFiles, "are_there", are_there)
    monkeypatch.setattr(rereading, "_READINGS", 1)
    assert load_receipts(spark, tmp_path).count() == 1
    assert looks == [True, False]


async def keep(records: Path, rows: list[Receipt]) -> None:
    log = ReceiptLog(records)
    await log.append(rows)
    await log.close()


async def test_receipts_that_cannot_be_read_are_told_for_ever(spark: Any, tmp_path: Path) -> None:
    for number in range(2):
        await keep(tmp_path, [receipt(number)])
        (segment,) = tmp_path.glob("receipts-*.jsonl")
        segment.write_bytes(segment.read_bytes() + b"{torn\n")
        assert compact_receipts(spark, tmp_path).bad == 1
    rows, gaps = read_receipts(spark, tmp_path)[:2]
    assert rows.count() == 2
    assert [gap.partition(" in ")[0] for gap in gaps] == [
        "2 receipts cannot be read",
        *["1 lines without a link are"] * 2,
    ]
    assert len(list(tmp_path.glob("*.damaged"))) == 2


async def test_a_table_that_was_edited_is_told_and_set_aside(spark: Any, tmp_path: Path) -> None:
    await keep(tmp_path, [receipt(0)])
    table = compact_receipts(spark, tmp_path).table
    assert table is not None
    (part,) = table.glob("*.parquet")
    part.write_bytes(part.read_bytes().replace(b"m0", b"m7"))
    rows, gaps = read_receipts(spark, tmp_path)[:2]
    assert (rows.count(), gaps) == (0, (f"{part} was edited",))
    await keep(tmp_path, [receipt(1)])
    compact_receipts(spark, tmp_path)
    rows, gaps = read_receipts(spark, tmp_path)[:2]
    assert (rows.count(), gaps) == (1, (f"{part} was edited",))
    assert table.with_name(f"{table.name}.damaged").is_dir()


@pytest.mark.long
async def test_sends_that_may_have_arrived_are_counted_once(spark: Any, tmp_path: Path) -> None:
    """Whatever is compacted when: rows of one message are told apart by writer and time."""
    unsure: list[Receipt] = [{**receipt(0, "unknown"), "unsure": 1, "moved": at} for at in (1.0, 9.0)]
    again: Receipt = {**receipt(0), "writer": "next", "moved": 3.0}
    for rows in ([*unsure, receipt(0)], [again], [receipt(1)]):
        await keep(tmp_path, rows)
        compact_receipts(spark, tmp_path)
    found = {row["message_id"]: row for row in load_receipts(spark, tmp_path).collect()}
    assert [(row["outcome"], row["unsure"], row["repeats"]) for _, row in sorted(found.items())] == [
        ("moved", 2, 1),
        ("moved", 0, 0),
    ]

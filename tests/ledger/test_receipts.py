"""Receipts: durable when told, shared fsyncs, one row a message for who reads them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pairbus.ledger.receipts import KIND, MemoryReceipts, Receipt, ReceiptLog, operation_id
from pairbus.ledger.segment import SegmentWriter, adopt_segments, closed_segments

from .receipts import read_receipts


def receipt(number: int, outcome: str = "moved") -> Receipt:
    return {
        "op": operation_id("contoso", "q", number, 5),
        "pair": "contoso",
        "writer": "w",
        "path": "orders",
        "session": None,
        "message_id": f"m{number}",
        "backlog_queue": "q",
        "sequence_number": number,
        "enqueued": 1.0,
        "moved": 2.0,
        "bytes": 10,
        "attempts": 1,
        "outcome": outcome,
        "reason": None,
    }


async def test_rows_of_one_message_are_one_receipt(tmp_path: Path) -> None:
    log = ReceiptLog(tmp_path)
    await log.append([receipt(1), receipt(2)])
    await log.append([receipt(1, "dead-lettered")])
    await log.append([])
    await log.close()
    found = read_receipts(closed_segments(tmp_path, KIND))
    assert {row["message_id"]: row["outcome"] for row in found.values()} == {
        "m1": "dead-lettered",
        "m2": "moved",
    }


async def test_a_receipt_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Whatever text an application has put into its ids: quotes, newlines, a lone surrogate."""
    plain = receipt(1)
    odd = receipt(2, "dead-lettered")
    odd["message_id"] = 'a "quoted"\n\\ id \ud800 ü'
    odd["session"] = odd["reason"] = odd["path"] = odd["writer"] = odd["message_id"]
    odd["enqueued"], odd["moved"], odd["sequence_number"] = 1.8e9 + 0.123456789, 1e-7, 2**63 - 1
    log = ReceiptLog(tmp_path)
    await log.append([plain, odd])
    await log.close()
    assert list(read_receipts(closed_segments(tmp_path, KIND)).values()) == [plain, odd]


async def test_rows_are_durable_before_the_segment_is_closed(tmp_path: Path) -> None:
    log = ReceiptLog(tmp_path)
    await log.append([receipt(1)])
    (left,) = tmp_path.glob(".receipts-*")
    assert b'"m1"' in left.read_bytes()
    assert closed_segments(tmp_path, KIND) == []
    await log.close()
    assert len(closed_segments(tmp_path, KIND)) == 1
    assert adopt_segments(tmp_path, KIND) == []


async def test_rows_that_come_together_share_an_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    original = SegmentWriter.append

    def count(self: SegmentWriter, rows: object) -> None:
        nonlocal calls
        calls += 1
        original(self, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(SegmentWriter, "append", count)
    log = ReceiptLog(tmp_path)
    await asyncio.gather(*(log.append([receipt(number)]) for number in range(100)))
    await log.close()
    assert calls <= 3
    assert len(read_receipts(closed_segments(tmp_path, KIND))) == 100


async def test_what_cannot_be_written_is_an_error_for_everybody_who_waits(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    log = ReceiptLog(blocked / "records")
    results = await asyncio.gather(log.append([receipt(1)]), log.append([receipt(2)]), return_exceptions=True)
    assert all(isinstance(result, OSError) for result in results)
    await log.close()


async def test_memory_receipts() -> None:
    kept = MemoryReceipts()
    await kept.append([receipt(1)])
    await kept.close()
    assert [row["message_id"] for row in kept.rows] == ["m1"]

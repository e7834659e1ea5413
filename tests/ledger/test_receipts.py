"""Receipts: durable when told, shared fsyncs, one row a message for who reads them."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.ledger.receipts import KIND, MemoryReceipts, Receipt, ReceiptLog, operation_id
from pairbus.ledger.segment import SegmentWriter, adopt_segments, closed_segments
from tests.examples import examples

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
        "unsure": 0,
        "repeats": 0,
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


async def test_a_receipt_on_the_disk_has_every_column(tmp_path: Path) -> None:
    log = ReceiptLog(tmp_path)
    await log.append([receipt(1)])
    await log.close()
    (row,) = read_receipts(closed_segments(tmp_path, KIND)).values()
    assert list(row) == list(Receipt.__annotations__), "give it its place in `_encode` of ledger/receipts.py"


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

    def count(self: SegmentWriter, rows: Iterable[object], *, is_synced: bool) -> None:
        nonlocal calls
        calls += 1
        assert is_synced
        original(self, rows)

    monkeypatch.setattr(SegmentWriter, "append", count)
    log = ReceiptLog(tmp_path)
    await asyncio.gather(*(log.append([receipt(number)]) for number in range(100)))
    await log.close()
    assert calls <= 10, "three, and one more for whoever was held up half-way"
    assert len(read_receipts(closed_segments(tmp_path, KIND))) == 100


async def test_what_cannot_be_written_is_an_error_for_everybody_who_waits(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    log = ReceiptLog(blocked / "records")
    results = await asyncio.gather(log.append([receipt(1)]), log.append([receipt(2)]), return_exceptions=True)
    assert all(isinstance(result, OSError) for result in results)
    await log.close()


async def test_a_row_that_cannot_be_written_is_told_and_the_next_one_is_kept(tmp_path: Path) -> None:
    log = ReceiptLog(tmp_path)
    lame = receipt(2)
    del lame["outcome"]  # type: ignore[misc]
    async with asyncio.timeout(40):
        told = await asyncio.gather(
            log.append([receipt(1)]), log.append([lame]), log.append([receipt(3)]), return_exceptions=True
        )
        assert isinstance(told[1], KeyError)
        await log.append([receipt(4)])
        await log.close()
    kept = {row["message_id"] for row in read_receipts(closed_segments(tmp_path, KIND)).values()}
    assert kept == {"m4", *(f"m{number}" for number in (1, 3) if told[number - 1] is None)}


_AFTER_THE_MAIN_THREAD = """
import asyncio, sys, threading
from pathlib import Path
from pairbus.ledger.receipts import ReceiptLog
from tests.ledger.test_receipts import receipt

async def work():
    log = ReceiptLog(Path(sys.argv[1]))
    while threading.main_thread().is_alive():
        await asyncio.sleep(0.01)
    async with asyncio.timeout(40):
        await log.append([receipt(1)])
        await log.append([receipt(2)])
        await log.close()

threading.Thread(target=lambda: asyncio.run(work())).start()
"""


def test_receipts_are_kept_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    """Other threads of an application may go on."""
    command = [sys.executable, "-c", _AFTER_THE_MAIN_THREAD, str(tmp_path)]
    done = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert done.stderr == ""
    assert len(read_receipts(closed_segments(tmp_path, KIND))) == 2


class FailingDisk:
    """Fails those of the calls that write and sync that it is told to."""

    def __init__(self, plan: list[str]) -> None:
        self._plan = iter(plan)

    def watched(self, name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(descriptor: int, *args: Any) -> Any:
            if next(self._plan, None) == name:
                if name == "write":
                    original(descriptor, args[0][: len(args[0]) // 2])
                raise OSError(f"{name} failed")
            return original(descriptor, *args)

        return call


@settings(max_examples=examples(60), deadline=None)
@given(
    plan=st.lists(st.sampled_from(["write", "fsync", "ftruncate", "well", "well"]), max_size=12),
    groups=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    impatient=st.sets(st.integers(0, 20)),
)
def test_whatever_the_disk_does_what_was_acknowledged_is_there(
    plan: list[str], groups: list[int], impatient: set[int]
) -> None:
    async def play(directory: Path) -> list[str]:
        log, acknowledged, begin = ReceiptLog(directory), list[str](), 0
        for size in groups:
            tasks = {
                number: asyncio.create_task(log.append([receipt(number)]))
                for number in range(begin, begin + size)
            }
            begin += size
            await asyncio.sleep(0)
            for number in impatient & tasks.keys():
                tasks[number].cancel()
            await asyncio.wait(tasks.values(), timeout=40)
            assert all(task.done() for task in tasks.values()), "every append ends"
            acknowledged += [
                f"m{number}"
                for number, task in tasks.items()
                if not task.cancelled() and task.exception() is None
            ]
        with suppress(OSError):
            await log.close()
        return acknowledged

    disk = FailingDisk(plan)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        for call in ("write", "fsync", "ftruncate"):
            patch.setattr(os, call, disk.watched(call))
        acknowledged = asyncio.run(play(Path(name)))
        patch.undo()
        adopt_segments(Path(name), KIND)
        kept = {row["message_id"] for row in read_receipts(closed_segments(Path(name), KIND)).values()}
    assert set(acknowledged) <= kept


async def test_memory_receipts() -> None:
    kept = MemoryReceipts()
    await kept.append([receipt(1)])
    await kept.close()
    assert [row["message_id"] for row in kept.rows] == ["m1"]

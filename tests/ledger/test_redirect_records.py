"""Redirect records on the disk: durable when append returns, one fsync for many, never in a send's way."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from pairbus.client.state.records import KIND, RedirectRecord, SegmentRecords
from pairbus.ledger import closed_segments, read_segment
from tests.waiting import eventually


def record(number: int) -> RedirectRecord:
    return RedirectRecord(
        message_id=f"m{number}",
        path="orders",
        session_id=None if number % 2 else "s",
        queue="contoso/x-servicebus-transfer/0",
        at=1_700_000_000.25,
    )


def ids_in(directory: Path) -> list[str]:
    return [row["message_id"] for path in closed_segments(directory, KIND) for row in read_segment(path).rows]


async def test_a_record_is_on_the_disk_when_append_returns(tmp_path: Path) -> None:
    directory = tmp_path / "state" / "records"
    records = SegmentRecords(directory)
    await records.append([record(1)])
    (path,) = directory.glob(f".{KIND}-*")
    assert read_segment(path).rows == [
        {
            "message_id": "m1",
            "path": "orders",
            "session_id": None,
            "queue": "contoso/x-servicebus-transfer/0",
            "at": 1_700_000_000.25,
            "outcome": None,
        }
    ]
    await records.append([])
    await records.append([record(2), record(3)])
    await records.close()
    assert ids_in(directory) == ["m1", "m2", "m3"]
    assert records.lost == 0


async def test_sends_that_end_together_share_an_fsync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = 0
    fsync = os.fsync

    def count(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", count)
    records = SegmentRecords(tmp_path)
    await asyncio.gather(*(records.append([record(number)]) for number in range(500)))
    await records.close()
    assert sorted(ids_in(tmp_path)) == sorted(f"m{number}" for number in range(500))
    assert syncs < 10


async def test_a_segment_that_nobody_writes_to_is_closed_by_its_age(tmp_path: Path) -> None:
    records = SegmentRecords(tmp_path, max_age=0.05)
    await records.append([record(1)])
    async with asyncio.timeout(40):
        await eventually(lambda: closed_segments(tmp_path, KIND))
    await records.append([record(2)])
    await records.close()
    assert ids_in(tmp_path) == ["m1", "m2"]


async def test_what_earlier_processes_left_is_adopted_with_the_first_record(tmp_path: Path) -> None:
    (tmp_path / f".{KIND}-0-a.jsonl.open").write_bytes(b'{"message_id":"earlier"}\n{"mess')
    records = SegmentRecords(tmp_path)
    await records.append([record(1)])
    await records.close()
    assert ids_in(tmp_path) == ["earlier", "m1"]


async def test_a_disk_that_takes_nothing_is_told_and_counted_and_fails_no_send(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    in_the_way = tmp_path / "records"
    in_the_way.write_text("a file")
    records = SegmentRecords(in_the_way)
    with caplog.at_level(logging.ERROR, logger="pairbus.client"):
        await records.append([record(1), record(2)])
    assert records.lost == 2
    assert "cannot write redirect records" in caplog.text
    in_the_way.unlink()
    await records.append([record(3)])
    await records.close()
    assert ids_in(in_the_way) == ["m3"]
    assert records.lost == 2


async def test_a_caller_that_is_cancelled_harms_nobody(tmp_path: Path) -> None:
    records = SegmentRecords(tmp_path)
    impatient = asyncio.create_task(records.append([record(1)]))
    patient = asyncio.create_task(records.append([record(2)]))
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    await records.close()
    assert ids_in(tmp_path) == ["m1", "m2"]

"""Redirect records: safe from a kill when append returns, one write for many, never in the way of a send."""

import asyncio
import logging
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pairbus.client.state import records as records_module
from pairbus.client.state.records import KIND, RedirectRecord, SegmentRecords
from pairbus.ledger import segment, segment_log
from pairbus.ledger.chain import ChainHead, read_heads
from pairbus.ledger.segment import closed_segments, read_segment
from pairbus.options import RecordsSync
from pairbus.plumbing.files import write_all
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
    records = SegmentRecords(tmp_path, sync="always")
    await asyncio.gather(*(records.append([record(number)]) for number in range(500)))
    await records.close()
    assert sorted(ids_in(tmp_path)) == sorted(f"m{number}" for number in range(500))
    assert syncs < 10


class Disk:
    """Knows how much of each file was synced, and can fail to sync."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: dict[int, int] = {}
        self.fails = False
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self.sync)

    def sync(self, descriptor: int) -> None:
        if self.fails:
            raise OSError(5, "Input/output error")
        self._fsync(descriptor)
        found = os.fstat(descriptor)
        self.synced[found.st_ino] = found.st_size

    def has(self, path: Path) -> bool:
        """Whether all of a file is there after a power cut."""
        found = path.stat()
        return self.synced.get(found.st_ino, 0) == found.st_size


def open_segment(directory: Path) -> Path:
    (path,) = directory.glob(f".{KIND}-*.open")
    return path


async def test_a_send_waits_for_the_disk_only_if_records_are_always_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    always = SegmentRecords(tmp_path / "always", sync="always")
    await always.append([record(1)])
    assert disk.has(open_segment(tmp_path / "always"))
    background = SegmentRecords(tmp_path / "background")
    await background.append([record(1)])
    # Nothing was let go since, so that no timer can have run.
    assert not disk.has(open_segment(tmp_path / "background"))
    async with asyncio.timeout(40):
        await eventually(lambda: disk.has(open_segment(tmp_path / "background")))
    await background.append([record(2)])
    await background.close()
    (path,) = closed_segments(tmp_path / "background", KIND)
    assert disk.has(path)
    await always.close()


@dataclass
class Writes:
    """The threads that wrote records."""

    threads: list[str] = field(default_factory=list)
    takes: float = 0.0
    burns: float = 0.0
    error: OSError | None = None

    def write(self, descriptor: int, data: bytes) -> None:
        self.threads.append(threading.current_thread().name)
        error, self.error = self.error, None
        if error is not None:
            raise error
        write_all(descriptor, data)
        if self.takes:
            time.sleep(self.takes)
        ends = time.monotonic() + self.burns
        while time.monotonic() < ends:
            pass


HERE, THREAD = threading.main_thread().name, f"pairbus-{KIND}"


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    noted = Writes()
    monkeypatch.setattr(segment, "write_all", noted.write)
    return noted


async def records_in_place(path: Path, monkeypatch: pytest.MonkeyPatch, writes: Writes) -> SegmentRecords:
    """Records that are written in place from now on: nothing is synced before they are closed."""
    monkeypatch.setattr(segment_log, "_SYNC_AFTER", 3600.0)
    monkeypatch.setattr(segment_log, "_LONG", 3600.0)  # however late the machine is
    records = SegmentRecords(path)
    await write_until_in_place(records, writes)
    return records


async def write_until_in_place(records: SegmentRecords, writes: Writes) -> None:
    async with asyncio.timeout(40):  # the thread may still have to note that it has ended its work
        while writes.threads[-1:] != [HERE]:
            await records.append([record(len(writes.threads))])


async def test_only_what_has_to_open_a_segment_goes_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: Writes
) -> None:
    records = await records_in_place(tmp_path, monkeypatch, writes)
    assert writes.threads[0] == THREAD
    await records.close()
    assert ids_in(tmp_path) == [f"m{number}" for number in range(len(writes.threads))]


def hang(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """From now on the disk hangs in a sync: when one has begun, and what lets it go on."""
    begun, allowed, fsync = threading.Event(), threading.Event(), os.fsync

    def sync(descriptor: int) -> None:
        begun.set()
        assert allowed.wait(40)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    return begun, allowed


async def test_a_disk_that_hangs_in_a_sync_stops_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: Writes
) -> None:
    records = SegmentRecords(tmp_path)
    await records.append([record(0)])
    begun, allowed = hang(monkeypatch)
    assert await asyncio.to_thread(begun.wait, 40)
    waiting = asyncio.create_task(records.append([record(1)]))
    await asyncio.sleep(0)  # the loop goes on, and the record waits
    assert not waiting.done()
    allowed.set()
    await asyncio.wait_for(waiting, 40)
    assert writes.threads == [THREAD, THREAD]
    await records.close()
    assert ids_in(tmp_path) == ["m0", "m1"]


async def test_what_cannot_be_written_in_place_counts_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: Writes
) -> None:
    records = await records_in_place(tmp_path, monkeypatch, writes)
    writes.error = OSError(28, "No space left on device")
    await records.append([record(1)])
    assert (writes.threads[-1], records.lost) == (HERE, 1)
    await records.append([record(2)])
    await records.close()
    assert (ids_in(tmp_path)[-1], records.lost) == ("m2", 1)


async def test_after_a_write_that_waited_long_none_is_made_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: Writes
) -> None:
    records = await records_in_place(tmp_path, monkeypatch, writes)
    monkeypatch.setattr(segment_log, "_LONG", 0.005)
    writes.takes = 0.01
    for number in range(3):
        await records.append([record(number)])
    assert writes.threads[-3:] == [HERE, THREAD, THREAD]
    await records.close()


async def test_a_write_that_only_had_no_processor_leaves_no_more_than_the_next_to_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: Writes
) -> None:
    records = await records_in_place(tmp_path, monkeypatch, writes)
    monkeypatch.setattr(segment_log, "_LONG", 0.005)
    # The system counts a wait for the interpreter's lock, too, and whoever works beside us may want it.
    monkeypatch.setattr(segment_log, "_count_waits", lambda: 7)
    writes.burns = 0.01
    for number in range(2):
        await records.append([record(number)])
    assert writes.threads[-2:] == [HERE, THREAD]
    await write_until_in_place(records, writes)
    await records.close()


async def test_rows_that_could_not_be_synced_are_counted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(monkeypatch)
    records = SegmentRecords(tmp_path)
    await records.append([record(1), record(2)])
    disk.fails = True
    async with asyncio.timeout(40):
        await eventually(lambda: "cannot bring redirects to the disk" in caplog.text)
    assert records.lost == 2
    disk.fails = False
    await records.append([record(3)])
    await records.close()
    assert records.lost == 2
    assert ids_in(tmp_path) == ["m3"]


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


async def test_what_a_cancelled_caller_wanted_kept_is_synced_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a send whose time is over: nobody else may come for long."""
    disk = Disk(monkeypatch)
    records = SegmentRecords(tmp_path)
    impatient = asyncio.create_task(records.append([record(1)]))
    await asyncio.sleep(0)
    impatient.cancel()
    async with asyncio.timeout(40):
        await eventually(lambda: list(tmp_path.glob(f".{KIND}-*.open")))
        path = open_segment(tmp_path)
        await eventually(lambda: path.stat().st_size and disk.has(path))
    await records.close()
    assert ids_in(tmp_path) == ["m1"]


async def test_who_is_closed_while_a_record_is_written_leaves_no_thread_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, allowed = hang(monkeypatch)
    monkeypatch.setattr(segment_log, "_SYNC_AFTER", 3600.0)
    records = SegmentRecords(tmp_path)
    writing = asyncio.create_task(records.append([record(1)]))
    await eventually(begun.is_set)
    closing = asyncio.create_task(records.close())
    await asyncio.sleep(0)
    allowed.set()
    await asyncio.wait_for(asyncio.gather(writing, closing), 40)
    await eventually(lambda: records._thread._thread is None)
    assert records._sync is not None
    records._sync.cancel()
    records._sync_soon()  # what was to come later, comes now
    assert records._thread._thread is None
    assert ids_in(tmp_path) == ["m1"]


@pytest.mark.parametrize("together", [1, 2])
async def test_behind_a_disk_that_hangs_only_so_many_records_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, together: int
) -> None:
    """Sends go on meanwhile, for hours perhaps, and none of them waits for its own."""
    begun, allowed = hang(monkeypatch)
    monkeypatch.setattr(records_module, "_MOST_WAITING", 5)
    records = SegmentRecords(tmp_path, max_age=3600.0)
    for number in range(0, 20, together):
        rows = [record(each) for each in range(number, number + together)]
        sending = asyncio.create_task(records.append(rows))
        await asyncio.sleep(0)
        sending.cancel()
        await eventually(begun.is_set)
    held = 5 if together == 1 else 6
    assert records.lost == 20 - together - held, "one send is being written"
    assert caplog.text.count("are lost until it does") == 1
    allowed.set()
    await eventually(lambda: told_lost(tmp_path) == records.lost, what="it is told, though nothing follows")
    await asyncio.wait_for(records.append([record(20)]), 40)
    await records.close()
    assert ids_in(tmp_path) == [*(f"m{number}" for number in range(together + held)), "m20"]
    assert told_lost(tmp_path) == records.lost == 20 - together - held


async def test_each_time_that_records_are_lost_behind_a_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(records_module, "_MOST_WAITING", 1)
    records = SegmentRecords(tmp_path, sync="always", max_age=3600.0)
    for times in (1, 2):
        with monkeypatch.context() as patch:
            begun, allowed = hang(patch)
            sends = []
            for number in range(3):
                sends.append(asyncio.create_task(records.append([record(number)])))
                await asyncio.sleep(0)
                await eventually(begun.is_set)
            allowed.set()
            await asyncio.wait_for(asyncio.gather(*sends), 40)
            await eventually(lambda: told_lost(tmp_path) == records.lost)
            assert records.lost == times
    assert caplog.text.count("are lost until it does") == 2
    await records.close()


@pytest.mark.parametrize("sync", ["always", "background"])
async def test_what_a_full_disk_has_cost_is_told_as_soon_as_it_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: RecordsSync
) -> None:
    """The head could not be written either, and the segment may stay open for a minute."""
    records = SegmentRecords(tmp_path, sync=sync, max_age=3600.0)
    await records.append([record(1)])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(segment, "write_all", fail)
        full.setattr(ChainHead, "publish", fail)
        await records.append([record(2), record(3)])
    assert (records.lost, told_lost(tmp_path)) == (2, 0)
    await records.append([record(4)])
    await eventually(lambda: told_lost(tmp_path) == 2)
    await records.close()


def told_lost(directory: Path) -> int:
    return sum(found.head.lost for found in read_heads(directory, KIND) if found.head is not None)

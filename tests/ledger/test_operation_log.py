"""The writer of operations: what it keeps, what a killed process loses at most, and how that shows."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from pairbus.clock import ManualClock
from pairbus.ledger.operation_log import HEARTBEAT, OperationLog
from pairbus.ledger.operations import (
    KIND,
    Ledger,
    OutageMark,
    WriterMark,
    find_gaps,
    parse_row,
    read_operations,
    sight_outages,
)
from pairbus.ledger.segment import SegmentWriter, adopt_segments, closed_segments, read_segment
from pairbus.metering import units
from pairbus.stages import Stage
from tests.waiting import PATIENCE

NOON = 1_763_208_000.0  # a full hour


def read(directory: Path) -> Ledger:
    adopt_segments(directory, KIND)
    return read_operations(closed_segments(directory, KIND))


def log_at(directory: Path, clock: ManualClock) -> OperationLog:
    return OperationLog(directory, role="client", pair="contoso", writer="w", clock=clock)


def send(log: OperationLog, count: int = 1, **values: Any) -> None:
    log.record("contoso", "orders", stage=Stage.SEND, kind="send", count=count, **values)


def test_operations_of_a_minute_are_one_row(tmp_path: Path) -> None:
    clock = ManualClock(start=NOON)
    log = log_at(tmp_path, clock)
    for _ in range(5):
        send(log, 2, size=100)
    send(log, unknown=1, count=0)
    send(log, size=70_000, size_class=units(70_000))
    clock.advance(60)
    send(log)
    log.flush("interval")
    log.start()
    log.close()
    rows = read(tmp_path).operations
    assert [(row.minute - NOON, row.size_class, row.count, row.unknown, row.bytes) for row in rows] == [
        (0, 1, 10, 1, 500),
        (0, 2, 1, 0, 70_000),
        (60, 1, 1, 0, 0),
    ]
    assert {row.units for row in rows} == {10, 2, 1}


def test_bytes_are_those_of_what_was_certainly_done(tmp_path: Path) -> None:
    log = log_at(tmp_path, ManualClock(start=NOON))
    send(log, 2, size=100)
    send(log, count=0, unknown=1, size=70)
    log.start()
    log.close()
    (row,) = read(tmp_path).operations
    assert (row.count, row.unknown, row.bytes) == (2, 1, 100)


def test_a_writer_with_nothing_to_tell_says_so_now_and_then(tmp_path: Path) -> None:
    clock = ManualClock(start=NOON)
    log = log_at(tmp_path, clock)
    log.flush("begin")
    for _ in range(12):
        clock.advance(10)
        log.flush("interval")
    log.start()
    log.close()
    marks = [mark.at - NOON for mark in read(tmp_path).writers if mark.phase == "interval"]
    assert marks == [HEARTBEAT, 2 * HEARTBEAT]


def test_what_a_full_disk_did_not_take_is_written_later_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = log_at(tmp_path, ManualClock(start=NOON))
    send(log, 3)
    sync = os.fsync
    with monkeypatch.context() as broken:

        def fail(descriptor: int) -> None:
            sync(descriptor)
            raise OSError("the disk is gone")  # and yet the rows are there

        broken.setattr(os, "fsync", fail)
        log.flush("interval")
        send(log, 4)
        log.flush("interval")
    log.flush("interval")
    log.start()
    log.close()
    ledger = read(tmp_path)
    assert sum(row.count for row in ledger.operations) == 7
    assert ledger.bad == 0


CHILD = """
    import os, signal, sys
    from pathlib import Path
    from pairbus.stages import Stage
    from pairbus.ledger.operation_log import OperationLog
    log = OperationLog(Path(sys.argv[1]), role="client", pair="contoso", writer="killed")
    log.flush("begin")
    log.record("contoso", "orders", stage=Stage.SEND, kind="send", count=5)
    log.flush("interval")
    log.record("contoso", "orders", stage=Stage.SEND, kind="send", count=100)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_loses_the_open_interval_and_leaves_a_gap(tmp_path: Path) -> None:
    child = [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path)]
    assert subprocess.run(child, check=False, timeout=50).returncode == -signal.SIGKILL
    assert closed_segments(tmp_path, KIND) == []
    ledger = read(tmp_path)
    assert [row.count for row in ledger.operations] == [5]
    last = max(mark.at for mark in ledger.writers)
    assert find_gaps(ledger.writers, now=last + 100, patience=1800) == []  # it may be alive
    (gap,) = find_gaps(ledger.writers, now=last + 2000, patience=1800)
    assert (gap.writer, gap.begins, gap.ends) == ("killed", last, last + HEARTBEAT)


def test_a_writer_that_ended_leaves_no_gap(tmp_path: Path) -> None:
    log = log_at(tmp_path, ManualClock(start=NOON))
    log.start()
    log.close()
    assert find_gaps(read(tmp_path).writers, now=NOON + 10**6, patience=1800) == []


def mark(at: float, *, begins: bool, outage: str = "o", writer: str = "w") -> OutageMark:
    identity = f"{writer}{at}{begins}"
    return OutageMark(id=identity, writer=writer, pair="p", entity="e", outage=outage, begins=begins, at=at)


def test_an_outage_that_its_client_did_not_outlive_ends_with_the_client() -> None:
    heard = WriterMark(id="1", writer="w", role="client", pair="p", phase="interval", at=500.0, every=60.0)
    begun = [mark(100.0, begins=True)]
    (alive,) = sight_outages(begun, [heard], now=600.0, patience=1800)
    (dead,) = sight_outages(begun, [heard], now=6000.0, patience=1800)
    (over,) = sight_outages([*begun, mark(200.0, begins=False)], [heard], now=6000.0, patience=1800)
    assert (alive.ends, dead.ends, over.ends) == (None, 500.0, 200.0)


GOOD: dict[str, Any] = {
    "row": "operation", "id": "1", "writer": "w", "role": "pump", "pair": "p", "namespace": "n",
    "entity": "e", "stage": "idle", "kind": "empty_receive", "size_class": 1, "minute": 60, "outage": None,
    "count": 1, "unknown": 0, "bytes": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"count": -1}, {"count": "1"}, {"count": 1.5}, {"count": True}, {"stage": "theft"}, {"role": "thief"},
        {"size_class": 0}, {"id": None}, {"row": "other"}, {"row": None}, {"minute": None},
        {"minute": 10**15}, {"count": 10**18},
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_billed_is_bad(change: dict[str, Any], tmp_path: Path) -> None:
    assert parse_row(GOOD) is not None
    assert parse_row({**GOOD, **change}) is None
    writer = SegmentWriter(tmp_path, KIND)
    writer.append([GOOD, {**GOOD, **change, **({} if "id" in change else {"id": "2"})}])
    path = writer.close()
    assert path is not None
    with path.open("a", encoding="ascii") as file:
        file.write(json.dumps(GOOD) + '\n{"row":"op')
    ledger = read(tmp_path)
    assert (len(ledger.operations), ledger.bad) == (1, 2)


def test_an_error_that_nobody_thought_of_does_not_end_the_writing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written = OperationLog(tmp_path, role="client", pair="contoso", every=0.01)
    stumbles, is_over_it = iter(range(3)), threading.Event()

    def stumble() -> None:
        if next(stumbles, None) is not None:
            raise KeyError("no such meter")
        is_over_it.set()

    written.before_flush = stumble
    written.record("primary", "orders", stage=Stage.SEND, kind="send", count=1)
    written.start()
    assert is_over_it.wait(PATIENCE)
    written.close()
    rows = [row for path in closed_segments(tmp_path, KIND) for row in read_segment(path).rows]
    assert sum(row.get("count", 0) for row in rows) == 1
    assert "no such meter" in caplog.text

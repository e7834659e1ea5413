"""What is told in the shared place of a disk that was set back, damaged or has lost what it had."""

import errno
import os
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from pairbus.client.state import shipping
from pairbus.client.state.records import KIND
from pairbus.client.state.shipping import RecordShipper
from pairbus.clock import SystemClock
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.retention import DAY, trim
from pairbus.ledger.segment import SegmentWriter
from pairbus.ledger.store_files import StoreFiles
from pairbus.stores.places import RecordPlace, StoreUri
from pairbus.stores.store import open_store

from .shipping import has_shipped, ids_in, record


@pytest.mark.parametrize("has_ended", [True, False])
@pytest.mark.parametrize("is_in_store", [True, False])
def test_a_disk_that_was_set_back_takes_nothing_from_the_place(
    place: StoreUri, tmp_path: Path, is_in_store: bool, has_ended: bool
) -> None:
    own, shared, earlier = (tmp_path / name for name in ("own", "shared", "earlier"))
    goal: RecordPlace = place if is_in_store else shared
    records = SegmentWriter(own, KIND, is_chained=True, is_shipped=True)
    log = OperationLog(own, role="client", pair="contoso")
    records.append([asdict(record(1))])
    log.flush("begin")
    assert has_shipped(RecordShipper(own, goal, clock=SystemClock()))
    shutil.copytree(own, earlier)
    records.append([asdict(record(2))])
    log.flush("end")
    records.close(ends=has_ended)
    log._segments.close()
    assert has_shipped(RecordShipper(own, goal, clock=SystemClock()))
    listed = content_of(goal)
    shutil.rmtree(own)
    shutil.copytree(earlier, own)
    for _ in range(2):
        assert has_shipped(RecordShipper(own, goal, clock=SystemClock()))
    now = content_of(goal)
    assert {name: now.get(name) for name in listed} == listed
    files = StoreFiles.list(open_store(goal), KIND) if is_in_store else RecordFiles.list(shared, KIND)
    (head,) = [one.head for one in files.heads if one.head is not None and one.head.commits > 1]
    assert (head.is_open, files.audit(must_succeed=True).gaps) == (not has_ended, [])


def test_a_segment_that_is_not_what_was_shipped_is_set_aside_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Either of the two is damaged, and nobody knows which."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    records = SegmentWriter(own, KIND, is_chained=True, is_shipped=True)
    records.append([asdict(record(1))])
    path = records.close()
    assert path is not None
    data = path.read_bytes()
    assert has_shipped(RecordShipper(own, shared, clock=SystemClock()))
    path.write_bytes(data.replace(b"m1", b"m2"))
    assert has_shipped(RecordShipper(own, shared, clock=SystemClock()))
    assert (shared / path.name).read_bytes() == data
    assert [one.name for one in own.glob("*.damaged")] == [f"{path.name}.damaged"]
    assert f"{path}, or what differs from it, is damaged" in caplog.text


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("is_in_store", [True, False])
def test_who_has_lost_all_before_any_of_it_was_shipped_is_told(
    place: StoreUri, tmp_path: Path, is_in_store: bool
) -> None:
    """The place took nothing for as long as the process lived, say."""
    own = tmp_path / "own"
    shared = tmp_path / "shared"
    goal: RecordPlace = place if is_in_store else shared
    records = SegmentWriter(own, KIND, is_chained=True, is_shipped=True)
    records.append([asdict(record(1))])
    segment_path = records.close(ends=True)
    assert segment_path is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shipping, "put_anew", refuse)
        assert not has_shipped(RecordShipper(own, goal, clock=SystemClock()))
    segment_path.unlink()
    assert has_shipped(RecordShipper(own, goal, clock=SystemClock()))
    files = StoreFiles.list(open_store(goal), KIND) if is_in_store else RecordFiles.list(shared, KIND)
    (told,) = files.audit(must_succeed=True).gaps
    assert told.startswith(f"commits 1 to 1 of {records.writer} are gone")


def test_who_was_shipped_and_forgotten_is_not_missed_when_its_disk_is_set_back(tmp_path: Path) -> None:
    own, shared, earlier = (tmp_path / name for name in ("own", "shared", "earlier"))
    records = SegmentWriter(own, KIND, is_chained=True, is_shipped=True)
    records.append([asdict(record(1))])
    records.close()
    assert has_shipped(RecordShipper(own, shared, clock=SystemClock()))
    shutil.copytree(own, earlier)
    records.close(ends=True)
    assert has_shipped(RecordShipper(own, shared, clock=SystemClock()))
    for days in (2, 1):
        trim(shared, before=SystemClock().now() - days * DAY)
    assert not list(shared.glob("*.head"))
    shutil.rmtree(own)
    shutil.copytree(earlier, own)
    assert has_shipped(RecordShipper(own, shared, clock=SystemClock()))
    assert RecordFiles.list(shared, KIND).audit(must_succeed=True).gaps == []


@pytest.mark.parametrize("is_told_before", [True, False])
def test_the_end_of_a_dead_writer_is_missed_if_its_anchor_is_gone_too(
    tmp_path: Path, is_told_before: bool
) -> None:
    """The anchor of who has adopted it, that is; perhaps while its process still ran."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    records = SegmentWriter(own, KIND, is_chained=True, is_shipped=True)
    for number in (1, 2):
        records.append([asdict(record(number))])
        if number == 1:
            records.close()
    assert records._open is not None
    assert records._life is not None
    records._open.abandon()
    if is_told_before:
        assert has_shipped(RecordShipper(own, shared, clock=SystemClock()))
    records._life.release()
    assert has_shipped(RecordShipper(own, shared, clock=SystemClock()))
    assert RecordFiles.list(shared, KIND).audit(must_succeed=True).gaps == []
    assert ids_in(shared) == ["m1", "m2"]
    for path in (*shared.glob("*-00000002.jsonl"), *shared.glob("*-00000002.head")):
        path.unlink()
    assert ids_in(shared) == ["m1"]
    (told,) = RecordFiles.list(shared, KIND).audit(must_succeed=True).gaps
    assert told.startswith(f"commits 2 to 2 of {records.writer} are gone")


def content_of(place: RecordPlace) -> dict[str, bytes]:
    store = open_store(place)
    return {name: store.read(name) for kind in (KIND, "operations") for name in store.list(kind)}

"""Retention: what is old goes, and the audit neither misses it nor passes over what is missing besides."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from pairbus.ledger.chain import ChainAudit, is_head
from pairbus.ledger.commit_objects import CommitWriter
from pairbus.ledger.generation import Manifest, TableRead, compact
from pairbus.ledger.receipts import KIND as RECEIPTS
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.retention import DAY, REDIRECTS, cut_for, trim
from pairbus.ledger.row_runs import kept_since
from pairbus.ledger.seal import seal_of
from pairbus.ledger.segment import SegmentWriter, adopt_segments, read_segment
from pairbus.ledger.store_compaction import WrittenDays, compact_store, manifest_name
from pairbus.ledger.store_files import StoreFiles, holds_rows
from pairbus.stores.places import StoreUri
from pairbus.stores.store import RecordStore, open_store
from pairbus.testing import ManualClock
from tests.cli.process import call
from tests.object_places import credentials, make_azure_container, place_of

NOW = 1_800_000_000.0


def redirects(writer: SegmentWriter | CommitWriter, *ages: float) -> None:
    """A segment for each age, in days."""
    for age in ages:
        writer.append([{"message_id": f"m{age}", "at": NOW - age * DAY}])
        writer.close()


def audit(directory: Path) -> ChainAudit:
    return RecordFiles.list(directory, REDIRECTS).audit(must_succeed=True)


def left(directory: Path) -> list[str]:
    files = RecordFiles.list(directory, REDIRECTS)
    return [row["message_id"] for path in files.closed for row in read_segment(path).rows]


def writer_in(directory: Path) -> SegmentWriter:
    return SegmentWriter(directory, REDIRECTS, is_chained=True)


def test_old_segments_go_and_chains_stay_whole(tmp_path: Path) -> None:
    running, ended = writer_in(tmp_path), writer_in(tmp_path)
    redirects(running, 40, 35, 5)
    redirects(ended, 50, 45)
    ended.close(ends=True)
    done = trim(tmp_path, before=NOW - 30 * DAY)
    assert (done.redirects, left(tmp_path), audit(tmp_path).gaps) == (4, ["m5"], [])
    assert len(list(tmp_path.glob("*.head"))) == 1, "of the one that runs"
    redirects(running, 2)
    assert audit(tmp_path).gaps == []
    assert RecordFiles.list(tmp_path, REDIRECTS).table.manifest.since == NOW - 30 * DAY
    # And all of it again, some time later.
    assert trim(tmp_path, before=NOW - 3 * DAY).redirects == 1
    assert (left(tmp_path), audit(tmp_path).gaps) == (["m2"], [])
    running.close(ends=True)
    assert trim(tmp_path, before=NOW).redirects == 1
    assert (left(tmp_path), audit(tmp_path).gaps, list(tmp_path.glob("*.head"))) == ([], [], [])
    assert trim(tmp_path, before=NOW).redirects == 0


@pytest.mark.parametrize("days", [30_000, 99_999_999_999])
def test_more_days_than_there_are_dates_keep_all(tmp_path: Path, days: int) -> None:
    writer = writer_in(tmp_path)
    redirects(writer, 400, 1)
    assert trim(tmp_path, before=cut_for(days, now=NOW)).redirects == 0
    assert left(tmp_path) == ["m400", "m1"]


def test_a_directory_without_records_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    assert trim(tmp_path, before=NOW).redirects == 0
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    typo = tmp_path / "typo"
    words = ["records", "trim", "--keep-days", "5", "--records", str(typo), "--records", str(tmp_path)]
    redirects(writer_in(tmp_path), 40)
    kept = left(tmp_path)
    done = call(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"There are no records at {typo}, and nothing was removed anywhere" in done.stderr
    assert left(tmp_path) == kept


def test_what_is_missing_besides_is_still_told(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    redirects(writer, 40, 5, 4)
    trim(tmp_path, before=NOW - 30 * DAY)
    RecordFiles.list(tmp_path, REDIRECTS).closed[0].unlink()
    assert any("are gone" in gap for gap in audit(tmp_path).gaps)


@pytest.mark.parametrize("stolen", [1, 2])
def test_an_end_that_was_stolen_with_its_head_is_told_when_the_rest_is_removed(
    tmp_path: Path, stolen: int
) -> None:
    """Before that its writer had ended, which a table must not say while it does not have all of it."""
    writer = writer_in(tmp_path)
    redirects(writer, 40, 30, 5)
    writer.close(ends=True)
    trim(tmp_path, before=NOW - 35 * DAY)
    assert audit(tmp_path).gaps == []
    for path in (*RecordFiles.list(tmp_path, REDIRECTS).closed[-stolen:], *tmp_path.glob("*.head")):
        path.unlink()
    told = f"the head of {writer.writer} is gone: nobody can tell whether all of its rows are there"
    assert told in audit(tmp_path).gaps
    for days in (20, 3):
        trim(tmp_path, before=NOW - days * DAY)
        assert (left(tmp_path), audit(tmp_path).gaps) == ([], [told])


def test_nothing_beyond_damage_or_a_younger_row_goes(tmp_path: Path) -> None:
    damaged, mixed = writer_in(tmp_path), writer_in(tmp_path)
    redirects(damaged, 40)
    (path,) = RecordFiles.list(tmp_path, REDIRECTS).closed
    path.write_bytes(path.read_bytes().replace(b"m40", b"mXX"))
    redirects(damaged, 38)
    redirects(mixed, 40, 2, 40)
    assert trim(tmp_path, before=NOW - 30 * DAY).redirects == 1
    assert len(left(tmp_path)) == 4
    assert len(audit(tmp_path).gaps) == 1


def test_what_was_not_adopted_yet_is_not_taken_for_removed(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.append([{"message_id": "m2", "at": NOW - 2 * DAY}])
    assert writer._open is not None
    writer._open.abandon()  # as if its anchor could not be written
    writer._open = None
    redirects(writer, 40)  # by a clock that was set back meanwhile
    writer.close(ends=True)
    assert trim(tmp_path, before=NOW - 30 * DAY).redirects == 0
    adopt_segments(tmp_path, REDIRECTS)
    assert (sorted(left(tmp_path)), audit(tmp_path).gaps) == (["m2", "m40"], [])


def test_rows_that_were_never_written_are_forgotten_with_those_of_their_time(tmp_path: Path) -> None:
    clock = ManualClock(NOW - 40 * DAY)
    poor = SegmentWriter(tmp_path, REDIRECTS, is_chained=True, clock=clock)
    poor.lose(3)  # a full disk
    poor.close(ends=True)
    assert audit(tmp_path).gaps == [f"3 rows of {poor.writer} could not be written"]
    trim(tmp_path, before=NOW - 50 * DAY)
    assert len(audit(tmp_path).gaps) == 1
    trim(tmp_path, before=NOW - 30 * DAY)
    assert (audit(tmp_path).gaps, list(tmp_path.glob("*.head"))) == ([], [])


def test_what_follows_something_that_is_missing_stays(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    redirects(writer, 50, 45, 40)
    RecordFiles.list(tmp_path, REDIRECTS).closed[1].unlink()
    assert trim(tmp_path, before=NOW - 30 * DAY).redirects == 1
    assert left(tmp_path) == ["m40"]
    assert any("are gone" in gap for gap in audit(tmp_path).gaps)


def keep_receipts(directory: Path, *ages: float) -> None:
    writer = SegmentWriter(directory, RECEIPTS, is_chained=True)
    writer.append([{"op": str(age), "moved": NOW - age * DAY} for age in ages])
    writer.close(ends=True)


def to_parquet(segments: list[Path], table: TableRead, to: Path) -> int:
    to.mkdir()
    rows = [row for path in segments for row in read_segment(path).rows]
    moved = [datetime.fromtimestamp(row["moved"], UTC) for row in rows]
    columns = {"op": [row["op"] for row in rows], "moved": pa.array(moved, pa.timestamp("us", tz="UTC"))}
    parquet.write_table(pa.table(columns), to / "part-0.parquet")
    return 0


def test_receipts_of_earlier_days_go_a_day_later(tmp_path: Path) -> None:
    keep_receipts(tmp_path, 40, 32.5, 30.5, 5)
    compact(tmp_path, RECEIPTS, to_parquet)
    assert trim(tmp_path, before=NOW - 30 * DAY).receipts == 1
    files = RecordFiles.list(tmp_path, RECEIPTS)
    rows = [op for path in files.table.files for op in parquet.read_table(path)["op"].to_pylist()]
    assert rows == ["30.5", "5"]
    assert files.audit(must_succeed=False).gaps == []
    assert files.table.manifest.since == NOW - 31 * DAY
    assert trim(tmp_path, before=NOW - 30 * DAY).receipts == 0


def test_of_the_ledger_whole_months_go(tmp_path: Path) -> None:
    for name in ("operations-2026-12-31-000001.parquet", "operations-2027-01-01-000002.parquet"):
        (tmp_path / name).mkdir()
    for moment in ("2026-12-20", "2027-01-02"):
        begun = datetime.fromisoformat(f"{moment}T00:00:00+00:00").timestamp()
        (tmp_path / f"operations-{int(begun * 1000)}-abc.jsonl").write_text("{}\n")
    (tmp_path / f"operations-{'9' * 20}-abc.jsonl").write_text("{}\n")  # which tells no time, and stays
    before = datetime(2027, 1, 20, tzinfo=UTC).timestamp()
    assert trim(tmp_path, before=before).operations == 2
    assert sorted(path.name[:18] for path in tmp_path.glob("operations-*")) == [
        "operations-1798848",
        "operations-2027-01",
        "operations-9999999",
        "operations-since-2",
    ]


@pytest.fixture
def store(azurite: str) -> RecordStore:
    with credentials():
        place = place_of(make_azure_container(azurite))
        open_store(place).list(REDIRECTS)  # its key is looked up now
        return open_store(place)


def test_objects_go_one_generation_later(store: RecordStore) -> None:
    assert isinstance(store.place, StoreUri)
    clock = ManualClock(NOW - 41 * DAY)
    running = CommitWriter(store, REDIRECTS, is_chained=True, clock=clock, gather=0.0)
    ended = CommitWriter(store, REDIRECTS, is_chained=True, clock=clock, gather=0.0)
    redirects(ended, 50)
    ended.close(ends=True)
    redirects(running, 40)
    clock.advance(36 * DAY)
    redirects(running, 5)
    receipts = CommitWriter(store, RECEIPTS, is_chained=True, gather=0.0)
    receipts.append([{"op": "1"}])
    receipts.close(ends=True)
    names = [f"receipts-{day}-000001-ab.parquet" for day in ("2026-01-01", "2026-01-02", "2027-01-14")]
    days = dict.fromkeys(names, seal_of(b"rows"))
    days[names[1]] = seal_of(b"other rows")  # it was edited since
    for name in days:
        store.put(name, b"rows")
    compact_store(store, RECEIPTS, lambda files, number: WrittenDays(days, ["2026-01-01"], 0))
    for age in (100, 1):
        store.put(f"operations-{int((NOW - age * DAY) * 1000)}-abc.jsonl", b"{}\n")
    done = trim(store.place, before=NOW - 30 * DAY)
    assert (done.redirects, done.receipts, done.operations) == (2, 1, 1)
    assert 0.0 < kept_since(store.list("operations")) < NOW - 30 * DAY
    assert len(store.list("operations")) == 2
    files = StoreFiles.list(store, REDIRECTS)
    assert (len(files.fresh), files.audit(must_succeed=True).gaps) == (1, [])
    assert sum(map(holds_rows, files.names)) == 3, "who reads now finds all"
    kept = StoreFiles.list(store, RECEIPTS, is_audited=False)
    assert [*kept.table.manifest.files] == names[1:], "what is damaged stays"
    redirects(running, 4)
    (head,) = (path.name for path, head in files.heads if head is not None and not head.is_open)
    damaged = f"{head.rsplit('.', 2)[0]}.1.head"  # an older one
    store.put(damaged, b"{}")
    again = trim(store.place, before=NOW - 30 * DAY)
    assert (again.redirects, again.receipts) == (0, 0)
    there = store.list(REDIRECTS)
    assert (head in there, damaged in there) == (False, True), "damage is not forgotten"
    store.delete(damaged)
    files = StoreFiles.list(store, REDIRECTS)
    assert (len(files.fresh), files.audit(must_succeed=True).gaps) == (2, [])
    assert sum(map(holds_rows, files.names)) == 2
    assert len(list(filter(is_head, files.names))) == 1, "of the one that runs"
    store.delete(files.fresh[0])
    assert any("are gone" in gap for gap in StoreFiles.list(store, REDIRECTS).audit(must_succeed=True).gaps)


@pytest.mark.parametrize("kind", [REDIRECTS, RECEIPTS])
def test_a_manifest_whose_writer_was_killed_before_its_anchor_is_missed_too(
    store: RecordStore, kind: str
) -> None:
    """So is one of version 0.1.0, which wrote none, as soon as somebody has kept house."""
    assert isinstance(store.place, StoreUri)
    name = manifest_name(kind, 1)
    store.put(name, Manifest(generation=1).sealed().data)
    for _ in range(2):
        trim(store.place, before=NOW)
    assert [*store.list(kind)] == [f"{kind}-000001.anchor", name]
    store.delete(name)
    assert StoreFiles.list(store, kind).table.gaps == [
        f"the manifest of generation 1 in {store.place} is gone"
    ]


def test_a_day_of_the_ledger_goes_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of it when its remover is killed is no day, and goes with the next call."""
    day = tmp_path / "operations-2025-11-05-000001.parquet"

    def begin_day() -> None:
        day.mkdir()
        for name in ("_told-00000", "part-00000.parquet"):
            (day / name).touch()

    def die(directory: Path) -> None:
        (directory / "part-00000.parquet").unlink()
        raise KeyboardInterrupt

    begin_day()
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", die)
        with pytest.raises(KeyboardInterrupt):
            trim(tmp_path, before=NOW)
    assert not day.exists()
    begin_day()  # by rows that came late
    assert trim(tmp_path, before=NOW).operations == 2
    assert not [path for path in tmp_path.iterdir() if day.name in path.name]

"""Compaction without Spark: rows come into tables, and nothing is lost, doubled or passed over."""

import errno
import json
import os
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pairbus.ledger import generation, plain_compaction, segment
from pairbus.ledger.columns import columns_of
from pairbus.ledger.commit_objects import CommitWriter
from pairbus.ledger.generation import Compaction
from pairbus.ledger.plain_compaction import (
    _COLUMNS,
    ReadyRows,
    _Batch,
    _write_days,
    compact_directory,
    compact_plainly,
    encode_rows,
)
from pairbus.ledger.receipts import KIND, Receipt
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.segment import SegmentWriter
from pairbus.ledger.store_compaction import compact_store
from pairbus.ledger.store_files import StoreFiles, day_of, holds_rows
from pairbus.stores.parquet_files import can_read, encode_table, join_tables, may_share_rows, part_rows
from pairbus.stores.store import DirectoryStore

from .test_receipts import receipt

DAY = 86_400.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "sleep", lambda pause: None)
    monkeypatch.setattr(plain_compaction, "WORTHWHILE", 2)
    monkeypatch.setattr(plain_compaction, "_MANY_FILES", 3)
    monkeypatch.setattr(plain_compaction, "_MOST_ROWS", 3)


def row(number: int, *, moved: float = 2.0) -> dict[str, Any]:
    return {**receipt(number), "moved": moved}


def ids(files: list[Path]) -> list[str]:
    return sorted(name for path in files for name in parquet.read_table(path)["message_id"].to_pylist())


def test_other_tools_count_receipts_as_the_page_says(tmp_path: Path) -> None:
    import duckdb  # not with the tests, which are frozen: it would call itself leaked at the end of the run

    writer = SegmentWriter(tmp_path / "records", KIND, is_chained=True)
    for numbers in ((1, 2), (2, 3), (3, 4)):
        writer.append(map(row, numbers))
        writer.close()
        if numbers == (2, 3):
            assert compact_plainly(writer.directory).segments == 2
    page = (Path(__file__).parents[2] / "docs" / "records.md").read_text(encoding="utf-8")
    (query, *_) = (block.partition("```")[0] for block in page.split("```sql\n")[1:])
    found = duckdb.execute(query.replace("STATE", str(tmp_path))).fetchall()
    assert found == [(row(1)["path"], row(1)["outcome"], 4)]
    writer.close(ends=True)


def test_a_segment_that_cannot_be_adopted_yet_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once later ones of its chain were in the table it would be taken for one that is there, too."""
    writer = SegmentWriter(tmp_path, KIND, is_chained=True)
    writer.append([row(1)])
    assert writer._open is not None
    writer._open.abandon()  # as if its anchor could not be written
    writer._open = None
    for number in (2, 3):
        writer.append([row(number)])
        writer.close(ends=number == 3)
    with monkeypatch.context() as failing:

        def fail(*_: object) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        failing.setattr(segment, "_cut_torn_commit", fail)
        assert compact_plainly(tmp_path).table is None
    assert compact_plainly(tmp_path).segments == 3
    files = RecordFiles.list(tmp_path, KIND)
    assert ids(files.table.files) == ["m1", "m2", "m3"]
    assert files.audit(must_succeed=False).gaps == []


def test_a_segment_that_is_just_being_closed_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its head tells of it already, and damage that a table has told of is told for ever."""
    other = SegmentWriter(tmp_path, KIND, is_chained=True)
    for number in (1, 2):
        other.append([row(number)])
        other.close(ends=number == 2)
    finish, begun = segment._finish, list[Compaction]()

    def compact_before(path: Path, size: int) -> Path | None:
        begun.append(compact_plainly(tmp_path))
        return finish(path, size)

    writer = SegmentWriter(tmp_path, KIND, is_chained=True)
    writer.append([row(3)])
    with monkeypatch.context() as closing:
        closing.setattr(segment, "_finish", compact_before)
        writer.close(ends=True)
    assert begun == [Compaction()]
    assert compact_plainly(tmp_path).segments == 3
    files = RecordFiles.list(tmp_path, KIND)
    assert (ids(files.table.files), files.audit(must_succeed=False).gaps) == (["m1", "m2", "m3"], [])


def test_a_segment_that_is_just_being_closed_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else none would be in the table before the next compaction, a quarter of an hour later."""
    for number in (1, 2):
        writer = SegmentWriter(tmp_path, KIND, is_chained=True)
        writer.append([row(number)])
        if number == 1:
            writer.close(ends=True)
    finish, compacted = segment._finish, list[Compaction]()

    def compact_before(path: Path, size: int) -> Path | None:
        final: Path | None = None

        def close_meanwhile(pause: float) -> None:
            nonlocal final
            final = finish(path, size) if pause and final is None else final

        monkeypatch.setattr(generation, "sleep", close_meanwhile)
        compacted.append(compact_directory(tmp_path))
        return final

    monkeypatch.setattr(segment, "_finish", compact_before)
    writer.close(ends=True)
    assert [one.segments for one in compacted] == [2]
    files = RecordFiles.list(tmp_path, KIND)
    assert (ids(files.table.files), files.audit(must_succeed=False).gaps) == (["m1", "m2"], [])


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


def test_objects_become_files_by_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "read_table", None)
        patch.setattr("pairbus.ledger.store_files.seal_of", None)
        assert compact_store(store, KIND, _write_days).segments == 0, "and nothing is read for it"


@pytest.mark.parametrize("deed", ["damaged", "foreign"])
def test_what_no_table_can_take_over_is_not_put_into_each(tmp_path: Path, deed: str) -> None:
    """A commit that cannot be read, or an object of no writer, stays where it is, and is read there."""
    store = DirectoryStore(tmp_path)
    writer = CommitWriter(store, KIND, is_chained=True, gather=0.0)
    writer.append([row(1)])
    writer.append([row(2)])
    name = max(name for name in store.list(KIND) if holds_rows(name))
    if deed == "damaged":
        store.put(name, b"no row\n")
    else:
        name = f"{KIND}-copy.jsonl"
        store.put(name, json.dumps(row(3)).encode() + b"\n")

    def look() -> tuple[int, int, int, list[str], list[str]]:
        compact_store(store, KIND, _write_days)
        files = StoreFiles.list(store, KIND)
        audit = files.audit(must_succeed=False)
        numbers = files.table.manifest.generation, files.table.manifest.bad, audit.unchained
        assert len(audit.gaps) == len(set(audit.gaps)), "each is told once"
        return *numbers, files.fresh, audit.gaps

    found = look()
    assert found[:4] == (1, 0, int(deed == "foreign"), [name])
    assert bool(found[4]) is (deed == "damaged")
    assert look() == look() == found, "there is nothing to do"
    writer.append([row(4)])
    told = look()
    assert told[0] == 2
    # What has a sound commit behind it is the table's, once, with what was wrong.
    assert told[1:4] == ((1, 0, []) if deed == "damaged" else found[1:4])
    assert set(told[4]) >= set(found[4])
    taken = ids([tmp_path / one for one in StoreFiles.list(store, KIND).table.files])
    assert taken == (["m1", "m4"] if deed == "damaged" else ["m1", "m2", "m4"])


def test_rows_that_are_none_are_counted(tmp_path: Path) -> None:
    for odd in ({"moved": "soon"}, {"outcome": "maybe"}):
        writer = SegmentWriter(tmp_path, KIND, is_chained=True)
        writer.append([row(1), {**row(2), **odd}])
        writer.close(ends=True)
    assert compact_plainly(tmp_path).bad == 2
    assert RecordFiles.list(tmp_path, KIND).table.manifest.bad == 2


ODD = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.booleans(),
    st.sampled_from([0, -1, 1.5, 1e300, -0.0, 2**63 - 1, -(2**63), 2**63, float("inf"), float("nan")]),
    st.sampled_from(["moved", "dead-lettered", "unknown", [], {}, {"chain": 1}]),
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from([*columns_of(Receipt), "further"]), ODD, max_size=2), max_size=4
    ),
    st.sampled_from(["", "\n", "{", "[]\n", "  \n", '{"op":"\ud800"}\n', '{"op":1,"op":"a"}\n']),
)
def test_arrow_and_a_row_after_the_other_read_the_same(odd: list[dict[str, Any]], end: str) -> None:
    """Where Arrow does not take all, it takes nothing."""
    rows = [{**row(number), **one} for number, one in enumerate(odd)]
    data = ("".join(json.dumps(one) + "\n" for one in rows) + end).encode("utf-8", "surrogatepass")
    batch = _Batch()
    batch.add(data)
    told = encode_rows([data])
    if told is not None:
        assert not batch.bad
        singly = encode_table(_COLUMNS, batch.rows)
        assert parquet.read_table(BytesIO(told)) == parquet.read_table(BytesIO(singly))


def test_rows_as_they_should_be_go_through_arrow() -> None:
    rows = [row(1), {**row(2), "session": None, "enqueued": 3, "further": "é"}, {**row(3), "reason": "é"}]
    data = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows).encode()
    assert encode_rows([data]) is not None


def close_segment(directory: Path, *rows: dict[str, Any]) -> Path:
    writer = SegmentWriter(directory, KIND, is_chained=True)
    writer.append(rows)
    closed = writer.close(ends=True)
    assert closed is not None
    return closed


def table_ids(directory: Path) -> list[str]:
    files = RecordFiles.list(directory, KIND)
    assert files.audit(must_succeed=False).gaps == []
    return ids(files.table.files)


def test_what_is_ready_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        close_segment(tmp_path, row(2 * number), row(2 * number + 1))
    ready = ReadyRows()
    for _ in range(4):
        ready.add(tmp_path)
    last = close_segment(tmp_path, row(6), row(3))
    read = list[bytes]()

    def encode(blocks: Iterable[bytes]) -> bytes | None:
        read.extend(blocks)
        return encode_rows(read)

    monkeypatch.setattr(plain_compaction, "encode_rows", encode)
    rows = [line for line in last.read_bytes().splitlines() if b'"op"' in line]
    assert compact_directory(tmp_path, ready).segments == 4
    assert b"".join(read).splitlines() == rows
    assert table_ids(tmp_path) == [f"m{number}" for number in range(7)], "and m3 once"


def test_what_is_ready_counts_only_for_the_file_that_was_read(tmp_path: Path) -> None:
    gone, other = close_segment(tmp_path, row(1)), close_segment(tmp_path / "elsewhere", row(2))
    ready = ReadyRows()
    ready.add(tmp_path)
    data = other.read_bytes()
    assert len(data) == gone.stat().st_size
    gone.write_bytes(data)
    os.utime(gone, (0, 0))  # clocks may stand still for milliseconds
    assert ready.take(gone) is None


def test_a_segment_with_rows_that_are_none_is_not_made_ready(tmp_path: Path) -> None:
    close_segment(tmp_path, row(1), {**row(2), "moved": "soon"})
    ready = ReadyRows()
    ready.add(tmp_path)
    ready.add(tmp_path)
    assert compact_directory(tmp_path, ready).bad == 1
    assert table_ids(tmp_path) == ["m1"]


def test_no_more_is_made_ready_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = [close_segment(tmp_path, row(number)) for number in range(3)]
    monkeypatch.setattr(plain_compaction, "_MOST_READY", 1)
    ready = ReadyRows()
    for _ in range(3):
        ready.add(tmp_path)
    assert sum(ready.take(segment) is not None for segment in segments) == 1


def test_small_files_are_joined_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_compaction, "_MANY_FILES", 6)
    for number in range(6):
        close_segment(tmp_path, {**row(number), "enqueued": number * DAY})
        compact_directory(tmp_path)
    size = sum(path.stat().st_size for path in RecordFiles.list(tmp_path, KIND).table.files[:2])
    monkeypatch.setattr(plain_compaction, "_SMALL", size)
    close_segment(tmp_path, {**row(6), "enqueued": 6 * DAY})
    joined = []

    def join(files: list[bytes]) -> bytes:
        joined.append(len(files))
        return join_tables(files)

    monkeypatch.setattr(plain_compaction, "join_tables", join)
    compact_directory(tmp_path)
    assert max(joined) <= 3
    assert sum(joined) == 6
    assert table_ids(tmp_path) == [f"m{number}" for number in range(7)]


MESSAGES = st.builds(
    lambda number, outcome, moved, unsure: {
        **receipt(number),
        "enqueued": float(number),
        "outcome": outcome,
        "moved": moved,
        "unsure": unsure,
        "writer": f"w{moved}",
    },
    st.integers(0, 3),
    st.sampled_from(["moved", "unknown", "dead-lettered"]),
    st.sampled_from([5.0, 6.0, 7.000001]),
    st.integers(0, 2),
)


@settings(max_examples=15)  # each is a dozen syncs
@given(
    st.lists(
        MESSAGES, min_size=1, max_size=8, unique_by=lambda one: (one["op"], one["moved"], one["outcome"])
    ),
    st.integers(1, 4),
)
def test_a_table_has_one_row_for_each_message_whatever_came_when(rows: list[Any], step: int) -> None:
    """Sends without an answer, moves that were repeated: runs in turn are what all rows at once are."""
    with tempfile.TemporaryDirectory() as scratch:
        for begin in range(0, len(rows), step):
            writer = SegmentWriter(Path(scratch), KIND, is_chained=True)
            writer.append(rows[begin : begin + step])
            writer.close(ends=True)
            compact_directory(Path(scratch))
        table = RecordFiles.list(Path(scratch), KIND).table
        found = [row for path in table.files for row in parquet.read_table(path).to_pylist()]
    assert sorted(row["op"] for row in found) == sorted({one["op"] for one in rows})
    for row in found:
        alike = [one for one in rows if one["op"] == row["op"]]
        known = [one for one in alike if one["outcome"] != "unknown"] or alike
        last = max(one["moved"] for one in known)
        assert (row["moved"].timestamp(), row["outcome"]) in {(last, one["outcome"]) for one in known}
        assert row["unsure"] == sum(one["unsure"] for one in alike)
        moves = sum(one["outcome"] == "moved" for one in alike)
        assert row["repeats"] == moves - (row["outcome"] == "moved")


def test_files_without_rows_of_that_time_stay_as_they_are(tmp_path: Path) -> None:
    def put(*rows: dict[str, Any]) -> list[Path]:
        writer = SegmentWriter(tmp_path, KIND, is_chained=True)
        writer.append(rows)
        writer.close(ends=True)
        compact_directory(tmp_path)
        return sorted(RecordFiles.list(tmp_path, KIND).table.files)

    early, late = ({**receipt(number), "enqueued": number * DAY} for number in (1, 5))
    (first,) = put(early)
    assert first.name in {file.name for file in put(late)}
    files = put({**late, "moved": 9.0, "writer": "next"})
    assert first.name in {file.name for file in files}
    assert len(files) == 2
    assert ids(files) == ["m1", "m5"]


def test_tables_that_spark_has_written_are_joined_in_a_form_that_it_reads(tmp_path: Path) -> None:
    """It writes moments as none of its readers takes them from others: 96 bits, without statistics."""
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    moved = pa.array([datetime.fromtimestamp(2.000001, UTC)], pa.timestamp("us", tz="UTC"))
    spark_like = pa.table({"op": ["a"], "moved": moved, "enqueued": moved})
    parquet.write_table(spark_like, old, use_deprecated_int96_timestamps=True)
    parquet.write_table(spark_like.set_column(0, "op", [["b"]]), new)
    assert may_share_rows(new, [old], "enqueued")
    joined = parquet.read_table(BytesIO(join_tables([old.read_bytes(), new.read_bytes()])))
    assert joined.schema.field("moved").type == pa.timestamp("us", tz="UTC")
    assert joined["moved"].to_pylist() == [datetime.fromtimestamp(2.000001, UTC)] * 2
    (row,) = part_rows(old, tmp_path / "rest.parquet", "op", {"a"})
    assert row["moved"] == 2.000001
    assert not (tmp_path / "rest.parquet").exists()


@pytest.mark.parametrize("deed", ["gone", "edited"])
@pytest.mark.parametrize("damage", ["no Parquet", "cut off", "overwritten within"])
def test_a_file_that_cannot_be_read_is_told_where_no_manifest_answers_for_it(
    tmp_path: Path, deed: str, damage: str
) -> None:
    for numbers in ((1, 2), (3, 4)):
        writer = SegmentWriter(tmp_path, KIND, is_chained=True)
        writer.append(row(number, moved=float(numbers[0])) for number in numbers)
        writer.close(ends=True)
        table = compact_directory(tmp_path).table
    assert table is not None
    first, second = RecordFiles.list(tmp_path, KIND).table.files
    manifest, data = table / "_manifest.json", first.read_bytes()
    manifest.unlink() if deed == "gone" else manifest.write_bytes(b"{")
    damaged = {
        "no Parquet": b"x",
        "cut off": data[:-20],
        "overwritten within": data[:4] + b"\xff" * 400 + data[404:],
    }
    first.write_bytes(damaged[damage])
    files = RecordFiles.list(tmp_path, KIND, probe=can_read)
    assert files.table.files == [second]
    assert f"{first} cannot be read" in files.table.gaps
    kept = ids([second])
    writer = SegmentWriter(tmp_path, KIND, is_chained=True)
    writer.append([row(5)])
    writer.close(ends=True)
    compact_directory(tmp_path)
    files = RecordFiles.list(tmp_path, KIND)
    assert ids(files.table.files) == sorted([*kept, row(5)["message_id"]])
    assert f"{first} cannot be read" in files.table.gaps, "told for ever"
    assert (tmp_path / f"{table.name}.damaged" / first.name).exists(), "set aside, and not removed"

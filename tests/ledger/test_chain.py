"""Chains: whatever is removed or edited up to the last anchor is told, and nothing that is whole."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.errors import PairbusError
from pairbus.ledger.chain import ChainAudit, read_heads
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.segment import (
    SegmentWriter,
    adopt_segments,
    closed_segments,
    read_segment,
)
from tests.examples import examples

KIND = "redirects"


@contextmanager
def directory_of(plan: list[list[int]]) -> Iterator[Path]:
    """One segment for each list, one commit of so many rows for each number."""
    with tempfile.TemporaryDirectory() as name:
        writer = SegmentWriter(Path(name), KIND, is_chained=True)
        writer.begin()
        for segment in plan:
            for rows in segment:
                writer.append({"row": number} for number in range(rows))
            writer.close()
        writer.close(ends=True)
        yield Path(name)


def audit(directory: Path) -> ChainAudit:
    return RecordFiles.list(directory, KIND).audit(must_succeed=True)


def is_whole(directory: Path) -> bool:
    found = audit(directory)
    return not found.gaps and not found.notes and not found.unchained


plans = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3)


@settings(max_examples=examples(40), deadline=None)
@given(plans, st.data())
def test_every_line_that_is_gone_or_changed_is_told(plan: list[list[int]], data: st.DataObject) -> None:
    with directory_of(plan) as directory:
        assert is_whole(directory)
        segments = closed_segments(directory, KIND)
        assert sum(len(read_segment(path).rows) for path in segments) == sum(map(sum, plan))
        damaged = segments[data.draw(st.integers(0, len(segments) - 1))]
        lines = damaged.read_bytes().splitlines(keepends=True)
        index = data.draw(st.integers(0, len(lines) - 1))
        deed = data.draw(st.sampled_from(("remove", "edit", "repeat", "cut", "unlink")))
        if deed == "unlink":
            damaged.unlink()
        else:
            changed = {
                "remove": [],
                "edit": [lines[index][:-3] + b"?" + lines[index][-2:]],
                "repeat": [lines[index]] * 2,
                "cut": [],
            }[deed]
            rest = [] if deed == "cut" else lines[index + 1 :]
            damaged.write_bytes(b"".join([*lines[:index], *changed, *rest]))
        assert audit(directory).gaps


def test_the_place_is_told() -> None:
    with directory_of([[2], [1, 1], [3]]) as directory:
        first, second, third = closed_segments(directory, KIND)
        third.unlink()
        (told,) = audit(directory).gaps
        assert "commits 4 to 4 of" in told
        assert told.endswith(f"are gone, behind {second}, before its anchor")
        first.write_bytes(first.read_bytes().replace(b'"row":1', b'"row":7'))
        assert any("was edited" in gap and first.name in gap for gap in audit(directory).gaps)
        (head,) = directory.glob("*.head")
        head.unlink()
        assert any("the head of" in gap for gap in audit(directory).gaps)


def test_files_that_have_changed_places_are_told() -> None:
    with directory_of([[2], [1, 1]]) as directory, directory_of([[1]]) as other:
        first, second = closed_segments(directory, KIND)
        swap(first, second)
        assert any("does not belong there" in gap for gap in audit(directory).gaps)
        swap(first, second)
        assert is_whole(directory)
        (head,), (stranger,) = directory.glob("*.head"), other.glob("*.head")
        swap(head, stranger)
        assert any(str(head) in gap for gap in audit(directory).gaps)


def is_told(directory: Path) -> bool:
    try:
        return bool(audit(directory).gaps)
    except PairbusError as error:  # what looks like a newer version is refused
        return "newer version" in str(error)


def swap(one: Path, other: Path) -> None:
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


@settings(max_examples=examples(40), deadline=None)
@given(plans, st.integers(0, 99), st.integers(0, 9999), st.integers(1, 255))
def test_every_byte_counts(plan: list[list[int]], file: int, place: int, change: int) -> None:
    with directory_of(plan) as directory:
        files = sorted(directory.iterdir())
        damaged = files[file % len(files)]
        content = bytearray(damaged.read_bytes())
        content[place % len(content)] ^= change
        damaged.write_bytes(content)
        assert is_told(directory)


def test_who_has_written_nothing_has_left_a_chain(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "records", KIND, is_chained=True)
    writer.begin()
    (note,) = audit(tmp_path / "records").notes
    assert "is open since" in note
    writer.close(ends=True)
    assert is_whole(tmp_path / "records")
    for _ in range(3):
        idle = SegmentWriter(tmp_path / "records", KIND, is_chained=True)
        idle.begin()
        idle.close(ends=True)
    assert [path.name for path, _ in read_heads(tmp_path / "records", KIND)] == [f"{KIND}-idle.head"]
    writer.append([{"row": 1}])  # after all
    writer.close(ends=True)
    assert is_whole(tmp_path / "records")
    assert len(read_heads(tmp_path / "records", KIND)) == 2


def die(writer: SegmentWriter) -> Path:
    """Leave the open segment as a killed process does."""
    assert writer._open is not None
    writer._open.abandon()
    return writer._open.path


def test_a_writer_that_died_is_told_and_its_rows_count(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, KIND, is_chained=True)
    writer.append([{"row": 1}])
    writer.append([{"row": 2}])
    left = die(writer)
    left.write_bytes(left.read_bytes() + b'{"row":3}\n{"row":4')  # the commit that it died over
    (adopted,) = adopt_segments(tmp_path, KIND)
    assert [row["row"] for row in read_segment(adopted).rows] == [1, 2]
    found = audit(tmp_path)
    assert found.gaps == []
    assert "is open since 20" in found.notes[0]
    assert found.notes[0].endswith("0 commits follow its last anchor")
    # What was adopted is anchored.
    whole = adopted.read_bytes()
    adopted.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    assert "commits 2 to 2 of" in audit(tmp_path).gaps[0]
    adopted.write_bytes(whole)
    (anchor,) = tmp_path.glob("*-00000002.head")
    anchor.rename(tmp_path / "away")
    assert "an anchor of" in audit(tmp_path).gaps[0]
    (tmp_path / "away").rename(anchor)
    adopted.write_bytes(whole + b'{"row":5}\n')
    assert audit(tmp_path).gaps == [f"1 lines without a link are in {adopted}"]


def test_what_follows_the_last_anchor_is_counted(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, KIND, is_chained=True)
    for row in range(3):
        writer.append([{"row": row}])
    found = audit(tmp_path)
    assert found.gaps == []
    assert found.notes[0].endswith("3 commits follow its last anchor")
    writer.close()


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_commit_that_failed_is_lost_unless_it_was_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def broken(*_: object) -> None:
        raise OSError("the disk is full")

    writer = SegmentWriter(tmp_path, KIND, is_chained=True)
    writer.append([{"row": 1}])
    monkeypatch.setattr(os, call, broken)
    with pytest.raises(OSError, match="full"):
        writer.append([{"row": 2}])
    monkeypatch.undo()
    writer.append([{"row": 3}])
    writer.close(ends=True)
    adopt_segments(tmp_path, KIND)
    is_there = call == "fsync"  # this disk has it all the same
    gaps = audit(tmp_path).gaps
    assert bool(gaps) != is_there
    assert all("before 3 could not be written" in gap for gap in gaps)
    assert RecordFiles.list(tmp_path, KIND).audit(must_succeed=False).gaps == []


def test_rows_that_could_not_be_written_are_a_gap(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, KIND, is_chained=True)
    writer.lose(3)
    assert "3 rows of" in audit(tmp_path).gaps[0]  # even if it dies now
    writer.close(ends=True)
    assert "3 rows of" in audit(tmp_path).gaps[0]


def test_newer_versions_are_refused_by_name(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, KIND, is_chained=True)
    writer.append([{"row": 1}])
    path = writer.close(ends=True)
    assert path is not None
    path.write_bytes(path.read_bytes().replace(b'"v":1', b'"v":2'))
    with pytest.raises(PairbusError, match=path.name):
        audit(tmp_path)
    (head,) = tmp_path.glob("*.head")
    head.write_bytes(head.read_bytes().replace(b'"version":1', b'"version":2'))
    with pytest.raises(PairbusError, match=f"{head.name} was written by a newer version"):
        read_heads(tmp_path, KIND)
    head.write_text("{")
    assert read_heads(tmp_path, KIND) == [(head, None)]


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"", b"{}", b'{"version":1}', b"null", None])
def test_a_head_that_is_none_is_a_gap(content: bytes | None) -> None:
    with directory_of([[1, 1]]) as directory:
        [head] = directory.glob("*.head")
        head.unlink()
        head.mkdir() if content is None else head.write_bytes(content)
        assert any(f"{head.name} was edited, or cannot be read" in gap for gap in audit(directory).gaps)


def test_a_link_that_is_nested_too_deeply_is_a_gap() -> None:
    with directory_of([[1, 1]]) as directory:
        [segment] = closed_segments(directory, KIND)
        segment.write_bytes(b'{"chain":' + b"[" * 100_000 + b"\n" + segment.read_bytes())
        assert any("a link cannot be read" in gap for gap in audit(directory).gaps)

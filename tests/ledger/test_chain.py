"""Chains: whatever is removed or edited up to the last anchor is told, and nothing that is whole."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.errors import PairbusError
from pairbus.ledger.chain import ChainAudit, audit_chains, read_heads
from pairbus.ledger.segment import SegmentWriter, adopt_segments, closed_segments, read_segment

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
    heads = read_heads(directory, KIND)
    return audit_chains(heads, {path.name: path.read_bytes() for path in closed_segments(directory, KIND)})


plans = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3)


@given(plans, st.data())
def test_every_line_that_is_gone_or_changed_is_told(plan: list[list[int]], data: st.DataObject) -> None:
    with directory_of(plan) as directory:
        assert audit(directory) == ([], [])
        segments = closed_segments(directory, KIND)
        assert sum(len(read_segment(path).rows) for path in segments) == sum(map(sum, plan))
        damaged = data.draw(st.sampled_from(segments))
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
        assert told.endswith(f"are gone, behind {second.name}")
        first.write_bytes(first.read_bytes().replace(b'"row":1', b'"row":7'))
        assert any("was edited" in gap and first.name in gap for gap in audit(directory).gaps)
        (head,) = directory.glob("*.head")
        head.unlink()
        assert any("head of the chain" in gap for gap in audit(directory).gaps)


def test_who_has_written_nothing_has_left_a_chain(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "records", KIND, is_chained=True)
    writer.begin()
    (note,) = audit(tmp_path / "records").notes
    assert "is open since" in note
    writer.close(ends=True)
    assert audit(tmp_path / "records") == ([], [])
    assert [head.commits for head in read_heads(tmp_path / "records", KIND)] == [0]


def test_a_writer_that_died_is_told_and_its_rows_count(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, KIND, is_chained=True)
    writer.append([{"row": 1}])
    assert writer._open is not None
    writer._open.abandon()
    (adopted,) = adopt_segments(tmp_path, KIND)
    found = audit(tmp_path)
    assert found.gaps == []
    assert "1 commits follow its last anchor" in found.notes[0]
    adopted.write_bytes(adopted.read_bytes() + b'{"row":2}\n')
    assert "1 rows have no link" in audit(tmp_path).notes[0]


def test_rows_that_could_not_be_written_are_a_gap(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, KIND, is_chained=True)
    writer.lost = 3
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
    head.write_text(json.dumps({**json.loads(head.read_text()), "version": 2}))
    with pytest.raises(PairbusError, match="newer version"):
        read_heads(tmp_path, KIND)
    head.write_text("{")
    assert read_heads(tmp_path, KIND)[0].commits == -1

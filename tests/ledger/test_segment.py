"""Segments: closed by a rename, durable row by row, adopted when their writer is gone."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pairbus.clock import ManualClock
from pairbus.ledger.seal import seal_rows
from pairbus.ledger.segment import SegmentWriter, adopt_segments, closed_segments, read_segment
from tests.processes import killed_at_end


def hidden(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.name.startswith("."))


def rows_in(directory: Path, kind: str = "rows") -> list[int]:
    return [row["n"] for path in closed_segments(directory, kind) for row in read_segment(path).rows]


def test_rows_stand_in_a_hidden_file_until_it_is_closed(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "rows")
    writer.append([{"n": 1}, {"n": 2, "text": "Grüße\n\u2028 \ud800"}])
    assert closed_segments(tmp_path, "rows") == []
    assert len(hidden(tmp_path)) == 1
    path = writer.close()
    assert path is not None
    assert closed_segments(tmp_path, "rows") == [path]
    assert hidden(tmp_path) == []
    assert read_segment(path).rows == [{"n": 1}, {"n": 2, "text": "Grüße\n\u2028 \ud800"}]


def test_nothing_written_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "records"
    writer = SegmentWriter(directory, "rows")
    writer.append([])
    assert writer.close() is None
    assert not directory.exists()


def test_a_closed_segment_is_never_written_to_again(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "rows")
    writer.append([{"n": 1}])
    first = writer.close()
    assert first is not None
    before = first.read_bytes()
    writer.append([{"n": 2}])
    second = writer.close()
    assert second != first
    assert first.read_bytes() == before
    assert rows_in(tmp_path) == [1, 2]


def test_segments_roll_by_size(tmp_path: Path) -> None:
    clock = ManualClock()
    writer = SegmentWriter(tmp_path, "rows", max_bytes=300, clock=clock)
    for number in range(6):
        clock.advance(0.001)
        writer.append([{"n": number}])
    writer.close()
    segments = [read_segment(path).rows for path in closed_segments(tmp_path, "rows")]
    assert [len(rows) for rows in segments] == [3, 3]
    assert rows_in(tmp_path) == [0, 1, 2, 3, 4, 5]


def test_segments_roll_by_age(tmp_path: Path) -> None:
    clock = ManualClock()
    writer = SegmentWriter(tmp_path, "rows", max_age=60.0, clock=clock)
    writer.append([{"n": 1}])
    clock.advance(59.9)
    writer.append([{"n": 2}])
    writer.roll()
    assert closed_segments(tmp_path, "rows") == []
    clock.advance(0.1)
    writer.roll()
    assert rows_in(tmp_path) == [1, 2]


def test_the_rows_of_one_call_stay_together(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "rows", max_bytes=10)
    writer.append([{"n": number} for number in range(100)])
    writer.append([{"n": 100}])
    writer.close()
    first, second = sorted(closed_segments(tmp_path, "rows"), key=lambda path: -path.stat().st_size)
    assert (len(read_segment(first).rows), len(read_segment(second).rows)) == (100, 1)


def test_kinds_do_not_mix(tmp_path: Path) -> None:
    for kind in ("rows", "rowsof"):
        writer = SegmentWriter(tmp_path, kind)
        writer.append([{"n": len(kind)}])
        writer.close()
    assert (rows_in(tmp_path, "rows"), rows_in(tmp_path, "rowsof")) == ([4], [6])
    with pytest.raises(ValueError, match="letters and digits"):
        SegmentWriter(tmp_path, "../rows")


def test_every_row_is_on_the_disk_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        synced.append(path.read_bytes() if path.is_file() else b"directory")

    monkeypatch.setattr(os, "fsync", watch)
    writer = SegmentWriter(tmp_path, "rows")
    writer.append([{"n": 1}])
    first, second = (row + seal_rows(row) for row in (b'{"n":1}\n', b'{"n":2}\n'))
    assert synced == [b"directory", first]
    writer.append([{"n": 2}])
    assert synced[2:] == [first + second]
    writer.close()
    assert synced[3:] == [b"directory"]


def test_a_write_that_fails_leaves_no_half_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(tmp_path, "rows")
    writer.append([{"n": 1}])
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) < 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:-4])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=f"No space left on device: '{re.escape(str(tmp_path))}/"):
        writer.append([{"n": 2}])
    monkeypatch.undo()
    writer.append([{"n": 3}])
    path = writer.close()
    assert path is not None
    assert path.read_bytes() == b"".join(row + seal_rows(row) for row in (b'{"n":1}\n', b'{"n":3}\n'))


def test_after_a_failed_fsync_a_new_segment_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(tmp_path, "rows")
    writer.append([{"n": 1}])

    def broken(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="Input/output"):
        writer.append([{"n": 2}])
    monkeypatch.undo()
    writer.append([{"n": 3}])
    assert len(hidden(tmp_path)) == 2
    writer.close()
    assert rows_in(tmp_path) == [3]
    assert len(adopt_segments(tmp_path, "rows")) == 1
    assert 1 in rows_in(tmp_path)


def test_bad_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "rows-0.jsonl"
    path.write_bytes(b'{"n":1}\nnonsense\n[1]\n{"n":2}\n{"n":')
    read = read_segment(path)
    assert (read.rows, read.bad) == ([{"n": 1}, {"n": 2}], 3)


def test_the_segment_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "rows")
    writer.append([{"n": 1}])
    assert adopt_segments(tmp_path, "rows") == []
    writer.append([{"n": 2}])
    writer.close()
    assert rows_in(tmp_path) == [1, 2]


WRITER = """
import sys
from pathlib import Path
from pairbus.ledger.segment import SegmentWriter

writer = SegmentWriter(Path(sys.argv[1]), "rows")
writer.append([{"n": 1}, {"n": 2}])
print("written", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_writer_left_is_adopted(tmp_path: Path) -> None:
    started = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with killed_at_end(started) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        assert adopt_segments(tmp_path, "rows") == []
    (left,) = hidden(tmp_path)
    with left.open("ab") as file:
        file.write(b'{"n":3')  # the row that it was killed over
    (adopted,) = adopt_segments(tmp_path, "rows")
    assert rows_in(tmp_path) == [1, 2]
    assert read_segment(adopted).bad == 0
    assert hidden(tmp_path) == []
    assert adopt_segments(tmp_path, "rows") == []


@pytest.mark.parametrize("content", [b"", b'{"n":1', b"x" * 200_000])
def test_what_has_no_whole_row_is_removed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".rows-1-a.jsonl.open").write_bytes(content)
    assert adopt_segments(tmp_path, "rows") == []
    assert list(tmp_path.iterdir()) == []


def test_a_long_torn_line_is_cut_where_it_begins(tmp_path: Path) -> None:
    whole = json.dumps({"n": 1, "text": "y" * 100_000}).encode() + b"\n"
    (tmp_path / ".rows-1-a.jsonl.open").write_bytes(whole + b"x" * 150_000)
    (adopted,) = adopt_segments(tmp_path, "rows")
    assert adopted.read_bytes() == whole


@pytest.mark.parametrize("is_chained", [True, False])
def test_an_older_copy_of_a_closed_segment_takes_its_place_never(tmp_path: Path, is_chained: bool) -> None:
    """As in a copy of the directory that was brought up to date."""
    writer = SegmentWriter(tmp_path, "rows", is_chained=is_chained)
    writer.append([{"n": 1}])
    (left,) = hidden(tmp_path)
    older = left.read_bytes()
    writer.append([{"n": 2}])
    closed = writer.close(ends=True)
    assert closed is not None
    whole = closed.read_bytes()
    left.write_bytes(older)
    assert adopt_segments(tmp_path, "rows") == []
    assert (closed.read_bytes(), hidden(tmp_path)) == (whole, [])
    closed.write_bytes(whole[1:])
    for _ in range(2):
        left.write_bytes(older)
        assert adopt_segments(tmp_path, "rows") == []
    assert closed.read_bytes() == whole[1:]
    aside = sorted(path for path in tmp_path.iterdir() if path.suffix == ".damaged")
    assert [path.read_bytes() for path in aside] == [older, older]


def test_many_adopters_adopt_each_segment_once(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f".rows-{number:03d}-a.jsonl.open").write_bytes(f'{{"n":{number}}}\n'.encode())
    adopted: list[Path] = []

    def adopt() -> None:
        adopted.extend(adopt_segments(tmp_path, "rows"))

    threads = [threading.Thread(target=adopt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(adopted) == closed_segments(tmp_path, "rows")
    assert rows_in(tmp_path) == list(range(20))


def test_writers_and_adopters_at_once_lose_nothing(tmp_path: Path) -> None:
    """An adopter may come between the creation of a file and its lock; the writer then begins another."""
    ended = threading.Event()

    def adopt() -> None:
        while not ended.is_set():
            adopt_segments(tmp_path, "rows")

    def write(first: int) -> None:
        writer = SegmentWriter(tmp_path, "rows", max_bytes=1)
        for number in range(first, first + 40):
            writer.append([{"n": number}])
        writer.close()

    adopter = threading.Thread(target=adopt)
    writers = [threading.Thread(target=write, args=(first,)) for first in (0, 40)]
    for thread in (adopter, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    ended.set()
    adopter.join()
    assert sorted(rows_in(tmp_path)) == list(range(80))
    assert hidden(tmp_path) == []


def _remove(directory: Path) -> None:
    shutil.rmtree(directory)


def _move(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


def _replace(directory: Path) -> None:
    (path,) = hidden(directory)
    path.unlink()
    path.touch()


@pytest.mark.parametrize("act", [_remove, _move, _replace])
def test_a_file_that_is_gone_keeps_no_rows_and_says_so(tmp_path: Path, act: Callable[[Path], None]) -> None:
    """Each row would be acknowledged, and gone with the process."""
    directory = tmp_path / "records"
    writer = SegmentWriter(directory, "rows")
    writer.append([{"n": 1}, {"n": 2}])
    act(directory)
    with pytest.raises(FileNotFoundError, match="removed, moved or replaced"):
        writer.append([{"n": 3}])
    assert writer.lost == 2, "the third one is the caller's to count"
    writer.append([{"n": 4}])
    writer.close()
    assert rows_in(directory) == [4]


@pytest.mark.parametrize("is_synced", [True, False])
def test_a_file_that_is_gone_is_noticed_at_the_end(tmp_path: Path, is_synced: bool) -> None:
    directory = tmp_path / "records"
    writer = SegmentWriter(directory, "rows", is_chained=True)
    writer.append([{"n": 1}], is_synced=is_synced)
    shutil.rmtree(directory)
    with pytest.raises(FileNotFoundError, match="removed, moved or replaced"):
        writer.close(ends=True)
    assert writer.lost == 1

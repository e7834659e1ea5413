"""What lies among records and is no file: it is told, nobody waits for it, and the rest is read."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pairbus.ledger.generation import compact
from pairbus.ledger.receipts import KIND
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.segment import adopt_segments
from pairbus.plumbing.files import read_file

from .histories import JsonTable
from .test_generation import gaps, keep, put_together, rows


def _socket(path: Path) -> None:
    here = os.open(path.parent, os.O_RDONLY)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


ODD: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "a directory": Path.mkdir,
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}
STRAYS = (
    f"{KIND}-1700000000000-1.jsonl",
    f".{KIND}-1700000000000-1.jsonl.open",
    f".{KIND}-1700000000000-{'a' * 32}-00000001.jsonl.open",
    f"{KIND}-{'a' * 32}.head",
    f"{KIND}-000009.parquet",
)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", STRAYS)
def test_what_is_no_file_is_told_and_the_rest_is_read(tmp_path: Path, odd: str, name: str) -> None:
    keep(tmp_path, 1, 2)
    put_together(tmp_path)
    ODD[odd](tmp_path / name)
    told = gaps(tmp_path)
    assert any(name in one for one in told), told
    assert rows(tmp_path) == ["1", "2"]
    assert adopt_segments(tmp_path, KIND) == []
    keep(tmp_path, 3)
    put_together(tmp_path)
    assert rows(tmp_path) == ["1", "2", "3"]
    assert any(name in one for one in gaps(tmp_path)), "for ever"


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", [f"{KIND}-table.json", "_manifest.json", "a file of the table"])
def test_what_takes_the_place_of_a_part_of_a_table_is_told(tmp_path: Path, odd: str, name: str) -> None:
    keep(tmp_path, 1, 2)
    table = put_together(tmp_path).table
    assert table is not None
    places = {f"{KIND}-table.json": tmp_path / name, "_manifest.json": table / name}
    place = places.get(name) or next(iter(RecordFiles.list(tmp_path, KIND).table.files))
    place.unlink()
    ODD[odd](place)
    assert gaps(tmp_path)
    compact(tmp_path, KIND, JsonTable().compact)
    assert gaps(tmp_path)


def test_a_directory_with_a_higher_number_hides_no_table(tmp_path: Path) -> None:
    keep(tmp_path, 1, 2)
    put_together(tmp_path)
    (tmp_path / f"{KIND}-000002.parquet").mkdir()
    (tmp_path / f"{KIND}-000002.parquet" / "stray.txt").write_text("not ours")
    assert rows(tmp_path) == ["1", "2"]
    keep(tmp_path, 3)
    put_together(tmp_path)
    assert rows(tmp_path) == ["1", "2", "3"], "the next table has a name of its own"


@pytest.mark.parametrize("odd", ODD)
def test_only_files_are_read(tmp_path: Path, odd: str) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_file(tmp_path / "file") == b"content"
    ODD[odd](tmp_path / "odd")
    with pytest.raises(OSError, match="odd"):
        read_file(tmp_path / "odd")

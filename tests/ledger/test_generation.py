"""Tables: what is gone or damaged is told for ever, whatever is compacted later."""

import shutil
from pathlib import Path

import pytest

from pairbus.errors import ConfigurationError
from pairbus.ledger.generation import Compaction, compact
from pairbus.ledger.receipts import KIND
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.segment import SegmentWriter

from .histories import JsonTable, killed_after

TABLE = JsonTable()


def keep(directory: Path, *numbers: int) -> None:
    writer = SegmentWriter(directory, KIND, is_chained=True)
    writer.append({"op": str(number), "moved": 1.0, "outcome": "moved"} for number in numbers)
    writer.close(ends=True)


def put_together(directory: Path) -> Compaction:
    return compact(directory, KIND, TABLE.compact)


def gaps(directory: Path) -> list[str]:
    return RecordFiles.list(directory, KIND).audit(must_succeed=False).gaps


def rows(directory: Path) -> list[str]:
    return sorted(row["op"] for row in TABLE.read_all(RecordFiles.list(directory, KIND).table))


def test_many_writers_become_few_files(tmp_path: Path) -> None:
    for number in range(5):
        keep(tmp_path, number)
        put_together(tmp_path)
    names = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert names == {"receipts-000005.parquet", "receipts-table.json"}
    assert (rows(tmp_path), gaps(tmp_path)) == (list("01234"), [])
    manifest = RecordFiles.list(tmp_path, KIND).table.manifest
    assert len(manifest.covered) == 1, "of the last writer only"
    assert put_together(tmp_path).table == tmp_path / "receipts-000005.parquet"


def test_a_pump_that_has_nothing_to_tell_ends_after_a_compaction_without_a_trace(tmp_path: Path) -> None:
    idle = SegmentWriter(tmp_path, KIND, is_chained=True)
    idle.begin()
    keep(tmp_path, 1)
    put_together(tmp_path)
    idle.close(ends=True)
    assert gaps(tmp_path) == []
    keep(tmp_path, 2)
    put_together(tmp_path)
    assert gaps(tmp_path) == []


def test_a_table_that_is_gone_is_told_for_ever(tmp_path: Path) -> None:
    keep(tmp_path, 1)
    table = put_together(tmp_path).table
    assert table is not None
    shutil.rmtree(table)
    told = [f"the table {table} is gone"]
    assert gaps(tmp_path) == told
    keep(tmp_path, 2)
    with killed_after(1):  # the anchor that announces the next one
        put_together(tmp_path)
    assert gaps(tmp_path) == told
    assert put_together(tmp_path).table == tmp_path / "receipts-000002.parquet"
    assert (rows(tmp_path), gaps(tmp_path)) == (["2"], told)


@pytest.mark.parametrize("deed", ["edit the anchor", "put an older table in its place"])
@pytest.mark.parametrize("calls", range(6))
def test_what_is_wrong_with_a_table_is_told_though_a_compaction_was_killed(
    tmp_path: Path, deed: str, calls: int
) -> None:
    """Before the next table is there, which tells it, nothing else must seem to be well."""
    anchor, older = tmp_path / f"{KIND}-table.json", tmp_path / "older"
    keep(tmp_path, 1)
    put_together(tmp_path)
    shutil.copytree(tmp_path / f"{KIND}-000001.parquet", older)
    keep(tmp_path, 2)
    put_together(tmp_path)
    if deed == "edit the anchor":
        anchor.write_bytes(anchor.read_bytes().replace(b'"number":2', b'"number":3'))
    else:
        shutil.rmtree(tmp_path / f"{KIND}-000002.parquet")
        older.rename(tmp_path / f"{KIND}-000001.parquet")
    assert gaps(tmp_path)
    keep(tmp_path, 3)
    with killed_after(calls):
        put_together(tmp_path)
    assert gaps(tmp_path)
    put_together(tmp_path)
    assert gaps(tmp_path)


@pytest.mark.parametrize("deed", ["remove", "edit"])
def test_a_manifest_that_is_gone_or_edited_is_told_for_ever(tmp_path: Path, deed: str) -> None:
    keep(tmp_path, 1)
    table = put_together(tmp_path).table
    assert table is not None
    manifest = table / "_manifest.json"
    content = manifest.read_bytes()
    manifest.unlink() if deed == "remove" else manifest.write_bytes(content.replace(b'"bad":0', b'"bad":1'))
    (told,) = gaps(tmp_path)
    assert str(table) in told
    keep(tmp_path, 2)
    put_together(tmp_path)
    assert (rows(tmp_path), gaps(tmp_path)) == (["1", "2"], [told])
    assert table.with_name(f"{table.name}.damaged").is_dir()


def test_what_is_set_aside_takes_the_place_of_nothing_that_was(tmp_path: Path) -> None:
    keep(tmp_path, 1)
    table = put_together(tmp_path).table
    assert table is not None
    shutil.copytree(table, tmp_path / "backup")
    newer: Path | None = table
    for number in (2, 3, 4):
        assert newer is not None
        shutil.rmtree(newer)
        shutil.copytree(tmp_path / "backup", table)
        keep(tmp_path, number)
        newer = put_together(tmp_path).table
    assert rows(tmp_path) == ["1", "4"], "what stood in the newer tables went with them"
    aside = sorted(path.name for path in tmp_path.glob("*.damaged"))
    assert aside == [f"{table.name}.2.damaged", f"{table.name}.damaged"]


def test_a_newer_table_is_refused_by_name(tmp_path: Path) -> None:
    keep(tmp_path, 1)
    put_together(tmp_path)
    anchor = tmp_path / "receipts-table.json"
    anchor.write_bytes(anchor.read_bytes().replace(b'"version":1', b'"version":2'))
    with pytest.raises(ConfigurationError, match=f"{anchor.name} was written by a newer version"):
        gaps(tmp_path)

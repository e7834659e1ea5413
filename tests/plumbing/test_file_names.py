"""A name leads to the file that was opened by it, or it does not: asked either way."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.plumbing import file_names
from pairbus.plumbing.file_names import Signpost


@pytest.fixture(params=["statx", "stat"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "stat":  # a system, or a sandbox, without the other
        monkeypatch.setattr(file_names, "_statx", lambda: None)
    else:
        assert file_names._statx() is not None

        def look_closer(name: str) -> os.stat_result:
            raise AssertionError(f"the times of {name} are looked at")

        monkeypatch.setattr(os, "stat", look_closer)
    path = tmp_path / "place" / "file"
    path.parent.mkdir()
    path.write_bytes(b"four")
    return path


@pytest.fixture
def signpost(file: Path) -> Iterator[Signpost]:
    descriptor = os.open(file, os.O_RDONLY)
    yield Signpost(str(file), descriptor)
    os.close(descriptor)


def test_it_tells_the_file_and_its_length(file: Path, signpost: Signpost) -> None:
    assert signpost.leads_to(4)
    assert not signpost.leads_to(5)
    with file.open("ab") as more:
        more.write(b"!")
    assert signpost.leads_to(5)


def test_another_file_of_that_name_and_length_is_another(file: Path, signpost: Signpost) -> None:
    file.rename(file.with_name("moved"))
    file.write_bytes(b"four")
    assert not signpost.leads_to(4)
    os.replace(file.with_name("moved"), file)
    assert signpost.leads_to(4)


def test_a_name_that_leads_nowhere_is_an_error(
    file: Path, signpost: Signpost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # what is wrong is asked of the other
    file.parent.rename(file.parent.with_name("moved"))
    with pytest.raises(FileNotFoundError, match="file"):
        signpost.leads_to(4)

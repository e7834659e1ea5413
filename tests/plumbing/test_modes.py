"""What holds messages or keys is for its owner alone, whatever the umask; records follow their directory."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.broker import Broker
from pairbus.client.state.spool_records import SpoolRecord
from pairbus.client.state.spool_store import LineKey, SpoolStore
from pairbus.ledger.segment import SegmentWriter
from pairbus.plumbing.files import FileLock, follow, make_directory, publish


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes_below(path: Path) -> dict[str, int]:
    """By name: everything in a directory, however deep."""
    return {str(found.relative_to(path)): mode_of(found) for found in path.rglob("*")}


@pytest.mark.usefixtures("umask")
def test_a_broker_keeps_all_to_its_owner(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    data = tmp_path / "var" / "data"
    with Broker({"contoso": 0}, data_dir=data, certificate=certificate) as broker:
        broker["contoso"].create_queue("orders")
        modes = modes_below(tmp_path)
    files = {"store.db", "store.db-wal", "policies.json"}
    assert {name for name in modes if name.endswith(tuple(files))} == {
        f"var/data/contoso/{name}" for name in files
    }
    assert {name: mode for name, mode in modes.items() if mode not in (0o600, 0o700)} == {}


@pytest.mark.usefixtures("umask")
def test_a_key_is_secret_and_its_certificate_is_not(tmp_path: Path) -> None:
    with Broker({"contoso": 0}, data_dir=tmp_path / "data") as broker:
        path = broker.certificate
    assert mode_of(path) == 0o644
    others = {name: mode for name, mode in modes_below(path.parent).items() if name != path.name}
    assert set(others.values()) == {0o600, 0o700}


def test_a_store_that_was_open_to_others_is_closed(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    for _ in range(2):
        with Broker({"contoso": 0}, data_dir=tmp_path, certificate=certificate):
            assert mode_of(tmp_path / "contoso" / "store.db") == 0o600
        (tmp_path / "contoso").chmod(0o755)
        (tmp_path / "contoso" / "store.db").chmod(0o644)
    assert mode_of(tmp_path / "contoso") == 0o755, "it was there"


@pytest.mark.usefixtures("umask")
def test_records_and_spool_are_private_where_we_make_the_directory(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "state" / "records", "kind")
    writer.append([{"a": 1}])
    writer.close()
    SpoolStore.create(tmp_path / "state" / "spool").append(LineKey("orders"), [SpoolRecord("orders", 1, b"")])
    modes = modes_below(tmp_path)
    assert len(modes) == 7
    assert set(modes.values()) == {0o600, 0o700}


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("there", "file"),
    [(0o700, 0o600), (0o750, 0o640), (0o755, 0o644), (0o770, 0o660), (0o2770, 0o660), (0o1777, 0o600)],
)
def test_records_follow_a_directory_that_is_there(tmp_path: Path, there: int, file: int) -> None:
    records = tmp_path / "records"
    records.mkdir(0o700)
    records.chmod(there)
    writer = SegmentWriter(records, "kind")
    writer.append([{"a": 1}])
    writer.close()
    publish(records / "status.json", "{}")
    lock = FileLock.take(records / "lock")
    assert lock is not None
    lock.release()
    assert mode_of(records) == there
    assert set(modes_below(records).values()) == {file} == {follow(records)}


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize(
    ("there", "below", "private"), [(0o755, 0o700, 0o700), (0o2770, 0o2770, 0o700), (0o1777, 0o700, 0o700)]
)
def test_directories_below_one_that_a_group_shares(
    tmp_path: Path, there: int, below: int, private: int
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(0o700)
    shared.chmod(there)
    make_directory(shared / "records" / "pair", follows=True)
    make_directory(shared / "spool")
    assert mode_of(shared / "records") == mode_of(shared / "records" / "pair") == below
    assert mode_of(shared / "spool") & 0o777 == private


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(FileExistsError):
            make_directory(path)


def test_what_comes_while_a_shared_directory_is_made_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several writers of one client begin at once: the second follows what the first has just made."""
    tmp_path.chmod(0o770)
    monkeypatch.setattr(Path, "chmod", lambda path, mode: None)  # it has not come to that yet
    before = os.umask(0o022)
    try:
        make_directory(tmp_path / "records", follows=True)
    finally:
        os.umask(before)
    assert follow(tmp_path / "records") == 0o640

"""The files of the spool: how they follow each other, and what is on the disk when."""

import errno
import fcntl
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from pairbus.client.state import spool_file, spool_store, spool_survey
from pairbus.client.state.packing import pack
from pairbus.client.state.spool_records import SpoolCursor, SpoolRecord, framed, pieces_of
from pairbus.client.state.spool_store import Held, LineKey, SpoolStore, Unsent, adopt_stores
from pairbus.client.state.spool_survey import count_bytes_left, list_unreadable
from pairbus.plumbing import file_names

from .scene import text

ORDERS = LineKey.of("orders")


def record(name: str, path: str = "orders") -> SpoolRecord:
    return SpoolRecord(path, 1, pack([text(name)], scheduled_for=None))


def read(store: SpoolStore, key: LineKey = ORDERS) -> list[Unsent]:
    reading = store.read(key)
    return [] if reading is None else reading.unsent


def test_a_cursor_is_on_the_disk_before_it_takes_the_place_of_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record(name) for name in "123"])
    first = read(store)[0]
    calls: list[str] = []

    def watch(name: str) -> None:
        original = getattr(os, name)

        def call(*args: Any) -> None:
            calls.append(name)
            original(*args)

        monkeypatch.setattr(os, name, call)

    watch("fsync")
    watch("replace")
    store.settle(ORDERS, first.file, SpoolCursor(first.end), 1)
    assert calls == ["fsync", "replace", "fsync"]
    store.close()


def test_a_cursor_that_cannot_be_saved_is_told_and_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record(name) for name in "123"])
    first, *rest = read(store)

    def refuse(descriptor: int) -> None:
        raise OSError("no room")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuse)
        store.settle(ORDERS, first.file, SpoolCursor(first.end), 1)
    assert "sent twice after a crash: no room" in caplog.text
    assert read(store) == rest
    store.settle(ORDERS, first.file, SpoolCursor(rest[-1].end), 2)
    assert store.lines() == {}
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_files_follow_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairbus.client.state.spool_store._FILE_BYTES", 600)
    store = SpoolStore.create(tmp_path)
    records = [record(f"{number}") for number in range(10)]
    for one in records:
        store.append(ORDERS, [one])
    bills = LineKey.of("bills")
    store.append(bills, [record("b", "bills")])
    assert len(list(store.directory.glob("*.spool"))) > 3
    found: list[SpoolRecord] = []
    while some := read(store):
        found.append(some[0].record)
        store.settle(ORDERS, some[0].file, SpoolCursor(some[0].end), 1)
    assert found == records
    assert list(store.lines()) == [bills]
    store.append(ORDERS, [record("again")])
    store.close()
    [adopted] = adopt_stores(tmp_path)
    assert {key.path for key in adopted.lines()} == {"orders", "bills"}
    assert [one.record for one in read(adopted)] == [record("again")]
    adopted.close()


def test_who_has_closed_a_store_touches_nothing_of_it(tmp_path: Path) -> None:
    """A close may overtake what a lane has still to save, where the disk hangs; somebody else has it then."""
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record("1")])
    [first] = read(store)
    store.close()
    [adopted] = adopt_stores(tmp_path)
    assert store.settle(ORDERS, first.file, SpoolCursor(first.end), 1) == Held()
    assert [one.record for one in read(adopted)] == [record("1")]
    adopted.close()


def test_where_there_is_no_spool_there_is_nothing_to_adopt(tmp_path: Path) -> None:
    assert adopt_stores(tmp_path / "nowhere") == []


def test_who_may_only_read_a_spool_sees_what_was_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record("m0")])
    system_open = os.open

    def open_to_read(path: Any, flags: int, *mode: Any, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return system_open(path, flags, *mode, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_to_read)
        held = count_bytes_left(tmp_path)
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_to_read)
        left = count_bytes_left(tmp_path)
    assert (held, left > 0) == (0, True)


def test_a_file_that_is_sent_while_what_is_left_is_counted_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record("m0")])
    store.close()
    monkeypatch.setattr(spool_survey, "spool_files", lambda store: [store / "000000-000009.spool"])
    assert count_bytes_left(tmp_path) == 0


def test_what_somebody_looks_at_in_that_moment_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record("m0")])
    store.close()
    looking = os.open(store.directory / ".lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda seconds: os.close(looking))
    [adopted] = adopt_stores(tmp_path)
    assert [one.record for one in read(adopted)] == [record("m0")]
    adopted.close()


def test_the_names_of_new_directories_are_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a power cut takes all that is below them."""
    synced: list[Path] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    store = SpoolStore.create(tmp_path / "state" / "spool")
    assert synced == [tmp_path, tmp_path / "state", tmp_path / "state" / "spool"]
    synced.clear()
    store.append(ORDERS, [record("1")])
    assert store.directory in synced
    store.close()


def test_a_directory_whose_name_could_not_be_kept_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds it takes it for kept."""

    def refuse(descriptor: int) -> None:
        raise OSError("no sync")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match="no sync"):
            SpoolStore.create(tmp_path / "spool")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_sent_is_gone_for_good_before_its_cursor_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record(name) for name in "12"])
    first, second = read(store)
    store.settle(ORDERS, first.file, SpoolCursor(first.end), 1)
    left: list[list[str]] = []
    fsync = os.fsync

    def look(descriptor: int) -> None:
        left.append(sorted(path.suffix for path in store.directory.iterdir() if path.suffix))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    store.settle(ORDERS, second.file, SpoolCursor(second.end), 1)
    assert left == [[".cursor"]]
    store.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["write_all", "sync_directory"])
def test_a_disk_that_takes_nothing_is_not_filled_with_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = SpoolStore.create(tmp_path)

    def refuse(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(spool_file if step == "write_all" else spool_store, step, refuse)
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                store.append(ORDERS, [record("1")])
    assert list(store.directory.glob("*.spool")) == []
    store.append(ORDERS, [record("2")])
    assert [unsent.file.name for unsent in read(store)] == ["000000-000000.spool"]
    store.close()


def test_a_file_that_somebody_removed_is_told_and_holds_up_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record(name) for name in "123"])
    shutil.rmtree(store.directory)
    reading = store.read(ORDERS)
    assert reading is not None
    assert reading.unsent == []
    assert "with 3 messages" in caplog.text
    held = store.settle(ORDERS, reading.file, SpoolCursor(reading.end), 0)
    assert (held.messages, store.lines()) == (3, {})
    store.close()


def test_what_was_spooled_after_the_clock_was_set_back_is_sent_after_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = iter((14, 13, 14))
    monkeypatch.setattr(time, "time_ns", lambda: next(hours) * 3600 * 10**9)
    expected = [record(name) for name in "123"]
    for each in expected:  # of a process that is gone before the next one begins
        store = SpoolStore.create(tmp_path)
        store.append(ORDERS, [each])
        store.close()
    stores = adopt_stores(tmp_path)
    assert [one.record for store in stores for one in read(store)] == expected
    for store in stores:
        store.close()


def test_a_file_that_is_still_open_is_written_anew_where_its_name_leads_elsewhere(tmp_path: Path) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record("1")])
    (file,) = store.directory.glob("*.spool")
    whole = file.read_bytes()
    file.rename(tmp_path / "moved")
    store.append(ORDERS, [record("2")])
    assert [unsent.record for unsent in read(store)] == [record("2")], "and not in the file that was moved"
    file.unlink()
    file.write_bytes(whole)  # by another, of the length that the first one had
    store.append(ORDERS, [record("3")])
    with file.open("ab") as other:
        other.write(b"something else")
    store.append(ORDERS, [record("4")])
    assert [unsent.record for unsent in read(store)][-2:] == [record("3"), record("4")]
    assert b"something else" not in file.read_bytes()
    store.close()


def test_the_name_of_a_file_that_is_made_again_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record("1")])
    (file,) = store.directory.glob("*.spool")
    kept: list[list[str]] = []
    monkeypatch.setattr(spool_file, "sync_directory", lambda path: kept.append(os.listdir(path)))
    store.append(ORDERS, [record("2")])
    assert not kept, "its name is there already"
    file.unlink()
    store.append(ORDERS, [record("3")])
    assert [file.name in names for names in kept] == [True]
    store.close()


def test_records_are_kept_where_the_system_cannot_sync_data_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As macOS."""
    monkeypatch.delattr(os, "fdatasync")
    store = SpoolStore.create(tmp_path)
    for name in "12":
        store.append(ORDERS, [record(name)])
    assert [unsent.record for unsent in read(store)] == [record("1"), record("2")]
    store.close()


def test_one_file_alone_stays_open_and_none_that_is_done_with(tmp_path: Path) -> None:
    store = SpoolStore.create(tmp_path)

    def open_files() -> list[str]:
        links = [Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        found = [os.readlink(link) for link in links if link.is_symlink()]
        return [Path(name).name for name in found if name.startswith(str(tmp_path)) and ".spool" in name]

    for number in range(3):
        store.append(LineKey.of(f"orders-{number}"), [record("1")])
    assert open_files() == ["000002-000000.spool"]
    key = LineKey.of("orders-2")
    reading = store.read(key)
    assert reading is not None
    store.settle(key, reading.file, SpoolCursor(reading.end), 1)
    assert open_files() == []
    store.append(ORDERS, [record("2")])
    store.close()
    assert open_files() == []


@pytest.mark.parametrize("step", ["write", "fdatasync"])
def test_after_a_write_that_failed_the_next_record_follows_the_last_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record("1")])

    def refuse(descriptor: int, data: bytes = b"") -> int:
        os.pwrite(descriptor, b"torn", os.lseek(descriptor, 0, os.SEEK_CUR))
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, step, refuse)
        with pytest.raises(OSError, match="Input/output"):
            store.append(ORDERS, [record("2")])
    store.append(ORDERS, [record("3")])
    assert [unsent.record for unsent in read(store)] == [record("1"), record("3")]
    store.close()


def test_a_file_is_longer_than_its_records_only_while_it_is_open(tmp_path: Path) -> None:
    """Which a power cut may leave; whoever ends or turns to another file does not."""
    store = SpoolStore.create(tmp_path)
    sizes = []
    for number in range(40):
        store.append(ORDERS, [record(f"{number}")])
        sizes.append(store.directory.joinpath("000000-000000.spool").stat().st_size)
    assert len(set(sizes)) < 10, "most records do not make it longer"
    held = store.lines()[ORDERS].size
    assert held < sizes[-1] <= 2 * held
    store.append(LineKey.of("bills"), [record("b", "bills")])
    assert store.directory.joinpath("000000-000000.spool").stat().st_size == held
    for _ in range(5):
        store.append(LineKey.of("bills"), [record("b", "bills")])
    held = sum(one.size for one in store.lines().values())
    store.close()
    assert count_bytes_left(tmp_path) == held


def test_a_disk_without_room_for_more_than_the_record_takes_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpoolStore.create(tmp_path)
    names = [f"{number}" for number in range(10)]
    largest = max(len(framed(record(name))) for name in names)

    def write(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:largest])
        if len(data) > largest:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spool_file, "write_all", write)
    for name in names:
        store.append(ORDERS, [record(name)])
    assert [unsent.record for unsent in read(store)] == [record(name) for name in names]
    assert count_unreadable(tmp_path) == 0
    store.close()


def count_unreadable(spool: Path) -> int:
    return len(list_unreadable(spool, now=math.inf))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENOENT])
@pytest.mark.parametrize("is_named", [True, False])
def test_what_is_on_the_disk_and_cannot_be_seen_there_is_kept_once_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_named: bool
) -> None:
    """The caller is told that it is not kept: it must not be sent."""
    monkeypatch.setattr(file_names, "_statx", lambda: None)
    store = SpoolStore.create(tmp_path)
    kept = [record("1")]
    store.append(ORDERS, kept)
    (file,) = store.directory.glob("*.spool")

    def refuse(*given: Any, **named: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        broken.setattr(os, "stat", refuse)
        if is_named:
            store.append(ORDERS, [record("2")])
            kept.append(record("2"))
        else:
            broken.setattr(spool_file, "open_file", refuse)
            with pytest.raises(OSError, match=os.strerror(number)):
                store.append(ORDERS, [record("2")])
    assert [piece.record for piece in pieces_of(file.read_bytes())] == kept
    store.append(ORDERS, [record("3")])
    assert [unsent.record for unsent in read(store)] == [*kept, record("3")]
    store.close()


def test_what_is_written_while_it_is_read_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end may be seen where what is before it is not."""
    store = SpoolStore.create(tmp_path)
    for name in "1234":
        store.append(ORDERS, [record(name)])
    (file,) = store.directory.glob("*.spool")
    whole, size = file.read_bytes(), len(framed(record("1")))
    half = whole[:size] + b"\xff" * size + whole[2 * size :]
    seen = [half, whole, half, half]
    with monkeypatch.context() as written:
        written.setattr(Path, "read_bytes", lambda _: seen.pop(0))
        assert not list_unreadable(tmp_path, now=time.time())
        assert list_unreadable(tmp_path, now=time.time()) == [(file, size)], "as it is also the next time"
    store.close()


def test_a_file_that_cannot_be_closed_keeps_nobody_from_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SpoolStore.create(tmp_path)
    store.append(ORDERS, [record("1")])
    close = os.close

    def fail(descriptor: int) -> None:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        close(descriptor)
        if name.endswith(".spool"):
            raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "close", fail)
        with pytest.raises(OSError, match="Input/output"):
            store.close()
    (adopted,) = adopt_stores(tmp_path)
    assert [unsent.record for unsent in read(adopted)] == [record("1")]
    adopted.close()

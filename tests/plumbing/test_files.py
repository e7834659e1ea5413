"""Files: the old one or the new one, whole, whatever fails; and locks that end with their holder."""

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairbus.plumbing.files import (
    SECRET,
    FileLock,
    drafted,
    files_in,
    hold_alone,
    is_locked,
    publish,
    publish_directory,
    remove_drafts,
    sync_directory,
    tighten,
)
from tests.examples import examples

CALLS = ("open", "write", "fsync", "close", "replace")


class Disk:
    """Counts the calls to the system, and fails or cuts short one of them."""

    def __init__(self, *, fails_at: int | None, error: type[BaseException], piece: int) -> None:
        self._fails_at = fails_at
        self._error = error
        self._piece = piece
        self.made: list[str] = []

    @contextmanager
    def in_place(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self._watched(name, getattr(os, name)))
            yield

    def _watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.made.append(name)
            if name == "write":
                args = (args[0], args[1][: self._piece])
            if len(self.made) - 1 == self._fails_at:
                if name == "close":  # the system lets go of it all the same
                    original(*args, **named)
                raise self._error(errno.EIO, name)
            return original(*args, **named)

        return call


@settings(
    max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    old=st.none() | st.binary(max_size=40),
    new=st.binary(max_size=40),
    fails_at=st.none() | st.integers(0, 12),
    error=st.sampled_from([OSError, KeyboardInterrupt, MemoryError]),
    piece=st.integers(1, 50),
    durable=st.booleans(),
)
def test_whatever_fails_the_old_file_or_the_new_one_is_there_whole(
    tmp_path_factory: pytest.TempPathFactory,
    old: bytes | None,
    new: bytes,
    fails_at: int | None,
    error: type[BaseException],
    piece: int,
    durable: bool,
) -> None:
    path = tmp_path_factory.mktemp("disk") / "file"
    if old is not None:
        path.write_bytes(old)
    disk = Disk(fails_at=fails_at, error=error, piece=piece)
    raised: BaseException | None = None
    with disk.in_place():
        try:
            publish(path, new, durable=durable)
        except error as caught:
            raised = caught
    has_failed = fails_at is not None and fails_at < len(disk.made)
    assert (raised is not None) == has_failed, "an error is raised, and no other"
    found = path.read_bytes() if path.exists() else None
    is_replaced = "replace" in disk.made and disk.made.index("replace") != fails_at
    assert found == (new if is_replaced else old)
    assert sorted(path.parent.iterdir()) == ([] if found is None else [path]), "no draft stays behind"
    if not has_failed and durable:
        at = disk.made.index("replace")
        assert "fsync" in disk.made[:at]
        assert "fsync" in disk.made[at:]
    if not durable:
        assert "fsync" not in disk.made


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_secret_is_never_open_to_others(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("old")
    path.chmod(0o644)
    before = os.umask(0)
    try:
        with drafted(path, mode=SECRET) as descriptor:
            assert stat.S_IMODE(os.fstat(descriptor).st_mode) == SECRET
            os.write(descriptor, b"new")
        assert (path.read_text(), mode_of(path)) == ("new", SECRET)
        tmp_path.chmod(0o755)
        publish(tmp_path / "plain", "ü")
        assert ((tmp_path / "plain").read_text(encoding="utf-8"), mode_of(tmp_path / "plain")) == ("ü", 0o644)
    finally:
        os.umask(before)
    tighten(tmp_path / "plain")
    assert mode_of(tmp_path / "plain") == SECRET


def test_two_who_publish_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with drafted(path) as mine:
        os.write(mine, b"mi")
        publish(path, b"theirs")
        assert path.read_bytes() == b"theirs"
        os.write(mine, b"ne")
    assert path.read_bytes() == b"mine"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """Root could put a file in the place of `/dev/null`."""
    pipe, alias, output = tmp_path / "pipe", tmp_path / "alias", tmp_path / "output"
    os.mkfifo(pipe)
    alias.symlink_to(pipe)
    output.symlink_to("/proc/self/fd/1")
    for path in (pipe, alias, output):
        with pytest.raises(OSError, match="no file"):
            publish(path, b"")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(tmp_path.iterdir()) == [alias, output, pipe]
    gone = tmp_path / "gone"
    gone.symlink_to(tmp_path / "nothing")
    publish(gone, b"")
    assert gone.is_file()


def test_a_block_that_raises_publishes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), drafted(tmp_path / "file"):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from pairbus.plumbing.files import drafted\n"
        "with drafted(Path(sys.argv[1])): os._exit(3)"
    )
    (tmp_path / ".other").write_text("")
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "file"], timeout=30).returncode == 3
    assert len(list(tmp_path.iterdir())) == 2
    remove_drafts(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".other"]


def test_a_directory_is_published_with_all_that_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = tmp_path / ".draft"
    (draft / "part").mkdir(parents=True)
    (draft / "part" / "rows").write_text("rows")
    synced: list[str] = []
    fsync = os.fsync

    def note(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(f"{tmp_path}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    publish_directory(draft, tmp_path / "table")
    assert synced == ["/.draft", "/.draft/part", "/.draft/part/rows", ""]
    assert (tmp_path / "table" / "part" / "rows").read_text() == "rows"
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "table" / "part" / "rows")


def test_one_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with hold_alone(path) as lock:
        assert lock is not None
        assert FileLock.take(path) is None
        with hold_alone(path) as other:
            assert other is None
    again = FileLock.take(path)
    assert again is not None
    again.release()
    assert FileLock.take(tmp_path / "none", create=False) is None
    with pytest.raises(FileNotFoundError):
        FileLock.take(tmp_path / "nowhere" / "lock")


def test_the_lock_of_a_process_ends_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import sys; from pathlib import Path; from pairbus.plumbing.files import FileLock\n"
        "print(FileLock.take(Path(sys.argv[1])) is not None, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert FileLock.take(path) is None
        process.kill()
        process.wait(30)
    lock = FileLock.take(path)
    assert lock is not None
    lock.release()


def test_a_child_that_was_forked_does_not_hold_the_lock_of_a_process_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    code = (
        "import os, sys; from pathlib import Path; from pairbus.plumbing.files import FileLock\n"
        "lock = FileLock.take(Path(sys.argv[1]))\n"
        "if os.fork(): os._exit(0)\n"
        "print('child', flush=True); sys.stdin.read(); lock.release(); print('gone', flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.wait(30) == 0
        assert process.stdout.readline() == "child\n"
        lock = FileLock.take(path)
        process.stdin.close()
        assert process.stdout.readline() == "gone\n"
    assert lock is not None
    lock.release()


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    original = os.open

    def open_and_lose(*args: Any) -> int:
        descriptor = original(*args)
        path.unlink()
        return descriptor

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_and_lose)
        assert FileLock.take(path) is None
    assert FileLock.take(path, create=False) is None


def test_a_full_disk_is_told_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", refuse)
    with pytest.raises(OSError, match=r"No space left on device: '.*/page'"):
        publish(tmp_path / "page", "text")


def test_who_looks_whether_a_lock_is_held_never_waits(tmp_path: Path) -> None:
    held, pipe = tmp_path / "held", tmp_path / "pipe"
    os.mkfifo(pipe)
    with hold_alone(held) as lock:
        assert lock is not None
        assert [is_locked(path) for path in (held, pipe, tmp_path / "gone")] == [True, False, False]
    assert not is_locked(held)


def test_a_directory_that_may_not_be_listed_is_not_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert files_in(tmp_path, "f*") == [tmp_path / "file"]
    assert files_in(tmp_path / "nowhere", "*") == files_in(tmp_path / "file", "*") == []

    def deny(_: Path) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.listdir", deny)  # as to a user without rights, which root is not
    with pytest.raises(PermissionError):
        files_in(tmp_path, "*")

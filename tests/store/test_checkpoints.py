"""The WAL is moved into the database beside the commits: it does not grow for ever, nobody waits, and nothing
that was committed depends on it.
"""

import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.store import checkpoints
from pairbus.broker.store.file import wal_path
from pairbus.broker.store.sqlite import SqliteStore
from tests.engine.observing import observe
from tests.engine.samples import START, message
from tests.waiting import PATIENCE, wait_until

from .files import load, store_path

_LONG = 200_000


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A WAL is long when it has this many bytes."""
    monkeypatch.setattr(checkpoints, "LONG", _LONG)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(store_path(tmp_path))) as store:
        yield store


def commit(store: SqliteStore, space: Namespace, count: int = 20) -> None:
    space.send("orders", [message(b"x" * 2000) for _ in range(count)], START)
    store.commit(space.take_events())


def lengthen(store: SqliteStore, space: Namespace) -> None:
    """Commit enough for a checkpoint to begin."""
    for _ in range(_LONG // 40_000 + 1):
        commit(store, space)


class Line:
    """A connection whose checkpoints do as they are told."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.asked = 0
        self.goes = threading.Event()
        self.error: sqlite3.Error | None = None

    def execute(self, sql: str) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        assert self.goes.wait(PATIENCE)
        return self._connection.execute(sql)

    def close(self) -> None:
        self.goes.set()
        self._connection.close()


@pytest.fixture
def line(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> Line:
    line = Line(store._checkpoints._connection)
    monkeypatch.setattr(store._checkpoints, "_connection", line)
    return line


def generation(path: Path) -> bytes:
    """What is another one whenever a WAL is used anew."""
    with wal_path(path).open("rb") as file:
        return file.read(32)[12:24]


def test_under_load_the_wal_is_used_anew_and_everything_is_there(
    store: SqliteStore, space: Namespace, tmp_path: Path
) -> None:
    path, deadline = store_path(tmp_path), time.monotonic() + PATIENCE
    commit(store, space)
    seen = {generation(path)}
    while len(seen) < 4:
        assert time.monotonic() < deadline, "the WAL grows for ever"
        commit(store, space)
        seen.add(generation(path))
    store.close()
    assert observe(load(path)) == observe(space)


def test_what_a_kill_has_left_in_the_wal_counts(
    store: SqliteStore, space: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = store_path(tmp_path / "killed")
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "LONG", 1 << 40)
        lengthen(store, space)
        shutil.copytree(store_path(tmp_path).parent, killed.parent, dirs_exist_ok=True)
    with closing(SqliteStore(killed)) as restarted:
        before = generation(killed)
        deadline = time.monotonic() + PATIENCE
        for _ in range(3):  # the second finds the last bit to be moved, the third the WAL empty
            space.create_queue(f"q{restarted.commits}", None, START)
            restarted.commit(space.take_events())
            thread = restarted._checkpoints._thread
            if thread is not None:
                thread.join(deadline - time.monotonic())
        assert generation(killed) != before
    assert observe(load(killed)) == observe(space)


def test_nobody_waits_for_a_checkpoint(
    store: SqliteStore, space: Namespace, line: Line, tmp_path: Path
) -> None:
    lengthen(store, space)
    wait_until(lambda: line.asked == 1)
    before = store.commits
    lengthen(store, space)
    assert store.commits > before
    assert line.asked == 1, "and there is one at a time"
    line.goes.set()
    store.close()
    assert observe(load(store_path(tmp_path))) == observe(space)


def test_a_checkpoint_that_fails_is_no_turn_s_fault_and_is_tried_again(
    store: SqliteStore, space: Namespace, line: Line, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line.error = sqlite3.OperationalError("database or disk is full")
    lengthen(store, space)
    wait_until(lambda: "a checkpoint has failed" in caplog.text)
    deadline = time.monotonic() + PATIENCE
    while line.asked < 2:
        assert time.monotonic() < deadline, "it is not tried again"
        commit(store, space)
    store.close()
    assert observe(load(store_path(tmp_path))) == observe(space)


def test_without_a_thread_the_turn_is_committed_all_the_same(
    store: SqliteStore, space: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        lengthen(store, space)
    store.close()
    assert observe(load(store_path(tmp_path))) == observe(space)


def test_every_connection_that_writes_waits_for_the_disk(store: SqliteStore) -> None:
    full = 2
    for connection in (store._database, store._checkpoints._connection):
        assert connection.execute("PRAGMA synchronous").fetchone() == (full,)

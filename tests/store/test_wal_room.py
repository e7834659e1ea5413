"""Small turns find room in the WAL: few of them make it longer, and it holds nothing else for that."""

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.store.file import wal_path
from pairbus.broker.store.sqlite import SqliteStore
from pairbus.broker.store.wal_room import _ROOM
from tests.engine.observing import observe
from tests.engine.samples import START, message

from .files import load, store_path


@pytest.fixture
def store(tmp_path: Path, space: Namespace) -> Iterator[SqliteStore]:
    with closing(SqliteStore(store_path(tmp_path))) as store:
        store.commit(space.take_events())
        yield store


def commit(store: SqliteStore, space: Namespace, count: int = 1) -> int:
    """Commit a turn; how long the WAL is then."""
    for _ in range(count):
        space.send("orders", [message(b"x" * 1000)], START)
    store.commit(space.take_events())
    return wal_path(store._path).stat().st_size


def test_few_of_many_small_turns_make_the_wal_longer(
    store: SqliteStore, space: Namespace, tmp_path: Path
) -> None:
    lengths = [commit(store, space) for _ in range(60)]
    assert lengths[-1] > len(_ROOM), "more was written than there was room for at first"
    assert len(set(lengths)) <= 2 + lengths[-1] // len(_ROOM)
    killed = store_path(tmp_path / "killed")
    shutil.copytree(store_path(tmp_path).parent, killed.parent, dirs_exist_ok=True)
    assert observe(load(killed)) == observe(space)


def test_a_store_that_was_killed_goes_on_in_the_room_that_is_there(
    store: SqliteStore, space: Namespace, tmp_path: Path
) -> None:
    length, killed = commit(store, space), store_path(tmp_path / "killed")
    shutil.copytree(store_path(tmp_path).parent, killed.parent, dirs_exist_ok=True)
    with closing(SqliteStore(killed)) as restarted:
        assert commit(restarted, space) == length
    assert observe(load(killed)) == observe(space)


def test_a_large_turn_has_nothing_written_behind_it(store: SqliteStore, space: Namespace) -> None:
    before = commit(store, space)
    assert wal_path(store._path).read_bytes().endswith(bytes(1000))
    assert commit(store, space, count=1000) > before
    assert not wal_path(store._path).read_bytes().endswith(bytes(1000)), "its last page ends the WAL"


def test_without_room_for_it_turns_go_on(store: SqliteStore, space: Namespace, tmp_path: Path) -> None:
    room = store._wal_room
    room.close()
    room._descriptor = os.open(wal_path(store._path), os.O_RDONLY)
    lengths = [commit(store, space) for _ in range(40)]
    assert lengths == sorted(lengths)
    assert lengths[-1] > lengths[0]
    store.close()
    assert observe(load(store_path(tmp_path))) == observe(space)

"""Stores in files, and what to look for in them."""

import hashlib
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from pairbus.broker.contents import Contents
from pairbus.broker.engine.events import EngineEvent
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.queue import MessageQueue
from pairbus.broker.flights import StoreThread
from pairbus.broker.store.sqlite import SqliteStore
from tests.engine.samples import namespace


def store_path(directory: Path) -> Path:
    """Where a namespace's store lies in a data directory."""
    path = directory / "contoso" / "store.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def contents_of(store: SqliteStore) -> Contents:
    """Those of a frugal broker, which keeps nothing in memory that the store has."""

    def fail(error: Exception) -> None:
        raise error

    return Contents(store, StoreThread(store, "test"), fail=fail, budget=0)


def write(path: Path, *turns: Iterable[EngineEvent]) -> None:
    """Commit some turns and let go of the file."""
    with closing(SqliteStore(path)) as store:
        for turn in turns:
            store.commit(list(turn))


def load(path: Path, *, now: float = 0.0) -> Namespace:
    """The namespace that a restarted broker would have, with the contents of all messages."""
    space = namespace()
    with closing(SqliteStore(path)) as store:
        space.replay(store.load(), now=now)
        bring_all(space)
    return space


def bring_all(space: Namespace) -> None:
    """Have the contents of all messages in memory."""
    for entity in space._entities():
        for room in (entity, *(entity.sub_queues() if isinstance(entity, MessageQueue) else ())):
            for message in room.table.since(0):
                message.held = message.content


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    """Ask a closed store with a connection of one's own."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute(sql).fetchall()


def fingerprint(directory: Path) -> dict[str, str]:
    """What lies in a directory, byte for byte."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }

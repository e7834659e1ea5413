"""Opening a store: shapes and migration, files that are not for us, and one broker at a time."""

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pairbus.broker import Broker
from pairbus.broker.engine.settings import QueueSettings
from pairbus.broker.errors import StoreDamaged, StoreError
from pairbus.broker.store.counter import counter_path
from pairbus.broker.store.file import APPLICATION_ID, FUNCTIONS, wal_path
from pairbus.broker.store.sqlite import SqliteStore
from pairbus.broker.store.statements import load_migrations
from tests.engine.observing import observe
from tests.engine.samples import START, message, namespace
from tests.store.files import fingerprint, load, query, store_path, write

NEWEST = len(load_migrations())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return store_path(tmp_path)


def refusal(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        SqliteStore(path)
    return str(caught.value)


# -- shapes


def test_a_new_file_gets_the_newest_shape(path: Path) -> None:
    SqliteStore(path).close()
    assert query(path, "PRAGMA user_version") == [(NEWEST,)]
    assert query(path, "PRAGMA application_id") == [(APPLICATION_ID,)]
    assert query(path, "PRAGMA journal_mode") == [("wal",)]


def test_an_empty_file_is_a_new_one(path: Path) -> None:
    path.touch()
    SqliteStore(path).close()
    assert query(path, "PRAGMA user_version") == [(NEWEST,)]


def test_every_commit_is_synced(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        assert store._database.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"


@pytest.mark.parametrize("shape", range(1, NEWEST))
def test_an_older_file_is_brought_up_to_date(path: Path, shape: int) -> None:
    """Made by hand with the scripts that there were then, and with rows that only they knew."""
    space = namespace()
    space.create_queue("orders", QueueSettings(requires_session=True), START)
    write(path, space.take_events())
    settings = query(path, "SELECT settings FROM entity")[0][0]
    path.unlink()
    counter_path(path).unlink()
    with closing(sqlite3.connect(path)) as old:
        for name, function in FUNCTIONS.items():
            old.create_function(name, -1, function, deterministic=True)
        bare = min(shape, 2)  # rows had no checksums yet
        for script in load_migrations()[:bare]:
            old.executescript(script)
        old.execute("INSERT INTO entity VALUES ('orders', 'queue', ?, 1, 2, 3)", (settings,))
        old.execute("INSERT INTO place VALUES (1 << 44, 'orders', 7)")
        old.execute("INSERT INTO session_state (place, session_id, state) VALUES (1 << 44, 's', x'01')")
        old.commit()
        for script in load_migrations()[bare:shape]:
            old.executescript(script)
        old.execute(f"PRAGMA user_version = {shape}")
    write(path)
    assert query(path, "PRAGMA user_version") == [(NEWEST,)]
    states = query(path, "SELECT place, session_id, state, updated_at FROM session_state")
    assert states == [(1 << 44, "s", b"\x01", 0.0)]
    queue = load(path).get_queue("orders")
    assert (queue.created_at, queue.updated_at, queue.last_sequence) == (1.0, 2.0, 7)


def test_a_migration_is_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(path).close()
    broken = (*load_migrations(), "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1);")
    monkeypatch.setattr("pairbus.broker.store.file.load_migrations", lambda: broken)
    assert "nowhere" in refusal(path)
    monkeypatch.undo()
    assert query(path, "PRAGMA user_version") == [(NEWEST,)]
    assert query(path, "SELECT name FROM sqlite_master WHERE name = 'half'") == []
    SqliteStore(path).close()


# -- files that are not for us


def test_a_newer_file_is_refused_and_left_as_it_is(path: Path, tmp_path: Path) -> None:
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version = {NEWEST + 1}")
    before = fingerprint(tmp_path)
    text = refusal(path)
    assert f"number {NEWEST + 1}" in text
    assert f"knows {NEWEST}" in text
    assert "newer Pairbus" in text
    assert fingerprint(tmp_path) == before


def test_a_newer_file_whose_shape_is_still_in_the_wal_is_refused_too(path: Path, tmp_path: Path) -> None:
    """As after a crash of the newer broker in the moment after it made the shape."""
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version = {NEWEST + 1}")
        newer.execute("CREATE TABLE novelty (x)")
        crashed = store_path(tmp_path / "crashed")
        for name in ("store.db", "store.db-wal"):
            shutil.copy(path.with_name(name), crashed.with_name(name))
    assert "newer Pairbus" in refusal(crashed)
    assert query(crashed, "PRAGMA user_version") == [(NEWEST + 1,)]
    assert query(crashed, "SELECT count(*) FROM novelty") == [(0,)]


def test_the_shape_does_not_stay_in_the_wal(path: Path) -> None:
    with closing(SqliteStore(path)):
        header = path.read_bytes()[:100]
    assert int.from_bytes(header[60:64], "big") == NEWEST, "user_version, by the format of the file"


def test_a_database_of_another_program_is_refused_and_left_as_it_is(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE invoices (total)")
    before = fingerprint(tmp_path)
    assert "another program" in refusal(path)
    assert fingerprint(tmp_path) == before


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"Dear diary, " * 1000)
    before = fingerprint(tmp_path)
    text = refusal(path)
    assert "not a database" in text
    assert "move it away" in text.lower()
    assert fingerprint(tmp_path) == before


def test_a_damaged_file_is_told_of_and_not_taken_for_an_empty_one(path: Path) -> None:
    space = namespace()
    space.create_queue("orders", None, START)
    space.send("orders", [message(b"x" * 3000) for _ in range(50)], START)
    write(path, space.take_events())
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        load(path)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE entity SET settings = 'no json'",
        "UPDATE entity SET settings = '{}'",
        "UPDATE entity SET kind = 'cupboard'",
        "UPDATE message SET state = 9",
        "UPDATE message SET session_id = 7",
        "UPDATE message SET envelope = x'ff'",
        "UPDATE message SET body = 7",
        "UPDATE message SET application_properties = x'ff'",
        "DELETE FROM place",
    ],
)
def test_rows_that_cannot_be_read_are_told_of(path: Path, sql: str) -> None:
    space = namespace()
    space.create_queue("orders", None, START)
    space.send("orders", [message()], START)
    write(path, space.take_events())
    with closing(sqlite3.connect(path)) as other:
        other.execute(sql)
        other.commit()
    with pytest.raises(StoreDamaged, match="salvage"):
        load(path)


def test_a_directory_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path / "nowhere" / "store.db")


# -- starts that fail for a while

# Opens a store with so many descriptors, and then with all of them.
_STARVED = """
import os, pathlib, resource, sys
from pairbus.broker.errors import StoreDamaged, StoreError
from pairbus.broker.store.sqlite import SqliteStore

path = pathlib.Path(sys.argv[1])
SqliteStore(path).close()  # so that all modules are there
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
refused = 0
for spare in range(10):
    held = []
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        pass
    for _ in range(spare):
        os.close(held.pop())
    try:
        SqliteStore(path).close()
    except StoreError as error:
        assert not isinstance(error, StoreDamaged), error
        refused += 1
    for descriptor in held:
        os.close(descriptor)
    SqliteStore(path).close()
print(refused)
"""


def test_a_start_without_descriptors_holds_nothing_afterwards(path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _STARVED, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 2


def test_a_start_that_the_disk_refuses_leaves_the_wal_where_it_is(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = namespace()
    space.create_queue("orders", None, START)
    space.send("orders", [message(b"acknowledged")], START)
    killed = store_path(tmp_path / "killed")
    with closing(SqliteStore(path)) as store:
        store.commit(space.take_events())
        shutil.copytree(path.parent, killed.parent, dirs_exist_ok=True)  # as a kill leaves it

    def fail(store: SqliteStore) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "_read_places", fail)
        with pytest.raises(StoreError) as caught:
            SqliteStore(killed)
    assert not isinstance(caught.value, StoreDamaged)
    assert not list(killed.parent.glob("*damaged*"))
    assert observe(load(killed)) == observe(space)


# -- one broker at a time


@pytest.mark.usefixtures("quick_lock")
def test_a_second_store_on_the_same_file_is_refused(path: Path) -> None:
    with closing(SqliteStore(path)):
        assert "Another broker is using it" in refusal(path)
    SqliteStore(path).close()


@pytest.mark.usefixtures("quick_lock")
def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Broker({"contoso": 0}, data_dir=tmp_path) as first:
        with pytest.raises(StoreError, match="Another broker is using it"):
            Broker({"contoso": 0}, data_dir=tmp_path).__enter__()
        first["contoso"].create_queue("still-works")
    with Broker({"contoso": 0}, data_dir=tmp_path) as second:
        assert second["contoso"].message_count("still-works") == 0


@pytest.mark.usefixtures("quick_lock")
def test_a_store_of_another_process_is_refused_until_that_process_is_gone(path: Path) -> None:
    program = (
        "import pathlib, sys\nfrom pairbus.broker.store.sqlite import SqliteStore\n"
        "store = SqliteStore(pathlib.Path(sys.argv[1]))\nprint('open', flush=True)\nsys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        assert "Another broker is using it" in refusal(path)
    finally:
        holder.kill()
        holder.communicate(timeout=30)
    SqliteStore(path).close()


@pytest.mark.parametrize("kept", [0, 1])
def test_a_turn_that_failed_in_its_sync_does_not_come_back(tmp_path: Path, kept: int) -> None:
    """All of it is in the WAL then, and SQLite takes it for committed when it opens the file anew."""
    space, path = namespace(), store_path(tmp_path / "live")
    with closing(SqliteStore(path)) as store:
        space.create_queue("orders", None, START)
        space.send("orders", [message(b"kept")] * kept, START)
        store.commit(space.take_events())
        shutil.copytree(tmp_path / "live", tmp_path / "other")
        space.send("orders", [message(b"refused"), message(b"x" * 20_000)], START)
        events = space.take_events()
        twin = SqliteStore(store_path(tmp_path / "other"))
        twin.commit(events)
        # The very frames that the commit of the first store would have left.
        wal_path(path).write_bytes(wal_path(store_path(tmp_path / "other")).read_bytes())
        twin.close()
        store._sql = {**store._sql, "commit": "no statement at all"}
        with pytest.raises(StoreError):
            store.commit(events)
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    assert load(store_path(tmp_path / "killed")).get_queue("orders").counts().active == kept


AWAY: dict[str, Callable[[Path], object]] = {
    "the directory is removed": lambda path: shutil.rmtree(path.parent.parent),
    "the directory is moved": lambda path: path.parent.rename(path.parent.with_name("elsewhere")),
    "the file is removed": Path.unlink,
    "the WAL is removed": lambda path: wal_path(path).unlink(),
    "the file is replaced": lambda path: Path(shutil.copy(path, f"{path}2")).replace(path),
}


@pytest.mark.parametrize("what", AWAY)
def test_nothing_is_acknowledged_that_goes_into_a_file_without_a_name(tmp_path: Path, what: str) -> None:
    space, path = namespace(), store_path(tmp_path / "data")
    with closing(SqliteStore(path)) as store:
        space.create_queue("orders", None, START)
        store.commit(space.take_events())
        AWAY[what](path)
        for _ in range(2):
            space.send("orders", [message(b"x")], START)
            with pytest.raises(StoreError, match="removed, moved or replaced"):
                store.commit(space.take_events())
        with pytest.raises(StoreError, match="removed, moved or replaced"):
            list(store.load())

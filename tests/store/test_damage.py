"""Whatever happens to the files of a store: nothing acknowledged is lost or altered without a word."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker import Broker
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.errors import StoreDamaged, StoreError
from pairbus.broker.store import salvage
from pairbus.broker.store.counter import CommitCounter, Mark, counter_path
from pairbus.broker.store.file import PAGE_SIZE, wal_path
from pairbus.broker.store.salvage import salvage_store
from pairbus.broker.store.sqlite import SqliteStore
from pairbus.broker.store.wal_marks import WalMarks
from tests.engine.samples import START, message, namespace
from tests.logs import our_lines
from tests.store.damage import Original, contents_of, do_damage, fixed_parts, make_originals, reload
from tests.store.files import fingerprint, load, store_path, write

# `make soak` tries more. A failure tells its seed; PAIRBUS_DAMAGE_SEED begins there.
COUNT = int(os.environ.get("PAIRBUS_DAMAGES", "120"))
FIRST = int(os.environ.get("PAIRBUS_DAMAGE_SEED", "0"))


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> list[Original]:
    return make_originals(tmp_path_factory.mktemp("originals"))


@pytest.fixture
def killed(originals: list[Original], tmp_path: Path) -> tuple[Original, Path]:
    """A store with a WAL, to be damaged."""
    copy = tmp_path / "copy"
    shutil.copytree(originals[0].directory, copy)
    return originals[0], copy


def refused(directory: Path) -> str:
    with pytest.raises(StoreDamaged) as caught:
        reload(directory)
    return str(caught.value)


# -- any damage


@pytest.mark.parametrize("part", range(4))
def test_no_damage_loses_or_alters_anything_without_a_word(
    part: int, originals: list[Original], tmp_path: Path
) -> None:
    for seed in range(FIRST + part, FIRST + COUNT, 4):
        original, copy = originals[seed // 4 % 2], tmp_path / str(seed)
        shutil.copytree(original.directory, copy)
        what = do_damage(copy, seed)
        try:
            observed, contents = reload(copy)
        except StoreDamaged:
            if seed // 8 % 3 == 0:
                _check_salvage(original, copy, what)
        except StoreError:
            pass  # one bit made it look like a store of a newer shape, or of another program
        else:
            assert contents == original.contents, what
            assert observed == original.observed, what
        shutil.rmtree(copy)


def _check_salvage(original: Original, copy: Path, what: str) -> None:
    try:
        result = salvage_store(store_path(copy))
    except StoreDamaged:
        return  # nothing can be read at all: that was told, and all is as it was
    assert result is not None, what
    _, contents = reload(copy)
    assert len(contents) == result.saved, what
    named = {part for part in fixed_parts(contents) if not part[0].startswith("salvaged-")}
    assert named <= original.ever, what
    if contents != original.contents:
        assert not result.is_complete, what


# -- no damage


def test_a_kill_in_the_midst_of_a_checkpoint_is_none(originals: list[Original], tmp_path: Path) -> None:
    """Pages are moved from the WAL into the file one by one, the first one first, which tells how many there
    are. Until the last one is there, the file alone makes no sense.
    """
    original = originals[0]
    moved = tmp_path / "moved"
    shutil.copytree(original.directory, moved)
    with closing(sqlite3.connect(store_path(moved))) as database:
        database.execute("PRAGMA wal_checkpoint(FULL)")
        after = store_path(moved).read_bytes()
    before = store_path(original.directory).read_bytes()
    pages = len(after) // PAGE_SIZE
    assert pages > len(before) // PAGE_SIZE
    for count in (1, 2, len(before) // PAGE_SIZE, pages - 1, pages):
        copy = tmp_path / str(count)
        shutil.copytree(original.directory, copy)
        store_path(copy).write_bytes(after[: count * PAGE_SIZE] + before[count * PAGE_SIZE :])
        assert reload(copy) == (original.observed, original.contents)


# -- what was seen


def test_a_bit_of_the_wal_costs_no_more_than_what_it_stands_in(killed: tuple[Original, Path]) -> None:
    original, copy = killed
    wal = wal_path(store_path(copy))
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 1
    wal.write_bytes(content)
    assert "that were committed" in refused(copy)
    assert "that were committed" in refused(copy), "and again: what is saved of the WAL is not started with"
    result = salvage_store(store_path(copy))
    assert result is not None
    assert result.saved >= len(original.contents) - 3
    assert result.remains.parent == store_path(copy).parent
    assert {path.name for path in result.remains.iterdir()} >= {"store.db", "store.count"}
    assert salvage_store(store_path(copy)) is None, "it is whole now"


def test_a_store_that_ends_within_a_page_is_damaged_and_not_its_disk(killed: tuple[Original, Path]) -> None:
    """As a copy that broke off does. Without its WAL, which is kept aside then, SQLite calls this a disk that
    fails.
    """
    original, copy = killed
    store = store_path(copy)
    store.write_bytes(store.read_bytes()[: 6 * PAGE_SIZE + 1741])
    assert "is not as it was written" in refused(copy)
    assert "it ends too early" in refused(copy)
    _check_salvage(original, copy, "cut within a page")
    assert salvage_store(store) is None, "it is whole now"


@pytest.mark.parametrize("happens", ["wal deleted", "wal emptied", "store emptied", "store deleted"])
def test_files_that_are_gone_are_not_taken_for_new_ones(killed: tuple[Original, Path], happens: str) -> None:
    _, copy = killed
    file, _, what = happens.partition(" ")
    path = store_path(copy) if file == "store" else wal_path(store_path(copy))
    if what == "deleted":
        path.unlink()
    else:
        path.write_bytes(b"")
    before = store_path(copy).exists()
    assert "salvage" in refused(copy)
    assert store_path(copy).exists() == before
    with pytest.raises(StoreDamaged):
        Broker({"contoso": 0}, data_dir=copy).__enter__()


def test_an_older_copy_of_the_store_alone_is_refused(tmp_path: Path) -> None:
    space, path = namespace(), store_path(tmp_path)
    space.create_queue("orders", None, START)
    write(path, space.take_events())
    older = path.read_bytes()
    space.send("orders", [message()], START)
    write(path, space.take_events())
    path.write_bytes(older)
    assert "turn 1 of 2" in refused(tmp_path)


def test_another_store_in_its_place_is_refused(tmp_path: Path) -> None:
    space = namespace()
    space.create_queue("orders", None, START)
    events = space.take_events()
    for name in ("one", "two"):
        write(store_path(tmp_path / name), events)
    shutil.copy(store_path(tmp_path / "one"), store_path(tmp_path / "two"))
    assert "another store" in refused(tmp_path / "two")


# -- what kills and power cuts leave


def _line(path: Path) -> Mark:
    mark = CommitCounter(path).read()
    assert mark is not None
    return mark


@pytest.mark.parametrize(
    "leave",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(bytes(62)),
        lambda path: path.write_bytes(b"\xff" * 4096),
        lambda path: path.write_bytes(path.read_bytes()[:30]),
        lambda path: path.write_bytes(path.read_bytes() * 2),
    ],
    ids=["gone", "empty", "zeros", "garbage", "cut", "twice"],
)
def test_no_counter_that_a_power_cut_may_leave_is_held_against_a_store(
    killed: tuple[Original, Path], leave: Callable[[Path], Any]
) -> None:
    original, copy = killed
    path = counter_path(store_path(copy))
    mark = _line(store_path(copy))
    leave(path)
    assert reload(copy) == (original.observed, original.contents)
    write(store_path(copy), [])
    assert _line(store_path(copy)) == Mark(mark.identity, mark.turn + 1), "and it counts on"


def test_a_store_that_is_ahead_of_its_counter_is_whole(tmp_path: Path) -> None:
    """After any turn, the line of any turn before it."""
    space, path, lines = namespace(), store_path(tmp_path), []
    space.create_queue("orders", None, START)
    with closing(SqliteStore(path)) as store:
        for _ in range(4):
            store.commit(space.take_events())
            lines.append(counter_path(path).read_bytes())
            space.send("orders", [message()], START)
    for line in lines:
        counter_path(path).write_bytes(line)
        assert len(load(path).get_queue("orders").table) == 3


def test_a_counter_that_cannot_be_written_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    space, path = namespace(), store_path(tmp_path)
    space.create_queue("orders", None, START)
    with closing(SqliteStore(path)) as store:
        store.commit(space.take_events())
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", _fail)
            for _ in range(3):
                space.send("orders", [message()], START)
                store.commit(space.take_events())
    assert our_lines(caplog) == ["the counter of a store cannot be written"]
    assert _line(path).turn == 1
    assert len(load(path).get_queue("orders").table) == 3


def _fail(*_: Any, **__: Any) -> Any:
    raise OSError(28, "No space left on device")


# -- salvage


def test_a_whole_store_is_left_as_it_is(originals: list[Original], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(originals[1].directory, copy)
    before = fingerprint(copy)
    assert salvage_store(store_path(copy)) is None
    assert fingerprint(copy) == before


@pytest.mark.usefixtures("quick_lock")
def test_a_store_in_use_is_left_alone(tmp_path: Path) -> None:
    path = store_path(tmp_path)
    with closing(SqliteStore(path)), pytest.raises(StoreError, match="using it"):
        salvage_store(path)


def test_numbers_are_not_used_again_after_a_loss(killed: tuple[Original, Path]) -> None:
    original, copy = killed
    wal_path(store_path(copy)).unlink()
    result = salvage_store(store_path(copy))
    assert result is not None
    assert any("turns" in lost for lost in result.lost)
    space = load(store_path(copy))
    space.send("orders", [message(message_id="new")], START + 1e6)
    (number,) = {number for _, number in contents_of(space)} - {number for _, number, *_ in original.ever}
    assert number > max(number for _, number, *_ in original.ever)


def test_entities_and_names_that_are_lost_leave_their_messages_a_place(
    originals: list[Original], tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(originals[1].directory, copy)
    with closing(sqlite3.connect(store_path(copy))) as database:
        database.execute("UPDATE entity SET settings = 'no json'")
        database.execute("UPDATE place SET path = 'x' || path WHERE path = 'orders'")
        database.commit()
    result = salvage_store(store_path(copy))
    assert result is not None
    assert result.saved == len(originals[1].contents)
    assert result.missing == 0
    _, contents = reload(copy)
    assert {fields[0] for fields in contents.values()} == {
        fields[0] for fields in originals[1].contents.values()
    }
    assert any(path.startswith("salvaged-") for path, _ in contents)


@pytest.mark.parametrize("step", range(11))
def test_a_salvage_that_is_killed_can_be_begun_again(
    killed: tuple[Original, Path], monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Whatever the step, there is no store that starts with less, and the second salvage saves as much."""
    original, copy = killed
    path = store_path(copy)
    wal = wal_path(path)
    content = bytearray(wal.read_bytes())
    content[len(content) // 3] ^= 4
    wal.write_bytes(content)
    steps = iter(range(100))

    def interrupted(real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*args: Any, **kwargs: Any) -> Any:
            if next(steps) == step:
                raise KeyboardInterrupt
            return real(*args, **kwargs)

        return act

    with monkeypatch.context() as patch:
        for owner, name in [
            (salvage, "make_directory"),
            (salvage, "sync_directory"),
            (Path, "hardlink_to"),
            (Path, "replace"),
            (Path, "unlink"),
        ]:
            patch.setattr(owner, name, interrupted(getattr(owner, name)))
        try:
            salvage_store(path)
        except KeyboardInterrupt:
            was_interrupted = True
        else:
            was_interrupted = False
    assert was_interrupted or step > 8
    again = salvage_store(path)
    _, contents = reload(copy)
    assert len(contents) >= len(original.contents) - 3, f"the second time: {again}"


# -- what is said of it


def test_a_file_that_is_no_database_is_not_called_damaged(tmp_path: Path) -> None:
    path = store_path(tmp_path)
    path.write_bytes(b"somebody's notes" * 1000)
    with pytest.raises(StoreError, match=r"is not a database\. Move it away") as caught:
        salvage_store(path)
    assert not isinstance(caught.value, StoreDamaged)


def test_a_store_of_which_nothing_is_left_is_not_sent_to_salvage_again(tmp_path: Path) -> None:
    path = store_path(tmp_path)
    write(path, [])
    path.write_bytes(b"\0" * 20_000)
    with pytest.raises(StoreDamaged, match="nothing can be read") as caught:
        salvage_store(path)
    assert "--salvage" not in str(caught.value)


def test_what_the_system_refuses_is_told_in_words(
    killed: tuple[Original, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store_path(killed[1])
    wal_path(path).unlink()
    monkeypatch.setattr(salvage, "make_image", _fail)
    with pytest.raises(StoreError, match=r"cannot be salvaged: No space left on device: .*store\.db"):
        salvage_store(path)


# -- an older database under a newer WAL


def turn_over(store: SqliteStore, space: Namespace, turns: int) -> None:
    """Turns that each bring a message and take one, so that there are always as many."""
    for _ in range(turns):
        space.send("orders", [message(b"x" * 3000)], START)
        assert space.get_queue("orders").receive(1, START, delete=True)
        store.commit(space.take_events())


def copy_killed(store: Path, directory: Path) -> Path:
    """The files of a store that is open, as a kill would leave them."""
    shutil.copytree(store.parent, directory)
    return directory / store.name


def test_a_wal_that_somebody_has_emptied_does_not_undo_a_turn_that_is_committed(tmp_path: Path) -> None:
    path = store_path(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    wal_path(path).write_bytes(b"")
    with closing(WalMarks(path)) as marks:
        marks.look()


@pytest.mark.parametrize("restarts", [False, True], ids=["one life", "after a kill"])
@pytest.mark.parametrize("turns", [2, 40, 41, 100])
def test_an_older_database_under_a_newer_wal_is_found(tmp_path: Path, turns: int, restarts: bool) -> None:
    """As many messages are missing as have come back, so that no count tells. SQLite finds most of these, by
    pages that make no sense together, and one of them not.
    """
    path = store_path(tmp_path)
    space = namespace()
    space.create_queue("orders", None, START)
    with closing(SqliteStore(path)) as store:
        store._database.execute("PRAGMA wal_autocheckpoint = 20")
        space.send("orders", [message(b"x" * 3000) for _ in range(50)], START)
        store.commit(space.take_events())
        turn_over(store, space, 60)
        older = copy_killed(path, tmp_path / "older")
        turn_over(store, space, turns + 40)
        newer = copy_killed(path, tmp_path / "newer")
    if restarts:
        with closing(SqliteStore(newer)) as store:
            store._database.execute("PRAGMA wal_autocheckpoint = 0")
            space = namespace()
            space.replay(store.load())
            turn_over(store, space, 5)
            newer = copy_killed(newer, tmp_path / "newest")
    load(copy_killed(newer, tmp_path / "whole"))
    shutil.copy(older, newer)
    with pytest.raises(StoreDamaged, match=r"older store\.db lies under a newer|malformed"):
        SqliteStore(newer)

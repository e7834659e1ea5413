"""The leash, by sockets and by files: who gets in, what is told, and what a cut means."""

import asyncio
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairbus.backlog.served_queue import ServedQueue
from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.spark import leases as leases_module
from pairbus.spark.leases import SyphonLeases
from pairbus.spark.leash import documents, file_tether
from pairbus.spark.leash import leash as leash_module
from pairbus.spark.leash import tether as tether_module
from pairbus.spark.leash.documents import read_document, write_document
from pairbus.spark.leash.ends import hold_leash, open_planner, read_place, write_place
from pairbus.spark.leash.epochs import Epochs
from pairbus.spark.leash.file_leash import ORDER_FILE, FileLeash
from pairbus.spark.leash.file_tether import FilePlannerTether, FileTether
from pairbus.spark.leash.leash import Leash, LeashAddress, LeashDirectory, PumpNews, PumpSeen
from pairbus.spark.leash.tether import (
    ControlFile,
    SocketPlannerTether,
    SocketTether,
    Tether,
    ask_leash,
)
from pairbus.stores.places import name_of
from pairbus.stores.store import open_store
from tests.object_places import credentials, make_azure_container, place_of
from tests.waiting import PATIENCE

from .bus import until as until_now

COUNTS = {"moved": 3, "dead_lettered": 1, "waiting": 2, "bytes": 300, "unknown": 0}
NOBODY = LeashAddress("127.0.0.1", 9, "x")
# Longer than a machine may stand still, short enough to wait for it.
STALE = 5.0
MakeLeash = Callable[..., Leash]


def directory_of(leash: FileLeash) -> Path:
    assert isinstance(leash.directory, Path)
    return leash.directory


@pytest.fixture(autouse=True)
def no_idling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are looked at more often, so that nobody has to wait for it."""
    quick = replace(documents.DIRECTORY_PACE, slowest_look=0.1, beat=0.2)
    monkeypatch.setattr(documents, "DIRECTORY_PACE", quick)
    monkeypatch.setattr(documents, "STORE_PACE", quick)
    monkeypatch.setattr(file_tether, "_LOOK", 0.05)
    monkeypatch.setattr(file_tether, "_APPEARS", 0.5)


@pytest.fixture(params=["socket", "file"])
def make_leash(request: pytest.FixtureRequest) -> MakeLeash:
    return Leash if request.param == "socket" else FileLeash


@pytest.fixture
def rows() -> list[Any]:
    return []


@pytest.fixture
def leash(make_leash: MakeLeash, tmp_path: Path, rows: list[Any]) -> Iterator[Leash]:
    records = [tmp_path / "records", tmp_path / "of-another-pair"]
    with make_leash(records, epochs=Epochs(busy=50, longest=100), on_row=rows.append) as leash:
        yield leash
    left = [path for directory in records if directory.exists() for path in directory.iterdir()]
    assert left == [], "nothing is left behind"


async def connect(leash: Leash, *, shard: int = 0, epoch: int = 1, timed: bool = False) -> Tether:
    pump = PumpSeen(shard=shard, epoch=epoch, attempt=7, host="here", pid=1)
    return await hold_leash(leash.place, leash.records, pump=pump, timed=timed)


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(PATIENCE):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - other threads bring it about
            await asyncio.sleep(0.01)


async def expect(tether: Tether, order: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while tether.order != order:
            await tether.changed.wait()
            tether.changed.clear()


async def test_counts_of_pumps_add_up_and_outlive_them(leash: Leash) -> None:
    one, two = await connect(leash), await connect(leash, shard=1)
    one.tell(PumpNews(counts=COUNTS))
    two.tell(PumpNews(counts=COUNTS))
    await until(lambda: leash.progress().counts["moved"] == 6)
    assert [pump.shard for pump in await asyncio.to_thread(leash.pumps)] == [0, 1]
    await one.close()
    await until(lambda: leash.progress().pumps == 1)
    # The next attempt of the shard sees the same messages waiting.
    again = await connect(leash)
    again.tell(PumpNews(counts={**COUNTS, "waiting": 5}))
    await until(lambda: leash.progress().counts["moved"] == 9)
    assert (await asyncio.to_thread(leash.progress)).counts["waiting"] == 7
    await two.close()
    await again.close()
    await until(lambda: leash.progress().pumps == 0)


async def test_orders_reach_pumps_and_a_stop_is_for_good(leash: Leash) -> None:
    tether = await connect(leash)
    assert tether.order == "run"
    for give, expected in ((leash.pause, "pause"), (leash.resume, "run"), (leash.stop, "stop")):
        await asyncio.to_thread(give)
        await expect(tether, expected)
    assert not tether.is_cut, "it was told to"
    await asyncio.to_thread(leash.resume)
    assert leash.order == "stop"
    late = await connect(leash)
    assert late.order == "stop"
    await late.close()
    await tether.close()


async def test_last_words_are_heard_before_the_leash_has_settled(leash: Leash, rows: list[Any]) -> None:
    tether = await connect(leash)
    tether.complain("one")
    tether.tell(PumpNews(counts=COUNTS))
    tether.complain("two")
    tether.report({"epoch": 1, "paths": "{}"})
    await tether.close()
    await asyncio.to_thread(leash.settle)
    assert rows == [{"epoch": 1, "paths": "{}"}]
    assert leash.faults == ["one", "two"]
    assert leash.progress().counts["moved"] == 3


async def test_a_cut_leash_is_an_order_to_stop(make_leash: MakeLeash, tmp_path: Path) -> None:
    with make_leash([tmp_path]) as leash:
        tether = await connect(leash)
        place = leash.place
        await asyncio.to_thread(leash.__exit__, None, None, None)
        await expect(tether, "stop")
        assert tether.is_cut
        await tether.close()
    with pytest.raises(UnreachableError):
        await asyncio.to_thread(open_planner(place).next_epoch)


async def test_a_pump_that_writes_elsewhere_is_refused(leash: Leash, tmp_path: Path) -> None:
    place = leash.place
    if isinstance(place, LeashDirectory):
        place = LeashDirectory(str(tmp_path / "elsewhere" / Path(place.directory).name))
    with pytest.raises(ConfigurationError, match="not the same directory"):
        await hold_leash(place, [tmp_path / "elsewhere"] * 2, pump=PumpSeen(0, 1, 7, "here", 1), timed=False)
    accepted = await connect(leash)
    await accepted.close()


async def test_one_directory_of_several_that_is_not_shared_is_refused(leash: Leash, tmp_path: Path) -> None:
    records = [leash.records[0], tmp_path / "elsewhere"]
    with pytest.raises(ConfigurationError, match=r"not the same directory on here"):
        await hold_leash(leash.place, records, pump=PumpSeen(0, 1, 7, "here", 1), timed=False)


def test_a_leash_that_lives_is_not_taken_for_forgotten(tmp_path: Path) -> None:
    long_ago = time.time() - 2 * documents._FORGOTTEN
    records = [tmp_path / "first", tmp_path / "second"]
    forgotten = records[1] / ".leash-of-the-past"
    forgotten.mkdir(parents=True)
    os.utime(forgotten, (long_ago, long_ago))
    with FileLeash(records) as leash:
        mark = records[1] / directory_of(leash).name
        os.utime(mark, (long_ago, long_ago))
        leash.pause()
        until_now(lambda: mark.stat().st_mtime > long_ago + 1)
        with FileLeash(records[1:]):
            assert mark.is_dir()
        assert not forgotten.exists()


async def test_the_planner_is_told_of_queues_until_the_stop_and_pumps_of_the_time_left(leash: Leash) -> None:
    planner = open_planner(read_place(write_place(leash.place)))
    leash.queues = [ServedQueue(0, "a"), ServedQueue(1, "b")]
    await until(lambda: planner.next_epoch() == leash.queues)
    tether = await connect(leash, timed=True)
    assert tether.left == pytest.approx(50, abs=10)
    assert await asyncio.to_thread(planner.next_epoch) == leash.queues
    later = await connect(leash, epoch=2, timed=True)
    assert later.left == pytest.approx(100, abs=10)
    await later.close()
    await tether.close()
    await asyncio.to_thread(leash.stop)
    await until(lambda: planner.next_epoch() is None)


async def test_a_command_finds_a_running_syphon_by_its_file(leash: Leash, tmp_path: Path) -> None:
    file = ControlFile(tmp_path / "state")
    with pytest.raises(UnreachableError, match="no syphon runs"):
        file.read()
    with file.held():
        file.write(leash.address)
        assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
        tether = await connect(leash)
        leash.trouble = "the disk is full"
        told = await asyncio.to_thread(ask_leash, file.read(), "pause")
        assert (told["order"], told["pumps"], leash.order) == ("pause", 1, "pause")
        assert told["trouble"] == "the disk is full"
        await expect(tether, "pause")
        await tether.close()
    assert not file.path.exists()


def test_one_syphon_holds_a_state_at_a_time(leash: Leash, tmp_path: Path) -> None:
    first, second = ControlFile(tmp_path / "state"), ControlFile(tmp_path / "state")
    with first.held():
        first.write(leash.address)
        with pytest.raises(UnreachableError, match="runs already"), second.held():
            pytest.fail("there is one already")
        assert second.read() == leash.address
    with second.held():
        pass


async def test_without_the_token_nobody_gets_in(tmp_path: Path) -> None:
    with Leash([tmp_path]) as leash:
        stranger = LeashAddress(leash.address.host, leash.address.port, "guess")
        with pytest.raises(UnreachableError, match="token"):
            await asyncio.to_thread(ask_leash, stranger, "stop")
        assert leash.order == "run"
    assert "guess" not in repr(stranger)


async def test_a_driver_out_of_reach_is_named_with_the_option_that_mends_it(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="--driver-host"):
        await hold_leash(NOBODY, [tmp_path], pump=PumpSeen(0, 0, 0, "here", 1), timed=False)
    with pytest.raises(UnreachableError):
        SocketPlannerTether(NOBODY).next_epoch()


async def test_without_a_heartbeat_the_leash_is_cut(tmp_path: Path) -> None:
    """A killed driver leaves its order behind, and it says: run."""
    with FileLeash([tmp_path]) as leash:
        leash.queues = [ServedQueue(0, "a")]
        tether = await FileTether.connect(
            leash.place, [tmp_path], pump=PumpSeen(0, 1, 7, "here", 1), timed=False, stale=STALE
        )
        planner = FilePlannerTether(leash.place, stale=STALE)
        await until(lambda: planner.next_epoch() == leash.queues)
        order = read_document(directory_of(leash) / ORDER_FILE)
        assert order is not None
    assert not directory_of(leash).exists()
    directory_of(leash).mkdir()
    write_document(directory_of(leash) / ORDER_FILE, {**order, "beat": order["beat"] + 100})
    if not tether.is_cut:  # it may have seen the moment when the directory was not there
        await expect(tether, "stop")
    assert tether.is_cut
    with pytest.raises(UnreachableError, match="sign of life"):
        await until(lambda: planner.next_epoch() is None)
    with pytest.raises(UnreachableError, match="does not answer"):
        await FileTether.connect(
            leash.place, [tmp_path], pump=PumpSeen(0, 1, 7, "here", 1), timed=False, stale=0.2
        )
    await tether.close()


def test_a_leash_tells_for_how_long_its_pumps_may_outlive_the_driver(tmp_path: Path) -> None:
    assert FileLeash([tmp_path], stale=STALE).orphans > STALE
    assert FileLeash([tmp_path], stale=60.0).orphans > 60.0
    assert Leash([tmp_path]).orphans < tether_module.STALE, "its line ends with it"


async def test_a_pump_without_a_sign_of_life_is_let_go_and_not_heard_again(tmp_path: Path) -> None:
    with FileLeash([tmp_path], stale=STALE) as leash:
        tether = await connect(leash)
        tether.tell(PumpNews(counts=COUNTS))
        await until(lambda: leash.progress().counts["moved"] == 3)
        assert isinstance(tether, FileTether)
        assert tether._listener is not None
        tether._listener.cancel()  # as if its process hung
        await until(lambda: leash.progress().pumps == 0)
        tether.tell(PumpNews(counts={**COUNTS, "moved": 50}))
        await tether._write()
        await until(lambda: list(directory_of(leash).glob("pump-*")) == [])
        assert leash.progress().counts["moved"] == 3


async def test_the_heart_beats_on_though_what_a_pump_says_cannot_be_heard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else one stray file would end every pump."""
    with FileLeash([tmp_path], stale=STALE) as leash:
        write_document(directory_of(leash) / "pump-stray.json", {"beat": 1})

        def beat() -> int:
            found = read_document(directory_of(leash) / ORDER_FILE)
            return found["beat"] if found is not None else 0

        begun = beat()
        await until(lambda: beat() > begun + 3)
        assert caplog.text.count("what pumps say cannot be heard") == 1
        (directory_of(leash) / "pump-stray.json").unlink()
        tether = await connect(leash)
        await tether.close()


async def test_a_pump_that_cannot_hear_any_more_takes_its_leash_for_cut(
    make_leash: MakeLeash, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would never end."""
    with make_leash([tmp_path]) as leash:
        tether = await connect(leash)

        def stumble(order: str) -> None:
            monkeypatch.undo()
            raise KeyError(order)

        monkeypatch.setattr(tether, "_obey", stumble)
        leash.pause()
        async with asyncio.timeout(PATIENCE):
            await tether.changed.wait()
        assert (tether.is_cut, tether.order) == (True, "stop")
        await tether.close()


async def test_a_driver_that_does_not_answer_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tether_module, "_DEADLINE", 0.2)

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        address = LeashAddress("127.0.0.1", server.sockets[0].getsockname()[1], "x")
        pump = PumpSeen(shard=0, epoch=1, attempt=7, host="here", pid=1)
        with pytest.raises(UnreachableError, match="does not answer"):
            await asyncio.wait_for(hold_leash(address, [tmp_path], pump=pump, timed=False), PATIENCE)


async def test_who_lets_go_resets_nothing_though_the_driver_has_just_spoken(tmp_path: Path) -> None:
    """A reset would throw away what was told last, and the summary would lack a pump."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:
        spoken, let_go = threading.Event(), threading.Event()

        def drive() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as lines:
                lines.readline()
                connection.sendall(b'{"order": "run", "left": null, "share": 1.0}\n')
                assert let_go.wait(30)
                connection.sendall(b'{"share": 0.5}\n')
                spoken.set()
                heard.extend(lines.read())  # up to the end; a reset would raise

        with ThreadPoolExecutor(1) as pool:
            driver = pool.submit(drive)
            address = LeashAddress("127.0.0.1", server.getsockname()[1], "x")
            seen = PumpSeen(0, 0, 0, "here", 1, 1)
            tether = await SocketTether.connect(address, [tmp_path], pump=seen, timed=False)
            let_go.set()
            assert spoken.wait(30)  # this loop has not read it, and the thread goes on
            tether.report({"epoch": 0})
            await tether.close()
            await asyncio.wrap_future(driver)
    assert json.loads(heard) == {"row": {"epoch": 0}}


async def test_a_pump_that_is_refused_hangs_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def refuse() -> bytes:
            connection, _ = server.accept()
            connection.settimeout(PATIENCE)
            with connection, connection.makefile("rb") as lines:
                lines.readline()
                connection.sendall(b'{"refused": "not here"}\n')
                return lines.read()  # up to the end

        driver = pool.submit(refuse)
        address = LeashAddress("127.0.0.1", server.getsockname()[1], "x")
        seen = PumpSeen(0, 0, 0, "here", 1, 1)
        with pytest.raises(ConfigurationError, match="not here") as refused:
            await SocketTether.connect(address, [tmp_path], pump=seen, timed=False)
        assert await asyncio.wrap_future(driver) == b""
        assert refused.tb is not None, "and not because nobody knows of the connection any more"


def test_whoever_asks_while_a_leash_is_let_go_is_answered_on_its_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the loop the pumps that go would change what is read."""
    leash = Leash([tmp_path])
    is_closing, may_close = threading.Event(), threading.Event()
    close = leash._close

    async def close_late() -> None:
        is_closing.set()
        await asyncio.to_thread(may_close.wait)
        await close()

    monkeypatch.setattr(leash, "_close", close_late)
    asked_on: list[str] = []
    monkeypatch.setattr(leash, "_progress", lambda: asked_on.append(threading.current_thread().name))
    with ThreadPoolExecutor(1) as pool:
        leash.__enter__()
        ending = pool.submit(leash.__exit__)
        assert is_closing.wait(PATIENCE)
        leash.progress()
        may_close.set()
        ending.result(PATIENCE)
    leash.progress()
    assert asked_on == ["pairbus-leash", threading.current_thread().name]


def test_a_leash_that_stands_still_holds_up_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stands, goes_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        stands.set()
        goes_on.wait(PATIENCE)

    with Leash([tmp_path]) as leash:
        assert leash._portal is not None
        leash._portal.post(stand_still)
        assert stands.wait(PATIENCE)
        monkeypatch.setattr(leash_module, "_DEADLINE", 0.05)
        leash.bar("waiting: the lease is taken")
        monkeypatch.undo()
        goes_on.set()
        assert leash.progress().trouble == "waiting: the lease is taken"


async def test_a_leash_of_objects_in_a_store(azurite: str, rows: list[Any]) -> None:
    with credentials():
        place = place_of(make_azure_container(azurite))
        with FileLeash([place], on_row=rows.append, stale=30.0) as leash:
            leash.queues = [ServedQueue(0, "a")]
            tether = await hold_leash(leash.place, [place], pump=PumpSeen(0, 1, 7, "here", 1), timed=False)
            planner = FilePlannerTether(leash.place)
            await until(lambda: planner.next_epoch() == leash.queues)
            assert [pump.host for pump in leash.pumps()] == ["here"]
            leash.pause()
            await expect(tether, "pause")
            leash.stop()
            await expect(tether, "stop")
            assert not tether.is_cut
            tether.report({"epoch": 1})
            await tether.close()
            await until(lambda: not leash.pumps())
        assert rows == [{"epoch": 1}]
        store = open_store(place / name_of(leash.directory))
        assert store.list("pump") == store.list("order.json") == {}


async def test_a_leash_in_a_store_whose_driver_was_killed_is_cut(azurite: str) -> None:
    with credentials():
        place = place_of(make_azure_container(azurite))
        with FileLeash([place]) as leash:
            pump = PumpSeen(0, 1, 7, "here", 1)
            tether = await FileTether.connect(leash.place, [place], pump=pump, timed=False, stale=STALE)
        await expect(tether, "stop")  # what it wrote last is there no more, or for ever
        assert tether.is_cut
        await tether.close()


def test_a_leash_that_is_not_cleared_in_time_fails_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may take longer than anybody waits. What the run has done is done, and no thread is left."""

    class Stuck(FileLeash):
        orphans = 0.0

        async def _close(self) -> None:
            await super()._close()
            await asyncio.Event().wait()

    with Stuck([tmp_path]) as leash:
        monkeypatch.setattr(leash_module, "_DEADLINE", 0.2)
    assert leash.pumps() == []


def test_leases_that_are_not_given_back_in_time_fail_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stuck(SyphonLeases):
        async def _end(self) -> None:
            await asyncio.Event().wait()

    with Leash([tmp_path]) as leash:
        with Stuck([], leash, run="r", kind="local", leaves_orphans=False, records=[]) as leases:
            monkeypatch.setattr(leases_module, "_DEADLINE", 0.1)
        assert leases.are_ours


def test_leases_whose_beginning_fails_leave_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(reason: str | None) -> None:
        raise UnreachableError("nobody holds the pumps")

    with Leash([tmp_path]) as leash:
        monkeypatch.setattr(leash, "bar", refuse)
        leases = SyphonLeases([], leash, run="r", kind="local", leaves_orphans=False, records=[])
        with pytest.raises(UnreachableError, match="nobody holds"), leases:
            pass


async def test_who_was_not_heard_to_the_end_has_not_said_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the summary would leave out what that pump has moved: the receipts have to be counted."""
    monkeypatch.setattr(leash_module, "_SETTLE", 0.1)
    for leash in (Leash([tmp_path]), FileLeash([tmp_path], stale=STALE)):
        with leash:
            pump = PumpSeen(0, 1, 7, "here", 1)
            tether = await hold_leash(leash.place, [tmp_path], pump=pump, timed=False)
            await asyncio.to_thread(leash.settle)
            assert not leash.is_whole
            await tether.close()


def test_a_place_that_cannot_be_read_at_the_end_fails_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FileLeash([tmp_path]) as leash:
        monkeypatch.setattr(leash, "_read_pumps", lambda: (tmp_path / "gone").read_bytes())
        leash.settle()
    assert leash.is_whole

"""The leash on real sockets: who gets in, what is told, and what a cut means."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.spark.epochs import Epochs, ServedQueue
from pairbus.spark.leash import Leash, LeashAddress
from pairbus.spark.tether import ControlFile, PlannerTether, Tether, ask_leash

COUNTS = {"moved": 3, "dead_lettered": 1, "waiting": 2, "bytes": 300, "unknown": 0}


@pytest.fixture
def leash(tmp_path: Path) -> Iterator[Leash]:
    with Leash(tmp_path / "records", epochs=Epochs(busy=5, longest=20)) as leash:
        yield leash


async def connect(
    leash: Leash, *, records: Path | None = None, shard: int = 0, timed: bool = False
) -> Tether:
    return await Tether.connect(
        leash.address, records or leash.records, shard=shard, epoch=1, attempt=7, timed=timed
    )


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(10):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.01)


async def test_counts_of_pumps_add_up_and_outlive_them(leash: Leash) -> None:
    one, two = await connect(leash), await connect(leash, shard=1)
    one.tell(COUNTS)
    two.tell(COUNTS)
    await until(lambda: leash.progress().counts["moved"] == 6)
    assert [pump.shard for pump in await asyncio.to_thread(leash.pumps)] == [0, 1]
    await one.close()
    await until(lambda: leash.progress().pumps == 1)
    # The next attempt of the shard sees the same messages waiting.
    again = await connect(leash)
    again.tell({**COUNTS, "waiting": 5})
    await until(lambda: leash.progress().counts["moved"] == 9)
    assert (await asyncio.to_thread(leash.progress)).counts["waiting"] == 7
    await two.close()
    await again.close()


async def test_orders_reach_pumps_and_a_stop_is_for_good(leash: Leash) -> None:
    tether = await connect(leash)
    assert tether.order == "run"
    for give, expected in ((leash.pause, "pause"), (leash.resume, "run"), (leash.stop, "stop")):
        await asyncio.to_thread(give)
        async with asyncio.timeout(10):
            await tether.changed.wait()
        tether.changed.clear()
        assert tether.order == expected
    await asyncio.to_thread(leash.resume)
    assert leash.order == "stop"
    assert (await connect(leash)).order == "stop"
    await tether.close()


async def test_a_cut_leash_is_an_order_to_stop(tmp_path: Path) -> None:
    with Leash(tmp_path) as leash:
        tether = await connect(leash)
        await asyncio.to_thread(leash.__exit__, None, None, None)
        async with asyncio.timeout(10):
            await tether.changed.wait()
        assert tether.order == "stop"
        await tether.close()
    with pytest.raises(UnreachableError, match="--driver-host"):
        await Tether.connect(
            LeashAddress("127.0.0.1", 9, "x"), tmp_path, shard=0, epoch=0, attempt=0, timed=False
        )


async def test_a_pump_that_writes_elsewhere_is_refused(leash: Leash, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not the same directory"):
        await connect(leash, records=tmp_path / "elsewhere")
    assert len(leash.faults) == 1
    accepted = await connect(leash)
    assert list(leash.records.iterdir()) == [], "proofs are removed"
    await accepted.close()


async def test_without_the_token_nobody_gets_in(leash: Leash) -> None:
    stranger = LeashAddress(leash.address.host, leash.address.port, "guess")
    with pytest.raises(UnreachableError, match="token"):
        await asyncio.to_thread(ask_leash, stranger, "stop")
    assert leash.order == "run"
    assert "guess" not in repr(stranger)


async def test_the_planner_is_told_of_queues_until_the_stop_and_pumps_of_the_time_left(leash: Leash) -> None:
    planner = PlannerTether(leash.address)
    leash.queues = [ServedQueue(0, "a"), ServedQueue(1, "b")]
    assert await asyncio.to_thread(planner.next_epoch) == leash.queues
    tether = await connect(leash, timed=True)
    assert tether.left == pytest.approx(5, abs=1)
    assert await asyncio.to_thread(planner.next_epoch) == leash.queues
    later = await Tether.connect(leash.address, leash.records, shard=0, epoch=2, attempt=8, timed=True)
    assert later.left == pytest.approx(10, abs=1)
    await later.close()
    await asyncio.to_thread(leash.stop)
    assert await asyncio.to_thread(planner.next_epoch) is None
    assert PlannerTether(LeashAddress("127.0.0.1", 9, "x")).next_epoch() is None
    await tether.close()


async def test_a_command_finds_a_running_syphon_by_its_file(leash: Leash, tmp_path: Path) -> None:
    file = ControlFile(tmp_path / "state")
    with pytest.raises(UnreachableError, match="no syphon runs"):
        file.read()
    file.write(leash.address)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    told = await asyncio.to_thread(ask_leash, file.read(), "pause")
    assert told["order"] == "pause"
    assert leash.order == "pause"
    file.remove()
    assert not file.path.exists()

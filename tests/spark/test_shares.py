"""A limit is that of the whole job: over pairs, queues and shards, as they come, go and have work."""

import asyncio
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.backlog.served_queue import ServedQueue
from pairbus.errors import ConfigurationError
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.spark.leash.ends import hold_leash
from pairbus.spark.leash.epochs import Shard, deal
from pairbus.spark.leash.leash import COUNTS, Leash, PumpNews, PumpSeen
from pairbus.spark.leash.shares import LEAST, Shares
from pairbus.spark.shard import ShardJob, ShardRun
from tests.pump.bench import Bench, envelope, opened
from tests.waiting import eventually

PUMPS = 6
acts = st.tuples(st.integers(0, PUMPS - 1), st.sampled_from(["tell", "tell", "end"]), st.integers(0, 5))


@given(st.lists(acts, max_size=60), st.integers(0, PUMPS - 1))
def test_whatever_pumps_do_all_parts_are_one_whole_and_who_has_work_gets_it(
    history: list[tuple[int, str, int]], busy: int
) -> None:
    shares: Shares[int] = Shares()
    parts: dict[int, float] = {}
    for pump, act, active in history:
        if act == "end":
            shares.forget(pump)
            parts.pop(pump, None)
        else:
            parts[pump] = shares.deal(pump, active=active, queues=5)
        assert sum(parts.values()) <= 1.0 + LEAST * PUMPS + 1e-9
    # Then one of them alone has something to move, and each says so twice.
    for _ in range(2):
        for pump in {*parts, busy}:
            parts[pump] = shares.deal(pump, active=int(pump == busy), queues=5)
    assert parts[busy] >= 0.7
    for pump in set(parts) - {busy}:
        shares.forget(pump)
    assert shares.deal(busy, active=0, queues=1) == 1.0


def play(bench: Bench, records: Path, *, queues: list[ServedQueue], shards: int, rate: float) -> float:
    """Drain, all shards side by side; how long it took."""
    pairs = tuple(bench.pair() for _ in {queue.pair for queue in queues})
    options = PumpOptions(drain=True, drain_wait=0.05, progress_interval=0.05, max_rate=rate)
    with Leash([records]) as leash:
        job = ShardJob(
            pairs=pairs,
            options=(options,) * len(pairs),
            records=(records,) * len(pairs),
            run="run",
            leash=leash.place,
            timed=False,
        )

        async def run_all() -> None:
            await asyncio.gather(*(ShardRun(job, shard).run(0) for shard in deal(queues, shards)))

        begun = time.monotonic()
        asyncio.run(run_all())
        return time.monotonic() - begun


@pytest.mark.parametrize("shards", [1, 3])
def test_several_pairs_and_shards_share_one_rate(tmp_path: Path, shards: int) -> None:
    with opened() as bench:
        names = bench.create("orders", count=3)
        for index, name in enumerate(names):
            bench.load(name, [envelope("orders", f"{index}-{number}") for number in range(40)])
        queues = [ServedQueue(index, name) for index, name in enumerate(names)]
        seconds = play(bench, tmp_path, queues=queues, shards=shards, rate=60.0)
        assert len(bench.ids("orders")) == 120
        # A tenth of a second's worth may go at once, and a few messages before parts are dealt.
        assert seconds >= (120 - 20) / 60


async def test_a_shard_that_is_alone_has_all_of_it_and_hears_of_changes(tmp_path: Path) -> None:
    counts = dict.fromkeys(COUNTS, 0)
    with Leash([tmp_path]) as leash:
        first = await hold_leash(leash.place, [tmp_path], pump=PumpSeen(0, 0, 0, "here", 1), timed=False)
        assert first.share == 1.0, "however many shards there could be"
        second = await hold_leash(leash.place, [tmp_path], pump=PumpSeen(1, 0, 0, "here", 2), timed=False)

        def are_alike() -> bool:
            """Pumps tell again and again; who is heard first is not known."""
            first.tell(PumpNews(counts=counts, active=1))
            second.tell(PumpNews(counts=counts, active=1))
            return 0.4 < first.share < 0.6 and 0.4 < second.share < 0.6

        await eventually(are_alike)
        first.tell(PumpNews(counts=counts, active=1, stall="no progress for 31 s, because orders is down"))
        await eventually(lambda: (leash.progress().trouble or "").startswith("no progress for 31 s"))
        await second.close()
        await eventually(lambda: leash.progress().pumps == 1)
        first.tell(PumpNews(counts=counts, active=1))
        await eventually(lambda: first.share == 1.0)
        assert first.order == "run", "a share is no order"
        await first.close()


def test_shards_without_queues_are_none() -> None:
    assert deal([ServedQueue(0, "a")], 4) == [Shard(0, 0, (ServedQueue(0, "a"),))]


async def test_what_no_pump_will_ever_have_is_told_at_once_and_where(tmp_path: Path) -> None:
    pair = PumpPair.from_env("NO_SUCH_PRIMARY", "NO_SUCH_SECONDARY", name="contoso")
    queues = [ServedQueue(0, "contoso/x-servicebus-transfer/0")]
    with Leash([tmp_path]) as leash:
        job = ShardJob(
            pairs=(pair,),
            options=(PumpOptions(),),
            records=(tmp_path,),
            run="run",
            leash=leash.place,
            timed=False,
        )
        (shard,) = deal(queues, 1)
        with pytest.raises(ConfigurationError, match="NO_SUCH_PRIMARY is not set"):
            await ShardRun(job, shard).run(0)
        await eventually(lambda: leash.final_fault is not None)
        told = leash.final_fault or ""
        assert told.startswith(f"on {socket.gethostname()}, where a pump runs: ")
        assert "NO_SUCH_PRIMARY is not set" in told
        # The next try is told to stop before it looks for anything.
        leash.stop()
        await ShardRun(job, shard).run(1)

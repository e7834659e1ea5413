"""The syphon on embedded namespaces: drains, crashes and stops."""

import asyncio
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pairbus.errors import UnreachableError
from pairbus.ledger.generation import Compaction
from pairbus.ledger.plain_compaction import ReadyRows, compact_directory
from pairbus.ledger.receipts import Receipt, ReceiptLog
from pairbus.ledger.segment import closed_segments
from pairbus.spark import (
    Backlog,
    PumpOptions,
    PumpPair,
    Syphon,
    SyphonError,
    SyphonSummary,
    cluster_engine,
    housekeeping,
    load_receipts,
    syphon,
)
from tests.waiting import Lateness

from .bus import Bus, Letter, until
from .traffic import (
    PATHS,
    assert_receipts,
    assert_whole,
    letters,
    place,
    running,
)

pytestmark = pytest.mark.timeout(900)


def test_a_worker_begins_with_all_that_a_pump_is_made_of(spark: Any) -> None:
    """`sys` is all that the function needs, so that nothing is imported for it."""
    numbers = spark.sparkContext.parallelize([0], 1)
    (found,) = numbers.map(
        lambda _: (sys.modules["pyspark"].__file__, "pairbus.spark.task" in sys.modules)
    ).collect()
    assert found == (sys.modules["pyspark"].__file__, True)


def test_a_drain_brings_everything_to_its_place(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    sent = letters(701)
    full_bus.put([*sent, Letter(path="gone", id="stray")])
    summary = Syphon(spark, pair, state=tmp_path).run(once=True)
    assert_whole(full_bus, sent, is_once=True)
    assert full_bus.dead_letters() == {"stray": "EntityNotFound"}
    assert (summary.moved, summary.dead_lettered, summary.waiting) == (701, 1, 0)
    assert summary.is_complete
    assert summary.slowest_path in PATHS
    assert summary.receipts == 702
    assert_receipts(tmp_path / "records", moved=701, dead=1)
    assert load_receipts(spark, tmp_path / "records").count() == 702
    assert not (tmp_path / "syphon.json").exists()


@pytest.mark.long
def test_a_worker_killed_in_the_middle_loses_nothing(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path, messages: int
) -> None:
    full_bus.shorten_locks(6.0)
    sent = letters(messages)
    full_bus.put(sent)
    # Slow enough to be in the middle when it is killed.
    syphon = Syphon(spark, pair, state=tmp_path, options=PumpOptions(max_rate=4000), shards=2)
    with running(syphon, once=True) as done:
        until(lambda: syphon.progress().moved > 500)
        assert full_bus.left() > 1000, "it is in the middle of it"
        os.kill(syphon.pumps()[0].pid, signal.SIGKILL)
    again = Syphon(spark, pair, state=tmp_path).run(once=True)
    assert again.moved == 0
    assert_whole(full_bus, sent)
    assert_receipts(tmp_path / "records", moved=messages)
    assert done[0].moved == messages


def test_a_stop_in_the_middle_leaves_nothing_locked_and_sends_nothing_twice(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    sent = letters(5_000)
    full_bus.put(sent)
    syphon = Syphon(spark, pair, state=tmp_path, options=PumpOptions(max_rate=1000))
    with running(syphon, once=True) as done:
        until(lambda: syphon.progress().moved > 300)
        syphon.stop()
    (summary,) = done
    ids = [one for path in PATHS for one in full_bus.ids(place(path))]
    assert len(ids) == len(set(ids)) == summary.moved
    assert 0 < summary.moved < 5000
    assert summary.stopped
    assert full_bus.left() == 5000 - summary.moved
    assert full_bus.locked() == 0
    assert_receipts(tmp_path / "records", moved=summary.moved)


def test_the_stream_pumps_epoch_after_epoch_pauses_resumes_and_stops(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    first, second, third = (letters(70, prefix=prefix) for prefix in "abc")
    full_bus.put(first)
    options = PumpOptions(poll=1.0)
    syphon = Syphon(spark, pair, state=tmp_path, options=options, shards=2, busy_epoch=1.0, longest_epoch=2.0)
    with running(syphon) as done:
        until(lambda: full_bus.left() == 0)
        wait_for_epoch(syphon, 2)
        with pytest.raises(UnreachableError, match="runs already"):
            Syphon(spark, pair, state=tmp_path).run(once=True)
        full_bus.put(second)
        until(lambda: full_bus.left() == 0)
        syphon.pause()
        assert syphon.progress().order == "pause"
        until(lambda: not full_bus.is_pumped())
        assert full_bus.locked() == 0
        epoch_of_pause = wait_for_epoch(syphon, 0)
        full_bus.put(third)
        wait_for_epoch(syphon, epoch_of_pause + 2)  # at least a whole epoch
        assert full_bus.left() == len(third)
        syphon.resume()
        until(lambda: full_bus.left() == 0)
    (summary,) = done
    assert summary.moved == 210
    assert_whole(full_bus, [*first, *second, *third], is_once=True)
    assert_receipts(tmp_path / "records", moved=210)


def wait_for_epoch(syphon: Syphon, least: int) -> int:
    """Wait for a pump of that epoch or a later one; its epoch. Between two epochs there is no pump at all."""
    found: list[int] = []

    def look() -> bool:
        found[:] = [pump.epoch for pump in syphon.pumps() if pump.epoch >= least]
        return bool(found)

    until(look)
    return max(found)


def test_the_summary_counts_what_its_own_pumps_did_whatever_clocks_say(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_bus.put(letters(70))
    # The driver is an hour ahead of the executors, and another pump an hour ahead of the driver.
    monkeypatch.setattr(syphon, "time", SkewedTime(3600.0))
    asyncio.run(write_receipts(tmp_path / "records", "another-pump", moved=time.time() + 7200.0))
    summary = Syphon(spark, pair, state=tmp_path).run(once=True)
    assert (summary.moved, summary.dead_lettered, summary.receipts) == (70, 0, 70)
    assert summary.bytes == sum(one.bytes for one in summary.paths.values())
    again = Syphon(spark, pair, state=tmp_path).run(once=True)
    assert (again.moved, again.receipts, again.bytes) == (0, 0, 0)
    assert_receipts(tmp_path / "records", moved=75)


class SkewedTime:
    """The module `time` on a machine whose clock is wrong."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead

    def time(self) -> float:
        return time.time() + self._ahead

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


async def write_receipts(records: Path, writer: str, *, moved: float) -> None:
    log = ReceiptLog(records, writer=writer)
    rows: list[Receipt] = [
        {
            "op": f"{writer}:{number}",
            "pair": "contoso",
            "writer": writer,
            "path": "orders",
            "session": None,
            "message_id": f"{writer}-{number}",
            "backlog_queue": "contoso/x-servicebus-transfer/0",
            "sequence_number": number,
            "enqueued": moved,
            "moved": moved,
            "bytes": 1000,
            "attempts": 1,
            "outcome": "moved",
            "reason": None,
            "unsure": 0,
            "repeats": 0,
        }
        for number in range(5)
    ]
    await log.append(rows)
    await log.close()


def test_segments_that_are_closed_during_a_drain_are_read_before_its_end(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the last ones alone are left to be read when the last message is settled."""
    added, taken = list[Path](), list[str]()

    class Watched(ReadyRows):
        def add(self, directory: Path) -> None:
            super().add(directory)
            added.append(directory)

        def take(self, segment: Path) -> bytes | None:
            file = super().take(segment)
            if file is not None:
                taken.append(segment.name)
            return file

    monkeypatch.setattr(cluster_engine, "ReadyRows", Watched)
    records = tmp_path / "records"
    asyncio.run(write_receipts(records, "before", moved=time.time()))
    (segment,) = closed_segments(records, "receipts")
    full_bus.put(letters(70))
    full_bus.primary.faults.set("refuse")
    options = PumpOptions(patience=300.0, first_back_off=0.1)
    with running(Syphon(spark, pair, state=tmp_path, options=options), once=True) as done:
        until(lambda: bool(added))
        full_bus.primary.faults.clear()
    assert done[0].moved == 70
    assert segment.name in taken
    assert_receipts(records, moved=75)


def test_a_compaction_that_fails_ends_nothing_and_is_tried_again(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def compact(*arguments: Any) -> Compaction:
        tries.append(arguments)
        if len(tries) in (1, 2):
            raise OSError("no space left")
        return compact_directory(*arguments)

    monkeypatch.setattr(cluster_engine, "compact_directory", compact)
    monkeypatch.setattr(housekeeping, "FIRST_RETRY", 0.5)
    monkeypatch.setattr(syphon, "Chore", partial(housekeeping.Chore, every=0.5))
    full_bus.put(letters(70))
    endless = Syphon(spark, pair, state=tmp_path, shards=2, busy_epoch=1.0, longest_epoch=2.0)
    with running(endless) as done:
        told = "the compaction of receipts failed: OSError: no space left"
        until(lambda: told in (endless.progress().trouble or ""))
        until(lambda: len(tries) > 2 and endless.progress().trouble is None)
        full_bus.put(letters(70, prefix="later"))
        until(lambda: full_bus.left() == 0)
    assert done[0].moved == 140
    assert_receipts(tmp_path / "records", moved=140)


def test_a_last_compaction_that_fails_does_not_hide_what_was_done(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compact(*arguments: Any) -> Compaction:
        raise OSError("no space left")

    full_bus.put(letters(70))
    with monkeypatch.context() as patch:
        patch.setattr(cluster_engine, "compact_directory", compact)
        summary = Syphon(spark, pair, state=tmp_path).run(once=True)
    assert (summary.moved, summary.tables) == (70, ())
    assert summary.notes == ("the compaction of receipts failed: OSError: no space left",)
    Syphon(spark, pair, state=tmp_path).run(once=True)
    assert_receipts(tmp_path / "records", moved=70)


def test_a_full_entity_lets_its_messages_wait_and_disturbs_nobody(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    sent = letters(140)
    full_bus.put(sent)
    full_bus.primary.faults.set("full", entity="orders")
    summary = Syphon(spark, Backlog(pair=pair, count=12), state=tmp_path).run(once=True)
    assert summary.waiting == 20
    assert summary.moved == 120
    assert not summary.is_complete
    assert full_bus.left() == 20
    assert [note for note in summary.notes if "contoso/x-servicebus-transfer/11" in note]
    full_bus.primary.faults.clear()
    assert Syphon(spark, pair, state=tmp_path).run(once=True).moved == 20
    assert full_bus.left() == 0


def test_extra_queues_are_named_and_drained_when_asked_for(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    full_bus.put(letters(70), spread=lambda index, letter: index % 2)
    few = Syphon(spark, Backlog(pair=pair, count=1), state=tmp_path).run(once=True)
    assert few.moved == 35
    (note,) = few.notes
    assert "9 backlog queues beyond the count, with 35 messages" in note
    both = Syphon(spark, Backlog(pair=pair, count=1, include_extra=True), state=tmp_path).run(once=True)
    assert both.moved == 35
    assert full_bus.left() == 0


def test_a_variable_that_executors_lack_is_told(spark: Any, full_bus: Bus, tmp_path: Path) -> None:
    os.environ["CONTOSO_LATE"] = os.environ["CONTOSO"]  # after the session has started its workers
    try:
        late = PumpPair.from_env("CONTOSO_LATE", "CONTOSO_DR")
        with pytest.raises(SyphonError, match="CONTOSO_LATE is not set"):
            Syphon(spark, late, state=tmp_path).run(once=True)
    finally:
        del os.environ["CONTOSO_LATE"]


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("import pairbus_of_elsewhere", "workers have no module pairbus_of_elsewhere: install Pairbus"),
        ("raise OSError(28, 'No space left on device')", "No space left on device: .*make room and run it"),
        (
            "from pairbus.errors import UnreachableError; raise UnreachableError('it is down')",
            "^pairbus.errors.UnreachableError: it is down$",
        ),
        ("raise ValueError('odd')", "^ValueError: odd$"),
    ],
)
def test_what_ends_a_task_is_told_in_a_line_that_says_what_to_do(
    spark: Any,
    full_bus: Bus,
    pair: PumpPair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    deed: str,
    told: str,
) -> None:
    full_bus.put(letters(10))
    monkeypatch.setattr(cluster_engine, "pump_shard", lambda *_: lambda _: exec(deed))
    with pytest.raises(SyphonError, match=told) as caught:
        Syphon(spark, pair, state=tmp_path, shards=1).run(once=True)
    assert "\n" not in str(caught.value)
    assert full_bus.left() == 10


def test_a_rate_is_that_of_the_whole_job_and_other_paths_are_left_alone(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    sent = letters(7 * 200)
    full_bus.put(sent)
    options = PumpOptions(max_rate=200, only_paths=("Orders", "carts"))
    syphon = Syphon(spark, pair, state=tmp_path, options=options, shards=2)

    async def drain() -> tuple[SyphonSummary, float]:
        """And how long the broker may have kept senders waiting: what they sent then came all at once."""
        async with Lateness() as late:
            return await asyncio.to_thread(syphon.run, once=True), late.seconds

    summary, late = asyncio.run(drain())
    chosen = {letter.id for letter in sent if letter.path in ("orders", "carts")}
    assert {*full_bus.ids("orders"), *full_bus.ids("carts")} == chosen
    assert (summary.moved, summary.waiting) == (400, 1000)
    assert full_bus.left() == len(full_bus.waiting()) == 1000
    others = [path for path in PATHS if path not in ("orders", "carts")]
    assert [full_bus.ids(place(path)) for path in others] == [[]] * len(others)
    # In no stretch of time there is more than the rate allows, besides what a tenth of a second holds and
    # what one batch of a session has.
    times = sorted(m.enqueued_at for path in ("orders", "carts") for m in full_bus.found(path))
    for seconds in (1, 2):
        most = max(sum(begin <= at < begin + seconds for at in times) for begin in times)
        assert most <= 200 * seconds + 20 + 2 * 100
    assert times[-1] - times[0] >= (400 - 20 - 2 * 100) / 200 - late
    assert Syphon(spark, pair, state=tmp_path).run(once=True).moved == 1000
    assert_whole(full_bus, sent, is_once=True)


def test_a_session_has_room_for_all_that_java_compiles(spark: Any) -> None:
    """With its first compiler alone it has 48 MB, if nobody says otherwise, which many queries fill up."""
    pools = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    room = [pool.getUsage().getMax() for pool in pools if "Code" in pool.getName()]
    assert sum(room) >= 200 << 20

"""The syphon on embedded namespaces: drains, crashes and stops."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from pairbus.ledger import closed_segments
from pairbus.spark import Backlog, PumpOptions, PumpPair, Syphon, SyphonError, SyphonSummary, load_receipts

from .bus import Bus, Letter, until

pytestmark = pytest.mark.timeout(300)

QUEUES = ["orders", "invoices", "returns"]
SESSIONS = ["carts", "chats"]
TOPICS = ["news", "prices"]
PATHS = [*QUEUES, *SESSIONS, *TOPICS]


def letters(count: int, *, prefix: str = "m") -> list[Letter]:
    """Letters for all paths in turn; those for session queues have one of nine sessions."""
    made = []
    for index in range(count):
        path = PATHS[index % len(PATHS)]
        session = f"s{index // len(PATHS) % 9}" if path in SESSIONS else None
        ttl = 3_600_000 if index % 11 == 0 else None
        made.append(Letter(path=path, id=f"{prefix}{index:06d}", session=session, ttl_ms=ttl))
    return made


def place(path: str) -> str:
    return f"{path}/Subscriptions/all" if path in TOPICS else path


def arrived(bus: Bus) -> dict[str, list[str]]:
    return {path: bus.ids(place(path)) for path in PATHS}


def expected(sent: list[Letter]) -> dict[str, set[str]]:
    return {path: {letter.id for letter in sent if letter.path == path} for path in PATHS}


def assert_session_order(bus: Bus) -> None:
    """Per path and session the first arrivals are in the order of sending."""
    for path in SESSIONS:
        by_session: dict[str, list[str]] = {}
        for message in bus.found(path):
            seen = by_session.setdefault(str(message.session_id), [])
            if message.message_id not in seen:
                seen.append(str(message.message_id))
        for ids in by_session.values():
            assert ids == sorted(ids), path


@pytest.fixture
def full_bus(bus: Bus) -> Bus:
    bus.create_entities(queues=QUEUES, sessions=SESSIONS, topics=TOPICS)
    return bus


def test_a_drain_brings_everything_to_its_place(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    sent = letters(700)
    tomorrow = int((time.time() + 86_400) * 1000)
    scheduled = [Letter(path="orders", id="later", scheduled_ms=tomorrow)]
    stray = [Letter(path="gone", id="stray")]
    full_bus.put([*sent, *scheduled, *stray])
    summary = Syphon(spark, pair, state=tmp_path).run(once=True)
    found = arrived(full_bus)
    found["orders"].remove("later")
    assert {path: sorted(ids) for path, ids in found.items()} == {
        path: sorted(ids) for path, ids in expected(sent).items()
    }
    assert_session_order(full_bus)
    (dead,) = [
        full_bus.found(f"{name}/$DeadLetterQueue", on_secondary=True)
        for name in full_bus.backlog
        if full_bus.found(f"{name}/$DeadLetterQueue", on_secondary=True)
    ]
    assert [message.message_id for message in dead] == ["stray"]
    assert (summary.moved, summary.dead_lettered, summary.waiting) == (701, 1, 0)
    assert summary.is_complete
    assert summary.slowest_path in PATHS
    assert summary.receipts == 702
    assert_receipts(spark, tmp_path / "records", moved=701, dead=1)
    assert not (tmp_path / "syphon.json").exists()


def assert_receipts(spark: Any, records: Path, *, moved: int, dead: int = 0) -> None:
    rows = load_receipts(spark, records).collect()
    assert len({row["op"] for row in rows}) == len(rows) == moved + dead
    assert sum(row["outcome"] == "moved" for row in rows) == moved
    assert closed_segments(records, "receipts") == [], "segments are put into the table"
    assert [path for path in records.iterdir() if path.name.startswith(".receipts")] == []
    assert len(list(records.glob("receipts-*.parquet"))) == 1


def drain_in_background(syphon: Syphon) -> tuple[threading.Thread, list[SyphonSummary]]:
    done: list[SyphonSummary] = []
    thread = threading.Thread(target=lambda: done.append(syphon.run(once=True)), daemon=True)
    thread.start()
    return thread, done


def test_a_worker_killed_in_the_middle_loses_nothing(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path, messages: int
) -> None:
    sent = letters(messages)
    full_bus.put(sent)
    # Slow enough to be in the middle when it is killed.
    syphon = Syphon(spark, pair, state=tmp_path, options=PumpOptions(max_rate=4000), shards=2)
    thread, done = drain_in_background(syphon)
    until(lambda: syphon.progress().moved > 500)
    assert full_bus.left() > 1000, "it is in the middle of it"
    os.kill(syphon.pumps()[0].pid, signal.SIGKILL)
    thread.join(200)
    assert done, "the run has ended"
    again = Syphon(spark, pair, state=tmp_path).run(once=True)
    assert again.moved == 0
    assert full_bus.left() == 0
    assert {path: set(ids) for path, ids in arrived(full_bus).items()} == expected(sent)
    assert_session_order(full_bus)
    assert_receipts(spark, tmp_path / "records", moved=messages)
    assert done[0].moved == messages


def test_a_stop_in_the_middle_leaves_nothing_locked_and_sends_nothing_twice(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    sent = letters(5_000)
    full_bus.put(sent)
    syphon = Syphon(spark, pair, state=tmp_path, options=PumpOptions(max_rate=1000))
    thread, done = drain_in_background(syphon)
    until(lambda: syphon.progress().moved > 300)
    syphon.stop()
    thread.join(60)
    (summary,) = done
    ids = [one for path in PATHS for one in full_bus.ids(place(path))]
    assert len(ids) == len(set(ids)) == summary.moved
    assert 0 < summary.moved < 5000
    assert full_bus.left() == 5000 - summary.moved
    assert full_bus.locked() == 0
    assert_receipts(spark, tmp_path / "records", moved=summary.moved)


def test_the_stream_pumps_epoch_after_epoch_pauses_resumes_and_stops(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path
) -> None:
    first, second, third = (letters(70, prefix=prefix) for prefix in "abc")
    full_bus.put(first)
    syphon = Syphon(spark, pair, state=tmp_path, shards=2, busy_epoch=1.0, longest_epoch=2.0)
    done: list[SyphonSummary] = []
    thread = threading.Thread(target=lambda: done.append(syphon.run()), daemon=True)
    thread.start()
    until(lambda: full_bus.left() == 0)
    until(lambda: any(pump.epoch >= 2 for pump in syphon.pumps()))
    full_bus.put(second)
    until(lambda: full_bus.left() == 0)
    syphon.pause()
    until(lambda: full_bus.locked() == 0 and syphon.progress().order == "pause")
    time_of_pause = time.monotonic()
    full_bus.put(third)
    until(lambda: time.monotonic() > time_of_pause + 3)  # at least one whole epoch
    assert full_bus.left() == len(third)
    syphon.resume()
    until(lambda: full_bus.left() == 0)
    syphon.stop()
    thread.join(60)
    (summary,) = done
    assert summary.moved == 210
    assert {path: sorted(ids) for path, ids in arrived(full_bus).items()} == {
        path: sorted(ids) for path, ids in expected([*first, *second, *third]).items()
    }
    assert_receipts(spark, tmp_path / "records", moved=210)


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

"""The syphon with its records in an object store: nothing is shared with its tasks but the network."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from pairbus.client.state.records import RedirectRecord, SegmentRecords
from pairbus.client.state.shipping import RecordShipper
from pairbus.clock import SystemClock
from pairbus.ledger.receipts import KIND, ReceiptLog
from pairbus.ledger.store_compaction import compact_store
from pairbus.ledger.store_files import StoreFiles, day_of, holds_rows
from pairbus.spark import Backlog, PumpPair, Syphon, verify
from pairbus.spark import receipts as receipts_of_spark
from pairbus.spark import redirects as redirects_of_spark
from pairbus.spark.receipts import compact_receipts, read_receipts
from pairbus.stores.places import StoreUri
from pairbus.stores.store import open_store
from tests.ledger.test_receipts import receipt
from tests.object_places import make_azure_container, place_of

from .bus import Bus, Letter
from .traffic import assert_whole, letters

pytestmark = pytest.mark.timeout(900)
DAY = 86_400.0


@pytest.fixture
def uri(azurite: str) -> str:
    return make_azure_container(azurite)


@pytest.fixture
def place(uri: str) -> StoreUri:
    return place_of(uri)


def read(spark: Any, place: StoreUri) -> dict[str, str]:
    """Outcomes by message id; each counted once, and nothing is wrong."""
    found = read_receipts(spark, place)
    assert found.gaps == ()
    rows = found.rows.select("message_id", "outcome").collect()
    told = {row["message_id"]: row["outcome"] for row in rows}
    assert len(told) == len(rows)
    return told


def write(place: StoreUri, *numbers: int, moved: float = 2.0) -> None:
    async def append() -> None:
        log = ReceiptLog(place)
        await log.append([{**receipt(number), "moved": moved} for number in numbers])
        await log.close()

    asyncio.run(append())


@pytest.mark.long
def test_a_drain_leaves_its_receipts_in_the_store(
    spark: Any, full_bus: Bus, pair: PumpPair, tmp_path: Path, uri: str
) -> None:
    sent = letters(701)
    full_bus.put([*sent, Letter(path="gone", id="stray")])
    summary = Syphon(spark, pair, state=tmp_path, records=uri, shards=2).run(once=True)
    assert_whole(full_bus, sent, is_once=True)
    assert (summary.moved, summary.dead_lettered, summary.receipts) == (701, 1, 702)
    assert summary.notes == ()
    told = read(spark, place_of(uri))
    assert told == {**{one.id: "moved" for one in sent}, "stray": "dead-lettered"}
    assert [path.name for path in tmp_path.iterdir()] == ["syphon.lock"], "nothing of it is on the disk"


@pytest.mark.long
def test_receipts_become_tables_by_day_and_are_counted_once_all_the_way(spark: Any, place: StoreUri) -> None:
    store = open_store(place)
    write(place, 1, 2)
    write(place, 2, 3, moved=2.0 + DAY)
    first = compact_receipts(spark, place)
    assert first.segments == 2
    told = {"m1": "moved", "m2": "moved", "m3": "moved"}
    assert read(spark, place) == told
    files = StoreFiles.list(store, KIND)
    assert sorted(map(day_of, files.table.files)) == ["1970-01-01", "1970-01-02"]
    assert sum(map(holds_rows, files.names)) == 2, "sources outlive their generation"
    write(place, 4, moved=2.0 + DAY)
    compact_receipts(spark, place)
    after = StoreFiles.list(store, KIND)
    kept = [name for name in after.table.files if day_of(name) == "1970-01-01"]
    assert kept == [name for name in files.table.files if day_of(name) == "1970-01-01"]
    assert sum(map(holds_rows, after.names)) == 1
    assert read(spark, place) == {**told, "m4": "moved"}
    assert compact_receipts(spark, place).segments == 0
    write(place, 5)
    compact_receipts(spark, place)
    write(place, 6)
    compact_receipts(spark, place)
    names = StoreFiles.list(store, KIND).names
    assert read(spark, place) == {f"m{number}": "moved" for number in range(1, 7)}
    assert sum(name.endswith(".manifest.json") for name in names) == 2
    assert sum(name.endswith(".head") for name in names) <= 2, "ended writers are forgotten"


@pytest.mark.long
def test_who_reads_beside_two_compactions_begins_anew_and_sees_all(
    spark: Any, place: StoreUri, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place, 1, 2, 3)
    load = receipts_of_spark._load_objects
    compacted: list[int] = []

    def load_late(*given: Any) -> Any:
        if not compacted:  # what was listed is deleted before it is read
            compacted.append(1)
            for number in (4, 5):
                compact_receipts(spark, place)
                write(place, number)
            compact_receipts(spark, place)
        return load(*given)

    monkeypatch.setattr(receipts_of_spark, "_load_objects", load_late)
    assert read(spark, place) == {f"m{number}": "moved" for number in range(1, 6)}


@pytest.mark.long
def test_damage_in_tables_is_told(spark: Any, place: StoreUri) -> None:
    store = open_store(place)
    write(place, 1)
    compact_receipts(spark, place)
    write(place, 2)
    compact_receipts(spark, place)
    (file,) = StoreFiles.list(store, KIND).table.files
    content = store.read(file)
    store.delete(file)
    assert any(f"{file} is gone" in gap for gap in read_receipts(spark, place).gaps)
    store.put(file, content[:-1] + b"x")
    assert any(f"{file} was edited" in gap for gap in read_receipts(spark, place).gaps)
    store.put(file, content)
    for name in [name for name in store.list(KIND) if name.endswith(".manifest.json")]:
        store.delete(name)
    assert any("manifest" in gap and "gone" in gap for gap in read_receipts(spark, place).gaps)


@pytest.mark.long
def test_a_compaction_that_dies_before_its_manifest_changes_nothing(spark: Any, place: StoreUri) -> None:
    store = open_store(place)
    write(place, 1, 2)

    def die(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compact_store(store, KIND, die)
    assert read(spark, place) == {"m1": "moved", "m2": "moved"}


class HourLater:
    @staticmethod
    def time() -> float:
        return SystemClock().now() + 3600.0


def redirect(bus: Bus, sent: list[Letter], state: Path, place: StoreUri, *, ends: bool) -> None:
    """What clients have left on record of these, as it comes to the store."""

    async def record() -> None:
        records = SegmentRecords(state, max_age=0.0, is_shipped=True)
        rows = [
            RedirectRecord(message_id=one.id, path=one.path, session_id=None, queue=bus.backlog[0], at=1.0)
            for one in sent
        ]
        await records.append(rows[:-1])
        await records.close()
        again = SegmentRecords(state, max_age=3600.0, is_shipped=True)
        await again.append(rows[-1:])
        if ends:
            await again.close()
        RecordShipper(state, place, clock=SystemClock()).ship()
        if not ends:
            await again.close()

    asyncio.run(record())


@pytest.mark.long
def test_a_verdict_from_the_store_alone(
    spark: Any,
    full_bus: Bus,
    pair: PumpPair,
    tmp_path: Path,
    uri: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = letters(101)
    full_bus.put(sent)
    redirect(full_bus, sent, tmp_path / "app", place_of(uri), ends=False)
    Syphon(spark, pair, state=tmp_path / "driver", records=uri, shards=2).run(once=True)
    running = verify(spark, [Backlog(pair=pair)], records=[uri])
    assert running.gaps == ()
    assert (running.redirected, running.delivered, running.unexpected) == (100, 101, 1)
    with monkeypatch.context() as later:
        later.setattr(redirects_of_spark, "time", HourLater)
        (gap,) = verify(spark, [Backlog(pair=pair)], records=[uri]).gaps
    assert f"host {socket.gethostname()}: records up to 20" in gap
    RecordShipper(tmp_path / "app", place_of(uri), clock=SystemClock()).ship()
    verdict = verify(spark, [Backlog(pair=pair)], records=[uri])
    assert verdict.is_spotless
    assert verdict.redirected == 101

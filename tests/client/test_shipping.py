"""Records of applications come to the shared place by themselves; what a dead host has kept is told."""

import asyncio
import errno
import io
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from pairbus import ConfigurationError, Observer, PairedServiceBusClient
from pairbus.client.state.records import KIND, SegmentRecords
from pairbus.client.state.shipping import RecordShipper
from pairbus.clock import SystemClock
from pairbus.ledger import segment
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.receipts import KIND as RECEIPTS
from pairbus.ledger.record_files import RecordFiles
from pairbus.ledger.segment import SegmentWriter, read_segment
from pairbus.ledger.shipped import shipped_to
from pairbus.ledger.silence import IDLE_SILENCE, SILENCE, is_silent, tell_behind, tell_silent
from pairbus.ledger.store_files import StoreFiles
from pairbus.plumbing.files import hold_alone
from pairbus.stores.object_store import ObjectStore
from pairbus.stores.places import StoreUri
from pairbus.stores.store import open_store
from tests.object_places import credentials, make_azure_container, place_of
from tests.tcp_proxy import proxied
from tests.waiting import eventually

from .scene import Scene, text
from .shipping import gaps, has_shipped, ids_in, record, shipped


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    with credentials():
        yield


class SetClock(SystemClock):
    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


def silent(place: StoreUri, *, after: float) -> list[str]:
    heads = StoreFiles.list(open_store(place), KIND).later
    now = SystemClock().now() + after
    return [head.writer for _, head in heads if head is not None and is_silent(head, now=now)]


async def test_what_was_recorded_comes_to_the_store_and_leaves_the_disk(
    place: StoreUri, tmp_path: Path
) -> None:
    records = SegmentRecords(tmp_path, max_age=3600.0, is_shipped=True)
    shipper = RecordShipper(tmp_path, place, clock=SystemClock())
    await records.append([record(1), record(2)])
    shipper.ship()
    assert shipped(place) == [], "a segment that is open is not shipped"
    assert gaps(place) == []
    await records.close()
    shipper.ship()
    assert shipped(place) == ["m1", "m2"]
    assert gaps(place) == []
    assert RecordFiles.list(tmp_path, KIND).closed == []
    assert shipped_to(tmp_path) == str(place)
    assert silent(place, after=10 * IDLE_SILENCE) == [], "it has ended"
    told = shipper.status()
    assert (told.waiting, told.shipped, told.last_error) == (0, 1, None)


async def test_who_ends_without_a_word_is_not_waited_for(place: StoreUri, tmp_path: Path) -> None:
    """Most clients: nothing was down while they ran."""
    for _ in range(2):
        records = SegmentRecords(tmp_path, is_shipped=True)
        shipper = RecordShipper(tmp_path, place, clock=SystemClock())
        records.begin()
        await eventually(lambda: any(tmp_path.glob("*.head")))
        shipper.ship()
        assert len(silent(place, after=2 * IDLE_SILENCE)) == 1, "it runs, and may have more some time"
        await records.close()
        RecordShipper(tmp_path, place, clock=SystemClock()).ship()  # the next process does it, if need be
        assert silent(place, after=2 * IDLE_SILENCE) == []
    assert [name.partition(".")[0] for name in open_store(place).list(KIND)] == [f"{KIND}-idle"]
    assert gaps(place) == []


async def test_receipts_of_a_pump_that_lives_are_not_taken_for_those_of_a_dead_one(
    place: StoreUri, tmp_path: Path
) -> None:
    """It has nothing to do for hours, between two outages."""
    clock = SetClock()
    receipts = SegmentWriter(tmp_path, RECEIPTS, is_chained=True, is_shipped=True)
    shipper = RecordShipper(tmp_path, place, clock=clock)
    receipts.append([{"op": "1"}])
    receipts.close()
    shipper.ship()
    clock.ahead = 24 * 3600.0
    shipper.ship()
    heads = StoreFiles.list(open_store(place), RECEIPTS).later
    assert [head.is_open for _, head in heads if head is not None] == [True]
    receipts.close(ends=True)


def test_a_dead_host_is_told_in_a_directory_too(tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    records = SegmentWriter(own, KIND, is_chained=True, is_shipped=True)
    shipper = RecordShipper(own, shared, clock=SystemClock())
    records.append([asdict(record(1))])
    records.close()
    records.append([asdict(record(2))])
    shipper.ship()
    files = RecordFiles.list(shared, KIND)
    assert files.audit(must_succeed=True).gaps == [], "a segment may be there before its head is"
    later = SystemClock().now() + 2 * SILENCE
    (told,) = tell_silent(files.later, now=later)
    assert told.startswith("host ")
    (told,) = tell_silent(files.later, now=SystemClock().now() - 2 * SILENCE)
    assert "its clock is ahead" in told, "nobody could tell for so long that it has died"
    assert tell_silent(RecordFiles.list(own, KIND).later, now=later) == [], "here all is told at once"
    records.close(ends=True)
    shipper.ship()
    assert tell_silent(RecordFiles.list(shared, KIND).later, now=later) == []


def test_nobody_has_ended_of_whom_a_segment_cannot_be_adopted_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    writer = SegmentWriter(own, RECEIPTS, is_chained=True, is_shipped=True)
    writer.append([{"op": "1"}])
    assert writer._open is not None
    assert writer._life is not None
    writer._open.abandon()  # as if it was killed
    writer._life.release()
    shipper = RecordShipper(own, shared, clock=SystemClock())
    with monkeypatch.context() as failing:

        def fail(*_: object) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        failing.setattr(segment, "_cut_torn_commit", fail)
        shipper.ship()
    assert shipper.status().waiting == 1
    told = [head for _, head in RecordFiles.list(shared, RECEIPTS).heads if head is not None]
    assert all(head.is_open for head in told)
    shipper.ship()
    assert shipper.status().waiting == 0
    files = RecordFiles.list(shared, RECEIPTS)
    assert [row["op"] for path in files.closed for row in read_segment(path).rows] == ["1"]
    assert files.audit(must_succeed=False).gaps == []
    assert [head.is_open for _, head in files.heads if head is not None and not head.is_adopted] == [False]


async def test_the_ledger_is_shipped_too(place: StoreUri, tmp_path: Path) -> None:
    ledger = OperationLog(tmp_path, role="client", pair="contoso")
    ledger.start()
    ledger.close()
    RecordShipper(tmp_path, place, clock=SystemClock()).ship()
    assert len(open_store(place).list("operations")) == 1


async def test_a_store_that_is_down_delays_shipping_and_nothing_else(
    azurite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.stores.object_store.DEADLINE", 0.5)
    uri = make_azure_container(azurite)
    clock = SetClock()
    with proxied(azurite) as line:
        line.refuses = True
        shipper = RecordShipper(tmp_path, place_of(uri.replace(azurite, line.address)), clock=clock)
        records = SegmentRecords(tmp_path, is_shipped=True)
        await records.append([record(1)])
        await records.close()
        shipper.ship()
        clock.ahead = 120.0
        told = shipper.status()
        assert told.waiting == 1
        assert told.lag >= 120.0
        assert told.last_error is not None
        assert len(RecordFiles.list(tmp_path, KIND).closed) == 1, "nothing is removed before it is there"
        line.refuses = False
        await eventually(lambda: has_shipped(shipper))
        assert shipper.status().lag < 60.0
    monkeypatch.undo()  # whoever reads has all the time it takes
    assert shipped(place_of(uri)) == ["m1"]


class SlowFiles:
    """Whoever writes waits until it is let go."""

    def __init__(self) -> None:
        self.opened = 0
        self.let_go = threading.Event()

    def open_output_stream(self, key: str, compression: None) -> io.BytesIO:
        self.opened += 1
        self.let_go.wait(60.0)
        return io.BytesIO()

    def open_input_file(self, key: str) -> io.BytesIO:
        raise FileNotFoundError(key)

    def delete_file(self, key: str) -> None:
        """Nothing is kept."""


async def test_a_put_that_was_left_behind_ends_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would empty the object when the segment has been removed here already."""
    place = place_of("abfss://records@account.dfs.core.windows.net/fleet")
    store = ObjectStore(place, deadline=0.1)
    files = store._files = SlowFiles()
    monkeypatch.setattr("pairbus.client.state.shipping.open_store", lambda place: store)
    shipper = RecordShipper(tmp_path, place, clock=SystemClock())
    records = SegmentRecords(tmp_path, is_shipped=True)
    await records.append([record(1)])
    await records.close()
    for _ in range(3):
        shipper.ship()
        assert shipper.status().last_error is not None
    await eventually(lambda: files.opened == 1)
    assert len(RecordFiles.list(tmp_path, KIND).closed) == 1
    files.let_go.set()
    await eventually(lambda: has_shipped(shipper))
    assert files.opened >= 2
    assert RecordFiles.list(tmp_path, KIND).closed == []


DYING = """
import asyncio, os, sys
from pathlib import Path
from pairbus.client.state.records import SegmentRecords
from pairbus.client.state.shipping import RecordShipper
from pairbus.clock import SystemClock
from pairbus.stores.places import parse_place
from tests.client.shipping import record

async def live():
    directory = Path(sys.argv[1])
    records = SegmentRecords(directory, max_age=0.0, is_shipped=True)
    shipper = RecordShipper(directory, parse_place(sys.argv[2]), clock=SystemClock())
    await records.append([record(1)])
    await records.append([record(2)])
    while not shipper.status().shipped:
        shipper.ship()
        await asyncio.sleep(0.05)
    records._disk.max_age = 3600.0
    await records.append([record(3)])
    os._exit(9)

asyncio.run(live())
"""


async def test_what_a_dead_process_had_not_shipped_is_told_and_shipped_after_a_restart(
    azurite: str, tmp_path: Path
) -> None:
    uri = make_azure_container(azurite)
    place = place_of(uri)
    command = [sys.executable, "-c", DYING, str(tmp_path), uri]
    process = await asyncio.create_subprocess_exec(*command, cwd=Path(__file__).parents[2])
    assert await process.wait() == 9
    assert "m3" not in shipped(place)
    assert gaps(place) == []
    assert silent(place, after=0.0) == []
    assert len(silent(place, after=2 * SILENCE)) == 1
    shipper = RecordShipper(tmp_path, place, clock=SystemClock())
    records = SegmentRecords(tmp_path, is_shipped=True)  # of the new process, which lives on
    records.begin()
    await eventually((tmp_path / f"{KIND}-{records._disk.writer}.head").exists)
    await eventually(lambda: has_shipped(shipper) and shipped(place) == ["m1", "m2", "m3"])
    assert gaps(place) == []
    (alive,) = silent(place, after=2 * IDLE_SILENCE)
    assert alive == records._disk.writer
    await records.close()


LIVING = """
import asyncio, sys
from pathlib import Path
from pairbus.client.state.records import SegmentRecords
from tests.client.shipping import record

async def live():
    records = SegmentRecords(Path(sys.argv[1]), max_age=0.0, is_shipped=True)
    await records.append([record(1)])
    await records.append([record(2)])
    print("written", flush=True)
    sys.stdin.read()

asyncio.run(live())
"""


async def test_each_process_of_a_host_ships_its_own_and_what_the_dead_have_left(tmp_path: Path) -> None:
    """Else all of them would put all of it, and one could tell last what another had told before its end."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LIVING, str(own)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"written\n"
        records = SegmentRecords(own, is_shipped=True)
        await records.append([record(3)])
        await records.close()
        shipper = RecordShipper(own, shared, clock=SystemClock())
        assert has_shipped(shipper)
        assert ids_in(shared) == ["m3"]
        assert tell_behind(RecordFiles.list(shared, KIND).heads) == [], "the other tells that it lives"
    finally:
        process.kill()
        await process.wait()
    assert has_shipped(shipper)
    assert ids_in(shared) == ["m1", "m2", "m3"]
    files = RecordFiles.list(shared, KIND)
    assert (tell_behind(files.heads), files.audit(must_succeed=True).gaps) == ([], [])


def test_processes_of_a_host_ship_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two puts of the same object would empty it again when one of them has removed the segment."""
    monkeypatch.setattr("pairbus.client.state.shipping._TURN", 0.0)
    own, shared = tmp_path / "own", tmp_path / "shared"
    records = SegmentWriter(own, KIND, is_chained=True, is_shipped=True)
    records.append([asdict(record(1))])
    records.close(ends=True)
    shipper = RecordShipper(own, shared, clock=SystemClock())
    with hold_alone(own / ".shipping.lock"):
        assert not has_shipped(shipper)
        assert "another process ships" in (shipper.status().last_error or "")
        assert not shared.exists()
    assert has_shipped(shipper)
    assert ids_in(shared) == ["m1"]


async def test_a_writer_that_lives_is_heard_of_though_it_writes_nothing(
    place: StoreUri, tmp_path: Path
) -> None:
    clock = SetClock()
    shipper = RecordShipper(tmp_path, place, clock=clock)
    records = SegmentRecords(tmp_path, is_shipped=True)
    records.begin()
    await eventually(lambda: any(tmp_path.glob("*.head")))
    shipper.ship()
    for _ in range(4):
        clock.ahead += IDLE_SILENCE / 2
        shipper.ship()
    assert silent(place, after=clock.ahead) == []

    def heads() -> int:
        shipper.ship()  # what a store has not deleted in time is deleted in the next round
        return len(StoreFiles.list(open_store(place), KIND).names)

    await eventually(lambda: heads() == 1, what="one head, since they do not heap up")
    await records.close()


async def test_the_place_knows_of_a_client_soon_after_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would miss what one had on its disk that died before its first round."""
    monkeypatch.setattr("pairbus.client.state.shipping.SHIP_EVERY", 3600.0)
    own, shared = tmp_path / "own", tmp_path / "shared"
    records = SegmentRecords(own, is_shipped=True)
    shipper = RecordShipper(own, shared, clock=SystemClock())
    records.begin()
    await eventually(lambda: any(own.glob("*.head")))
    shipper.start()
    await eventually(lambda: tell_behind(RecordFiles.list(shared, KIND).heads))
    await records.close()
    shipper.close()
    assert tell_behind(RecordFiles.list(shared, KIND).heads) == []


async def test_a_shared_directory_can_be_shipped_to(tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    records = SegmentRecords(own, is_shipped=True)
    await records.append([record(1)])
    await records.close()
    RecordShipper(own, shared, clock=SystemClock()).ship()
    assert ids_in(shared) == ["m1"]
    assert RecordFiles.list(shared, KIND).audit(must_succeed=True).gaps == []


async def test_a_hosted_pump_is_known_to_the_place_before_it_moves_anything(
    still: Scene, tmp_path: Path
) -> None:
    """Or a verdict there would call lost what it has moved, until its receipts are shipped."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    client = still.client(state_dir=own, records=shared, enable_syphon=True)
    client.fail_over("orders")
    await client.get_queue_sender("orders").send_messages(text("1"))
    await eventually(lambda: still.ids() == ["1"])
    files = RecordFiles.list(shared, RECEIPTS)
    assert tell_behind(files.heads) != []
    await client.close()
    assert tell_behind(RecordFiles.list(shared, RECEIPTS).heads) == []


async def test_a_hosted_pump_that_cannot_begin_leaves_no_writer_behind(still: Scene, tmp_path: Path) -> None:
    """It is known to the place, and would be waited for there for ever; and each try would leave a thread."""
    own, shared = tmp_path / "own", tmp_path / "shared"
    certificate = tmp_path / "gone.pem"
    client = still.client(
        primary=still.primary.connection_string.replace(";UseDevelopmentEmulator=true", ""),
        primary_name="contoso",
        state_dir=own,
        records=shared,
        enable_syphon=True,
        primary_options={"connection_verify": str(certificate)},
    )
    await client.start()
    await eventually(lambda: (syphon := client.status().syphon) is not None and syphon.state == "resting")
    syphon = client.status().syphon
    assert syphon is not None
    assert str(certificate) in (syphon.last_error or "")
    await client.close()
    assert tell_behind(RecordFiles.list(shared, RECEIPTS).heads) == []


def test_records_need_a_state_directory() -> None:
    strings = [f"Endpoint=sb://{name}.example/;SharedAccessKeyName=a;SharedAccessKey=YQ==" for name in "ab"]
    with pytest.raises(ConfigurationError, match="state_dir"):
        PairedServiceBusClient.from_connection_strings(*strings, records="s3://records/fleet")


async def test_a_client_ships_what_it_redirects_and_tells_the_lag(
    still: Scene, place: StoreUri, azurite: str, tmp_path: Path
) -> None:
    heard: list[tuple[float, int]] = []

    class Listener(Observer):
        def shipped(self, lag: float, waiting: int) -> None:
            heard.append((lag, waiting))

    uri = f"{place}?key_env=RECORDS_KEY&endpoint=http://{azurite}"
    client = still.client(state_dir=tmp_path, records=uri, failover_interval=0.0, observers=[Listener()])
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("0"))
    still.primary.faults.set("refuse")
    await sender.send_messages(text("1"))
    told = client.status().shipping
    assert told is not None
    assert (told.to, told.last_error) == (str(place), None)
    assert "shipping" in client.status().to_json()
    await client.close()
    assert set(shipped(place)) == {"1"}
    assert gaps(place) == []
    assert len(open_store(place).list("operations")) >= 1
    await eventually(lambda: heard)

"""Receipts as objects of a store: durable when told, chained, few, and sure whatever the store does."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pairbus.clock import SystemClock
from pairbus.errors import ConfigurationError
from pairbus.ledger.commit_objects import GATHER, CommitWriter
from pairbus.ledger.receipts import KIND, ReceiptLog
from pairbus.ledger.segment import parse_lines
from pairbus.ledger.store_files import StoreFiles, holds_rows, read_side_by_side
from pairbus.stores.errors import CallHungError, RecordStoreError
from pairbus.stores.object_store import ObjectStore
from pairbus.stores.packing import MOST_PACKED
from pairbus.stores.places import StoreUri
from pairbus.stores.store import DirectoryStore, RecordStore, open_store
from tests.ledger.test_receipts import receipt
from tests.object_places import (
    credentials,
    make_azure_container,
    make_s3_bucket,
    place_of,
    read_only_token,
)
from tests.tcp_proxy import TcpProxy, proxied
from tests.waiting import PATIENCE

# Longer than a put takes on a machine that is busy, far shorter than a store is waited for.
IMPATIENT = 5.0


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    with credentials():
        yield


@pytest.fixture
def place(azurite: str) -> StoreUri:
    return place_of(make_azure_container(azurite))


@pytest.fixture
def line(azurite: str) -> Iterator[TcpProxy]:
    with proxied(azurite) as proxy:
        yield proxy


@pytest.fixture
def shaky(line: TcpProxy, monkeypatch: pytest.MonkeyPatch) -> StoreUri:
    """A place behind a line that a test can cut."""
    monkeypatch.setattr("pairbus.stores.object_store.DEADLINE", IMPATIENT)
    return place_of(make_azure_container(line.address))


def messages(store: RecordStore) -> list[str]:
    return sorted({row["message_id"] for rows in objects(store).values() for row in rows})


def objects(store: RecordStore) -> dict[str, list[dict[str, Any]]]:
    data = read_side_by_side(store, StoreFiles.list(store, KIND).fresh)
    return {name: parse_lines(one).rows for name, one in data.items()}


def complaints(store: RecordStore) -> list[str]:
    return StoreFiles.list(store, KIND).audit(must_succeed=False).gaps


async def test_a_receipt_is_in_the_store_when_it_is_told(place: StoreUri) -> None:
    log, store = ReceiptLog(place), open_store(place)
    for number in range(3):
        await log.append([receipt(number)])
        assert messages(store) == [f"m{one}" for one in range(number + 1)]
    await log.close()
    assert complaints(store) == []


async def test_a_receipt_is_in_s3_when_it_is_told(moto: str) -> None:
    place = place_of(make_s3_bucket(moto))
    log = ReceiptLog(place)
    await log.append([receipt(1)])
    await log.close()
    assert messages(open_store(place)) == ["m1"]
    assert complaints(open_store(place)) == []


async def test_all_who_come_at_the_same_time_share_few_puts(place: StoreUri) -> None:
    log = ReceiptLog(place)
    await asyncio.gather(*(log.append([receipt(number)]) for number in range(500)))
    await log.close()
    found = objects(open_store(place))
    assert len(found) <= 5, "one more for whoever was held up half-way"
    assert sum(map(len, found.values())) == 500


def test_who_comes_alone_waits_for_others_unless_it_is_urged(tmp_path: Path) -> None:
    writer = CommitWriter(DirectoryStore(tmp_path), KIND, is_chained=True, gather=3600.0)
    writer.append([receipt(1)])
    gathering = threading.Thread(target=writer.gather)
    gathering.start()
    gathering.join(0.01)
    assert gathering.is_alive()
    writer.urge()
    gathering.join(PATIENCE)
    assert not gathering.is_alive()


def test_who_is_urged_again_and_again_for_a_few_rows_waits_for_others(tmp_path: Path) -> None:
    writer = CommitWriter(DirectoryStore(tmp_path), KIND, is_chained=True)
    begun = time.monotonic()
    for number in range(4):
        writer.append([receipt(number)])
        writer.urge()
        writer.gather()
    assert time.monotonic() - begun >= 3 * GATHER, "the first time it was heard"


async def test_an_object_that_is_gone_from_the_middle_is_missed(place: StoreUri) -> None:
    log, store = ReceiptLog(place), open_store(place)
    for number in range(3):
        await log.append([receipt(number)])
    await log.close()
    names = [*filter(holds_rows, store.list(KIND))]
    store.delete(names[1])
    assert any("commits 2 to 2" in one for one in complaints(store))
    store.delete(names[2])
    assert any("commits 2 to 3" in one for one in complaints(store))


async def test_an_edited_object_is_told(place: StoreUri) -> None:
    log, store = ReceiptLog(place), open_store(place)
    await log.append([receipt(1)])
    await log.close()
    (name,) = [*filter(holds_rows, store.list(KIND))]
    store.put(name, store.read(name).replace(b"orders", b"others"))
    assert any("was edited" in one for one in complaints(store))


async def test_a_commit_is_compressed(place: StoreUri) -> None:
    log, store = ReceiptLog(place), open_store(place)
    await log.append([receipt(number) for number in range(100)])
    await log.close()
    ((name, size),) = ((name, size) for name, size in store.list(KIND).items() if holds_rows(name))
    assert len(parse_lines(store.read(name)).rows) == 100
    assert size < len(store.read(name)) / 4


@pytest.mark.parametrize("part", [1.0, 0.5, 0.05])
def test_a_compressed_commit_that_was_damaged_or_cut_short_is_told(tmp_path: Path, part: float) -> None:
    store = DirectoryStore(tmp_path)
    writer = CommitWriter(store, KIND, is_chained=True)
    writer.append([receipt(number) for number in range(100)])
    writer.close(ends=True)
    (file,) = tmp_path.glob("*.jsonl.zst")
    kept = bytearray(file.read_bytes())
    kept[len(kept) // 2] ^= part == 1.0
    file.write_bytes(kept[: int(len(kept) * part)])
    assert any(file.name in one for one in complaints(store))


@pytest.mark.parametrize("swapped", ["gigabytes", "nothing", "another"])
def test_an_object_that_holds_something_else_is_told_and_does_not_fill_the_memory(
    tmp_path: Path, swapped: str
) -> None:
    store = DirectoryStore(tmp_path)
    writer = CommitWriter(store, KIND, is_chained=True)
    for number in range(2):
        writer.append([receipt(number)])
    first, last = sorted(tmp_path.glob("*.jsonl.zst"))
    if swapped == "gigabytes":
        with pa.CompressedOutputStream(str(last), "zstd") as stream:
            for _ in range(2 * MOST_PACKED // 1024**2):
                stream.write(bytes(1024**2))
        assert last.stat().st_size < 1024**2
    else:
        last.write_bytes(pa.compress(b"", codec="zstd") if swapped == "nothing" else first.read_bytes())
    assert any(last.name in one for one in complaints(store))
    assert len(store.read(last.name)) < 1024**2


def test_a_commit_that_is_too_large_to_be_unpacked_is_not_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pairbus.ledger.commit_objects", "pairbus.stores.packing"):
        monkeypatch.setattr(f"{module}.MOST_PACKED", 10_000)
    store = DirectoryStore(tmp_path)
    writer = CommitWriter(store, KIND, is_chained=True)
    for rows in (1, 100):
        writer.append([receipt(number) for number in range(rows)])
    assert sorted(name.rpartition(".")[2] for name in store.list(KIND)) == ["head", "jsonl", "zst"]
    assert len(messages(store)) == 100
    assert complaints(store) == []


async def test_commits_that_were_put_before_they_were_compressed_are_read(place: StoreUri) -> None:
    log, store = ReceiptLog(place), open_store(place)
    for number in range(2):
        await log.append([receipt(number)])
    await log.close()
    first = min(filter(holds_rows, store.list(KIND)))
    store.put(first.removesuffix(".zst"), store.read(first))
    store.delete(first)
    assert messages(store) == ["m0", "m1"]
    assert complaints(store) == []


async def test_who_writes_nothing_leaves_one_sign(place: StoreUri) -> None:
    for _ in range(3):
        log = ReceiptLog(place)
        log.begin()
        await log.close()
    assert len(open_store(place).list(KIND)) == 1
    assert complaints(open_store(place)) == []


async def test_an_answer_that_is_lost_loses_no_receipt_and_doubles_none(
    line: TcpProxy, shaky: StoreUri
) -> None:
    log, store = ReceiptLog(shaky), open_store(shaky)
    await log.append([receipt(0)])
    for number in range(1, 6):
        line.answers_to_lose = number
        await log.append([receipt(number)])
    assert line.lost >= 5
    await log.close()
    assert messages(store) == [f"m{number}" for number in range(6)]
    assert complaints(store) == []


@pytest.mark.parametrize("fault", ["refuses", "hangs"])
async def test_a_store_out_of_reach_takes_no_receipt_and_says_so(
    line: TcpProxy, shaky: StoreUri, fault: str
) -> None:
    store = ObjectStore(shaky, deadline=5.0)  # also of what succeeds
    store.put("receipts-x.jsonl", b"{}\n")  # the line is open
    setattr(line, fault, True)
    with pytest.raises(RecordStoreError, match="cannot put receipts-1"):
        store.put("receipts-1.jsonl", b"{}\n")
    setattr(line, fault, False)
    await asyncio.to_thread(store.put, "receipts-2.jsonl", b"{}\n")
    assert "receipts-2.jsonl" in store.list(KIND)


async def test_a_put_that_hangs_is_made_again_under_another_name(
    place: StoreUri, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that hangs may still be done, and would empty the object first."""
    store = open_store(place)
    names: list[str] = []
    put = store.put

    def hang_once(name: str, data: bytes) -> None:
        names.append(name)
        if len(names) == 2:  # after the head
            raise CallHungError("it hangs")
        put(name, data)

    monkeypatch.setattr(store, "put", hang_once)
    log = ReceiptLog(place, clock=TickingClock())
    await log.append([receipt(1)])
    put(names[1], store.read(names[2]))  # and so it is done, late
    await log.close()
    assert names[1] != names[2]
    assert messages(store) == ["m1"]
    assert complaints(store) == []


class TickingClock(SystemClock):
    """No two moments are the same."""

    def __init__(self) -> None:
        self._ticks = 0.0

    def now(self) -> float:
        self._ticks += 1.0
        return super().now() + self._ticks


async def test_a_writer_goes_on_when_its_store_is_back(
    line: TcpProxy, azurite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.stores.object_store.DEADLINE", 3.0)  # also of what succeeds
    uri = make_azure_container(azurite)
    near, far = place_of(uri), place_of(uri.replace(azurite, line.address))
    log = ReceiptLog(far)
    await log.append([receipt(1)])
    line.refuses = True
    with pytest.raises(RecordStoreError):
        await log.append([receipt(2)])
    assert messages(open_store(near)) == ["m1"]
    line.refuses = False
    await log.append([receipt(2)])
    await log.close()
    assert messages(open_store(near)) == ["m1", "m2"]
    assert complaints(open_store(near)) == []


async def test_a_container_that_was_deleted_takes_no_receipt_and_is_not_made_again(
    place: StoreUri, azurite: str
) -> None:
    from pyarrow.fs import FileType

    log, store = ReceiptLog(place), open_store(place)
    await log.append([receipt(1)])
    assert isinstance(store, ObjectStore)
    files = store._open()
    files.delete_dir(place.bucket)
    with pytest.raises(RecordStoreError, match="ContainerNotFound"):
        await log.append([receipt(2)])
    with pytest.raises(RecordStoreError, match="ContainerNotFound"):
        store.list(KIND)
    assert files.get_file_info(place.bucket).type == FileType.NotFound
    await log.close()


async def test_errors_and_places_show_no_key(place: StoreUri) -> None:
    wrong = ObjectStore(place_of(f"{place}?key_env=RECORDS_KEY&endpoint=http://127.0.0.1:9"), deadline=0.5)
    with pytest.raises(RecordStoreError) as raised:
        wrong.put("receipts-1.jsonl", b"x")
    for text in (str(raised.value), repr(raised.value), str(place), repr(place)):
        assert "Eby8" not in text


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("key_env", "DefaultEndpointsProtocol=https;AccountKey=c2VjcmV0;", "follows AccountKey="),
        ("sas_env", "https://account.blob.core.windows.net/?sv=1&sig=c2VjcmV0", "no whole URL"),
    ],
)
def test_a_credential_of_another_form_is_told_with_how_to_mend_it(
    place: StoreUri, monkeypatch: pytest.MonkeyPatch, name: str, value: str, told: str
) -> None:
    monkeypatch.setenv("OTHER_FORM", value)
    wrong = ObjectStore(place_of(f"{place}?{name}=OTHER_FORM&endpoint=http://127.0.0.1:9"))
    with pytest.raises(ConfigurationError, match=told) as raised:
        wrong.list(KIND)
    assert "c2VjcmV0" not in str(raised.value)


@pytest.mark.parametrize("mark", ["", "?"])
def test_a_token_that_may_only_read_reads_and_is_refused_and_not_shown(
    place: StoreUri, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    ObjectStore(place).put("receipts-1.jsonl", b"x")
    monkeypatch.setenv("READ_ONLY", mark + read_only_token())
    reading = ObjectStore(place_of(f"{place}?sas_env=READ_ONLY&endpoint=http://{place.endpoint}"))
    assert reading.read("receipts-1.jsonl") == b"x"
    with pytest.raises(RecordStoreError, match="AuthorizationPermissionMismatch") as raised:
        reading.put("receipts-2.jsonl", b"x")
    assert "sig=" not in str(raised.value)

"""Receipts in a store that fails: nothing leaves the backlog without one, and all of it comes later."""

import asyncio
from collections.abc import Iterator

import pytest

from pairbus.ledger.receipts import KIND, ReceiptLog
from pairbus.ledger.segment import parse_lines
from pairbus.ledger.store_files import StoreFiles, read_side_by_side
from pairbus.pump.options import PumpOptions
from pairbus.pump.pump import Pump
from pairbus.stores.errors import RecordStoreError
from pairbus.stores.object_store import ObjectStore
from pairbus.stores.store import open_store
from tests.object_places import credentials, make_azure_container, place_of
from tests.tcp_proxy import TcpProxy, proxied

from .bench import Bench, envelope

IDS = [f"m{number}" for number in range(300)]


@pytest.fixture(autouse=True)
def environment() -> Iterator[None]:
    with credentials():
        yield


@pytest.fixture
def line(azurite: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[TcpProxy]:
    monkeypatch.setattr("pairbus.stores.object_store.DEADLINE", 1.0)
    with proxied(azurite) as proxy:
        yield proxy


def receipts(uri: str) -> set[str]:
    """The messages that have one; the chains are whole."""
    store = open_store(place_of(uri))
    files = StoreFiles.list(store, KIND)
    assert files.audit(must_succeed=False).gaps == []
    data = read_side_by_side(store, files.fresh)
    return {row["message_id"] for one in data.values() for row in parse_lines(one).rows}


def pump(bench: Bench, queue: str, uri: str) -> Pump:
    log = ReceiptLog(place_of(uri))
    return Pump(bench.pair(), [queue], options=PumpOptions(drain=True, drain_wait=0.05), receipts=log)


@pytest.mark.parametrize("fault", ["refuses", "hangs", "deleted"])
async def test_nothing_leaves_the_backlog_without_its_receipt(
    bench: Bench, azurite: str, line: TcpProxy, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (queue,) = bench.create("orders", lock=5.0)
    bench.load(queue, [envelope("orders", one) for one in IDS])
    near = make_azure_container(azurite)
    far = near.replace(azurite, line.address)
    if fault == "deleted":
        store = open_store(place_of(near))
        assert isinstance(store, ObjectStore)
        await asyncio.to_thread(store._open().delete_dir, place_of(near).bucket)
    else:
        setattr(line, fault, True)
    with pytest.raises(RecordStoreError):
        await pump(bench, queue, far).run()
    assert bench.ids(queue, on=bench.secondary) == IDS, "all are where they were"
    if fault == "deleted":
        make_azure_container(azurite, place_of(near).bucket)
    else:
        setattr(line, fault, False)
    monkeypatch.setattr("pairbus.stores.object_store.DEADLINE", 30.0)  # a store that answers has its time
    await pump(bench, queue, near).run()
    assert bench.ids(queue, on=bench.secondary) == []
    assert receipts(near) == set(IDS)


async def test_a_slow_store_is_waited_for(
    bench: Bench, azurite: str, line: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.stores.object_store.DEADLINE", 30.0)
    (queue,) = bench.create("orders", lock=30.0)
    bench.load(queue, [envelope("orders", one) for one in IDS])
    near = make_azure_container(azurite)
    line.delay = 0.05
    summary = await pump(bench, queue, near.replace(azurite, line.address)).run()
    assert (summary.moved, receipts(near)) == (len(IDS), set(IDS))


async def test_answers_that_are_lost_on_the_way_lose_no_receipt(
    bench: Bench, azurite: str, line: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pairbus.stores.object_store.DEADLINE", 10.0)
    (queue,) = bench.create("orders", lock=5.0)
    bench.load(queue, [envelope("orders", one) for one in IDS])
    near = make_azure_container(azurite)
    line.answers_to_lose = 5
    summary = await pump(bench, queue, near.replace(azurite, line.address)).run()
    assert summary.moved == len(IDS)
    assert line.lost == 5
    assert receipts(near) == set(IDS)

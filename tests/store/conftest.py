"""Brokers with a store that can be told to fail, and a namespace to be stored."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.broker import Broker
from pairbus.broker.engine.namespace import Namespace
from tests.engine.samples import START, namespace
from tests.hurry import hurried_loops as pytest_asyncio_loop_factories  # noqa: F401 - a hook
from tests.store.failing import FailingStore


@pytest.fixture
def space() -> Namespace:
    """With one queue."""
    space = namespace()
    space.create_queue("orders", None, START)
    return space


@pytest.fixture
def failing_broker(
    tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Broker, FailingStore]]:
    """A durable broker on a thread of its own, and the store of its namespace `contoso`."""
    monkeypatch.setattr("pairbus.broker.broker.SqliteStore", FailingStore)
    FailingStore.made.clear()
    with Broker({"contoso": 0}, data_dir=tmp_path, certificate=certificate) as broker:
        (store,) = FailingStore.made
        yield broker, store


@pytest.fixture
def quick_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairbus.broker.store.file.LOCK_PATIENCE", 0.05)

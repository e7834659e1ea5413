"""Brokers with a store that can be told to fail."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pairbus.broker import Broker
from pairbus.broker.access.certificate import ensure_certificate
from tests.broker.hurry import HurriedLoop
from tests.store.failing import FailingStore


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, type[HurriedLoop]]:
    """Let the SDK's naps be short."""
    return {"hurried": HurriedLoop}


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    made = ensure_certificate(tmp_path_factory.mktemp("certificate"), now=time.time())
    return made.cert_path, made.key_path


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

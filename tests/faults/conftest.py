"""A namespace in memory whose clock stands still until a test moves it, with the queues `orders` and
`other`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pairbus.broker import Broker, NamespaceHandle
from pairbus.broker.access.certificate import ensure_certificate
from pairbus.clock import ManualClock
from tests.broker.hurry import HurriedLoop


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
def clock() -> ManualClock:
    return ManualClock(time.time())


@pytest.fixture
def broker(clock: ManualClock, certificate: tuple[Path, Path]) -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=clock, certificate=certificate) as broker:
        yield broker


@pytest.fixture
def contoso(broker: Broker) -> NamespaceHandle:
    broker["contoso"].create_queue("orders")
    broker["contoso"].create_queue("other")
    return broker["contoso"]

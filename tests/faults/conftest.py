"""A namespace in memory whose clock stands still until a test moves it, with the queues `orders` and
`other`.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.broker import Broker, NamespaceHandle
from pairbus.clock import ManualClock
from tests.hurry import hurried_loops as pytest_asyncio_loop_factories  # noqa: F401 - a hook


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

"""Two namespaces in memory for each test, a paired client for them, and an event loop in a hurry."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from pairbus.broker import Broker
from pairbus.client.hosted import backlog_view
from pairbus.client.sending import spool
from pairbus.stores.places import StoreUri
from pairbus.testing import ManualTimers
from tests.hurry import PACE, HurriedLoop
from tests.object_places import credentials, make_azure_container, place_of
from tests.waiting import PATIENCE

from .scene import LeapingClock, Scene


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, type[asyncio.AbstractEventLoop]]:
    """Let the SDK's naps be short, and with them the intervals of a client that has the loop's own timers."""
    if item.path.stem in ("test_real_time", "test_fleet"):
        return {"real": asyncio.SelectorEventLoop}
    return {"hurried": HurriedLoop}


@pytest.fixture(autouse=True)
def patience_with_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread looks at what earlier processes have spooled, and is in no hurry. A send that waits for it no
    longer goes behind what may be there.
    """
    monkeypatch.setattr(spool, "_MOMENT", PATIENCE * PACE)


@pytest.fixture(autouse=True)
def patience_with_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is in no hurry either. A look that it is too slow for is made again, but never where timers
    stand still, and who sends to a session waits for the first one.
    """
    monkeypatch.setattr(backlog_view, "_ANSWER_LIMIT", PATIENCE * PACE)


@pytest.fixture
def broker(certificate: tuple[Path, Path]) -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=LeapingClock(), certificate=certificate) as broker:
        yield broker


@pytest.fixture
async def scene(broker: Broker) -> AsyncIterator[Scene]:
    """A pair with a queue `orders`, three backlog queues, and the timers of the (hurried) event loop."""
    scene = Scene(broker)
    yield scene
    await scene.close()


@pytest.fixture
async def still(broker: Broker, manual_timers: ManualTimers) -> AsyncIterator[Scene]:
    """The same, with timers that stand still until they are advanced."""
    scene = Scene(broker, timers=manual_timers)
    yield scene
    await scene.close()


@pytest.fixture
def place(azurite: str) -> Iterator[StoreUri]:
    """An object store that records can be shipped to."""
    with credentials():
        yield place_of(make_azure_container(azurite))

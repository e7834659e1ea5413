"""Namespaces in memory whose clock stands still until a test moves it, and the official clients for them."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from pairbus.broker import Broker
from pairbus.broker.access.certificate import ensure_certificate
from pairbus.clock import ManualClock

from .bus import Bus
from .hurry import HurriedLoop
from .shells import Background, Farewells


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, type[HurriedLoop]]:
    """Let the SDK's naps be short."""
    return {"hurried": HurriedLoop}


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    made = ensure_certificate(tmp_path_factory.mktemp("certificate"), now=time.time())
    return made.cert_path, made.key_path


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    background = Background()
    yield background
    background.finish()


@pytest.fixture
def noisy() -> None:
    """Asked for by tests that give the broker something to warn of."""


@pytest.fixture(autouse=True)
def _complaints(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Let a test fail that made the broker complain, or its event loop."""
    yield
    found = [
        f"{record.name}: {record.getMessage()} {getattr(record, 'fields', '')}"
        for record in caplog.get_records("call")
        if record.levelno >= logging.WARNING
        and record.name.startswith(("pairbus", "asyncio"))
        and not record.getMessage().startswith("fault")
    ]
    if "noisy" not in request.fixturenames:
        assert found == []


@pytest.fixture
def clock() -> ManualClock:
    """Stands still at the present, because clients compare locks with the machine's clock."""
    return ManualClock(time.time())


@pytest.fixture
def farewells(background: Background) -> Farewells:
    return Farewells(background)


@pytest.fixture
def broker(clock: ManualClock, certificate: tuple[Path, Path], farewells: Farewells) -> Iterator[Broker]:
    broker = Broker({"contoso": 0, "contoso-dr": 0}, clock=clock, certificate=certificate)
    broker.__enter__()
    yield broker
    farewells.then(lambda: broker.__exit__(None, None, None))


@pytest.fixture
def bus_without_client(broker: Broker, clock: ManualClock, farewells: Farewells) -> Bus:
    """A namespace for tests that bring their own clients."""
    return Bus("aio", broker, clock=clock, farewells=farewells)


@pytest.fixture
async def aio_bus(broker: Broker, clock: ManualClock, farewells: Farewells) -> AsyncIterator[Bus]:
    """A namespace and the asynchronous client."""
    bus = Bus("aio", broker, clock=clock, farewells=farewells)
    async with bus.client:
        yield bus


@pytest.fixture(params=["aio", "sync"])
async def bus(
    request: pytest.FixtureRequest, broker: Broker, clock: ManualClock, farewells: Farewells
) -> AsyncIterator[Bus]:
    """A namespace and a client, asynchronous or synchronous."""
    bus = Bus(request.param, broker, clock=clock, farewells=farewells)
    async with bus.client:
        yield bus

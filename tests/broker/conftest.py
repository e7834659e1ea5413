"""Namespaces in memory whose clock stands still until a test moves it, and the official clients for them."""

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.broker import Broker, strand
from pairbus.clock import ManualClock
from tests.hurry import hurried_loops as pytest_asyncio_loop_factories  # noqa: F401 - a hook
from tests.logs import our_records

from .bus import Bus
from .raw import RawClient
from .shells import Background, Farewells


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    background = Background()
    yield background
    background.finish()


@pytest.fixture
def noisy() -> None:
    """Asked for by tests that give the broker something to warn of."""


@pytest.fixture
def relaxed() -> None:
    """Asked for by tests whose namespaces may have smaller entities and shorter times than Azure allows."""


@pytest.fixture(autouse=True)
def _complaints(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Let a test fail that made the broker complain, or its event loop."""
    yield
    found = [
        f"{record.name}: {record.getMessage()} {getattr(record, 'fields', '')}"
        for record in our_records(caplog)
        if not record.getMessage().startswith("fault")
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
def broker(
    request: pytest.FixtureRequest,
    clock: ManualClock,
    certificate: tuple[Path, Path],
    farewells: Farewells,
) -> Iterator[Broker]:
    strictness = "relaxed" if "relaxed" in request.fixturenames else "strict"
    broker = Broker(
        {"contoso": 0, "contoso-dr": 0}, clock=clock, certificate=certificate, strictness=strictness
    )
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


@pytest.fixture
def admin(aio_bus: Bus) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        aio_bus.namespace.connection_string, connection_verify=str(aio_bus.broker.certificate), retry_total=0
    ) as client:
        yield client


@pytest.fixture
def client(bus_without_client: Bus) -> Iterator[RawClient]:
    """One that speaks AMQP by hand, to a namespace with the queue `orders`."""
    namespace = bus_without_client.namespace
    namespace.create_queue("orders")
    with RawClient.of_owner(namespace) as client:
        yield client


@pytest.fixture
def breathless(monkeypatch: pytest.MonkeyPatch) -> None:
    """All work stops wherever it may."""
    monkeypatch.setattr(strand, "SLICE", -1.0)

"""A served namespace for each test, and the official clients for it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.broker.engine.namespace import Namespace

from .harness import AdminServer, PlainAioTransport, PlainTransport


@pytest.fixture
def namespace() -> Namespace:
    return Namespace("contoso")


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificate")


@pytest.fixture
def server(namespace: Namespace, certificates: Path) -> Iterator[AdminServer]:
    with AdminServer(namespace, certificates).running() as running:
        yield running


@pytest.fixture
def admin(server: AdminServer) -> Iterator[ServiceBusAdministrationClient]:
    """The synchronous client over TLS."""
    with ServiceBusAdministrationClient.from_connection_string(
        server.connection_string(), connection_verify=server.certificate, retry_total=0
    ) as client:
        yield client


@pytest.fixture
def plain_admin(server: AdminServer) -> Iterator[ServiceBusAdministrationClient]:
    """The synchronous client without TLS."""
    with ServiceBusAdministrationClient.from_connection_string(
        server.connection_string(plain=True), transport=PlainTransport(), retry_total=0
    ) as client:
        yield client


@pytest.fixture
async def aio_admin(server: AdminServer) -> AsyncIterator[AioAdministrationClient]:
    """The asynchronous client over TLS."""
    async with AioAdministrationClient.from_connection_string(
        server.connection_string(), connection_verify=server.certificate, retry_total=0
    ) as client:
        yield client


@pytest.fixture
async def plain_aio_admin(server: AdminServer) -> AsyncIterator[AioAdministrationClient]:
    """The asynchronous client without TLS."""
    async with AioAdministrationClient.from_connection_string(
        server.connection_string(plain=True), transport=PlainAioTransport(), retry_total=0
    ) as client:
        yield client

"""TLS on the same port as everything else."""

from pathlib import Path

import pytest
from azure.core.exceptions import ServiceRequestError
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioAdministrationClient
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.admin.harness import PlainAioTransport, PlainTransport

from .bus import Bus, bodies, opened, receive


def secure(bus: Bus, certificate: Path) -> dict[str, object]:
    """The settings of a client that speaks AMQP over TLS to our port."""
    return {
        "custom_endpoint_address": f"sb://localhost:{bus.namespace.port}",
        "transport_type": TransportType.Amqp,
        "connection_verify": str(certificate),
    }


def without_emulator(bus: Bus) -> str:
    return bus.namespace.connection_string.replace("UseDevelopmentEmulator=true;", "")


async def test_amqp_over_tls_on_the_same_port(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    client = bus.connect(without_emulator(bus), **secure(bus, bus.broker.certificate))
    links = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
    async with client, opened(*links) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("secret"))
        await sender.send_messages(ServiceBusMessage(b"x" * 200_000))
        received = await receive(receiver, 2)
        assert bodies(received)[0] == "secret"
        assert len(b"".join(received[1].body)) == 200_000
        for message in received:
            await receiver.complete_message(message)
    assert bus.namespace.message_count("orders") == 0


async def test_a_certificate_that_the_client_does_not_know(aio_bus: Bus, tmp_path: Path) -> None:
    from pairbus.broker.access.certificate import ensure_certificate

    other = ensure_certificate(tmp_path, now=aio_bus.clock.now()).cert_path
    aio_bus.namespace.create_queue("orders")
    client = aio_bus.connect(without_emulator(aio_bus), **secure(aio_bus, other))
    with pytest.raises((ServiceBusConnectionError, ServiceBusError)):
        async with client, client.get_queue_sender("orders"):
            raise AssertionError("it was let in")


def test_administration_over_tls(bus_without_client: Bus) -> None:
    bus = bus_without_client
    text = bus.namespace.connection_string
    with ServiceBusAdministrationClient.from_connection_string(
        text, connection_verify=str(bus.broker.certificate), retry_total=0
    ) as admin:
        admin.create_queue("orders")
        assert [queue.name for queue in admin.list_queues()] == ["orders"]
    with (
        ServiceBusAdministrationClient.from_connection_string(text, retry_total=0) as admin,
        pytest.raises(ServiceRequestError),
    ):
        admin.get_queue("orders")


async def test_administration_without_tls(bus_without_client: Bus) -> None:
    text = bus_without_client.namespace.connection_string
    with ServiceBusAdministrationClient.from_connection_string(
        text, transport=PlainTransport(), retry_total=0
    ) as admin:
        admin.create_queue("orders")
    async with AioAdministrationClient.from_connection_string(
        text, transport=PlainAioTransport(), retry_total=0
    ) as aio_admin:
        assert (await aio_admin.get_queue("orders")).name == "orders"

"""Several namespaces in one process: one port each, and nothing in common."""

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from pairbus.broker import Broker, OperationKind
from pairbus.errors import ConfigurationError

from .bus import Bus, bodies, opened, receive, receive_nothing


async def test_namespaces_do_not_share_messages(bus: Bus) -> None:
    other = bus.broker["contoso-dr"]
    bus.namespace.create_queue("orders")
    other.create_queue("orders")
    client = bus.connect(other.connection_string)
    here, there = bus.client.get_queue_receiver("orders"), client.get_queue_receiver("orders")
    async with client, opened(bus.client.get_queue_sender("orders"), here, there) as (sender, _, _):
        await sender.send_messages(ServiceBusMessage("here"))
        assert bodies(await receive(here)) == ["here"]
        await receive_nothing(there)
    assert (bus.namespace.message_count("orders"), other.message_count("orders")) == (1, 0)
    assert (bus.namespace.count(OperationKind.SEND), other.count(OperationKind.SEND)) == (1, 0)


async def test_the_key_of_one_namespace_opens_no_other(aio_bus: Bus) -> None:
    other = aio_bus.broker["contoso-dr"]
    other.create_queue("orders")
    mine = aio_bus.namespace
    swapped = mine.connection_string.replace(f":{mine.port};", f":{other.port};")
    assert swapped != mine.connection_string
    client = aio_bus.connect(swapped)
    with pytest.raises(ServiceBusAuthenticationError):
        async with client, client.get_queue_sender("orders"):
            raise AssertionError("it was let in")


async def test_an_entity_of_one_namespace_is_not_in_the_other(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    client = aio_bus.connect(aio_bus.broker["contoso-dr"].connection_string)
    with pytest.raises(ServiceBusAuthenticationError):
        async with client, client.get_queue_sender("orders"):
            raise AssertionError("it was let in")
    assert sorted(aio_bus.broker) == ["contoso", "contoso-dr"]


def test_names_that_differ_in_case_alone_are_one() -> None:
    with pytest.raises(ConfigurationError, match="one namespace"):
        Broker({"Contoso": 0, "contoso": 0})

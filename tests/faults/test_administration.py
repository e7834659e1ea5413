"""The official administration client under faults: answers become HTTP statuses, the line is the line."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus.broker import NamespaceHandle, OperationKind

# For who waits until the HTTP client gives up on a namespace that does not answer.
HASTE = {"connection_timeout": 0.3, "read_timeout": 0.3}


@pytest.fixture
def admin(
    contoso: NamespaceHandle, certificate: tuple[Path, Path]
) -> Iterator[ServiceBusAdministrationClient]:
    """A client with one connection open already."""
    with ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string,
        connection_verify=str(certificate[0]),
        retry_total=0,
    ) as admin:
        assert admin.get_queue("orders").name == "orders"
        yield admin


@pytest.mark.parametrize(
    ("kind", "status"), [("error", 500), ("busy", 503), ("token", 401)], ids=lambda value: str(value)
)
def test_an_answer_becomes_a_status(
    kind: str, status: int, contoso: NamespaceHandle, admin: ServiceBusAdministrationClient
) -> None:
    contoso.faults.set(kind)
    with pytest.raises(HttpResponseError) as raised:
        admin.create_queue("more")
    assert raised.value.status_code == status
    assert isinstance(raised.value, ClientAuthenticationError) is (status == 401)
    contoso.faults.clear()
    admin.create_queue("more")


def test_a_condition_becomes_the_status_that_says_the_same(
    contoso: NamespaceHandle, admin: ServiceBusAdministrationClient
) -> None:
    contoso.faults.set("error", condition="amqp:resource-limit-exceeded")
    with pytest.raises(HttpResponseError) as raised:
        admin.create_queue("more")
    assert raised.value.status_code == 403


def test_of_one_entity_only_that_entity_is_concerned(
    contoso: NamespaceHandle, admin: ServiceBusAdministrationClient
) -> None:
    admin.create_topic("news")
    admin.create_subscription("news", "s")
    contoso.faults.set("busy", entity="News")
    for ask in (
        lambda: admin.get_topic("news"),
        lambda: admin.get_subscription("news", "s"),
        lambda: admin.get_rule("news", "s", "$Default"),
    ):
        with pytest.raises(HttpResponseError, match="50009"):
            ask()
    assert admin.get_queue("orders").name == "orders"
    assert [queue.name for queue in admin.list_queues()] == ["orders", "other"]


@pytest.mark.parametrize("kind", ["disabled", "full", "delay", "drop"])
def test_what_is_about_messages_does_not_concern_it(
    kind: str, contoso: NamespaceHandle, admin: ServiceBusAdministrationClient
) -> None:
    contoso.faults.set(kind)
    admin.create_queue("more")


@pytest.mark.parametrize("kind", ["refuse", "reset", "silence", "blackhole", "flap"])
def test_the_line_is_the_line(
    kind: str,
    contoso: NamespaceHandle,
    admin: ServiceBusAdministrationClient,
    certificate: tuple[Path, Path],
) -> None:
    contoso.faults.set(kind)
    fresh = ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string,
        connection_verify=str(certificate[0]),
        retry_total=0,
    )
    with fresh:
        for client in (admin, fresh):
            with pytest.raises((ServiceRequestError, ServiceResponseError)):
                client.get_queue("orders", **HASTE)
    contoso.faults.clear()
    assert admin.get_queue("orders").name == "orders"


def test_on_an_entity_the_line_is_that_of_its_links(
    contoso: NamespaceHandle, admin: ServiceBusAdministrationClient
) -> None:
    for kind in ("refuse", "reset", "silence", "blackhole", "flap"):
        contoso.faults.set(kind, entity="orders")
        assert admin.get_queue("orders").name == "orders"


def test_what_a_fault_refused_was_asked_all_the_same(
    contoso: NamespaceHandle, admin: ServiceBusAdministrationClient
) -> None:
    before = contoso.count(OperationKind.ADMIN, entity="orders")
    contoso.faults.set("error")
    with pytest.raises(HttpResponseError):
        admin.get_queue("orders")
    assert contoso.count(OperationKind.ADMIN, entity="orders") == before + 1

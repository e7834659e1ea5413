"""Which resource a target names."""

from __future__ import annotations

import pytest

from pairbus.broker.admin.address import Address, Kind, Page, parse_address
from pairbus.broker.admin.errors import AdminRefused


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("/$namespaceinfo?api-version=2021-05", Address(kind=Kind.NAMESPACE, api_version="2021-05")),
        ("/$Resources/queues", Address(kind=Kind.QUEUES)),
        ("/%24resources/Topics", Address(kind=Kind.TOPICS)),
        ("/orders", Address(kind=Kind.ENTITY, entity="orders")),
        ("/a%2Fb%20c", Address(kind=Kind.ENTITY, entity="a/b c")),
        ("/a/b/", Address(kind=Kind.ENTITY, entity="a/b")),
        ("https://host:5672/orders", Address(kind=Kind.ENTITY, entity="orders")),
        ("/t/subscriptions", Address(kind=Kind.SUBSCRIPTIONS, entity="t")),
        ("/t/Subscriptions/s", Address(kind=Kind.SUBSCRIPTION, entity="t", subscription="s")),
        ("/x/t/Subscriptions/s/rules", Address(kind=Kind.RULES, entity="x/t", subscription="s")),
        (
            "/t/subscriptions/s/Rules/%24Default",
            Address(kind=Kind.RULE, entity="t", subscription="s", rule="$Default"),
        ),
        ("/$Resources/queues?$skip=5&$top=7", Address(kind=Kind.QUEUES, page=Page(skip=5, top=7))),
        ("/$Resources/queues?%24top=7000", Address(kind=Kind.QUEUES, page=Page(top=100))),
    ],
)
def test_targets(target: str, address: Address) -> None:
    assert parse_address(target) == address


@pytest.mark.parametrize("target", ["/", "/$Resources/relays", "/$servicebus/websocket", "", "?"])
def test_unknown_system_resources_are_not_found(target: str) -> None:
    with pytest.raises(AdminRefused) as caught:
        parse_address(target)
    assert caught.value.status == 404


@pytest.mark.parametrize("query", ["$skip=-1", "$top=x", "$top=", "$skip=9999999999", "a=1&" * 200])
def test_queries_without_sense_are_refused(query: str) -> None:
    with pytest.raises(AdminRefused) as caught:
        parse_address(f"/$Resources/queues?{query}")
    assert caught.value.status == 400

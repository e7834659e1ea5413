"""Which resource a target names."""

import pytest

from pairbus.broker.admin.address import ResourceAddress, ResourceKind, parse_address
from pairbus.broker.admin.errors import AdminRefused


@pytest.mark.parametrize(
    ("target", "address"),
    [
        (
            "/$namespaceinfo?api-version=2021-05",
            ResourceAddress(kind=ResourceKind.NAMESPACE, api_version="2021-05"),
        ),
        ("/$Resources/queues", ResourceAddress(kind=ResourceKind.QUEUES)),
        ("/%24resources/Topics", ResourceAddress(kind=ResourceKind.TOPICS)),
        ("/orders", ResourceAddress(kind=ResourceKind.ENTITY, entity="orders")),
        ("/a%2Fb%20c", ResourceAddress(kind=ResourceKind.ENTITY, entity="a/b c")),
        ("/a/b/", ResourceAddress(kind=ResourceKind.ENTITY, entity="a/b")),
        ("https://host:5672/orders", ResourceAddress(kind=ResourceKind.ENTITY, entity="orders")),
        ("/t/subscriptions", ResourceAddress(kind=ResourceKind.SUBSCRIPTIONS, entity="t")),
        ("/t/Subscriptions/s", ResourceAddress(kind=ResourceKind.SUBSCRIPTION, entity="t", subscription="s")),
        (
            "/x/t/Subscriptions/s/rules",
            ResourceAddress(kind=ResourceKind.RULES, entity="x/t", subscription="s"),
        ),
        (
            "/t/subscriptions/s/Rules/%24Default",
            ResourceAddress(kind=ResourceKind.RULE, entity="t", subscription="s", rule="$Default"),
        ),
        (
            "/$Resources/queues?$skip=5&$top=7",
            ResourceAddress(kind=ResourceKind.QUEUES, skip=5, top=7),
        ),
        ("/", ResourceAddress(kind=ResourceKind.ROOT)),
        ("", ResourceAddress(kind=ResourceKind.ROOT)),
        ("/$Resources/queues?%24top=7000", ResourceAddress(kind=ResourceKind.QUEUES, top=100)),
    ],
)
def test_targets(target: str, address: ResourceAddress) -> None:
    assert parse_address(target) == address


@pytest.mark.parametrize("target", ["/$Resources/relays", "/$servicebus/websocket"])
def test_unknown_system_resources_are_not_found(target: str) -> None:
    with pytest.raises(AdminRefused) as caught:
        parse_address(target)
    assert caught.value.status == 404


@pytest.mark.parametrize("query", ["$skip=-1", "$top=x", "$top=", "$skip=9999999999", "a=1&" * 200])
def test_queries_without_sense_are_refused(query: str) -> None:
    with pytest.raises(AdminRefused) as caught:
        parse_address(f"/$Resources/queues?{query}")
    assert caught.value.status == 400

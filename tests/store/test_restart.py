"""A broker that comes back, stopped or killed: with its data, its keys and its certificate."""

from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient

from pairbus.broker import Broker
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings
from tests.engine.samples import payload


def administer(broker: Broker) -> Any:
    return ServiceBusAdministrationClient.from_connection_string(
        broker["contoso"].connection_string, connection_verify=str(broker.certificate)
    )


def keys_of(broker: Broker) -> dict[str, str]:
    """What of the connection strings must stay; the port is a new one each time."""
    policies = broker["contoso"].policies
    return {name: text.partition("SharedAccessKeyName=")[2] for name, text in policies.items()}


def send(broker: Broker, path: str, *bodies: bytes) -> None:
    def act(engine: Namespace, now: float) -> None:
        engine.send(path, [Incoming.parse(payload(body)) for body in bodies], now)

    broker["contoso"]._run(act)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_everything_comes_back(tmp_path: Path, end: str) -> None:
    first = Broker({"contoso": 0}, data_dir=tmp_path).__enter__()
    namespace = first["contoso"]
    namespace.create_queue("orders", QueueSettings(max_delivery_count=3))
    namespace.create_topic("news")
    namespace.create_subscription("news", "all", settings=SubscriptionSettings(lock_duration=7.0))
    send(first, "orders", b"1", b"2")
    send(first, "news", b"3")
    keys, certificate = keys_of(first), first.certificate.read_bytes()
    if end == "kill":
        first.kill()
    else:
        first.__exit__(None, None, None)
    with Broker({"contoso": 0}, data_dir=tmp_path) as second:
        assert keys_of(second) == keys
        assert second.certificate.read_bytes() == certificate
        assert second["contoso"].message_count("orders") == 2
        assert second["contoso"].message_count("news/subscriptions/ALL") == 1
        with administer(second) as client:
            assert client.get_queue("orders").max_delivery_count == 3
            assert client.get_subscription("news", "all").lock_duration.total_seconds() == 7.0


def test_authorization_rules_of_entities_come_back(tmp_path: Path) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule", rights=["Send"], key_name="mine", primary_key="secret"
    )
    with Broker({"contoso": 0}, data_dir=tmp_path) as broker, administer(broker) as client:
        client.create_queue("orders", authorization_rules=[rule])
        client.create_topic("news", authorization_rules=[rule])
    with Broker({"contoso": 0}, data_dir=tmp_path) as broker, administer(broker) as client:
        for found in (client.get_queue("orders"), client.get_topic("news")):
            (kept,) = found.authorization_rules
            assert (kept.key_name, kept.rights, kept.primary_key) == ("mine", ["Send"], "secret")


def test_namespaces_of_one_directory_are_apart(tmp_path: Path) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}, data_dir=tmp_path) as broker:
        broker["contoso"].create_queue("orders")
        send(broker, "orders", b"1")
    with Broker({"contoso-dr": 0}, data_dir=tmp_path) as broker:
        broker["contoso-dr"].create_queue("orders")
        assert broker["contoso-dr"].message_count("orders") == 0
    with Broker({"contoso": 0}, data_dir=tmp_path) as broker:
        assert broker["contoso"].message_count("orders") == 1

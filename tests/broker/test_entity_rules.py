"""Policies that a queue or topic has of its own: they sign for it, and for nothing else."""

import base64
import hashlib
import hmac
import http.client
import urllib.parse
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import AuthorizationRule

from .bus import Bus, receive


def rule(name: str, *rights: str, **keys: str) -> AuthorizationRule:
    settings: dict[str, Any] = {"key_name": name, "rights": list(rights), **keys}
    return AuthorizationRule(
        type="SharedAccessAuthorizationRule", claim_type="SharedAccessKey", claim_value="None", **settings
    )


def signed_by(bus: Bus, name: str, key: str) -> str:
    return (
        f"Endpoint=sb://127.0.0.1:{bus.namespace.port};SharedAccessKeyName={name};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true"
    )


async def send(bus: Bus, name: str, key: str, path: str = "orders") -> None:
    client = bus.connect(signed_by(bus, name, key))
    async with client, client.get_queue_sender(path) as sender:
        await sender.send_messages(ServiceBusMessage("x"))


async def test_both_keys_of_a_rule_sign_for_its_entity(aio_bus: Bus, admin: Any) -> None:
    rules = [rule("app", "Send", primary_key="Zmlyc3Q=", secondary_key="c2Vjb25k"), rule("other", "Listen")]
    made = admin.create_queue("orders", authorization_rules=rules)
    admin.create_queue("others")
    await send(aio_bus, "app", "Zmlyc3Q=")
    await send(aio_bus, "app", "c2Vjb25k")
    generated = made.authorization_rules[1]
    client = aio_bus.connect(signed_by(aio_bus, "other", generated.primary_key))
    async with client, client.get_queue_receiver("orders") as receiver:
        assert len(await receive(receiver, 2)) == 2
    for name, key, path in (
        ("app", "Zmlyc3Q=", "others"),
        ("other", generated.secondary_key, "orders"),
        ("app", generated.primary_key, "orders"),
        ("nobody", "Zmlyc3Q=", "orders"),
    ):
        with pytest.raises(ServiceBusError):
            await send(aio_bus, name, key, path)


async def test_a_rule_that_is_gone_signs_no_more(aio_bus: Bus, admin: Any) -> None:
    made = admin.create_queue("orders", authorization_rules=[rule("app", "Send")])
    key = made.authorization_rules[0].primary_key
    await send(aio_bus, "app", key)
    made.authorization_rules = None
    admin.update_queue(made)
    with pytest.raises(ServiceBusError):
        await send(aio_bus, "app", key)


async def test_the_rule_of_a_topic_holds_for_its_subscriptions(aio_bus: Bus, admin: Any) -> None:
    made = admin.create_topic("news", authorization_rules=[rule("app", "Send", "Listen")])
    admin.create_subscription("news", "all")
    client = aio_bus.connect(signed_by(aio_bus, "app", made.authorization_rules[0].primary_key))
    async with client, client.get_topic_sender("news") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
        async with client.get_subscription_receiver("news", "all") as receiver:
            assert len(await receive(receiver)) == 1


def test_a_rule_with_manage_administers_its_entity_alone(aio_bus: Bus, admin: Any) -> None:
    made = admin.create_queue("orders", authorization_rules=[rule("boss", "Manage", "Send", "Listen")])
    admin.create_queue("others")
    key = made.authorization_rules[0].primary_key
    for signed_for, path, status in (
        ("orders", "orders", 200),
        ("others", "others", 401),
        ("", "orders", 401),
        ("", "$Resources/queues", 401),
    ):
        resource = urllib.parse.quote_plus(f"sb://127.0.0.1/{signed_for}")
        expires = int(aio_bus.clock.now()) + 60
        digest = hmac.digest(key.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256)
        signature = urllib.parse.quote(base64.b64encode(digest), safe="")
        token = f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}&skn=boss"
        line = http.client.HTTPConnection("127.0.0.1", aio_bus.namespace.port, timeout=40)
        line.request("GET", f"/{path}?api-version=2021-05", headers={"Authorization": token})
        assert line.getresponse().status == status, (signed_for, path)
        line.close()

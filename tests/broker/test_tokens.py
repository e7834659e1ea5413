"""Tokens: without a good one no link attaches, and none outlives the one that it was attached with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from azure.core.credentials import AccessToken
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
)

from pairbus import conditions
from pairbus.amqp.link import LinkState
from pairbus.amqp.message import encode_data
from pairbus.amqp.performatives import Accepted, Source, Target
from pairbus.amqp.sasl import SaslClient
from pairbus.broker import Broker, Policy, QueueSettings
from pairbus.broker.handle import NamespaceHandle
from pairbus.broker.links.attach import SESSION_FILTER
from pairbus.clock import ManualClock

from .bus import Bus, bodies, opened, receive
from .keys import signature
from .raw import RawClient

SECRET = "a secret of at least thirty-two bytes, shared with the issuer"
OWNER = "Azure Service Bus Data Owner"


def signed_string(namespace: NamespaceHandle, *, expires_at: float, path: str = "") -> str:
    token = signature(namespace, expires_at=expires_at, path=path)
    return (
        f"Endpoint=sb://127.0.0.1:{namespace.port};SharedAccessSignature={token};UseDevelopmentEmulator=true"
    )


class Credential:
    """A TokenCredential of ours, that counts how often it is asked."""

    def __init__(self, make: Callable[[], str]) -> None:
        self.make = make
        self.asked = 0

    async def get_token(self, *scopes: str, **options: Any) -> AccessToken:
        self.asked += 1
        return AccessToken(self.make(), int(time.time() + 3600))

    async def close(self) -> None:
        pass

    async def __aenter__(self) -> Credential:
        return self

    async def __aexit__(self, *details: object) -> None:
        pass


def over_tls(broker: Broker, credential: Any, **settings: Any) -> ServiceBusClient:
    """A client with a credential; only connection strings can do without TLS."""
    return ServiceBusClient(
        "contoso.servicebus.windows.net",
        credential,
        custom_endpoint_address=f"sb://127.0.0.1:{broker['contoso'].port}",
        transport_type=TransportType.Amqp,
        connection_verify=str(broker.certificate),
        **{"retry_total": 0, **settings},
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SharedAccessKey=", "SharedAccessKey=wrong"),
        ("SharedAccessKeyName=RootManageSharedAccessKey", "SharedAccessKeyName=Nobody"),
        ("SharedAccessKeyName=RootManageSharedAccessKey", "SharedAccessKeyName=send"),
    ],
)
async def test_a_token_signed_with_the_wrong_key(aio_bus: Bus, old: str, new: str) -> None:
    aio_bus.namespace.create_queue("orders")
    client = aio_bus.connect(aio_bus.namespace.connection_string.replace(old, new, 1))
    with pytest.raises(ServiceBusAuthenticationError):
        async with client, client.get_queue_sender("orders"):
            raise AssertionError("it was let in")


async def test_the_wrong_key_with_either_client(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    client = bus.connect(bus.namespace.connection_string.replace("SharedAccessKey=", "SharedAccessKey=x"))
    with pytest.raises(ServiceBusAuthenticationError):
        async with client, client.get_queue_receiver("orders"):
            raise AssertionError("it was let in")


async def test_a_signature_made_beforehand(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    namespace.create_queue("orders")
    namespace.create_queue("others")
    in_an_hour = aio_bus.clock.now() + 3600
    async with aio_bus.connect(signed_string(namespace, expires_at=in_an_hour, path="orders")) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("signed"))
        with pytest.raises(ServiceBusAuthenticationError):
            await client.get_queue_sender("others").__aenter__()
    # The broker's clock has passed the end of this one, the client's has not.
    aio_bus.pass_time(100)
    async with aio_bus.connect(signed_string(namespace, expires_at=time.time() + 50)) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            await client.get_queue_sender("orders").__aenter__()
    assert namespace.message_count("orders") == 1


@pytest.mark.parametrize(("policy", "sends", "receives"), [("send", True, False), ("listen", False, True)])
async def test_claims(aio_bus: Bus, policy: str, sends: bool, receives: bool) -> None:
    aio_bus.namespace.create_queue("orders")
    await aio_bus.send("orders", "1")
    async with aio_bus.connect(aio_bus.namespace.policies[policy]) as client:
        sender, receiver = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
        if sends:
            async with sender:
                await sender.send_messages(ServiceBusMessage("2"))
            with pytest.raises(ServiceBusAuthorizationError, match="Listen"):
                await receiver.__aenter__()
        if receives:
            async with receiver:
                assert bodies(await receiver.peek_messages()) == ["1"]
                await receiver.complete_message((await receive(receiver))[0])
            with pytest.raises(ServiceBusAuthorizationError, match="Send"):
                await sender.__aenter__()


async def test_a_policy_of_ones_own(clock: ManualClock, certificate: tuple[Path, Path]) -> None:
    policies = [Policy.parse("ops=c2VjcmV0:manage"), Policy.parse("both=c2VjcmV0:send,listen")]
    with Broker({"contoso": 0}, clock=clock, certificate=certificate, policies=policies) as broker:
        namespace = broker["contoso"]
        namespace.create_queue("orders")
        for name in ("ops", "both"):
            client = ServiceBusClient.from_connection_string(namespace.policies[name], retry_total=0)
            async with client, client.get_queue_sender("orders") as sender:
                await sender.send_messages(ServiceBusMessage(name))
                async with client.get_queue_receiver("orders") as receiver:
                    [message] = await receive(receiver)
                    assert str(message) == name
                    await receiver.complete_message(message)


async def test_a_link_ends_with_its_token_and_the_sdk_gets_another(aio_bus: Bus) -> None:
    namespace, clock = aio_bus.namespace, aio_bus.clock
    namespace.create_queue("orders")
    credential = Credential(lambda: signature(namespace, expires_at=clock.now() + 600))
    client = over_tls(aio_bus.broker, credential, retry_total=2, retry_backoff_factor=0.01)
    links = client.get_queue_sender("orders"), client.get_queue_receiver("orders")
    async with client, opened(*links) as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("before"))
        await receiver.complete_message((await receive(receiver))[0])
        assert credential.asked == 2
        aio_bus.pass_time(601)
        await sender.send_messages(ServiceBusMessage("after"))
        # A receiver hears why its link went, and has another with its next call.
        with pytest.raises(ServiceBusAuthorizationError, match="token has expired"):
            await receiver.receive_messages(max_wait_time=10)
        assert bodies(await receive(receiver)) == ["after"]
        assert credential.asked == 4


def test_a_link_whose_token_is_renewed_in_time_stays(bus_without_client: Bus) -> None:
    namespace, clock = bus_without_client.namespace, bus_without_client.clock
    namespace.create_queue("orders")
    with RawClient.connected(namespace.port, SaslClient.anonymous()) as client:
        cbs = client.attach("$cbs", sends=True), client.attach("$cbs", sends=False)
        assert client.put_token(*cbs, "orders", signature(namespace, expires_at=clock.now() + 600)) == 202
        sender = client.attach("orders", sends=True)
        for _ in range(3):
            bus_without_client.pass_time(400)
            token = signature(namespace, expires_at=clock.now() + 600)
            assert client.put_token(*cbs, "orders", token) == 202
            assert isinstance(client.send(sender, encode_data(b"still here")).state, Accepted)
        assert client.put_token(*cbs, "orders", signature(namespace, expires_at=clock.now() - 1)) == 401
        assert client.put_token(*cbs, "nowhere", signature(namespace, expires_at=clock.now() + 600)) == 404
        bus_without_client.pass_time(601)
        error = client.refusal().error
        assert error is not None
        assert error.condition == conditions.UNAUTHORIZED
    assert namespace.message_count("orders") == 3


@pytest.mark.parametrize(("weaker", "kept"), [("send", "sender"), ("listen", "receiver")])
@pytest.mark.parametrize("audience", ["orders", "ORDERS/"])
def test_a_weaker_token_ends_the_links_that_it_does_not_allow(
    bus_without_client: Bus, weaker: str, kept: str, audience: str
) -> None:
    namespace, ends = bus_without_client.namespace, bus_without_client.clock.now() + 600
    namespace.create_queue("orders")
    with RawClient.connected(namespace.port, SaslClient.anonymous()) as client:
        cbs = client.attach("$cbs", sends=True), client.attach("$cbs", sends=False)
        assert client.put_token(*cbs, "orders", signature(namespace, expires_at=ends)) == 202
        links = {
            "sender": client.attach("orders", sends=True),
            "receiver": client.attach("orders", sends=False),
        }
        links["receiver"].flow(5)
        # Good for the whole namespace, but shown for the queue, in whose place it counts.
        token = signature(namespace, expires_at=ends, policy=weaker)
        assert client.put_token(*cbs, audience, token) == 202
        assert {name for name, link in links.items() if link.state is LinkState.ATTACHED} == {kept}


def test_a_token_counts_for_what_it_was_shown_for_alone(bus_without_client: Bus) -> None:
    namespace, ends = bus_without_client.namespace, bus_without_client.clock.now() + 600
    for name in ("q", "q2", "q/evil"):
        namespace.create_queue(name)
    with RawClient.connected(namespace.port, SaslClient.anonymous()) as client:
        cbs = client.attach("$cbs", sends=True), client.attach("$cbs", sends=False)
        for other in ("q2", "q/evil", "", "q2/$management"):
            assert client.put_token(*cbs, other, signature(namespace, expires_at=ends, path="q")) == 401
        assert client.put_token(*cbs, "q", signature(namespace, expires_at=ends)) == 202
        for address in ("q2", "q/evil", "Q/%45vil", "q/evil/$DeadLetterQueue", "q2/$management"):
            client.attach(address, sends=False)
            error = client.refusal().error
            assert error is not None
            assert error.condition == conditions.UNAUTHORIZED
        client.attach("q/$DeadLetterQueue", sends=False).flow(1)


def test_a_wait_for_a_session_ends_with_the_right_to_it(bus_without_client: Bus) -> None:
    namespace, ends = bus_without_client.namespace, bus_without_client.clock.now() + 600
    namespace.create_queue("orders", QueueSettings(requires_session=True))
    with RawClient.connected(namespace.port, SaslClient.anonymous()) as client:
        cbs = client.attach("$cbs", sends=True), client.attach("$cbs", sends=False)
        assert client.put_token(*cbs, "orders", signature(namespace, expires_at=ends)) == 202
        waiting = client.machine.begin().attach(
            name="waits",
            role_sender=False,
            source=Source("orders", filter={SESSION_FILTER: None}),
            target=Target("orders"),
        )
        client.flush()
        assert client.put_token(*cbs, "orders", signature(namespace, expires_at=ends, policy="send")) == 202
        assert waiting.state is LinkState.DETACHED


@pytest.fixture
def jwt_broker(tmp_path: Path, clock: ManualClock, certificate: tuple[Path, Path]) -> Iterator[Broker]:
    key = tmp_path / "jwt.key"
    key.write_text(SECRET)
    with Broker({"contoso": 0}, clock=clock, certificate=certificate, jwt_key=key) as broker:
        broker["contoso"].create_queue("orders")
        yield broker


def web_token(*, roles: list[str], expires_at: float, secret: str = SECRET) -> str:
    claims = {"aud": "https://servicebus.azure.net", "exp": int(expires_at), "roles": roles, "sub": "me"}
    return jwt.encode(claims, secret, algorithm="HS256")


async def test_a_json_web_token_with_a_key_to_verify_it(jwt_broker: Broker, clock: ManualClock) -> None:
    credential = Credential(lambda: web_token(roles=[OWNER], expires_at=clock.now() + 600))
    async with over_tls(jwt_broker, credential) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("verified"))
        async with client.get_queue_receiver("orders") as receiver:
            assert bodies(await receive(receiver)) == ["verified"]


@pytest.mark.parametrize("wrong", ["secret", "expiry", "roles"])
async def test_a_json_web_token_that_does_not_hold(
    jwt_broker: Broker, clock: ManualClock, wrong: str
) -> None:
    def make() -> str:
        return web_token(
            roles=["Reader"] if wrong == "roles" else [OWNER],
            expires_at=clock.now() + (-1 if wrong == "expiry" else 600),
            secret="x" * 40 if wrong == "secret" else SECRET,
        )

    async with over_tls(jwt_broker, Credential(make)) as client:
        # With a custom endpoint the SDK calls every failed authentication a connection error.
        with pytest.raises(ServiceBusConnectionError):
            await client.get_queue_sender("orders").__aenter__()


async def test_the_role_of_a_receiver_does_not_send(jwt_broker: Broker, clock: ManualClock) -> None:
    roles = ["Azure Service Bus Data Receiver"]
    credential = Credential(lambda: web_token(roles=roles, expires_at=clock.now() + 600))
    async with over_tls(jwt_broker, credential) as client:
        async with client.get_queue_receiver("orders"):
            pass
        with pytest.raises(ServiceBusAuthorizationError):
            await client.get_queue_sender("orders").__aenter__()


async def test_a_json_web_token_without_a_key_to_verify_it(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    credential = Credential(lambda: web_token(roles=[OWNER], expires_at=aio_bus.clock.now() + 600))
    async with over_tls(aio_bus.broker, credential) as client:
        with pytest.raises(ServiceBusConnectionError):
            await client.get_queue_sender("orders").__aenter__()


@pytest.mark.parametrize(
    "sasl",
    [SaslClient.anonymous(), SaslClient("MSSBCBS"), SaslClient("EXTERNAL", b"")],
    ids=lambda s: s.mechanism,
)
@pytest.mark.parametrize("sends", [True, False])
@pytest.mark.parametrize("address", ["orders", "orders/$management"])
def test_no_link_without_a_token(
    bus_without_client: Bus, sasl: SaslClient, sends: bool, address: str
) -> None:
    namespace = bus_without_client.namespace
    namespace.create_queue("orders")
    with RawClient.connected(namespace.port, sasl) as client:
        client.attach(address, sends=sends)
        refusal = client.refusal()
        assert refusal.error is not None
        assert refusal.error.condition == conditions.UNAUTHORIZED


def test_the_name_and_key_of_a_policy_by_sasl_plain(bus_without_client: Bus) -> None:
    namespace = bus_without_client.namespace
    namespace.create_queue("orders")
    with RawClient.of_owner(namespace) as client:
        settled = client.send(client.attach("orders", sends=True), encode_data(b"plain"))
        assert isinstance(settled.state, Accepted)
        assert client.receive(client.attach("orders", sends=False)).payload.endswith(encode_data(b"plain"))


def test_sasl_plain_gives_the_claims_of_its_policy_only(bus_without_client: Bus) -> None:
    namespace = bus_without_client.namespace
    namespace.create_queue("orders")
    fields = dict(field.partition("=")[::2] for field in namespace.policies["listen"].split(";"))
    with RawClient.connected(namespace.port, SaslClient.plain("listen", fields["SharedAccessKey"])) as client:
        client.attach("orders", sends=True)
        error = client.refusal().error
        assert error is not None
        assert error.condition == conditions.UNAUTHORIZED


@pytest.mark.usefixtures("noisy")
@pytest.mark.parametrize("name", ["RootManageSharedAccessKey", "nobody", ""])
def test_a_wrong_key_by_sasl_plain(bus_without_client: Bus, name: str) -> None:
    with (
        pytest.raises((ConnectionError, AssertionError), match=r"closed|Closed"),
        RawClient.connected(bus_without_client.namespace.port, SaslClient.plain(name, "wrong")),
    ):
        raise AssertionError("it was let in")

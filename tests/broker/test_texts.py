"""Texts that clients look for in refusals, word by word."""

import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient

from pairbus import conditions
from pairbus.amqp.message import encode_value
from pairbus.amqp.sasl import SaslClient
from pairbus.broker import Broker
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings, TopicSettings
from pairbus.clock import ManualClock
from tests.engine.samples import message

from .bus import Bus
from .keys import key_of, signature
from .raw import RawClient
from .test_wrong_requests import Requests


@pytest.fixture
def bus(bus_without_client: Bus) -> Bus:
    namespace = bus_without_client.namespace
    namespace.create_queue("orders")
    namespace.create_queue("lines", QueueSettings(requires_session=True))
    namespace.create_topic("news")
    namespace.create_subscription("news", "all")
    return bus_without_client


@pytest.fixture
def listener(bus: Bus) -> Iterator[ServiceBusAdministrationClient]:
    """An administration client without the right to administer."""
    with ServiceBusAdministrationClient.from_connection_string(
        bus.namespace.policies["listen"], connection_verify=str(bus.broker.certificate), retry_total=0
    ) as client:
        yield client


def refusal(bus: Bus, address: str, *, sends: bool, policy: str = "root") -> tuple[str, str]:
    sasl = SaslClient.plain(*key_of(bus.namespace, policy))
    with RawClient.connected(bus.namespace.port, sasl) as client:
        client.attach(address, sends=sends)
        error = client.refusal().error
    assert error is not None
    return error.condition, error.description


def token_answer(bus: Bus, audience: str, token: str) -> tuple[int, str]:
    with RawClient.connected(bus.namespace.port, SaslClient.anonymous()) as client:
        node = Requests(client, "$cbs")
        asked = {"operation": "put-token", "type": "jwt", "name": audience}
        answer = node.ask(asked, encode_value(token))
    return answer["status-code"], answer["status-description"]


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("nothing", "sb://127.0.0.1/nothing"),
        ("amqps://127.0.0.1:5671/nothing", "sb://127.0.0.1:5671/nothing"),
        ("news/Subscriptions/none", "sb://127.0.0.1/news/Subscriptions/none"),
    ],
)
def test_a_missing_entity_is_named_by_its_address(bus: Bus, address: str, named: str) -> None:
    condition, text = refusal(bus, address, sends=False)
    assert condition == conditions.NOT_FOUND
    assert f"The messaging entity '{named}' could not be found." in text


def test_a_token_for_a_missing_entity(bus: Bus) -> None:
    token = signature(bus.namespace, expires_at=bus.clock.now() + 60)
    status, text = token_answer(bus, "sb://here:7/nothing", token)
    assert status == 404
    assert "The messaging entity 'sb://here:7/nothing' could not be found." in text


def test_a_token_that_is_expired(bus: Bus) -> None:
    token = signature(bus.namespace, expires_at=bus.clock.now() - 60)
    status, text = token_answer(bus, "sb://here/orders", token)
    assert status == 401
    assert text.startswith("ExpiredToken: The token is expired. Expiration time:")


@pytest.mark.parametrize(("sends", "claim", "policy"), [(True, "Send", "listen"), (False, "Listen", "send")])
def test_a_claim_that_is_missing(bus: Bus, sends: bool, claim: str, policy: str) -> None:
    condition, text = refusal(bus, "orders", sends=sends, policy=policy)
    assert condition == conditions.UNAUTHORIZED
    wanted = (
        f"Unauthorized access. '{claim}' claim(s) are required to perform this operation. Resource: 'sb://"
    )
    assert text.startswith(wanted)


def test_a_receiver_that_forgets_the_session(bus: Bus) -> None:
    condition, text = refusal(bus, "lines", sends=False)
    assert condition == conditions.NOT_ALLOWED
    assert (
        "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
    ) in text


def test_what_an_update_cannot_change(bus: Bus) -> None:
    namespace = bus.namespace
    with pytest.raises(Exception, match="RequiresSession property of an existing Queue cannot be changed"):
        namespace.update_queue("orders", QueueSettings(requires_session=True))
    with pytest.raises(Exception, match="RequiresSession property of an existing Subscription cannot be ch"):
        namespace.update_subscription("news", "all", settings=SubscriptionSettings(requires_session=True))
    with pytest.raises(Exception, match=r"Partitioning cannot be changed for Topic\. "):
        namespace.update_topic("news", TopicSettings(enable_partitioning=True))


def test_without_manage_what_is_missing_is_missing(listener: ServiceBusAdministrationClient) -> None:
    for look in (
        listener.get_queue,
        listener.get_queue_runtime_properties,
        listener.get_topic,
        listener.get_topic_runtime_properties,
    ):
        with pytest.raises(ResourceNotFoundError):
            look("nothing")


def test_without_manage_nothing_is_told_or_done(listener: ServiceBusAdministrationClient) -> None:
    client: Any = listener
    read = "Manage,EntityRead claims required for this operation"
    failed = "Authorization failed for specified action: Manage,"
    no_access = "401 SubCode=40100: Unauthorized : Unauthorized access for "
    for act, text in (
        (lambda: client.get_queue("orders"), read),
        (lambda: client.get_topic("news"), read),
        (lambda: list(client.list_queues()), read),
        (lambda: list(client.list_topics()), read),
        (lambda: client.create_queue("new"), f"{failed}EntityWrite"),
        (lambda: client.create_topic("new"), f"{failed}EntityWrite"),
        (lambda: client.delete_queue("orders"), f"{failed}EntityDelete."),
        (lambda: client.delete_topic("news"), f"{failed}EntityDelete."),
        (lambda: client.get_subscription("news", "all"), f"{no_access}'GetSubscription' operation"),
        (lambda: client.get_subscription("news", "none"), f"{no_access}'GetSubscription' operation"),
        (lambda: list(client.list_subscriptions("news")), f"{no_access}'EnumerateSubscriptions' operation"),
        (lambda: client.create_subscription("news", "new"), f"{no_access}'CreateOrUpdateSubscription'"),
        (lambda: client.delete_subscription("news", "all"), f"{no_access}'DeleteSubscription' operation"),
    ):
        with pytest.raises((ClientAuthenticationError, HttpResponseError)) as caught:
            act()
        assert caught.value.status_code == 401
        assert text in str(caught.value), str(caught.value)


def test_the_root_is_a_feed(bus: Bus) -> None:
    token = signature(bus.namespace, expires_at=bus.clock.now() + 60)
    request = urllib.request.Request(
        f"http://127.0.0.1:{bus.namespace.port}/?api-version=2021-05", headers={"Authorization": token}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200
        assert b"<feed" in answer.read()
    with pytest.raises(HTTPError, match="401"):
        urllib.request.urlopen(request.full_url, timeout=30)


async def test_an_entity_that_nobody_used_was_never_accessed(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    with ServiceBusAdministrationClient.from_connection_string(
        aio_bus.namespace.connection_string, connection_verify=str(aio_bus.broker.certificate), retry_total=0
    ) as client:
        queue = client.get_queue("orders")
        client.update_queue(queue)
        never = client.get_queue_runtime_properties("orders").accessed_at_utc
        assert never is not None
        assert never.year == 1
        await aio_bus.send("orders", "x")
        used = client.get_queue_runtime_properties("orders").accessed_at_utc
        assert used is not None
        assert abs(used.timestamp() - aio_bus.clock.now()) < 1


async def test_a_subscription_was_accessed_when_it_was_made(aio_bus: Bus) -> None:
    aio_bus.namespace.create_topic("events")
    aio_bus.namespace.create_subscription("events", "audit")
    with ServiceBusAdministrationClient.from_connection_string(
        aio_bus.namespace.connection_string, connection_verify=str(aio_bus.broker.certificate), retry_total=0
    ) as client:
        runtime = client.get_subscription_runtime_properties("events", "audit")
        assert runtime.accessed_at_utc == runtime.created_at_utc
        topic = client.get_topic_runtime_properties("events").accessed_at_utc
        assert topic is not None
        assert topic.year == 1


@pytest.mark.parametrize("is_durable", [False, True])
def test_a_namespace_and_its_entities_are_as_old_as_they_are(tmp_path: Path, is_durable: bool) -> None:
    """Also after a restart, and where its first broker did not write it down."""

    def ages(client: ServiceBusAdministrationClient) -> list[datetime | None]:
        namespace, queue = client.get_namespace_properties(), client.get_queue_runtime_properties("orders")
        times = [queue.created_at_utc, queue.updated_at_utc, queue.accessed_at_utc]
        return [namespace.created_at_utc, namespace.modified_at_utc, *times]

    clock, data_dir = ManualClock(), tmp_path if is_durable else None
    born, used = (datetime.fromtimestamp(clock.now() + later, UTC) for later in (0, 60))
    for is_first in (True, False) if is_durable else (True,):
        with Broker({"contoso": 0}, clock=clock, data_dir=data_dir) as broker:
            if is_first:
                broker["contoso"].create_queue("orders")
                clock.advance(60)
                broker["contoso"]._run(lambda engine, now: engine.send("orders", [message()], now))
            clock.advance(3600)
            with ServiceBusAdministrationClient.from_connection_string(
                broker["contoso"].connection_string, connection_verify=str(broker.certificate), retry_total=0
            ) as client:
                assert ages(client) == [born, born, born, born, used]


def test_a_partitioned_queue_takes_its_size_back(bus: Bus) -> None:
    with ServiceBusAdministrationClient.from_connection_string(
        bus.namespace.connection_string, connection_verify=str(bus.broker.certificate), retry_total=0
    ) as client:
        made: Any = client.create_queue("parts", enable_partitioning=True, max_size_in_megabytes=4096)
        topic: Any = client.create_topic("leaves", enable_partitioning=True, max_size_in_megabytes=2048)
        for _ in range(2):
            assert made.max_size_in_megabytes == 16 * 4096
            assert topic.max_size_in_megabytes == 16 * 2048
            client.update_queue(made)
            client.update_topic(topic)
            made, topic = client.get_queue("parts"), client.get_topic("leaves")
        topic.duplicate_detection_history_time_window = "P25D"
        with pytest.raises(HttpResponseError, match="DuplicateDetectionHistoryTimeWindow"):
            client.update_topic(topic)

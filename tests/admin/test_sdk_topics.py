"""Topics, their subscriptions and the namespace through the official synchronous client."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.management import EntityStatus, ServiceBusAdministrationClient, SqlRuleFilter

from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import SubscriptionSettings, TopicSettings

from .harness import AdminServer, send


def test_a_topic_has_the_defaults_of_the_service(admin: ServiceBusAdministrationClient) -> None:
    topic = admin.create_topic("news")
    assert topic.name == "news"
    assert topic.max_size_in_megabytes == 1024
    assert topic.requires_duplicate_detection is False
    assert topic.enable_batched_operations is True
    assert topic.enable_partitioning is False
    assert topic.support_ordering is True
    assert topic.status == EntityStatus.ACTIVE
    assert topic.max_message_size_in_kilobytes == 256


def test_every_setting_of_a_topic_is_kept(admin: ServiceBusAdministrationClient) -> None:
    created = admin.create_topic(
        "all",
        default_message_time_to_live=timedelta(days=3),
        max_size_in_megabytes=2048,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window="PT20M",
        enable_batched_operations=False,
        support_ordering=False,
        auto_delete_on_idle=timedelta(hours=1),
        enable_partitioning=True,
        enable_express=True,
        user_metadata="mine",
    )
    for topic in (created, admin.get_topic("all"), *admin.list_topics()):
        assert topic.default_message_time_to_live == timedelta(days=3)
        assert topic.max_size_in_megabytes == 16 * 2048
        assert topic.requires_duplicate_detection is True
        assert topic.duplicate_detection_history_time_window == timedelta(minutes=20)
        assert topic.enable_batched_operations is False
        assert topic.support_ordering is False
        assert topic.auto_delete_on_idle == timedelta(hours=1)
        assert topic.enable_partitioning is True
        assert topic.enable_express is True
        assert topic.user_metadata == "mine"


def test_topics_come_and_go(admin: ServiceBusAdministrationClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        admin.get_topic("news")
    with pytest.raises(ResourceNotFoundError):
        admin.get_topic_runtime_properties("news")
    topic = admin.create_topic("news")
    with pytest.raises(ResourceExistsError):
        admin.create_topic("News")
    topic.user_metadata = "changed"
    topic.status = EntityStatus.DISABLED
    admin.update_topic(topic)
    assert admin.get_topic("news").user_metadata == "changed"
    assert admin.get_topic("news").status == EntityStatus.DISABLED
    with pytest.raises(HttpResponseError, match="cannot be changed"):
        admin.update_topic(topic, requires_duplicate_detection=True)
    admin.delete_topic("news")
    with pytest.raises(ResourceNotFoundError):
        admin.delete_topic("news")
    with pytest.raises(ResourceNotFoundError):
        admin.update_topic(topic)


def test_an_update_must_describe_the_kind_of_entity_that_is_there(
    admin: ServiceBusAdministrationClient,
) -> None:
    queue, topic = admin.create_queue("q"), admin.create_topic("t")
    queue.name, topic.name = "t", "q"
    with pytest.raises(HttpResponseError, match="is a topic"):
        admin.update_queue(queue)
    with pytest.raises(HttpResponseError, match="is a queue"):
        admin.update_topic(topic)


def test_runtime_properties_of_topics(admin: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    admin.create_topic("news")
    for name in ("a", "b"):
        admin.create_subscription("news", name)
    now = datetime.now(UTC).timestamp()
    send(namespace, "news", count=3, now=now)
    send(namespace, "news", count=2, now=now, at=now + 3600)
    runtime = admin.get_topic_runtime_properties("news")
    assert runtime.subscription_count == 2
    assert runtime.scheduled_message_count == 2
    assert runtime.size_in_bytes is not None
    assert runtime.size_in_bytes > 0
    assert runtime.created_at_utc is not None
    assert runtime.accessed_at_utc is not None
    assert runtime.updated_at_utc is not None
    (listed,) = admin.list_topics_runtime_properties()
    assert (listed.name, listed.subscription_count) == ("news", 2)
    counts = {each.name: each for each in admin.list_subscriptions_runtime_properties("news")}
    assert {name: each.active_message_count for name, each in counts.items()} == {"a": 3, "b": 3}
    one = admin.get_subscription_runtime_properties("news", "a")
    assert (one.total_message_count, one.active_message_count, one.dead_letter_message_count) == (3, 3, 0)
    assert (one.transfer_message_count, one.transfer_dead_letter_message_count) == (0, 0)
    assert one.created_at_utc is not None
    assert one.accessed_at_utc is not None
    assert one.updated_at_utc is not None


def test_topics_are_paged(admin: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    assert list(admin.list_topics()) == []
    names = [f"t{number:03}" for number in range(101)]
    for name in names:
        namespace.create_topic(name, TopicSettings(), 0.0)
    assert [topic.name for topic in admin.list_topics()] == names
    assert len(list(admin.list_topics_runtime_properties())) == 101


def test_a_subscription_has_the_defaults_of_the_service(admin: ServiceBusAdministrationClient) -> None:
    admin.create_topic("a/news")
    subscription = admin.create_subscription("a/news", "mine")
    assert subscription.name == "mine"
    assert subscription.lock_duration == timedelta(minutes=1)
    assert subscription.requires_session is False
    assert subscription.max_delivery_count == 10
    assert subscription.dead_lettering_on_message_expiration is False
    assert subscription.dead_lettering_on_filter_evaluation_exceptions is True
    assert subscription.enable_batched_operations is True
    assert subscription.status == EntityStatus.ACTIVE
    assert subscription.availability_status == "Available"
    (rule,) = admin.list_rules("a/news", "mine")
    assert rule.name == "$Default"
    assert isinstance(rule.filter, SqlRuleFilter)


def test_every_setting_of_a_subscription_is_kept(
    admin: ServiceBusAdministrationClient, server: AdminServer
) -> None:
    admin.create_topic("news")
    admin.create_queue("next")
    admin.create_queue("dead")
    created = admin.create_subscription(
        "news",
        "all",
        lock_duration="PT3M",
        requires_session=True,
        default_message_time_to_live=timedelta(hours=30),
        dead_lettering_on_message_expiration=True,
        dead_lettering_on_filter_evaluation_exceptions=False,
        max_delivery_count=2,
        enable_batched_operations=False,
        user_metadata="mine",
        forward_dead_lettered_messages_to="dead",
        auto_delete_on_idle="PT6M",
    )
    for each in (created, admin.get_subscription("news", "all"), *admin.list_subscriptions("news")):
        assert each.lock_duration == timedelta(minutes=3)
        assert each.requires_session is True
        assert each.default_message_time_to_live == timedelta(hours=30)
        assert each.dead_lettering_on_message_expiration is True
        assert each.dead_lettering_on_filter_evaluation_exceptions is False
        assert each.max_delivery_count == 2
        assert each.enable_batched_operations is False
        assert each.user_metadata == "mine"
        assert each.forward_dead_lettered_messages_to == f"sb://127.0.0.1:{server.port}/dead"
        assert each.auto_delete_on_idle == timedelta(minutes=6)
    forwarding = admin.create_subscription("news", "forwarding", forward_to="next")
    assert forwarding.forward_to == f"sb://127.0.0.1:{server.port}/next"


def test_subscriptions_come_and_go(admin: ServiceBusAdministrationClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        admin.create_subscription("news", "mine")
    admin.create_topic("news")
    for missing in (
        admin.get_subscription,
        admin.get_subscription_runtime_properties,
        admin.delete_subscription,
    ):
        with pytest.raises(ResourceNotFoundError):
            missing("news", "mine")
    subscription = admin.create_subscription("news", "mine")
    with pytest.raises(ResourceExistsError):
        admin.create_subscription("news", "Mine")
    subscription.max_delivery_count = 4
    admin.update_subscription("news", subscription)
    assert admin.get_subscription("NEWS", "MINE").max_delivery_count == 4
    admin.update_subscription(
        "news", subscription, lock_duration=timedelta(seconds=30), status="ReceiveDisabled"
    )
    assert admin.get_subscription("news", "mine").lock_duration == timedelta(seconds=30)
    assert admin.get_subscription("news", "mine").status == EntityStatus.RECEIVE_DISABLED
    with pytest.raises(HttpResponseError, match="cannot be changed"):
        admin.update_subscription("news", subscription, requires_session=True)
    with pytest.raises(HttpResponseError, match="SubCode=40000"):
        admin.create_subscription("news", "x" * 51)
    admin.delete_subscription("news", "mine")
    with pytest.raises(ResourceNotFoundError):
        admin.update_subscription("news", subscription)
    assert list(admin.list_subscriptions("news")) == []
    with pytest.raises(ResourceNotFoundError):
        list(admin.list_subscriptions("nobody"))


def test_subscriptions_are_paged(admin: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    admin.create_topic("news")
    names = [f"s{number:03}" for number in range(130)]
    for name in names:
        namespace.create_subscription("news", name, SubscriptionSettings(), 0.0)
    assert [each.name for each in admin.list_subscriptions("news")] == names
    assert len(list(admin.list_subscriptions_runtime_properties("news"))) == 130


def test_the_namespace_tells_of_itself(admin: ServiceBusAdministrationClient, namespace: Namespace) -> None:
    namespace.created_at = 1_700_000_000.0
    properties = admin.get_namespace_properties()
    assert properties.name == "contoso"
    assert properties.messaging_sku == "Standard"
    assert properties.namespace_type == "Messaging"
    assert properties.created_at_utc == datetime.fromtimestamp(namespace.created_at, UTC)
    assert properties.modified_at_utc == properties.created_at_utc

"""The official asynchronous client: every method of it, once."""

import inspect
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter

from pairbus.broker.engine.namespace import Namespace
from pairbus.broker.engine.settings import QueueSettings


class Recorder:
    """Passes calls on to a client and keeps their names."""

    def __init__(self, client: ServiceBusAdministrationClient) -> None:
        self._client = client
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self._client, name)


async def names(pages: Any) -> list[str]:
    return [each.name async for each in pages]


async def use_queues(admin: Any) -> None:
    queue = await admin.create_queue("orders", max_delivery_count=3)
    queue.max_delivery_count = 4
    await admin.update_queue(queue)
    assert (await admin.get_queue("orders")).max_delivery_count == 4
    assert (await admin.get_queue_runtime_properties("orders")).total_message_count == 0
    assert await names(admin.list_queues()) == ["orders"]
    assert await names(admin.list_queues_runtime_properties()) == ["orders"]
    with pytest.raises(ResourceExistsError):
        await admin.create_queue("orders")
    await admin.delete_queue("orders")
    with pytest.raises(ResourceNotFoundError):
        await admin.get_queue("orders")


async def use_topics(admin: Any) -> None:
    topic = await admin.create_topic("news")
    topic.user_metadata = "changed"
    await admin.update_topic(topic)
    assert (await admin.get_topic("news")).user_metadata == "changed"
    assert await names(admin.list_topics()) == ["news"]
    subscription = await admin.create_subscription("news", "mine")
    subscription.max_delivery_count = 4
    await admin.update_subscription("news", subscription)
    assert (await admin.get_subscription("news", "mine")).max_delivery_count == 4
    assert (await admin.get_subscription_runtime_properties("news", "mine")).total_message_count == 0
    assert (await admin.get_topic_runtime_properties("news")).subscription_count == 1
    assert await names(admin.list_topics_runtime_properties()) == ["news"]
    assert await names(admin.list_subscriptions("news")) == ["mine"]
    assert await names(admin.list_subscriptions_runtime_properties("news")) == ["mine"]


async def use_rules(admin: Any) -> None:
    rule = await admin.create_rule("news", "mine", "r", filter=CorrelationRuleFilter(properties={"k": 1}))
    assert rule.filter.properties == {"k": 1}
    rule.filter = SqlRuleFilter("a = @b", parameters={"@b": "c"})
    rule.action = SqlRuleAction("SET d = 'e'")
    await admin.update_rule("news", "mine", rule)
    found = await admin.get_rule("news", "mine", "r")
    assert (found.filter.sql_expression, found.filter.parameters) == ("a = @b", {"@b": "c"})
    assert found.action.sql_expression == "SET d = 'e'"
    assert await names(admin.list_rules("news", "mine")) == ["$Default", "r"]
    with pytest.raises(HttpResponseError, match="SubCode=40000"):
        await admin.create_rule("news", "mine", "wrong", filter=SqlRuleFilter("= ="))
    await admin.delete_rule("news", "mine", "r")
    await admin.delete_subscription("news", "mine")
    await admin.delete_topic("news")
    assert await names(admin.list_topics()) == []


async def test_every_method(aio_admin: ServiceBusAdministrationClient) -> None:
    recorder = Recorder(aio_admin)
    await use_queues(recorder)
    await use_topics(recorder)
    await use_rules(recorder)
    assert (await recorder.get_namespace_properties()).name == "contoso"
    methods = {name for name, _ in inspect.getmembers(ServiceBusAdministrationClient, inspect.isfunction)}
    public = {name for name in methods if not name.startswith("_")}
    assert recorder.called == public - {"close"}


async def test_without_tls_and_over_pages(
    plain_aio_admin: ServiceBusAdministrationClient, namespace: Namespace
) -> None:
    wanted = [f"q{number:03}" for number in range(205)]
    for name in wanted:
        namespace.create_queue(name, QueueSettings(), 0.0)
    assert await names(plain_aio_admin.list_queues()) == wanted

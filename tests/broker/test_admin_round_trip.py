"""Administration and messages on one port: what one does the other sees."""

import datetime
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AioAdministrationClient
from azure.servicebus.exceptions import MessagingEntityDisabledError, MessagingEntityNotFoundError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    EntityStatus,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
)

from pairbus.broker import OperationKind

from .bus import Bus, bodies, opened, receive


async def test_a_queue_from_making_to_deletion(aio_bus: Bus, admin: ServiceBusAdministrationClient) -> None:
    admin.create_queue("orders", max_delivery_count=1, lock_duration=datetime.timedelta(seconds=30))
    with pytest.raises(ResourceExistsError):
        admin.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages([ServiceBusMessage(f"{number}") for number in range(4)])
        tomorrow = datetime.datetime.fromtimestamp(aio_bus.clock.now() + 86_400, datetime.UTC)
        await sender.schedule_messages(ServiceBusMessage("later"), tomorrow)
        first, second = await receive(receiver, 2)
        await receiver.abandon_message(first)
        await receiver.defer_message(second)
        counts = admin.get_queue_runtime_properties("orders")
        assert counts.active_message_count == 2
        assert counts.dead_letter_message_count == 2  # deferring counts as a delivery too
        assert counts.scheduled_message_count == 1
        assert counts.total_message_count == 5
        assert counts.size_in_bytes
        await receiver.complete_message((await receive(receiver))[0])
        assert admin.get_queue_runtime_properties("orders").active_message_count == 1
        admin.delete_queue("orders")
        with pytest.raises(MessagingEntityNotFoundError):
            await receiver.receive_messages(max_wait_time=10)
    with pytest.raises(ResourceNotFoundError):
        admin.get_queue("orders")
    assert aio_bus.namespace.count(OperationKind.ADMIN) == 6


async def test_a_status_that_is_changed_while_links_are_open(
    aio_bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    queue = admin.create_queue("orders")
    await aio_bus.send("orders", "1", "2")
    async with aio_bus.client.get_queue_receiver("orders") as receiver:
        for status, works in (
            (EntityStatus.RECEIVE_DISABLED, False),
            (EntityStatus.ACTIVE, True),
            (EntityStatus.DISABLED, False),
            (EntityStatus.SEND_DISABLED, True),
        ):
            queue.status = status
            admin.update_queue(queue)
            assert admin.get_queue("orders").status == status
            if works:
                assert len(await receive(receiver)) == 1
            else:
                with pytest.raises(MessagingEntityDisabledError):
                    await receiver.receive_messages(max_wait_time=10)


async def test_rules_that_are_made_over_http_decide_over_amqp(
    aio_bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    admin.create_topic("news")
    admin.create_subscription("news", "mine")
    admin.delete_rule("news", "mine", "$Default")
    admin.create_rule("news", "mine", "red", filter=CorrelationRuleFilter(properties={"colour": "red"}))
    admin.create_rule("news", "mine", "dear", filter=SqlRuleFilter("price > 10"))
    receiver = aio_bus.client.get_subscription_receiver("news", "mine")
    messages: dict[str, dict[str | bytes, Any]] = {
        "red": {"colour": "red", "price": 1},
        "blue": {"colour": "blue", "price": 1},
        "dear": {"colour": "blue", "price": 11},
    }
    async with opened(aio_bus.client.get_topic_sender("news"), receiver) as (sender, _):
        for text, properties in messages.items():
            await sender.send_messages(ServiceBusMessage(text, application_properties=properties))
        received = await receive(receiver, 2)
        assert bodies(received) == ["red", "dear"]
        await receiver.dead_letter_message(received[0])
    counts = admin.get_subscription_runtime_properties("news", "mine")
    assert (counts.active_message_count, counts.dead_letter_message_count) == (1, 1)
    assert admin.get_topic_runtime_properties("news").subscription_count == 1
    assert [rule.name for rule in admin.list_rules("news", "mine")] == ["dear", "red"]
    admin.delete_topic("news")
    assert list(admin.list_topics()) == []


async def test_the_asynchronous_client(aio_bus: Bus) -> None:
    async with AioAdministrationClient.from_connection_string(
        aio_bus.namespace.connection_string,
        connection_verify=str(aio_bus.broker.certificate),
        retry_total=0,
    ) as admin:
        for number in range(3):
            await admin.create_queue(f"queue-{number}")
        assert [queue.name async for queue in admin.list_queues()] == ["queue-0", "queue-1", "queue-2"]
        await aio_bus.send("queue-1", "1", "2")
        counts = {
            queue.name: queue.active_message_count async for queue in admin.list_queues_runtime_properties()
        }
        assert counts == {"queue-0": 0, "queue-1": 2, "queue-2": 0}
        assert (await admin.get_namespace_properties()).name == "contoso"


@pytest.mark.parametrize("policy", ["send", "listen"])
def test_only_who_may_manage_administers(bus_without_client: Bus, policy: str) -> None:
    with (
        ServiceBusAdministrationClient.from_connection_string(
            bus_without_client.namespace.policies[policy],
            connection_verify=str(bus_without_client.broker.certificate),
            retry_total=0,
        ) as admin,
        pytest.raises(ClientAuthenticationError),
    ):
        admin.create_queue("orders")

"""Topics: each subscription gets a copy of what its rules let through."""

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.broker.engine.actions import SqlAction
from pairbus.broker.engine.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from pairbus.broker.engine.rules import Rule
from pairbus.broker.engine.settings import SubscriptionSettings

from .bus import Bus, bodies, opened, receive, receive_nothing

MESSAGES: dict[str, dict[str | bytes, Any]] = {
    "cheap red": {"colour": "red", "price": 5},
    "dear red": {"colour": "red", "price": 50},
    "dear blue": {"colour": "blue", "price": 60},
    "free": {},
}


def subscribe(bus: Bus, name: str, rule_filter: Filter, action: SqlAction | None = None) -> None:
    rule = Rule(name="only", filter=rule_filter, action=action, created_at=bus.clock.now())
    bus.namespace.create_subscription("news", name, rule=rule)


async def publish(bus: Bus) -> None:
    async with bus.client.get_topic_sender("news") as sender:
        await sender.send_messages(
            [
                ServiceBusMessage(text, application_properties=properties, subject=text.split()[0])
                for text, properties in MESSAGES.items()
            ]
        )


async def test_every_subscription_gets_what_it_asked_for(bus: Bus) -> None:
    bus.namespace.create_topic("news")
    bus.namespace.create_subscription("news", "all")
    subscribe(bus, "red", CorrelationFilter(properties={"colour": "red"}))
    subscribe(bus, "dear", SqlFilter(expression="price >= 50 AND colour IN ('red', 'blue')"))
    names = {"all": list(MESSAGES), "red": ["cheap red", "dear red"], "dear": ["dear red", "dear blue"]}
    receivers = {name: bus.client.get_subscription_receiver("news", name) for name in names}
    async with opened(*receivers.values()):
        await publish(bus)
        for name, expected in names.items():
            received = await receive(receivers[name], len(expected))
            assert bodies(received) == expected
            for message in received:
                await receivers[name].complete_message(message)
            assert bus.namespace.message_count(f"news/Subscriptions/{name}") == 0


@pytest.mark.parametrize(
    ("rule_filter", "expected"),
    [
        (TrueFilter(), list(MESSAGES)),
        (FalseFilter(), []),
        (CorrelationFilter(subject="dear"), ["dear red", "dear blue"]),
        (CorrelationFilter(subject="dear", properties={"colour": "blue"}), ["dear blue"]),
        (SqlFilter(expression="sys.Label = 'free'"), ["free"]),
        (SqlFilter(expression="colour LIKE 'r%' OR price IS NULL"), ["cheap red", "dear red", "free"]),
        (SqlFilter(expression="price > @least", parameters={"@least": 50}), ["dear blue"]),
    ],
    ids=str,
)
async def test_filters(aio_bus: Bus, rule_filter: Filter, expected: list[str]) -> None:
    aio_bus.namespace.create_topic("news")
    subscribe(aio_bus, "mine", rule_filter)
    await publish(aio_bus)
    async with aio_bus.client.get_subscription_receiver("news", "mine") as receiver:
        assert bodies(await receive(receiver, len(expected))) == expected
        await receive_nothing(receiver)


async def test_an_action_changes_the_copy_of_one_subscription(aio_bus: Bus) -> None:
    aio_bus.namespace.create_topic("news")
    aio_bus.namespace.create_subscription("news", "plain")
    action = SqlAction(expression="SET colour = 'green'; SET sys.Label = 'changed'")
    subscribe(aio_bus, "changed", SqlFilter(expression="colour = 'red'"), action)
    await publish(aio_bus)
    changed = aio_bus.client.get_subscription_receiver("news", "changed")
    plain = aio_bus.client.get_subscription_receiver("news", "plain")
    async with opened(changed, plain):
        [first, _] = await receive(changed, 2)
        assert (first.application_properties[b"colour"], first.subject) == (b"green", "changed")
        first = (await receive(plain, 4))[0]
        assert (first.application_properties[b"colour"], first.subject) == (b"red", "cheap")


async def test_copies_are_settled_on_their_own(aio_bus: Bus) -> None:
    aio_bus.namespace.create_topic("news")
    aio_bus.namespace.create_subscription("news", "one", settings=SubscriptionSettings(max_delivery_count=1))
    aio_bus.namespace.create_subscription("news", "two")
    one, two = (aio_bus.client.get_subscription_receiver("news", name) for name in ("one", "two"))
    async with opened(one, two, aio_bus.client.get_topic_sender("news")) as (_, _, sender):
        await sender.send_messages(ServiceBusMessage("copied"))
        await one.abandon_message((await receive(one))[0])
        await two.complete_message((await receive(two))[0])
    letters: Any = aio_bus.client.get_subscription_receiver("news", "one", sub_queue="deadletter")
    async with letters:
        [letter] = await receive(letters)
        assert letter.dead_letter_source == "news/Subscriptions/one"
        await letters.complete_message(letter)


async def test_names_are_found_in_any_case(aio_bus: Bus) -> None:
    aio_bus.namespace.create_topic("News")
    aio_bus.namespace.create_subscription("News", "Mine")
    receiver = aio_bus.client.get_subscription_receiver("nEWS", "mINE")
    async with opened(aio_bus.client.get_topic_sender("news"), receiver) as (sender, _):
        await sender.send_messages(ServiceBusMessage("found"))
        assert bodies(await receive(receiver)) == ["found"]
        assert bodies(await receiver.peek_messages(sequence_number=1)) == ["found"]


async def test_nobody_receives_from_a_topic_itself(aio_bus: Bus) -> None:
    aio_bus.namespace.create_topic("news")
    aio_bus.namespace.create_subscription("news", "mine")
    with pytest.raises(ServiceBusError, match="is a topic"):
        async with aio_bus.client.get_queue_receiver("news"):
            raise AssertionError("it was let in")
    with pytest.raises(ServiceBusError):
        async with aio_bus.client.get_queue_sender("news/Subscriptions/mine"):
            raise AssertionError("it was let in")

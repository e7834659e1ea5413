"""Time to live: what nobody fetched in time is gone, or dead."""

import datetime

from azure.servicebus import ServiceBusMessage

from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings

from .bus import Bus, bodies, opened, receive, receive_nothing

MINUTE = datetime.timedelta(seconds=60)


async def test_an_expired_message_is_gone(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("short", time_to_live=MINUTE))
        await sender.send_messages(ServiceBusMessage("long"))
        [peeked] = await receiver.peek_messages()
        assert peeked.time_to_live == MINUTE
        assert peeked.expires_at_utc == peeked.enqueued_time_utc + MINUTE
        bus.pass_time(61)
        assert bodies(await receive(receiver)) == ["long"]
        assert bus.namespace.message_count("orders") == 1


async def test_an_expired_message_dies_where_the_queue_wants_it(bus: Bus) -> None:
    bus.namespace.create_queue("orders", QueueSettings(dead_lettering_on_message_expiration=True))
    letters = bus.client.get_queue_receiver("orders", sub_queue="deadletter")
    async with opened(bus.client.get_queue_sender("orders"), letters) as (sender, _):
        await sender.send_messages(ServiceBusMessage("short", time_to_live=MINUTE))
        bus.pass_time(61)
        [letter] = await receive(letters)
        assert letter.dead_letter_reason == "TTLExpiredException"
        # Dead letters do not expire.
        await letters.abandon_message(letter)
        bus.pass_time(3000)
        await letters.complete_message((await receive(letters))[0])


async def test_the_shorter_of_two_lives_counts(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", QueueSettings(default_message_time_to_live=30.0))
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("asks for more", time_to_live=MINUTE))
        await sender.send_messages(ServiceBusMessage("asks for nothing"))
        await sender.send_messages(ServiceBusMessage("asks for less", time_to_live=MINUTE / 6))
        aio_bus.pass_time(11)
        assert aio_bus.namespace.message_count("orders") == 2
        aio_bus.pass_time(20)
        await receive_nothing(receiver)


async def test_a_locked_message_lives_until_its_lock_ends(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", QueueSettings(lock_duration=120.0))
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages([ServiceBusMessage(text, time_to_live=MINUTE) for text in ("1", "2")])
        first, second = await receive(receiver, 2)
        aio_bus.pass_time(61)
        await receiver.complete_message(first)
        await receiver.abandon_message(second)
        await receive_nothing(receiver)
        assert aio_bus.namespace.message_count("orders") == 0


async def test_a_subscription_lets_expired_messages_die_too(aio_bus: Bus) -> None:
    aio_bus.namespace.create_topic("news")
    settings = SubscriptionSettings(dead_lettering_on_message_expiration=True)
    aio_bus.namespace.create_subscription("news", "mine", settings=settings)
    letters = aio_bus.client.get_subscription_receiver("news", "mine", sub_queue="deadletter")
    async with opened(aio_bus.client.get_topic_sender("news"), letters) as (sender, _):
        await sender.send_messages(ServiceBusMessage("short", time_to_live=MINUTE))
        aio_bus.pass_time(61)
        assert bodies(await receive(letters)) == ["short"]

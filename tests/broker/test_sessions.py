"""Sessions: whose they are, in what order their messages come, what state they keep."""

import asyncio
import datetime
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from pairbus.broker.engine.settings import EntityStatus, QueueSettings, SubscriptionSettings

from .bus import Bus, bodies, eventually, opened, receive, receive_nothing

SESSIONS = QueueSettings(requires_session=True, lock_duration=30.0)


async def send(bus: Bus, *pairs: tuple[str, str]) -> None:
    for session_id, text in pairs:
        await bus.send("orders", text, session_id=session_id)


async def open_next(bus: Bus, *, max_wait_time: float = 60.0) -> Any:
    receiver = bus.client.get_queue_receiver(
        "orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=max_wait_time
    )
    await receiver.__aenter__()
    return receiver


async def test_a_named_session_gives_its_own_messages_in_order(bus: Bus) -> None:
    bus.namespace.create_queue("orders", SESSIONS)
    await send(bus, ("a", "a1"), ("b", "b1"), ("a", "a2"), ("b", "b2"), ("a", "a3"))
    async with bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        received = await receive(receiver, 3)
        assert bodies(received) == ["a1", "a2", "a3"]
        assert {message.session_id for message in received} == {"a"}
        assert receiver.session.session_id == "a"
        for message in received:
            await receiver.complete_message(message)
        await receive_nothing(receiver)
        assert bus.namespace.message_count("orders") == 2


async def test_the_next_free_session_is_the_one_that_waited_longest(bus: Bus) -> None:
    bus.namespace.create_queue("orders", SESSIONS)
    await send(bus, ("first", "1"), ("second", "2"))
    links = [
        bus.client.get_queue_receiver("orders", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
        for _ in range(2)
    ]
    async with links[0]:
        assert links[0].session.session_id == "first"
        async with links[1]:
            assert links[1].session.session_id == "second"
            assert bodies(await receive(links[1])) == ["2"]
            assert bodies(await receive(links[0])) == ["1"]


async def test_a_session_keeps_its_state(bus: Bus) -> None:
    bus.namespace.create_queue("orders", SESSIONS)
    await send(bus, ("a", "a1"))
    async with bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        assert await receiver.session.get_state() is None
        await receiver.session.set_state("step 1")
        assert await receiver.session.get_state() == b"step 1"
        await receiver.session.set_state(None)
        assert await receiver.session.get_state() is None


async def test_the_state_of_a_session_stays_when_its_receiver_goes(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        await receiver.session.set_state(b"\x00\xff")
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        assert await receiver.session.get_state() == b"\x00\xff"


async def test_a_session_is_renewed_and_lost(bus: Bus) -> None:
    bus.namespace.create_queue("orders", SESSIONS)
    await send(bus, ("a", "a1"))
    async with bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        [message] = await receive(receiver)
        until = datetime.datetime.fromtimestamp(bus.clock.now() + 30, datetime.UTC)
        assert abs(receiver.session.locked_until_utc - until) < datetime.timedelta(milliseconds=2)
        bus.pass_time(20)
        renewed = await receiver.session.renew_lock()
        assert renewed == receiver.session.locked_until_utc
        assert abs(renewed - until - datetime.timedelta(seconds=20)) < datetime.timedelta(milliseconds=2)
        bus.pass_time(20)
        assert await receiver.session.get_state() is None
        bus.pass_time(20)
        with pytest.raises(SessionLockLostError):
            await receiver.complete_message(message)


async def test_the_messages_of_a_lost_session_come_again_counted(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    await send(aio_bus, ("a", "a1"))
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        await receive(receiver)
        aio_bus.pass_time(31)
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        [again] = await receive(receiver)
        assert (str(again), again.delivery_count) == ("a1", 1)


async def test_a_receiver_that_waits_hears_of_its_lost_session(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=30))
        await eventually(aio_bus.is_awaited)
        aio_bus.pass_time(31)
        with pytest.raises(SessionLockLostError):
            await waiting


async def test_who_deletes_on_receipt_hears_of_a_lost_session_a_little_later(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    async with aio_bus.client.get_queue_receiver(
        "orders", session_id="a", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    ) as receiver:
        waiting = asyncio.create_task(receiver.receive_messages(max_wait_time=30))
        await eventually(aio_bus.is_awaited)
        aio_bus.pass_time(30.5)
        await send(aio_bus, ("a", "a1"))
        assert aio_bus.namespace.message_count("orders") == 1, "it is not given to who has lost the session"
        aio_bus.pass_time(1)
        with pytest.raises(SessionLockLostError):
            await waiting


async def test_a_state_is_cleared_by_nothing_in_it(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        for empty in (None, b""):
            await receiver.session.set_state("busy")
            assert await receiver.session.get_state() == b"busy"
            await receiver.session.set_state(empty)
            assert await receiver.session.get_state() is None


async def test_a_lost_session_is_not_renewed_and_its_state_is_not_touched(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    for operation in ("renew_lock", "get_state"):
        async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
            aio_bus.pass_time(31)
            with pytest.raises(SessionLockLostError):
                await getattr(receiver.session, operation)()


async def test_a_session_has_one_receiver_at_a_time(bus: Bus) -> None:
    bus.namespace.create_queue("orders", SESSIONS)
    async with bus.client.get_queue_receiver("orders", session_id="a"):
        with pytest.raises(SessionCannotBeLockedError):
            await bus.client.get_queue_receiver("orders", session_id="a").__aenter__()


async def test_a_session_that_is_let_go_is_free_with_its_messages(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    await send(aio_bus, ("a", "a1"))
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as holder:
        [held] = await receive(holder)
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as next_holder:
        [again] = await receive(next_holder)
    # Closing let the message go as if it had not been delivered.
    assert (again.sequence_number, again.delivery_count) == (held.sequence_number, 0)


async def test_a_session_that_appears_later_is_waited_for(bus: Bus) -> None:
    bus.namespace.create_queue("orders", SESSIONS)
    opening = asyncio.create_task(open_next(bus))
    await eventually(lambda: bus.session_waits() == 1)
    await send(bus, ("late", "1"))
    receiver = await opening
    async with opened(receiver):
        assert receiver.session.session_id == "late"
        assert bodies(await receive(receiver)) == ["1"]


async def test_the_next_waiter_gets_the_session_that_another_lets_go(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    await send(aio_bus, ("only", "1"))
    holder = await open_next(aio_bus)
    opening = asyncio.create_task(open_next(aio_bus))
    await eventually(lambda: aio_bus.session_waits() == 1)
    await holder.close()
    receiver = await opening
    async with opened(receiver):
        assert receiver.session.session_id == "only"


async def test_waiting_for_a_session_ends_in_time(bus: Bus) -> None:
    bus.namespace.create_queue("orders", SESSIONS)
    opening = asyncio.create_task(open_next(bus, max_wait_time=20))
    await eventually(lambda: bus.session_waits() == 1)
    bus.pass_time(21)
    with pytest.raises(OperationTimeoutError):
        await opening
    assert bus.session_waits() == 0


async def test_whoever_vanishes_while_waiting_gets_no_session(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    opening = asyncio.create_task(open_next(aio_bus))
    await eventually(lambda: aio_bus.session_waits() == 1)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    await eventually(lambda: aio_bus.session_waits() == 0)
    await send(aio_bus, ("a", "1"))
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        assert bodies(await receive(receiver)) == ["1"]


async def test_waiting_ends_with_the_entity(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    namespace.create_queue("orders", SESSIONS)
    opening = asyncio.create_task(open_next(aio_bus))
    await eventually(lambda: aio_bus.session_waits() == 1)
    namespace.delete_queue("orders")
    with pytest.raises(MessagingEntityNotFoundError):
        await opening


async def test_a_queue_with_sessions_wants_a_session_of_everybody(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    aio_bus.namespace.create_queue("plain")
    async with aio_bus.client.get_queue_sender("orders") as sender:
        with pytest.raises(ServiceBusError, match="session id"):
            await sender.send_messages(ServiceBusMessage("homeless"))
    with pytest.raises(ServiceBusError, match="non-sessionful"):
        async with aio_bus.client.get_queue_receiver("orders"):
            raise AssertionError("a receiver without a session was let in")
    with pytest.raises(ServiceBusError, match="does not require sessions"):
        async with aio_bus.client.get_queue_receiver("plain", session_id="a"):
            raise AssertionError("a receiver of a session was let in")


async def test_settling_and_deferring_in_a_session(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    await send(aio_bus, ("a", "abandoned"), ("a", "deferred"), ("a", "dead"))
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        abandoned, deferred, dead = await receive(receiver, 3)
        await receiver.abandon_message(abandoned)
        await receiver.defer_message(deferred)
        await receiver.dead_letter_message(dead, reason="why not")
        [again] = await receive(receiver)
        assert (str(again), again.delivery_count) == ("abandoned", 1)
        await receiver.complete_message(again)
        [late] = await receiver.receive_deferred_messages([deferred.sequence_number])
        await receiver.complete_message(late)
    async with aio_bus.client.get_queue_receiver("orders", sub_queue="deadletter") as letters:
        [letter] = await receive(letters)
        assert (str(letter), letter.session_id) == ("dead", "a")
        await letters.complete_message(letter)
    assert aio_bus.namespace.message_count("orders") == 0


async def test_peeking_at_one_session(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    await send(aio_bus, ("a", "a1"), ("b", "b1"), ("a", "a2"))
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        assert bodies(await receiver.peek_messages(max_message_count=10)) == ["a1", "a2"]


async def test_sessions_of_a_subscription(aio_bus: Bus) -> None:
    aio_bus.namespace.create_topic("news")
    settings = SubscriptionSettings(requires_session=True)
    aio_bus.namespace.create_subscription("news", "mine", settings=settings)
    receiver = aio_bus.client.get_subscription_receiver("news", "mine", session_id="a")
    async with opened(aio_bus.client.get_topic_sender("news"), receiver) as (sender, _):
        await sender.send_messages(ServiceBusMessage("a1", session_id="a"))
        assert bodies(await receive(receiver)) == ["a1"]
        await receiver.session.set_state(b"\x00\xff")
        assert await receiver.session.get_state() == b"\x00\xff"


async def test_listing_sessions(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    names = [f"session-{number:03}" for number in range(120)]
    async with aio_bus.client.get_queue_sender("orders") as sender:
        await sender.send_messages([ServiceBusMessage("x", session_id=name) for name in names])
    assert [name async for name in aio_bus.client.list_queue_sessions("orders")] == names
    before = datetime.datetime.fromtimestamp(aio_bus.clock.now(), datetime.UTC)
    aio_bus.pass_time(10)
    async with aio_bus.client.get_queue_receiver("orders", session_id="stateful") as receiver:
        await receiver.session.set_state("here")
    assert [name async for name in aio_bus.client.list_queue_sessions("orders")] == [*names, "stateful"]
    listed = aio_bus.client.list_queue_sessions("orders", state_updated_after=before)
    assert [name async for name in listed] == ["stateful"]
    listed = aio_bus.client.list_queue_sessions("orders", state_updated_after=datetime.datetime.max)
    assert [name async for name in listed] == []


async def test_a_disabled_queue_takes_its_sessions_along(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    opening = asyncio.create_task(open_next(aio_bus))
    await eventually(lambda: aio_bus.session_waits() == 1)
    disabled = QueueSettings(requires_session=True, lock_duration=30.0, status=EntityStatus.DISABLED)
    aio_bus.namespace.update_queue("orders", disabled)
    with pytest.raises(ServiceBusError, match="disabled"):
        await opening


async def test_a_state_that_is_too_large(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders", SESSIONS)
    async with aio_bus.client.get_queue_receiver("orders", session_id="a") as receiver:
        await receiver.session.set_state(bytes(262_144))
        with pytest.raises(ServiceBusError, match="262144 at most"):
            await receiver.session.set_state(bytes(262_145))

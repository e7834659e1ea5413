"""Every refusal of the broker arrives as the exception that the SDK has for it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, exceptions
from azure.servicebus.exceptions import ServiceBusError

from pairbus import conditions
from pairbus.broker import FaultKind, OperationKind

from .bus import Bus, receive

REFUSALS: dict[str, type[ServiceBusError]] = {
    conditions.NOT_FOUND: exceptions.MessagingEntityNotFoundError,
    conditions.UNAUTHORIZED: exceptions.ServiceBusAuthorizationError,
    conditions.AUTH_FAILED: exceptions.ServiceBusAuthorizationError,
    conditions.SERVER_BUSY: exceptions.ServiceBusServerBusyError,
    conditions.TIMEOUT: exceptions.OperationTimeoutError,
    conditions.ENTITY_DISABLED: exceptions.MessagingEntityDisabledError,
    conditions.MESSAGE_SIZE_EXCEEDED: exceptions.MessageSizeExceededError,
    conditions.RESOURCE_LIMIT: exceptions.ServiceBusQuotaExceededError,
    conditions.SESSION_CANNOT_BE_LOCKED: exceptions.SessionCannotBeLockedError,
    conditions.SESSION_LOCK_LOST: exceptions.SessionLockLostError,
    conditions.MESSAGE_LOCK_LOST: exceptions.MessageLockLostError,
    conditions.MESSAGE_NOT_FOUND: exceptions.MessageNotFoundError,
    conditions.ENTITY_ALREADY_EXISTS: exceptions.MessagingEntityAlreadyExistsError,
    conditions.NOT_ALLOWED: ServiceBusError,
    conditions.INTERNAL_ERROR: ServiceBusError,
    conditions.ARGUMENT_ERROR: ServiceBusError,
}


async def test_a_send_is_refused_with_the_right_exception(aio_bus: Bus) -> None:
    namespace = aio_bus.namespace
    namespace.create_queue("orders")
    async with aio_bus.client.get_queue_sender("orders") as sender:
        for number, (condition, expected) in enumerate(REFUSALS.items(), start=1):
            if not sender._running:  # after some errors the SDK closes the link
                await sender._open_with_retry()
            namespace.faults.set(FaultKind.ERROR, condition=condition)
            with pytest.raises(ServiceBusError) as caught:
                await sender.send_messages(ServiceBusMessage("refused"))
            assert type(caught.value) is expected, condition
            namespace.faults.clear()
            assert namespace.count(OperationKind.SEND_REFUSED) == number
        await sender.send_messages(ServiceBusMessage("accepted"))
        assert namespace.message_count("orders") == 1


async def test_a_link_is_refused_with_the_right_exception(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    for number, (condition, expected) in enumerate(REFUSALS.items()):
        aio_bus.namespace.faults.set(FaultKind.ERROR, condition=condition)
        get = aio_bus.client.get_queue_receiver if number % 2 else aio_bus.client.get_queue_sender
        with pytest.raises(ServiceBusError) as caught:
            await get("orders").__aenter__()
        assert type(caught.value) is expected, condition
        aio_bus.namespace.faults.clear()


async def open_management(sender: Any) -> None:
    """Have the links for requests open: of one that is refused the SDK tells no reason."""
    with pytest.raises(exceptions.MessageNotFoundError):
        await sender.cancel_scheduled_messages(4711)


async def test_a_request_is_refused_with_the_right_exception(aio_bus: Bus) -> None:
    """Through a sender, because the fault lets open senders be."""
    namespace = aio_bus.namespace
    namespace.create_queue("orders")
    async with aio_bus.client.get_queue_sender("orders") as sender:
        for condition, expected in REFUSALS.items():
            await open_management(sender)
            namespace.faults.set(FaultKind.ERROR, condition=condition)
            with pytest.raises(ServiceBusError) as caught:
                await sender.cancel_scheduled_messages(1)
            assert type(caught.value) is expected, condition
            namespace.faults.clear()


async def test_the_synchronous_client_raises_the_same(bus: Bus) -> None:
    bus.namespace.create_queue("orders")
    async with bus.client.get_queue_sender("orders") as sender:
        await open_management(sender)
        # Those that do not make the SDK close the link, which takes it a second each time.
        for condition in (
            conditions.SERVER_BUSY,
            conditions.RESOURCE_LIMIT,
            conditions.MESSAGE_SIZE_EXCEEDED,
        ):
            bus.namespace.faults.set(FaultKind.ERROR, condition=condition)
            with pytest.raises(REFUSALS[condition]):
                await sender.send_messages(ServiceBusMessage("refused"))
            with pytest.raises(REFUSALS[condition]):
                await sender.cancel_scheduled_messages(1)
            bus.namespace.faults.clear()
        await sender.send_messages(ServiceBusMessage("accepted"))


async def test_the_text_of_a_lost_lock_is_the_one_that_clients_look_for(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")
    async with aio_bus.queue("orders") as (sender, receiver):
        await sender.send_messages(ServiceBusMessage("slow"))
        [message] = await receive(receiver)
        aio_bus.pass_time(61)
        with pytest.raises(exceptions.MessageLockLostError, match="The lock supplied is invalid"):
            await receiver.complete_message(message)


async def test_a_busy_broker_is_asked_again(aio_bus: Bus) -> None:
    """The SDK's own retries, with a broker that is busy at first."""
    aio_bus.namespace.create_queue("orders")
    client = aio_bus.connect(retry_total=3, retry_backoff_factor=0.01)
    async with client, client.get_queue_sender("orders") as sender:
        fault = aio_bus.namespace.faults.set(FaultKind.BUSY, duration=30.0)
        assert fault.kind is FaultKind.BUSY
        with pytest.raises(exceptions.ServiceBusServerBusyError):
            await sender.send_messages(ServiceBusMessage("too early"))
        assert aio_bus.namespace.count(OperationKind.SEND_REFUSED) == 4
        aio_bus.pass_time(31)
        await sender.send_messages(ServiceBusMessage("in time"))


async def test_headers_of_more_than_64_kilobytes_are_refused_on_every_way(aio_bus: Bus) -> None:
    aio_bus.namespace.create_queue("orders")

    def long() -> ServiceBusMessage:
        return ServiceBusMessage("body", application_properties={f"{n}": "x" * 30_000 for n in range(3)})

    later = datetime.now(UTC) + timedelta(hours=1)
    async with aio_bus.client.get_queue_sender("orders") as sender:
        await open_management(sender)
        for send, *arguments in (
            (sender.send_messages, long()),
            (sender.send_messages, [ServiceBusMessage("short"), long()]),
            (sender.schedule_messages, long(), later),
        ):
            with pytest.raises(ServiceBusError, match=r"unable to process the request.* 65536 ") as caught:
                await send(*arguments)
            assert type(caught.value) is ServiceBusError
            assert aio_bus.namespace.message_count("orders") == 0
        await sender.send_messages(ServiceBusMessage("short"))

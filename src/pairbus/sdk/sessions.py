"""Sessions emptied, and schedules cancelled, through the SDK: our own way to receive speaks of neither."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from azure.servicebus import ServiceBusReceiveMode
from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessageNotFoundError,
    ServiceBusError,
    SessionCannotBeLockedError,
)

from pairbus.errors import UnreachableError

from .failures import describe
from .side import SdkSide

# When nothing comes for so long, what is left is not for us.
_WAIT = 5.0
_AT_ONCE = 200


async def purge_session(
    side: SdkSide,
    path: str,
    session: str,
    *,
    numbers: Collection[int],
    deferred: Sequence[int],
    due: Collection[int],
) -> None:
    """Complete these messages of one session, deferred ones too, and wait for those that are due; what
    somebody else has locked stays.
    """
    async with side.make_client(retry_total=0) as client:
        try:
            async with _open(client, path, session) as receiver:
                await _purge(receiver, numbers, deferred, set(due))
        except SessionCannotBeLockedError:
            return
        except ServiceBusError as error:
            raise UnreachableError(f"{path}: {describe(error).summary}") from None


async def cancel_scheduled(side: SdkSide, path: str, numbers: Sequence[int]) -> None:
    """Cancel those of these messages that still wait for their time; the others stay."""
    sender = side.open_sender(path)
    try:
        for begin in range(0, len(numbers), _AT_ONCE):
            some = list(numbers[begin : begin + _AT_ONCE])
            try:
                await sender.cancel_scheduled_messages(some)
            except MessageNotFoundError:  # one of them, and none is cancelled
                for number in some:
                    with suppress(MessageNotFoundError):
                        await sender.cancel_scheduled_messages(number)
    except ServiceBusError as error:
        raise UnreachableError(f"{path}: {describe(error).summary}") from None
    finally:
        await sender.close()


async def _purge(receiver: Any, numbers: Collection[int], deferred: Sequence[int], due: set[int]) -> None:
    for begin in range(0, len(deferred), _AT_ONCE):
        some = list(deferred[begin : begin + _AT_ONCE])
        await _complete(receiver, await receiver.receive_deferred_messages(some))
    while due:
        found = await receiver.receive_messages(max_message_count=_AT_ONCE, max_wait_time=_WAIT)
        meant = [one for one in found if one.sequence_number in numbers]
        await _complete(receiver, meant)
        due -= {one.sequence_number for one in meant}
        for other in found:
            if other not in meant:
                await receiver.abandon_message(other)
        if not meant:
            return


def _open(client: Any, path: str, session: str) -> Any:
    mode = ServiceBusReceiveMode.PEEK_LOCK
    topic, separator, name = path.partition("/Subscriptions/")
    if separator:
        return client.get_subscription_receiver(topic, name, session_id=session, receive_mode=mode)
    return client.get_queue_receiver(path, session_id=session, receive_mode=mode)


async def _complete(receiver: Any, messages: Sequence[Any]) -> None:
    for message in messages:
        try:
            await receiver.complete_message(message)
        except (MessageAlreadySettled, ServiceBusError):
            continue  # its lock is gone: it is counted among what is left

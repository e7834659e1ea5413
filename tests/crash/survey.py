"""What a broker has, seen through the official client."""

from typing import Any

from azure.servicebus import ServiceBusMessageState, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient

from tests.crash.journal import Fate, Found

__all__ = ["survey"]

_FATES = {
    ServiceBusMessageState.ACTIVE: Fate.ACTIVE,
    ServiceBusMessageState.DEFERRED: Fate.DEFERRED,
    ServiceBusMessageState.SCHEDULED: Fate.SCHEDULED,
}
_PAGE = 250


async def survey(
    connection_string: str, *, queue: str, session_queue: str, sessions: list[str]
) -> tuple[list[Found], dict[str, bytes | None]]:
    """Every message of both queues and of the dead letters, and the state of every session."""
    found: list[Found] = []
    states: dict[str, bytes | None] = {}
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_receiver(queue) as receiver:
            found += await _peek_all(receiver, queue)
        async with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            found += await _peek_all(receiver, f"{queue}/dead", dead=True)
        for session_id in sessions:
            async with client.get_queue_receiver(session_queue, session_id=session_id) as receiver:
                found += await _peek_all(receiver, session_queue)
                states[session_id] = await receiver.session.get_state()
    return found, states


async def _peek_all(receiver: Any, place: str, *, dead: bool = False) -> list[Found]:
    found: list[Found] = []
    start = 1
    while messages := await receiver.peek_messages(max_message_count=_PAGE, sequence_number=start):
        for message in messages:
            fate = Fate.DEAD if dead else _FATES[message.state]
            number = message.sequence_number
            found.append(Found(message.message_id, fate, message.delivery_count or 0, number, place))
        start = messages[-1].sequence_number + 1
    return found

"""What is left when a drill is over: what lies in queues and dead letters, and what clients recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from pairbus.client.state.directory import records_dir, spool_dir
from pairbus.client.state.records import KIND as REDIRECTS
from pairbus.client.state.records import UNKNOWN
from pairbus.client.state.spool_survey import list_waiting
from pairbus.ledger.segment import adopt_segments, closed_segments, read_segment
from pairbus.pairing.envelope import ALIAS_PATH
from pairbus.pairing.names import path_key
from pairbus.words import DEAD_LETTER_QUEUE

from .messages import Resting
from .receiver import open_client, open_receiver
from .scenario import EntityPlan

#: How many messages lie at a path. What is empty is not looked at: a link takes the SDK a second.
CountHeld = Callable[[str], int]

_AT_ONCE = 500
# Far longer than a look at all queues takes; a deadline so that nothing waits for ever.
_LIMIT = 60.0


async def peek_primary(
    connection_string: str, entities: Sequence[EntityPlan], held: CountHeld
) -> list[Resting]:
    """What lies at the nodes of the primary, and in their dead letters."""
    found: list[Resting] = []
    async with _client(connection_string) as client:
        for plan in entities:
            for node in plan.nodes:
                if held(node):
                    for receiver in await _receivers(client, plan, node):
                        found += [_resting(one, plan.path, node) for one in await _peek(receiver)]
                if held(f"{node}/{DEAD_LETTER_QUEUE}"):
                    dead = open_receiver(client, plan, node, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
                    found += [_resting(one, plan.path, node, is_dead=True) for one in await _peek(dead)]
    return found


async def peek_backlog(connection_string: str, queues: Sequence[str], held: CountHeld) -> list[Resting]:
    """What lies in the backlog queues, and in their dead letters."""
    found: list[Resting] = []
    async with _client(connection_string) as client:
        for queue in queues:
            for part in (None, ServiceBusSubQueue.DEAD_LETTER):
                if held(f"{queue}/{DEAD_LETTER_QUEUE}" if part else queue):
                    there = await _peek(client.get_queue_receiver(queue, sub_queue=part))
                    is_dead = part is not None
                    found += [_resting(one, _destination(one), queue, is_dead=is_dead) for one in there]
    return found


@asynccontextmanager
async def _client(connection_string: str) -> AsyncIterator[ServiceBusClient]:
    async with asyncio.timeout(_LIMIT), open_client(connection_string) as client:
        yield client


async def _receivers(client: ServiceBusClient, plan: EntityPlan, node: str) -> list[ServiceBusReceiver]:
    """A receiver for the node, or one for each session that has messages there."""
    if not plan.sessions:
        return [open_receiver(client, plan, node)]
    name = node.rpartition("/")[2]
    listed = (
        client.list_queue_sessions(plan.path)
        if plan.kind == "queue"
        else client.list_subscription_sessions(plan.path, name)
    )
    return [open_receiver(client, plan, node, session_id=session) async for session in listed]


async def _peek(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    start = 1
    async with receiver:
        while messages := await receiver.peek_messages(max_message_count=_AT_ONCE, sequence_number=start):
            found += messages
            start = (messages[-1].sequence_number or 0) + 1
    return found


def _resting(message: ServiceBusReceivedMessage, path: str, place: str, *, is_dead: bool = False) -> Resting:
    return Resting(
        message_id=str(message.message_id),
        path=path,
        place=f"the dead letters of {place}" if is_dead else place,
        is_dead=is_dead,
        reason=message.dead_letter_reason or "" if is_dead else "",
    )


def _destination(message: ServiceBusReceivedMessage) -> str:
    for name, value in (message.application_properties or {}).items():
        if (name.decode() if isinstance(name, bytes) else name) == ALIAS_PATH:
            return value.decode() if isinstance(value, bytes) else str(value)
    return ""


def read_spool(state: Path) -> list[Resting]:
    """What the applications, which are closed by now, have left on their disks."""
    found = list_waiting(spool_dir(state))
    return [Resting(message_id=one.message_id, path=one.path, place="the spool") for one in found]


def read_redirects(state: Path) -> dict[tuple[str, str], str]:
    """By which backlog queue redirected messages went; those that may have gone two ways have their own."""
    directory = records_dir(state)
    adopt_segments(directory, REDIRECTS)
    queues: dict[tuple[str, str], str] = {}
    doubtful: set[tuple[str, str]] = set()
    for segment in closed_segments(directory, REDIRECTS):
        for row in read_segment(segment).rows:
            key = path_key(str(row.get("path"))), str(row.get("message_id"))
            if row.get("outcome") is not None:
                doubtful.add(key)
            if row.get("outcome") != UNKNOWN:
                queues[key] = str(row.get("queue"))
    return queues | {key: f"{queues[key]}, or before: {key[1]}" for key in doubtful & queues.keys()}

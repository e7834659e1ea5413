"""A receiver: the plain SDK on one node of the primary, a queue or a subscription, for the whole drill.

It lives through outages as an application's own would: what it is told it completes, and when the line is
lost it connects anew, after a pause. Each wait has a deadline of ours, because the SDK has none that holds
when a peer falls silent.

It asks for messages ahead of its receives (`prefetch_count`). Without that the SDK gives back what arrives
while it completes a message, and the next one of a session overtakes it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from pairbus.plumbing.tasks import wait_at_most
from pairbus.sdk.tls import with_shared_context

from .messages import Arrival, checksum
from .scenario import EntityPlan

log = logging.getLogger(__name__)
# How long one receive waits for a message, and how long it may take to say that there is none.
_WAIT = 0.5
_LIMIT = 4.0
# A receiver that takes any session waits so long for one, and leaves it to others after so long.
_SESSION_PATIENCE = 1.0
_SESSION_HOLD = 2.0
_AT_ONCE = 50
_PAUSE = 0.3
_CLOSE_LIMIT = 2.0
# What a line that is lost in the middle of something may raise.
_LOST = (ServiceBusError, OSError, TimeoutError, ValueError, AttributeError)


class Receiver:
    """Receives from one node until it is stopped."""

    def __init__(
        self,
        connection_string: str,
        plan: EntityPlan,
        node: str,
        *,
        session: str | None,
        on_arrival: Callable[[Arrival], None],
    ) -> None:
        """On an entity with sessions it holds the one that is named, or takes whichever comes next."""
        self._connection_string = connection_string
        self._plan = plan
        self._node = node
        self._session = session
        self._roams = plan.sessions > 0 and session is None
        self._on_arrival = on_arrival
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End after the receive that is under way."""
        self._stopped.set()

    async def run(self) -> None:
        """Receive, and connect anew whenever the line is lost."""
        while not self._stopped.is_set():
            # It does not retry by itself: whoever has it sees what happens.
            client = ServiceBusClient.from_connection_string(
                self._connection_string, **with_shared_context({"retry_total": 0})
            )
            try:
                await self._serve(client)
            except _LOST as error:
                log.debug("a receiver of %s lost its line: %s", self._node, error)
            finally:
                await _close(client)
            await wait_at_most(self._stopped, _PAUSE)

    async def _serve(self, client: ServiceBusClient) -> None:
        while not self._stopped.is_set():
            receiver = self._open(client)
            try:
                async with asyncio.timeout(_LIMIT):
                    await receiver.__aenter__()
                await self._take(receiver)
            except OperationTimeoutError:
                if not self._roams:
                    raise  # else no session has messages: ask again
            finally:
                await _close(receiver)

    def _open(self, client: ServiceBusClient) -> ServiceBusReceiver:
        options: dict[str, Any] = {"prefetch_count": _AT_ONCE}
        if self._roams:
            options |= {"session_id": NEXT_AVAILABLE_SESSION, "max_wait_time": _SESSION_PATIENCE}
        elif self._session is not None:
            options["session_id"] = self._session
        path = self._plan.path
        if self._plan.kind == "queue":
            return client.get_queue_receiver(path, **options)
        return client.get_subscription_receiver(path, self._node.rpartition("/")[2], **options)

    async def _take(self, receiver: ServiceBusReceiver) -> None:
        """Take what comes; one that takes any session, only for a while."""
        loop = asyncio.get_running_loop()
        leaves_at = loop.time() + _SESSION_HOLD
        while not self._stopped.is_set():
            async with asyncio.timeout(_WAIT + _LIMIT):
                messages = await receiver.receive_messages(max_message_count=_AT_ONCE, max_wait_time=_WAIT)
            for message in messages:
                self._on_arrival(self._describe(message))
                async with asyncio.timeout(_LIMIT):
                    await receiver.complete_message(message)
            if self._roams and (not messages or loop.time() > leaves_at):
                return

    def _describe(self, message: ServiceBusReceivedMessage) -> Arrival:
        return Arrival(
            node=self._node,
            path=self._plan.path,
            message_id=str(message.message_id),
            sequence_number=message.sequence_number or 0,
            session=message.session_id,
            checksum=checksum(_body(message)),
        )


def _body(message: ServiceBusReceivedMessage) -> bytes:
    body = message.body
    return body if isinstance(body, bytes) else b"".join(body) if body is not None else b""


async def _close(thing: ServiceBusClient | ServiceBusReceiver) -> None:
    try:
        async with asyncio.timeout(_CLOSE_LIMIT):
            await thing.close()
    except _LOST as error:
        log.debug("a receiver did not close cleanly: %s", error)

"""Links of the official asynchronous client, opened before or after a fault, and what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from pairbus.broker import NamespaceHandle
from tests.waiting import PATIENCE

__all__ = ["HASTE", "SOON", "Action", "Client", "outcomes_of"]

# How long the SDK may try what is never answered.
HASTE = 4.0
# A receive that must find something, or an error, ends as soon as it does.
SOON = PATIENCE

Action = Callable[[], Awaitable[Any]]


class Client:
    """The SDK's client, which gives up at the first failure, and what a test does with it."""

    def __init__(
        self, namespace: NamespaceHandle, trusted: Path, *, patience: float | None = None, retries: int = 0
    ) -> None:
        self.sdk = ServiceBusClient.from_connection_string(
            namespace.connection_string,
            retry_total=retries,
            try_timeout=patience,
            # Not needed for plain AMQP, but else the SDK loads all the world's authorities for each link.
            connection_verify=str(trusted),
        )
        self._links: list[Any] = []

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *details: object) -> None:
        await asyncio.gather(*(link.close() for link in self._links))
        await self.sdk.close()

    def sender(self, queue: str = "orders") -> Callable[..., Awaitable[None]]:
        """Something that sends one message each time, on one link."""
        link = self.sdk.get_queue_sender(queue)
        self._links.append(link)

        async def send(timeout: float | None = None) -> None:
            await link.send_messages(ServiceBusMessage("a message"), timeout=timeout)

        return send

    def receiver(self, queue: str = "orders") -> Callable[..., Awaitable[int]]:
        """Something that receives one message each time, on one link, and completes it; how many came."""
        link = self._receiver(queue)

        async def receive(wait: float = SOON) -> int:
            messages = await link.receive_messages(max_wait_time=wait)
            for message in messages:
                await link.complete_message(message)
            return len(messages)

        return receive

    def peeker(self, queue: str = "orders") -> Callable[..., Awaitable[str]]:
        """Something that peeks, by way of the queue's management node; whatever it sees is seen."""
        link = self._receiver(queue)

        async def peek(timeout: float | None = None) -> str:
            await link.peek_messages(timeout=timeout)
            return "seen"

        return peek

    def _receiver(self, queue: str) -> Any:
        link = self.sdk.get_queue_receiver(queue)
        self._links.append(link)
        return link


async def outcomes_of(*actions: Action) -> list[Any]:
    """What came of each, all at once: its result, or the class of its exception."""
    outcomes = await asyncio.gather(*(action() for action in actions), return_exceptions=True)
    return [type(outcome) if isinstance(outcome, BaseException) else outcome for outcome in outcomes]

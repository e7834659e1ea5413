"""What hangs on the SDK's own pace: mistakes that it needs more than a second to tell from silence."""

import asyncio
import re

import pytest
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)

from pairbus.pairing.errors import PrimaryEntityFault

from .scene import Scene, text

MISTAKES = (MessagingEntityNotFoundError, ServiceBusAuthenticationError, ServiceBusAuthorizationError)


@pytest.mark.parametrize("interval", [0.0, 1.0])
@pytest.mark.parametrize("mistake", ["key", "name"])
async def test_a_mistake_is_raised_however_short_the_interval_is(
    scene: Scene, mistake: str, interval: float
) -> None:
    primary, path = scene.primary.connection_string, "orders"
    if mistake == "key":
        primary = re.sub(r"SharedAccessKey=[^;]+", "SharedAccessKey=bm90IHRoZSBrZXk=", primary)
    else:
        path = "no-such-queue"
    sender = scene.sender(path, primary=primary, failover_interval=interval)
    with pytest.raises(MISTAKES):
        await sender.send_messages(text("refused"))
    assert scene.backlog_ids() == []


async def test_a_queue_that_is_deleted_is_told_however_short_the_interval_is(scene: Scene) -> None:
    sender = scene.sender(failover_interval=1.0, ping_primary_interval=1.0, ping_jitter=0.0)
    await sender.send_messages(text("before"))
    scene.primary.delete_queue("orders")

    async def send_until_it_is_told() -> None:
        while True:
            await sender.send_messages(text("after"))
            await asyncio.sleep(0.05)

    with pytest.raises((PrimaryEntityFault, *MISTAKES)):
        await asyncio.wait_for(send_until_it_is_told(), 40.0)

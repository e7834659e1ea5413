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

from .scene import Scene, lateness_beside, text

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
    for _ in range(5):
        sender = scene.sender(path, primary=primary, failover_interval=interval)
        async with lateness_beside(scene.broker) as late:
            try:
                await sender.send_messages(text("refused"))
            except MISTAKES:
                assert not any(sender._client.status().entities[0].sent["backlog"].values())
                return
        assert sum(each.seconds for each in late) > 0.5, "only who stood still takes it for silence"
    pytest.fail("it was not raised")


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

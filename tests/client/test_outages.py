"""Every shape of outage against a sender in a loop: what returned is somewhere, and nothing raises as long as
one side lives.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from pairbus.aio import PairedSender
from pairbus.broker import Broker
from pairbus.clock import ManualClock
from pairbus.errors import PairbusError
from pairbus.options import EntityState
from pairbus.pairing.errors import BacklogUnavailableError, ReservedPropertyError
from pairbus.testing import ManualTimers
from pairbus.words import SCHEDULED_TIME

from .scene import Scene, eventually, lateness_beside, text

# In the time of the hurried loop, of which thirty seconds pass in one of ours.
# Opening a link takes two or three of them.
QUICK: dict[str, Any] = {
    "failover_interval": 20.0,
    "send_timeout": 20.0,
    "ping_primary_interval": 6.0,
    "retry_delay": 0.2,
    "rotation_cool_down": 10.0,
}


class Loop:
    """A sender that sends and sends, and notes what returned and what raised."""

    def __init__(self, sender: PairedSender) -> None:
        self.sender = sender
        self.returned: list[str] = []
        self.raised: list[BaseException] = []
        self._stop = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        number = 0
        while not self._stop:
            number += 1
            name = f"{number:05d}"
            try:
                await self.sender.send_messages(text(name))
                self.returned.append(name)
            except (PairbusError, ServiceBusError) as error:
                self.raised.append(error)
                await asyncio.sleep(0.5)
            await asyncio.sleep(0.1)

    async def returns(self, more: int = 5) -> None:
        """Wait until so many more sends have returned."""
        wanted = len(self.returned) + more
        await eventually(lambda: len(self.returned) >= wanted, what=f"{more} more sends")

    async def stop(self) -> None:
        self._stop = True
        async with asyncio.timeout(1000):
            await self._task


async def go_through(scene: Scene, loop: Loop, break_it: Callable[[], Any]) -> None:
    """Healthy, broken until it has failed over, mended until it is back."""
    await loop.returns()
    break_it()
    await eventually(lambda: scene.state() is EntityState.FAILED_OVER, what="the failover")
    await loop.returns()
    scene.primary.faults.clear()
    await eventually(lambda: scene.state() is EntityState.HEALTHY, what="the failback")
    await loop.returns()
    await loop.stop()


@pytest.mark.parametrize("kind", ["refuse", "reset", "silence", "blackhole", "delay", "error"])
async def test_an_outage_loses_nothing_and_raises_nothing(scene: Scene, kind: str) -> None:
    loop = Loop(scene.sender(**QUICK))
    await go_through(scene, loop, lambda: scene.primary.faults.set(kind))
    assert loop.raised == []
    assert set(loop.returned) <= scene.all_ids()
    assert [state for state in scene.diary.states if state != "suspect"] == ["failed_over", "healthy"]
    # Sent twice is only what had no answer, by the name of the outcome.
    twice = set(scene.ids()) & set(scene.backlog_ids())
    unknown = sum(sending.messages for sending in scene.diary.sendings if sending.outcome == "unknown")
    assert len(twice) <= unknown


async def test_a_flapping_primary_loses_nothing_and_raises_nothing(scene: Scene) -> None:
    loop = Loop(scene.sender(**QUICK))
    await loop.returns()
    for _ in range(3):  # as soon as it is noticed: by a clock, a slow machine might not be back in time
        scene.primary.faults.set("refuse")
        await eventually(lambda: scene.state() is EntityState.FAILED_OVER, what="the failover")
        scene.primary.faults.clear()
        await eventually(lambda: scene.state() is EntityState.HEALTHY, what="the failback")
    await loop.returns()
    await loop.stop()
    assert loop.raised == []
    assert set(loop.returned) <= scene.all_ids()


async def test_several_good_pings_damp_flapping(still: Scene) -> None:
    sender = still.sender(good_pings=3, ping_jitter=0.0)
    await sender.send_messages(text("before"))
    assert still.timers is not None
    sender._client.fail_over("orders")
    for count in (1, 2, 3):
        assert still.state() is EntityState.FAILED_OVER
        await still.timers.advance(60.0)
        await eventually(lambda count=count: len(still.diary.pings) == count)  # type: ignore[misc]
    assert still.state() is EntityState.HEALTHY


async def test_throttling_waits_and_does_not_fail_over(scene: Scene) -> None:
    loop = Loop(scene.sender(**QUICK))
    await loop.returns()
    scene.primary.faults.set("busy")
    loop_clock = asyncio.get_running_loop()
    ends = loop_clock.time() + 30.0  # one and a half failover intervals
    await eventually(lambda: loop_clock.time() > ends)
    assert scene.diary.changes == []
    held = len(loop.returned)
    scene.primary.faults.clear()
    await loop.returns()
    await loop.stop()
    assert loop.raised == []
    assert scene.ids() == loop.returned
    assert len(loop.returned) > held
    assert scene.backlog() == []


async def test_one_dead_entity_does_not_stop_the_others(scene: Scene) -> None:
    scene.primary.create_queue("invoices")
    client = scene.client(**QUICK)
    orders, invoices = Loop(client.get_queue_sender("orders")), Loop(client.get_queue_sender("invoices"))
    await asyncio.gather(orders.returns(), invoices.returns())
    scene.primary.faults.set("refuse", entity="orders")
    await eventually(lambda: scene.state("orders") is EntityState.FAILED_OVER, what="the failover")
    await asyncio.gather(orders.returns(), invoices.returns())
    assert scene.state("invoices") is EntityState.HEALTHY
    scene.primary.faults.clear()
    await eventually(lambda: scene.state("orders") is EntityState.HEALTHY, what="the failback")
    await asyncio.gather(orders.stop(), invoices.stop())
    assert orders.raised == invoices.raised == []
    assert scene.ids("invoices") == invoices.returned
    assert set(orders.returned) <= scene.all_ids()
    assert {change.path for change in scene.diary.changes} == {"orders"}


async def test_a_token_plane_that_is_down_raises_unless_it_is_to_count(scene: Scene) -> None:
    raising = Loop(scene.sender(**QUICK))
    counting = Loop(scene.sender(**QUICK, count_unauthorized=True))
    client = counting.sender._client
    await asyncio.gather(raising.returns(), counting.returns())
    scene.primary.faults.set("token")
    await eventually(lambda: scene.state("orders", client) is EntityState.FAILED_OVER, what="the failover")
    await counting.returns()
    await eventually(lambda: bool(raising.raised), what="an error")
    scene.primary.faults.clear()
    await eventually(lambda: scene.state("orders", client) is EntityState.HEALTHY, what="the failback")
    await asyncio.gather(raising.returns(), counting.returns())
    await asyncio.gather(raising.stop(), counting.stop())
    assert counting.raised == []
    assert scene.state("orders") is EntityState.HEALTHY
    refusals = ServiceBusAuthenticationError | ServiceBusAuthorizationError
    assert all(isinstance(error, refusals) for error in raising.raised)
    assert set(counting.returned) | set(raising.returned) <= scene.all_ids()


async def test_with_both_sides_down_sends_raise_and_come_back_with_the_first_side(scene: Scene) -> None:
    loop = Loop(scene.sender(**QUICK))
    await loop.returns()
    scene.secondary.faults.set("refuse")
    scene.primary.faults.set("refuse")
    await eventually(lambda: len(loop.raised) >= 2, what="errors")
    scene.secondary.faults.clear()
    await loop.returns()
    assert scene.state() is EntityState.FAILED_OVER
    scene.primary.faults.clear()
    await eventually(lambda: scene.state() is EntityState.HEALTHY, what="the failback")
    await loop.returns()
    await loop.stop()
    assert {type(error) for error in loop.raised} == {BacklogUnavailableError}
    assert set(loop.returned) <= scene.all_ids()


async def test_a_primary_that_is_full_on_recovery_is_not_sent_to(scene: Scene) -> None:
    loop = Loop(scene.sender(**QUICK))
    await loop.returns()
    scene.primary.faults.set("refuse")
    await eventually(lambda: scene.state() is EntityState.FAILED_OVER, what="the failover")
    scene.primary.faults.clear()
    scene.primary.faults.set("full", entity="orders")
    pings = len(scene.diary.pings)
    await eventually(lambda: len(scene.diary.pings) >= pings + 2, what="pings")
    await loop.returns()
    assert scene.state() is EntityState.FAILED_OVER
    scene.primary.faults.clear()
    await eventually(lambda: scene.state() is EntityState.HEALTHY, what="the failback")
    await loop.returns()
    await loop.stop()
    assert loop.raised == []
    assert set(loop.returned) <= scene.all_ids()


async def test_answers_that_get_lost_now_and_then_lose_nothing(scene: Scene) -> None:
    loop = Loop(scene.sender(**{**QUICK, "failover_interval": 60.0, "send_timeout": 8.0}))
    await loop.returns(2)
    scene.primary.faults.set("drop", every=3)
    await loop.returns(6)
    scene.primary.faults.clear()
    await loop.stop()
    assert loop.raised == []
    assert set(loop.returned) <= set(scene.ids())
    assert "failed_over" not in scene.diary.states


async def test_an_entity_that_is_disabled_under_an_open_link_raises_and_does_not_fail_over(
    still: Scene, manual_timers: ManualTimers
) -> None:
    """The link is cut with it, which starts the clock; but the primary answers."""
    sender = still.sender(failover_interval=60.0)
    await sender.send_messages(text("1"))
    still.primary.faults.set("reset")
    held = still.begin(sender.send_messages(text("2")))
    await eventually(lambda: still.state() is EntityState.SUSPECT)
    still.primary.faults.clear()
    still.primary.faults.set("disabled", entity="orders")
    await manual_timers.advance(5.0)  # the rest before the next try
    with pytest.raises(MessagingEntityDisabledError):
        await held
    await manual_timers.advance(600.0)
    assert still.diary.states == ["suspect", "healthy"]
    with pytest.raises(MessagingEntityDisabledError):
        await sender.send_messages(text("3"))
    assert still.backlog_ids() == []


Mistake = Callable[[Scene, PairedSender], Awaitable[object]]


async def _too_large(scene: Scene, sender: PairedSender) -> None:
    await sender.send_messages(ServiceBusMessage(b"x" * 300_000))


async def _no_message(scene: Scene, sender: PairedSender) -> None:
    await sender.send_messages(42)  # type: ignore[arg-type]


async def _reserved(scene: Scene, sender: PairedSender) -> None:
    await sender.send_messages(text("m", application_properties={"X-MS-Path": "elsewhere"}))


async def _disabled(scene: Scene, sender: PairedSender) -> None:
    scene.primary.faults.set("disabled", entity="orders")
    await sender.send_messages(text("m"))


async def _full(scene: Scene, sender: PairedSender) -> None:
    scene.primary.faults.set("full", entity="orders")
    await sender.send_messages(text("m"))


async def _missing(scene: Scene, sender: PairedSender) -> None:
    await sender._client.get_queue_sender("nowhere").send_messages(text("m"))


@pytest.mark.parametrize(
    ("mistake", "error"),
    [
        (_too_large, MessageSizeExceededError),
        (_no_message, TypeError),
        (_reserved, ReservedPropertyError),
        (_disabled, MessagingEntityDisabledError),
        (_full, ServiceBusQuotaExceededError),
        # Embedded namespaces refuse the token for what is not there; Azure refuses the link.
        (_missing, (MessagingEntityNotFoundError, ServiceBusAuthenticationError)),
    ],
    ids=["too_large", "no_message", "reserved", "disabled", "full", "missing"],
)
async def test_what_is_no_outage_raises_at_once(
    scene: Scene, mistake: Mistake, error: type[Exception] | tuple[type[Exception], ...]
) -> None:
    sender = scene.sender(**QUICK)
    await sender.send_messages(text("before"))
    with pytest.raises(error):
        await mistake(scene, sender)
    assert scene.diary.changes == []
    assert scene.backlog() == []


def test_in_real_time_failover_takes_an_interval_and_failback_a_ping_and_a_second_at_most(
    broker: Broker,
) -> None:
    """The promise as users see it, on an event loop that is not in a hurry."""
    asyncio.run(_in_real_time(Scene(broker)))


async def _in_real_time(scene: Scene) -> None:
    async with scene.client(failover_interval=1.0, ping_primary_interval=1.0) as client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(text("before"))
        await eventually(lambda: scene.state() is EntityState.HEALTHY)
        async with lateness_beside(scene.broker) as late:
            began = time.time()
            scene.primary.faults.set("silence")
            await sender.send_messages(text("during"))
        assert scene.diary.changes[-1].new is EntityState.FAILED_OVER
        assert scene.diary.changes[-1].at - began <= 2.0 + sum(each.seconds for each in late)
        async with lateness_beside(scene.broker) as late:
            healed = time.time()
            scene.primary.faults.clear()
            await eventually(lambda: scene.state() is EntityState.HEALTHY)
        assert scene.diary.changes[-1].at - healed <= 2.0 + sum(each.seconds for each in late)
        await sender.send_messages(text("after"))
    assert sorted(scene.ids() + scene.backlog_ids()) == ["after", "before", "during"]
    assert "during" in scene.backlog_ids()
    if scene.diary.states.count("failed_over") == 1:  # or the machine stood still, which is an outage too
        assert scene.ids() == ["before", "after"]


async def test_a_send_that_was_given_up_and_arrives_is_told(
    certificate: tuple[Path, Path], manual_timers: ManualTimers
) -> None:
    clock = ManualClock(time.time())
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=clock, certificate=certificate) as broker:
        still = Scene(broker, timers=manual_timers)
        sender = still.sender(failover_interval=3.0)
        still.primary.faults.set("delay", seconds=5.0)
        sending = still.begin(sender.send_messages(text("twice")))
        await eventually(lambda: still.ids() == ["twice"])
        await manual_timers.advance(3.0)
        await sending
        assert still.backlog_ids() == ["twice"]
        status = sender._client.status
        assert status().entities[0].arrived_late == 0
        clock.advance(5.0)  # now the answer comes
        broker.tick()
        await eventually(lambda: status().entities[0].arrived_late == 1)
        assert still.ids() == ["twice"]
        await still.close()


def annotated(**parts: Any) -> AmqpAnnotatedMessage:
    return AmqpAnnotatedMessage(**{"data_body": b"x"} | parts)


SOON = datetime.now(UTC) + timedelta(hours=1)

# What the healthy primary, or the SDK on the way to it, refuses.
REFUSED: dict[str, Callable[[], Any]] = {
    "too large, and easy to compress": lambda: ServiceBusMessage(b"0" * 300_000),
    "too large": lambda: ServiceBusMessage(os.urandom(300_000)),
    "a list that is no batch": lambda: [ServiceBusMessage(b"0" * 1000) for _ in range(400)],
    "a life of months": lambda: ServiceBusMessage(b"x", time_to_live=timedelta(days=60)),
    "a life that is too long": lambda: annotated(header={"time_to_live": 2**33}),
    "a life that is over before it begins": lambda: ServiceBusMessage(
        b"x", time_to_live=timedelta(seconds=-5)
    ),
    "a list with a life of months": lambda: [ServiceBusMessage(b"x", time_to_live=timedelta(days=60))],
    "a session id that is too long": lambda: annotated(properties={"group_id": "s" * 129}),
    "a session id of bytes that is too long": lambda: annotated(properties={"group_id": b"s" * 129}),
    "a session id of bytes that are no text": lambda: annotated(properties={"group_id": b"\xff"}),
    "a session id that is a number": lambda: annotated(properties={"group_id": 5}),
    "a list with a session id that is a number": lambda: [annotated(properties={"group_id": 5})],
    "an id that is too long": lambda: annotated(properties={"message_id": "m" * 129}),
    "an id of too many bytes": lambda: annotated(properties={"message_id": b"m" * 65}),
    "an expiry that is no number": lambda: annotated(properties={"absolute_expiry_time": SOON}),
    "an expiry without end": lambda: annotated(properties={"absolute_expiry_time": 2**63}),
    "a schedule without end": lambda: annotated(annotations={SCHEDULED_TIME: 2**63}),
    "a property without a type": lambda: annotated(application_properties={"a": object()}),
    "a number without end": lambda: ServiceBusMessage(b"x", application_properties={"a": 2**70}),
    "a value without a type": lambda: AmqpAnnotatedMessage(value_body=object()),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_the_primary_refuses_is_refused_alike_in_every_state(
    scene: Scene, tmp_path: Path, what: str
) -> None:
    client = scene.client(state_dir=tmp_path, enable_spool=True, ping_primary_interval=1800.0)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("before"))
    with pytest.raises(Exception) as healthy:  # noqa: PT011 - which one it is, is the SDK's choice
        await sender.send_messages(REFUSED[what]())
    client.fail_over("orders")
    with pytest.raises(type(healthy.value)) as failed_over:
        await sender.send_messages(REFUSED[what]())
    scene.secondary.faults.set("refuse")
    with pytest.raises(type(healthy.value)) as spooled:
        await sender.send_messages(REFUSED[what]())
    assert type(failed_over.value) is type(spooled.value) is type(healthy.value)
    status = client.status()
    assert (scene.backlog_ids(), status.spool and status.spool.messages) == ([], 0)


@pytest.mark.parametrize("what", [name for name in REFUSED if "list" not in name])
async def test_what_cannot_be_scheduled_is_refused_alike_while_failed_over(scene: Scene, what: str) -> None:
    client = scene.client(ping_primary_interval=1800.0)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("before"))
    when = datetime.now(UTC) + timedelta(hours=1)
    with pytest.raises(Exception) as healthy:  # noqa: PT011 - which one it is, is the SDK's choice
        await sender.schedule_messages(REFUSED[what](), when)
    client.fail_over("orders")
    with pytest.raises(type(healthy.value)) as failed_over:
        await sender.schedule_messages(REFUSED[what](), when)
    assert type(failed_over.value) is type(healthy.value)
    assert scene.backlog_ids() == []

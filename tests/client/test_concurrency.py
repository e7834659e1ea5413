"""Many at once: a thousand tasks on one client, callers that are cancelled, and many outages in a row."""

import asyncio
import contextlib
import os
import random
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import ServiceBusError

from pairbus.aio import PairedSender
from pairbus.amqp.message import scan
from pairbus.client.sending.acquaintance import Acquaintance
from pairbus.client.sending.link import SendLink
from pairbus.client.sending.ticket import Ticket
from pairbus.options import EntityState
from pairbus.testing import ManualTimers
from tests.waiting import PATIENCE

from .scene import Scene, eventually, sending_method, text

# Enough to tell a leak from noise: each outage that left something would leave one socket and one task.
OUTAGES = 16
# What a client has open after all of them: a link to the primary and some to the backlog, and what the SDK
# runs for each. One that every outage left behind would be above that.
SOCKETS, TASKS = 4, 8


async def test_a_thousand_tasks_send_through_one_client_in_order(still: Scene) -> None:
    still.primary.create_queue("invoices")
    client = still.client()
    senders = [client.get_queue_sender("orders"), client.get_queue_sender("invoices")]
    names = [f"{number:04d}" for number in range(1000)]
    await asyncio.gather(
        *(senders[at % 2].send_messages(text(name), timeout=600) for at, name in enumerate(names))
    )
    assert still.ids("orders") == names[0::2]
    assert still.ids("invoices") == names[1::2]


async def test_a_thousand_tasks_are_taken_to_the_backlog_in_order(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = still.sender(failover_interval=30.0, send_timeout=30.0)
    await sender.send_messages(text("before"))
    still.primary.faults.set("silence")
    names = [f"{number:04d}" for number in range(1000)]
    sends = [still.begin(sender.send_messages(text(name))) for name in names]
    await still.on_the_wire()
    await manual_timers.advance(30.0)
    await asyncio.gather(*sends)
    assert still.backlog_ids() == names


async def test_several_links_share_the_work(still: Scene) -> None:
    sender = still.sender(links_per_entity=4)
    names = {f"{number:03d}" for number in range(200)}
    await asyncio.gather(*(sender.send_messages(text(name)) for name in names))
    assert sorted(still.ids()) == sorted(names)
    entity = sender._client.pair.entity("orders")
    assert all(link._sender is not None for link in entity._links)


async def test_callers_that_are_cancelled_leave_the_line_moving(still: Scene) -> None:
    sender = still.sender()
    await sender.send_messages(text("before"))
    choose = random.Random(5)
    sends = {
        f"{number:03d}": still.begin(sender.send_messages(text(f"{number:03d}"))) for number in range(300)
    }
    cancelled = set(choose.sample(sorted(sends), 100))
    for name in sends:
        if name in cancelled:
            sends[name].cancel()
        if choose.random() < 0.2:
            await asyncio.sleep(0)
    outcomes = await asyncio.gather(*sends.values(), return_exceptions=True)
    returned = [name for name, outcome in zip(sends, outcomes, strict=True) if outcome is None]
    assert set(returned) >= set(sends) - cancelled
    assert set(returned) <= set(still.ids())
    await sender.send_messages(text("after"))
    assert still.ids()[-1] == "after"
    assert still.state() is EntityState.HEALTHY


@pytest.mark.parametrize("place", ["on the wire", "in line", "held", "in the backlog"])
async def test_wherever_a_caller_is_cancelled_the_client_stays_usable(still: Scene, place: str) -> None:
    sender = still.sender(retry_delay=5.0)
    await sender.send_messages(text("before"))
    if place == "in the backlog":
        sender._client.fail_over("orders")
        still.secondary.faults.set("silence")
    else:
        still.primary.faults.set("refuse" if place == "held" else "silence")
    first, second = (still.begin(sender.send_messages(text(name))) for name in ("1", "2"))
    if place == "held":
        await eventually(lambda: still.state() is EntityState.SUSPECT)
    elif place == "in the backlog":
        await still.on_the_way_to_the_backlog()
    else:
        await still.on_the_wire()
    cancelled = second if place == "in line" else first
    cancelled.cancel()
    await asyncio.wait({cancelled})
    still.primary.faults.clear()
    still.secondary.faults.clear()
    if place in ("in line", "on the wire"):
        first.cancel()  # what the silence has swallowed is not answered any more
        second.cancel()
    sender._client.mark_path_healthy("orders")
    await asyncio.wait({first, second})
    await sender.send_messages(text("after"))
    assert "after" in still.ids()


@pytest.mark.parametrize("way", ["to the primary", "to the backlog"])
@pytest.mark.parametrize("number", [1, 3])
async def test_what_waits_is_sent_as_it_was_when_it_was_called_for(
    still: Scene, way: str, number: int
) -> None:
    sender, side = still.sender(), still.primary
    if way == "to the backlog":
        sender._client.fail_over("orders")
        side = still.secondary
    await sender.send_messages(text("before"))
    side.faults.set("delay", seconds=0.2)
    mine = [text(f"mine {index}", application_properties={"n": 1}) for index in range(number)]
    given: Any = mine if number > 1 else mine[0]
    sends = [still.begin(sender.send_messages(each)) for each in (text("ahead"), given)]
    await asyncio.sleep(0)  # both have been called
    for message in mine:
        message.message_id = "changed"
        assert message.application_properties is not None
        message.application_properties["n"] = 2
    await asyncio.gather(*sends)
    found = still.messages("orders") if side is still.primary else still.backlog()
    assert [each.message_id for each in found] == [
        "before",
        "ahead",
        *(f"mine {index}" for index in range(number)),
    ]
    assert scan(found[-1].application_properties_bytes).application_properties["n"] == 1


@pytest.mark.parametrize("transport", ["sdk", "amqp"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("properties", [None, {"n": 1}, {"n": {"a": "map"}}])
async def test_what_is_tried_again_is_sent_as_it_was_when_it_was_called_for(
    still: Scene, manual_timers: ManualTimers, transport: Any, count: int, properties: Any
) -> None:
    """Plain, of the usual types, and as only the SDK writes them."""
    sender = still.sender(failover_interval=30.0, send_timeout=30.0, transport=transport)
    await sender.send_messages(text("before"))
    still.primary.faults.set("silence")
    names = [f"mine-{number}" for number in range(count)]
    mine = [text(name, application_properties=properties and {**properties}) for name in names]
    send = still.begin(sender.send_messages(mine[0] if count == 1 else mine))
    await still.on_the_wire()
    for message in mine:
        message.message_id = "changed"
        message.application_properties = {"n": 2}
    mine.clear()
    await manual_timers.advance(30.0)
    await send
    found = still.backlog()
    assert [message.message_id for message in found] == names
    for kept in found:
        entries = dict(scan(kept.application_properties_bytes).application_properties)
        assert entries.pop("x-ms-path") == "orders"
        assert entries == (properties or {})


async def test_what_is_scheduled_is_so_as_it_was_when_that_was_called_for(still: Scene) -> None:
    sender, soon = still.sender(), datetime.now(UTC) + timedelta(hours=1)
    await sender.send_messages(text("before"))
    still.primary.faults.set("delay", seconds=0.2)
    mine = text("mine")
    calls = [
        still.begin(sender.send_messages(text("ahead"))),
        still.begin(sender.schedule_messages(mine, soon)),
    ]
    await asyncio.sleep(0)  # both have been called
    mine.message_id = "changed"
    await asyncio.gather(*calls)
    still.primary.faults.clear()
    assert sorted(still.ids()) == ["ahead", "before", "mine"]


async def test_a_body_that_waits_is_that_of_the_call(still: Scene) -> None:
    sender = still.sender()
    await sender.send_messages(text("before"))
    still.primary.faults.set("delay", seconds=0.2)
    body = bytearray(b"mine")
    mine = AmqpAnnotatedMessage(data_body=body)
    sends = [still.begin(sender.send_messages(each)) for each in (text("ahead"), mine)]
    await asyncio.sleep(0)  # both have been called
    body[:] = b"changed"
    await asyncio.gather(*sends)
    assert bytes(still.messages("orders")[-1].body).endswith(b"mine")


@pytest.mark.parametrize("timeout", [None, PATIENCE])
async def test_what_cannot_be_copied_is_refused_as_by_the_sdk(still: Scene, timeout: float | None) -> None:
    sender = still.sender()
    odd: Any = {"lock": threading.Lock()}
    with pytest.raises(ServiceBusError, match="Handler failed: Unable to encode"):
        await sender.send_messages(text("odd", application_properties=odd), timeout=timeout)


class Pulled(BaseException):
    """As a second Ctrl-C, or what a framework raises in the thread of a job."""


def pull(*_: object) -> None:
    raise Pulled


@pytest.mark.parametrize("settings", [{}, {"timeout": 600.0}], ids=["set out", "in line"])
async def test_what_ends_a_program_amid_a_send_leaves_nothing_behind(
    still: Scene, manual_timers: ManualTimers, monkeypatch: pytest.MonkeyPatch, settings: dict[str, float]
) -> None:
    sender = still.sender(failover_interval=30.0)
    await sender.send_messages(text("before"))
    entity = sender._client.pair.entity("orders")
    used = entity._links[0]._sender
    monkeypatch.setattr(used, sending_method(used), pull)
    with pytest.raises(Pulled):
        await sender.send_messages(text("pulled"), **settings)
    assert entity.health.status().attempts == 0
    await manual_timers.advance(60.0)
    assert still.state() is EntityState.HEALTHY
    await sender.send_messages(text("after"))  # not by a sender that was left amid something
    assert entity._links[0]._sender is not used
    assert still.ids() == ["before", "after"]


async def test_what_ends_a_program_amid_a_question_leaves_nothing_behind(
    still: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = still.sender(failover_interval=30.0)
    await sender.send_messages(text("before"))
    entity = sender._client.pair.entity("orders")
    monkeypatch.setattr(entity._links[0]._sender, "create_message_batch", pull)
    with pytest.raises(Pulled):
        await sender.create_message_batch()
    assert entity.health.status().attempts == 0


async def test_a_question_that_is_called_off_while_the_backlog_is_asked_leaves_nothing_behind(
    still: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entity would fail over for it, later and without an outage."""
    asked = asyncio.Event()

    async def never(self: Acquaintance, deadline: float | None) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr(Acquaintance, "was_paired_before", never)
    still.primary.faults.set("refuse")
    sender = still.sender(failover_interval=30.0)
    asking = still.begin(sender.create_message_batch())
    await asyncio.wait_for(asked.wait(), PATIENCE)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert sender._client.pair.entity("orders").health.status().attempts == 0


@pytest.mark.parametrize("settings", [{}, {"timeout": 600.0}], ids=["set out", "in line"])
async def test_a_send_that_outlives_its_event_loop_ends_quietly(
    still: Scene, settings: dict[str, float]
) -> None:
    sender = still.sender()
    await sender.send_messages(text("before"))
    still.primary.faults.set("silence")
    sending = still.begin(sender.send_messages(text("left"), **settings))
    await still.on_the_wire()
    left: Any = sending.get_coro()
    await asyncio.to_thread(left.close)  # where no loop runs, as when its task is collected
    sending.cancel()
    with pytest.raises(RuntimeError, match="already awaited"):
        await sending


async def test_a_turn_that_is_given_to_a_caller_just_cancelled_goes_on_to_the_next(
    still: Scene, manual_timers: ManualTimers
) -> None:
    class Sender:
        async def __aenter__(self) -> None: ...

        async def close(self) -> None: ...

    done: list[int] = []
    gates = [asyncio.Event() for _ in range(3)]

    def operation(number: int):  # type: ignore[no-untyped-def]  # noqa: ANN202
        async def perform(sender: object) -> None:
            await gates[number].wait()
            done.append(number)

        return perform

    link = SendLink(Sender, graveyard=still.client().pair.graveyard, timers=manual_timers)  # type: ignore[arg-type]
    tasks = [still.begin(link.run(Ticket(), operation(number), limit=10.0)) for number in range(3)]
    await asyncio.sleep(0)
    gates[0].set()
    gates[2].set()
    while not tasks[0].done():  # noqa: ASYNC110 - turn by turn
        await asyncio.sleep(0)
    # The second has been given the turn and has not run since.
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert tasks[1].cancelled()
    assert done == [0, 2]
    assert not link.is_busy


def sockets_to(*ports: int) -> int:
    """How many sockets of this process are connected to these ports; the other ends are not counted."""
    inodes = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(descriptor).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[9] in inodes and int(row[2].partition(":")[2], 16) in ports for row in rows)


async def little_left_behind(scene: Scene, sender: PairedSender) -> None:
    """Wait until hardly more is open than the client needs; what is being closed may take a while."""
    graveyard = sender._client.pair.graveyard
    ports = scene.primary.port, scene.secondary.port

    def is_little() -> bool:
        return len(graveyard) == 0 and sockets_to(*ports) <= SOCKETS and len(asyncio.all_tasks()) <= TASKS

    await eventually(is_little, what=f"no more than {SOCKETS} sockets and {TASKS} tasks")


async def test_many_outages_leave_nothing_behind(still: Scene, manual_timers: ManualTimers) -> None:
    sender = still.sender(failover_interval=5.0, send_timeout=5.0, ping_jitter=0.0)
    kinds = ["silence", "refuse", "blackhole", "reset"]

    (link,) = sender._client.pair.entity("orders")._links

    async def go_through(number: int) -> None:
        await sender.send_messages(text(f"{number}-before"))
        still.primary.faults.set(kinds[number % len(kinds)])
        sending = still.begin(sender.send_messages(text(f"{number}-during")))
        while still.state() is not EntityState.FAILED_OVER:
            await eventually(lambda: link.is_calling or link._resting)
            await manual_timers.advance(5.0)
        await sending
        still.primary.faults.clear()
        sender._client.mark_path_healthy("orders")

    for number in range(OUTAGES):
        await go_through(number)
    await little_left_behind(still, sender)
    wanted = {f"{number}-{when}" for number in range(OUTAGES) for when in ("before", "during")}
    assert wanted <= still.all_ids()


async def test_a_peer_that_stays_silent_does_not_use_up_sockets(
    still: Scene, manual_timers: ManualTimers
) -> None:
    """The SDK leaves a connection open that it is called away from while it begins."""
    still.primary.faults.set("silence")
    sender = still.sender(
        failover_interval=3600.0, send_timeout=1.0, retry_delay=0.001, retry_delay_max=0.001
    )
    sending = still.begin(sender.send_messages(text("1")))

    for _ in range(OUTAGES):
        await still.on_the_wire()
        await eventually(lambda: sockets_to(still.primary.port), what="a connection")
        await manual_timers.advance(1.01)
    await little_left_behind(still, sender)
    sending.cancel()

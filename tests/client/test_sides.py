"""How a pair ends: one side without the other, both, faulted or closed, with a hosted syphon and without."""

import asyncio
from typing import Any, Literal

import pytest

from pairbus.aio import PairedServiceBusClient
from pairbus.broker.counters import OperationKind
from pairbus.client.errors import ClientClosedError
from pairbus.client.sides import PARTNER_GRACE
from pairbus.options import EntityState
from pairbus.pairing.errors import PairFaultedError
from pairbus.testing import ManualTimers

from .scene import Scene, eventually, text

SideName = Literal["primary", "secondary"]
SIDES: list[SideName] = ["primary", "secondary"]
PARTNER: dict[SideName, SideName] = {"primary": "secondary", "secondary": "primary"}


def open_connections(scene: Scene) -> list[str]:
    known = [*scene.primary.connections(), *scene.secondary.connections()]
    return [connection.name for connection in known if connection.closed_at is None]


async def end(client: PairedServiceBusClient, side: SideName, how: str) -> None:
    if how == "closed":
        await client.close_side(side)
    elif how == "faulted":
        client.fault("an operator said so", side=side)
    else:  # under us: somebody has got hold of the SDK's client
        sdk: Any = (client.pair.primary if side == "primary" else client.pair.secondary)._sdk_client()
        await sdk.close()


@pytest.mark.parametrize("how", ["closed", "faulted", "closed under us"])
@pytest.mark.parametrize("side", SIDES)
async def test_a_hosted_syphon_faults_the_partner_of_a_side_that_ended_after_five_seconds(
    still: Scene, manual_timers: ManualTimers, side: SideName, how: str
) -> None:
    client = still.client(enable_syphon=True)
    await client.start()
    await client.get_queue_sender("orders").send_messages(text("1"))
    await end(client, side, how)
    partner = PARTNER[side]
    await manual_timers.advance(PARTNER_GRACE - 0.1)
    assert client.status().sides == {side: "closed" if how == "closed" else "faulted", partner: "open"}
    await manual_timers.advance(0.2)
    assert client.status().sides[partner] == "faulted"
    assert f"the {side} side" in (client.status().fault or "") or how != "closed"
    expected = ClientClosedError if (side, how) == ("primary", "closed") else PairFaultedError
    with pytest.raises(expected) as caught:
        await client.get_queue_sender("orders").send_messages(text("2"))
    if side == "secondary":
        assert isinstance(caught.value, PairFaultedError)
        assert caught.value.side == "primary"
        assert f"the {side} side" in caught.value.cause
    assert still.ids() == ["1"]


async def test_a_partner_that_is_closed_in_time_does_not_fault(
    still: Scene, manual_timers: ManualTimers
) -> None:
    client = still.client(enable_syphon=True)
    await client.start()
    await client.close_side("secondary")
    await manual_timers.advance(PARTNER_GRACE - 1.0)
    await client.close_side("primary")
    await manual_timers.advance(60.0)
    assert client.status().sides == {"primary": "closed", "secondary": "closed"}
    assert client.status().fault is None
    with pytest.raises(ClientClosedError, match="primary side"):
        client.get_queue_receiver("orders")


@pytest.mark.parametrize("how", ["closed", "faulted", "closed under us"])
async def test_without_a_hosted_syphon_the_primary_goes_on_sending(
    still: Scene, manual_timers: ManualTimers, how: str
) -> None:
    client = still.client()
    await client.start()
    sender = client.get_queue_sender("orders")
    await end(client, "secondary", how)
    await manual_timers.advance(3600.0)
    assert client.status().sides["primary"] == "open"
    await sender.send_messages(text("1"))
    assert still.ids() == ["1"]
    # There is no backlog any more, and a failover says so.
    client.fail_over("orders")
    with pytest.raises(ClientClosedError if how == "closed" else PairFaultedError, match="secondary"):
        await sender.send_messages(text("2"))


@pytest.mark.parametrize("how", ["closed", "faulted", "closed under us"])
async def test_a_sender_that_has_just_sent_sends_nothing_to_a_side_that_has_ended(
    still: Scene, how: str
) -> None:
    client = still.client()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1"))
    await sender.send_messages(text("2"))  # by the short way
    await end(client, "primary", how)
    with pytest.raises(ClientClosedError if how == "closed" else PairFaultedError):
        await sender.send_messages(text("3"))
    assert still.ids() == ["1", "2"]


async def test_no_outage_is_a_fault_however_long(still: Scene, manual_timers: ManualTimers) -> None:
    client = still.client(enable_syphon=True, ping_primary_interval=1800.0)
    await client.start()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1"))
    for namespace in (still.primary, still.secondary):
        namespace.faults.set("refuse")
    client.fail_over("orders")
    await manual_timers.advance(6 * 3600.0)
    assert client.status().sides == {"primary": "open", "secondary": "open"}
    assert client.status().fault is None
    for namespace in (still.primary, still.secondary):
        namespace.faults.clear()
    client.mark_path_healthy("orders")
    await sender.send_messages(text("2"))
    assert still.ids() == ["1", "2"]


async def test_a_faulted_client_says_why_each_time_and_stops_its_pings(
    still: Scene, manual_timers: ManualTimers
) -> None:
    client = still.client()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1"))
    still.primary.faults.set("refuse")
    client.fail_over("orders")
    await manual_timers.advance(120.0)
    await eventually(lambda: bool(still.diary.pings))
    client.fault("the disk is full")
    raised = []
    for _ in range(2):
        with pytest.raises(PairFaultedError, match="the disk is full") as caught:
            await sender.send_messages(text("2"))
        raised.append(caught.value)
    assert raised[0] is not raised[1], "an error that is raised again and again grows"
    await eventually(lambda: not client.pair.entity("orders")._pinger._running)
    pings = len(still.diary.pings)
    await manual_timers.advance(600.0)
    assert len(still.diary.pings) == pings
    assert manual_timers.next_at is None


@pytest.mark.parametrize("side", SIDES)
async def test_a_fault_ends_what_waits_for_a_silent_peer(
    still: Scene, manual_timers: ManualTimers, side: SideName
) -> None:
    """Whoever is answered in the time that closing gives as well is done, the others hear of the fault."""
    client = still.client(send_timeout=600.0, failover_interval=3600.0)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1"))
    if side == "secondary":
        client.fail_over("orders")
        await sender.send_messages(text("2"))
    (still.primary if side == "primary" else still.secondary).faults.set("silence")
    sends = [still.begin(sender.send_messages(text(f"{number}"))) for number in range(3, 6)]
    await (still.on_the_wire() if side == "primary" else still.on_the_way_to_the_backlog())
    client.fault("an operator said so", side=side)
    await manual_timers.advance(1.9)
    assert not sends[0].done()
    await manual_timers.advance(0.1)
    for sending in sends:
        with pytest.raises(PairFaultedError, match="an operator said so"):
            await asyncio.wait_for(sending, 1000)


async def test_a_send_that_is_cut_off_with_its_sdk_client_says_why(still: Scene) -> None:
    client = still.client()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(text("1"))
    still.primary.faults.set("silence")
    sending = still.begin(sender.send_messages(text("2")))
    await still.on_the_wire()
    closing = still.begin(end(client, "primary", "closed under us"))
    with pytest.raises(PairFaultedError, match="SDK client"):
        await asyncio.wait_for(sending, 1000)
    still.primary.faults.clear()
    await closing


async def test_what_is_not_a_side_is_refused(still: Scene) -> None:
    client = still.client()
    with pytest.raises(ValueError, match="tertiary"):
        client.fault("no", side="tertiary")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="tertiary"):
        await client.close_side("tertiary")  # type: ignore[arg-type]
    assert client.status().sides == {"primary": "open", "secondary": "open"}


@pytest.mark.parametrize("is_hosting", [False, True], ids=["plain", "hosting"])
async def test_with_closes_both_sides_and_leaves_nothing_behind(scene: Scene, is_hosting: bool) -> None:
    before = asyncio.all_tasks()
    options: dict[str, Any] = {
        "enable_syphon": is_hosting,
        "failover_interval": 0.0,
        "send_timeout": 300.0,
    }
    async with scene.client(**options) as client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(text("1"))
        scene.primary.faults.set("refuse")
        await sender.send_messages(text("2"))
        assert scene.state() is EntityState.FAILED_OVER
        if is_hosting:
            await eventually(lambda: scene.secondary.count(OperationKind.DEFER) > 0, what="the syphon")
    with pytest.raises(ClientClosedError):
        await sender.send_messages(text("3"))
    known = [*scene.primary.connections(), *scene.secondary.connections()]
    assert len(known) >= 2
    await eventually(lambda: not open_connections(scene), what="the end of all connections")
    await eventually(lambda: asyncio.all_tasks() == before, what="the end of all tasks")
    assert [message.lock_token is not None for message in scene.backlog()] == [False]

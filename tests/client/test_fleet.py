"""One prober for a fleet: what fifty clients cost in an outage, and whatever may be wrong with that."""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.aio import PairedServiceBusClient
from pairbus.broker import Broker
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.client.fleet.fleet import Fleet
from pairbus.options import EntityState, SendAvailabilityOptions
from pairbus.pairing.names import lease_queue_name
from pairbus.pairing.slots import slot_at
from pairbus.testing import ManualTimers
from tests.waiting import Lateness, eventually

QUEUE = lease_queue_name("contoso")
INTERVAL = 1.0
# The long form has a fleet and an outage for which figures are promised.
CLIENTS = int(os.environ.get("PAIRBUS_FLEET_CLIENTS") or 12)
IS_LONG = CLIENTS > 12
# In the short one word has time to reach everybody before they ping by themselves, also on a busy machine.
SLOTS, SLOT = (20, INTERVAL) if IS_LONG else (2, 4.0)
MOST_PINGS = 25
MOST_BILLED = 300
MOST_SECONDS = 2.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        broker["contoso"].create_queue("orders")
        broker["contoso-dr"].create_queue("contoso/x-servicebus-transfer/0")
        broker["contoso-dr"].create_queue(QUEUE, QueueSettings(requires_session=True))
        yield broker


@asynccontextmanager
async def fleet(
    broker: Broker, count: int, *, secondary: str | None = None, **options: Any
) -> AsyncIterator[list[PairedServiceBusClient]]:
    """Clients that have sent to `orders`."""
    chosen: dict[str, Any] = {
        "backlog_queue_count": 1,
        "failover_interval": 1.0,
        "ping_primary_interval": INTERVAL,
        "ping_timeout": INTERVAL,
        "send_timeout": 200.0,
        **options,
    }
    clients = [
        PairedServiceBusClient.from_connection_strings(
            broker["contoso"].connection_string,
            secondary or broker["contoso-dr"].connection_string,
            options=SendAvailabilityOptions(**chosen),
        )
        for _ in range(count)
    ]
    try:
        await asyncio.gather(*(send(client) for client in clients))
        yield clients
    finally:
        await asyncio.gather(*(client.close() for client in clients))


async def send(client: PairedServiceBusClient) -> None:
    await client.get_queue_sender("orders").send_messages(ServiceBusMessage(b"x"))


def states(clients: list[PairedServiceBusClient]) -> set[EntityState]:
    return {client.status().entities[0].health.state for client in clients}


def roles(clients: list[PairedServiceBusClient]) -> Counter[str | None]:
    return Counter(client.status().entities[0].ping_role for client in clients)


def reasons(clients: list[PairedServiceBusClient]) -> Counter[str]:
    return Counter(client.status().entities[0].health.reason for client in clients)


def pings(broker: Broker) -> int:
    return broker["contoso"].count(OperationKind.PING)


def billed(broker: Broker) -> int:
    """All that the fleet's queue was asked for, but for its being looked after."""
    counted = {kind: broker["contoso-dr"].count(kind, entity=QUEUE) for kind in OperationKind}
    return sum(count for kind, count in counted.items() if kind is not OperationKind.ADMIN)


async def begin_outage(broker: Broker, clients: list[PairedServiceBusClient]) -> None:
    # Whoever fails over at its first send, on a busy machine, and then comes back, would not send again.
    await eventually(lambda: states(clients) == {EntityState.HEALTHY})
    # Pings are taken, and so counted, but their answers come far too late.
    broker["contoso"].faults.set("delay", entity="orders", seconds=600)
    await asyncio.gather(*(send(client) for client in clients))
    await eventually(lambda: states(clients) == {EntityState.FAILED_OVER})


async def test_one_pings_for_all_and_tells_them(broker: Broker) -> None:
    async with fleet(broker, CLIENTS, ping_primary_interval=SLOT, ping_timeout=SLOT) as clients:
        await begin_outage(broker, clients)
        # How many exactly is told by the simulation, where no machine is busy.
        before = pings(broker)
        await eventually(lambda: pings(broker) >= before + SLOTS)
        await eventually(lambda: roles(clients)["listener"] >= len(clients) - 2)
        await eventually(lambda: all(one.status().fleet.state == "joined" for one in clients))  # type: ignore[union-attr]
        broker["contoso"].faults.clear()
        await eventually(lambda: EntityState.HEALTHY in states(clients))
        async with Lateness() as lateness:
            begun = time.monotonic()
            await eventually(lambda: states(clients) == {EntityState.HEALTHY})
            seconds = time.monotonic() - begun
        # Pings that were under way are answered as well, some more on a busy machine.
        assert reasons(clients)["a ping of another client succeeded"] >= 1
        assert roles(clients) == {None: len(clients)}
        assert billed(broker) > 0
    if IS_LONG:
        assert pings(broker) <= MOST_PINGS
        assert pings(broker) + billed(broker) <= MOST_BILLED
        assert seconds <= MOST_SECONDS + lateness.seconds


async def test_a_lonely_client_pings_as_it_always_did(broker: Broker) -> None:
    async with fleet(broker, 1) as clients:
        await begin_outage(broker, clients)
        await eventually(lambda: roles(clients)["prober"] == 1)
        before = pings(broker)
        await eventually(lambda: pings(broker) >= before + 3)
        broker["contoso"].faults.clear()
        await eventually(lambda: states(clients) == {EntityState.HEALTHY})


async def test_a_prober_that_dies_is_replaced(broker: Broker) -> None:
    async with fleet(broker, 3) as clients:
        await begin_outage(broker, clients)
        await eventually(lambda: roles(clients)["listener"] >= 2 and roles(clients)["prober"])
        (first, *_) = [one for one in clients if roles([one])["prober"]]
        await first.close()
        left = [one for one in clients if one is not first]
        clients.remove(first)
        before = pings(broker)
        await eventually(lambda: pings(broker) > before)
        await eventually(lambda: roles(left)["prober"])
        broker["contoso"].faults.clear()
        await eventually(lambda: states(left) == {EntityState.HEALTHY})


async def test_the_right_to_ping_goes_round(broker: Broker) -> None:
    """One client that alone cannot reach the primary holds up nobody."""
    async with fleet(broker, 2) as clients:
        await begin_outage(broker, clients)
        seen: set[int] = set()

        def have_all_pinged() -> bool:
            seen.update(place for place, one in enumerate(clients) if roles([one])["prober"])
            return seen == {0, 1}

        await eventually(have_all_pinged)


@pytest.mark.parametrize("lack", ["no queue", "no sessions", "no claim", "secondary down"])
async def test_where_they_cannot_meet_each_pings_and_says_so(broker: Broker, lack: str) -> None:
    secondary = broker["contoso-dr"]
    address = secondary.connection_string
    if lack in ("no queue", "no sessions"):
        secondary.delete_queue(QUEUE)
    if lack == "no sessions":
        secondary.create_queue(QUEUE)
    if lack == "no queue":
        address = broker["contoso-dr"].policies["send"]  # or the client would make it
    if lack == "no claim":
        address = broker["contoso-dr"].policies["send"]
    async with fleet(broker, 2, secondary=address) as clients:
        await begin_outage(broker, clients)
        if lack == "secondary down":
            secondary.faults.set("refuse")
        # Alone is also who has not tried yet; why it stays so is known later.
        await eventually(
            lambda: roles(clients)["alone"] == 2 and all(one.status().fleet.why for one in clients)  # type: ignore[union-attr]
        )
        broker["contoso"].faults.clear()
        await eventually(lambda: states(clients) == {EntityState.HEALTHY})
        assert reasons(clients) == {"a ping succeeded": 2}


async def test_without_word_all_come_back_by_slots(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fleet, "tell", lambda *_: None)
    async with fleet(broker, 6) as clients:
        await begin_outage(broker, clients)
        await eventually(lambda: roles(clients)["listener"] >= 4)
        broker["contoso"].faults.clear()
        await eventually(lambda: states(clients) == {EntityState.HEALTHY})
        assert reasons(clients) == {"a ping succeeded": 6}


def tell(liar: PairedServiceBusClient) -> bool:
    """Say that the entity is back. Say it again until that is believed: a word lives for a moment only."""
    assert liar.pair.fleet is not None
    liar.pair.fleet.tell("orders", 1)
    return True


async def test_a_wrong_word_is_believed_once(broker: Broker) -> None:
    async with fleet(broker, 2) as clients:
        await begin_outage(broker, clients)
        await eventually(lambda: all(one.status().fleet.state == "joined" for one in clients))  # type: ignore[union-attr]
        await eventually(lambda: tell(clients[0]) and EntityState.HEALTHY in states(clients))
        misled = next(one for one in clients if states([one]) == {EntityState.HEALTHY})
        await send(misled)
        assert states([misled]) == {EntityState.FAILED_OVER}
        health = misled.pair.entity("orders").health
        assert health.pings_itself
        broker["contoso"].faults.clear()
        await eventually(lambda: states(clients) == {EntityState.HEALTHY})
        assert not health.pings_itself


async def test_who_cannot_get_there_does_not_believe_that_others_can(broker: Broker) -> None:
    async with fleet(broker, 2) as clients:
        await begin_outage(broker, clients)
        await eventually(lambda: all(one.status().fleet.state == "joined" for one in clients))  # type: ignore[union-attr]
        broker["contoso"].faults.set("refuse")
        healths = [one.pair.entity("orders").health for one in clients]
        await eventually(lambda: tell(clients[0]) and any(health.pings_itself for health in healths))
        assert states(clients) == {EntityState.FAILED_OVER}
        broker["contoso"].faults.clear()
        await eventually(lambda: states(clients) == {EntityState.HEALTHY})


async def test_what_a_dead_syphon_left_does_not_disturb(broker: Broker) -> None:
    from azure.servicebus.aio import ServiceBusClient

    async with (
        ServiceBusClient.from_connection_string(broker["contoso-dr"].connection_string) as plain,
        plain.get_queue_sender(QUEUE) as sender,
    ):
        await sender.send_messages(ServiceBusMessage(b"{}", session_id="lease"))
    async with fleet(broker, 2) as clients:
        await begin_outage(broker, clients)
        await eventually(lambda: broker["contoso-dr"].message_count(QUEUE) == 0)
        broker["contoso"].faults.clear()
        await eventually(lambda: states(clients) == {EntityState.HEALTHY})


async def test_switched_off_each_pings(broker: Broker) -> None:
    async with fleet(broker, 2, share_pings=False) as clients:
        await begin_outage(broker, clients)
        broker["contoso"].faults.clear()
        await eventually(lambda: states(clients) == {EntityState.HEALTHY})
        assert reasons(clients) == {"a ping succeeded": 2}
        assert [client.status().fleet for client in clients] == [None, None]


async def test_a_client_that_is_closed_while_it_looks_for_its_fleet_leaves_no_thread(
    broker: Broker, tmp_path: Path
) -> None:
    """Whoever closes at once does so at another step each time."""
    for turns in (0, 1, 3, 10, 30):
        client = PairedServiceBusClient.from_connection_strings(
            broker["contoso"].connection_string,
            broker["contoso-dr"].connection_string,
            options=SendAvailabilityOptions(backlog_queue_count=1),
            state_dir=tmp_path,
        )
        await client.get_queue_sender("orders").send_messages(ServiceBusMessage("before"))
        client.fail_over("orders")
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.close()
        await eventually(lambda: "pairbus-ledger" not in {one.name for one in threading.enumerate()})


class Lock:
    """A session that is locked."""

    def __init__(self, ends: float) -> None:
        self.ends = ends
        self.is_held = True

    def release(self) -> None:
        self.is_held = False


class CrowdedLine:
    """Where another has every slot, and the lock of those who wait takes its time."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.asked = asyncio.Event()
        self.answer = asyncio.Event()
        self.company: Lock | None = None

    async def lock(self, session: str) -> Lock | None:
        if session.startswith("ping:"):
            return None
        if session.startswith("company:"):
            self.asked.set()
            await self.answer.wait()
            self.company = Lock(self.now)
            return self.company
        return Lock(self.now)

    async def post(self, text: bytes, *, copies: int, life: float) -> None:
        raise AssertionError("nothing is to be told")

    async def hear(self, wait: float) -> bytes | None:
        await asyncio.sleep(wait)
        return None

    async def close(self) -> None:
        pass


async def leave_while_it_waits(one: Fleet, line: CrowdedLine) -> None:
    """Join, ask, and leave before the line has answered."""
    one.join("orders", lambda good: None)
    asking = asyncio.create_task(one.ask("orders"))
    await line.asked.wait()
    one.leave("orders")
    line.answer.set()
    await asking


async def test_who_leaves_while_it_waits_for_a_lock_keeps_none(manual_timers: ManualTimers) -> None:
    """Else those that stay would take it for company that is not there."""
    interval = 1000.0
    line = CrowdedLine(slot_at("orders", interval, 1e9).begin + interval / 2)

    async def open_line() -> CrowdedLine:
        return line

    one = Fleet(
        open_line, interval=interval, timers=manual_timers, random=lambda: 0.5, on_role=lambda *_: None
    )
    await leave_while_it_waits(one, line)
    assert line.company is not None
    assert not line.company.is_held
    await one.close()


async def test_who_leaves_while_it_waits_for_its_turn_plays_no_part(manual_timers: ManualTimers) -> None:
    """A metric would show it as the prober of an entity that is well, until the next outage."""

    class SlowLine(CrowdedLine):
        async def lock(self, session: str) -> Lock | None:
            if session.startswith("ping:"):
                self.asked.set()
                await self.answer.wait()
            return Lock(self.now)

    interval = 1000.0
    line, told = SlowLine(slot_at("orders", interval, 1e9).begin + interval / 2), list[str | None]()

    async def open_line() -> CrowdedLine:
        return line

    one = Fleet(
        open_line,
        interval=interval,
        timers=manual_timers,
        random=lambda: 0.5,
        on_role=lambda _, role: told.append(role),
    )
    await leave_while_it_waits(one, line)
    assert told[-1] is None
    await one.close()

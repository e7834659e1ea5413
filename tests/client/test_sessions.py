"""Order across a failback: sessions that have something in the backlog stay there until it has come home."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.exceptions import OperationTimeoutError

from pairbus.aio import PairedServiceBusClient
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings
from pairbus.client.sending.rounds import Bond, Round
from pairbus.client.sending.sessions import SessionKey, SessionPicture, StayingSessions
from pairbus.client.sending.ticket import Ending
from pairbus.ledger.operations import read_operations
from pairbus.ledger.segment import closed_segments
from pairbus.pairing.errors import BacklogUnavailableError
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import Pump
from pairbus.stages import Stage
from pairbus.testing import ManualTimers

from .scene import BACKLOG, Scene, eventually, text

INTERVAL = 60.0


def of(session: str, number: int) -> Any:
    return text(f"{session}{number}", session_id=session)


def staying(client: PairedServiceBusClient) -> int:
    sessions = client.status().sessions
    assert sessions is not None
    return sessions.staying


async def drain(scene: Scene) -> None:
    """What a syphon elsewhere does, which takes nobody for silent who is only slow."""
    pair = PumpPair.from_connection_strings(
        scene.primary.connection_string, scene.secondary.connection_string
    )
    await Pump(pair, BACKLOG, options=PumpOptions(drain=True, send_timeout=600.0)).run()


async def look_until(client: PairedServiceBusClient, timers: ManualTimers, count: int) -> None:
    """Wait until so many sessions stay. A look that a slow broker has not answered is made again, in time."""
    while staying(client) != count:
        await eventually(lambda: client.pair.sessions._task is None)  # type: ignore[union-attr]
        await timers.advance(INTERVAL)


def bodies(scene: Scene, session: str) -> list[str]:
    return [name for name in scene.ids("bills") if name.startswith(session)]


@pytest.fixture
def bills(still: Scene) -> Scene:
    still.primary.create_queue("bills", QueueSettings(requires_session=True))
    return still


async def test_a_session_stays_until_its_messages_are_home_and_the_others_go_back_at_once(
    bills: Scene, manual_timers: ManualTimers
) -> None:
    client = bills.client(ordering="session")
    sender = client.get_queue_sender("bills")
    client.fail_over("bills")
    await sender.send_messages([of("a", 0), of("a", 1)])
    client.mark_path_healthy("bills")
    await sender.send_messages(of("b", 0))
    await sender.send_messages(of("a", 2))
    assert bills.ids("bills") == ["b0"]
    assert bills.backlog_ids() == ["a0", "a1", "a2"]
    assert staying(client) == 1
    # As long as they are there it stays, however often the backlog is looked at.
    for number in (3, 4):
        await manual_timers.advance(INTERVAL)
        await eventually(lambda: client.pair.sessions._task is None)  # type: ignore[union-attr]
        await sender.send_messages(of("a", number))
    assert bills.backlog_ids() == ["a0", "a1", "a2", "a3", "a4"]
    await drain(bills)
    await look_until(client, manual_timers, 0)
    await sender.send_messages(of("a", 5))
    assert bodies(bills, "a") == [f"a{number}" for number in range(6)]
    assert bills.backlog_ids() == []


async def test_a_call_with_a_session_that_stays_goes_to_the_backlog_as_a_whole(bills: Scene) -> None:
    client = bills.client(ordering="session")
    sender = client.get_queue_sender("bills")
    client.fail_over("bills")
    await sender.send_messages(of("a", 0))
    client.mark_path_healthy("Bills")
    await sender.send_messages([of("b", 0), of("a", 1)])
    await sender.send_messages(of("b", 1))
    await sender.send_messages(of("c", 0))
    assert bills.backlog_ids() == ["a0", "b0", "a1", "b1"]
    assert bills.ids("bills") == ["c0"]


async def test_what_an_earlier_process_left_stays_as_well(bills: Scene, manual_timers: ManualTimers) -> None:
    earlier = bills.client(ordering="session")
    earlier.fail_over("bills")
    await earlier.get_queue_sender("bills").send_messages(of("a", 0))
    await earlier.close()
    client = bills.client(ordering="session")
    await client.start()
    await manual_timers.advance(0.0)
    await look_until(client, manual_timers, 1)
    await client.get_queue_sender("BILLS").send_messages([of("a", 1)])
    await client.get_queue_sender("bills").send_messages([of("b", 0)])
    assert bills.backlog_ids() == ["a0", "a1"]
    assert bills.ids("bills") == ["b0"]


async def test_no_send_overtakes_what_an_earlier_process_left_however_soon_it_comes(bills: Scene) -> None:
    for number in range(6):
        client = bills.client(ordering="session")
        if number == 0:
            client.fail_over("bills")
        await client.get_queue_sender("bills").send_messages(of("a", number))
        await client.close()
    assert bills.ids("bills") == []
    assert len(queues_of(bills)) == 1
    assert bills.backlog_ids() == [f"a{number}" for number in range(6)]


def in_queue(scene: Scene, queue: str) -> list[str]:
    return [message.message_id for message in scene.messages(queue, secondary=True)]


def queues_of(scene: Scene) -> list[str]:
    """The backlog queues that hold something."""
    return [queue for queue in BACKLOG if in_queue(scene, queue)]


async def test_a_session_waits_for_its_own_queue(scene: Scene) -> None:
    """Order is kept within one queue: what another one takes meanwhile could come home first."""
    scene.primary.create_queue("bills", QueueSettings(requires_session=True))
    client = scene.client(ordering="session", send_timeout=60.0)
    sender = client.get_queue_sender("bills")
    client.fail_over("bills")
    await sender.send_messages(of("a", 0))
    (queue,) = queues_of(scene)
    scene.secondary.faults.set("error", entity=queue)
    waiting = asyncio.ensure_future(sender.send_messages(of("a", 1)))
    await eventually(lambda: any(not one.usable for one in client.status().rotation))
    await sender.send_messages(of("b", 0))
    scene.secondary.faults.clear()
    await waiting
    assert in_queue(scene, queue) == ["a0", "a1"]
    await eventually(lambda: all(one.usable for one in client.status().rotation))
    assert len(queues_of(scene)) == 2


async def test_who_stood_behind_a_failed_send_does_not_open_another_queue_for_ever(scene: Scene) -> None:
    scene.primary.create_queue("bills", QueueSettings(requires_session=True))
    client = scene.client(ordering="session", send_timeout=60.0)
    sender: Any = client.get_queue_sender("bills")
    client.fail_over("bills")
    await sender.send_messages(of("a", 0))
    await sender.send_messages(of("b", 0))
    (queue,) = queues_of(scene)
    route = sender._client.pair.backlog
    open_or_remove = route._open_or_remove
    ends: list[float] = []

    async def open_other(other: str, until: float) -> bool:
        ends.append(until)
        return bool(await open_or_remove(other, until))

    route._open_or_remove = open_other
    scene.secondary.faults.set("error", entity=queue)
    waiting = asyncio.gather(*(sender.send_messages(of(session, 1)) for session in "ab"))
    await eventually(lambda: len(ends) > 1)
    scene.secondary.faults.clear()
    await waiting
    assert max(ends) < math.inf


async def test_a_round_that_ends_while_its_queue_is_tried_again_is_not_throttled(scene: Scene) -> None:
    """Nobody else is sent away for it, and no time is left to ask another queue."""
    scene.primary.create_queue("bills", QueueSettings(requires_session=True))
    client = scene.client(ordering="session")
    client.fail_over("bills")
    sender: Any = client.get_queue_sender("bills")
    await sender.send_messages(of("a", 0))
    (queue,) = queues_of(scene)
    route = sender._client.pair.backlog
    link, bond = route._link(queue), Bond(queue)
    wanted = Round("bills", None, bond=bond)
    wanted.failures, wanted.ends = 1, route._timers.now()
    link.rest(1000.0)
    assert await route._rest_out(link, wanted) is Ending.OUT_OF_TIME
    route._open_or_remove = None
    assert await route._keeps_to(queue, wanted, bond)


async def test_a_session_leaves_a_queue_that_is_full(bills: Scene, caplog: pytest.LogCaptureFixture) -> None:
    client = bills.client(ordering="session")
    sender = client.get_queue_sender("bills")
    client.fail_over("bills")
    await sender.send_messages(of("a", 0))
    (queue,) = queues_of(bills)
    bills.secondary.faults.set("full", entity=queue)
    await sender.send_messages(of("a", 1))
    (other,) = set(queues_of(bills)) - {queue}
    bills.secondary.faults.clear()
    await sender.send_messages(of("a", 2))
    assert in_queue(bills, other) == ["a1", "a2"]
    assert "goes on without its order, in another queue" in caplog.text


async def test_a_session_in_several_queues_goes_on_where_its_youngest_message_is(bills: Scene) -> None:
    """Also in another process, which finds it in all of them: order is kept behind that one alone."""
    first, second, third = BACKLOG
    for number, full in enumerate(((second, third), (first, second), ())):
        for queue in full:
            bills.secondary.faults.set("full", entity=queue)
        client = bills.client(ordering="session")
        client.fail_over("bills")
        await client.get_queue_sender("bills").send_messages(of("a", number))
        await client.close()
        bills.secondary.faults.clear()
    assert (in_queue(bills, first), in_queue(bills, third)) == (["a0"], ["a1", "a2"])


async def test_a_backlog_that_cannot_be_looked_at_keeps_its_sessions(
    bills: Scene, manual_timers: ManualTimers
) -> None:
    client = bills.client(ordering="session")
    sender = client.get_queue_sender("bills")
    client.fail_over("bills")
    await sender.send_messages(of("a", 0))
    client.mark_path_healthy("bills")
    bills.secondary.faults.set("refuse")
    await manual_timers.advance(INTERVAL)
    await eventually(lambda: client.status().sessions.last_error is not None)  # type: ignore[union-attr]
    # Order before availability: that is what the option says.
    with pytest.raises(BacklogUnavailableError):
        await sender.send_messages(of("a", 1))
    await sender.send_messages(of("b", 0))
    assert staying(client) == 1
    assert bills.ids("bills") == ["b0"]


async def test_what_the_looks_cost_is_in_the_ledger(
    bills: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = bills.client(ordering="session", state_dir=tmp_path)
    client.fail_over("bills")
    await client.get_queue_sender("bills").send_messages(of("a", 0))
    client.mark_path_healthy("bills")
    await manual_timers.advance(INTERVAL)
    await eventually(lambda: client.pair.sessions._task is None)  # type: ignore[union-attr]
    await client.close()
    ledger = read_operations(closed_segments(tmp_path / "records", "operations"))
    asked = [one for one in ledger.operations if one.kind == "management"]
    assert {(one.role, one.stage, one.namespace) for one in asked} == {
        ("client", Stage.MANAGEMENT, "contoso-dr")
    }
    requests = bills.secondary.count(OperationKind.MANAGEMENT)
    assert sum(one.count for one in asked) == requests == 2 * len(BACKLOG) + 1, "at the start, and then"


async def test_with_a_hosted_syphon_a_busy_session_comes_back_in_order(scene: Scene) -> None:
    """It is sent to without a pause, through the outage and after it."""
    scene.primary.create_queue("bills", QueueSettings(requires_session=True))
    options: dict[str, Any] = {"enable_syphon": True, "ping_primary_interval": 5.0, "send_timeout": 60.0}
    async with scene.client(ordering="session", **options) as client:
        sender = client.get_queue_sender("bills")
        client.fail_over("bills")
        number = 0
        while number < 20 or staying(client):
            await sender.send_messages(of("a", number))
            number += 1
            assert number < 3000, "the session never went back"
            if number == 20:
                client.mark_path_healthy("bills")
            await asyncio.sleep(0.1)
        for _ in range(5):
            await sender.send_messages(of("a", number))
            number += 1
        await eventually(lambda: len(scene.ids("bills")) == number)
        assert scene.ids("bills") == [f"a{index}" for index in range(number)]
        assert client.status().entities[0].sent["primary"]["ok"] >= 5


class Backlog:
    """Something to look at."""

    def __init__(self) -> None:
        self.first = 0
        self.count = 0
        self.looks = 0
        self.during: Any = None

    async def look(self, wanted: set[SessionKey] | None) -> SessionPicture:
        self.looks += 1
        picture = SessionPicture()
        for number in range(self.first, self.first + self.count):
            picture.note(SessionKey("bills", "a"), "q", number)
        if self.during is not None:
            self.during()
        return picture


@pytest.fixture
def backlog() -> Backlog:
    return Backlog()


@pytest.fixture
async def sessions(backlog: Backlog, manual_timers: ManualTimers) -> StayingSessions:
    return StayingSessions(
        backlog.look,
        timers=manual_timers,
        interval=INTERVAL,
        is_up=lambda path: True,
    )


def is_held(sessions: StayingSessions) -> bool:
    return any(stay.hold is not None for stay in sessions.staying.values())


def redirect(sessions: StayingSessions) -> None:
    with sessions.redirecting("bills", [of("a", 0)]):
        pass


async def test_a_message_on_its_way_keeps_its_session(
    sessions: StayingSessions, manual_timers: ManualTimers
) -> None:
    with sessions.redirecting("bills", [of("a", 0), of("a", 1)]):
        sessions._arm(0.0)
        await manual_timers.advance(1.0)
        assert sessions.staying
    await manual_timers.advance(INTERVAL)
    assert not sessions.staying
    assert manual_timers.next_at is None, "nobody looks when nobody stays"


async def test_a_redirect_during_a_look_keeps_its_session(
    sessions: StayingSessions, backlog: Backlog, manual_timers: ManualTimers
) -> None:
    redirect(sessions)
    backlog.during = lambda: redirect(sessions)
    await manual_timers.advance(INTERVAL)
    assert backlog.looks == 1
    assert sessions.staying
    backlog.during = None
    await manual_timers.advance(INTERVAL)
    assert not sessions.staying


async def test_messages_without_a_session_stay_nowhere(sessions: StayingSessions) -> None:
    with sessions.redirecting("bills", [text("plain")]):
        assert not sessions.staying
    assert sessions.stay_of("bills", [text("plain")]) is None


async def test_a_session_that_comes_home_is_held_for_the_last_of_it(
    sessions: StayingSessions, backlog: Backlog, manual_timers: ManualTimers
) -> None:
    redirect(sessions)
    backlog.count = 2
    await manual_timers.advance(INTERVAL)
    assert not is_held(sessions), "nothing has moved yet"
    backlog.first, backlog.count = 1, 1
    await manual_timers.advance(INTERVAL)
    assert is_held(sessions)
    stay = sessions.stay_of("bills", [of("a", 1)])
    assert stay is not None
    waiting = asyncio.ensure_future(sessions.wait_out(stay, None))
    late = asyncio.ensure_future(sessions.wait_out(stay, manual_timers.now() + 0.1))
    await manual_timers.advance(0.2)
    assert not waiting.done()
    with pytest.raises(OperationTimeoutError):
        await late
    backlog.count = 0
    await manual_timers.advance(0.5)
    await waiting
    assert not sessions.staying


async def test_a_hold_does_not_last(
    sessions: StayingSessions, backlog: Backlog, manual_timers: ManualTimers
) -> None:
    redirect(sessions)
    backlog.count = 2
    await manual_timers.advance(INTERVAL)
    backlog.first = 1
    await manual_timers.advance(INTERVAL)
    stay = sessions.stay_of("bills", [of("a", 1)])
    assert stay is not None
    waiting = asyncio.ensure_future(sessions.wait_out(stay, None))
    await manual_timers.advance(6.0)
    await waiting
    assert stay.hold is None
    assert sessions.staying, "it goes to the backlog once more"
    await sessions.close()
    assert manual_timers.next_at is None

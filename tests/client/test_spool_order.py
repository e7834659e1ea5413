"""The spool counts for the order of sessions, also after a restart."""

from datetime import datetime
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from pairbus.client.errors import SpoolFullError
from pairbus.client.sending.message import Message
from pairbus.client.sending.spool import Spool
from pairbus.client.sending.spool_lane import SpoolLane
from pairbus.testing import ManualTimers

from .outage import in_an_outage, in_time
from .scene import Scene, eventually, text


def of(session: str, number: int) -> ServiceBusMessage:
    return text(f"{session}{number:03}", session_id=session)


async def test_the_next_process_does_not_overtake_what_the_last_one_spooled(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = await in_an_outage(still, tmp_path, ordering="session")
    sender = client.get_queue_sender("orders")
    for number in range(30):
        await sender.send_messages(of("s", number))
    assert client.status().spool.messages == 30  # type: ignore[union-attr]
    await client.close()
    still.primary.faults.clear()
    still.secondary.faults.clear()
    later = still.client(state_dir=tmp_path, enable_spool=True, ordering="session")
    sender = later.get_queue_sender("orders")
    for number in range(30, 40):  # the first of them before anything else
        await sender.send_messages(of("s", number))
    await in_time(still, lambda: len(still.all_ids()) == 41)
    arrived = [*still.ids(), *still.backlog_ids()]
    assert arrived == ["before", *(f"s{number:03}" for number in range(40))]


async def test_what_was_spooled_behind_the_backlog_stays_behind_it_in_the_next_process(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    client = await in_an_outage(still, tmp_path, ordering="session")
    still.secondary.faults.clear()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(of("s", 0))
    still.secondary.faults.set("refuse")
    await sender.send_messages(of("s", 1))
    await client.close()
    assert still.backlog_ids() == ["s000"]
    still.primary.faults.clear()  # the backlog cannot be looked at yet
    later = still.client(state_dir=tmp_path, enable_spool=True, ordering="session")
    sender = later.get_queue_sender("orders")
    await sender.send_messages(text("without a session"))
    waiting = still.begin(sender.send_messages(of("s", 2)))
    await in_time(still, waiting.done)
    assert still.ids() == ["before", "without a session"]
    still.secondary.faults.clear()
    await in_time(still, lambda: set(still.backlog_ids()) == {"s000", "s001", "s002"})
    assert still.ids() == ["before", "without a session"]


async def test_a_session_that_was_never_redirected_does_not_wait_for_the_secondary(
    tmp_path: Path, manual_timers: ManualTimers
) -> None:
    told: list[str] = []
    taken: list[str] = []

    async def take(path: str, messages: list[Message], when: datetime | None) -> None:
        taken.extend(map(str, messages))

    def remember(path: str, messages: list[Message]) -> None:
        told.extend(map(str, messages))

    spool = Spool(tmp_path, limit=1 << 20, keeps_sessions=True)
    await spool.append("orders", [of("s", 0)], stays=False)
    await spool.append("orders", [of("t", 0)], stays=True)
    spool.start(take, timers=manual_timers, on_stay=remember)
    await eventually(lambda: taken == ["s000", "t000"])
    assert told == ["t000"]
    await spool.close()


async def test_where_the_spool_is_full_a_session_does_not_overtake_what_others_may(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await in_an_outage(still, tmp_path, ordering="session")
    sender = client.get_queue_sender("orders")
    await sender.send_messages(of("s", 0))
    still.secondary.faults.clear()

    async def wait(lane: SpoolLane) -> bool:
        return False

    monkeypatch.setattr(SpoolLane, "_drain", wait)
    spool = client.pair.spool
    assert spool is not None
    spool._limit = spool._size
    await manual_timers.advance(60.0)  # the backlog queues are tried again
    await sender.send_messages(text("without a session"))
    with pytest.raises(SpoolFullError):
        await sender.send_messages(of("s", 1))
    assert still.backlog_ids() == ["without a session"]
    assert client.status().spool.messages == 1  # type: ignore[union-attr]

"""When things happen, to the millisecond: the client's time stands still until the test lets it pass."""

import asyncio
from typing import Any

import pytest
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError

from pairbus.aio import PairedSender
from pairbus.broker import OperationKind
from pairbus.options import EntityState
from pairbus.testing import ManualTimers

from .scene import TRANSPORT, Scene, eventually, text

HEALTHY, SUSPECT, FAILED_OVER = EntityState.HEALTHY, EntityState.SUSPECT, EntityState.FAILED_OVER
A_MOMENT = 0.001


@pytest.fixture
def timers(manual_timers: ManualTimers) -> ManualTimers:
    return manual_timers


def is_due_in_a_moment(timers: ManualTimers) -> bool:
    """Whether the next thing that the client does by itself is a moment away, and so not done yet."""
    return timers.next_at == pytest.approx(timers.now() + A_MOMENT, abs=A_MOMENT / 10)


async def begun_on_a_dead_peer(scene: Scene, kind: str, **settings: Any) -> tuple[PairedSender, Any]:
    """A sender that has sent once, and a send that meets a peer that is dead."""
    sender = scene.sender(**settings)
    await sender.send_messages(text("before"))
    scene.primary.faults.set(kind)
    sending = scene.begin(sender.send_messages(text("during")))
    if kind in ("silence", "blackhole", "delay"):
        await scene.on_the_wire()
    return sender, sending


@pytest.mark.parametrize("kind", ["silence", "blackhole", "delay"])
async def test_a_silent_peer_fails_over_an_interval_after_the_first_send(
    still: Scene, timers: ManualTimers, kind: str
) -> None:
    _, sending = await begun_on_a_dead_peer(still, kind, failover_interval=30.0, send_timeout=60.0)
    await timers.advance(30.0 - A_MOMENT)
    assert still.state() is HEALTHY
    await timers.advance(A_MOMENT)
    assert still.state() is FAILED_OVER
    await sending
    assert still.backlog_ids() == ["during"]
    assert [change.new for change in still.diary.changes] == [FAILED_OVER]


async def test_attempts_that_time_out_do_not_prolong_the_interval(still: Scene, timers: ManualTimers) -> None:
    _, sending = await begun_on_a_dead_peer(still, "silence", retry_delay=0.25)
    began = timers.now()
    await timers.advance(10.0 - A_MOMENT)
    assert still.state() is HEALTHY
    await timers.advance(A_MOMENT)
    assert still.state() is SUSPECT
    assert still.diary.outcomes("primary") == ["ok", "unknown"]
    while timers.now() < began + 60.0 - A_MOMENT:
        await timers.advance(min(5.0, began + 60.0 - A_MOMENT - timers.now()))
    assert still.state() is SUSPECT
    await timers.advance(A_MOMENT)
    assert still.state() is FAILED_OVER
    await sending
    assert still.backlog_ids() == ["during"]


async def test_time_in_the_line_counts(still: Scene, timers: ManualTimers) -> None:
    sender, first = await begun_on_a_dead_peer(still, "silence", failover_interval=30.0, send_timeout=60.0)
    await timers.advance(20.0)
    others = [still.begin(sender.send_messages(text(f"other {number}"))) for number in range(3)]
    await timers.advance(10.0)
    assert still.state() is FAILED_OVER
    await asyncio.gather(first, *others)
    assert still.backlog_ids() == ["during", "other 0", "other 1", "other 2"]


async def test_a_success_stops_the_clock(still: Scene, timers: ManualTimers) -> None:
    _, sending = await begun_on_a_dead_peer(
        still, "refuse", failover_interval=30.0, retry_delay=29.0, retry_delay_max=29.0
    )
    await eventually(lambda: still.state() is SUSPECT)
    still.primary.faults.clear()
    await timers.advance(29.0)
    await sending
    assert still.state() is HEALTHY
    await timers.advance(100.0)
    assert still.diary.states == ["suspect", "healthy"]
    assert still.ids() == ["before", "during"]


async def test_with_an_interval_of_0_the_very_send_that_failed_goes_to_the_backlog(still: Scene) -> None:
    _, sending = await begun_on_a_dead_peer(still, "refuse", failover_interval=0.0)
    await sending
    assert still.state() is FAILED_OVER
    assert still.backlog_ids() == ["during"]


async def test_with_an_interval_of_0_a_silent_peer_has_the_time_of_one_attempt(
    still: Scene, timers: ManualTimers
) -> None:
    _, sending = await begun_on_a_dead_peer(still, "silence", failover_interval=0.0)
    await timers.advance(10.0 - A_MOMENT)
    assert still.state() is HEALTHY
    await timers.advance(A_MOMENT)
    assert still.state() is FAILED_OVER
    await sending
    assert still.backlog_ids() == ["during"]


async def test_a_caller_gets_its_time_and_no_more(still: Scene, timers: ManualTimers) -> None:
    sender = still.sender(transport="sdk")  # by our own AMQP nobody would stand in line
    await sender.send_messages(text("before"))
    still.primary.faults.set("silence")
    on_the_wire = still.begin(sender.send_messages(text("one"), timeout=3.0))
    await still.on_the_wire()
    in_line = still.begin(sender.send_messages(text("two"), timeout=2.0))
    await timers.advance(2.0 - A_MOMENT)
    assert not in_line.done()
    await timers.advance(A_MOMENT)
    with pytest.raises(OperationTimeoutError):
        await in_line
    assert not on_the_wire.done()
    assert still.state() is HEALTHY  # who only waited in line has seen nothing
    await timers.advance(1.0)
    with pytest.raises(OperationTimeoutError):
        await on_the_wire
    assert still.state() is SUSPECT


async def test_a_caller_whose_time_ends_while_it_is_held_is_told(still: Scene, timers: ManualTimers) -> None:
    sender = still.sender(retry_delay=10.0, retry_delay_max=10.0)
    await sender.send_messages(text("before"))
    still.primary.faults.set("refuse")
    held = still.begin(sender.send_messages(text("held"), timeout=5.0))
    await eventually(lambda: still.state() is SUSPECT)
    await timers.advance(5.0 - A_MOMENT)
    assert not held.done()
    await timers.advance(A_MOMENT)
    with pytest.raises(OperationTimeoutError):
        await held


@pytest.mark.parametrize(("interval", "patience"), [(30.0, 2.9), (10.0, 0.9), (5.0, 0.4)])
async def test_callers_with_little_patience_fail_over_all_the_same(
    still: Scene, timers: ManualTimers, interval: float, patience: float
) -> None:
    """Those that cancel their sends do not know that they should wait; the entity is found dead anyway."""
    sender = still.sender(failover_interval=interval)
    await sender.send_messages(text("before"))
    still.primary.faults.set("silence")
    for _ in range(10):
        sending = still.begin(sender.send_messages(text("impatient")))
        await still.on_the_wire()
        await timers.advance(patience)
        sending.cancel()
        await asyncio.wait({sending})
        await timers.advance(0.1)
    assert still.state() is FAILED_OVER
    await sender.send_messages(text("after"))
    assert still.backlog_ids() == ["after"]


async def test_a_send_cancelled_at_once_tells_nothing(still: Scene, timers: ManualTimers) -> None:
    _, sending = await begun_on_a_dead_peer(still, "silence")
    await timers.advance(0.5)
    sending.cancel()
    await asyncio.wait({sending})
    await timers.advance(600.0)
    assert still.diary.changes == []


async def test_in_raise_mode_the_caller_sees_the_failure_and_the_failover_comes_all_the_same(
    still: Scene, timers: ManualTimers
) -> None:
    sender, sending = await begun_on_a_dead_peer(still, "refuse", on_suspect="raise", failover_interval=30.0)
    with pytest.raises(ServiceBusConnectionError):
        await sending
    assert still.state() is SUSPECT
    with pytest.raises(ServiceBusConnectionError):  # no rest: the caller decides when to try again
        await sender.send_messages(text("again"))
    await timers.advance(30.0)
    assert still.state() is FAILED_OVER
    await sender.send_messages(text("after"))
    assert still.backlog_ids() == ["after"]


async def test_a_dead_peer_is_knocked_at_once_a_rest_however_many_wait(
    still: Scene, timers: ManualTimers
) -> None:
    sender = still.sender(retry_delay=1.0, retry_delay_max=4.0)
    await sender.send_messages(text("before"))
    still.primary.faults.set("refuse")
    sends = [still.begin(sender.send_messages(text(f"{number:02d}"))) for number in range(50)]
    began = timers.now()
    await eventually(lambda: still.state() is SUSPECT)
    knocks: list[float] = []
    for _ in range(16):
        await still.quiet()  # the SDK has found out that nobody answers
        attempts = len(still.diary.outcomes("primary")) - 1
        knocks.extend([timers.now() - began] * (attempts - len(knocks)))
        await timers.advance(1.0)
    # The first when the connection broke, then after 1, 2, 4, 4, ... seconds.
    broken_off = 1 if TRANSPORT == "sdk" else len(sends)  # by our own AMQP all are on the way at once
    assert knocks == [*[0.0] * broken_off, 1.0, 3.0, 7.0, 11.0, 15.0]
    still.primary.faults.clear()
    await timers.advance(5.0)
    await asyncio.wait_for(asyncio.gather(*sends), 1000)
    assert sorted(still.ids()[1:]) == [f"{number:02d}" for number in range(50)]
    assert still.backlog() == []


async def test_a_throttled_send_waits_what_the_service_asks(still: Scene, timers: ManualTimers) -> None:
    sender, sending = await begun_on_a_dead_peer(still, "busy")
    behind = still.begin(sender.send_messages(text("behind")))
    await eventually(lambda: "failed" in still.diary.outcomes("primary"))
    await still.quiet()
    if TRANSPORT == "sdk":  # by our own AMQP the other one may be on the way at once
        assert still.diary.outcomes("primary") == ["ok", "failed"]
    still.primary.faults.clear()
    await timers.advance(2.0 - A_MOMENT)
    assert is_due_in_a_moment(timers)
    assert not sending.done()
    await timers.advance(A_MOMENT)
    await asyncio.gather(sending, behind)
    assert still.ids() == ["before", "during", "behind"]
    assert still.diary.changes == []


async def test_a_throttled_send_waits_10_s_if_nothing_is_said(still: Scene, timers: ManualTimers) -> None:
    sender = still.sender()
    await sender.send_messages(text("before"))
    still.primary.faults.set("error", condition="com.microsoft:server-busy")
    sending = still.begin(sender.send_messages(text("during")))
    await eventually(lambda: still.diary.outcomes("primary") == ["ok", "failed"])
    still.primary.faults.clear()
    await timers.advance(10.0 - A_MOMENT)
    assert is_due_in_a_moment(timers)
    assert not sending.done()
    await timers.advance(A_MOMENT)
    await sending
    assert still.diary.changes == []


@pytest.mark.parametrize("is_marked", [False, True])
async def test_who_is_throttled_waits_whatever_becomes_of_others_meanwhile(
    still: Scene, timers: ManualTimers, is_marked: bool
) -> None:
    sender, silent = await begun_on_a_dead_peer(still, "delay", links_per_entity=2)
    await timers.advance(5.0)
    still.primary.faults.set("error", condition="com.microsoft:server-busy")
    throttled = still.begin(sender.send_messages(text("throttled")))
    await eventually(lambda: still.diary.outcomes("primary") == ["ok", "failed"])
    still.primary.faults.clear()
    await timers.advance(5.0)
    await eventually(lambda: still.state() is SUSPECT)
    await still.quiet()
    assert (throttled.done(), silent.done()) == (False, False)
    if is_marked:
        sender._client.mark_path_healthy("orders")
        await still.quiet()
    await timers.advance(5.0 - A_MOMENT)
    assert is_due_in_a_moment(timers)
    assert not throttled.done()
    await timers.advance(A_MOMENT)
    await asyncio.gather(throttled, silent)
    assert still.state() is HEALTHY


async def test_throttling_counts_after_a_while_if_that_is_wanted(still: Scene, timers: ManualTimers) -> None:
    _, sending = await begun_on_a_dead_peer(still, "busy", count_throttled_after=10.0, failover_interval=20.0)
    for _ in range(20):
        await still.quiet()
        await timers.advance(2.0)
    assert still.state() is FAILED_OVER
    await sending
    assert still.backlog_ids() == ["during"]


async def test_the_first_ping_goes_out_with_the_failover_and_then_each_interval(
    still: Scene, timers: ManualTimers
) -> None:
    _, sending = await begun_on_a_dead_peer(still, "refuse", failover_interval=0.0, ping_jitter=0.0)
    await sending
    await eventually(lambda: still.diary.pings == [False])
    await timers.advance(60.0 - A_MOMENT)
    assert is_due_in_a_moment(timers)
    assert still.diary.pings == [False]
    await timers.advance(A_MOMENT)
    await eventually(lambda: still.diary.pings == [False, False])
    still.primary.faults.clear()
    await timers.advance(60.0)
    await eventually(lambda: still.state() is HEALTHY)
    assert still.diary.pings == [False, False, True]
    await timers.advance(600.0)
    assert still.diary.pings == [False, False, True]  # they stop as soon as the entity is available


async def test_jitter_brings_pings_forward_and_never_back(
    still: Scene, timers: ManualTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)
    client = still.client(ping_jitter=0.5, ping_primary_interval=100.0)
    client.fail_over("orders")
    await timers.advance(75.0 - A_MOMENT)
    assert is_due_in_a_moment(timers)
    assert still.diary.pings == []
    await timers.advance(A_MOMENT)
    await eventually(lambda: still.diary.pings == [True])


async def test_a_ping_that_meets_silence_does_not_hold_up_the_failback(
    still: Scene, timers: ManualTimers
) -> None:
    _, sending = await begun_on_a_dead_peer(
        still, "silence", failover_interval=5.0, ping_primary_interval=2.0, ping_jitter=0.0
    )
    await timers.advance(5.0)
    assert still.state() is FAILED_OVER
    await sending
    await timers.advance(1.0)
    still.primary.faults.clear()  # half-way through a ping that will never be answered
    await timers.advance(1.0)
    await eventually(lambda: still.state() is HEALTHY, what="the failback, one interval after the ping")
    assert still.diary.pings == [False, True]


async def test_a_link_that_was_closed_while_idle_is_opened_again_once_with_no_change_of_state(
    still: Scene, timers: ManualTimers
) -> None:
    """The message may have left before the SDK noticed: that attempt is told, since it may be a copy."""
    sender = still.sender()
    await sender.send_messages(text("before"))
    await timers.advance(600.0)
    still.primary.faults.set("reset")
    still.primary.faults.clear()
    await sender.send_messages(text("after"))
    assert still.ids() == ["before", "after"]
    assert still.diary.changes == []
    assert still.diary.outcomes("primary") == ["ok", "unknown", "ok"]


async def test_a_link_that_is_lost_while_in_use_makes_the_entity_suspect(
    still: Scene, timers: ManualTimers
) -> None:
    sender = still.sender()
    await sender.send_messages(text("before"))
    await timers.advance(10.0)
    still.primary.faults.set("reset")
    still.primary.faults.clear()
    sending = still.begin(sender.send_messages(text("after")))
    await eventually(lambda: still.state() is SUSPECT)
    await timers.advance(0.25)
    await sending
    assert still.diary.states == ["suspect", "healthy"]


async def test_a_refusal_after_an_idle_spell_is_not_sent_again(still: Scene, timers: ManualTimers) -> None:
    sender = still.sender(on_suspect="raise")
    await sender.send_messages(text("before"))
    await timers.advance(600.0)
    still.primary.faults.set("error", condition="amqp:internal-error")
    with pytest.raises(ServiceBusError):
        await sender.send_messages(text("refused"))
    assert still.primary.count(OperationKind.SEND_REFUSED) == 1


async def test_cancelling_a_schedule_behind_a_held_send_keeps_to_its_time(
    still: Scene, timers: ManualTimers
) -> None:
    sender, sending = await begun_on_a_dead_peer(still, "silence")
    cancelling = still.begin(sender.cancel_scheduled_messages(1, timeout=1.0))
    await eventually(lambda: sender._client.pair.entity("orders")._links[0].length == 2)
    await timers.advance(1.0)
    with pytest.raises(OperationTimeoutError):
        await cancelling
    assert not sending.done()
    sending.cancel()


async def test_what_is_dead_after_an_idle_spell_is_found_dead(still: Scene, timers: ManualTimers) -> None:
    sender = still.sender(failover_interval=0.0)
    await sender.send_messages(text("before"))
    await timers.advance(600.0)
    still.primary.faults.set("refuse")
    await sender.send_messages(text("during"))
    assert still.backlog_ids() == ["during"]

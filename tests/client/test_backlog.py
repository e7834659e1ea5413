"""The way through the backlog and back: rotation, pings, faulted entities, and what is done by hand."""

import asyncio
import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError, ServiceBusQuotaExceededError

from pairbus.aio import PairedSender
from pairbus.broker.counters import OperationKind
from pairbus.broker.engine.settings import QueueSettings, SubscriptionSettings
from pairbus.client.errors import ClientClosedError, SpoolFullError
from pairbus.client.observers.observer import Observer, Sending
from pairbus.client.sending.spool import Spool
from pairbus.options import EntityState
from pairbus.pairing.errors import BacklogUnavailableError, PairFaultedError, PrimaryEntityFault
from pairbus.testing import ManualTimers

from .scene import BACKLOG, TRANSPORT, Scene, eventually, sending_method, text

HEALTHY, FAILED_OVER, FAULTED = EntityState.HEALTHY, EntityState.FAILED_OVER, EntityState.FAULTED


def down(scene: Scene, path: str = "orders", **settings: Any) -> PairedSender:
    sender = scene.sender(path, **settings)
    sender._client.fail_over(path)
    return sender


def usable(sender: PairedSender) -> list[str]:
    return [queue.name for queue in sender._client.status().rotation if queue.usable]


def counts(scene: Scene) -> list[int]:
    return [scene.secondary.message_count(queue) for queue in BACKLOG]


async def test_a_sender_keeps_its_queue_and_many_senders_spread(still: Scene) -> None:
    client = still.client()
    chances = itertools.cycle([0.1, 0.9, 0.5, 0.4])
    client.pair.backlog.rotation._random = lambda: next(chances)
    for number in range(12):
        client.fail_over(f"queue-{number}")
        sender = client.get_queue_sender(f"queue-{number}")
        for turn in range(3):
            await sender.send_messages(text(f"{number}-{turn}"))
    by_queue = [still.messages(queue, secondary=True) for queue in BACKLOG]
    assert all(by_queue)
    for held in by_queue:
        senders = [message.message_id.partition("-")[0] for message in held]
        assert all(senders.count(sender) == 3 for sender in senders)


@pytest.mark.parametrize("value", [object(), 2**70])
async def test_what_cannot_be_written_counts_as_failed_and_not_as_unknown(still: Scene, value: Any) -> None:
    sender = down(still)
    await sender.send_messages(text("first"))  # so that a link is open
    with pytest.raises(ServiceBusError):
        await sender.send_messages(ServiceBusMessage("x", application_properties={"value": value}))
    assert still.diary.outcomes("backlog") == ["ok", "failed"]


async def test_a_queue_that_fails_leaves_for_everybody_and_comes_back_after_its_cool_down(
    still: Scene, manual_timers: ManualTimers
) -> None:
    client = still.client(rotation_cool_down=60.0)
    client.pair.backlog.rotation._random = lambda: 0.0  # always the first that is usable
    one, other = client.get_queue_sender("one"), client.get_queue_sender("other")
    client.fail_over("one")
    client.fail_over("other")
    await asyncio.gather(one.send_messages(text("a")), other.send_messages(text("b")))
    assert counts(still) == [2, 0, 0]
    still.secondary.faults.set("refuse", entity=BACKLOG[0])
    await one.send_messages(text("c"))
    assert still.diary.rotations == [(2, 3)]
    assert usable(one) == [*BACKLOG[1:]]
    await other.send_messages(text("d"))  # it need not find out by itself
    assert counts(still) == [2, 2, 0]
    assert len([sending for sending in still.diary.sendings if sending.outcome != "ok"]) == 1
    still.secondary.faults.clear()
    await manual_timers.advance(60.0)
    assert usable(one) == [*BACKLOG]
    client.fail_over("third")
    await client.get_queue_sender("third").send_messages(text("e"))
    await one.send_messages(text("f"))  # who has moved on stays
    assert counts(still) == [3, 3, 0]
    assert still.diary.rotations == [(2, 3), (3, 3)]


async def test_those_who_wait_for_a_queue_that_fails_go_to_another_in_their_order(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = down(still)
    sender._client.pair.backlog.rotation._random = lambda: 0.0
    await sender.send_messages(text("first"))
    still.secondary.faults.set("silence", entity=BACKLOG[0])
    sends = [still.begin(sender.send_messages(text(f"{number:02d}"))) for number in range(20)]
    link = sender._client.pair.backlog._links[BACKLOG[0]]
    await eventually(lambda: link.is_calling and link.length == 20)
    await manual_timers.advance(10.0)
    await asyncio.gather(*sends)
    assert sorted(counts(still)) == [0, 1, 20]  # whichever of the other two opened first
    assert still.backlog_ids() == ["first", *(f"{number:02d}" for number in range(20))]


async def test_none_left_is_told_with_the_reason_and_the_time(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = down(still, rotation_cool_down=30.0)
    still.secondary.faults.set("refuse")
    with pytest.raises(BacklogUnavailableError) as caught:
        await sender.send_messages(text("lost"))
    assert caught.value.queues == 3
    assert caught.value.retry_after == pytest.approx(30.0)
    assert "ServiceBusConnectionError" in str(caught.value)
    assert usable(sender) == []
    with pytest.raises(BacklogUnavailableError):
        await sender.send_messages(text("lost"))
    still.secondary.faults.clear()
    await manual_timers.advance(30.0)
    await sender.send_messages(text("kept"))
    assert still.backlog_ids() == ["kept"]


async def test_sends_go_on_as_soon_as_the_secondary_is_back_whatever_the_cool_down(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = down(still, rotation_cool_down=3600.0)
    still.secondary.faults.set("refuse")
    with pytest.raises(BacklogUnavailableError):
        await sender.send_messages(text("lost"))
    still.secondary.faults.clear()
    await manual_timers.advance(1.0)
    await eventually(lambda: usable(sender))
    assert still.diary.rotations[-1] == (1, 3)
    await sender.send_messages(text("kept"))
    assert still.backlog_ids() == ["kept"]


class CutOff(Observer):
    """Lets the secondary fail as soon as a part of a call is in the backlog."""

    def __init__(self, scene: Scene, fault: str) -> None:
        self._scene = scene
        self._fault = fault

    def sent(self, sending: Sending) -> None:
        if (sending.route, sending.outcome) == ("backlog", "ok"):
            self._scene.secondary.faults.set(self._fault)


def in_two_parts() -> list[ServiceBusMessage]:
    """A list that no batch of the backlog holds."""
    return [ServiceBusMessage(b"x" * 100_000, message_id=f"{number}") for number in range(4)]


async def test_an_error_tells_which_part_is_in_the_backlog(still: Scene) -> None:
    sender = down(still, observers=[CutOff(still, "refuse")])
    with pytest.raises(BacklogUnavailableError, match="The first 2 of the 4 messages") as caught:
        await sender.send_messages(in_two_parts())
    assert caught.value.taken == 2
    assert pickle.loads(pickle.dumps(caught.value)).taken == 2
    still.secondary.faults.clear()
    assert still.backlog_ids() == ["0", "1"]


async def test_a_call_whose_time_is_over_tells_which_part_is_in_the_backlog(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = down(still, observers=[CutOff(still, "silence")])
    sending = still.begin(sender.send_messages(in_two_parts(), timeout=5.0))
    await eventually(lambda: len(still.backlog_ids()) == 2)
    await still.on_the_way_to_the_backlog()
    await manual_timers.advance(5.0)
    with pytest.raises(OperationTimeoutError, match="The first 2 of the 4 messages"):
        await sending


async def test_a_spool_that_takes_nothing_tells_which_part_is_in_the_backlog(
    still: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def append(self: Spool, *given: Any, **named: Any) -> None:
        raise SpoolFullError("/spool", held=1, limit=1)

    monkeypatch.setattr(Spool, "append", append)
    sender = down(still, enable_spool=True, state_dir=tmp_path, observers=[CutOff(still, "refuse")])
    with pytest.raises(SpoolFullError, match=r"nothing of this call.*The first 2 of the 4 messages"):
        await sender.send_messages(in_two_parts())


@pytest.mark.parametrize("ordering", ["none", "session"])
async def test_a_full_spool_refuses_nothing_that_the_backlog_takes(
    still: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordering: str
) -> None:
    """While older messages wait there; only the order of a session is worth more."""

    async def append(self: Spool, *given: Any, **named: Any) -> None:
        raise SpoolFullError("/spool", held=1, limit=1)

    monkeypatch.setattr(Spool, "append", append)
    monkeypatch.setattr(Spool, "holds", lambda self, path: True)
    sender = down(still, enable_spool=True, state_dir=tmp_path, ordering=ordering)
    await sender.send_messages(text("without"))
    if ordering == "session":
        with pytest.raises(SpoolFullError):
            await sender.send_messages(text("with", session_id="a"))
        assert still.backlog_ids() == ["without"]
    else:
        await sender.send_messages(text("with", session_id="a"))
        assert still.backlog_ids() == ["without", "with"]


async def pass_time(timers: ManualTimers, work: asyncio.Task[Any], limit: float) -> float:
    """Let time pass until something has ended; how much that was."""
    began = timers.now()
    while not work.done() and timers.now() - began < limit:
        await timers.advance(0.25)
    return timers.now() - began


@pytest.mark.parametrize("cool_down", [0.1, 5.0, 60.0])
async def test_a_round_with_a_silent_secondary_ends_in_time(
    still: Scene, manual_timers: ManualTimers, cool_down: float
) -> None:
    """Also where a queue may be used again before the last one has failed."""
    sender = down(still, rotation_cool_down=cool_down, send_timeout=3.0)
    still.secondary.faults.set("silence")
    sends = [still.begin(sender.send_messages(text(f"{number}"))) for number in range(5)]
    took = await pass_time(manual_timers, still.begin(asyncio.wait(sends)), 100.0)
    assert took <= 3.0 + 5.0 + 0.5
    for send in sends:
        with pytest.raises(BacklogUnavailableError, match="no answer"):
            await send


async def test_a_round_with_thirty_silent_queues_ends_in_time(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = down(still, backlog_queue_count=30)
    still.secondary.faults.set("silence")
    sending = still.begin(sender.send_messages(text("lost")))
    assert await pass_time(manual_timers, sending, 100.0) <= 10.0 + 5.0 + 0.5
    with pytest.raises(BacklogUnavailableError):
        await sending


async def test_few_links_are_opened_side_by_side_and_all_queues_leave_with_them(
    still: Scene, manual_timers: ManualTimers
) -> None:
    """Each link of the SDK is a connection, and a process may have few descriptors left."""
    sender = down(still, backlog_queue_count=60)
    route = sender._client.pair.backlog
    still.secondary.faults.set("silence")
    sending = still.begin(sender.send_messages(text("lost")))
    await eventually(lambda: any(link.is_calling for link in route._links.values()))
    await manual_timers.advance(10.0)
    await eventually(lambda: sum(link.is_calling for link in route._links.values()) == 16)
    assert await pass_time(manual_timers, sending, 100.0) <= 5.0 + 0.5
    with pytest.raises(BacklogUnavailableError, match="no answer"):
        await sending
    assert usable(sender) == []


async def test_a_queue_that_fails_makes_room_for_the_next_to_be_opened(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = down(still, backlog_queue_count=60)
    route = sender._client.pair.backlog
    route.rotation._random = lambda: 0.0
    await sender.send_messages(text("first"))
    await eventually(lambda: sender._client.status().provisioning == "ready")
    still.secondary.faults.set("silence", entity=route.queues[0])
    for queue in route.queues[1:-1]:
        still.secondary.faults.set("disabled", entity=queue)
    sending = still.begin(sender.send_messages(text("kept")))
    await eventually(lambda: route._links[route.queues[0]].is_calling)
    await manual_timers.advance(10.0)
    await sending
    assert still.secondary.message_count(route.queues[-1]) == 1


async def test_after_one_silent_queue_the_first_that_opens_gets_the_message(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = down(still)
    sender._client.pair.backlog.rotation._random = lambda: 0.0
    for queue in BACKLOG[:2]:
        still.secondary.faults.set("silence", entity=queue)
    sending = still.begin(sender.send_messages(text("kept")))
    links = sender._client.pair.backlog._links
    await eventually(lambda: BACKLOG[0] in links and links[BACKLOG[0]].is_calling)
    await manual_timers.advance(10.0)
    await sending
    assert counts(still) == [0, 0, 1]


async def test_missing_and_disabled_queues_are_left_out(still: Scene) -> None:
    still.secondary.delete_queue(BACKLOG[0])
    still.secondary.faults.set("disabled", entity=BACKLOG[1])
    sender = down(still, secondary=still.secondary.policies["send"])  # which makes no queue
    for number in range(5):
        await sender.send_messages(text(str(number)))
    assert [still.secondary.message_count(queue) for queue in BACKLOG[1:]] == [0, 5]


async def test_a_full_backlog_queue_is_left_out(still: Scene) -> None:
    sender = down(still)
    sender._client.pair.backlog.rotation._random = lambda: 0.0
    await sender.send_messages(text("a"))
    still.secondary.faults.set("full", entity=BACKLOG[0])
    await sender.send_messages(text("b"))
    assert counts(still) == [1, 1, 0]


async def test_a_throttled_secondary_is_waited_for_and_no_queue_leaves(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = down(still)
    await sender.send_messages(text("a"))
    still.secondary.faults.set("busy")
    sends = [still.begin(sender.send_messages(text(name))) for name in ("b", "c")]
    told = 1 if TRANSPORT == "sdk" else 2  # by our own AMQP both are on the way at once
    await eventually(lambda: still.diary.outcomes("backlog") == ["ok", *["failed"] * told])
    still.secondary.faults.clear()
    await manual_timers.advance(2.0)
    await asyncio.gather(*sends)
    assert still.backlog_ids() == ["a", "b", "c"]
    assert still.diary.rotations == []


@pytest.mark.parametrize("throttle_wait", [4.0, 5.0, 40.0])
async def test_a_secondary_that_goes_on_throttling_is_waited_for_as_long_as_a_round(
    still: Scene, manual_timers: ManualTimers, throttle_wait: float
) -> None:
    """Whether the last rest ends before, with or after the round; those in line wait no longer."""
    sender = down(still, throttle_wait=throttle_wait)
    await sender.send_messages(text("a"))
    still.secondary.faults.set("error", condition="com.microsoft:server-busy")
    sends = [still.begin(sender.send_messages(text(name))) for name in ("b", "c", "d")]
    began = manual_timers.now()
    while not all(send.done() for send in sends):
        assert manual_timers.now() - began < 15.0 + throttle_wait
        await still.rest(at_most=30.0)
        await manual_timers.advance(1.0)
    assert 15.0 <= manual_timers.now() - began <= 16.0
    for send in sends:
        with pytest.raises(BacklogUnavailableError, match="server-busy"):
            send.result()
    assert still.diary.rotations == []
    still.secondary.faults.clear()
    await manual_timers.advance(throttle_wait)
    await sender.send_messages(text("e"))
    assert still.backlog_ids() == ["a", "e"]


async def test_what_a_throttling_secondary_does_not_take_is_spooled_in_order(
    still: Scene, manual_timers: ManualTimers, tmp_path: Path
) -> None:
    sender = down(still, enable_spool=True, state_dir=tmp_path)
    await sender.send_messages(text("a"))
    still.primary.faults.set("refuse")  # however much time passes: no ping brings it back
    still.secondary.faults.set("busy")
    sends = [still.begin(sender.send_messages(text(name))) for name in ("b", "c", "d")]
    while not all(send.done() for send in sends):
        await still.rest(at_most=30.0)
        await manual_timers.advance(1.0)
    await asyncio.gather(*sends)
    assert still.backlog_ids() == ["a"]
    still.secondary.faults.clear()
    while len(still.backlog()) < 4:
        await still.rest(at_most=30.0)
        await manual_timers.advance(1.0)
    assert still.backlog_ids() == ["a", "b", "c", "d"]


async def test_no_queue_is_looked_for_any_more_when_the_client_is_closed(still: Scene) -> None:
    """By a send that fails then, before the client has had any success."""
    client = still.client()
    await client.start()
    backlog = client.pair.backlog
    await client.close()
    assert await backlog.find(None) == []
    assert backlog._links == {}


async def test_pings_are_never_delivered_and_session_entities_take_them(
    still: Scene, manual_timers: ManualTimers
) -> None:
    still.primary.create_queue("talks", QueueSettings(requires_session=True))
    still.primary.create_topic("news")
    still.primary.create_subscription(
        "news", "sessions", settings=SubscriptionSettings(requires_session=True)
    )
    client = still.client(ping_jitter=0.0)
    for path in ("talks", "news", "orders"):
        client.fail_over(path)
    await manual_timers.advance(60.0)
    await eventually(lambda: still.diary.pings == [True] * 3)
    assert {still.state(path) for path in ("talks", "news", "orders")} == {HEALTHY}
    assert [still.ids(path) for path in ("talks", "news/Subscriptions/sessions", "orders")] == [[], [], []]
    assert still.primary.count(OperationKind.PING) == 3
    assert still.primary.count(OperationKind.SEND) == 0


async def test_a_probe_by_link_sends_no_message(still: Scene, manual_timers: ManualTimers) -> None:
    client = still.client(probe="link", ping_jitter=0.0, good_pings=2)
    client.fail_over("orders")
    still.primary.faults.set("refuse", entity="orders")
    await manual_timers.advance(60.0)
    await eventually(lambda: still.diary.pings == [False])
    still.primary.faults.clear()
    for pings in ([False, True], [False, True, True]):
        assert still.state() is FAILED_OVER
        await manual_timers.advance(60.0)
        await eventually(lambda pings=pings: still.diary.pings == pings)  # type: ignore[misc]
    assert still.state() is HEALTHY
    assert still.primary.count(OperationKind.PING) == 0
    assert still.primary.count(OperationKind.SEND) == 0


async def test_three_pings_with_one_permanent_error_fault_the_entity_until_a_good_one(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = still.sender(ping_jitter=0.0)
    await sender.send_messages(text("before"))
    sender._client.fail_over("orders")
    still.primary.faults.set("disabled", entity="orders")
    for count in (1, 2, 3):
        await sender.send_messages(text(f"waiting {count}"))
        assert still.state() is FAILED_OVER
        await manual_timers.advance(60.0)
        await eventually(lambda count=count: len(still.diary.pings) == count)  # type: ignore[misc]
    assert still.state() is FAULTED
    with pytest.raises(PrimaryEntityFault, match="disabled") as caught:
        await sender.send_messages(text("refused"))
    assert caught.value.path == "orders"
    assert "MessagingEntityDisabledError" in sender._client.status().to_json()
    still.primary.faults.clear()
    await manual_timers.advance(60.0)
    await eventually(lambda: still.state() is HEALTHY)
    await sender.send_messages(text("after"))
    assert still.ids() == ["before", "after"]
    assert still.backlog_ids() == ["waiting 1", "waiting 2", "waiting 3"]


async def test_faulted_entities_may_go_on_to_the_backlog(still: Scene, manual_timers: ManualTimers) -> None:
    sender = down(still, ping_jitter=0.0, on_permanent="backlog")
    still.primary.faults.set("disabled", entity="orders")
    for count in (1, 2, 3):
        await manual_timers.advance(60.0)
        await eventually(lambda count=count: len(still.diary.pings) == count)  # type: ignore[misc]
    assert still.state() is FAULTED
    await sender.send_messages(text("kept"))
    assert still.backlog_ids() == ["kept"]


async def test_a_failover_can_be_forced_and_undone(still: Scene, manual_timers: ManualTimers) -> None:
    sender = still.sender()
    client = sender._client
    await sender.send_messages(text("1"))
    client.fail_over("orders", reason="a drill")
    await sender.send_messages(text("2"))
    client.mark_path_healthy("orders")
    await sender.send_messages(text("3"))
    assert still.ids() == ["1", "3"]
    assert still.backlog_ids() == ["2"]
    assert [change.reason for change in still.diary.changes] == ["a drill", "marked healthy by hand"]
    await manual_timers.advance(600.0)
    assert still.diary.pings == []


async def test_marking_a_path_healthy_wakes_those_that_are_held(still: Scene) -> None:
    sender = still.sender(retry_delay=60.0, retry_delay_max=60.0)
    await sender.send_messages(text("1"))
    still.primary.faults.set("refuse")
    held = still.begin(sender.send_messages(text("2")))
    await eventually(lambda: still.state() is EntityState.SUSPECT)
    still.primary.faults.clear()
    sender._client.mark_path_healthy("orders")
    await held
    assert still.ids() == ["1", "2"]


async def test_a_forced_failover_takes_along_what_is_under_way(still: Scene) -> None:
    sender = still.sender()
    await sender.send_messages(text("1"))
    still.primary.faults.set("silence")
    sends = [still.begin(sender.send_messages(text(name))) for name in ("2", "3", "4")]
    await still.on_the_wire()
    sender._client.fail_over("orders")
    await asyncio.gather(*sends)
    assert still.backlog_ids() == ["2", "3", "4"]


async def test_those_that_are_held_go_to_the_backlog_before_those_that_wait_in_line(
    still: Scene, manual_timers: ManualTimers
) -> None:
    sender = still.sender(failover_interval=30.0, retry_delay=20.0, retry_delay_max=20.0)
    await sender.send_messages(text("before"))
    still.primary.faults.set("refuse")
    sends = [still.begin(sender.send_messages(text(f"{number}"))) for number in range(5)]
    await eventually(lambda: still.state() is EntityState.SUSPECT)
    await manual_timers.advance(20.0)
    await still.quiet()
    await manual_timers.advance(10.0)
    await asyncio.gather(*sends)
    assert sorted(still.backlog_ids()) == ["0", "1", "2", "3", "4"]
    # The first was tried twice, and went to the end of the line.
    assert still.backlog_ids() == ["1", "2", "3", "4", "0"]


async def test_a_faulted_pair_refuses_every_send_and_wakes_those_that_wait(still: Scene) -> None:
    sender = still.sender(retry_delay=60.0, retry_delay_max=60.0)
    client = sender._client
    await sender.send_messages(text("1"))
    still.primary.faults.set("refuse")
    held = still.begin(sender.send_messages(text("held")))
    await eventually(lambda: still.state() is EntityState.SUSPECT)
    client.fault("the disk is full")
    client.fault("a later cause")
    with pytest.raises(PairFaultedError, match="the disk is full"):
        await held
    still.primary.faults.clear()
    for attempt in (
        sender.send_messages(text("2")),
        sender.create_message_batch(),
        sender.cancel_scheduled_messages(1),
    ):
        with pytest.raises(PairFaultedError, match="primary") as caught:
            await attempt
        assert caught.value.cause == "the disk is full"
    assert "the disk is full" in (client.status().fault or "")


async def test_a_full_entity_spills_message_by_message_if_that_is_wanted(still: Scene) -> None:
    sender = still.sender(spill_when_full=True)
    await sender.send_messages(text("1"))
    still.primary.faults.set("full", entity="orders")
    await sender.send_messages([text("2"), text("3")])
    await sender.send_messages(text("4"))
    still.primary.faults.clear()
    await sender.send_messages(text("5"))
    assert still.ids() == ["1", "5"]
    assert still.backlog_ids() == ["2", "3", "4"]
    assert still.diary.outcomes("primary") == ["ok", "failed", "failed", "ok"]
    assert still.diary.changes == []


async def test_a_disabled_entity_counts_if_that_is_wanted(still: Scene) -> None:
    sender = still.sender(failover_interval=0.0, count_disabled=True)
    await sender.send_messages(text("1"))
    still.primary.faults.set("disabled", entity="orders")
    await sender.send_messages(text("2"))
    assert still.backlog_ids() == ["2"]


async def test_a_full_entity_raises_otherwise(still: Scene) -> None:
    sender = still.sender()
    still.primary.faults.set("full", entity="orders")
    with pytest.raises(ServiceBusQuotaExceededError):
        await sender.send_messages(ServiceBusMessage("1"))


async def test_a_queue_that_fails_while_the_client_is_closed_is_not_looked_for(still: Scene) -> None:
    sender = still.sender(backlog_queue_count=1)
    client = sender._client
    client.fail_over("orders")
    await sender.send_messages(text("first"))
    backlog: Any = client.pair.backlog
    inner = backlog._links[BACKLOG[0]]._sender
    name = sending_method(inner)
    send = getattr(inner, name)
    closing: list[asyncio.Task[None]] = []

    async def close_and_send(*given: Any, **settings: Any) -> None:
        closing.append(still.begin(client.close()))
        await eventually(lambda: backlog._is_closed)
        await send(*given, **settings)

    setattr(inner, name, close_and_send)
    still.secondary.faults.set("disabled")
    with pytest.raises(ClientClosedError):
        await sender.send_messages(text("second"))
    await asyncio.gather(*closing)
    assert still.backlog_ids() == ["first"]
    assert backlog._looking is None

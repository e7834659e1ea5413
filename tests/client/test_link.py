"""A call of the SDK can be left at any moment, in place or in a task, whatever the SDK makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pairbus.client.sending.link import SendLink
from pairbus.client.sending.pinger import Pinger
from pairbus.client.sending.ticket import Ending, Ticket, fate_of, in_time
from pairbus.options import SendAvailabilityOptions
from pairbus.sdk.graveyard import Graveyard
from pairbus.testing import ManualTimers
from tests.waiting import eventually


class Sender:
    """An SDK sender that does what the test tells it to."""

    def __init__(self) -> None:
        self.is_closed = self.is_lost = False
        self.opened = asyncio.Event()
        self.opened.set()

    async def __aenter__(self) -> Sender:
        await self.opened.wait()
        return self

    async def close(self) -> None:
        self.is_closed = True


class Bench:
    """A link, its senders, and the time."""

    def __init__(self, timers: ManualTimers, **settings: Any) -> None:
        self.timers = timers
        self.graveyard = Graveyard()
        self.senders: list[Sender] = []
        self.opens_late = False
        self.link = SendLink(self._open, graveyard=self.graveyard, timers=timers, **settings)

    def _open(self) -> Any:
        self.senders.append(Sender())
        if self.opens_late:
            self.senders[-1].opened.clear()
        return self.senders[-1]

    async def run(
        self, operation: Callable[[], Awaitable[Any]], *, ticket: Ticket | None = None, **settings: Any
    ) -> tuple[Ending, Ticket]:
        async def perform(sender: Any) -> Any:
            return await operation()

        ticket = ticket or Ticket()
        return await self.link.run(ticket, perform, **{"limit": 10.0, **settings}), ticket


@pytest.fixture
async def bench(manual_timers: ManualTimers) -> Bench:
    return Bench(manual_timers)


@pytest.fixture(params=["in place", "in a task"])
async def either(request: pytest.FixtureRequest, manual_timers: ManualTimers) -> Bench:
    """A link whose sender is proven, so that calls are made in place, or one that has yet to open one."""
    bench = Bench(manual_timers)
    if request.param == "in place":
        await bench.run(nothing)
    return bench


async def nothing() -> str:
    return "done"


async def forever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise OSError("no")


def begin(work: Any) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


async def test_what_the_sdk_gives_and_raises_is_handed_on(either: Bench) -> None:
    ending, ticket = await either.run(nothing)
    assert (ending, ticket.value, ticket.error) == (Ending.DONE, "done", None)
    ending, ticket = await either.run(fail)
    assert ending is Ending.FAILED
    assert isinstance(ticket.error, OSError)
    assert len(either.senders) == 1


async def test_a_call_ends_at_its_limit_and_its_sender_is_buried(either: Bench) -> None:
    calling = begin(either.run(forever))
    await either.timers.advance(9.999)
    assert not calling.done()
    await either.timers.advance(0.001)
    ending, ticket = await calling
    assert (ending, ticket.error) == (Ending.OUT_OF_TIME, None)
    await either.graveyard.wait(5.0)
    assert [sender.is_closed for sender in either.senders] == [True]
    assert (await either.run(nothing))[0] is Ending.DONE
    assert len(either.senders) == 2


async def test_a_callers_deadline_may_come_first(either: Bench) -> None:
    calling = begin(either.run(forever, deadline=either.timers.now() + 3.0))
    await either.timers.advance(3.0)
    assert (await calling)[0] is Ending.OUT_OF_TIME
    assert (await either.run(nothing, deadline=either.timers.now()))[0] is Ending.OUT_OF_TIME


async def test_a_call_can_be_abandoned(either: Bench) -> None:
    ticket = Ticket()
    calling = begin(either.run(forever, ticket=ticket))
    await asyncio.sleep(0)
    ticket.abandon()
    assert (await calling)[0] is Ending.ABANDONED
    assert not either.link.is_busy


async def test_being_called_away_leaves_no_trace_on_the_task(either: Bench) -> None:
    """Scopes around the call see their own cancellations only."""
    task = asyncio.current_task()
    assert task is not None
    ticket = Ticket()
    asyncio.get_running_loop().call_soon(ticket.expire)
    asyncio.get_running_loop().call_soon(ticket.abandon)
    async with asyncio.timeout(1000):
        ending, _ = await either.run(forever, ticket=ticket)
    assert ending is Ending.OUT_OF_TIME
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_a_scope_around_the_call_ends_it(either: Bench) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await either.run(forever)
    assert not either.link.is_busy
    await either.graveyard.wait(5.0)
    assert either.senders[0].is_closed


async def test_who_is_cancelled_and_called_away_at_once_is_cancelled(either: Bench) -> None:
    ticket = Ticket()
    calling = begin(either.run(forever, ticket=ticket))
    await asyncio.sleep(0)
    ticket.abandon()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert not either.link.is_busy


async def test_who_was_cancelled_just_before_the_call_is_cancelled(either: Bench) -> None:
    async def cancel_all_and_call() -> None:
        calling.cancel()  # as a program that ends all its tasks does from one of them
        await either.run(forever)

    calling = begin(cancel_all_and_call())
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert not either.link.is_busy


async def test_an_sdk_that_lingers_is_reminded(bench: Bench) -> None:
    """It cleans up when it is cancelled, and that hangs too."""
    await bench.run(nothing)
    reminders = 0

    async def linger() -> None:
        nonlocal reminders
        while reminders < 3:
            try:
                await forever()
            except asyncio.CancelledError:
                reminders += 1
        raise asyncio.CancelledError

    calling = begin(bench.run(linger))
    await bench.timers.advance(11.9)
    assert reminders == 2
    assert not calling.done()
    await bench.timers.advance(0.1)
    assert (await calling)[0] is Ending.OUT_OF_TIME
    assert calling.cancelling() == 0


async def test_what_was_answered_while_the_process_stood_still_is_read_first(either: Bench) -> None:
    answered = asyncio.Event()
    calling = begin(either.run(answered.wait))
    await stand_still(either, 600.0)
    answered.set()
    assert (await calling)[0] is Ending.DONE


async def test_a_process_that_stands_still_again_and_again_gives_its_calls_up(either: Bench) -> None:
    """Each of them is listened to once: no other clock ends a call to a silent backlog queue."""
    calling = begin(either.run(forever))
    await stand_still(either, 12.0)
    assert not calling.done()
    await stand_still(either, 3.0)
    assert (await calling)[0] is Ending.OUT_OF_TIME


async def stand_still(bench: Bench, seconds: float) -> None:
    """For so long nothing runs."""
    await bench.timers.advance(0.0)
    bench.timers._now += seconds
    await bench.timers.advance(0.0)


async def test_in_a_task_nobody_waits_for_an_sdk_that_lingers(bench: Bench) -> None:
    async def linger() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(3600)

    calling = begin(bench.run(linger))
    await bench.timers.advance(10.0)
    assert (await calling)[0] is Ending.OUT_OF_TIME
    assert (await bench.run(nothing))[0] is Ending.DONE
    await bench.graveyard.wait(0.1)


async def test_an_sdk_that_swallows_the_cancellation_has_answered(either: Bench) -> None:
    async def swallow() -> str:
        try:
            await forever()
        except asyncio.CancelledError:
            return "taken after all"
        return ""

    ticket = Ticket()
    calling = begin(either.run(swallow, ticket=ticket))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ticket.expire()
    ending, _ = await calling
    assert ending in (Ending.DONE, Ending.OUT_OF_TIME)
    assert calling.cancelling() == 0
    assert not either.link.is_busy


async def test_an_sdk_that_cancels_its_own_call_has_failed(either: Bench) -> None:
    async def cancel() -> None:
        raise asyncio.CancelledError

    ending, ticket = await either.run(cancel)
    assert ending is Ending.FAILED
    assert isinstance(ticket.error, ConnectionAbortedError)


async def test_after_a_failure_the_next_call_has_a_task_again(bench: Bench) -> None:
    """Nobody knows whether the sender is still connected, and connecting may hang."""
    await bench.run(nothing)
    tasks: list[asyncio.Task[Any] | None] = []

    async def note() -> None:
        tasks.append(asyncio.current_task())

    await bench.run(note)
    await bench.run(fail)
    await bench.run(note)
    await bench.run(note)
    mine = asyncio.current_task()
    assert [task is mine for task in tasks] == [True, False, True]


async def test_the_line_is_left_in_order_behind_a_call_that_is_given_up(bench: Bench) -> None:
    await bench.run(nothing)
    left: list[int] = []

    async def go(number: int) -> None:
        ending, _ = await bench.run(forever)
        assert ending is Ending.ABANDONED
        left.append(number)

    goers = [begin(go(number)) for number in range(5)]
    await asyncio.sleep(0)
    bench.link.evacuate()
    await asyncio.gather(*goers)
    assert left == [0, 1, 2, 3, 4]


async def test_the_line_does_not_wait_for_ever_for_a_call_that_is_given_up(bench: Bench) -> None:
    await bench.run(nothing)

    async def linger() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            await forever()

    first, second = begin(bench.run(linger)), begin(bench.run(nothing))
    await asyncio.sleep(0)
    bench.link.evacuate()
    await bench.timers.advance(0.2)
    assert not second.done()
    await bench.timers.advance(0.1)
    assert (await second)[0] is Ending.ABANDONED
    assert not first.done()
    await bench.timers.advance(20.0)
    assert (await first)[0] is Ending.ABANDONED


@pytest.mark.parametrize("how", ["abandoned", "out of time", "cancelled"])
async def test_a_link_that_opens_when_nobody_waits_any_more_sends_nothing(
    manual_timers: ManualTimers, how: str
) -> None:
    late: list[BaseException | None] = []
    bench, sent, ticket = Bench(manual_timers, on_late=late.append), [], Ticket()
    bench.opens_late = True

    async def send() -> None:
        sent.append(how)

    calling = begin(bench.run(send, ticket=ticket))
    await manual_timers.advance(1.0)
    if how == "abandoned":
        ticket.abandon()
    elif how == "cancelled":
        calling.cancel()
    else:
        await manual_timers.advance(9.0)
    await asyncio.wait({calling})
    assert fate_of(None, ticket) == "unsent"
    bench.senders[0].opened.set()
    await bench.graveyard.wait(5.0)
    bench.opens_late = False
    assert (await bench.run(nothing))[0] is Ending.DONE
    assert (sent, late) == ([], [])


# -- several callers


@pytest.fixture
async def wide(manual_timers: ManualTimers) -> Bench:
    """A link with room for ten calls at once, whose sender is proven."""
    bench = Bench(manual_timers, width=10)
    await bench.run(nothing)
    return bench


async def test_one_goes_ahead_and_the_others_follow(manual_timers: ManualTimers) -> None:
    bench = Bench(manual_timers, width=10)
    bench.opens_late = True
    calls = [begin(bench.run(forever)) for _ in range(15)]
    await asyncio.sleep(0)
    assert len(bench.link._callers) == 1
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    bench.opens_late = False
    assert (await bench.run(nothing))[0] is Ending.DONE
    calls = [begin(bench.run(forever)) for _ in range(15)]
    await asyncio.sleep(0)
    assert (len(bench.link._callers), bench.link.length) == (10, 15)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    assert (bench.link.is_calling, bench.link.length) == (False, 0)


@pytest.mark.parametrize("why", ["nothing", "full", "a rest", "closing", "unproven", "lost"])
async def test_whoever_sets_out_finds_nothing_in_the_way(wide: Bench, why: str) -> None:
    link, sender = wide.link, wide.senders[0]
    match why:
        case "full":
            for _ in range(10):
                link.take_turn()
        case "a rest":
            link.rest(2.0)
        case "closing":
            link._is_closing = True
        case "unproven":
            await wide.run(fail)
        case "lost":
            sender.is_lost = True
    now, before, ticket = wide.timers.now(), link.length, Ticket()
    assert link.set_out(ticket, now, now + 10.0) is (why == "nothing")
    assert (link.is_calling, link.length - before) == ((True, 1) if why == "nothing" else (False, 0))
    assert ticket.sender is (sender if why == "nothing" else None)
    if why == "nothing":
        link.arrived(ticket, now)
        link.pass_turn()
    assert not link.is_calling


async def test_a_caller_that_goes_soon_leaves_the_sender_to_the_others(wide: Bench) -> None:
    calls = [begin(wide.run(forever)) for _ in range(2)]
    await asyncio.sleep(0)
    calls[0].cancel()
    await asyncio.wait(calls[:1])
    assert not calls[1].done()
    assert not wide.senders[0].is_closed
    await wide.timers.advance(2.0)
    third = begin(wide.run(forever))
    await asyncio.sleep(0)
    calls[1].cancel()  # it has waited long enough to be a sign
    await asyncio.wait(calls[1:])
    assert not wide.senders[0].is_closed, "somebody is still on it"
    third.cancel()
    await asyncio.wait([third])
    await wide.graveyard.wait(5.0)
    assert wide.senders[0].is_closed


async def test_each_call_has_its_own_limit(wide: Bench) -> None:
    first = begin(wide.run(forever))
    await asyncio.sleep(0)
    await wide.timers.advance(4.0)
    second = begin(wide.run(forever))
    await asyncio.sleep(0)
    await wide.timers.advance(6.0)
    assert (await first)[0] is Ending.OUT_OF_TIME
    assert not second.done()
    await wide.timers.advance(4.0)
    assert (await second)[0] is Ending.OUT_OF_TIME


async def test_those_who_failed_together_are_one_failure_and_knock_one_by_one(wide: Bench) -> None:
    tickets = [Ticket() for _ in range(5)]
    endings = await asyncio.gather(*(wide.run(fail, ticket=ticket) for ticket in tickets))
    assert [ending for ending, _ in endings] == [Ending.FAILED] * 5
    for ticket in tickets:
        wide.link.count_failure(ticket)
        wide.link.discard_after(ticket)
    assert wide.link.failures == 1
    assert (await wide.run(nothing))[0] is Ending.DONE
    assert len(wide.senders) == 2


@pytest.mark.parametrize("what", ["ping", "look"])
async def test_who_stops_pinging_hears_nothing_of_an_answer_that_has_just_come(
    bench: Bench, what: str
) -> None:
    """Else an entity that has been closed would come back, with a sender that nobody closes."""
    told: list[Any] = []
    pinger = Pinger(
        lambda: bench.link,
        options=SendAvailabilityOptions(probe="link"),
        timers=bench.timers,
        on_end=lambda *end: told.append(end),
        on_fate=told.append,
    )
    bench.opens_late = True
    if what == "ping":
        pinger.start(1)
    else:
        pinger.look(told.append)
    await eventually(lambda: bench.senders)
    bench.senders[0].opened.set()
    await asyncio.sleep(0)  # now it is there, and the ping goes on in the next turn
    pinger.stop()
    await pinger.close()
    assert told == []


async def test_what_fails_as_its_time_ends_leaves_no_trace_on_the_task(manual_timers: ManualTimers) -> None:
    async def work() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            raise LookupError from None

    async def wait() -> int:
        with pytest.raises(LookupError):
            await in_time(manual_timers, manual_timers.now() + 1.0, work())
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    waiting = asyncio.create_task(wait())
    await manual_timers.advance(1.0)
    assert await waiting == 0

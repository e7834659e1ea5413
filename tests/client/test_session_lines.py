"""Calls of one session that run side by side keep their line, whatever becomes of those before them."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from azure.servicebus.exceptions import OperationTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st

from pairbus.client.sending.message import Message
from pairbus.client.sending.sessions import SessionPicture, StayingSessions
from pairbus.testing import ManualTimers
from tests.examples import examples
from tests.waiting import PATIENCE

from .scene import Scene, eventually, text

SESSIONS = "abc"


@dataclass(frozen=True)
class LinedUp:
    """A call with these sessions: after how many turns of the loop it begins, ends and is cancelled."""

    sessions: frozenset[str]
    begins: int
    lasts: int
    fails: bool
    cancelled: int | None

    @property
    def messages(self) -> list[Message]:
        return [text(session, session_id=session) for session in sorted(self.sessions)]


CALLS = st.lists(
    st.builds(
        LinedUp,
        sessions=st.frozensets(st.sampled_from(SESSIONS), max_size=3),
        begins=st.integers(0, 5),
        lasts=st.integers(0, 10),
        fails=st.booleans(),
        cancelled=st.none() | st.integers(0, 20),
    ),
    max_size=12,
)


def lines(timers: ManualTimers) -> StayingSessions:
    async def look(_: object) -> SessionPicture:
        return SessionPicture()

    return StayingSessions(
        look,
        timers=timers,
        interval=60.0,
        is_up=lambda path: True,
    )


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@given(CALLS)
@settings(max_examples=examples(150), deadline=None)
def test_no_call_overtakes_another_of_its_session(calls: list[LinedUp]) -> None:
    told: list[tuple[str, int]] = []

    async def call(number: int, one: LinedUp, sessions: StayingSessions) -> None:
        async with sessions.in_line("orders", one.messages, None):
            told.append(("began", number))
            try:
                await turns(one.lasts)
                if one.fails:
                    raise ConnectionError
            finally:
                told.append(("ended", number))

    async def run() -> None:
        sessions, loop = lines(ManualTimers()), asyncio.get_running_loop()
        under_way: list[asyncio.Task[None]] = []
        for number, one in enumerate(calls):
            await turns(one.begins)
            under_way.append(loop.create_task(call(number, one, sessions)))
            if one.cancelled is not None:
                loop.create_task(cancel_after(one.cancelled, under_way[-1]))
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*under_way, return_exceptions=True)
        # A line of callers who left is gone through one turn after the other.
        await eventually(lambda: not sessions._lines, what="the end of every line")

    asyncio.run(run())
    for session in SESSIONS:
        mine = [event for event in told if session in calls[event[1]].sessions]
        assert mine == list(one_after_the_other(mine)), session


async def cancel_after(count: int, task: asyncio.Task[None]) -> None:
    await turns(count)
    task.cancel()


def one_after_the_other(events: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    for number in sorted({number for _, number in events}):
        yield "began", number
        yield "ended", number


async def test_a_call_waits_in_line_no_longer_than_it_may(manual_timers: ManualTimers) -> None:
    sessions = lines(manual_timers)
    message = [text("1", session_id="a")]
    async with sessions.in_line("orders", message, None):

        async def behind() -> None:
            async with sessions.in_line("ORDERS", message, manual_timers.now() + 5.0):
                raise AssertionError("it overtook")

        waiting = asyncio.get_running_loop().create_task(behind())
        await manual_timers.advance(5.0)
        with pytest.raises(OperationTimeoutError, match="Earlier messages of the session"):
            await waiting
    await turns(3)
    assert not sessions._lines


@pytest.mark.parametrize("ordering", ["session", "none"])
async def test_a_call_that_failed_twice_stays_before_later_ones_of_its_session(
    still: Scene, manual_timers: ManualTimers, ordering: str
) -> None:
    """Without an order to keep it goes to the end of the line, so that it holds up nobody."""
    sender = still.sender(ordering=ordering, failover_interval=3600.0)
    await sender.send_messages(text("0", session_id="a"))
    (link,) = sender._client.pair.entity("orders")._links
    still.primary.faults.set("error", entity="orders")
    sends = [still.begin(sender.send_messages(text("1", session_id="a")))]
    await eventually(lambda: bool(link._resting))
    sends += [still.begin(sender.send_messages(text(name, session_id="a"))) for name in ("2", "3")]
    await manual_timers.advance(1.0)
    await eventually(lambda: len(still.diary.outcomes("primary")) == 3)
    still.primary.faults.clear()
    while not all(send.done() for send in sends):
        await eventually(lambda: bool(link._resting) or all(send.done() for send in sends))
        await manual_timers.advance(1.0)
    await asyncio.gather(*sends)
    in_order = ["0", "1", "2", "3"]
    assert (still.ids() == in_order) is (ordering == "session")
    assert sorted(still.ids()) == in_order

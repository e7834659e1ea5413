"""What a single send waits for: to its task a future, and woken in the turn that reads it."""

import asyncio
import contextvars
from collections.abc import Callable

import pytest

from pairbus.wire.answers import SendAnswer

COLOUR: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")


class Office:
    """Wakes up whoever waits, and notes who has given up."""

    def __init__(self, wake: Callable[[SendAnswer], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._wake = wake
        self.given_up: list[SendAnswer] = []

    def wake_soon(self, answer: SendAnswer) -> None:
        self._wake(answer)

    def give_up_one(self, answer: SendAnswer) -> None:
        self.given_up.append(answer)


def new_answer(wake: Callable[[SendAnswer], None] = SendAnswer.wake_later) -> SendAnswer:
    return SendAnswer(Office(wake))


async def wait_for(answer: SendAnswer, told: list[str]) -> str:
    try:
        await answer
    except asyncio.CancelledError:
        told.append("cancelled")
        raise
    told.append("there")
    return COLOUR.get()


async def test_whoever_waits_goes_on_when_it_is_there_in_its_own_context() -> None:
    answer, told = new_answer(), list[str]()
    token = COLOUR.set("green")
    task = asyncio.create_task(wait_for(answer, told))
    COLOUR.reset(token)
    await asyncio.sleep(0)
    assert not answer.done()
    answer.conclude(0, "taken", None)
    assert await task == "green"


async def test_one_that_is_there_already_is_not_waited_for() -> None:
    answer, told = new_answer(), list[str]()
    answer.conclude(0, "taken", None)
    await wait_for(answer, told)
    assert told == ["there"]


async def test_a_task_can_go_on_within_the_same_turn() -> None:
    loop, told = asyncio.get_running_loop(), list[str]()
    answer = new_answer(SendAnswer.wake)
    task = asyncio.create_task(wait_for(answer, told))
    await asyncio.sleep(0)

    def read() -> None:
        answer.conclude(0, "taken", None)
        told.append("read")

    loop.call_soon(read)
    await task
    assert told == ["there", "read"]


async def test_who_is_cancelled_waits_no_more_and_hears_no_more() -> None:
    office, told = Office(SendAnswer.wake_later), list[str]()
    answer = SendAnswer(office)
    task = asyncio.create_task(wait_for(answer, told))
    await asyncio.sleep(0)
    task.cancel()
    assert answer.done()
    assert office.given_up == [answer]
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["cancelled"]


async def test_a_task_that_is_cancelled_before_it_waits_does_not_begin_to() -> None:
    answer, told = new_answer(), list[str]()

    async def cancel_oneself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await wait_for(answer, told)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(cancel_oneself())
    assert told == ["cancelled"]


@pytest.mark.parametrize("wake", [SendAnswer.wake_later, SendAnswer.wake])
async def test_an_answer_and_a_cancellation_in_one_turn_end_the_task_once(
    wake: Callable[[SendAnswer], None],
) -> None:
    """As with a future: the cancellation is heard at the next wait, or the answer has been missed."""
    answer, told = new_answer(wake), list[str]()

    async def wait_twice() -> None:
        await wait_for(answer, told)
        await asyncio.sleep(0)
        told.append("twice")

    task = asyncio.create_task(wait_twice())
    await asyncio.sleep(0)

    def both() -> None:
        answer.conclude(0, "taken", None)
        task.cancel()

    asyncio.get_running_loop().call_soon(both)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told in (["there"], ["cancelled"])


async def test_a_limit_around_it_holds() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await new_answer()

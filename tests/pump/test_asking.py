"""Questions that are called off: the task that asks goes on, unless somebody else has cancelled it."""

import asyncio

import pytest

from pairbus.pump.asking import Asking


async def _never() -> list[int]:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody answers")


async def _begin(asking: Asking) -> asyncio.Task[list[int]]:
    async def ask_twice() -> list[int]:
        first = await asking.ask(_never())
        await asyncio.sleep(0)  # a cancellation that is left over would end it here
        return [*first, 7]

    task = asyncio.create_task(ask_twice())
    await asyncio.sleep(0)
    assert asking.is_on
    return task


async def test_an_answer_comes_back() -> None:
    async def answer() -> list[int]:
        await asyncio.sleep(0)
        return [1, 2]

    asking = Asking()
    asking.call_off()  # nothing is asked
    assert await asking.ask(answer()) == [1, 2]
    assert not asking.is_on


async def test_who_is_called_off_has_no_answer_and_goes_on() -> None:
    asking = Asking()
    task = await _begin(asking)
    asking.call_off()
    asking.call_off()
    assert await task == [7]
    assert task.cancelling() == 0


async def test_who_is_cancelled_besides_does_not_go_on() -> None:
    for is_first in (True, False):
        asking = Asking()
        task = await _begin(asking)
        if is_first:
            task.cancel()
        asking.call_off()
        if not is_first:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_question_that_ends_in_spite_of_it_leaves_nothing_behind() -> None:
    async def stubborn() -> list[int]:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return [5]
        raise AssertionError("nobody answers")

    async def ask() -> list[int]:
        found = await asking.ask(stubborn())
        await asyncio.sleep(0)
        return found

    asking = Asking()
    task = asyncio.create_task(ask())
    await asyncio.sleep(0)
    assert asking.is_on
    asking.call_off()
    assert await task == [5]
    assert task.cancelling() == 0


async def test_an_error_is_passed_on() -> None:
    async def fail() -> list[int]:
        raise OSError("gone")

    asking = Asking()
    with pytest.raises(OSError, match="gone"):
        await asking.ask(fail())
    assert not asking.is_on

"""Every step of an end is taken."""

import asyncio
from functools import partial

import pytest

from pairbus.plumbing.tasks import take_each


async def test_a_step_that_fails_or_is_cancelled_keeps_none_from_being_taken() -> None:
    taken: list[str] = []
    reached = asyncio.Event()

    async def step(name: str, error: Exception | None = None, *, waits: bool = False) -> None:
        taken.append(name)
        if waits:
            reached.set()
            await asyncio.Event().wait()
        if error is not None:
            raise error

    with pytest.raises(OSError, match="first"):
        await take_each(
            partial(step, "1"),
            partial(step, "2", OSError("first")),
            partial(step, "3", ValueError("second")),
            partial(step, "4"),
        )
    assert taken == ["1", "2", "3", "4"]
    ending = asyncio.create_task(take_each(partial(step, "5", waits=True), partial(step, "6")))
    await reached.wait()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert taken[-2:] == ["5", "6"]


def test_without_an_event_loop_no_further_step_is_taken() -> None:
    taken: list[str] = []

    async def step(name: str) -> None:
        taken.append(name)
        await asyncio.sleep(0)

    ending = take_each(partial(step, "1"), partial(step, "2"))
    ending.send(None)
    ending.close()
    assert taken == ["1"]

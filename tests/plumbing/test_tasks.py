"""Waiting with a limit, and ending tasks."""

import asyncio
import gc

import pytest

from pairbus.plumbing import tasks as tasks_module
from pairbus.plumbing.tasks import cancel_all, end_on_disk, look_away, wait_at_most


async def test_a_wait_says_whether_the_event_came() -> None:
    event = asyncio.Event()
    assert not await wait_at_most(event, 0.0)
    asyncio.get_running_loop().call_soon(event.set)
    assert await wait_at_most(event, 60.0)


async def test_all_tasks_have_ended_however_they_do() -> None:
    async def fail_when_cancelled() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the end of it")

    tasks = [asyncio.create_task(fail_when_cancelled()), asyncio.create_task(asyncio.sleep(60.0))]
    await asyncio.sleep(0)
    await cancel_all(*tasks)
    assert isinstance(tasks[0].exception(), OSError)
    assert tasks[1].cancelled()


async def test_nobody_complains_of_a_task_that_was_left_alone() -> None:
    async def fail() -> None:
        raise OSError("nobody asked")

    complaints: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    tasks = [asyncio.create_task(fail()), asyncio.create_task(asyncio.sleep(60.0))]
    for task in tasks:
        task.add_done_callback(look_away)
    tasks[1].cancel()
    await asyncio.wait(tasks)
    tasks.clear()
    del task
    gc.collect()
    assert not complaints


async def test_an_end_waits_for_what_is_written_and_raises_what_that_raises() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise TimeoutError(110, "Connection timed out")  # of the disk

    await end_on_disk(asyncio.create_task(asyncio.sleep(0)), what="it")
    with pytest.raises(TimeoutError, match="110"):
        await end_on_disk(asyncio.create_task(fail()), what="it")


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_end_leaves_a_disk_that_hangs_to_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_cancelled: bool
) -> None:
    monkeypatch.setattr(tasks_module, "DISK_LIMIT", 3600.0 if is_cancelled else 0.01)
    hangs = asyncio.get_running_loop().create_future()
    ending = asyncio.create_task(end_on_disk(asyncio.shield(hangs), what="the spool"))
    await asyncio.sleep(0)
    if is_cancelled:
        ending.cancel()
    await asyncio.wait({ending})
    assert (ending.cancelled(), "the spool will be closed when it does" in caplog.text) == (
        is_cancelled,
        not is_cancelled,
    )
    assert not hangs.done()
    hangs.cancel()

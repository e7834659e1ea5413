"""Waiting with a limit, and ending tasks."""

import asyncio
import gc

from pairbus.plumbing.tasks import cancel_all, look_away, wait_at_most


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

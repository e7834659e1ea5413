"""Tasks and events of asyncio, as all who wait for them or end them need it, and ends of several steps."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

#: How long the end of anything waits for a disk. Some of them follow each other when a client is closed.
DISK_LIMIT = 3.0


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, but not longer than this, if there is a limit; whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


async def cancel_all(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks, and wait until all have ended, however they do."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def is_cancelled() -> bool:
    """Whether somebody has cancelled the running task; else it was what it awaits that was cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def look_away(task: asyncio.Future[Any]) -> None:
    """Retrieve the outcome of a task that nobody awaits, so that asyncio does not log it."""
    with suppress(asyncio.CancelledError):
        task.exception()


log = logging.getLogger(__name__)


async def take_each(*steps: Callable[[], Awaitable[object]]) -> None:
    """Take every step in order, also if one fails or is cancelled; then the first error is raised."""
    first: BaseException | None = None
    for step in steps:
        try:
            await step()
        except GeneratorExit:  # there is no event loop any more that a step could wait on
            raise
        except BaseException as error:
            if first is not None:
                log.warning("a step of an end has failed after another one", exc_info=error)
            first = first or error
    if first is not None:
        raise first


async def wait_in_real_time(work: asyncio.Future[Any], limit: float) -> None:
    """Wait until something is done, or for so many seconds, whatever the loop says: a person waits."""
    ends = time.monotonic() + limit
    while not work.done() and (left := ends - time.monotonic()) > 0.0:
        await asyncio.wait({work}, timeout=left)


async def end_on_disk(work: asyncio.Future[Any], *, what: str) -> None:
    """Wait for what a thread does last. If the disk hangs that is done when it answers, and nobody waits."""
    work.add_done_callback(look_away)
    try:
        await wait_in_real_time(work, DISK_LIMIT)
        if work.done():
            work.result()
        else:
            log.warning("the disk does not answer: %s will be closed when it does", what)
    finally:
        work.cancel()

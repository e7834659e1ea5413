"""A message is settled when all its doubts are on record."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

from pairbus.pump.doubts import Doubts
from pairbus.pump.parcel import Parcel, ReceiptBook
from pairbus.pump.station import Station
from tests.waiting import PATIENCE

PARCEL = cast(Parcel, SimpleNamespace(number=7))


class Disk:
    """Receipts that are written when the test says so."""

    def __init__(self) -> None:
        self.writes: list[asyncio.Future[None]] = []

    def now(self) -> float:
        return 0.0

    async def record(self, rows: list[Any]) -> None:
        self.writes.append(asyncio.get_running_loop().create_future())
        await self.writes[-1]


def doubts_on(disk: Disk, start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> Doubts:
    book = SimpleNamespace(unanswered=lambda parcel, now: {})
    return Doubts(cast(ReceiptBook, book), cast(Station, disk), start)


async def let_all_run() -> None:
    """Until each waits for something of the test's."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_message_that_comes_into_doubt_anew_is_waited_for_too() -> None:
    disk = Disk()
    async with asyncio.TaskGroup() as tasks:
        doubts = doubts_on(disk, tasks.create_task)
        doubts.note([PARCEL])
        settling = tasks.create_task(doubts.written([PARCEL]))
        await let_all_run()
        doubts.note([PARCEL])
        disk.writes[0].set_result(None)
        await let_all_run()
        disk.writes[1].set_result(None)
    assert settling.result() == [PARCEL]


async def test_what_could_not_be_written_is_not_settled() -> None:
    disk = Disk()
    doubts = doubts_on(disk, asyncio.create_task)
    doubts.note([PARCEL])
    (writing,) = doubts._writing
    settling = asyncio.create_task(doubts.written([PARCEL]))
    await let_all_run()
    disk.writes[0].set_exception(OSError("full"))
    assert await settling == []
    assert isinstance(writing.exception(), OSError)


async def test_a_doubt_whose_writing_is_called_off_at_once_is_not_waited_for() -> None:
    """A loop that ends calls all off, also what has not begun."""

    def call_off(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        task.cancel()
        return task

    doubts = doubts_on(Disk(), call_off)
    doubts.note([PARCEL])
    async with asyncio.timeout(PATIENCE):
        assert await doubts.written([PARCEL]) == []

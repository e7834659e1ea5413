"""Receipts that wait for others, to share the price of a put, do so only while others can come."""

import asyncio
from collections.abc import Sequence

from pairbus.ledger.receipts import MemoryReceipts, Receipt
from tests.waiting import PATIENCE, eventually

from .bench import Bench, envelope


class Gathered(MemoryReceipts):
    """None is kept before it is said that no more come."""

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0
        self._waiting: list[asyncio.Future[None]] = []

    def urge(self) -> None:
        asyncio.get_running_loop().call_soon(self._keep)

    async def append(self, rows: Sequence[Receipt]) -> None:
        kept: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(kept)
        await kept
        await super().append(rows)

    def _keep(self) -> None:
        waiting, self._waiting = self._waiting, []
        self.commits += bool(waiting)
        for kept in waiting:
            kept.set_result(None)


async def test_a_drain_with_all_that_it_may_hold_in_hand_waits_for_no_more(bench: Bench) -> None:
    queues = bench.create("orders", count=3)
    for index, queue in enumerate(queues):
        bench.load(queue, (envelope("orders", f"{index}-{number}") for number in range(300)))
    receipts = bench.receipts = Gathered()
    async with asyncio.timeout(PATIENCE):
        summary = await bench.drain(queues, max_in_hand=100)
    assert (summary.moved, len(bench.receipts.rows)) == (900, 900)
    assert 9 / 3 <= receipts.commits <= 30, "each is for what several queues have in hand"


async def test_who_stays_gathers_while_a_queue_may_bring_more(bench: Bench) -> None:
    first, second = bench.create("orders", count=2)
    receipts = bench.receipts = Gathered()
    pump = bench.pump([first, second], drain=False)
    run = asyncio.create_task(pump.run())
    bench.load(first, [envelope("orders", "m0")])
    await eventually(lambda: bench.primary.message_count("orders") == 1)
    bench.load(second, [envelope("orders", "m1")])
    await eventually(lambda: bench.primary.message_count("orders") == 2)
    assert receipts.commits == 0
    pump.stop()
    async with asyncio.timeout(PATIENCE):
        await run
    assert (receipts.commits, sorted(bench.receipt_ids)) == (1, ["m0", "m1"])
    assert not any(map(bench.secondary.message_count, (first, second)))

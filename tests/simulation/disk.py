"""A disk for receipts: what is on it outlives its writer; it may be full, and it may fail to sync."""

import asyncio
import errno
import random
from collections.abc import Sequence

from pairbus.ledger.receipts import Receipt

from .faults import Weather

__all__ = ["ReceiptDisk", "SimulatedReceipts"]


class ReceiptDisk:
    """Rows that were synced, and the faults of the disk."""

    def __init__(self, weather: Weather, seed: object) -> None:
        self.rows: list[Receipt] = []
        self.outcomes: dict[tuple[str, int], str] = {}  # queue and number -> the last outcome
        self._weather = weather
        self._chance = random.Random(f"disk {seed}")
        # Some are slower than locks are long.
        self._longest = random.Random(f"pace of the disk {seed}").choice((*[0.003] * 8, 0.3, 3.0))

    async def write(self, rows: Sequence[Receipt]) -> None:
        """Keep rows; OSError if they are not kept, or nobody knows."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._chance.uniform(0.0001, self._longest))
        if self._weather.strikes("disk", loop.time(), "disk-full"):
            raise OSError(errno.ENOSPC, "No space left on device")
        failed = self._weather.strikes("disk", loop.time(), "disk-sync") is not None
        if not failed or self._chance.random() < 0.5:
            for row in rows:
                self.rows.append(row)
                if row["outcome"] != "unknown":
                    self.outcomes[row["backlog_queue"], row["sequence_number"]] = row["outcome"]
        if failed:
            raise OSError(errno.EIO, "Input/output error")


class SimulatedReceipts:
    """The receipts of one writer."""

    def __init__(self, disk: ReceiptDisk, writer: str) -> None:
        self.writer = writer
        self._disk = disk

    def begin(self) -> None:
        """There is nothing to begin."""

    async def append(self, rows: Sequence[Receipt]) -> None:
        await self._disk.write(rows)

    def urge(self) -> None:
        """None waits for others."""

    async def close(self) -> None:
        """Every row was kept when it was appended."""

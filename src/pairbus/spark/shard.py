"""What a shard does, wherever it runs: hold the leash, and pump its queues until told to end.

1. All that a shard gets is names; what they stand for it looks up where it runs.
2. A pump ends when its queues are drained, when the epoch is over, when the leash says so, or when that of
   another pair has failed. To pause is to end all pumps, which gives back what they hold, and to begin anew
   when the leash says so.
3. At its end a pump tells the driver by the leash what it has done, for the summary only. That is lost if the
   shard dies; the receipts are not.
4. Limits are those of the whole job. The leash says which part of them is this shard's, and the shard divides
   it over its pairs, each time that one tells how far it is.
5. A shard whose leash is cut gives back what it has and fails, so that it is tried again.
"""

import asyncio
import json
import os
import socket
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pairbus.client.state.directory import try_directory
from pairbus.errors import ConfigurationError, PairbusError, UnreachableError
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.receipts import ReceiptLog
from pairbus.ledger.segment import writer_name
from pairbus.plumbing.tasks import wait_at_most
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import Pump
from pairbus.pump.summary import PumpSummary
from pairbus.stores.errors import RecordStoreError
from pairbus.stores.places import RecordPlace, StoreUri

from .leash.ends import hold_leash
from .leash.epochs import Shard
from .leash.leash import COUNTS, LeashPlace, PumpNews, PumpSeen
from .leash.shares import divide, weigh
from .leash.tether import Tether

# Bytes: the receipts of what a pump has in hand.
_TRIED_BYTES = 1 << 20
# Status shows the paths with the most that waits; a namespace may have ten thousand entities.
_PATHS_TOLD = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardJob:
    """What all shards of a run have in common. It holds names, never secrets."""

    pairs: tuple[PumpPair, ...]
    #: One for each pair.
    options: tuple[PumpOptions, ...]
    #: Where the receipts of each pair go.
    records: tuple[RecordPlace, ...]
    #: Begins the names of all writers of receipts.
    run: str
    leash: LeashPlace
    #: Whether shards end with their epoch.
    timed: bool
    #: The names of the pairs, for whoever looks at the jobs of Spark.
    label: str = ""


@dataclass(slots=True)
class ShardRun:
    """One shard in one task."""

    job: ShardJob
    shard: Shard
    _done: list[PumpSummary] = field(default_factory=list, init=False)
    _running: dict[int, PumpSummary] = field(default_factory=dict, init=False)
    _pumps: dict[int, Pump] = field(default_factory=dict, init=False)

    async def run(self, attempt: int) -> dict[str, int]:
        """Pump until the end; what was counted."""
        job = self.job
        host, queues = socket.gethostname(), len(self.shard.queues)
        pump = PumpSeen(self.shard.number, self.shard.epoch, attempt, host, os.getpid(), queues)
        tether = await hold_leash(job.leash, [*dict.fromkeys(job.records)], pump=pump, timed=job.timed)
        try:
            await asyncio.to_thread(self._try_records)
            await self._obey(tether)
            if tether.is_cut:
                raise UnreachableError("the driver of the syphon gives no sign of life; its pumps have ended")
            tether.report(self._row())
            return self._counts()
        except ConfigurationError as error:
            # No other try would fare better: the driver need not wait for all of them.
            tether.complain(f"on {host}, where a pump runs: {error}", is_final=True)
            raise
        except (PairbusError, OSError) as error:
            tether.complain(describe_failure(error))
            raise
        finally:
            await tether.close()

    def _try_records(self) -> None:
        """On a full disk nothing may be sent: without its receipt it would be sent again with each try."""
        for place in dict.fromkeys(self.job.records):
            if not isinstance(place, StoreUri):
                try_directory(place, _TRIED_BYTES)

    async def _obey(self, tether: Tether) -> None:
        ends = None if tether.left is None else time.monotonic() + tether.left
        while tether.order != "stop":
            left = None if ends is None else ends - time.monotonic()
            if left is not None and left <= 0:
                return
            tether.changed.clear()
            if tether.order == "pause":
                tether.tell(replace(self._news(), is_resting=True))
                await wait_at_most(tether.changed, left)
            elif await self._pump(tether, left):
                return

    async def _pump(self, tether: Tether, left: float | None) -> bool:
        """Run the pumps until they end or the leash is pulled; whether they have ended by themselves."""
        stop = asyncio.Event()
        pumps = [asyncio.ensure_future(self._run_one(pair, stop, tether, left)) for pair in self._pairs()]
        ended = asyncio.ensure_future(asyncio.wait(pumps, return_when=asyncio.FIRST_EXCEPTION))
        pulled = asyncio.ensure_future(tether.changed.wait())
        waits: set[asyncio.Future[Any]] = {ended, pulled}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            has_ended = ended.done()
            stop.set()
            await asyncio.gather(*pumps, return_exceptions=True)  # one that failed does not cut others off
            self._done += [pump.result() for pump in pumps]
        finally:
            for wait in waits:
                wait.cancel()
        self._running.clear()
        self._pumps.clear()
        tether.tell(self._news())
        return has_ended

    def _pairs(self) -> list[int]:
        return sorted({queue.pair for queue in self.shard.queues})

    async def _run_one(
        self, pair: int, stop: asyncio.Event, tether: Tether, left: float | None
    ) -> PumpSummary:
        def tell(summary: PumpSummary) -> None:
            self._running[pair] = summary
            tether.tell(self._news())
            self._divide(tether.share)

        records = self.job.records[pair]
        writer = f"{self.job.run}-{writer_name()}"
        pump = Pump(
            self.job.pairs[pair],
            [queue.name for queue in self.shard.queues if queue.pair == pair],
            options=replace(self.job.options[pair], run_for=left),
            receipts=ReceiptLog(records, writer=writer),
            ledger=OperationLog(records, role="pump", pair=self.job.pairs[pair].label()),
            on_progress=tell,
            stop=stop,
        )
        self._pumps[pair] = pump
        self._divide(tether.share)
        return await pump.run()

    def _divide(self, share: float) -> None:
        """A limit is that of the whole job: this task's part of it, over its pairs."""
        weights = {
            pair: weigh(self._pumps[pair].active if pair in self._pumps else 0, count)
            for pair, count in Counter(queue.pair for queue in self.shard.queues).items()
        }
        for pair, part in divide(weights, share).items():
            if pair in self._pumps:
                self._pumps[pair].take_share(part)

    # -- counting

    def _news(self) -> PumpNews:
        stalls = sorted({one.stall for one in self._running.values() if one.stall})
        return PumpNews(
            counts=self._counts(),
            active=sum(one.active for one in self._pumps.values()),
            stall="; ".join(stalls) or None,
            paths=self._waiting_paths(),
        )

    def _waiting_paths(self) -> dict[str, dict[str, Any]]:
        """The paths whose messages wait, those with the most of them; by pair, for names may be alike."""
        found = {
            f"{self.job.pairs[pair].name}/{path}" if len(self.job.pairs) > 1 else path: tally
            for pair, summary in self._running.items()
            for path, tally in summary.paths.items()
            if tally.waiting
        }
        most = sorted(found, key=lambda path: -found[path].waiting)[:_PATHS_TOLD]
        return {
            path: {"waiting": found[path].waiting, "oldest": found[path].oldest, "why": found[path].trouble}
            for path in most
        }

    def _counts(self) -> dict[str, int]:
        running = list(self._running.values())
        counts = {name: sum(getattr(one, name) for one in [*self._done, *running]) for name in COUNTS}
        counts["waiting"] = sum(one.waiting for one in running or self._latest())
        return counts

    def _latest(self) -> list[PumpSummary]:
        """Of the last pump of each pair: what waits or cannot be read is so for the next one, too."""
        return self._done[-len(self._pairs()) :]

    def _row(self) -> dict[str, Any]:
        paths: dict[str, list[dict[str, Any]]] = {}
        errors: dict[str, str] = {}
        for summary in self._done:
            for path, tally in summary.paths.items():
                paths.setdefault(path, []).append({**asdict(tally), "waiting": 0})
        for summary in self._latest():
            errors |= summary.queue_errors
            for path, tally in summary.paths.items():
                paths[path][-1]["waiting"] += tally.waiting
        return {
            "epoch": self.shard.epoch,
            "shard": self.shard.number,
            **self._counts(),
            "paths": json.dumps(paths),
            "queue_errors": json.dumps(errors),
        }


def describe_failure(error: Exception) -> str:
    """Why a pump has ended, for the driver and its user."""
    if isinstance(error, RecordStoreError):
        return f"{error}; what has no receipt stays in the backlog: run it again when the store takes records"
    # Our own are sentences; of others the kind says more than the text.
    return str(error) if isinstance(error, PairbusError) else f"{type(error).__name__}: {error}"

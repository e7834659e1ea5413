"""The syphon that a client hosts for an application that has none: a pump on the client's own event loop.

1. It begins when the backlog queues have been looked after once, be it in vain: a queue that is missing or
   that cannot be reached is tried again by the pump, ever less often.
2. Idle, the pump long-polls each queue. A path of the primary that is down is tried about as often as the
   client pings it, and costs the others nothing.
3. A pump that fails, because a disk is full for instance, is replaced by another one after a rest. Nothing is
   lost with it: a message leaves the backlog only when the primary has it and its receipt is kept. Before it
   begins, a pump's disk is tried: one that cannot keep receipts would move the same messages at each try.
4. The end is the pump's own: what is on the way arrives and is completed, all else is given back. One that
   does not come to its end in time is cut off; then locks end by themselves, and a message may come twice.
5. One syphon works on a pair at a time: a pump runs only while the client holds the lease of the pair, and is
   stopped before that ends. Others wait for it. Where no lease can be had (`pairbus.lease`), or only the SDK
   knows the way to the secondary, pumps of several clients share the queues and lose nothing, but the order
   of a session is kept by one pump alone.
6. Where receipts are shipped, a pump is introduced before it moves anything (rule 5 of `state.shipping`). It
   does not wait for long: a place that cannot be reached stops no drain.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pairbus.client.state.directory import try_directory
from pairbus.client.state.shipping import SHIP_EVERY
from pairbus.client.status import SyphonState, SyphonStatus
from pairbus.clock import Clock
from pairbus.lease.lease import PairLease
from pairbus.lease.view import Holder
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.receipts import MemoryReceipts, Receipt, ReceiptLog, Receipts
from pairbus.ledger.segment import MAX_AGE
from pairbus.options import SendAvailabilityOptions
from pairbus.pairing.names import primary_name
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair, ResolvedSide
from pairbus.pump.pump import Pump
from pairbus.pump.summary import PumpSummary
from pairbus.pump.transport import Transport
from pairbus.sdk.side import SdkSide
from pairbus.stages import Role
from pairbus.threads import THREADS
from pairbus.timers import Timers, sleep_by
from pairbus.wire.meter import Meter

from .transport import open_transport, pump_side

log = logging.getLogger(__name__)
# The rest after a pump has failed; doubled with each further failure.
_FIRST_REST = 1.0
_LONGEST_REST = 300.0
# A pump that ran for so long was well: the next rest is a short one again.
_WELL_AFTER = 600.0
# The deadline of one answer, which is also the longest that a clean end waits for a peer that is silent.
_ANSWER_LIMIT = 10.0
# For the clean end, and then for the one that is forced.
_END_LIMIT = _ANSWER_LIMIT + 2.0
_CUT_LIMIT = 1.0
# The receipts of a few hundred messages.
_TRIED_BYTES = 128 * 1024
# A store that is well answers within a second.
_INTRODUCTION_LIMIT = 10.0
# As long as a status is expected to be old.
_PROGRESS_INTERVAL = 2.0


class HostedSyphon:
    """Runs a pump for as long as the client lives."""

    def __init__(
        self,
        primary: SdkSide,
        secondary: SdkSide,
        *,
        name: str,
        queues: Sequence[str],
        options: SendAvailabilityOptions,
        records: Path | None,
        clock: Clock,
        introduce: Callable[[], bool] | None = None,
    ) -> None:
        """`records` is where receipts and the ledger go; None for nowhere. They are shipped from there if
        there is somebody to `introduce` pumps: it blocks, and says whether it has. Does no I/O.
        """
        self._primary = primary
        self._secondary = secondary
        self._name = name
        self._queues = list(queues)
        self._options = _pump_options(options)
        self._records = records
        self._introduce = introduce
        self._clock = clock
        self._stop = asyncio.Event()
        # Of the pump that runs, and whether one may.
        self._halt = asyncio.Event()
        self._allowed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._state: SyphonState = "pending"
        self._lease_why: str | None = None
        self._failures = 0
        self._restarts = 0
        self._last_error: str | None = None
        self._now: PumpSummary | None = None
        # What earlier pumps have done: moved, dead-lettered, unknown.
        self._before = (0, 0, 0)

    def start(self, ready: asyncio.Event, *, timers: Timers) -> None:
        """Begin, in the background, when `ready` is set."""
        if self._task is None and not self._stop.is_set():
            self._task = asyncio.get_running_loop().create_task(self._run(ready, timers))
            self._task.add_done_callback(_note_end)

    def stop(self) -> None:
        """Come to an end, in the background."""
        self._stop.set()
        self._halt.set()

    async def close(self) -> None:
        """Rule 4: come to an end. The limits are real time: whoever closes a client waits for it."""
        self.stop()
        if self._task is None:
            self._state = "stopped"
            return
        done, _ = await asyncio.wait({self._task}, timeout=_END_LIMIT)
        if not done:
            log.warning("the hosted syphon did not end within %g s and is cut off", _END_LIMIT)
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_CUT_LIMIT)

    def status(self) -> SyphonStatus:
        """A picture of this moment, a few seconds old at most."""
        now = self._now
        moved, dead_lettered, unknown = self._before
        return SyphonStatus(
            state=self._state,
            moved=moved + (now.moved if now else 0),
            waiting=now.waiting if now else 0,
            dead_lettered=dead_lettered + (now.dead_lettered if now else 0),
            unknown=unknown + (now.unknown if now else 0),
            restarts=self._restarts,
            last_error=self._last_error,
            queue_errors=dict(now.queue_errors) if now else {},
            lease=self._lease_why,
        )

    # -- the life of pumps

    async def _run(self, ready: asyncio.Event, timers: Timers) -> None:
        try:
            await self._first_of(ready.wait(), self._stop.wait())
            async with self._leased():
                while not self._stop.is_set():
                    await self._await_lease()
                    if not self._stop.is_set():
                        await self._run_pump(timers)
        finally:
            self._state = "stopped"

    async def _run_pump(self, timers: Timers) -> None:
        begun = timers.now()
        self._state = "running"
        try:
            await asyncio.get_running_loop().run_in_executor(THREADS, self._try_disk)
            receipts = self._receipts()
            try:
                if self._introduce is not None and isinstance(receipts, ReceiptLog):
                    await receipts.begun()
                    await self._introduced(self._introduce)
                await self._pump(receipts).run()
            finally:  # a pump that cannot even begin closes nothing
                await receipts.close()
        except Exception as error:  # noqa: BLE001 - rule 3: whatever it is, the next pump may do better
            self._note_failure(error, lasted=timers.now() - begun)
            await self._rest(timers)
        self._count()

    # -- rule 5

    @asynccontextmanager
    async def _leased(self) -> AsyncIterator[None]:
        """Ask for the lease meanwhile, and give it back at the end."""
        transport = open_transport(self._secondary, timeout=_ANSWER_LIMIT)
        if not isinstance(transport, AmqpTransport):
            await transport.close()
            self._lease_why = (
                "no lease is asked for: only the SDK knows the way to the secondary (WebSocket, proxy); "
                "nothing keeps a second syphon from working on this pair"
            )
            log.warning("%s", self._lease_why)
            self._allowed.set()
            yield
            return
        ledger = self._ledger("lease")
        if ledger is not None:
            ledger.start()
        holder = Holder.of_this_process(uuid.uuid4().hex, kind="hosted", now=self._clock.now())
        lease = PairLease(
            lambda: self._open_for_lease(ledger), self._name, holder=holder, on_change=self._note_lease
        )
        keeping = asyncio.get_running_loop().create_task(lease.run())
        try:
            yield
        finally:
            lease.stop()
            await asyncio.wait({keeping}, timeout=_CUT_LIMIT)
            keeping.cancel()
            if ledger is not None:
                await asyncio.get_running_loop().run_in_executor(THREADS, ledger.close)

    def _open_for_lease(self, ledger: OperationLog | None) -> AmqpTransport:
        transport = open_transport(self._secondary, timeout=_ANSWER_LIMIT)
        assert isinstance(transport, AmqpTransport)
        transport.meter = Meter(primary_name(self._secondary.parsed or self._secondary.endpoint), ledger)
        return transport

    def _note_lease(self, lease: PairLease) -> None:
        self._lease_why = lease.why
        if lease.may_work:
            self._allowed.set()
        else:
            self._allowed.clear()
            self._halt.set()

    async def _await_lease(self) -> None:
        while not (self._allowed.is_set() or self._stop.is_set()):  # it may be lost again by the time we wake
            self._state = "waiting"
            await self._first_of(self._allowed.wait(), self._stop.wait())
        if not self._stop.is_set():
            self._halt.clear()

    async def _introduced(self, introduce: Callable[[], bool]) -> None:
        """Rule 6."""
        asked = asyncio.get_running_loop().run_in_executor(THREADS, introduce)
        wait = asyncio.wait({asked}, timeout=_INTRODUCTION_LIMIT)
        await self._first_of(wait, self._halt.wait())
        if not self._halt.is_set() and not (asked.done() and asked.result()):
            log.warning(
                "the place of records does not know yet that this client hosts a pump; a verdict there may "
                "miss its receipts until they are shipped"
            )

    def _try_disk(self) -> None:
        if self._records is not None:
            try_directory(self._records, _TRIED_BYTES)

    def _pump(self, receipts: Receipts) -> Pump:
        return Pump(
            PumpPair(primary=pump_side(self._primary), secondary=pump_side(self._secondary), name=self._name),
            self._queues,
            transport=self._open,
            options=self._options,
            receipts=receipts,
            ledger=self._ledger("pump"),
            on_progress=self._progressed,
            stop=self._halt,
            clock=self._clock,
        )

    def _open(self, side: ResolvedSide, options: PumpOptions) -> Transport:
        # The sides of a pair are never the same place.
        ours = self._primary if side.endpoint == self._primary.endpoint else self._secondary
        return open_transport(ours, timeout=options.send_timeout)

    def _receipts(self) -> Receipts:
        if self._records is None:
            return _NoReceipts()
        is_shipped = self._introduce is not None
        age = SHIP_EVERY if is_shipped else MAX_AGE
        return ReceiptLog(self._records, clock=self._clock, max_age=age, is_shipped=is_shipped)

    def _ledger(self, role: Role) -> OperationLog | None:
        if self._records is None:
            return None
        return OperationLog(self._records, role=role, pair=self._name, clock=self._clock)

    def _progressed(self, summary: PumpSummary) -> None:
        self._now = summary

    def _count(self) -> None:
        """Keep what a pump that is no more has done. What it put aside the next one finds again."""
        status, self._now = self.status(), None
        self._before = (status.moved, status.dead_lettered, status.unknown)

    def _note_failure(self, error: Exception, *, lasted: float) -> None:
        self._failures = 1 if lasted >= _WELL_AFTER else self._failures + 1
        self._last_error = f"{type(error).__name__}: {error}"
        log.error("the hosted syphon has failed and begins again: %s", self._last_error)

    async def _rest(self, timers: Timers) -> None:
        self._state = "resting"
        seconds = min(_LONGEST_REST, _FIRST_REST * 2 ** min(self._failures - 1, 16))
        await self._first_of(sleep_by(timers, seconds), self._stop.wait())
        self._restarts += not self._stop.is_set()

    async def _first_of(self, *waits: Any) -> None:
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()


def _note_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("the hosted syphon has ended", exc_info=error)


def _pump_options(options: SendAvailabilityOptions) -> PumpOptions:
    return PumpOptions(
        send_timeout=min(_ANSWER_LIMIT, options.send_timeout),
        longest_back_off=min(60.0, options.ping_primary_interval),
        ttl_policy=options.ttl_policy,
        ttl_policies=options.ttl_policies,
        progress_interval=_PROGRESS_INTERVAL,
    )


class _NoReceipts(MemoryReceipts):
    """Keeps none: a client without a state directory leaves nothing behind, and runs for months."""

    writer = "none"

    async def append(self, rows: Sequence[Receipt]) -> None:
        """Nothing is kept."""

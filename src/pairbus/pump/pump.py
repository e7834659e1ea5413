"""The pump: one event loop that moves the messages of many backlog queues to where they belong."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from pairbus import conditions
from pairbus.clock import Clock, SystemClock
from pairbus.errors import ConfigurationError
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.receipts import MemoryReceipts, Receipts
from pairbus.pairing.names import primary_name
from pairbus.plumbing.tasks import cancel_all
from pairbus.threads import THREADS
from pairbus.wire.errors import TransportError
from pairbus.wire.meter import Meter

from .amqp_transport import AmqpTransport
from .destinations import Destinations
from .gait import STANDARD_CREDITS
from .headway import Headway
from .options import PumpOptions
from .pair import PumpPair, ResolvedSide
from .queue import QueuePump
from .rate import Limiter
from .station import Station
from .summary import PumpSummary, PumpTally
from .transport import Transport
from .turnstile import Entrance, Turnstile

if TYPE_CHECKING:
    from pairbus.sdk.side import SideName

log = logging.getLogger(__name__)
# The number of no message; and how often it is looked whether there is a reason to ask.
_BEYOND_ALL = 2**62
_NO_SOUNDING = 0.25
OpenTransport = Callable[[ResolvedSide, PumpOptions], Transport]


def open_transport(side: ResolvedSide, options: PumpOptions) -> Transport:
    """The transport that the options name. Does no I/O."""
    if options.transport == "sdk":
        from .sdk_transport import SdkTransport  # the SDK takes a while to import, and is not needed else

        return SdkTransport(side, timeout=options.send_timeout)
    return AmqpTransport(side.place(), side.tokens(), timeout=options.send_timeout)


@contextlib.asynccontextmanager
async def opened_transport(side: ResolvedSide, options: PumpOptions) -> AsyncIterator[Transport]:
    """The same, closed at the end of the block."""
    transport = open_transport(side, options)
    try:
        yield transport
    finally:
        await transport.close()


class Pump:
    """Moves messages from backlog queues to the entities that they are for. Run it once."""

    def __init__(
        self,
        pair: PumpPair,
        queues: Sequence[str],
        *,
        transport: OpenTransport = open_transport,
        options: PumpOptions | None = None,
        receipts: Receipts | None = None,
        ledger: OperationLog | None = None,
        on_progress: Callable[[PumpSummary], None] | None = None,
        stop: asyncio.Event | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`ledger`, for what is billed, is closed with the run. `stop` ends the run cleanly. Does no I/O."""
        if not queues:
            raise ConfigurationError("A pump needs at least one backlog queue to move messages from")
        self._pair = pair
        self._queues = list(dict.fromkeys(queues))
        self._open = transport
        self._options = options or PumpOptions()
        self._receipts = receipts or MemoryReceipts()
        self._ledger = ledger
        self._on_progress = on_progress
        self._stop = stop or asyncio.Event()
        self._clock = clock or SystemClock()
        self._pumps: list[QueuePump] = []
        self._share = 1.0
        self._at: Station | None = None
        self._headway = Headway()

    @property
    def active(self) -> int:
        """How many queues have something to move."""
        return 0 if self._at is None else self._at.active

    def take_share(self, share: float) -> None:
        """Use only this part of the limits that the options give: others use the rest of them."""
        self._share = share
        if self._at is not None:
            self._at.limiter.limit(*self._limits())
            self._at.limiter.take_share(share)

    def _limits(self) -> tuple[float | None, float | None]:
        limits = (self._options.max_rate, self._options.max_byte_rate)
        of_messages, of_bytes = (None if limit is None else limit * self._share for limit in limits)
        return of_messages, of_bytes

    def stop(self) -> None:
        """End cleanly; call it on the event loop of the run."""
        self._stop.set()

    async def run(self) -> PumpSummary:
        """Pump until stopped, or in a drain until there is nothing more to do; what was done."""
        sides = self._pair.primary.resolve(), self._pair.secondary.resolve()
        primary, secondary = map(self._open_metered, sides)
        if self._ledger is not None:
            self._ledger.start()
        self._receipts.begin()
        station = self._at = self._station(primary, secondary)
        self._expect_credits("primary", sides[0], primary, station.limiter)
        self._expect_credits("secondary", sides[1], secondary, station.limiter)
        self._pumps = [QueuePump(queue, secondary.source(queue), station) for queue in self._queues]
        side_work = self._watch(station), self._report(station), self._sound(station, secondary)
        side_tasks = [asyncio.create_task(work) for work in side_work]
        try:
            await self._run_queues(station)
        finally:
            await cancel_all(*side_tasks)
            await station.close()
            await asyncio.gather(primary.close(), secondary.close())
            try:
                await self._receipts.close()
            finally:
                if self._ledger is not None:
                    await asyncio.get_running_loop().run_in_executor(THREADS, self._ledger.close)
        summary = self._summary(station)
        self._tell(summary)
        if station.failure is not None:
            raise station.failure
        return summary

    def _open_metered(self, side: ResolvedSide) -> Transport:
        transport = self._open(side, self._options)
        if self._ledger is not None:
            transport.meter = Meter(primary_name(side.parsed or side.endpoint), self._ledger)
        return transport

    def _expect_credits(
        self, name: SideName, side: ResolvedSide, transport: Transport, limiter: Limiter
    ) -> None:
        """What the options say, what the namespace tells, or else the tier that most have."""
        given = self._options.credits
        if given is not None:
            limiter.expect(name, given or inf, is_certain=True)
            return
        limiter.expect(name, STANDARD_CREDITS if side.is_service else inf, is_certain=False)
        transport.on_credits = lambda credits: limiter.expect(name, credits, is_certain=True)

    async def _sound(self, station: Station, secondary: Transport) -> None:
        """While the rate grows, ask the secondary for something that it can refuse (see `gait`)."""
        source = secondary.source(self._queues[0])
        try:
            while True:
                pause = station.limiter.sounding_pause()
                if pause is not None:
                    station.limiter.inlet.take(1)
                    try:
                        await source.peek(_BEYOND_ALL, 1)
                    except TransportError as error:
                        if error.condition == conditions.SERVER_BUSY:
                            station.limiter.trouble(station.monotonic(), "secondary", is_busy=True)
                await asyncio.sleep(pause or _NO_SOUNDING)
        finally:
            await source.close()

    def _station(self, primary: Transport, secondary: Transport) -> Station:
        options = self._options
        max_messages, max_bytes = self._limits()
        limiter = Limiter(max_messages=max_messages, max_bytes=max_bytes, adaptive=options.adaptive)
        return Station(
            pair=self._pair.label(),
            options=options,
            primary=primary,
            receipts=self._receipts,
            clock=self._clock,
            conditions=Destinations(first=options.first_back_off, longest=options.longest_back_off),
            limiter=limiter,
            turnstile=Turnstile(limiter, self._clock),
            entrance=Entrance(limiter, self._clock),
            tally=PumpTally(self._clock.monotonic()),
            longest_wait=secondary.longest_wait,
            queues=len(self._queues),
            headway_at=self._clock.monotonic(),
        )

    async def _run_queues(self, station: Station) -> None:
        tasks = [asyncio.create_task(pump.run()) for pump in self._pumps]
        for task in tasks:
            # A mistake of ours in one queue ends the run at once: the others might go on for days.
            task.add_done_callback(station.note_end)
        try:
            results = await asyncio.gather(*tasks, return_exceptions=True)
        except asyncio.CancelledError:
            for task in tasks:
                task.remove_done_callback(station.note_end)
            await cancel_all(*tasks)
            raise
        for queue, result in zip(self._queues, results, strict=True):
            if isinstance(result, BaseException):
                log.error("the pump of a queue has failed: %s", queue, exc_info=result)
                raise station.failure or result

    async def _watch(self, station: Station) -> None:
        """Wait for a reason to stop: asked to, time is up, or something is broken."""
        waits = [asyncio.create_task(self._stop.wait()), asyncio.create_task(station.stopped.wait())]
        try:
            await asyncio.wait(waits, timeout=self._options.run_for, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        station.stopped.set()
        station.turns.open()
        for pump in self._pumps:
            pump.stop()

    async def _report(self, station: Station) -> None:
        while True:
            await asyncio.sleep(self._options.progress_interval)
            try:
                self._tell(self._summary(station))
            except Exception:  # the next one may be taken
                log.exception("progress could not be told")

    def _tell(self, summary: PumpSummary) -> None:
        if self._on_progress is not None:
            with contextlib.suppress(asyncio.InvalidStateError):
                self._on_progress(summary)

    def _summary(self, station: Station) -> PumpSummary:
        waiting = Counter[str]()
        for pump in self._pumps:
            if found := pump.lanes.deferred_by_path():  # of a thousand queues few have any
                waiting.update(found)
        now = self._clock.monotonic()
        summary = station.tally.summary(now, waiting)
        handled = summary.moved + summary.dead_lettered
        # Whoever goes on for ever polls for long, and cannot tell whether anything is left.
        at_work = station.active if self._options.drain else station.in_hand
        has_work = bool(at_work or summary.waiting or station.locked)
        if (seconds := self._headway.note(handled, has_work=has_work, now=now)) is None:
            return summary
        stall = f"no progress for {seconds:.0f} s, because {station.describe_stall(summary.waiting)}"
        if self._headway.is_news(now):
            log.warning("%s", stall, extra={"fields": {"pair": station.pair}})
        return replace(summary, stall=stall)

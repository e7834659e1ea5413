"""Plays a plan of the pump: the real pump between two namespaces, killed and begun again as the plan says."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from pairbus.broker.engine.errors import Refused
from pairbus.broker.engine.message import Incoming
from pairbus.broker.engine.settings import QueueSettings
from pairbus.pump import intake, lanes, queue, rate
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair, ResolvedSide
from pairbus.pump.pump import Pump
from pairbus.pump.summary import PumpSummary
from pairbus.pump.transport import Delivery
from tests.pump.bench import envelope

from .disk import ReceiptDisk, SimulatedReceipts
from .faults import Weather
from .history import SimulatedHistory, create_queue, schedule_fault
from .loop import Process, SimulatedClock, Stuck, outside
from .namespace import SimulatedNamespace, message_id
from .pump_plan import DENIED, PRIMARY, SECONDARY, Knobs, PlannedMessage, PumpPlan, backlog
from .transport import SimulatedTransport

__all__ = ["ENDING", "GRACE", "PAIR", "PumpHistory", "play_pump"]

#: How long after the last fault a system may take until all is well.
GRACE = 400.0
#: How long a pump may take to end.
ENDING = 120.0
PAIR = PumpPair.from_connection_strings(
    *(
        f"Endpoint=sb://{name}.simulated/;SharedAccessKeyName=k;SharedAccessKey=a2V5;Namespace={name}"
        for name in (PRIMARY, SECONDARY)
    )
)


class PumpHistory(SimulatedHistory):
    """One history: what was planned, and all that became of it."""

    def __init__(self, plan: PumpPlan) -> None:
        super().__init__(plan.seed)
        self.plan = plan
        self.ended: dict[Process, str] = {}  # how a pump ended: "done", "killed" or "disk"
        weather = Weather(plan.faults, plan.seed)
        clock = SimulatedClock(self.loop)
        self.primary, self.secondary = (
            SimulatedNamespace(name, clock, weather, seed=plan.seed, tell=self.note)
            for name in (PRIMARY, SECONDARY)
        )
        self.disk = ReceiptDisk(weather, plan.seed)
        self.primary.denied.add(DENIED)
        self.secondary.on_leaving = self._on_leaving
        self.secondary.on_unsettled = self._on_unsettled
        self.queues = [backlog(index) for index in range(plan.knobs.queues)]
        self.numbers: dict[tuple[str, int], PlannedMessage] = {}
        #: Messages whose completion got lost on the way: their pump cannot know whether they are gone.
        self.unsettled: set[str] = set()
        self.lost_locks = 0  # of pumps that came to their end
        self._last_numbers: dict[str, int] = {}
        self._crashes = list(plan.crashes)
        self._pump: Pump | None = None
        self._is_stopping = False

    # -- playing

    def play(self) -> None:
        """Play the plan to its end."""
        try:
            with _turned(self.plan.knobs):
                self.loop.run(self._main(), limit=self.plan.healed_at + 20 * GRACE)
        except Stuck as stuck:
            self.failures.append(f"stuck: {stuck}")
        self.failures += self.loop.errors

    async def _main(self) -> None:
        self._set_up()
        for fault in self.plan.faults:
            if fault.where != "disk":
                schedule_fault(self, fault, self.primary if fault.where == PRIMARY else self.secondary)
        for message in self.plan.messages:
            self.loop.call_at(message.at, self._load, message, context=outside())
        if self.plan.knobs.rivals:
            await self._run_rivals()
        if self.plan.knobs.mode == "drain":
            await self._drain()
        else:
            await self._stream()

    def _set_up(self) -> None:
        knobs = self.plan.knobs
        settings = QueueSettings(
            requires_duplicate_detection=knobs.detects_duplicates,
            duplicate_detection_history_time_window=86_400.0,
        )
        for path in ("orders", "bills", "notes", DENIED):
            self.primary.act(partial(create_queue, path, settings))
        waiting = QueueSettings(
            lock_duration=knobs.lock, max_delivery_count=2_147_483_647, max_size_in_megabytes=5120
        )
        for name in self.queues:
            self.secondary.act(partial(create_queue, name, waiting))

    def _load(self, message: PlannedMessage) -> None:
        name = self.queues[message.queue]
        payload = envelope(
            None if message.is_malformed else message.path,
            message.id,
            session=message.session,
            body=body_of(message),
            properties={"number": int(message.id[1:])},
        )
        self.secondary.act(lambda engine, now: engine.send(name, [Incoming.parse(payload)], now))
        before = self._last_numbers.get(name, 0)
        number = [one.sequence_number for one in self.secondary.queue(name).table.since(before + 1)][-1]
        self._last_numbers[name] = number
        self.numbers[name, number] = message
        self.note(f"{message.id} is in {name} as {number}")

    def _on_leaving(self, how: str, name: str, number: int) -> None:
        """What must be true at the moment when a message leaves a backlog queue."""
        message = self.numbers[name, number]
        self.note(f"{message.id} leaves {name}: {how}")
        kept = self.disk.outcomes.get((name, number))
        if kept != ("moved" if how == "complete" else "dead-lettered"):
            self.failures.append(f"left without a receipt: {message.id} ({how}, the receipt says {kept})")
        if how == "complete" and not any(message.id in attempt.ids for attempt in self.primary.attempts):
            self.failures.append(f"lost: {message.id} was completed before the primary had it")

    def _on_unsettled(self, deliveries: Sequence[Delivery], is_lock_lost: bool) -> None:
        if is_lock_lost and not self._is_stopping:
            return  # it comes again, and who sent it is there to know it
        self.unsettled.update(message_id(delivery.payload) for delivery in deliveries)

    # -- pumps

    async def _run_pump(self, *, may_crash: bool) -> str:
        """Run a pump to its end, however it ends."""
        process = Process(f"pump {len(self.ended)}")
        crash = self._crashes.pop(0) if may_crash and self._crashes else None
        if crash is not None:
            process.ends_at = crash.step
            process.end = self._stop if crash.is_clean else process.kill
        dead: asyncio.Future[None] = self.loop.create_future()
        process.on_death.append(lambda: dead.set_result(None))
        self.note(f"{process.name} begins")
        self._is_stopping = False
        running = self.loop.spawn(process, self._make_and_run(process))
        ends: set[asyncio.Future[Any]] = {running, dead}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if dead.done():
            how = "killed"
        elif (error := running.exception()) is None:
            how = "done"
            summary: PumpSummary = running.result()
            self.lost_locks += summary.lost_locks
            self._excuse_unfinished(summary)
            self._look_at_counters()
            self._look_at_locks()
        else:
            how = "disk" if isinstance(error, OSError) else "failed"
            if how == "failed":
                self.failures.append(f"the pump failed: {error!r}")
        self.ended[process] = how
        self.note(f"{process.name} ends: {how}")
        process.kill()
        await asyncio.sleep(1.0 if crash is None or how == "disk" else crash.pause)
        return how

    def _excuse_unfinished(self, summary: PumpSummary) -> None:
        """What was moved and has lost its lock did not come again to who knows that it was: of a queue that
        could not be read to its end, and if the pump was stopped. What was put aside is fetched even then.
        """
        assert self._pump is not None
        for one in self._pump._pumps:
            for number in one._intake.unsettled:
                if one.queue in summary.queue_errors or not one.lanes.knows(number):
                    self.unsettled.add(self.numbers[one.queue, number].id)

    async def _run_rivals(self) -> None:
        rivals = [Process(f"rival {number}") for number in range(self.plan.knobs.rivals)]
        for rival in rivals:
            self.loop.spawn(rival, self._make(rival, drains=False).run())
        await asyncio.sleep(self.plan.knobs.rivals_for)
        for rival in rivals:
            self.note(f"{rival.name} is killed")
            self.ended[rival] = "killed"
            rival.kill()

    async def _make_and_run(self, process: Process) -> PumpSummary:
        self._pump = self._make(process, drains=self.plan.knobs.mode == "drain")
        return await self._pump.run()

    def _make(self, process: Process, *, drains: bool) -> Pump:
        knobs = self.plan.knobs
        options = PumpOptions(
            drain=drains,
            poll=60.0,
            send_timeout=knobs.send_timeout,
            max_in_hand=knobs.in_hand,
            longest_back_off=20.0,
            progress_interval=60.0,
            max_rate=knobs.max_rate,
            credits=knobs.credits,
        )

        def open_simulated(side: ResolvedSide, options: PumpOptions) -> SimulatedTransport:
            is_primary = side.endpoint.host == f"{PRIMARY}.simulated"
            namespace = self.primary if is_primary else self.secondary
            return SimulatedTransport(namespace, timeout=options.send_timeout)

        return Pump(
            PAIR,
            self.queues,
            transport=open_simulated,
            options=options,
            receipts=SimulatedReceipts(self.disk, process.name),
            clock=SimulatedClock(self.loop, knobs.skew),
        )

    def _look_at_counters(self) -> None:
        assert self._pump is not None
        for one in self._pump._pumps:
            counters = (one.lanes.held, one.lanes.held_bytes, one._finishing, len(one._tasks))
            if any(counters):
                self.failures.append(f"counters of {one.queue} do not return to zero: {counters}")
            if one._station.in_hand or one._station.active:
                station = one._station
                self.failures.append(f"counters do not return to zero: {station.in_hand}, {station.active}")

    def _stop(self) -> None:
        self.note("the pump is to stop")
        self._is_stopping = True
        if self._pump is not None:
            self._pump.stop()

    def _look_at_locks(self) -> None:
        """A pump that has ended holds nothing, unless a word of the backlog's namespace got lost. What
        one had that was killed, or that its disk has ended, stays locked until that runs out.
        """
        is_left = {"killed", "disk"}.intersection(self.ended.values())
        if is_left or any(fault.where == SECONDARY for fault in self.plan.faults):
            return
        for name in self.queues:
            if any(one.lock_token is not None for one in self.secondary.queue(name).table.since(0)):
                self.failures.append(f"still locked after the end: {name}")

    async def _drain(self) -> None:
        while self.loop.time() < self.plan.healed_at:
            await self._limited(self.plan.healed_at + GRACE, may_crash=True)
            await asyncio.sleep(self.loop.chance.uniform(0.5, 5.0))
        await self._limited(self.loop.time() + GRACE, may_crash=False)

    async def _limited(self, until: float, *, may_crash: bool) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._run_pump(may_crash=may_crash)
        except TimeoutError:
            raise Stuck(f"a drain does not end; {self._left_in_words()}") from None

    async def _stream(self) -> None:
        waiting = asyncio.create_task(self._wait_until_well())
        while not waiting.done():
            running = asyncio.create_task(self._run_pump(may_crash=True))
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.result()
        if not running.done() and self._pump is not None:
            self._pump.stop()
            try:
                async with asyncio.timeout(ENDING):
                    await running
            except TimeoutError:
                raise Stuck("a pump that was stopped does not end") from None

    async def _wait_until_well(self) -> None:
        await asyncio.sleep(self.plan.healed_at)
        until = self.loop.time() + GRACE + sum(crash.pause for crash in self.plan.crashes)
        while self.left(but_denied=True):
            if self.loop.time() > until:
                raise Stuck(f"nothing moves any more; {self._left_in_words()}")
            await asyncio.sleep(5.0)

    def left(self, *, but_denied: bool = False) -> list[str]:
        """The ids of messages that are in the backlog."""
        return [
            message.id
            for (name, number), message in self.numbers.items()
            if self._is_there(name, number)
            and not (but_denied and message.path == DENIED and not message.is_malformed)
        ]

    def _left_in_words(self) -> str:
        left = self.left()
        return f"{len(left)} messages are left: {' '.join(left[:20])}"

    def _is_there(self, name: str, number: int) -> bool:
        try:
            return self.secondary.queue(name).table.get(number) is not None
        except Refused:
            return False


def body_of(message: PlannedMessage) -> bytes:
    """The body that a planned message has."""
    return message.id.encode() * (message.size // 4)


@contextmanager
def _turned(knobs: Knobs) -> Iterator[None]:
    """Turn what the code has as constants."""
    places: list[tuple[Any, str, float]] = [
        (rate, "START_RATE", knobs.start_rate),
        (lanes, "FETCH_MESSAGES", knobs.fetch),
        (lanes, "BATCH_MESSAGES", knobs.batch),
        (intake, "PEEK_PAGE", knobs.page),
        (queue, "PEEK_PAGE", knobs.page),
    ]
    before = [getattr(module, name) for module, name, _ in places]
    for module, name, value in places:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(places, before, strict=True):
            setattr(module, name, value)


def play_pump(plan: PumpPlan) -> PumpHistory:
    """Play a plan and check what came of it."""
    from .checker import check_pump

    history = PumpHistory(plan)
    history.play()
    if not history.failures:
        history.failures += check_pump(history)
    return history

"""Plays a plan of the client: the real paired client between two namespaces, with its callers and spool."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest import mock

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessage

from pairbus.broker.engine.settings import QueueSettings
from pairbus.client import aio
from pairbus.client.hosted import backlog_view, syphon
from pairbus.client.hosted.backlog_view import BacklogView
from pairbus.client.hosted.syphon import HostedSyphon
from pairbus.client.observers.ledger import ClientLedger
from pairbus.client.pair import Pair
from pairbus.client.sending import message
from pairbus.client.sending.spool import Spool
from pairbus.client.state import spool_store
from pairbus.client.state.records import NoRecords
from pairbus.errors import PairbusError
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.receipts import MemoryReceipts
from pairbus.options import SendAvailabilityOptions
from pairbus.plumbing.files import FileLock, write_all
from pairbus.plumbing.serial_thread import SerialThread
from pairbus.pump import Pump, PumpOptions

from .client_plan import ClientPlan, PlannedCall
from .faults import Weather
from .forgetful_disk import ForgetfulDisk
from .history import SimulatedHistory, create_queue, schedule_fault
from .loop import EPOCH, Process, SimulatedClock, Stuck, current_process
from .namespace import SimulatedNamespace
from .pump_history import ENDING, GRACE, PAIR
from .pump_plan import PRIMARY, SECONDARY, backlog
from .side import SimulatedSide, connection_string
from .transport import SimulatedTransport

__all__ = ["ClientHistory", "memory", "play_client", "replaced"]

_PATHS = ("orders", "bills")
# A call that has a time-out ends so long after it at most; one that has none, after the last fault.
_OVERTIME = 6.0
# Room for two or three small messages in a batch, beside what the client keeps free.
_NARROW = 1_500
# Room for a few calls.
_CRAMPED = 2_000
# More than any batch of a plan needs; the backlog may have to split it.
_BATCH = 100_000


class ClientHistory(SimulatedHistory):
    """One history: what was planned, and all that became of it."""

    def __init__(self, plan: ClientPlan) -> None:
        super().__init__(plan.seed)
        self.plan = plan
        self.weather = weather = Weather(plan.faults, plan.seed)
        clock = SimulatedClock(self.loop)
        self.primary, self.secondary = (
            SimulatedNamespace(name, clock, weather, seed=plan.seed, tell=self.note)
            for name in (PRIMARY, SECONDARY)
        )
        #: How each call ended: "done", or the name of what it raised; nothing if its process died.
        self.ended: dict[PlannedCall, str] = {}
        self.began: dict[PlannedCall, float] = {}
        self.ledger: OperationLog | None = None
        #: In which life of the application each call ended.
        self.lives: dict[PlannedCall, int] = {}
        self._left = list(plan.calls)
        self._crashes = list(plan.crashes)
        self._life = 0
        self._client: aio.PairedServiceBusClient | None = None
        self._state = Path(tempfile.mkdtemp(prefix="pairbus-simulation-", dir=memory()))
        self.disk = ForgetfulDisk(self._state, plan.seed)
        #: When each life of the application ended that was killed.
        self.deaths: dict[Process, float] = {}

    def play(self) -> None:
        """Play the plan to its end."""
        try:
            with replaced(self):
                self.loop.run(self._main(), limit=self.plan.healed_at + 20 * GRACE)
        except Stuck as stuck:
            self.failures.append(f"stuck: {stuck}")
        finally:
            shutil.rmtree(self._state, ignore_errors=True)
        self.failures += self.loop.errors

    async def _main(self) -> None:
        for path in _PATHS:
            self.primary.act(partial(create_queue, path, QueueSettings()))
        waiting = QueueSettings(lock_duration=30.0, max_delivery_count=2_147_483_647)
        for index in range(self.plan.knobs.queues):
            self.secondary.act(partial(create_queue, backlog(index), waiting))
        for fault in self.plan.faults:
            if fault.where != "disk":
                schedule_fault(self, fault, self.primary if fault.where == PRIMARY else self.secondary)
        pump = None if self.plan.knobs.hosts else self.loop.spawn(Process("pump"), self._pump())
        while await self._run_application() == "killed":
            self.note("the application begins again")
        if pump is not None and pump.done():
            pump.result()

    async def _pump(self) -> None:
        await Pump(
            PAIR,
            [backlog(index) for index in range(self.plan.knobs.queues)],
            transport=lambda side, options: SimulatedTransport(self._namespace(side.endpoint.host)),
            options=PumpOptions(poll=60.0, longest_back_off=20.0),
            receipts=MemoryReceipts(),
            clock=SimulatedClock(self.loop),
        ).run()

    def _namespace(self, host: str) -> SimulatedNamespace:
        return self.primary if host == f"{PRIMARY}.simulated" else self.secondary

    # -- the application

    async def _run_application(self) -> str:
        process = Process("application")
        self._life += 1
        crash = self._crashes.pop(0) if self._crashes else None
        if crash is not None:
            process.ends_at = crash.step
        dead: asyncio.Future[None] = self.loop.create_future()
        process.on_death.append(lambda: dead.set_result(None))
        running = self.loop.spawn(process, self._application())
        ends: set[asyncio.Future[Any]] = {running, dead}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not dead.done():
            running.result()
            process.on_death.clear()
            return "done"
        assert crash is not None
        self.note(f"the application is {'killed by a power cut' if crash.is_power_cut else 'killed'}")
        self.deaths[process] = EPOCH + self.loop.time()
        if crash.is_power_cut and memory() is not None:
            self.disk.cut_power()
        await asyncio.sleep(crash.pause)
        return "killed"

    async def _application(self) -> None:
        client = self._client = self._make_client()
        await client.start()
        callers = {call.caller for call in self._left}
        lines = [[call for call in self._left if call.caller == caller] for caller in sorted(callers)]
        await asyncio.gather(*(self._call_in_turn(client, line) for line in lines))
        await self._wait_until_well(client)
        self._look_at_counters(client)
        try:
            async with asyncio.timeout(ENDING):
                await client.close()
        except TimeoutError:
            raise Stuck("a client that is closed does not end") from None

    def _make_client(self) -> aio.PairedServiceBusClient:
        knobs = self.plan.knobs
        options = SendAvailabilityOptions(
            backlog_queue_count=knobs.queues,
            failover_interval=knobs.failover_interval,
            ping_primary_interval=knobs.ping_interval,
            send_timeout=knobs.send_timeout,
            rotation_cool_down=knobs.cool_down,
            links_per_entity=knobs.links,
            ordering="session" if knobs.keeps_order else "none",
            enable_spool=knobs.spools,
            enable_syphon=knobs.hosts,
            probe=knobs.probe,
        )
        # By our own AMQP a sender takes many calls at once.
        width = 1 if self.plan.seed % 2 else 16
        primary = cast(Any, SimulatedSide(self.primary, width=width))
        room = {"size": _NARROW} if knobs.is_narrow else {}
        secondary = cast(Any, SimulatedSide(self.secondary, width=width, **room))
        clock = SimulatedClock(self.loop)
        queues = [backlog(index) for index in range(knobs.queues)]
        client = aio.PairedServiceBusClient.from_connection_strings(
            *map(connection_string, (PRIMARY, SECONDARY)), primary_name=PRIMARY
        )
        chosen = (
            Spool(self._state / "spool", limit=_CRAMPED if knobs.is_cramped else 1 << 30)
            if knobs.spools
            else None
        )
        hosted = HostedSyphon(
            primary, secondary, name=PRIMARY, queues=queues, options=options, records=None, clock=clock
        )
        client._make_pair = lambda: Pair(
            primary,
            secondary,
            name=PRIMARY,
            options=options,
            clock=clock,
            records=NoRecords(),
            spool=chosen,
            syphon=hosted if knobs.hosts else None,
            view=BacklogView(secondary, queues, name=PRIMARY, records=None, clock=clock)
            if knobs.keeps_order
            else None,
            landmark=None,
            on_state_change=None,
            observers=(self._open_ledger(clock),),
        )
        return client

    def _open_ledger(self, clock: SimulatedClock) -> ClientLedger:
        self.ledger = log = _LedgerInMemory(self._state, role="client", pair=PRIMARY, clock=clock)
        return ClientLedger(log, primary=PRIMARY, secondary=SECONDARY, clock=clock)

    async def _call_in_turn(self, client: aio.PairedServiceBusClient, calls: Sequence[PlannedCall]) -> None:
        under_way: list[asyncio.Task[None]] = []
        for call in calls:
            await asyncio.sleep(max(0.0, call.at - self.loop.time()))
            self._left.remove(call)
            if call.is_pipelined:
                under_way.append(asyncio.create_task(self._call(client, call)))
            else:
                await self._call(client, call)
        await asyncio.gather(*under_way)

    async def _call(self, client: aio.PairedServiceBusClient, call: PlannedCall) -> None:
        self.note(f"{call.kind} {'+'.join(call.ids)} begins")
        task = asyncio.create_task(self._perform(client, call))
        if call.cancelled_after is not None:
            self.loop.call_later(call.cancelled_after, task.cancel)
        begun, life = self.loop.time(), self._life
        limit = call.timeout
        if limit is None or call.kind == "batch":  # to make a batch has no time-out of its own
            limit = max(0.0, self.plan.healed_at - begun) + 30.0
        await asyncio.wait({task}, timeout=limit + _OVERTIME)
        if not task.done():
            raise Stuck(f"a call does not end: {call}")
        how = "done"
        if task.cancelled():
            how = "cancelled"
        elif (error := task.exception()) is not None:
            how = type(error).__name__
            if not isinstance(error, AzureError | PairbusError | ValueError):
                self.failures.append(f"a call raised {error!r}: {call}")
        self.ended[call] = how
        self.began[call] = begun
        self.lives[call] = life
        self.note(f"{call.kind} {'+'.join(call.ids)} ends: {how}")

    async def _perform(self, client: aio.PairedServiceBusClient, call: PlannedCall) -> None:
        sender = client.get_queue_sender(call.path)
        messages = [message_of(call, name) for name in call.ids]
        match call.kind:
            case "one":
                await sender.send_messages(messages[0], timeout=call.timeout)
            case "list":
                await sender.send_messages(messages, timeout=call.timeout)
            case "batch":
                batch = await sender.create_message_batch(_BATCH)
                for one in messages:
                    batch.add_message(one)
                await sender.send_messages(batch, timeout=call.timeout)
            case "schedule":
                when = datetime.datetime.fromtimestamp(EPOCH + self.loop.time() + 1.0, datetime.UTC)
                await sender.schedule_messages(messages[0], when, timeout=call.timeout)

    # -- the end

    async def _wait_until_well(self, client: aio.PairedServiceBusClient) -> None:
        await asyncio.sleep(max(0.0, self.plan.healed_at - self.loop.time()))
        until = self.loop.time() + GRACE
        while why := self._is_not_well(client):
            if self.loop.time() > until:
                raise Stuck(f"nothing moves any more: {why}")
            await asyncio.sleep(5.0)
        await asyncio.sleep(5.0)  # what was scheduled is there by now

    def _is_not_well(self, client: aio.PairedServiceBusClient) -> str:
        status = client.status()
        if status.spool is not None and status.spool.messages:
            return f"{status.spool.messages} in the spool"
        counts = [self.secondary.queue(backlog(index)).counts() for index in range(self.plan.knobs.queues)]
        if any(one.active for one in counts):
            return f"{sum(one.active for one in counts)} in the backlog"
        states = {one.health.path: one.health.state.name for one in status.entities}
        return f"{states}" if any(state != "HEALTHY" for state in states.values()) else ""

    def _look_at_counters(self, client: aio.PairedServiceBusClient) -> None:
        spool = client.status().spool
        if spool is not None and (spool.bytes or spool.messages):
            self.failures.append(f"counters do not return to zero: {spool}")


class _LedgerInMemory(OperationLog):
    """Sums that nobody writes down."""

    def start(self) -> None:
        """There is no thread."""


def message_of(call: PlannedCall, name: str) -> ServiceBusMessage:
    """A message of a call."""
    return ServiceBusMessage(
        name.encode() * 5,
        message_id=name,
        session_id=call.session,
        application_properties={"number": int(name[1:])},
    )


def memory() -> str | None:
    """A directory in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


@contextlib.contextmanager
def replaced(history: ClientHistory) -> Iterator[None]:
    """Take the place of threads, of what is random, and of the locks of processes that have died."""
    loop, chance = history.loop, random.Random(f"client's own {history.plan.seed}")

    def submit(self: SerialThread, fn: Callable[..., Any], /, *args: Any, **keywords: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def perform() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **keywords))
                except BaseException as error:  # noqa: BLE001 - it belongs to whoever waits for it
                    future.set_exception(error)

        before: float = getattr(self, "busy_until", 0.0)
        self.busy_until = max(before, loop.time()) + loop.chance.uniform(0.0001, 0.003)  # type: ignore[attr-defined]
        loop.call_at(self.busy_until, perform)  # type: ignore[attr-defined]
        return future

    take, release = FileLock.take.__func__, FileLock.release  # type: ignore[attr-defined]
    held: dict[FileLock, Process | None] = {}

    def take_noted(cls: type[FileLock], *given: Any, **keywords: Any) -> FileLock | None:
        lock: FileLock | None = take(cls, *given, **keywords)
        if lock is not None:
            process = held[lock] = current_process()
            if process is not None:
                process.on_death.append(partial(release_noted, lock))
        return lock

    def release_noted(lock: FileLock) -> None:
        if lock in held:
            del held[lock]
            release(lock)

    def open_simulated(side: SimulatedSide, *, timeout: float) -> SimulatedTransport:
        return SimulatedTransport(side.namespace, timeout=timeout)

    def write(descriptor: int, data: bytes) -> None:
        if history.weather.strikes("disk", loop.time(), "disk-full"):
            write_all(descriptor, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        write_all(descriptor, data)

    def sync(descriptor: int) -> None:
        if history.weather.strikes("disk", loop.time(), "disk-sync"):
            raise OSError(errno.EIO, "Input/output error")
        history.disk.sync(descriptor)

    before = random.getstate()
    random.seed(f"client's own {history.plan.seed}")
    patches: list[Any] = [
        mock.patch.object(SerialThread, "submit", submit),
        mock.patch.object(FileLock, "take", classmethod(take_noted)),
        mock.patch.object(FileLock, "release", release_noted),
        mock.patch.object(backlog_view, "open_transport", open_simulated),
        mock.patch.object(syphon, "open_transport", open_simulated),
        mock.patch("os.urandom", chance.randbytes),
        mock.patch("secrets.token_hex", lambda size: chance.randbytes(size).hex()),
        mock.patch.object(message, "urandom", chance.randbytes),
        mock.patch.object(spool_store, "time", mock.Mock(time_ns=lambda: int((EPOCH + loop.time()) * 1e9))),
        mock.patch.object(spool_store, "write_all", write),
        mock.patch("os.fsync", sync),
    ]
    try:
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            yield
    finally:
        random.setstate(before)
        for lock in list(held):
            release_noted(lock)


def play_client(plan: ClientPlan) -> ClientHistory:
    """Play a plan and check what came of it."""
    from .client_checker import check_client

    history = ClientHistory(plan)
    history.play()
    if not history.failures:
        history.failures += check_client(history)
    return history

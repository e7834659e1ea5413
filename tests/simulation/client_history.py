"""Plays a plan of the client: the real paired client between two namespaces, with its callers and spool."""

import asyncio
import contextlib
import datetime
import errno
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
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
from pairbus.client.observers.observer import Observer
from pairbus.client.pair import Pair
from pairbus.client.sending import message, spool
from pairbus.client.sending.spool import Spool
from pairbus.client.state import spool_file, spool_store
from pairbus.client.state.records import NoRecords, RedirectRecord
from pairbus.errors import PairbusError
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.receipts import MemoryReceipts
from pairbus.options import SendAvailabilityOptions, StateChange
from pairbus.pairing.errors import ScheduledInBacklogError
from pairbus.plumbing import files
from pairbus.plumbing.files import FileLock, write_all
from pairbus.plumbing.serial_thread import SerialThread
from pairbus.pump.options import PumpOptions
from pairbus.pump.pump import Pump
from pairbus.pump.transport import Delivery

from .client_plan import ClientPlan, Deed, PlannedCall
from .faults import Weather
from .forgetful_disk import ForgetfulDisk
from .history import SimulatedHistory, create_queue, schedule_fault
from .kernel_sync import SimulatedSync
from .loop import EPOCH, Process, SimulatedClock, Stuck, current_process, outside
from .namespace import SimulatedNamespace, message_id
from .pump_history import ENDING, GRACE, PAIR
from .pump_plan import PRIMARY, SECONDARY, backlog
from .side import SimulatedSide, connection_string
from .transport import SimulatedTransport

__all__ = ["ClientHistory", "body_of", "memory", "play_client", "replaced"]

_PATHS = ("orders", "bills")
# A call that has a time-out ends so long after it at most; one that has none, after the last fault.
_OVERTIME = 6.0
# How many sends of a path it may take to see that the primary is back, and their names: above all planned.
_LAST_CALLS = 3
_LAST_NAME = 9000
# Room for two or three small messages in a batch, beside what the client keeps free.
_NARROW = 1_500
# Room for a few calls.
_CRAMPED = 2_000
# More than any batch of a plan needs; the backlog may have to split it.
_BATCH = 100_000
# How long after a call what it schedules is due, and what is cancelled if that comes in time.
_DUE, _CANCELLABLE = 1.0, 10.0
# More than a narrow backlog takes; of random bytes, for those can be compressed no further.
_LARGE = random.Random("large").randbytes(2_000)


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
        self.took: dict[PlannedCall, float] = {}
        self.ledger: OperationLog | None = None
        #: In which life of the application each call ended.
        self.lives: dict[PlannedCall, int] = {}
        #: What was sent when all was well.
        self.last_calls: list[PlannedCall] = []
        self._left = list(plan.calls)
        self._crashes = list(plan.crashes)
        self._life = 0
        self._client: aio.PairedServiceBusClient | None = None
        self._state = Path(tempfile.mkdtemp(prefix="pairbus-simulation-", dir=memory()))
        self.disk = ForgetfulDisk(self._state, plan.seed)
        #: When each life of the application ended that was killed.
        self.deaths: dict[Process, float] = {}
        #: What was scheduled and cancelled with success.
        self.cancelled: set[str] = set()
        #: What clients have put on record, also those that have died.
        self.records: list[RedirectRecord] = []
        #: The changes of state that the client told, and when.
        self.changes: list[tuple[float, StateChange]] = []
        #: What a hosted syphon had moved when it ended, and could not complete: the next one sends it again.
        self.unsettled: set[str] = set()
        self.secondary.on_unsettled = self._on_unsettled
        #: When scheduled messages are due, in Unix seconds.
        self.due: dict[str, float] = {}
        self._process: Process | None = None
        self._ending = asyncio.Event()
        #: How long the application stands still.
        self.standstill = sum(deed.seconds for deed in plan.deeds if deed.kind == "stand still")

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
        entity = QueueSettings(requires_duplicate_detection=self.plan.knobs.detects_duplicates)
        for path in _PATHS:
            self.primary.act(partial(create_queue, path, entity))
        waiting = QueueSettings(lock_duration=30.0, max_delivery_count=2_147_483_647)
        for index in range(self.plan.knobs.queues):
            self.secondary.act(partial(create_queue, backlog(index), waiting))
        for fault in self.plan.faults:
            if fault.where != "disk":
                schedule_fault(self, fault, self.primary if fault.where == PRIMARY else self.secondary)
        for deed in self.plan.deeds:
            self.loop.call_at(deed.at, self._do, deed, context=outside())
        pump = None if self.plan.knobs.hosts else self.loop.spawn(Process("pump"), self._pump())
        while await self._run_application() != "done":
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

    def _do(self, deed: Deed) -> None:
        self.note(str(deed).split(": ", 1)[1])
        if self._process is None:
            return
        if deed.kind == "stand still":
            self._process.stands_until = self.loop.time() + deed.seconds
        else:
            self.loop.spawn(self._process, self._do_by_hand(deed))

    async def _do_by_hand(self, deed: Deed) -> None:
        if self._client is not None:
            with contextlib.suppress(PairbusError):  # it may be closed by now
                if deed.kind == "fail over":
                    self._client.fail_over(deed.path)
                else:
                    self._client.mark_path_healthy(deed.path)

    def _namespace(self, host: str) -> SimulatedNamespace:
        return self.primary if host == f"{PRIMARY}.simulated" else self.secondary

    # -- the application

    async def _run_application(self) -> str:
        process = self._process = Process("application")
        self._life += 1
        self._ending = asyncio.Event()
        crash = self._crashes.pop(0) if self._crashes else None
        if crash is not None:
            process.ends_at = crash.step
            process.end = self._ending.set if crash.is_clean else process.kill
        dead: asyncio.Future[None] = self.loop.create_future()
        process.on_death.append(lambda: dead.set_result(None))
        running = self.loop.spawn(process, self._application())
        ends: set[asyncio.Future[Any]] = {running, dead}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not dead.done():
            process.on_death.clear()
            if not running.result():
                return "done"
            self.note("the application has been stopped")
            return "stopped"
        assert crash is not None
        self.note(f"the application is {'killed by a power cut' if crash.is_power_cut else 'killed'}")
        self.deaths[process] = EPOCH + self.loop.time()
        if crash.is_power_cut and memory() is not None:
            self.disk.cut_power()
        await asyncio.sleep(crash.pause)
        return "killed"

    def _on_unsettled(self, deliveries: Sequence[Delivery], is_lock_lost: bool) -> None:
        if is_lock_lost and not self._ending.is_set():
            return  # it comes again, and who sent it is there to know it
        self.unsettled.update(message_id(delivery.payload) for delivery in deliveries)

    async def _application(self) -> bool:
        """Whether it was stopped before it had come to its end."""
        client = self._client = self._make_client()
        await client.start()
        callers = {call.caller for call in self._left}
        lines = [[call for call in self._left if call.caller == caller] for caller in sorted(callers)]
        working: asyncio.Future[Any] = asyncio.gather(*(self._call_in_turn(client, line) for line in lines))
        ending: asyncio.Future[Any] = asyncio.ensure_future(self._ending.wait())
        await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
        if self._ending.is_set():
            self.note("the application is stopped")
            await self._close(client)
            await asyncio.wait({working}, timeout=_OVERTIME + self.standstill)
            if not working.done():
                raise Stuck("a call outlives its client")
            working.result()
            return True
        ending.cancel()
        working.result()
        await self._wait_until_well(client)
        if (looking := client.pair.backlog._looking) is not None:  # calls that nobody has made
            await asyncio.wait({looking})
        self._look_at_counters(client)
        for path in _PATHS:
            await self._send_last(client, path)
        await self._close(client)
        return False

    async def _close(self, client: aio.PairedServiceBusClient) -> None:
        try:
            async with asyncio.timeout(ENDING + self.standstill):
                await client.close()
        except TimeoutError:
            raise Stuck("a client that is closed does not end") from None
        for namespace in (self.primary, self.secondary):
            left = sum(one.process is self._process for one in namespace.connections)
            if left:
                self.failures.append(f"{left} connections to {namespace.name} are left by a closed client")

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
            on_suspect=knobs.on_suspect,
            on_permanent=knobs.on_permanent,
            good_pings=knobs.good_pings,
            count_throttled_after=3.0 if knobs.counts_all else None,
            count_unauthorized=knobs.counts_all,
            count_disabled=knobs.counts_all,
            spill_when_full=knobs.counts_all,
        )
        # By our own AMQP a sender takes many calls at once.
        width = 1 if self.plan.seed % 2 else 16
        primary = cast(Any, SimulatedSide(self.primary, width=width, opening=knobs.opening))
        room = {"size": _NARROW} if knobs.is_narrow else {}
        secondary = cast(Any, SimulatedSide(self.secondary, width=width, opening=knobs.opening, **room))
        clock = SimulatedClock(self.loop)
        queues = [backlog(index) for index in range(knobs.queues)]
        client = aio.PairedServiceBusClient.from_connection_strings(
            *map(connection_string, (PRIMARY, SECONDARY)), primary_name=PRIMARY
        )
        chosen = (
            Spool(
                self._state / "spool",
                limit=_CRAMPED if knobs.is_cramped else 1 << 30,
                keeps_sessions=knobs.keeps_order,
            )
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
            records=_RecordsInMemory(self.records),
            spool=chosen,
            syphon=hosted if knobs.hosts else None,
            view=BacklogView(secondary, queues, name=PRIMARY, records=None, clock=clock)
            if knobs.keeps_order
            else None,
            landmark=None,
            on_state_change=None,
            observers=(self._open_ledger(clock), _Changes(self)),
        )
        return client

    def _open_ledger(self, clock: SimulatedClock) -> ClientLedger:
        self.ledger = log = _LedgerInMemory(self._state, role="client", pair=PRIMARY, clock=clock)
        return ClientLedger(log, primary=PRIMARY, secondary=SECONDARY, clock=clock)

    async def _call_in_turn(self, client: aio.PairedServiceBusClient, calls: Sequence[PlannedCall]) -> None:
        under_way: list[asyncio.Task[None]] = []
        for call in calls:
            if await self._ends_before(call.at):
                break
            self._left.remove(call)
            if call.is_pipelined:
                under_way.append(asyncio.create_task(self._call(client, call)))
            else:
                await self._call(client, call)
        await asyncio.gather(*under_way)

    async def _ends_before(self, when: float) -> bool:
        """Wait until then, or until the application is stopped: whether it is."""
        await asyncio.sleep(0)
        if when > self.loop.time():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), when - self.loop.time())
        return self._ending.is_set()

    async def _call(self, client: aio.PairedServiceBusClient, call: PlannedCall) -> None:
        self.note(f"{call.kind} {'+'.join(call.ids)} begins")
        task = asyncio.create_task(self._perform(client, call))
        if call.cancelled_after is not None:
            self.loop.call_later(call.cancelled_after, task.cancel)
        if call.cancelled_with is not None:
            self.loop.interrupt(call.cancelled_with, task.cancel)
        begun, life = self.loop.time(), self._life
        limit = call.timeout
        if limit is None or call.kind == "batch":  # to make a batch has no time-out of its own
            limit = max(0.0, self.plan.healed_at - begun) + 30.0
        if call.kind == "cancel":  # two calls of the client
            limit *= 2
        await asyncio.wait({task}, timeout=limit + _OVERTIME + self.standstill)
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
        self.began[call], self.took[call] = begun, self.loop.time() - begun
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
                await sender.schedule_messages(messages[0], self._due_in(_DUE, call), timeout=call.timeout)
            case "cancel":
                when = self._due_in(_CANCELLABLE, call)
                numbers = await sender.schedule_messages(messages[0], when, timeout=call.timeout)
                with contextlib.suppress(ScheduledInBacklogError):  # then it comes
                    await sender.cancel_scheduled_messages(numbers, timeout=call.timeout)
                    self.cancelled.add(call.ids[0])

    def _due_in(self, seconds: float, call: PlannedCall) -> datetime.datetime:
        due = self.due[call.ids[0]] = EPOCH + self.loop.time() + seconds
        return datetime.datetime.fromtimestamp(due, datetime.UTC)

    # -- the end

    async def _wait_until_well(self, client: aio.PairedServiceBusClient) -> None:
        await asyncio.sleep(max(0.0, self.plan.healed_at - self.loop.time()))
        until = self.loop.time() + GRACE
        while why := self._is_not_well(client):
            if self.loop.time() > until:
                raise Stuck(f"nothing moves any more: {why}")
            await asyncio.sleep(5.0)
        last = max(self.due.values(), default=EPOCH) - EPOCH
        await asyncio.sleep(max(5.0, last + 1.0 - self.loop.time()))

    def _is_not_well(self, client: aio.PairedServiceBusClient) -> str:
        status = client.status()
        if status.spool is not None and status.spool.messages:
            return f"{status.spool.messages} in the spool"
        counts = [self.secondary.queue(backlog(index)).counts() for index in range(self.plan.knobs.queues)]
        if any(one.active for one in counts):
            return f"{sum(one.active for one in counts)} in the backlog"
        if status.sessions is not None and status.sessions.staying:
            return f"{status.sessions.staying} sessions stay"
        states = {one.health.path: one.health.state.name for one in status.entities}
        return f"{states}" if any(state != "HEALTHY" for state in states.values()) else ""

    async def _send_last(self, client: aio.PairedServiceBusClient, path: str) -> None:
        """All is well: the next send of a path goes to the primary, or the one after it. One alone may meet a
        link that was lost while nobody used it.
        """
        for _ in range(_LAST_CALLS):
            name = f"m{_LAST_NAME + len(self.last_calls)}"
            call = PlannedCall((name,), 0, path, None, self.loop.time(), "one", None, None)
            self.last_calls.append(call)
            await self._call(client, call)
            if not any(name in attempt.ids for attempt in self.secondary.attempts):
                return
            await self._wait_until_well(client)
        self.failures.append(f"all is well, and nothing goes to the primary: {path}")

    def _look_at_counters(self, client: aio.PairedServiceBusClient) -> None:
        status, pair = client.status(), client.pair
        counts: dict[str, int] = {
            f"attempts at {one.health.path}": one.health.attempts for one in status.entities
        }
        if status.spool is not None:
            counts |= {"messages in the spool": status.spool.messages, "bytes in it": status.spool.bytes}
        links = [
            *pair.backlog._links.values(),
            *(link for one in pair._entities.values() for link in one._links),
        ]
        counts["callers in line"] = sum(link.length + link.is_calling for link in links)
        counts["calls left behind"] = sum(len(link._left_behind) for link in links)
        counts["links to be closed"] = len(pair.graveyard)
        idle = [link for one in pair._entities.values() for link in one._pinger._idle]
        used = {id(link._sender) for link in (*links, *idle)}
        senders = [
            one for side in (pair.primary, pair.secondary) for one in cast(SimulatedSide, side).open_senders
        ]
        counts["links that nobody closes"] = sum(id(one) not in used for one in senders)
        counts["queues that are opened"] = len(pair.backlog._openings)
        counts["sessions in line"] = 0 if pair.sessions is None else len(pair.sessions._lines)
        left = {what: count for what, count in counts.items() if count}
        if left:
            self.failures.append(f"counters do not return to zero: {left}")


class _Changes(Observer):
    """Notes the changes of state."""

    def __init__(self, history: ClientHistory) -> None:
        self._history = history

    def state_changed(self, change: StateChange) -> None:
        self._history.changes.append((self._history.loop.time(), change))
        self._history.note(f"{change.path} is {change.new.value}: {change.reason}")


class _RecordsInMemory(NoRecords):
    """Rows that outlive whoever wrote them."""

    def __init__(self, rows: list[RedirectRecord]) -> None:
        self._rows = rows

    def append_at_once(self, rows: Sequence[RedirectRecord]) -> bool:
        self._rows += rows
        return True

    async def append(self, rows: Sequence[RedirectRecord]) -> None:
        self._rows += rows


class _LedgerInMemory(OperationLog):
    """Sums that nobody writes down."""

    def start(self) -> None:
        """There is no thread."""


def body_of(call: PlannedCall, name: str) -> bytes:
    """What a message of a call says."""
    return name.encode() * 5 + (_LARGE if call.is_large else b"")


def message_of(call: PlannedCall, name: str) -> ServiceBusMessage:
    """A message of a call."""
    return ServiceBusMessage(
        body_of(call, name),
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

    def pass_on(self: SerialThread, act: Callable[[], None]) -> None:
        before: float = getattr(self, "busy_until", 0.0)
        self.busy_until = max(before, loop.time()) + loop.chance.uniform(0.0001, 0.003)  # type: ignore[attr-defined]
        loop.call_at(self.busy_until, act)  # type: ignore[attr-defined]

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

    def kernel_sync() -> SimulatedSync:
        return SimulatedSync(sync, partial(loop.chance.uniform, 0.0001, 0.003))

    before = random.getstate()
    random.seed(f"client's own {history.plan.seed}")
    patches: list[Any] = [
        mock.patch.object(SerialThread, "_pass_on", pass_on),
        mock.patch.object(FileLock, "take", classmethod(take_noted)),
        mock.patch.object(FileLock, "release", release_noted),
        mock.patch.object(backlog_view, "open_transport", open_simulated),
        mock.patch.object(syphon, "open_transport", open_simulated),
        mock.patch("os.urandom", chance.randbytes),
        mock.patch("secrets.token_hex", lambda size: chance.randbytes(size).hex()),
        mock.patch.object(message, "urandom", chance.randbytes),
        mock.patch.object(spool_store, "time", mock.Mock(time_ns=lambda: int((EPOCH + loop.time()) * 1e9))),
        mock.patch.object(spool, "KernelSync", kernel_sync),
        mock.patch.object(spool_file, "write_all", write),
        mock.patch.object(files, "write_all", write),
        mock.patch("os.fsync", sync),
        mock.patch("os.fdatasync", sync),
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

"""A pair at work: two sides, the entities that are sent to, the backlog, and what they share."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from azure.core.exceptions import AzureError

from pairbus.backlog.provisioner import Provisioner, ProvisioningReport
from pairbus.clock import Clock
from pairbus.options import EntityState, SendAvailabilityOptions, StateChange
from pairbus.pairing.failures import Failure, FailureKind, classify
from pairbus.pairing.headroom import HeadroomWatch, batch_limit
from pairbus.pairing.names import backlog_queue_names, path_key
from pairbus.pairing.scheduling import check_cancellable
from pairbus.plumbing.tasks import take_each
from pairbus.sdk.failures import describe
from pairbus.sdk.graveyard import Graveyard
from pairbus.sdk.side import SdkSender, SdkSide, SideName
from pairbus.threads import THREADS
from pairbus.timers import LoopTimers, Timers

from .errors import WrongLoopError
from .fleet.fleet import Fleet
from .fleet.line import FleetLine
from .observers.notifier import Notifier
from .observers.observer import LogObserver, Observer, Observers
from .sending.acquaintance import Acquaintance
from .sending.backlog_route import BacklogRoute
from .sending.calls import EntityCall
from .sending.entity import PairedEntity
from .sending.message import Message, PairedMessageBatch
from .sending.router import Router
from .sending.sessions import StayingSessions
from .sending.spool import Spool
from .sending.spool_lane import UnsendableRecord
from .sending.surroundings import Surroundings
from .sides import Sides
from .state.landmark import Landmark
from .state.records import Records
from .status import PairStatus

if TYPE_CHECKING:
    from .hosted.backlog_view import BacklogView
    from .hosted.syphon import HostedSyphon

log = logging.getLogger(__name__)
# What closing gives to a send that is under way, then to links that are being closed, then to the
# application's callback.
_CLOSE_GRACE = 2.0
_CLOSE_WAIT = 5.0
_TOO_LARGE = "MessageSizeExceededError"
_CLOSED_UNDER_US = "its SDK client was closed by somebody else than this client"


class Pair:
    """What a client is made of. It lives on one event loop."""

    def __init__(
        self,
        primary: SdkSide,
        secondary: SdkSide,
        *,
        name: str,
        options: SendAvailabilityOptions,
        clock: Clock,
        records: Records,
        spool: Spool | None,
        syphon: HostedSyphon | None,
        view: BacklogView | None,
        landmark: Landmark | None,
        open_fleet_line: Callable[[], Awaitable[FleetLine]] | None = None,
        on_state_change: Callable[[StateChange], object] | None,
        observers: Iterable[Observer],
        timers: Timers | None = None,
    ) -> None:
        """`open_fleet_line` leads to the other clients of the pair, for whom one of them pings."""
        self.primary = primary
        #: The batches that senders of the primary take as they are.
        self.batches = primary.batch_kind(PairedMessageBatch)
        self.is_tracing = primary.is_tracing
        self.secondary = secondary
        self.name = name
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.timers: Timers = timers or LoopTimers(self.loop)
        self.graveyard = Graveyard()
        self.observers = Observers([LogObserver(), *observers])
        self.headroom = HeadroomWatch()
        self._clock = clock
        self._records = records
        self.spool = spool
        self._syphon = syphon
        self._notifier = Notifier(on_state_change)
        self._entities: dict[str, PairedEntity] = {}
        self.sides = Sides(timers=self.timers, is_hosting=syphon is not None, on_end=self._side_ended)
        primary.on_closed_under_us = partial(self.fault, _CLOSED_UNDER_US, "primary")
        secondary.on_closed_under_us = partial(self.fault, _CLOSED_UNDER_US, "secondary")
        self._provisioner: Provisioner | None = None
        self._provisioning: asyncio.Task[ProvisioningReport] | None = None
        self._report: ProvisioningReport | None = None
        self._first_report = asyncio.Event()
        self.fleet: Fleet | None = None
        if open_fleet_line is not None:
            self.fleet = Fleet(
                open_fleet_line,
                # As often as one client pings on average.
                interval=options.ping_primary_interval * (1 - options.ping_jitter / 2),
                timers=self.timers,
                random=random.random,
                on_role=lambda path, role: self.observers.tell(
                    lambda observer: observer.ping_role_changed(path, role)
                ),
            )
        self._surroundings = surroundings = Surroundings(
            options=options,
            timers=self.timers,
            random=random.random,
            wall_clock=clock.now,
            observers=self.observers,
            graveyard=self.graveyard,
            sides=self.sides,
            fleet=self.fleet,
        )
        queues = backlog_queue_names(name, options.backlog_queue_count)
        self.backlog = BacklogRoute(secondary, queues, surroundings=surroundings, records=records)
        if spool is not None:
            self.backlog.on_return = spool.nudge
        self._acquaintance = Acquaintance(
            landmark,
            find_queues=self.backlog.find,
            made_by_us=lambda: () if self._provisioner is None else self._provisioner.attempted,
        )
        self._view = view
        self.sessions: StayingSessions | None = None
        if view is not None:
            self.sessions = StayingSessions(
                view.look,
                timers=self.timers,
                interval=options.ping_primary_interval,
                is_up=self._is_up,
            )
        self.router = Router(surroundings, backlog=self.backlog, spool=spool, sessions=self.sessions)
        self.observers.tell(lambda observer: observer.paired(name, options.backlog_queue_count))

    def start(self) -> None:
        """Have the backlog queues looked after, the spool emptied, and the syphon run, in the background."""
        if self._provisioning is not None or not self.sides.is_open("secondary"):
            return
        for doubt in self.options.doubts:
            log.warning("%s", doubt)
        self._provisioner = provisioner = Provisioner(
            self.secondary.open_administration,
            self.name,
            count=self.options.backlog_queue_count,
            timers=self.timers,
            on_request=lambda entity, fate: self.observers.tell(
                lambda observer: observer.administered(entity, fate)
            ),
        )
        self._provisioning = self.loop.create_task(provisioner.keep_trying(self._provisioned))
        self._provisioning.add_done_callback(self._provisioning_ended)
        self._records.begin()
        if self.spool is not None:
            remember = None if self.sessions is None else self.sessions.remember
            self.spool.start(self._replay, timers=self.timers, on_stay=remember)
        if self._syphon is not None:
            self._syphon.start(self._first_report, timers=self.timers)
        if self.sessions is not None:
            self.sessions.start()

    def check(self) -> None:
        """Raise if nothing may be sent any more."""
        self._surroundings.check()

    def check_loop(self) -> None:
        """Raise on another event loop than the pair's own, and on threads that have none."""
        here: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            here = asyncio.get_running_loop()
        if here is not self.loop:
            raise WrongLoopError

    # -- sending

    async def cancel_scheduled(self, entity: PairedEntity, numbers: list[int], timeout: float | None) -> None:
        """Cancel messages that were scheduled at the primary."""
        check_cancellable(numbers)

        async def transmit(sender: SdkSender) -> None:
            await sender.cancel_scheduled_messages(numbers)

        await entity.ask(transmit, timeout)

    async def new_batch(self, entity: PairedEntity, max_size_in_bytes: int | None) -> PairedMessageBatch:
        """A batch that fits the primary and, with room for an envelope, a backlog queue."""
        known = await entity.batch_limit()
        if max_size_in_bytes and known is not None and max_size_in_bytes > known:
            raise ValueError(
                f"Max message size: {max_size_in_bytes} is too large, "
                f"acceptable max batch size is: {known} bytes."
            )
        limit = self.backlog.batch_limit
        size = batch_limit(max_size_in_bytes or None, primary_limit=known or limit, backlog_limit=limit)
        return self.primary.make_batch(PairedMessageBatch, size)

    def entity(self, path: str, *, is_topic: bool = False) -> PairedEntity:
        """The one sender of a path; paths are case-insensitive, and slashes around them mean nothing."""
        key = path_key(path)
        found = self._entities.get(key)
        if found is None:
            found = self._entities[key] = PairedEntity(
                path.strip("/"),
                self.primary,
                is_topic=is_topic,
                surroundings=self._surroundings,
                acquaintance=self._acquaintance,
                backlog=self.backlog,
                headroom=self.headroom,
                notify=self.notify,
            )
        return found

    def _is_up(self, key: str) -> bool:
        found = self._entities.get(key)
        return found is None or found.is_up

    # -- the spool

    async def _replay(self, path: str, messages: list[Message], scheduled_for: datetime | None) -> None:
        """Send what was spooled, by the route of the moment."""
        entity = self.entity(path)
        try:
            native = messages[0] if len(messages) == 1 else messages
            call = EntityCall(native, messages, when=scheduled_for, is_replay=True, traces=self.is_tracing())
            await self.router.perform(entity, call, None)
        except (AzureError, ValueError, TypeError) as error:
            failure = describe(error)
            if _is_of_the_message(failure):
                taken = getattr(error, "taken", 0)
                raise UnsendableRecord(failure.summary, taken=taken) from error
            raise

    # -- by hand

    def fail_over(self, path: str, reason: str) -> None:
        """Send what is for `path` to the backlog from now on, until a ping succeeds."""
        self.check_loop()
        self.check()
        entity = self.entity(path)
        entity.carry_out(entity.health.force_over(self.timers.now(), reason))

    def mark_path_healthy(self, path: str) -> None:
        """Send what is for `path` to the primary again, at once."""
        self.check_loop()
        self.check()
        entity = self.entity(path)
        entity.carry_out(entity.health.mark_healthy(self.timers.now()))

    def fault(self, cause: str, side: SideName) -> None:
        """Refuse what needs this side from now on; what waits for it is refused as well."""
        self.check_loop()
        self.sides.fault_side(side, cause)

    async def close_side(self, side: SideName) -> None:
        """Close all that leads to one of the two, and refuse what needs it from now on."""
        self.sides.close_side(side)
        if side == "primary":
            await asyncio.gather(*(entity.close(_CLOSE_GRACE) for entity in self._entities.values()))
        else:
            await self._end_provisioning()
            await self._leave_fleet()
            await self.backlog.close(_CLOSE_GRACE)
        await self.graveyard.wait(_CLOSE_WAIT)
        await (self.primary if side == "primary" else self.secondary).close(_CLOSE_WAIT)

    def _side_ended(self, side: SideName) -> None:
        """Have all look again who wait for a side; a syphon with one side only has nothing to do."""
        if self._syphon is not None:
            self._syphon.stop()
        self.backlog.wake()
        if self.sessions is not None:
            self.sessions.wake()
        if side == "primary":
            for entity in self._entities.values():
                entity.end()
        if self.sides.states()[side] == "faulted":  # who closes waits for it, here nobody does
            self.timers.call_at(self.timers.now() + _CLOSE_GRACE, partial(self._call_off, side))

    def _call_off(self, side: SideName) -> None:
        """What was under way when a side faulted has had its moment; a silent peer would take far longer."""
        self.backlog.evacuate()
        if side == "primary":
            for entity in self._entities.values():
                entity.evacuate()

    # -- provisioning

    def _provisioned(self, report: ProvisioningReport) -> None:
        self._report = report
        self._first_report.set()
        self.observers.tell(lambda observer: observer.provisioned(report))

    def _provisioning_ended(self, task: asyncio.Task[ProvisioningReport]) -> None:
        self._first_report.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the backlog queues could not be looked after", exc_info=error)

    @property
    def provisioning(self) -> str:
        """The state of the backlog queues, in a word."""
        if self._report is not None:
            return self._report.state
        return "not started" if self._provisioning is None else "pending"

    # -- telling

    def notify(self, change: StateChange) -> None:
        """Tell everybody of a change; the rules count in monotonic time, people do not."""
        if self.spool is not None:
            self.spool.nudge()
        dated = replace(change, at=self._clock.now())
        self.observers.tell(lambda observer: observer.state_changed(dated))
        self._notifier.tell(dated)

    def status(self) -> PairStatus:
        """A picture of this moment."""
        now = self.timers.now()
        offset = self._clock.now() - now
        return PairStatus(
            at=self._clock.now(),
            primary=str(self.primary.endpoint),
            secondary=str(self.secondary.endpoint),
            primary_name=self.name,
            fault=self.sides.fault,
            provisioning=self.provisioning,
            had_success=self._acquaintance.had_success,
            backlog_limit=self.backlog.limit,
            entities=tuple(entity.status(offset=offset) for entity in self._entities.values()),
            rotation=tuple(
                queue if queue.returns_at is None else replace(queue, returns_at=queue.returns_at + offset)
                for queue in self.backlog.rotation.status(now)
            ),
            sides=self.sides.states(),
            syphon=None if self._syphon is None else self._syphon.status(),
            sessions=None if self.sessions is None else self.sessions.status(),
            spool=None if self.spool is None else self.spool.status(),
            fleet=None if self.fleet is None else self.fleet.status(),
            records_lost=self._records.lost,
            warnings=(
                *self.options.doubts,
                *(() if self._report is None else self._report.warnings),
                *self._doubts_of_primary(),
                *(() if self.spool is None else self.spool.warnings),
            ),
        )

    def _doubts_of_primary(self) -> Iterator[str]:
        """To send to the backlog is right in an outage, and hides a mistyped address as well."""
        if not self._acquaintance.had_success and any(
            entity.health.state is EntityState.FAILED_OVER for entity in self._entities.values()
        ):
            yield (
                f"the primary, {self.primary.endpoint}, has not answered this client once: if it is up, is "
                "this its address?"
            )

    async def close(self) -> None:
        """Refuse what comes, give what is under way a moment, close all; no step that fails stops another."""
        self.sides.close()
        await take_each(self._close_parts, self._close_notifier)

    async def _close_parts(self) -> None:
        # At once: the syphon may have to wait for an answer as long as all the rest together.
        await asyncio.gather(self._close_senders(), self._close_syphon())

    async def _close_senders(self) -> None:
        # Sends from the spool and those of the application have the same moment to end.
        ends = asyncio.get_running_loop().time() + _CLOSE_GRACE
        await take_each(
            self._close_spool,
            self._end_provisioning,
            self._end_looks,
            partial(self._close_links, ends),
            self._leave_fleet,
            partial(self.graveyard.wait, _CLOSE_WAIT),
            self._records.close,
            self._close_sides,
        )

    async def _leave_fleet(self) -> None:
        if self.fleet is not None:
            await self.fleet.close()

    async def _close_spool(self) -> None:
        if self.spool is not None:
            await self.spool.close(_CLOSE_GRACE)

    async def _close_links(self, ends: float) -> None:
        grace = max(0.0, ends - asyncio.get_running_loop().time())
        await asyncio.gather(
            self.backlog.close(grace), *(entity.close(grace) for entity in self._entities.values())
        )

    async def _close_sides(self) -> None:
        await asyncio.gather(self.primary.close(_CLOSE_WAIT), self.secondary.close(_CLOSE_WAIT))

    async def _close_notifier(self) -> None:
        if self._notifier.is_running:
            wait = 0.0 if self._notifier.is_calling else _CLOSE_WAIT
            await self.loop.run_in_executor(THREADS, self._notifier.close, wait)

    async def _end_looks(self) -> None:
        if self.sessions is not None and self._view is not None:
            await self.sessions.close()
            await self.loop.run_in_executor(THREADS, self._view.close)

    async def _close_syphon(self) -> None:
        if self._syphon is not None:
            await self._syphon.close()

    async def _end_provisioning(self) -> None:
        if self._provisioning is not None:
            self._provisioning.cancel()
            await asyncio.wait({self._provisioning})


def _is_of_the_message(failure: Failure) -> bool:
    """Whether it failed for the sake of what was sent: it was refused as such, too large, or not encoded."""
    is_known = failure.fate == "refused" or failure.is_encoding
    return classify(failure) is FailureKind.CALLER and (is_known or _TOO_LARGE in failure.classes)

"""The leases of all pairs of a syphon. While one of them is not ours, no pump works.

They are kept on a thread of their own: whatever the driver waits for, they are renewed.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from pairbus.backlog.backlog import Backlog
from pairbus.backlog.discovery import Discovery, discover_now
from pairbus.errors import UnreachableError
from pairbus.lease.holding import LOCK_DURATION
from pairbus.lease.lease import PairLease
from pairbus.lease.view import Holder
from pairbus.ledger.operation_log import OperationLog
from pairbus.pairing.names import primary_name
from pairbus.portal import Portal, PortalClosed
from pairbus.pump.amqp_transport import AmqpTransport
from pairbus.pump.pair import ResolvedSide
from pairbus.stores.places import RecordPlace
from pairbus.wire.meter import Meter

from .engine import TICK
from .leash.leash import Leash

log = logging.getLogger(__name__)
_DEADLINE = 10.0
# A holder that has just died keeps the lease for a lock's duration; then a few seconds until it is asked for.
ONCE_PATIENCE = LOCK_DURATION + 5.0
# What to do about a lease that does not come: whether another syphon has it.
_ADVICE = {
    True: "Let that one do the work, or stop it",
    False: "Is the secondary up, and is its connection string right?",
}


class SyphonLeases:
    """Use it with `with`, around all that pumps do."""

    def __init__(
        self,
        backlogs: Sequence[Backlog],
        leash: Leash,
        *,
        run: str,
        kind: str,
        leaves_orphans: bool,
        records: Sequence[RecordPlace],
    ) -> None:
        """`records` are for what is billed, one for each backlog. Does no I/O."""
        self._leash = leash
        self._ledgers = [
            OperationLog(directory, role="lease", pair=backlog.name)
            for backlog, directory in zip(backlogs, records, strict=True)
        ]
        self._backlogs = backlogs
        orphans = leash.orphans if leaves_orphans else 0.0
        holder = Holder.of_this_process(run, kind=kind, now=time.time(), orphans=orphans)
        self._leases = [
            PairLease(_opener(backlog, ledger), backlog.name, holder=holder, on_change=self._note)
            for backlog, ledger in zip(backlogs, self._ledgers, strict=True)
        ]
        self._portal: Portal | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = threading.Event()

    def __enter__(self) -> Self:
        for ledger in self._ledgers:
            ledger.start()
        self._portal = Portal("pairbus-lease")
        try:
            self._portal.run_within(_DEADLINE, self._start)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        portal, self._portal = self._portal, None
        try:
            if portal is not None:
                portal.run_within(2 * _DEADLINE, self._end)
        except PortalClosed as error:  # they end with their locks; what the run has done is done
            log.warning("the leases could not be given back in time: %s", error)
        finally:
            if portal is not None:
                portal.close(timeout=_DEADLINE)
            for ledger in self._ledgers:
                ledger.close()

    async def _start(self) -> None:
        self._note()
        self._tasks = [asyncio.ensure_future(lease.run()) for lease in self._leases]

    async def _end(self) -> None:
        for lease in self._leases:
            lease.stop()
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=_DEADLINE)
            for task in left:
                task.cancel()

    def _note(self, lease: PairLease | None = None) -> None:
        if lease is not None and lease.state == "released":
            return  # all has ended
        reasons = [one.why or f"the lease of {one.primary} is asked for" for one in self._missing()]
        self._leash.bar(f"waiting: {'; '.join(reasons)}" if reasons else None)
        self._changed.set()

    def _missing(self) -> list[PairLease]:
        return [one for one in self._leases if not one.may_work]

    def discover(self) -> Discovery:
        """Look for the queues, and record what that costs; before all this has begun, too."""
        meters = [
            _meter(backlog.pair.secondary.resolve(), ledger)
            for backlog, ledger in zip(self._backlogs, self._ledgers, strict=True)
        ]
        return discover_now(self._backlogs, [meter.note_administered for meter in meters])

    @property
    def are_ours(self) -> bool:
        """Whether we have them all, or work without."""
        return not self._missing()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be told of leases that cannot be had."""
        return tuple(one.why for one in self._leases if one.state == "unavailable" and one.why)

    def describe(self) -> dict[str, str]:
        """The state of each, by the name of the primary."""
        return {one.primary: one.state for one in self._leases}

    def wait(self, limit: float | None, watch: Callable[[], None]) -> None:
        """Wait until all of them are ours, or the order is to stop; UnreachableError after the limit."""
        ends = None if limit is None else time.monotonic() + limit
        while missing := self._missing():
            if self._leash.order == "stop":
                return
            is_over = ends is not None and time.monotonic() > ends
            if is_over and not all(one.is_ours for one in missing):
                why = missing[0].why or f"the lease of {missing[0].primary} does not come"
                raise UnreachableError(
                    f"{why}; it was waited for {limit:.0f} s. {_ADVICE[missing[0].state == 'taken']}"
                )
            watch()
            self._changed.wait(TICK / 4)
            self._changed.clear()


def _meter(side: ResolvedSide, ledger: OperationLog) -> Meter:
    return Meter(primary_name(side.parsed or side.endpoint), ledger)


def _opener(backlog: Backlog, ledger: OperationLog) -> Callable[[], AmqpTransport]:
    def open_transport() -> AmqpTransport:
        side = backlog.pair.secondary.resolve()
        transport = AmqpTransport(side.place(), side.tokens(), container_id="pairbus-lease")
        transport.meter = _meter(side, ledger)
        return transport

    return open_transport

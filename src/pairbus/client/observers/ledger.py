"""Keeps the ledger of one client: every operation of it that a namespace bills, by entity, stage and minute.

An outage is what one client saw of it, from the failover of an entity to its failback. Whoever reads the
ledger puts together what several clients saw.

A send is only noted with its time. Notes are added up many at a time: between two waits for the network the
same work takes five times as long, and a sender would feel it. They are added up when there are some, before
the log is written, and before an outage begins or ends, so that each belongs to what was so at its time.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

from pairbus.clock import Clock, SystemClock
from pairbus.ledger.operation_log import MAX_AGE, OperationLog
from pairbus.metering import PING_BYTES, units
from pairbus.options import EntityState, StateChange
from pairbus.pairing.failures import Fate
from pairbus.pairing.names import path_key
from pairbus.stages import Stage
from pairbus.stores.places import RecordPlace
from pairbus.threads import THREADS

from .observer import Observer, RouteName, SendNote

# Sends that are alike in all that a bill asks for: path, route, queue, fate, minute.
_Likeness = tuple[str, RouteName, "str | None", Fate, float]
# So many notes take less than a millisecond to add up.
_MOST_NOTES = 200


class ClientLedger(Observer):
    """Records what a client does. Give it to the client among its `observers`, and close it after that."""

    def __init__(
        self, log: OperationLog, *, primary: str, secondary: str, clock: Clock | None = None
    ) -> None:
        """`primary` and `secondary` are the names of the two namespaces."""
        self._log = log
        self._now = (clock or SystemClock()).now
        self._notes: deque[tuple[float, SendNote]] = deque()
        self._adding = threading.Lock()
        log.before_flush = self._add_up
        self._primary = primary
        self._secondary = secondary
        self._outages: dict[str, str] = {}

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        primary: str,
        secondary: str,
        clock: Clock | None = None,
        max_age: float = MAX_AGE,
        ships_to: RecordPlace | None = None,
    ) -> ClientLedger:
        """A ledger in segments of a directory, which may be shipped from there. Does no I/O."""
        log = OperationLog(
            directory, role="client", pair=primary, clock=clock, max_age=max_age, ships_to=ships_to
        )
        return cls(log, primary=primary, secondary=secondary, clock=clock)

    async def close(self) -> None:
        """Write what there is."""
        await asyncio.get_running_loop().run_in_executor(THREADS, self._log.close)

    def paired(self, primary_name: str, backlog_queues: int) -> None:
        self._log.start()

    # -- what is billed

    def tallied(self, tally: SendNote) -> None:
        notes = self._notes
        notes.append((self._now(), tally))
        if len(notes) >= _MOST_NOTES:
            self._add_up()

    def _add_up(self) -> None:
        """Also called by the thread of the log."""
        sums: dict[_Likeness, list[int]] = {}
        with self._adding:
            while self._notes:
                at, (path, route, queue, fate, messages, size, large, by_request) = self._notes.popleft()
                key = (path, route, queue, fate, at // 60)
                for each in large:
                    self._add(key, 1, size=each, of_class=units(each))
                if by_request and route == "primary":
                    self.requested(path, fate)
                found = sums.get(key)
                if found is None:
                    found = sums[key] = [0, 0]
                found[0] += messages - len(large)
                found[1] += size - sum(large)
            for key, (messages, size) in sums.items():
                self._add(key, messages, size=size)

    def _add(self, key: _Likeness, messages: int, *, size: int, of_class: int = 1) -> None:
        path, route, queue, fate, minute = key
        if fate == "unsent" or route == "spool" or not messages:
            return
        is_primary, known = route == "primary", fate != "unknown"
        self._log.record(
            self._primary if is_primary else self._secondary,
            path if is_primary else queue or "",
            stage=Stage.SEND if is_primary else Stage.BACKLOG_SEND,
            kind="send_refused" if fate == "refused" else "send",
            count=messages if known else 0,
            unknown=0 if known else messages,
            size=size,
            size_class=of_class,
            outage=self._outages.get(path_key(path)),
            at=minute * 60,
        )

    def probed(self, path: str, fate: Fate) -> None:
        if fate != "unsent":
            kind = "send_refused" if fate == "refused" else "ping"
            self._record_one(path, Stage.PING, kind, fate, size=PING_BYTES)

    def requested(self, path: str, fate: Fate) -> None:
        if fate != "unsent":
            self._record_one(path, Stage.SCHEDULE, "management", fate)

    def administered(self, entity: str, fate: Fate) -> None:
        if fate != "unsent":
            known = fate != "unknown"
            self._log.record(
                self._secondary,
                entity,
                stage=Stage.MANAGEMENT,
                kind="admin",
                count=int(known),
                unknown=int(not known),
            )

    def _record_one(self, path: str, stage: Stage, kind: str, fate: Fate, *, size: int = 0) -> None:
        self._log.record(
            self._primary,
            path,
            stage=stage,
            kind=kind,
            count=int(fate != "unknown"),
            unknown=int(fate == "unknown"),
            size=size,
            outage=self._outages.get(path_key(path)),
        )

    # -- outages

    def state_changed(self, change: StateChange) -> None:
        self._add_up()
        key = path_key(change.path)
        ended = self._outages.pop(key, None)
        if ended is not None:
            self._log.mark_outage(ended, change.path, begins=False, at=change.at)
        if change.new is EntityState.FAILED_OVER:
            begun = datetime.fromtimestamp(change.at, UTC).isoformat(timespec="milliseconds")
            self._outages[key] = outage = f"{self._log.writer}/{key}/{begun}"
            self._log.mark_outage(outage, change.path, begins=True, at=change.at)

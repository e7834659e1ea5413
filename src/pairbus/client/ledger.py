"""Keeps the ledger of one client: every operation of it that a namespace bills, by entity, stage and minute.

An outage is what one client saw of it, from the failover of an entity to its failback. Whoever reads the
ledger puts together what several clients saw.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from ..clock import Clock
from ..ledger.operation_log import OperationLog
from ..ledger.operations import size_class
from ..options import EntityState, StateChange
from ..pairing.failures import Fate
from ..pairing.names import path_key
from .observer import Observer, Sending

__all__ = ["ClientLedger"]


class ClientLedger(Observer):
    """Records what a client does. Give it to the client among its `observers`, and close it after that."""

    def __init__(self, log: OperationLog, *, primary: str, secondary: str) -> None:
        """`primary` and `secondary` are the names of the two namespaces."""
        self._log = log
        self._primary = primary
        self._secondary = secondary
        self._outages: dict[str, str] = {}

    @classmethod
    def open(
        cls, directory: Path, *, primary: str, secondary: str, clock: Clock | None = None
    ) -> ClientLedger:
        """A ledger in segments of a directory. Does no I/O."""
        log = OperationLog(directory, role="client", pair=primary, clock=clock)
        return cls(log, primary=primary, secondary=secondary)

    async def close(self) -> None:
        """Write what there is."""
        await asyncio.get_running_loop().run_in_executor(None, self._log.close)

    def paired(self, primary_name: str, backlog_queues: int) -> None:
        self._log.start()

    # -- what is billed

    def sent(self, sending: Sending) -> None:
        fate, route = sending.fate, sending.route
        if fate == "unsent" or route == "spool":
            return
        if route == "primary":
            namespace, entity, stage = self._primary, sending.path, "send"
        else:
            namespace, entity, stage = self._secondary, sending.queue or "", "backlog_send"
        outage = self._outages.get(path_key(sending.path)) if self._outages else None
        large = sending.large
        kind = "send_refused" if fate == "refused" else "send"
        known = fate != "unknown"
        small, record = sending.messages - len(large), self._log.record
        if small:
            record(
                namespace,
                entity,
                stage=stage,
                kind=kind,
                count=small if known else 0,
                unknown=0 if known else small,
                size=max(0, sending.size - sum(large)),
                outage=outage,
            )
        for size in large:
            record(
                namespace,
                entity,
                stage=stage,
                kind=kind,
                count=int(known),
                unknown=int(not known),
                size=size,
                size_class=size_class(size),
                outage=outage,
            )
        if sending.by_request and route == "primary":
            self.requested(sending.path, fate)

    def probed(self, path: str, fate: Fate) -> None:
        if fate != "unsent":
            self._record_one(path, "ping", "send_refused" if fate == "refused" else "ping", fate)

    def requested(self, path: str, fate: Fate) -> None:
        if fate != "unsent":
            self._record_one(path, "management", "management", fate)

    def administered(self, entity: str, fate: Fate) -> None:
        if fate != "unsent":
            known = fate != "unknown"
            self._log.record(
                self._secondary,
                entity,
                stage="management",
                kind="admin",
                count=int(known),
                unknown=int(not known),
            )

    def _record_one(self, path: str, stage: str, kind: str, fate: Fate) -> None:
        self._log.record(
            self._primary,
            path,
            stage=stage,
            kind=kind,
            count=int(fate != "unknown"),
            unknown=int(fate == "unknown"),
            outage=self._outages.get(path_key(path)),
        )

    # -- outages

    def state_changed(self, change: StateChange) -> None:
        key = path_key(change.path)
        ended = self._outages.pop(key, None)
        if ended is not None:
            self._log.mark_outage(ended, change.path, begins=False, at=change.at)
        if change.new is EntityState.FAILED_OVER:
            begun = datetime.fromtimestamp(change.at, UTC).isoformat(timespec="milliseconds")
            self._outages[key] = outage = f"{self._log.writer}/{key}/{begun}"
            self._log.mark_outage(outage, change.path, begins=True, at=change.at)

"""What drains the backlog of a drill, checks the records and makes the bill: Spark, or without it one pump.

Without Spark the verdict of the records is left out: the audit by message id is the same either way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pairbus.client.state.directory import records_dir
from pairbus.cost.bill import BillTerms
from pairbus.cost.report import Report
from pairbus.cost.sheet import PriceSheet
from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.ledger.operation_log import OperationLog
from pairbus.ledger.receipts import ReceiptLog
from pairbus.pump.options import PumpOptions
from pairbus.pump.pair import PumpPair
from pairbus.pump.pump import Pump
from pairbus.pump.summary import PumpSummary
from pairbus.spark.java import check_java

from .bill import bill_in_memory
from .result import DrainRun
from .stage import PRIMARY_NAME

if TYPE_CHECKING:
    from pairbus.spark import Verdict

#: The variables in which the workers of Spark, and an application that is drilled, find the two namespaces.
PRIMARY_ENV = "PAIRBUS_DRILL_PRIMARY"
SECONDARY_ENV = "PAIRBUS_DRILL_SECONDARY"
_PROGRESS = 0.25


def check_spark() -> None:
    """Refuse a machine that Spark does not run on, before anything has begun."""
    how = "or drain with a pump in this process instead: --no-spark"
    if find_spec("pyspark") is None:
        raise UnreachableError(f"The drill drains with Spark: pip install 'pairbus[drill]', {how}")
    try:
        check_java()
    except ConfigurationError as error:
        raise UnreachableError(f"{error}, {how}") from None


def pump_options(max_rate: float | None, *, drain: bool) -> PumpOptions:
    """How the backlog is moved, by whatever engine."""
    return PumpOptions(drain=drain, max_rate=max_rate, progress_interval=_PROGRESS)


class PumpEngine:
    """One pump in this process, for machines without Java."""

    name = "pump"

    def __init__(self, state: Path, *, pair: PumpPair, queues: Sequence[str], max_rate: float | None) -> None:
        self._records = records_dir(state)
        self._pair = pair
        self._queues = queues
        self._options = pump_options(max_rate, drain=True)
        self.moved = 0

    def start(self) -> None:
        """There is nothing to get ready."""

    async def wait_ready(self) -> None:
        """It always is."""

    async def drain(self) -> DrainRun:
        pump = Pump(
            self._pair,
            self._queues,
            options=self._options,
            receipts=ReceiptLog(self._records),
            ledger=OperationLog(self._records, role="pump", pair=PRIMARY_NAME),
            on_progress=self._note,
        )
        summary = await pump.run()
        self.moved = 0
        return DrainRun.of(summary)

    def _note(self, summary: PumpSummary) -> None:
        self.moved = summary.moved

    async def verify(self) -> Verdict | None:
        return None

    async def bill(self, sheet: PriceSheet, terms: BillTerms, *, now: float) -> Report:
        return await asyncio.to_thread(bill_in_memory, self._records, sheet, terms=terms, now=now)

    async def close(self) -> None:
        """There is nothing to end."""

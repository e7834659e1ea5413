"""The Spark of a drill: the syphon as it runs in production, `verify`, and the bill.

Spark takes some seconds to start. It is told to as soon as the namespaces have their ports, which its workers
know by their environment, and it is waited for when the drain begins. All that has to do with it happens on
one thread.
"""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pairbus.client.state.directory import records_dir
from pairbus.cost.bill import BillTerms
from pairbus.cost.report import Report
from pairbus.cost.sheet import PriceSheet
from pairbus.pump.pair import PumpPair
from pairbus.spark import Backlog, Syphon, SyphonSummary, Verdict, open_session, verify
from pairbus.spark.bill import bill_ledger

from .engines import PRIMARY_ENV, SECONDARY_ENV, pump_options
from .result import DrainRun

T = TypeVar("T")


class SparkEngine:
    """The syphon as it runs in production, on a Spark of this machine."""

    name = "Spark"

    def __init__(self, state: Path, *, queues: int, max_rate: float | None) -> None:
        self._state = state
        self._records = records_dir(state)
        self._options = pump_options(max_rate, drain=False)
        self._backlog = Backlog(pair=PumpPair.from_env(PRIMARY_ENV, SECONDARY_ENV), count=queues)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pairbus-drill-spark")
        self._session: Future[Any] | None = None
        self._syphon: Syphon | None = None

    def start(self) -> None:
        """The two variables must be set by now: Java hands them on to the workers."""
        self._session = self._thread.submit(_open_warm_session)

    async def wait_ready(self) -> None:
        """Wait for Java, and for the workers to be warm."""
        await self._run(lambda session: None)

    @property
    def moved(self) -> int:
        syphon = self._syphon
        return 0 if syphon is None else syphon.progress().moved

    async def drain(self) -> DrainRun:
        return DrainRun.of(await self._run(self._drain))

    def _drain(self, session: Any) -> SyphonSummary:
        self._syphon = Syphon(
            session, self._backlog, records=self._records, state=self._state, options=self._options
        )
        try:
            return self._syphon.run(once=True)
        finally:
            self._syphon = None

    async def verify(self) -> Verdict:
        return await self._run(lambda session: verify(session, [self._backlog], records=[self._records]))

    async def bill(self, sheet: PriceSheet, terms: BillTerms, *, now: float) -> Report:
        run = await self._run(
            lambda session: bill_ledger(lambda: session, self._records, sheet, now=now, terms=terms)
        )
        return run.report

    async def _run(self, act: Callable[[Any], T]) -> T:
        assert self._session is not None, "the engine was not started"
        session = self._session
        return await asyncio.wrap_future(self._thread.submit(lambda: act(session.result())))

    async def close(self) -> None:
        syphon = self._syphon
        if syphon is not None:
            syphon.stop()
        if self._session is not None:
            await asyncio.wrap_future(self._thread.submit(_stop_session, self._session))
        self._thread.shutdown(wait=False)


def _open_warm_session() -> Any:
    """A session whose Python workers have imported what the drain needs."""
    session = open_session(app_name="pairbus-drill")
    session.range(0, 2, 1, 2).mapInArrow(_pass_on, "id long").collect()
    return session


def _pass_on(batches: Iterator[Any]) -> Iterator[Any]:
    """What the workers do to warm up: unpickling it has them import this module."""
    yield from batches


def _stop_session(session: Future[Any]) -> None:
    if session.exception() is None:
        session.result().stop()
